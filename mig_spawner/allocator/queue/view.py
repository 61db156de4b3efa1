"""The queue as people see it: who waits, and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.board import line_of
from mig_spawner.allocator.quota.check import waits_for_quota, within_quota
from mig_spawner.allocator.quota.use import Use
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.policy import concerned
from mig_spawner.domain.queue import Line, could_serve
from mig_spawner.domain.queue.board import Choices
from mig_spawner.wire.lease import HolderDocument
from mig_spawner.wire.queue import QueueEntry


@dataclass(frozen=True)
class Viewer:
    """Who looks. `name` None for one who sees all, without being anybody's holder."""

    name: str | None
    sees_all: bool


@dataclass(frozen=True)
class Queue:
    """The whole queue after one pass that has granted nothing, next first."""

    leases: tuple[Queued, ...]
    line: Line
    _serving: dict[Choices, Mapping[str, str | None]] = field(default_factory=dict, repr=False)

    def serving(self, ledger: Ledger, choices: Choices) -> Mapping[str, str | None]:
        """The GPUs that could serve one of these, now or later, and what is wrong with each now. Looked for once for all who ask
        for the same."""
        if choices not in self._serving:
            states = (state for state in ledger.fleet if could_serve(state, choices))
            self._serving[choices] = {state.gpu.gpu_uuid: state.unavailable for state in states}
        return self._serving[choices]

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return {lease.lease_id: number for number, lease in enumerate(self.leases, 1)}

    def position(self, lease_id: str) -> int:
        """1 is next; 0 for one who does not wait."""
        return self.positions.get(lease_id, 0)


def queue_of(ledger: Ledger) -> Queue:
    """Go along the queue to learn why each waits."""
    with closing(ledger.tx.queue()) as queue:
        leases = tuple(queue)
    line = line_of(ledger)
    for _ in line.serve(within_quota(ledger, leases)):
        pass
    return Queue(leases, line)


def entry(ledger: Ledger, queue: Queue, number: int, viewer: Viewer) -> QueueEntry:
    """The one at this place, as somebody may see it."""
    lease = queue.leases[number - 1]
    yours = viewer.name is not None and lease.holder.user_name == viewer.name
    told = yours or viewer.sees_all
    starts_between, cannot_tell = (
        (None, None) if ledger.forecasts is None else ledger.forecasts.start(ledger, lease, number)
    )
    holder = lease.holder
    return QueueEntry(
        position=number,
        asked=str(lease.request),
        alternatives=tuple(map(str, lease.alternatives)),
        priority=lease.priority,
        queued_at=lease.queued_at,
        why=why_waiting(ledger, queue, lease),
        earmarked=lease.earmark is not None,
        starts_between=starts_between,
        cannot_tell=cannot_tell,
        yours=yours,
        lease_id=lease.lease_id if told else None,
        holder=HolderDocument(user_id=holder.user_id, server_name=holder.server_name, user_name=holder.user_name)
        if told
        else None,
    )


def _shut_by(ledger: Ledger, queue: Queue, lease: Queued, serving: Mapping[str, str | None]) -> str | None:
    """The group that keeps a lease off all GPUs that could serve it; None if there is another one."""
    apart, group = ledger.setting.keep_apart, None
    if not concerned(apart, lease.groups):
        return None
    for gpu_uuid, trouble in serving.items():
        outlook = queue.line.board.outlook(gpu_uuid)
        if trouble is None and outlook is not None:
            group = outlook.apart(apart, lease.groups)
            if group is None:
                return None
    return group


def why_waiting(ledger: Ledger, queue: Queue, lease: Queued) -> str:
    """Why it is not served now, a sentence."""
    if quota := waits_for_quota(Use(ledger, waiting=False), lease):
        return f"It is passed over: {quota}"
    serving = queue.serving(ledger, lease.choices)
    if not serving:
        return "No GPU that is known now could serve it."
    if None not in serving.values():
        return f"Nothing may be granted now where it could be served: {next(iter(serving.values()))}."
    if serving.keys() <= lease.avoid:
        return "It avoids every GPU that could serve it, since it could not be made or used there. They are tried again soon."
    if lease.earmark is not None:
        return f"It has waited so long that GPU {lease.earmark} is being emptied for it."
    if group := _shut_by(ledger, queue, lease, serving):
        return f"Somebody of the group {group} has a slice on every GPU that could serve it, and the groups are kept apart."
    ahead = queue.line.held_back.get(lease.lease_id)
    if ahead is not None:
        return f"Something is free, but to have it would make number {queue.position(ahead.lease_id)} begin later."
    return "Nothing is free that would do."
