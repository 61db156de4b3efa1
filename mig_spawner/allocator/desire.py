"""What a node should look like, from the ledger: the answer to its report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.store.base import Holding, NodeRecord, Remnant
from mig_spawner.domain.lease import EndReason, Releasing
from mig_spawner.wire.node import DesiredInstance, DesiredNode, DesiredWhole, DestroyableInstance

_WITHOUT_DEVICE: Final = (EndReason.DEVICE_LOST, EndReason.NODE_REBOOTED)


def refresh_desired(ledger: Ledger) -> None:
    """Write the desired state of every node where it differs, under a new generation. It can differ only where something has changed
    since all of them were written."""
    facts = ledger.settled_facts
    touched, facts.touched.nodes = facts.touched.nodes, set()
    for name in sorted(touched):
        node = facts.nodes.get(name)
        if node is None:
            continue
        desired = desired_node(ledger, node, facts.leases_of(name))
        if desired != node.desired:
            generation = ledger.tx.next_generation()
            ledger.tx.put_desired(node.name, desired.model_copy(update={"generation": generation}))


def desired_node(ledger: Ledger, node: NodeRecord, holding: Iterable[Holding]) -> DesiredNode:
    """The desired state of a node, which has these leases, under the generation it has."""
    # In an order on which all replicas agree.
    wanted = sorted((lease for lease in holding if _is_wanted(lease)), key=lambda lease: lease.grant.generation)
    return DesiredNode(
        generation=node.desired.generation,
        instances=tuple(
            DesiredInstance(
                lease_id=lease.lease_id,
                gpu_uuid=lease.grant.placement.gpu_uuid,
                profile_id=lease.grant.profile_id,
                start=lease.grant.placement.start,
                size=lease.grant.placement.size,
            )
            for lease in wanted
            if lease.grant.profile_id is not None
        ),
        whole=tuple(
            DesiredWhole(lease_id=lease.lease_id, gpu_uuid=lease.grant.placement.gpu_uuid)
            for lease in wanted
            if lease.grant.profile_id is None
        ),
        destroy=tuple(
            DestroyableInstance(
                gpu_uuid=remnant.placement.gpu_uuid,
                profile_id=remnant.profile_id,
                start=remnant.placement.start,
                size=remnant.placement.size,
            )
            for remnant in sorted(ledger.facts.remnants_of(node.name), key=lambda remnant: remnant.placement)
            if _may_go(ledger, remnant)
        ),
        layouts=node.desired.layouts,
        held=node.desired.held,
        cordoned=node.cordoned,
    )


def _may_go(ledger: Ledger, remnant: Remnant) -> bool:
    """Whether nobody can live on what is left of a lease. The ledger may be an old one, and a pod there by now."""
    return not ledger.blind and ledger.orphan_on(remnant.placement) is None


def _is_wanted(lease: Holding) -> bool:
    """Whether the agent keeps, or makes, what this lease holds.

    A lease that ends keeps its device until it is closed, since its pod may still run; but nothing is made for it any more.
    """
    if not lease.grant.cut:
        return False
    return not isinstance(lease, Releasing) or (lease.device_uuid is not None and lease.reason not in _WITHOUT_DEVICE)
