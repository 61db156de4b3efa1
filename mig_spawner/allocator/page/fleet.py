"""The map: which GPUs there are, filtered and in pages, each as a picture.

A page reads the nodes it shows, not the fleet: it goes on after a node, by name. A filter that only a report can answer looks
at one node after the other, and stops after a while with a link to go on from there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.picture import GPUPicture, Kind, Occupant, picture
from mig_spawner.allocator.page.words import holder_name
from mig_spawner.allocator.store.base import NodeRecord, Pod
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.lease import Active, Granted, Ready, Releasing
from mig_spawner.wire.base import Document, Label

PAGE_GPUS: Final = 24
"""So many GPUs, and the rest of the last node's, are on a page."""
SEARCH_S: Final = 0.4


class Show(StrEnum):
    """Which GPUs the map shows."""

    ALL = "all"
    FREE = "free"
    USED = "used"
    TROUBLE = "trouble"


class MapQuery(Document):
    """What the map is asked for: a part of the node's name, of the model's, of the holder's; and after which node to begin."""

    node: Label = ""
    model: Label = ""
    holder: Label = ""
    show: Show = Show.ALL
    after: Label = ""


@dataclass(frozen=True, slots=True)
class Sums:
    """Over all of the hub, whatever the filter. `leases` counts those that hold something."""

    nodes: int
    gpus: int
    leases: int
    queue_length: int


@dataclass(frozen=True, slots=True)
class MapView:
    """One page of the map.

    Attributes:
        after: the node after which the next page begins; None when this one is the last.
        complete: whether the page is full or the last; otherwise the search stopped for the time it took.
    """

    query: MapQuery
    sums: Sums
    gpus: tuple[GPUPicture, ...]
    after: str | None
    complete: bool
    as_of: datetime
    simulated: bool


def map_view(ledger: Ledger, query: MapQuery) -> MapView:
    """The map as the ledger has it now."""
    owners = ledger.owners
    names = _nodes(query, ledger)
    deadline = time.monotonic() + SEARCH_S
    shown: list[GPUPicture] = []
    simulated = False
    last, late = "", False
    for last in names:
        node = ledger.nodes.get(last)
        if node is None:
            continue
        simulated = simulated or (node.report is not None and node.report.simulated)
        for state in ledger.gpus_of(node.name):
            here = occupants_on(ledger, state.gpu.gpu_uuid)
            if _matches(state, query, here):
                shown.append(drawn(node, state, here))
        late = time.monotonic() > deadline
        if late or len(shown) >= PAGE_GPUS:
            break
    more = bool(names) and last != names[-1]
    counts = ledger.tx.counts()
    return MapView(
        query=query,
        sums=Sums(
            nodes=len(set(owners.values())),
            gpus=len(owners),
            leases=sum(counts.values()) - counts.get("queued", 0),
            queue_length=counts.get("queued", 0),
        ),
        gpus=tuple(shown),
        after=last if more else None,
        complete=not more or len(shown) >= PAGE_GPUS,
        as_of=ledger.now,
        simulated=simulated,
    )


def _nodes(query: MapQuery, ledger: Ledger) -> list[str]:
    """The nodes on which something may match, by name."""
    owners = ledger.owners
    names: Collection[str] = set(owners.values())
    if query.holder:
        wanted = query.holder.lower()
        held = {
            lease.grant.placement.gpu_uuid
            for lease in ledger.holding.values()
            if wanted in holder_name(lease.holder).lower()
        }
        held |= {place.gpu_uuid for pod, place in ledger.facts.orphan_places() if wanted in pod_name(pod).lower()}
        names = {owners[uuid] for uuid in held if uuid in owners}
    part = query.node.lower()
    return sorted(name for name in names if part in name.lower() and name > query.after)


def _holds(holder: str, occupants: Iterable[Occupant]) -> bool:
    return any(holder.lower() in occupant.who.lower() for occupant in occupants)


def drawn(node: NodeRecord, state: GPUState, occupants: Iterable[Occupant]) -> GPUPicture:
    """A GPU of a node as a picture."""
    reported = () if node.report is None else node.report.gpus
    document = next(gpu for gpu in reported if gpu.gpu_uuid == state.gpu.gpu_uuid)
    return picture(state, document, occupants)


def occupants_on(ledger: Ledger, gpu_uuid: str) -> list[Occupant]:
    """What leases, their remnants and pods without a lease have of a GPU."""
    facts = ledger.facts
    found = []
    for lease in facts.leases_on(gpu_uuid):
        grant = lease.grant
        what = "whole GPU" if grant.profile is None else str(grant.profile)
        found.append(
            Occupant(grant.placement, _kind(lease), what, holder_name(lease.holder), lease.lease_id, grant.expires_at)
        )
    left = [Occupant(r.placement, Kind.REMNANT, lease_id=r.lease_id) for r in facts.remnants_on(gpu_uuid)]
    pods = [
        Occupant(place, Kind.POD, who=pod_name(pod), lease_id=pod.lease_id) for pod, place in facts.orphans_on(gpu_uuid)
    ]
    return [*found, *left, *pods]


def pod_name(pod: Pod) -> str:
    """What the holder of a place is called that a pod without a lease has."""
    return f"{pod.namespace}/{pod.name}"


def _kind(lease: Granted | Ready | Active | Releasing) -> Kind:
    match lease:
        case Granted():
            return Kind.MAKING
        case Ready():
            return Kind.READY
        case Active():
            return Kind.ACTIVE
        case Releasing():
            return Kind.RELEASING


def _matches(state: GPUState, query: MapQuery, occupants: Iterable[Occupant]) -> bool:
    if query.model.lower() not in state.gpu.model.lower():
        return False
    if query.holder and not _holds(query.holder, occupants):
        return False
    match query.show:
        case Show.ALL:
            return True
        case Show.FREE:
            idle = any(device.idle for device in state.devices)
            return state.unavailable is None and (idle or state.whole_free or (state.cuttable and _has_slices(state)))
        case Show.USED:
            return not state.layout.empty or state.busy
        case Show.TROUBLE:
            return state.unavailable is not None


def _has_slices(state: GPUState) -> bool:
    return state.layout.taken < state.gpu.grid
