"""What quotas leave of a choice, and what was used of it before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.quota import Scope, Unit
from mig_spawner.spawner.allowance import Own
from mig_spawner.spawner.form import span_text
from mig_spawner.wire.availability import OfferDocument
from mig_spawner.wire.menu.seen import PeakDocument, SeenMenu
from mig_spawner.wire.quota import QuotaDocument


def quota(unit: Unit, left: float, *, contact: str = "") -> QuotaDocument:
    return QuotaDocument(
        name="",
        per=Scope.PERSON,
        subject="ada",
        unit=unit,
        limit=100,
        used=100 - left,
        left=left,
        contact=contact,
        text=f"You have used {100 - left:g} of 100.",
    )


@pytest.mark.parametrize(
    ("quotas", "left"),
    [
        ([], ""),
        ([quota(Unit.SLICES, 2)], "Within your quotas: room for 2 of these."),
        ([quota(Unit.SLICES, 5), quota(Unit.MEMORY_GB, 90)], "Within your quotas: room for 2 of these."),
        ([quota(Unit.COMPUTE_SHARE, 3 * 42 / 98)], "Within your quotas: room for 3 of these."),
        ([quota(Unit.GPU_HOURS, 3)], "Within your quotas: 3 GPU-hours left, which is 6 h of this."),
        (
            [quota(Unit.SLICES, 1), quota(Unit.GPU_HOURS, 0.25), quota(Unit.GPU_HOURS, 9)],
            "Within your quotas: room for 1 of these; 0.25 GPU-hours left, which is 30 min of this.",
        ),
    ],
    ids=["none", "slices", "the tighter", "thirds", "hours", "all"],
)
def test_what_is_left(offer: Callable[..., OfferDocument], quotas: list[QuotaDocument], left: str) -> None:
    half = offer("3g.40gb", 1, 2)
    own = Own(quotas)
    assert (own.over(half), own.left(half, span_text)) == ("", left)


@pytest.mark.parametrize(
    "against",
    [quota(Unit.SLICES, 0), quota(Unit.MEMORY_GB, 39), quota(Unit.COMPUTE_SHARE, 0.4), quota(Unit.GPU_HOURS, 0)],
    ids=lambda one: one.unit,
)
def test_what_is_over_a_quota_says_which(offer: Callable[..., OfferDocument], against: QuotaDocument) -> None:
    own = Own([quota(Unit.SLICES, 7), against.model_copy(update={"contact": "gpu-help"})])
    assert own.over(offer("3g.40gb", 1, 2)) == (f"A quota is against it: y{against.text[1:]} For more ask gpu-help.")


def test_a_whole_gpu_is_one_by_compute(offer: Callable[..., OfferDocument]) -> None:
    assert Own([quota(Unit.COMPUTE_SHARE, 1)]).over(offer(None, 1, 1)) == ""
    assert Own([quota(Unit.COMPUTE_SHARE, 0.9)]).over(offer(None, 1, 1))


def test_what_was_used_before(offer: Callable[..., OfferDocument]) -> None:
    peaks = (PeakDocument(profile="1g.10gb", memory_mib=7500), PeakDocument(profile=None, memory_mib=81920))
    own = Own.of(SeenMenu(entries=(), peaks=peaks))
    assert own.peak(offer("1g.10gb", 1, 7)) == "You have used at most 7.32 GB of such a slice before."
    assert own.peak(offer(None, 1, 1)) == "You have used at most 80 GB of a whole GPU before."
    assert own.peak(offer("3g.40gb", 1, 2)) == ""
    assert Own.of(None).peak(offer("1g.10gb", 1, 7)) == ""
