"""GPUs, what is on them and who waits, written in a few words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.gpu import Layout, Placement
from mig_spawner.domain.lease import Holder, Queued
from mig_spawner.domain.policy import best_fit
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.queue import Board, Line, Outlook, Turn
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.testing.gpu import find_model

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
_numbers = count()


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def gpu(number: int, *on_it: tuple[str, int, float | None], model: str = "a100-80gb", **state: Any) -> Outlook:
    """A GPU with instances: profile, start, and in how many minutes it is free again (None: nobody knows)."""
    shape = find_model(model).gpu(f"GPU-{number}")
    outlook = Outlook(GPUState(f"n{number}", shape, Layout(shape), **state), NOW)
    for name, start, ends in on_it:
        profile = shape.profile(ProfileName.parse(name))
        assert profile is not None
        decision = Decision(
            f"n{number}", shape, Placement(shape.gpu_uuid, start, profile.size), profile, None, cut=True
        )
        outlook = outlook.granting(decision, None if ends is None else NOW + minutes(ends))
    return outlook


def request(text: str) -> Request:
    """`whole`, `12 GB` or a profile."""
    if text == "whole":
        return WholeRequest()
    return MemoryRequest(float(text[:-3])) if text.endswith(" GB") else SliceRequest(ProfileName.parse(text))


def waits(name: str, *choices: str, duration: float | None = None, **more: Any) -> Queued:
    """Somebody who waits; `duration` in minutes."""
    first, *others = map(request, choices)
    return Queued(
        lease_id=name,
        holder=Holder(name),
        request=first,
        alternatives=tuple(others),
        queued_at=more.pop("queued_at", NOW + timedelta(seconds=next(_numbers))),
        duration_s=None if duration is None else duration * 60,
        **more,
    )


def line(*gpus: Outlook, **more: Any) -> Line:
    return Line(Board(gpus, best_fit, NOW, **more))


def told(turns: list[Turn]) -> list[tuple[str, str, str]]:
    """Who was served with what, where."""
    return [
        (t.lease.lease_id, str(t.decision.profile.name if t.decision.profile else "whole"), t.decision.gpu.gpu_uuid)
        for t in turns
    ]
