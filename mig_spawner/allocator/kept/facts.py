"""What the ledger says of leases that hold something, of nodes, and of what is left of leases and pods, by key and by place."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

from mig_spawner.allocator.fleet import Taken
from mig_spawner.allocator.kept.ends import Ends
from mig_spawner.allocator.quota.held import piece_of
from mig_spawner.allocator.store.base import Holding, NodeRecord, Pod, Remnant, Transaction
from mig_spawner.allocator.store.change import Changed
from mig_spawner.domain.gpu import GPU, Placement
from mig_spawner.domain.held import Held, Piece
from mig_spawner.domain.lease import Granted, Releasing

K = TypeVar("K")
V = TypeVar("V")


@dataclass
class Touched:
    """What has to be worked out again.

    Attributes:
        gpus: whose state may be another, by `gpu_uuid`.
        nodes: which may have to look otherwise, by name.
        reported: the nodes whose record is another, by name.
    """

    gpus: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Sway:
    """What a pod keeps out of reach: places, since its lease holds nothing, and a device that its lease does not have."""

    places: frozenset[Placement]
    device: str | None

    @classmethod
    def of(cls, pod: Pod, lease: Holding | None) -> _Sway:
        """Of a pod whose lease holds this."""
        claimed = None if pod.claim is None else pod.claim.placement
        places = frozenset(place for place in (pod.placement, claimed) if place is not None and lease is None)
        own = None if lease is None or isinstance(lease, Granted) else lease.device_uuid
        return cls(places, pod.device_uuid if pod.device_uuid != own else None)


class Facts:
    """The rows of one ledger.

    Attributes:
        holding: leases that hold slices, by id.
        nodes: by name, in the order of names.
        simulated: the nodes whose GPUs are a simulation, by name.
        owners: which node a GPU belongs to, by `gpu_uuid`.
        remnants: by place.
        pods: by uid.
        orphans: the pods whose lease holds nothing, by uid.
        releasing: those of the leases that end, by id.
        held: what is held, added up for quotas.
        ends: when what is held is given back at the latest.
        touched: what has to be worked out again; whoever has done so takes it out.
    """

    def __init__(self) -> None:
        self.holding: dict[str, Holding] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.simulated: set[str] = set()
        self.owners: dict[str, str] = {}
        self.remnants: dict[Placement, Remnant] = {}
        self.pods: dict[str, Pod] = {}
        self.orphans: dict[str, Pod] = {}
        self.releasing: dict[str, Releasing] = {}
        self.held = Held()
        self._pieces: dict[str, Piece] = {}
        self.ends = Ends(self.holding)
        self.touched = Touched()
        self._leases_on: dict[str, dict[str, Holding]] = defaultdict(dict)
        self._leases_of: dict[str, dict[str, Holding]] = defaultdict(dict)
        self._remnants_on: dict[str, dict[Placement, Remnant]] = defaultdict(dict)
        self._remnants_of: dict[str, dict[Placement, Remnant]] = defaultdict(dict)
        self._pods_of: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._sways: dict[str, _Sway] = {}
        self._places_on: dict[str, dict[tuple[str, Placement], Placement]] = defaultdict(dict)
        self._users_of: dict[str, set[str]] = defaultdict(set)
        self._device_on: dict[str, str] = {}

    # What is there

    def leases_on(self, gpu_uuid: str) -> list[Holding]:
        """The leases on a GPU."""
        return list(self._leases_on.get(gpu_uuid, {}).values())

    def leases_of(self, node: str) -> list[Holding]:
        """The leases on a node."""
        return list(self._leases_of.get(node, {}).values())

    def remnants_on(self, gpu_uuid: str) -> list[Remnant]:
        """What is left of leases on a GPU."""
        return list(self._remnants_on.get(gpu_uuid, {}).values())

    def remnants_of(self, node: str) -> list[Remnant]:
        """What is left of leases on a node."""
        return list(self._remnants_of.get(node, {}).values())

    def pods_of(self, lease_id: str) -> list[Pod]:
        """The pods that carry the label of a lease."""
        return list(self._pods_of.get(lease_id, {}).values())

    def orphans_on(self, gpu_uuid: str) -> list[tuple[Pod, Placement]]:
        """What pods whose lease holds nothing keep out of reach on a GPU."""
        return [(self.pods[uid], place) for uid, place in self._places_on.get(gpu_uuid, ())]

    def orphan_places(self) -> list[tuple[Pod, Placement]]:
        """The same on all GPUs."""
        return [found for gpu_uuid in self._places_on for found in self.orphans_on(gpu_uuid)]

    def taken_on(self, gpu_uuid: str) -> list[Taken]:
        """Everything of ours on a GPU."""
        taken = [
            Taken(g.placement, g.profile_id, g.cut, whole=g.profile_id is None)
            for g in (lease.grant for lease in self.leases_on(gpu_uuid))
        ]
        taken += [Taken(remnant.placement, remnant.profile_id, cut=True) for remnant in self.remnants_on(gpu_uuid)]
        return taken + [Taken(place, None, cut=False) for place in self._places_on.get(gpu_uuid, {}).values()]

    def used_by_a_pod(self, device_uuid: str) -> bool:
        """Whether a pod may use a device that its lease does not have."""
        return device_uuid in self._users_of

    # How it changes

    def take_in(self, tx: Transaction, changed: Changed | None) -> None:
        """Read what has changed; everything if that is not known. Then this is empty, and must be."""
        every = changed is None
        changed = Changed() if changed is None else changed
        if every or changed.owners:
            owners = tx.gpu_owners(None if every else changed.owners)
            for uuid in owners if every else changed.owners:
                self._put_owner(uuid, owners.get(uuid))
        if every or changed.nodes:
            nodes = {node.name: node for node in tx.nodes(None if every else changed.nodes)}
            for name in nodes if every else changed.nodes:
                self._put_node(name, nodes.get(name))
        if every or changed.leases:
            leases = {lease.lease_id: lease for lease in tx.holding(None if every else changed.leases)}
            for lease_id in leases if every else changed.leases:
                self.put_lease(lease_id, leases.get(lease_id))
        if every or changed.remnants:
            for place in [p for uuid in changed.remnants for p in self._remnants_on.get(uuid, ())]:
                self._put_remnant(place, None)
            for remnant in tx.remnants(None if every else changed.remnants):
                self._put_remnant(remnant.placement, remnant)
        # What a pod's lease holds stands in the row of the pod as well.
        uids = changed.pods | {uid for lease_id in changed.leases for uid in self._pods_of.get(lease_id, ())}
        if every or uids:
            pods = {pod.uid: pod for pod in tx.pods(None if every else uids)}
            for uid in pods if every else uids:
                self._put_pod(uid, pods.get(uid))

    def put_lease(self, lease_id: str, lease: Holding | None) -> None:
        """A lease as it is now; None when it holds nothing."""
        before = self.holding.get(lease_id)
        for known in (before, lease):
            if known is not None:
                self.touched.gpus.add(known.grant.placement.gpu_uuid)
                self.touched.nodes.add(known.grant.node)
        if before is not None:
            self.held.drop(before.person, self._pieces.pop(lease_id))
            _drop(self._leases_on, before.grant.placement.gpu_uuid, lease_id)
            _drop(self._leases_of, before.grant.node, lease_id)
        self.releasing.pop(lease_id, None)
        if lease is None:
            self.holding.pop(lease_id, None)
        else:
            if isinstance(lease, Releasing):
                self.releasing[lease_id] = lease
            self.holding[lease_id] = lease
            self._leases_on[lease.grant.placement.gpu_uuid][lease_id] = lease
            self._leases_of[lease.grant.node][lease_id] = lease
            piece = self._pieces[lease_id] = piece_of(lease, self._gpu(lease.grant.placement.gpu_uuid))
            self.held.add(lease.person, piece)
            self.ends.put(lease)
        for pod in self.pods_of(lease_id):
            self._sway(pod)

    def _gpu(self, gpu_uuid: str) -> GPU | None:
        node = self.nodes.get(self.owners.get(gpu_uuid, ""))
        return None if node is None else node.gpus.get(gpu_uuid)

    def _put_owner(self, gpu_uuid: str, node: str | None) -> None:
        before = self.owners.pop(gpu_uuid, None)
        if node is not None:
            self.owners[gpu_uuid] = node
        self.touched.reported |= {name for name in (before, node) if name is not None}

    def _put_node(self, name: str, node: NodeRecord | None) -> None:
        before = self.nodes.get(name)
        self.touched.nodes.add(name)
        self.touched.reported.add(name)
        if before is not None and (node is None or before.report is not node.report):
            for device in _devices(before):
                self._device_on.pop(device, None)
        self.simulated.discard(name)
        if node is None:
            self.nodes.pop(name, None)
            return
        if node.report is not None and node.report.simulated:
            self.simulated.add(name)
        if before is None or before.report is not node.report:
            self._device_on |= _devices(node)
        self.nodes[name] = node
        if before is None and len(self.nodes) > 1:
            self.nodes = dict(sorted(self.nodes.items()))

    def _put_remnant(self, place: Placement, remnant: Remnant | None) -> None:
        before = self.remnants.pop(place, None)
        for known in (before, remnant):
            if known is not None:
                self.touched.gpus.add(place.gpu_uuid)
                self.touched.nodes.add(known.node)
        if before is not None:
            _drop(self._remnants_on, place.gpu_uuid, place)
            _drop(self._remnants_of, before.node, place)
        if remnant is not None:
            self.remnants[place] = remnant
            self._remnants_on[place.gpu_uuid][place] = self._remnants_of[remnant.node][place] = remnant

    def _put_pod(self, uid: str, pod: Pod | None) -> None:
        before = self.pods.pop(uid, None)
        if before is not None:
            _drop(self._pods_of, before.lease_id, uid)
        if pod is not None:
            self.pods[uid] = self._pods_of[pod.lease_id][uid] = pod
            self._sway(pod)
        elif before is not None:
            self.orphans.pop(uid, None)
            self._set_sway(uid, None)

    def _sway(self, pod: Pod) -> None:
        lease = self.holding.get(pod.lease_id)
        if lease is None:
            self.orphans[pod.uid] = pod
        else:
            self.orphans.pop(pod.uid, None)
        self._set_sway(pod.uid, _Sway.of(pod, lease))

    def _set_sway(self, uid: str, sway: _Sway | None) -> None:
        before = self._sways.pop(uid, None)
        for known in (before, sway):
            if known is not None:
                self._touch_sway(known)
        if before is not None:
            for place in before.places:
                _drop(self._places_on, place.gpu_uuid, (uid, place))
            if before.device is not None:
                self._users_of[before.device].discard(uid)
                if not self._users_of[before.device]:
                    del self._users_of[before.device]
        if sway is not None:
            self._sways[uid] = sway
            for place in sway.places:
                self._places_on[place.gpu_uuid][uid, place] = place
            if sway.device is not None:
                self._users_of[sway.device].add(uid)

    def _touch_sway(self, sway: _Sway) -> None:
        for place in sway.places:
            self.touched.gpus.add(place.gpu_uuid)
            self.touched.nodes |= {remnant.node for remnant in self.remnants_on(place.gpu_uuid)}
        if sway.device is not None:
            self.touched.gpus |= {sway.device, self._device_on.get(sway.device, sway.device)}


def _devices(node: NodeRecord) -> dict[str, str]:
    """Which GPU a MIG device is on, by its UUID, as the node last showed it."""
    gpus = () if node.report is None else node.report.gpus
    return {i.mig_uuid: gpu.gpu_uuid for gpu in gpus for i in gpu.instances if i.mig_uuid is not None}


def _drop(index: dict[str, dict[K, V]], key: str, item: K) -> None:
    """Take an item out of an index that has no empty places."""
    there = index.get(key)
    if there is not None:
        there.pop(item, None)
        if not there:
            del index[key]
