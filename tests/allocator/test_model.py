"""Anything may happen in any order; what must always hold is checked after every step.

The nodes, their agents and the pods are honest but slow, sick, silent and rebooted. The property that everything is for: while a
process of one holder runs on a memory slice, no other holder is given that slice.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.service import Desk, LeaseService, Steps
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.timer import tick
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Closed, EndReason, Granted, PodFate, Queued
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest, LeaseState
from mig_spawner.wire.node import DesiredNode, Health
from tests.allocator.rig import Board, Clock, Node, check_ledger

SETTING = Setting()
PROFILES = (None, "1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.6gb", "2g.12gb")
PICK = st.integers(0, 7)
SLACK = timedelta(seconds=3)
_nobody = AllocatorClient("http://127.0.0.1:1", "never-used")


@dataclass
class Running:
    """A process of a holder on its device."""

    board: Board
    placement: Placement
    whole: bool


class Ledgers(RuleBasedStateMachine):
    """The rules are what holders, agents, nodes and time may do."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mig-model-"))
        self.clock = Clock()
        self.store = SQLStore(f"sqlite:///{self.folder / 'ledger.sqlite'}", clock=self.clock)
        self.store.open()
        self.desk = Desk(self.store, SETTING, self._granted_where_allowed)
        self.service, self.nodes_service = LeaseService(self.desk), NodeService(self.desk)
        cut, fixed = Board(find_model("a100-80gb").gpu("GPU-a")), Board(find_model("a30").gpu("GPU-b"), dynamic=False)
        fixed.add("1g.6gb", 0)
        fixed.add("2g.12gb", 2)
        self.nodes = [Node("n1", _nobody, [cut]), Node("n2", _nobody, [fixed])]
        self.desired: dict[str, DesiredNode] = {}
        self.running: dict[str, Running] = {}
        self.confirmed_gone: set[str] = set()
        self.outsider = False

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @initialize()
    def first_reports(self) -> None:
        for number in range(len(self.nodes)):
            self.report(number)

    def _picked(self, pick: int) -> str:
        """One of the newest leases that are known, open ones rather than closed ones."""
        with self.store.reading() as tx:
            found = [row.lease_id for row in tx.audit() if row.before is None]
            newest = sorted(found[-8:], key=lambda lease_id: isinstance(tx.lease(lease_id), Closed))
        return newest[pick % len(newest)]

    def _any_lease(self) -> bool:
        with self.store.reading() as tx:
            return bool(tx.audit())

    # Holders

    @rule(
        user=st.integers(0, 4),
        profile=st.sampled_from(PROFILES),
        wait=st.sampled_from([None, 0, 60]),
        duration=st.sampled_from([None, 100]),
    )
    def acquire(self, user: int, profile: str | None, wait: float | None, duration: float | None) -> None:
        request = LeaseRequest(
            holder=HolderDocument(user_id=str(user)),
            accelerator_partition_type=profile,
            wait_budget=wait,
            duration=duration,
        )
        try:
            self.service.acquire(request, who="hub")
        except AllocatorRefused as refused:
            if refused.code != "conflict":
                raise

    @precondition(lambda self: self._any_lease())
    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        lease_id = self._picked(pick)
        try:
            self.service.renew(lease_id, who="hub")
        except AllocatorRefused as refused:
            if refused.code != "conflict":
                raise

    @precondition(lambda self: self._any_lease())
    @rule(pick=PICK, knows=st.booleans())
    def release(self, pick: int, knows: bool) -> None:
        """A hub says "gone" only of a pod that is gone and that it will not ask for again."""
        lease_id = self._picked(pick)
        pod = PodFate.GONE if knows and lease_id not in self.running else PodFate.UNKNOWN
        if pod is PodFate.GONE:
            self.confirmed_gone.add(lease_id)
        self.service.release(lease_id, LeaseRelease(reason=EndReason.STOPPED, pod=pod), who="hub")

    @precondition(lambda self: self._any_lease())
    @rule(pick=PICK, starts=st.booleans())
    def pod(self, pick: int, starts: bool) -> None:
        if starts:
            self.pod_starts(pick)
        else:
            self.pod_ends(pick)

    def pod_starts(self, pick: int) -> None:
        """It may start as long as its holder has the lease, or was released so shortly ago that the pod was still asked for."""
        lease_id = self._picked(pick)
        lease = self.service.lease(lease_id).document
        if lease.device_uuid is None or lease.placement is None or lease_id in self.running:
            return
        with self.store.reading() as tx:
            ends = [row.at for row in tx.audit(lease_id) if row.after in ("releasing", "closed")]
        held = lease.state in (LeaseState.READY, LeaseState.ACTIVE)
        late = bool(ends) and self.clock.now - ends[0] < SETTING.settle_after - SLACK
        if not held and (not late or lease_id in self.confirmed_gone):
            return
        place = Placement(lease.placement.gpu_uuid, lease.placement.start, lease.placement.size)
        board = next(b for node in self.nodes for b in node.boards if b.gpu.gpu_uuid == place.gpu_uuid)
        whole = lease.placement.profile is None
        exists = (
            board.mig_enabled is False
            if whole
            else any(i.mig_uuid == lease.device_uuid for i in board.instances.values())
        )
        if exists:
            self.running[lease_id] = Running(board, place, whole)
            self._count(board)

    def pod_ends(self, pick: int) -> None:
        running = self.running.pop(self._picked(pick), None)
        if running is not None:
            self._count(running.board)

    def _count(self, board: Board) -> None:
        """What runs is what NVML shows."""
        on = [r for r in self.running.values() if r.board is board]
        board.run(sum(r.whole for r in on))
        for start, _, _ in list(board.instances):
            others = self.outsider and board is self.nodes[1].board
            board.run(others + sum(not r.whole and r.placement.start == start for r in on), start)

    # Nodes

    def report(self, number: int) -> None:
        node = self.nodes[number]
        self.desired[node.name] = self.nodes_service.report(node.name, node.document(), who="agent")

    def agents_catch_up(self) -> None:
        for number, node in enumerate(self.nodes):
            self.report(number)
            node.obey(self.desired[node.name])
            self.report(number)

    @rule(number=st.integers(0, 1), does=st.sampled_from(["report", "report", "obey", "everything"]))
    def agent(self, number: int, does: str) -> None:
        """An agent does one thing; all agents do all there is to do."""
        node = self.nodes[number]
        match does:
            case "report":
                self.report(number)
            case "obey":
                node.obey(self.desired[node.name])
            case _:
                self.agents_catch_up()

    @rule(kind=st.sampled_from(["bad", "suspect", "fails", "cordon", "reboot", "outsider"]), over=st.booleans())
    def trouble(self, kind: str, over: bool) -> None:
        """It comes, or all of it is over."""
        node = self.nodes[0]
        node.board.health, node.board.fails = Health.OK, ""
        self.nodes_service.cordon(node.name, kind == "cordon" and not over, who="admin")
        self.outsider = kind == "outsider" and not over
        self._count(self.nodes[1].board)
        match kind:
            case "bad" | "suspect" if not over:
                node.board.health = Health(kind)
            case "fails" if not over:
                node.board.fails = "InsufficientResources"
            case "reboot" if not over:
                # Instances do not survive it, nor does what ran.
                self.running = {k: r for k, r in self.running.items() if r.board is not node.board}
                node.board.instances.clear()
                self._count(node.board)
                node.applied, node.failures = 0, []

    # Time

    @rule(seconds=st.sampled_from([1, 20, 30, 45, 130, 700]), then=st.sampled_from(["nothing", "tick", "report"]))
    def time_passes(self, seconds: int, then: str) -> None:
        self.clock.move(seconds)
        if then == "tick":
            tick(self.desk)
        elif then == "report":
            for number in range(len(self.nodes)):
                self.report(number)

    @rule(user=st.integers(0, 4), profile=st.sampled_from(PROFILES[1:]))
    def a_session_begins(self, user: int, profile: str) -> None:
        """What mostly happens, so that the rest is tried on running sessions more than on empty nodes."""
        self.acquire(user, profile, None, None)
        self.agents_catch_up()
        for pick in range(4):
            self.pod_starts(pick)

    # What must always hold

    def _granted_where_allowed(self, steps: Steps) -> None:
        for before, after in steps:
            if isinstance(before, Queued) and isinstance(after, Granted):
                self._check_grant(after)

    def _check_grant(self, lease: Granted) -> None:
        with self.store.reading() as tx:
            node = tx.node(lease.grant.node)
        assert node is not None
        assert node.report is not None
        assert node.reported_at is not None
        assert lease.grant.granted_at - node.reported_at <= SETTING.node_silent_after, "granted on a silent node"
        assert not node.cordoned, "granted on a cordoned node"
        gpu = next(gpu for gpu in node.report.gpus if gpu.gpu_uuid == lease.grant.placement.gpu_uuid)
        assert gpu.health is Health.OK, "granted on a sick GPU"
        place = lease.grant.placement
        on_it = [i for i in gpu.instances if Placement(place.gpu_uuid, i.start, i.size).overlaps(place)]
        assert all(i.processes == 0 for i in on_it), "granted where a process runs"
        assert not (lease.grant.cut and on_it), "granted where an instance sits"

    @invariant()
    def ledger_is_sound(self) -> None:
        check_ledger(self.folder / "ledger.sqlite")

    @invariant()
    def nobody_meets_anybody(self) -> None:
        with self.store.reading() as tx:
            holding = tx.holding()
            closed = [lease_id for lease_id in self.running if isinstance(tx.lease(lease_id), Closed)]
        assert not closed, f"{closed} were closed while their pods still run"
        for lease_id, running in self.running.items():
            for lease in holding:
                if lease.lease_id != lease_id:
                    assert not lease.grant.placement.overlaps(running.placement), (
                        f"{lease.lease_id} was given a slice on which {lease_id} still runs"
                    )


TestLedgers = pytest.mark.slow(Ledgers.TestCase)
TestLedgers.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
