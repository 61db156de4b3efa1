"""What the waiting room says, from events, pods and leases: values in, words out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mig_spawner.spawner.waiting.line import place
from mig_spawner.spawner.waiting.room import room_view
from mig_spawner.spawner.waiting.stage import Stage, mark, pod_stage, stages_of
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import Menu

MakeLease = Callable[..., LeaseDocument]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(stage: Stage | None, message: str) -> dict[str, Any]:
    return {"message": message, **({} if stage is None else mark(stage))}


EVENTS = [event(Stage.WAITING, "one"), event(None, "two"), event(Stage.HELD, "three"), event(Stage.NODE, "four")]


def states(**arguments: Any) -> dict[str, str]:
    return {view.id: view.state for view in stages_of(EVENTS, **arguments)}


def test_a_stage_is_over_when_the_next_begins() -> None:
    assert states(gpu=True, checked=True) == {
        "waiting": "done",
        "held": "done",
        "node": "now",
        "image": "next",
        "checked": "next",
        "open": "next",
    }
    views = {view.id: view for view in stages_of(EVENTS, gpu=True, checked=True)}
    assert views["waiting"].reason == "two"
    assert views["waiting"].at is not None
    assert views["open"].at is None


def test_a_server_without_a_gpu_has_fewer_stages() -> None:
    assert states(gpu=False, checked=False) == {"node": "now", "image": "next", "open": "next"}
    assert [v.state for v in stages_of([], gpu=True, checked=False)][:2] == ["now", "next"]


@pytest.mark.parametrize(
    ("pod", "stage", "words"),
    [
        (None, None, ""),
        ({"spec": {}, "status": {}}, None, ""),
        ({"spec": {"nodeName": "a"}, "status": {}}, Stage.IMAGE, "The pod is on a"),
        (
            {
                "spec": {"nodeName": "a"},
                "status": {
                    "containerStatuses": [{"name": "notebook", "state": {"waiting": {"message": "Back-off pulling"}}}]
                },
            },
            Stage.IMAGE,
            "Back-off pulling",
        ),
        (
            {
                "spec": {"nodeName": "a"},
                "status": {"containerStatuses": [{"name": "notebook", "state": {"running": {}}}]},
            },
            Stage.OPEN,
            "about to answer",
        ),
    ],
    ids=["no pod", "no node", "on a node", "pulling", "running"],
)
def test_what_a_pod_says_of_its_start(pod: dict[str, Any] | None, stage: Stage | None, words: str) -> None:
    found = pod_stage(pod, checked=False)
    assert (found is None) == (stage is None)
    if found is not None:
        assert found[0] is stage
        assert words in found[1]
        if stage is Stage.OPEN:
            checking = pod_stage(pod, checked=True)
            assert checking is not None
            assert checking[0] is Stage.CHECKED


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        ((0, 0.5), "within a minute"),
        ((4.2, 5), "in about 5 minutes"),
        ((4.2, 11), "in 5 to 11 minutes"),
        ((-3, 8), "in 0 to 8 minutes"),
    ],
    ids=str,
)
def test_a_range_is_told_in_minutes(lease: MakeLease, minutes: tuple[float, float], words: str) -> None:
    earliest, latest = ((NOW + timedelta(minutes=m)).isoformat() for m in minutes)
    queued = lease("queued", position=2, queue_length=3, starts_between={"earliest": earliest, "latest": latest})
    said = place(queued, NOW)
    assert said.startswith("Waiting for 1g.10gb: position 2 of 3. It should start ")
    assert words in said


def test_what_cannot_be_told_and_what_else_would_do_is_said(lease: MakeLease) -> None:
    queued = lease(
        "queued",
        position=1,
        alternatives=("2g.20gb",),
        cannot_tell="Nobody has to leave.",
        detail="Waits for it: number 1 of 1 in the queue. It could not be made on 1 GPU.",
    )
    assert place(queued, NOW) == (
        "Waiting for 1g.10gb, or else 2g.20gb: position 1. Nobody has to leave. It could not be made on 1 GPU."
    )


def test_only_what_can_be_had_is_offered_instead(
    menu: list[dict[str, Any]],
    availability: Callable[..., Availability],
    offer: Callable[..., OfferDocument],
) -> None:
    entries = list(Menu.parse(menu))
    free = availability(offer("1g.10gb", 5, 7), offer("3g.40gb", 0, 2), offer(None, 0, 1))
    arguments: dict[str, Any] = {"availability": free, "checked": False, "action": "/a", "script": "/s"}
    room = room_view(EVENTS, entry=entries[4], offered=entries, waits=True, **arguments)
    assert [v.id for v in room.now] == ["small"]
    assert [v.id for v in room.others] == ["small", "medium", "about-12"]
    assert room.none is not None
    assert room.message == "four"
    over = room_view(EVENTS, entry=entries[4], offered=entries, waits=False, **arguments)
    assert (over.now, over.others, over.none) == ((), (), None)
