"""Nodes as an admin sees them: all of them in a list, and one with what it should look like beside what it looks like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from mig_spawner.allocator.document import NodeDocument, NodeList, node_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.fleet import drawn, occupants_on
from mig_spawner.allocator.page.picture import GPUPicture
from mig_spawner.allocator.page.words import holder_name, processes
from mig_spawner.allocator.paging import page
from mig_spawner.allocator.pool import pools_of
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain.gpu import GPU
from mig_spawner.wire.node import DesiredInstance, DestroyableInstance, GPUDocument, InstanceDocument
from mig_spawner.wire.problem import ProblemCode

PAGE_NODES: Final = 50


class Verdict(StrEnum):
    """How intention and reality go together at one place of a GPU."""

    AS_INTENDED = "as intended"
    TO_MAKE = "still to be made"
    TO_DESTROY = "to be destroyed"
    WRONG = "something else is there"
    NOT_OURS = "not ours, left alone"


@dataclass(frozen=True, slots=True)
class Row:
    """One place of a GPU: what should be there and what is. Empty where nothing should, or nothing is."""

    gpu_uuid: str
    slices: str
    intended: str
    actual: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        leases: how many hold something here; draining ends them.
    """

    node: NodeDocument
    gpus: tuple[GPUPicture, ...]
    layout: tuple[Row, ...]
    leases: int
    now: datetime


@dataclass(frozen=True, slots=True)
class NodesView:
    """A page of nodes by name."""

    nodes: NodeList
    now: datetime


def nodes_view(ledger: Ledger, after: str) -> NodesView:
    """The nodes after one, by name."""
    shown, more = page(ledger.nodes.values(), lambda node: node.name, after=after or None, limit=PAGE_NODES)
    documents = tuple(node_document(ledger, node) for node in shown)
    return NodesView(
        NodeList(nodes=documents, pools=pools_of(ledger, ledger.fleet), next=shown[-1].name if more else None),
        ledger.now,
    )


def node_view(ledger: Ledger, name: str) -> NodeView:
    """One node with its layout, intended and actual."""
    node = ledger.nodes.get(name)
    if node is None:
        raise refusal(ProblemCode.NOT_FOUND, "No such node has reported yet.")
    states = ledger.gpus_of(name)
    return NodeView(
        node=node_document(ledger, node),
        gpus=tuple(drawn(node, state, occupants_on(ledger, state.gpu.gpu_uuid)) for state in states),
        layout=tuple(_layout(ledger, node)),
        leases=len(ledger.facts.leases_of(name)),
        now=ledger.now,
    )


def _layout(ledger: Ledger, node: NodeRecord) -> Iterator[Row]:
    for document in () if node.report is None else node.report.gpus:
        gpu = node.gpus[document.gpu_uuid]
        yield from _whole(ledger, node, document)
        wanted = {(i.start, i.size): i for i in node.desired.instances if i.gpu_uuid == gpu.gpu_uuid}
        gone = {(i.start, i.size): i for i in node.desired.destroy if i.gpu_uuid == gpu.gpu_uuid}
        there = {(i.start, i.size): i for i in document.instances}
        for place in sorted({*wanted, *gone, *there}):
            yield _row(ledger, gpu, place, wanted.get(place), gone.get(place), there.get(place))


def _whole(ledger: Ledger, node: NodeRecord, document: GPUDocument) -> Iterator[Row]:
    for whole in node.desired.whole:
        if whole.gpu_uuid == document.gpu_uuid:
            uncut = document.mig_enabled is not True and not document.instances
            yield Row(
                gpu_uuid=whole.gpu_uuid,
                slices="all",
                intended=f"uncut, for {_holder(ledger, whole.lease_id)}",
                actual="uncut" if uncut else "cut",
                verdict=Verdict.AS_INTENDED if uncut else Verdict.TO_MAKE,
            )


def _row(
    ledger: Ledger,
    gpu: GPU,
    place: tuple[int, int],
    wanted: DesiredInstance | None,
    gone: DestroyableInstance | None,
    there: InstanceDocument | None,
) -> Row:
    start, size = place
    intended, verdict = "", Verdict.NOT_OURS
    if wanted is not None:
        intended = f"{_profile(gpu, wanted.profile_id)}, for {_holder(ledger, wanted.lease_id)}"
        if there is None or there.mig_uuid is None:
            verdict = Verdict.TO_MAKE
        else:
            verdict = Verdict.AS_INTENDED if there.profile_id == wanted.profile_id else Verdict.WRONG
    elif gone is not None:
        intended = "nothing"
        verdict = Verdict.AS_INTENDED if there is None else Verdict.TO_DESTROY
    return Row(
        gpu_uuid=gpu.gpu_uuid,
        slices=str(start) if size == 1 else f"{start} to {start + size - 1}",
        intended=intended,
        actual="" if there is None else _actual(there),
        verdict=verdict,
    )


def _actual(there: InstanceDocument) -> str:
    what = there.profile or f"profile {there.profile_id}"
    if there.mig_uuid is None:
        return f"{what}, half-made"
    running = "unknown processes" if there.processes is None else processes(there.processes)
    return f"{what}, {running}"


def _profile(gpu: GPU, profile_id: int) -> str:
    profile = gpu.profile_by_id(profile_id)
    return f"profile {profile_id}" if profile is None else str(profile.name)


def _holder(ledger: Ledger, lease_id: str) -> str:
    lease = ledger.holding.get(lease_id)
    return lease_id if lease is None else holder_name(lease.holder)
