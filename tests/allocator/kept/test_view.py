"""What a replica keeps of the ledger is never older than the ledger, and never holds what did not come to be."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from mig_spawner.allocator.kept.view import View
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.queue.serve import serve_queue
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Pod
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.timer import tick
from mig_spawner.domain.lease import Holder, PodFate, Queued
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import StoreUnavailable
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest
from tests.allocator.kept.check import check_kept
from tests.allocator.rig import Board, Clock, Node
from tests.allocator.store.place import Place
from tests.allocator.store.test_line import in_line

SETTING = Setting(node_silent_after=timedelta(seconds=60))
NOBODY = AllocatorClient("http://127.0.0.1:1", "never-used")


class Replica:
    """An allocator without its HTTP."""

    def __init__(self, store: SQLStore, setting: Setting = SETTING) -> None:
        self.store, self.setting = store, setting
        self.desk = Desk(store, setting, lambda _: None)
        self.leases, self.nodes = LeaseService(self.desk), NodeService(self.desk)

    def acquire(self, user: str, profile: str = "3g.40gb") -> str:
        request = LeaseRequest(holder=HolderDocument(user_id=user), accelerator_partition_type=profile)
        return self.leases.acquire(request, who="test").document.lease_id

    def take(self, user: str) -> None:
        self.acquire(user, "1g.10gb")

    def release(self, lease_id: str) -> None:
        self.leases.release(lease_id, LeaseRelease(pod=PodFate.GONE), who="test")

    def free(self) -> dict[str | None, int]:
        return {offer.profile: offer.free for offer in self.leases.availability().offers}

    def report(self, node: Node) -> None:
        node.obey(self.nodes.report(node.name, node.document(), who="test"))

    def check(self) -> None:
        check_kept(self.store, self.setting)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(lasting: Place, clock: Clock) -> tuple[Replica, Replica]:
    return Replica(lasting.store(clock=clock)), Replica(lasting.store(clock=clock))


def node(name: str = "n1", count: int = 1) -> Node:
    return Node(name, NOBODY, [Board(find_model("a100-80gb").gpu(f"GPU-{name}-{i}")) for i in range(count)])


def test_each_replica_sees_what_the_other_has_done(pair: tuple[Replica, Replica], clock: Clock) -> None:
    one, two = pair
    here = node(count=2)
    one.report(here)
    assert two.free()["3g.40gb"] == 4
    lease_id = two.acquire("a")
    assert one.free()["3g.40gb"] == 3
    one.acquire("b")
    assert two.free()["3g.40gb"] == 2
    two.report(here)  # both devices are there now
    two.release(lease_id)
    for replica in pair:
        replica.check()
    one.report(here)  # and the first is destroyed
    two.report(here)
    assert (one.free()["3g.40gb"], two.free()["3g.40gb"]) == (3, 3)
    one.nodes.cordon("n1", True, who="test")
    assert two.free()["3g.40gb"] == 0
    for replica in pair:
        replica.check()


def test_a_node_that_came_moved_or_went_is_seen_by_the_other(pair: tuple[Replica, Replica], clock: Clock) -> None:
    one, two = pair
    first, second = node("n2"), node("n1")
    one.report(first)
    two.report(second)
    for replica in pair:
        replica.check()
    clock.move(61)
    second.boards += first.boards  # the GPU was put into the other node while the first was silent
    two.report(second)
    for replica in pair:
        replica.check()
    one.nodes.forget("n2", who="test")
    for replica in pair:
        replica.check()
    assert one.free()[None] == two.free()[None] == 2


def test_silence_is_seen_though_nothing_is_written(pair: tuple[Replica, Replica], clock: Clock) -> None:
    one, two = pair
    one.report(node())
    assert (one.free()[None], two.free()[None]) == (1, 1)
    clock.move(61)
    assert (one.free()[None], two.free()[None]) == (0, 0)
    clock.move(-61)  # a clock that was set back
    assert (one.free()[None], two.free()[None]) == (1, 1)
    for replica in pair:
        replica.check()


def test_a_pod_keeps_its_place_in_every_replica_until_it_goes(pair: tuple[Replica, Replica], clock: Clock) -> None:
    one, two = pair
    here = node()
    one.report(here)
    lease_id = one.acquire("a")
    one.report(here)
    one.report(here)
    pod = Pod("u", lease_id, "hub", "jupyter-a", "Running", "MIG-other", clock())
    with two.desk.writing("test") as ledger:
        ledger.tx.put_pod(pod)
    one.release(lease_id)
    for replica in pair:
        replica.check()
    with one.desk.writing("test") as ledger:
        assert list(ledger.orphans) == []  # it is not closed: its pod is there
        ledger.tx.drop_pod("u")
    tick(two.desk)
    for replica in pair:
        replica.check()


class _GaveUpError(Exception):
    """What a use case raises."""


def _acquire_and_give_up(replica: Replica, user: str) -> None:
    with replica.desk.writing("test") as ledger:
        before = ledger.facts.leases_on("GPU-n1-0")
        _grant_in(ledger, user)
        ledger.forget()  # so it is read again, from the middle of the transaction
        assert ledger.facts.leases_on("GPU-n1-0") != before, "it was in the view"
        raise _GaveUpError


def _grant_in(ledger: Ledger, user: str) -> None:
    """What `acquire` does, in the middle of something else."""
    request = SliceRequest(ProfileName.parse("1g.10gb"))
    waits = Queued(lease_id=f"l-{user}", holder=Holder(user, "", ""), request=request, queued_at=ledger.now)
    ledger.tx.add(waits, who="test", why="test")
    serve_queue(ledger)


def test_what_was_undone_leaves_nothing_behind(pair: tuple[Replica, Replica]) -> None:
    one, _ = pair
    one.report(node())
    one.acquire("a")
    with pytest.raises(_GaveUpError):
        _acquire_and_give_up(one, "b")
    for replica in pair:
        replica.check()
    assert one.free()["3g.40gb"] == 1


def test_what_was_undone_in_the_middle_of_a_shared_commit_leaves_nothing_behind(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    one.report(node())
    done = in_line(
        one.store,
        lambda: one.take("a"),
        lambda: _acquire_and_give_up(one, "b"),
        lambda: one.take("c"),
        lambda: _acquire_and_give_up(one, "d"),
    )
    assert [type(future.exception()) for future in done] == [type(None), _GaveUpError, type(None), _GaveUpError]
    for replica in pair:
        replica.check()
    assert one.free()["1g.10gb"] == two.free()["1g.10gb"] == 5


@pytest.mark.parametrize("late", [False, True], ids=["not committed", "committed, and nobody was told"])
def test_a_commit_that_fails_leaves_what_is_in_the_database(
    pair: tuple[Replica, Replica], late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    one.report(node())
    one.acquire("a", "1g.10gb")

    def fail(connection: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("connection lost"))

    if late:
        dialect = one.store.database.engine.dialect
        commit = dialect.do_commit

        def commit_and_fail(connection: Any) -> None:
            commit(connection)
            fail(connection)

        monkeypatch.setattr(dialect, "do_commit", commit_and_fail)
    else:
        event.listen(one.store.database.engine, "commit", fail)
    with pytest.raises(StoreUnavailable):
        one.acquire("b", "1g.10gb")
    monkeypatch.undo()
    with suppress(Exception):
        event.remove(one.store.database.engine, "commit", fail)
    for replica in pair:
        replica.check()
    assert one.free()["1g.10gb"] == two.free()["1g.10gb"] == (5 if late else 6)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM change", "UPDATE change SET stamp = 'of another copy'"],
    ids=["the log was dropped", "the database is another copy"],
)
def test_who_cannot_tell_what_has_changed_reads_everything(lasting: Place, clock: Clock, statement: str) -> None:
    one = Replica(lasting.store(clock=clock))
    one.report(node())
    assert one.free()["1g.10gb"] == 7
    lasting.execute("UPDATE node SET cordoned = true")
    lasting.execute(statement)
    assert one.free()["1g.10gb"] == 0
    one.check()


def test_a_view_of_other_settings_is_not_used(lasting: Place, clock: Clock) -> None:
    one = Replica(lasting.store(clock=clock))
    one.report(node())
    clock.move(50)
    assert one.free()[None] == 1
    stricter = Replica(one.store, replace(SETTING, node_silent_after=timedelta(seconds=40)))
    assert stricter.free()[None] == 0


def test_a_decision_reads_no_more_of_a_large_fleet(lasting: Place, clock: Clock) -> None:
    one = Replica(lasting.store(clock=clock))
    for number in range(3):
        one.report(node(f"n{number}", 2))
    one.acquire("a")
    view = one.store._writer.slot.view
    assert isinstance(view, View)
    states = dict(view.fleet.states)
    one.acquire("b")
    assert one.store._writer.slot.view is view
    again = [uuid for uuid, state in view.fleet.states.items() if state is not states[uuid]]
    assert len(again) == 1
