"""GPUs of one kind, added up: whoever asks what there is asks some dozens of kinds, not each of 10,000 GPUs.

Two GPUs are of one kind when nothing but their names tells them apart: the same model and profiles, the same places taken, devices
at the same places, the same reason why nothing is granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mig_spawner.domain.fleet import GPUState

Kind = tuple[object, ...]


class Census:
    """How many GPUs there are of each kind."""

    def __init__(self, states: Iterable[GPUState] = ()) -> None:
        self._kinds: dict[Kind, dict[str, GPUState]] = {}
        self._kind_of: dict[str, Kind] = {}
        for state in states:
            self.put(state)

    def put(self, state: GPUState) -> None:
        """Count a GPU as it is now."""
        uuid, kind = state.gpu.gpu_uuid, kind_of(state)
        if self._kind_of.get(uuid) != kind:
            self.remove(uuid)
            self._kind_of[uuid] = kind
        self._kinds.setdefault(kind, {})[uuid] = state

    def remove(self, gpu_uuid: str) -> None:
        """Count a GPU no more, if it was."""
        kind = self._kind_of.pop(gpu_uuid, None)
        if kind is not None:
            there = self._kinds[kind]
            del there[gpu_uuid]
            if not there:
                del self._kinds[kind]

    def __iter__(self) -> Iterator[tuple[GPUState, int]]:
        """One GPU of each kind, and how many there are."""
        for there in self._kinds.values():
            yield next(iter(there.values())), len(there)


def kind_of(state: GPUState) -> Kind:
    """What is the same for all GPUs of a kind. Profiles are told by their identity, see `store.reports`: a state keeps them alive."""
    gpu, layout = state.gpu, state.layout
    return (
        gpu.model,
        gpu.memory_mib,
        gpu.multiprocessors,
        id(gpu.profiles),
        layout.mask,
        layout.heads,
        layout.engines,
        tuple((d.placement.start, d.placement.size, d.profile.profile_id, d.idle) for d in state.devices),
        state.dynamic,
        state.mig_enabled,
        state.unavailable,
        state.busy,
    )
