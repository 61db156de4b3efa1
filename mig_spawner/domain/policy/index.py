"""A fleet that is kept, so that a decision costs the same on 10 and on 10,000 GPUs.

For each profile there is a line of the GPUs that have room for it, the best in front. When something starts or stops on a GPU,
it changes its place in the lines of the profiles whose rank on it changed: for a state that was met before that is a
comparison of two rows of numbers. GPUs are not taken out of the middle of a line; those that have moved on are
skipped when they come to the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.policy.base import Ranking
from mig_spawner.domain.policy.choice import (
    cut_decision,
    device_decision,
    standing_decision,
    whole_decision,
    whole_level,
)
from mig_spawner.domain.policy.table import Best, Table, table_of
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest

Row = Mapping[ProfileName, Best]
"""The best places of one GPU, by profile."""

_POSITION_BITS: Final = 32
_POSITION: Final = (1 << _POSITION_BITS) - 1


class Index:
    """A fleet under one ranking, brought up to date GPU by GPU. It decides exactly as `choose` does on the same fleet.

    The order of the fleet is that in which GPUs were first put. Not for use by several threads at once.

    Attributes:
        moved: the GPUs that were put, or put again. Whoever lends it for a while clears this, and can put back what was put since.
    """

    def __init__(self, fleet: Iterable[GPUState], ranking: Ranking) -> None:
        self._ranking = ranking
        self.moved: set[str] = set()
        self._position: dict[str, int] = {}
        self._entries: list[_Entry] = []
        self._tables: dict[int, tuple[object, Table]] = {}
        self._ways: dict[tuple[int, int], tuple[Row, Row, Sequence[tuple[ProfileName, int]]]] = {}
        self._cut: dict[ProfileName, _Line] = {}
        self._standing: dict[ProfileName, _Line] = {}
        self._whole = _Line()
        self._devices: dict[str, int] = {}
        self._names: list[ProfileName] | None = None
        for state in fleet:
            self.put(state)

    def put(self, state: GPUState) -> None:
        """Take in how a GPU is now. One that is new goes to the end of the order."""
        self.moved.add(state.gpu.gpu_uuid)
        position = self._position.setdefault(state.gpu.gpu_uuid, len(self._entries))
        if position == len(self._entries):
            self._entries.append(_Entry())
        entry = self._entries[position]
        before, standing, whole = entry.row, entry.standing, entry.whole
        entry.state = state
        entry.row = self._row(state)
        entry.standing = _standing(state)
        entry.whole = whole_level(state)
        for device in state.devices:
            self._devices[device.device_uuid] = position
        if entry.row is not before:
            for name, level in self._changed(before, entry.row):
                self._line(self._cut, name).add(level, position)
                self._tidy_cut(name)
        for name in entry.standing - standing:
            self._line(self._standing, name).add(0, position)
            self._tidy_standing(name)
        if entry.whole is not None and entry.whole != whole:
            self._whole.add(entry.whole, position)
            self._tidy_whole()

    def remove(self, gpu_uuid: str) -> None:
        """Forget a GPU. If it is put again, it goes to the end.

        Raises:
            KeyError: there is none.
        """
        self._entries[self._position.pop(gpu_uuid)] = _Entry()

    @property
    def has_room(self) -> bool:
        """Whether anything at all could be served now. Costs as much as a few decisions."""
        names = {*self._cut, *self._standing}
        return self._choose_whole() is not None or any(self._choose(name) is not None for name in names)

    def choose(self, request: Request) -> Decision | None:
        """Where to serve a request now, or None if nothing legal is free."""
        match request:
            case WholeRequest():
                return self._choose_whole()
            case SliceRequest(profile):
                return self._choose(profile)
            case DeviceRequest(mig_uuid):
                position = self._devices.get(mig_uuid)
                state = None if position is None else self._entries[position].state
                return None if state is None else device_decision(state, mig_uuid)
            case MemoryRequest(min_memory_gb):
                names = (n for n in self._plain_names() if n.memory_gb >= min_memory_gb)
                return next((d for n in names if (d := self._choose(n)) is not None), None)

    def _choose(self, name: ProfileName) -> Decision | None:
        line = self._standing.get(name)
        if line is not None:
            while (front := line.front()) is not None:
                entry = self._entries[front & _POSITION]
                if name in entry.standing and entry.state is not None:
                    return standing_decision(entry.state, name)
                line.drop()
        line = self._cut.get(name)
        if line is not None:
            while (front := line.front()) is not None:
                entry = self._entries[front & _POSITION]
                best = entry.row.get(name)
                if best is not None and best.level == front >> _POSITION_BITS and entry.state is not None:
                    return cut_decision(entry.state, best)
                line.drop()
        return None

    def _choose_whole(self) -> Decision | None:
        while (front := self._whole.front()) is not None:
            entry = self._entries[front & _POSITION]
            if entry.whole == front >> _POSITION_BITS and entry.state is not None:
                return whole_decision(entry.state)
            self._whole.drop()
        return None

    def _row(self, state: GPUState) -> Row:
        if state.unavailable is not None or not state.cuttable:
            return _NOTHING
        profiles = state.gpu.profiles
        known = self._tables.get(id(profiles))
        if known is None:
            if len(self._tables) >= max(1024, 2 * len(self._entries)):
                self._tables.clear()
            # The profiles are kept beside the table: their id stays their own as long as they live.
            known = self._tables[id(profiles)] = (profiles, table_of(state.gpu, self._ranking))
        return known[1].row(state.layout)

    def _changed(self, before: Row, after: Row) -> Sequence[tuple[ProfileName, int]]:
        """The profiles that rank otherwise after a change of state, and how. GPUs go the same ways again and again."""
        key = (id(before), id(after))
        known = self._ways.get(key)
        if known is None:
            if len(self._ways) >= _WAYS_KNOWN:
                self._ways.clear()
            changed = tuple(
                (name, best.level)
                for name, best in after.items()
                if (old := before.get(name)) is None or old.level != best.level
            )
            # The rows are kept beside: their ids stay their own as long as they live.
            known = self._ways[key] = (before, after, changed)
        return known[2]

    def _line(self, lines: dict[ProfileName, _Line], name: ProfileName) -> _Line:
        line = lines.get(name)
        if line is None:
            line = lines[name] = _Line()
            self._names = None
        return line

    def _plain_names(self) -> list[ProfileName]:
        """Every plain profile that was ever to be had, smallest memory first, as `profile_names` sorts them."""
        if self._names is None:
            names = {name for name in (*self._cut, *self._standing) if not name.suffix}
            self._names = sorted(names, key=lambda n: (n.memory_gb, n.compute_slices, n.suffix))
        return self._names

    def _tidy_cut(self, name: ProfileName) -> None:
        if self._cut[name].longer_than(len(self._entries)):
            found = ((e.row.get(name), number) for number, e in enumerate(self._entries))
            self._cut[name] = _Line((best.level, number) for best, number in found if best is not None)

    def _tidy_standing(self, name: ProfileName) -> None:
        if self._standing[name].longer_than(len(self._entries)):
            self._standing[name] = _Line((0, number) for number, e in enumerate(self._entries) if name in e.standing)

    def _tidy_whole(self) -> None:
        if self._whole.longer_than(len(self._entries)):
            levels = ((e.whole, number) for number, e in enumerate(self._entries))
            self._whole = _Line((level, number) for level, number in levels if level is not None)


class _Entry:
    """One GPU: how it is, and what it is in line for."""

    __slots__ = ("row", "standing", "state", "whole")

    def __init__(self) -> None:
        self.state: GPUState | None = None
        self.row: Row = _NOTHING
        self.standing: frozenset[ProfileName] = frozenset()
        self.whole: int | None = None


class _Line:
    """Positions by level, then by number: a heap of integers that hold both. What has moved on is still in it."""

    __slots__ = ("_heap",)

    def __init__(self, places: Iterable[tuple[int, int]] = ()) -> None:
        self._heap = [(level << _POSITION_BITS) + position for level, position in places]
        heapify(self._heap)

    def add(self, level: int, position: int) -> None:
        heappush(self._heap, (level << _POSITION_BITS) + position)

    def front(self) -> int | None:
        return self._heap[0] if self._heap else None

    def drop(self) -> None:
        heappop(self._heap)

    def longer_than(self, positions: int) -> bool:
        """Whether most of the line has moved on, so that it is worth making anew."""
        return len(self._heap) > 4 * positions + 64


def _standing(state: GPUState) -> frozenset[ProfileName]:
    if not state.devices or state.unavailable is not None:
        return frozenset()
    return frozenset(device.profile.name for device in state.devices if device.idle)


_WAYS_KNOWN: Final = 1 << 14
_NOTHING: Final[Row] = {}
