"""What quotas leave of each choice, and what this person used of such slices before, in words. Pure.

The allocator says both with the menu, so the form asks nothing more. It decides when a server starts; here it is foretold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mig_spawner.domain.quota import EPSILON, Unit
from mig_spawner.wire.availability import OfferDocument
from mig_spawner.wire.menu.seen import SeenMenu
from mig_spawner.wire.quota import QuotaDocument


@dataclass(frozen=True)
class Own:
    """What the allocator says of a person.

    Attributes:
        peaks: the most memory that was used on slices of a profile (None: on whole GPUs), MiB.
    """

    quotas: Sequence[QuotaDocument] = ()
    peaks: Mapping[str | None, int] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: SeenMenu | None) -> Own:
        return cls() if seen is None else cls(seen.quotas, {peak.profile: peak.memory_mib for peak in seen.peaks})

    def over(self, offer: OfferDocument) -> str:
        """Which quota is against one more of these, a sentence; empty for none."""
        against = next((quota for quota in self.quotas if _room(quota, offer) < 1), None)
        if against is None:
            return ""
        contact = f" For more ask {against.contact}." if against.contact else ""
        return f"A quota is against it: {against.text[:1].lower()}{against.text[1:]}{contact}"

    def left(self, offer: OfferDocument, span: Callable[[float], str]) -> str:
        """How much more of these there may be; empty where nothing is limited.

        Args:
            span: writes seconds as people read them.
        """
        counted = [_room(quota, offer) for quota in self.quotas if quota.unit is not Unit.GPU_HOURS]
        hours = min((quota.left for quota in self.quotas if quota.unit is Unit.GPU_HOURS), default=None)
        parts = [f"room for {min(counted)} of these"] if counted else []
        if hours is not None:
            parts.append(f"{hours:g} GPU-hours left, which is {span(hours / offer.share * 3600)} of this")
        return f"Within your quotas: {'; '.join(parts)}." if parts else ""

    def peak(self, offer: OfferDocument) -> str:
        """What was used of such slices before; empty where that is not known."""
        most = self.peaks.get(offer.profile)
        if most is None:
            return ""
        what = "such a slice" if offer.profile is not None else "a whole GPU"
        return f"You have used at most {most / 1024:.3g} GB of {what} before."


def _room(quota: QuotaDocument, offer: OfferDocument) -> int:
    """How many more of an offer a quota has room for."""
    whole = offer.profile is None or not offer.multiprocessors_total
    sizes = {
        Unit.SLICES: 1.0,
        Unit.MEMORY_GB: float(offer.memory_gb),
        Unit.COMPUTE_SHARE: 1.0 if whole else offer.multiprocessors / offer.multiprocessors_total,
    }
    if quota.unit is Unit.GPU_HOURS:
        return 1 if quota.left > EPSILON else 0
    return math.floor(quota.left / sizes[quota.unit] + EPSILON)
