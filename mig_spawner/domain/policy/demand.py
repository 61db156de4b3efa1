"""What people ask for: the share of each profile in the requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from mig_spawner.domain.gpu import Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

PARTS: Final = 1_000_000
PRIOR_WORTH: Final = 50.0
HALF_LIFE: Final = 2000.0


@dataclass(frozen=True, slots=True)
class Demand:
    """The mix of requests, as whole parts per million, so that sums of them are exact.

    Where nothing is known, or nothing that a GPU offers was ever asked for, the prior counts: each plain profile of the GPU is as
    likely as the next. Variants with a media suffix have no share in it: they sit where their plain profile sits, and
    would count it twice.

    Attributes:
        shares: (profile, parts per million), in the order of the names; none twice, none zero. Empty: nothing is known.
    """

    shares: tuple[tuple[ProfileName, int], ...] = ()

    @classmethod
    def of(cls, weights: Mapping[ProfileName, float]) -> Demand:
        """The demand with these weights, which need not add up to anything.

        Raises:
            InvalidRequest: a weight is negative or no number.
        """
        for name, weight in weights.items():
            if not isfinite(weight) or weight < 0:
                raise InvalidRequest(f"The weight of {name} in a demand is a number from 0 on, not {weight!r}.")
        largest = max(weights.values(), default=0)
        if largest == 0:
            return UNKNOWN
        # Scaled before they are added: huge weights stay finite, tiny ones above zero.
        scaled = {name: weight / largest for name, weight in weights.items()}
        total = sum(scaled[name] for name in sorted(scaled))
        parts = ((name, round(scaled[name] / total * PARTS)) for name in sorted(scaled))
        return cls(tuple((name, part) for name, part in parts if part))

    @classmethod
    def estimate(
        cls,
        requests: Iterable[ProfileName],
        offered: Iterable[ProfileName],
        *,
        prior_worth: float = PRIOR_WORTH,
        half_life: float = HALF_LIFE,
    ) -> Demand:
        """The demand that past requests speak for.

        Args:
            requests: what was asked for, oldest first.
            offered: every profile that can be had; the plain ones share the prior.
            prior_worth: how many requests the prior counts for; more makes the first day steadier.
            half_life: after so many further requests one counts half; fewer follows a new term sooner.
        """
        plain = sorted({name for name in offered if not name.suffix})
        weights = {name: prior_worth / len(plain) for name in plain}
        worth, growth = 1.0, 2.0 ** (1.0 / half_life)
        seen: dict[ProfileName, float] = {}
        for name in requests:
            # The newer counts more, rather than all the older less: one addition a request.
            worth *= growth
            if worth > _TOO_LARGE:
                seen = {other: value / worth for other, value in seen.items()}
                worth = 1.0
            seen[name] = seen.get(name, 0.0) + worth
        for name, value in seen.items():
            weights[name] = weights.get(name, 0.0) + value / worth
        return cls.of(weights)

    def parts(self, profiles: Sequence[Profile]) -> tuple[int, ...]:
        """The share of each of the profiles of one GPU, in parts per million of all requests; the prior if all were zero."""
        known = dict(self.shares)
        parts = tuple(known.get(profile.name, 0) for profile in profiles)
        if any(parts):
            return parts
        count = sum(not profile.name.suffix for profile in profiles)
        return tuple(0 if profile.name.suffix else PARTS // count for profile in profiles)


_TOO_LARGE: Final = 1e100

UNKNOWN: Final = Demand()
"""Nothing is known of what people ask for: the prior counts."""
