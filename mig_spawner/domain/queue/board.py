"""The GPUs during one pass over the queue: where a request could go now, and what each GPU promises for later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Final

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.policy import Index, Ranking, Rules, concerned
from mig_spawner.domain.queue.outlook import Outlook, Start
from mig_spawner.domain.request import Request

BEST: Final = 32
"""How many GPUs are looked at where somebody who waits could begin first. On a larger fleet the others are looked at again after
`LOOKED_FOR`."""
LOOKED_FOR: Final = timedelta(seconds=60)
REMEMBERED: Final = 256

Choices = tuple[Request, ...]


class Memory:
    """Where who waits could begin first, found by looking at every GPU, and good for a minute.

    It is a hint and no truth: what a pass grants is checked against every GPU that it touches. So that a decision costs the
    same on every fleet, all GPUs are looked at once a minute for each thing that people wait for.
    """

    def __init__(self) -> None:
        self._best: dict[Choices, tuple[datetime, tuple[str, ...]]] = {}

    def best(self, choices: Choices, now: datetime) -> tuple[str, ...] | None:
        at, gpus = self._best.get(choices, (None, ()))
        return gpus if at is not None and timedelta(0) <= now - at < LOOKED_FOR else None

    def remember(self, choices: Choices, now: datetime, gpus: tuple[str, ...]) -> None:
        if len(self._best) >= REMEMBERED:
            self._best.clear()
        self._best[choices] = now, gpus


class Board:
    """The fleet of one pass. What is granted is put on it at once.

    Args:
        outlooks: the GPUs; by `gpu_uuid`, they may be looked at when they are asked for.
        index: the same GPUs under the same ranking, to be used for this pass; made anew if it is not given.

    Attributes:
        earmarks: which GPU is kept for which lease, by `gpu_uuid`; nothing is chosen on these.
        apart: the groups that never share a GPU.
        granted: the GPUs on which something was granted in this pass, as they are since, by `gpu_uuid`.
    """

    def __init__(
        self,
        outlooks: Iterable[Outlook] | Mapping[str, Outlook],
        ranking: Ranking,
        now: datetime,
        *,
        memory: Memory | None = None,
        earmarks: Mapping[str, str] | None = None,
        apart: Rules = (),
        index: Index | None = None,
    ) -> None:
        self.now = now
        self.earmarks = dict(earmarks or {})
        self.apart = apart
        self._ranking = ranking
        known = outlooks if isinstance(outlooks, Mapping) else {o.state.gpu.gpu_uuid: o for o in outlooks}
        self._outlooks: Mapping[str, Outlook] = known
        self.granted: dict[str, Outlook] = {}
        self._index = index or Index((outlook.state for outlook in known.values()), ranking)
        self._memory = memory or Memory()
        self._firsts: dict[Choices, Sequence[tuple[Start, Outlook]]] = {}
        for gpu_uuid in self.earmarks:
            self.hide(gpu_uuid)

    @property
    def has_room(self) -> bool:
        """Whether anything at all could be granted on any GPU that is shown."""
        return self._index.has_room

    def outlook(self, gpu_uuid: str) -> Outlook | None:
        """A GPU as it is in this pass."""
        return self.granted.get(gpu_uuid) or self._outlooks.get(gpu_uuid)

    def before(self, gpu_uuid: str) -> Outlook | None:
        """A GPU as it was before this pass."""
        return self._outlooks.get(gpu_uuid)

    def outlooks(self) -> Iterable[Outlook]:
        return (self.granted.get(gpu_uuid, outlook) for gpu_uuid, outlook in self._outlooks.items())

    def choose(self, request: Request) -> Decision | None:
        """Where the policy would serve a request now, of the GPUs that are shown."""
        return self._index.choose(request)

    def choose_on(self, request: Request, gpu_uuid: str) -> Decision | None:
        """The same on one GPU, shown or not."""
        outlook = self.outlook(gpu_uuid)
        return None if outlook is None else Index((outlook.state,), self._ranking).choose(request)

    def forbidden(self, groups: frozenset[str]) -> list[str]:
        """The GPUs on which somebody is from whom a holder with these groups is kept apart."""
        if not concerned(self.apart, groups):
            return []
        shut = (outlook for outlook in self.outlooks() if outlook.apart(self.apart, groups) is not None)
        return [outlook.state.gpu.gpu_uuid for outlook in shut]

    def hide(self, gpu_uuid: str) -> bool:
        """Choose nothing on this GPU until it is shown again. False if there is none."""
        outlook = self.outlook(gpu_uuid)
        if outlook is None:
            return False
        self._index.put(hidden(outlook.state))
        return True

    def show(self, gpu_uuid: str) -> None:
        """Choose on this GPU again, if it is not earmarked."""
        outlook = self.outlook(gpu_uuid)
        if outlook is not None and gpu_uuid not in self.earmarks:
            self._index.put(outlook.state)

    def places(self, decision: Decision) -> Iterator[Decision]:
        """A decision, and the same elsewhere on its GPU in the order of the policy."""
        yield decision
        outlook = self._there(decision.gpu.gpu_uuid)
        profile = decision.profile
        if profile is None:
            return
        if not decision.cut:
            for device in outlook.state.devices:
                if device.idle and device.profile.name == profile.name and device.device_uuid != decision.device_uuid:
                    yield Decision(
                        decision.node, decision.gpu, device.placement, profile, device.device_uuid, cut=False
                    )
            return
        layout = outlook.state.layout
        starts = sorted(layout.starts(profile), key=lambda start: (self._ranking(layout, profile, start), start))
        for start in starts:
            if start != decision.placement.start:
                place = Placement(decision.gpu.gpu_uuid, start, profile.size)
                yield Decision(decision.node, decision.gpu, place, profile, None, cut=True)

    def grant(self, decision: Decision, until: datetime | None, groups: frozenset[str] = frozenset()) -> None:
        """Put a grant to somebody with these groups on its GPU."""
        gpu_uuid = decision.gpu.gpu_uuid
        self.granted[gpu_uuid] = outlook = self._there(gpu_uuid).granting(decision, until, groups)
        self._firsts.clear()
        # Whoever had it earmarked has been served: it is everybody's again.
        self.earmarks.pop(gpu_uuid, None)
        self._index.put(outlook.state)

    def _there(self, gpu_uuid: str) -> Outlook:
        return self.granted.get(gpu_uuid) or self._outlooks[gpu_uuid]

    def first(self, choices: Choices) -> Sequence[tuple[Start, Outlook]]:
        """The GPUs on which one of these is expected to begin first if nothing were kept for anybody, soonest first. Looked for once
        between two grants for all who ask for the same."""
        found = self._firsts.get(choices)
        if found is None:
            found = self._firsts[choices] = self._first(choices)
        return found

    def _first(self, choices: Choices) -> Sequence[tuple[Start, Outlook]]:
        known = tuple(self._outlooks) if len(self._outlooks) <= BEST else self._memory.best(choices, self.now)
        if known is None:
            known = tuple(
                outlook.state.gpu.gpu_uuid for _, _, outlook in nsmallest(BEST, self._starts(choices, self._outlooks))
            )
            self._memory.remember(choices, self.now, known)
        again = sorted(self._starts(choices, known))
        return [(start, outlook) for start, _, outlook in again]

    def _starts(self, choices: Choices, gpus: Iterable[str]) -> Iterator[tuple[Start, int, Outlook]]:
        for number, gpu_uuid in enumerate(gpus):
            outlook = self.outlook(gpu_uuid)
            found = None if outlook is None else outlook.earliest(choices)
            if outlook is not None and found is not None:
                yield found[0], number, outlook


def hidden(state: GPUState) -> GPUState:
    """The same GPU, were nothing to be granted on it."""
    return GPUState(state.node, state.gpu, state.layout, (), state.dynamic, state.mig_enabled, "hidden", state.busy)
