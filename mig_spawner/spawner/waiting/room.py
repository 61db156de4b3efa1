"""The room as a page shows it. Pure: what is known of a start in, view model out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mig_spawner.spawner.form import ChoiceView, choice_view
from mig_spawner.spawner.waiting.stage import StageView, stages_of
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu import MenuEntry


@dataclass(frozen=True, slots=True)
class Room:
    """What the page shows.

    Attributes:
        action: where its forms are sent to; empty where the hub does not have our handlers.
        script: the URL of its script.
        form: where to choose again after a start that failed.
        stages: the way from the click to the open server.
        message: the last that was said; `progress` how far it is, of 100.
        waits: there is a line to leave, or to ask something else in.
        now: other choices that could be had at once.
        others: all other choices.
        none: the choice without a GPU; None where the menu has none.
    """

    action: str
    script: str
    stages: tuple[StageView, ...]
    form: str = ""
    message: str = ""
    progress: int = 0
    waits: bool = False
    now: tuple[ChoiceView, ...] = ()
    others: tuple[ChoiceView, ...] = ()
    none: ChoiceView | None = None


def room_view(
    events: Iterable[Mapping[str, Any]],
    *,
    entry: MenuEntry | None,
    offered: Iterable[MenuEntry],
    availability: Availability | None,
    waits: bool,
    checked: bool,
    action: str,
    script: str,
    form: str = "",
) -> Room:
    """What the page shows.

    Args:
        events: of the progress.
        entry: what is waited for; None before it is known.
        offered: what this server could have.
        availability: as of some seconds ago; None where it is not known.
        waits: the server stands in line.
        checked: the slice is checked before the server opens.
    """
    events = list(events)
    gpu = entry is None or not entry.none
    views = [choice_view(e, availability) for e in offered if entry is None or e.id != entry.id] if waits else []
    others = tuple(v for v in views if v.gpu and v.enabled)
    return Room(
        action=action,
        script=script,
        form=form,
        stages=stages_of(events, gpu=gpu, checked=checked),
        message=str(events[-1]["message"]) if events else "",
        progress=int(events[-1].get("progress") or 0) if events else 0,
        waits=waits,
        now=tuple(v for v in others if v.free),
        others=others,
        none=next((v for v in views if not v.gpu), None),
    )
