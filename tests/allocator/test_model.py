"""Anything may happen in any order; what must always hold is checked after every step.

The nodes, their agents and the pods are honest but slow, sick, silent, rebooted and lost; the allocator is killed in the middle of
what it does, and there are two of them. The property that everything is for: while a process of one holder runs on a memory slice, no
other holder is given that slice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.pods.base import PodListing, PodSighting
from mig_spawner.allocator.service import Desk, LeaseService, Steps
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.sighting import begin_watch, forget_pods, see_pods
from mig_spawner.allocator.store.base import Store, Transaction
from mig_spawner.allocator.timer import tick
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Closed, EndReason, Granted, PodFate, Queued
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest, LeaseState
from mig_spawner.wire.node import DesiredNode, Health
from tests.allocator.kept.check import check_kept
from tests.allocator.rig import Board, Clock, Node, check_tables
from tests.allocator.store.place import Place, postgres_place, sqlite_place
from tests.postgres.fixture import postgres
from tests.postgres.server import Server

__all__ = ["postgres"]

SETTING = Setting()
PROFILES = (None, "1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.6gb", "2g.12gb")
PICK = st.integers(0, 7)
SLACK = timedelta(seconds=3)
STEPS = 2000
_nobody = AllocatorClient("http://127.0.0.1:1", "never-used")


@dataclass
class Running:
    """A process of a holder on its device."""

    board: Board
    placement: Placement
    whole: bool
    device_uuid: str


class _KilledError(Exception):
    """The process is gone."""


@dataclass
class Dying:
    """A store whose process is killed at the end of its next writing transaction, before the commit or after it."""

    store: Store
    committed: bool

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self.store.writing() as tx:
            yield tx
            if not self.committed:
                raise _KilledError
        raise _KilledError


class Ledgers(RuleBasedStateMachine):
    """The rules are what holders, agents, nodes and time may do, and what becomes of the allocators.

    Args:
        place: an empty one, for this example only.
        end: removes it.
        replicas: how many allocators share the ledger; they are asked in turn.
        count: called after each step.
    """

    def __init__(self, place: Place, end: Callable[[], None], replicas: int, count: Callable[[], None]) -> None:
        super().__init__()
        self.place, self._end, self._count_step = place, end, count
        self.clock = Clock()
        self.setting = SETTING
        self.stores = [place.store(clock=self.clock) for _ in range(replicas)]
        self.asked = 0
        cut, fixed = Board(find_model("a100-80gb").gpu("GPU-a")), Board(find_model("a30").gpu("GPU-b"), dynamic=False)
        fixed.add("1g.6gb", 0)
        fixed.add("2g.12gb", 2)
        self.cut, self.fixed = cut, fixed
        self.nodes = [Node("n1", _nobody, [cut]), Node("n2", _nobody, [fixed])]
        self.desired: dict[str, DesiredNode] = {}
        self.running: dict[str, Running] = {}
        self.confirmed_gone: set[str] = set()
        self.ended: set[str] = set()
        self.outsider = False

    def teardown(self) -> None:
        self.place.close()
        self._end()

    @property
    def store(self) -> Store:
        """The next replica's."""
        self.asked += 1
        return self.stores[self.asked % len(self.stores)]

    @property
    def desk(self) -> Desk:
        return Desk(self.store, self.setting, self._granted_where_allowed)

    @property
    def service(self) -> LeaseService:
        return LeaseService(self.desk)

    @property
    def nodes_service(self) -> NodeService:
        return NodeService(self.desk)

    @initialize(watches=st.booleans())
    def first_reports(self, watches: bool) -> None:
        self.setting = replace(SETTING, watches_pods=watches)
        for store in self.stores:
            self._begin(store)
        self.kubernetes_lists_pods()
        for number in range(len(self.nodes)):
            self.report(number)

    def _picked(self, pick: int) -> str:
        """One of the newest leases that are known, open ones rather than closed ones."""
        newest = self.place.rows("SELECT lease_id, open FROM lease ORDER BY number DESC LIMIT 8")
        newest.sort(key=lambda row: not row["open"])
        return str(newest[pick % len(newest)]["lease_id"])

    def _any_lease(self) -> bool:
        return bool(self.place.rows("SELECT 1 AS one FROM lease LIMIT 1"))

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
            # Nothing can serve a slice of a GPU that is not there.
            if refused.code != "conflict" and (refused.code != "impossible" or self.nodes[0].boards):
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
        """It may start as long as its holder has the lease, or was released so shortly ago that the pod was still asked for: one that
        has run and ended is not asked for once more then."""
        lease_id = self._picked(pick)
        lease = self.service.lease(lease_id).document
        if lease.device_uuid is None or lease.placement is None or lease_id in self.running:
            return
        with self.store.reading() as tx:
            ends = [row.at for row in tx.audit(lease_id) if row.after in ("releasing", "closed")]
        held = lease.state in (LeaseState.READY, LeaseState.ACTIVE)
        late = bool(ends) and self.clock.now - ends[0] < SETTING.settle_after - SLACK
        if not held and (not late or lease_id in self.confirmed_gone | self.ended):
            return
        place = Placement(lease.placement.gpu_uuid, lease.placement.start, lease.placement.size)
        board = next(b for b in (self.cut, self.fixed) if b.gpu.gpu_uuid == place.gpu_uuid)
        whole = lease.placement.profile is None
        exists = (
            board.mig_enabled is False
            if whole
            else any(i.mig_uuid == lease.device_uuid for i in board.instances.values())
        )
        if exists:
            self.running[lease_id] = Running(board, place, whole, lease.device_uuid)
            self._count(board)

    def pod_ends(self, pick: int) -> None:
        lease_id = self._picked(pick)
        running = self.running.pop(lease_id, None)
        if running is not None:
            self.ended.add(lease_id)
            self._count(running.board)

    def _count(self, board: Board) -> None:
        """What runs is what NVML shows."""
        on = [r for r in self.running.values() if r.board is board]
        board.run(sum(r.whole for r in on))
        for start, _, _ in list(board.instances):
            others = self.outsider and board is self.fixed
            board.run(others + sum(not r.whole and r.placement.start == start for r in on), start)

    # Allocators

    def _begin(self, store: Store) -> None:
        """What an allocator does first."""
        (begin_watch if self.setting.watches_pods else forget_pods)(Desk(store, self.setting, lambda _: None))

    @rule(
        replica=st.integers(0, 1),
        user=st.integers(0, 4),
        profile=st.sampled_from(PROFILES),
        at=st.sampled_from(["rest", "before", "after"]),
        back=st.booleans(),
    )
    def an_allocator_is_killed(self, replica: int, user: int, profile: str | None, at: str, back: bool) -> None:
        """While it does nothing, or before or after the commit of somebody's request; and started again, on the same ledger."""
        number = replica % len(self.stores)
        if at != "rest":
            dying: Any = Dying(self.stores[number], committed=at == "after")
            request = LeaseRequest(holder=HolderDocument(user_id=str(user)), accelerator_partition_type=profile)
            with suppress(_KilledError, AllocatorRefused):
                LeaseService(Desk(dying, self.setting, lambda _: None)).acquire(request, who="hub")
        self.stores[number].close()
        self.place.stores.remove(self.stores[number])
        self.stores[number] = self.place.store(clock=self.clock)
        self._begin(self.stores[number])
        if back:
            self.kubernetes_lists_pods()

    @rule()
    def kubernetes_lists_pods(self) -> None:
        """What a watch would show now."""
        if self.setting.watches_pods:
            pods = [PodSighting(f"uid-{i}", i, "hub", i, "Running", r.device_uuid) for i, r in self.running.items()]
            see_pods(self.desk, PodListing(tuple(pods), timedelta(0)))

    # Nodes

    def report(self, number: int) -> None:
        node = self.nodes[number]
        self.desired[node.name] = self.nodes_service.report(node.name, node.document(), who="agent")

    def agents_catch_up(self) -> None:
        for number, node in enumerate(self.nodes):
            self.report(number)
            self.obey(node)
            self.report(number)

    def obey(self, node: Node) -> None:
        """An agent can do nothing about a GPU that is not there."""
        if node.boards:
            node.obey(self.desired[node.name])

    @rule(number=st.integers(0, 1), does=st.sampled_from(["report", "report", "obey", "everything"]))
    def agent(self, number: int, does: str) -> None:
        """An agent does one thing; all agents do all there is to do."""
        node = self.nodes[number]
        match does:
            case "report":
                self.report(number)
            case "obey":
                self.obey(node)
            case _:
                self.agents_catch_up()

    @rule(kind=st.sampled_from(["bad", "suspect", "lost", "fails", "cordon", "reboot", "outsider"]), over=st.booleans())
    def trouble(self, kind: str, over: bool) -> None:
        """It comes, or all of it is over."""
        node = self.nodes[0]
        node.boards = [self.cut]
        self.cut.health, self.cut.fails = Health.OK, ""
        self.nodes_service.cordon(node.name, kind == "cordon" and not over, who="admin")
        self.outsider = kind == "outsider" and not over
        self._count(self.fixed)
        match kind:
            case "bad" | "suspect" if not over:
                self.cut.health = Health(kind)
            case "lost" if not over:
                node.boards = []
            case "fails" if not over:
                self.cut.fails = "InsufficientResources"
            case "reboot" if not over:
                # Instances do not survive it, nor does what ran.
                self.running = {k: r for k, r in self.running.items() if r.board is not self.cut}
                self.cut.instances.clear()
                self._count(self.cut)
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
        self._count_step()
        check_tables(self.place.rows)

    @invariant()
    def what_is_kept_is_what_is_there(self) -> None:
        check_kept(self.store, self.setting)

    @invariant()
    def engines_suffice(self) -> None:
        with self.store.reading() as tx:
            holding = tx.holding()
        for board in (self.cut, self.fixed):
            profiles = [
                profile
                for lease in holding
                if lease.grant.placement.gpu_uuid == board.gpu.gpu_uuid and lease.grant.profile_id is not None
                if (profile := board.gpu.profile_by_id(lease.grant.profile_id)) is not None
            ]
            for engine in ("copy", "decoder", "encoder", "jpeg", "ofa"):
                used = sum(getattr(profile.engines, engine) for profile in profiles)
                assert used <= getattr(board.gpu.engines, engine), (
                    f"{used} {engine} engines of {board.gpu.gpu_uuid} are leased"
                )

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "replicas"),
    [("sqlite", 1), pytest.param("postgres", 2, marks=pytest.mark.postgres)],
    ids=["sqlite", "postgres"],
)
@pytest.mark.timeout(1200)
def test_whatever_happens(
    kind: str, replicas: int, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_place = (
        _postgres_places(request.getfixturevalue("postgres")) if kind == "postgres" else _sqlite_places(tmp_path)
    )
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    machine = cast("Any", lambda: Ledgers(*new_place(), replicas, count))
    while steps < STEPS:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=20,
                stateful_step_count=50,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
    with capsys.disabled():
        print(f"\n{kind}: {steps} steps of {replicas} allocator(s), all invariants checked after each")


NewPlace = Callable[[], tuple[Place, Callable[[], None]]]


def _sqlite_places(folder: Path) -> NewPlace:
    empty = sqlite_place(folder, "empty")
    empty.store()
    empty.close()

    def new() -> tuple[Place, Callable[[], None]]:
        place = sqlite_place(folder)
        shutil.copy(folder / "empty", str(place.path))
        return place, lambda: None

    return new


def _postgres_places(server: Server) -> NewPlace:
    like = server.database()
    empty = postgres_place(server, like)
    empty.store()
    empty.close()

    def new() -> tuple[Place, Callable[[], None]]:
        name = server.database(like=like)
        return postgres_place(server, name), lambda: server.drop(name)

    return new
