"""The GPUs as placement sees them, kept: worked out again are those of which a fact is another one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush

from mig_spawner.allocator.fleet import held_trouble, is_silent, node_trouble, state_of
from mig_spawner.allocator.kept.census import Census
from mig_spawner.allocator.kept.facts import Facts
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy import Index, Ranking
from mig_spawner.wire.node import GPUDocument

_BLIND = "the pods of the cluster have not been listed yet"


class Fleet:
    """What follows from the facts for every GPU.

    Attributes:
        facts: from which it follows.
        states: by `gpu_uuid`; in no order, see `in_order`.
        census: the same, added up.
        silent: the nodes that have not reported for too long, by name.
    """

    def __init__(self, facts: Facts, setting: Setting) -> None:
        self.facts = facts
        self._setting = setting
        self.states: dict[str, GPUState] = {}
        self.census = Census()
        self.silent: set[str] = set()
        self._documents: dict[str, GPUDocument] = {}
        self._shown: dict[str, tuple[str, ...]] = {}
        self._trouble: dict[str, str | None] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        self._heard: list[tuple[datetime, str]] = []
        self._now: datetime | None = None
        self._blind = False
        self._order: list[str] | None = None
        self._devices: dict[str, str] | None = None
        self._index: tuple[Ranking, Index] | None = None
        self._moved: set[str] = set()

    def bring_up(self, now: datetime, *, blind: bool) -> None:
        """Work out what the facts have touched and what time has changed.

        Args:
            blind: the pods are not known, so nothing is to be had.
        """
        touched = self.facts.touched
        if blind != self._blind:
            self._blind = blind
            touched.reported |= self.facts.nodes.keys()
            touched.nodes |= {remnant.node for remnant in self.facts.remnants.values()}
        reported, touched.reported = touched.reported, set()
        for name in reported:
            self._see(name, now)
        for name in self._turned_silent(now):
            self._judge(name, self.facts.nodes.get(name), now)
        gpus, touched.gpus = touched.gpus, set()
        for uuid in gpus:
            self._work_out(uuid)

    def _see(self, name: str, now: datetime) -> None:
        """Which GPUs a node has, and whether it is well."""
        node, owners = self.facts.nodes.get(name), self.facts.owners
        documents = () if node is None or node.report is None else node.report.gpus
        own = {document.gpu_uuid: document for document in documents if owners.get(document.gpu_uuid) == name}
        shown = tuple(own)
        for uuid in self._shown.get(name, ()):
            if uuid not in own:
                self.facts.touched.gpus.add(uuid)
                if self._documents.get(uuid) is not None and owners.get(uuid) in (None, name):
                    del self._documents[uuid]
        for uuid, document in own.items():
            if self._documents.get(uuid) is not document:
                self._documents[uuid] = document
                self.facts.touched.gpus.add(uuid)
        if shown != self._shown.get(name, ()):
            self._shown[name] = shown
            self._order = self._index = None
        held = () if node is None else node.desired.held
        if held != self._held.get(name, ()):
            self.facts.touched.gpus |= {*held, *self._held.get(name, ())}
            self._held[name] = held
        if node is not None and node.reported_at is not None:
            heappush(self._heard, (node.reported_at, name))
        self._judge(name, node, now)

    def _judge(self, name: str, node: NodeRecord | None, now: datetime) -> None:
        if node is None or not is_silent(node, now, self._setting.node_silent_after):
            self.silent.discard(name)
        else:
            self.silent.add(name)
        if node is None:
            self._trouble.pop(name, None)
            self._shown.pop(name, None)
            return
        trouble = _BLIND if self._blind else node_trouble(node, now, self._setting.node_silent_after)
        if self._trouble.get(name, "") != trouble:
            self._trouble[name] = trouble
            self.facts.touched.gpus |= set(self._shown.get(name, ()))

    def _turned_silent(self, now: datetime) -> Iterator[str]:
        """The nodes that are silent since they were last judged; all of them if the clock was set back."""
        nodes, after = self.facts.nodes, self._setting.node_silent_after
        if self._now is not None and now < self._now:
            self._heard = [(node.reported_at, node.name) for node in nodes.values() if node.reported_at is not None]
            heapify(self._heard)
            yield from nodes
        self._now = now
        while self._heard and now - self._heard[0][0] > after:
            _, name = heappop(self._heard)
            if name in nodes and is_silent(nodes[name], now, after):
                yield name

    def _work_out(self, uuid: str) -> None:
        document, owner = self._documents.get(uuid), self.facts.owners.get(uuid)
        node = None if owner is None else self.facts.nodes.get(owner)
        self._moved.add(uuid)
        self._devices = None
        if document is None or node is None or uuid not in self._shown.get(node.name, ()):
            self.states.pop(uuid, None)
            self.census.remove(uuid)
            return
        ours = self.facts.taken_on(uuid)
        trouble = self._trouble[node.name] or held_trouble(node, uuid)
        state = state_of(node, document, ours, self.facts.used_by_a_pod, trouble)
        self.states[uuid] = state
        self.census.put(state)

    def in_order(self) -> list[GPUState]:
        """All of them, in the order of nodes and of their reports."""
        if self._order is None:
            self._order = [uuid for name in self.facts.nodes for uuid in self._shown.get(name, ())]
        return [self.states[uuid] for uuid in self._order]

    def of_node(self, name: str) -> list[GPUState]:
        """Those of one node."""
        return [self.states[uuid] for uuid in self._shown.get(name, ())]

    def with_device(self, device_uuid: str) -> GPUState | None:
        """The GPU on which a device stands that may be leased by name."""
        if self._devices is None:
            self._devices = {d.device_uuid: uuid for uuid, state in self.states.items() for d in state.devices}
        uuid = self._devices.get(device_uuid)
        return None if uuid is None else self.states[uuid]

    def index(self, ranking: Ranking) -> Index:
        """All of them under a ranking, as they are: whoever had it before may have put on it what he liked."""
        if self._index is None or self._index[0] is not ranking:
            self._index = ranking, Index(self.in_order(), ranking)
        else:
            index = self._index[1]
            for uuid in self._moved | index.moved:
                # What was touched need not be a GPU that some node has.
                state = self.states.get(uuid)
                if state is not None:
                    index.put(state)
        self._moved.clear()
        self._index[1].moved.clear()
        return self._index[1]
