"""Each state of occupancy is ranked once, whatever number of GPUs are in it.

Two GPUs that offer the same profiles, with instances in the same places and the same engines in use, are in the same state: a
ranking cannot tell them apart. There are some hundred states on an eight-slice grid, and GPUs come and go between them. So a
table remembers, for every state that was met, the best start of every profile and how it compares with other GPUs.

Tables are filled as states are met, since foreign instances make states that no sequence of our own would reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from mig_spawner.domain.gpu import GPU, Engines, Layout, Profile
from mig_spawner.domain.policy.base import Ranking
from mig_spawner.domain.profile import ProfileName

STATES_KNOWN: Final = 1 << 16
"""A table that has met more states forgets them: hostile reports must not fill the memory."""


class Best(NamedTuple):
    """The best place for a profile on a GPU in a state.

    Attributes:
        level: the rank between GPUs; the least wins.
    """

    level: int
    start: int
    profile: Profile


_UNMET: Final = Best(0, -1, Profile(ProfileName(1, 0), 0, 1, (0,), 1, 0, 0))


class Table:
    """What one ranking thinks of the states of GPUs that offer the same profiles. Threads may share it."""

    def __init__(self, gpu: GPU, ranking: Ranking) -> None:
        """Any GPU that offers these profiles will do: it stands for all of them."""
        self._gpu = gpu
        self._ranking = ranking
        self._profiles = {profile.name: profile for profile in reversed(gpu.profiles)}
        self._best: dict[ProfileName, dict[tuple[int, int, Engines], Best | None]] = {
            name: {} for name in self._profiles
        }
        self._rows: dict[tuple[int, int, Engines], Mapping[ProfileName, Best]] = {}

    def best(self, name: ProfileName, layout: Layout) -> Best | None:
        """The best place for a profile, or None if the GPU does not offer it or has no room."""
        column = self._best.get(name)
        if column is None:
            return None
        key = (layout.mask, layout.heads, layout.engines)
        best = column.get(key, _UNMET)
        if best is _UNMET:
            if len(column) >= STATES_KNOWN:
                column.clear()
            best = column[key] = self._find(name, layout)
        return best

    def row(self, layout: Layout) -> Mapping[ProfileName, Best]:
        """The best places of all profiles for which there is room."""
        key = (layout.mask, layout.heads, layout.engines)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= STATES_KNOWN:
                self._rows.clear()
            found = ((name, self.best(name, layout)) for name in self._profiles)
            row = {name: best for name, best in found if best is not None}
            self._rows[key] = row
        return row

    def _find(self, name: ProfileName, layout: Layout) -> Best | None:
        profile = self._profiles[name]
        layout = Layout(self._gpu, layout.mask, layout.engines, layout.heads)
        places = ((self._ranking(layout, profile, start), start) for start in layout.starts(profile))
        best = min(places, default=None)
        return None if best is None else Best(best[0].gpu, best[1], profile)


class _Kind:
    """A key for GPUs of one model that offer the same profiles.

    The model alone is hashed: to hash all profiles of every GPU would cost more than the decision.
    """

    __slots__ = ("gpu",)

    def __init__(self, gpu: GPU) -> None:
        self.gpu = gpu

    def __hash__(self) -> int:
        return hash(self.gpu.model)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Kind):
            return NotImplemented
        return self.gpu.model == other.gpu.model and self.gpu.profiles == other.gpu.profiles


@lru_cache(maxsize=256)
def _table(kind: _Kind, ranking: Ranking) -> Table:
    return Table(kind.gpu, ranking)


def table_of(gpu: GPU, ranking: Ranking) -> Table:
    """The table of this process for GPUs like this one. Equal profiles and the same ranking give the same table."""
    return _table(_Kind(gpu), ranking)
