"""The promises of the store, the same on every database: constraints, order, all or nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mig_spawner.allocator.claim import Claim
from mig_spawner.allocator.store.base import Pod, Transaction
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import GPU, Placement
from mig_spawner.domain.lease import Active, EndReason, Granted, Holder, Lease, Pick, PodFate, Queued
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import HolderHasLease, InvalidTransition, SliceTaken
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import gpu_document
from tests.allocator.store.place import Place

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _queued(lease_id: str, request: Request | None = None, **changes: object) -> Queued:
    wanted = request or SliceRequest(ProfileName.parse("3g.40gb"))
    lease = Queued(lease_id=lease_id, holder=Holder(lease_id, "s", "n"), request=wanted, queued_at=NOW)
    return replace(lease, **changes)  # type: ignore[arg-type]


def _granted(lease: Queued, start: int = 0, *, cut: bool = True, generation: int = 1, choice: int = 0) -> Granted:
    gpu: GPU = find_model("a100-80gb").gpu("GPU-0")
    profile = gpu.profile(ProfileName.parse("3g.40gb"))
    decision = Decision("n1", gpu, Placement(gpu.gpu_uuid, start, 4), profile, None, cut)
    return transition.grant(lease, decision, generation, NOW, NOW + timedelta(hours=1), choice)


def _add(tx: Transaction, lease: Queued) -> Queued:
    tx.add(lease, who="test", why="test")
    return lease


def _move(tx: Transaction, before: Lease, after: Lease) -> None:
    tx.move(before, after, who="test", why="test")


@pytest.mark.parametrize(
    "request_",
    [SliceRequest(ProfileName.parse("1g.10gb+me")), MemoryRequest(12.5), WholeRequest(), DeviceRequest("MIG-1")],
    ids=["slice", "memory", "whole", "device"],
)
def test_every_state_is_read_back_as_it_was_written(store: SQLStore, request_: Request) -> None:
    queued = _queued(
        "a",
        request_,
        avoid=frozenset({"GPU-7"}),
        wait_until=NOW,
        duration_s=5.5,
        alternatives=(request_,),
        priority=-7,
        pick=Pick.NODE,
    )
    granted = _granted(queued, choice=1)
    ready = transition.make_ready(granted, "MIG-1", NOW)
    active = transition.activate(ready, NOW)
    releasing = transition.release(active, EndReason.FORCED, PodFate.UNKNOWN, NOW, "Sorry: we need the node.")
    closed = transition.close(releasing, NOW + timedelta(seconds=10))
    with store.writing() as tx:
        _add(tx, queued)
    before: Lease = queued
    for after in (granted, ready, active, releasing, closed):
        with store.reading() as tx:
            assert tx.lease("a") == before
        with store.writing() as tx:
            _move(tx, before, after)
        before = after
    with store.reading() as tx:
        assert tx.lease("a") == closed
        assert [row.after for row in tx.audit("a")] == ["queued", "granted", "ready", "active", "releasing", "closed"]


def test_two_change_places_at_once_or_not_at_all(store: SQLStore) -> None:
    with store.writing() as tx:
        leases = []
        for lease_id, start in (("a", 0), ("b", 4)):
            queued = _add(tx, _queued(lease_id))
            granted = _granted(queued, start, cut=False)
            _move(tx, queued, granted)
            leases.append(granted)
    a, b = leases
    swapped = [replace(a, grant=b.grant), replace(b, grant=a.grant)]
    with pytest.raises(SliceTaken), store.writing() as tx:
        tx.exchange([(a, swapped[0], "alone")], who="test")
    with store.writing() as tx:
        with pytest.raises(SliceTaken):
            tx.exchange([(a, swapped[0], "alone")], who="test")
        assert tx.holding() == [a, b]
        tx.exchange([(a, swapped[0], "one"), (b, swapped[1], "two")], who="test")
    with store.reading() as tx:
        assert tx.holding() == swapped
        assert [row.why for row in tx.audit()][-2:] == ["one", "two"]


def test_no_memory_slice_is_held_twice(store: SQLStore) -> None:
    with store.writing() as tx:
        one, two = _add(tx, _queued("a")), _add(tx, _queued("b"))
        _move(tx, one, _granted(one, 0))
        with pytest.raises(SliceTaken):
            _move(tx, two, _granted(two, 3))
        # Nothing of the refused step is there, and the transaction goes on.
        assert tx.lease("b") == two
        _move(tx, two, _granted(two, 4))


def test_no_holder_has_two_open_leases(store: SQLStore) -> None:
    with store.writing() as tx:
        _add(tx, _queued("a"))
    with pytest.raises(HolderHasLease), store.writing() as tx:
        _add(tx, replace(_queued("b"), holder=Holder("a", "s")))
    with store.writing() as tx:
        lease = tx.lease("a")
        assert isinstance(lease, Queued)
        _move(tx, lease, transition.cancel(lease, EndReason.CANCELLED, NOW))
        _add(tx, replace(_queued("b"), holder=Holder("a", "s")))


def test_a_step_from_a_state_that_is_over_is_refused(store: SQLStore) -> None:
    with store.writing() as tx:
        lease = _add(tx, _queued("a"))
        _move(tx, lease, transition.cancel(lease, EndReason.CANCELLED, NOW))
        with pytest.raises(InvalidTransition):
            _move(tx, lease, _granted(lease))


def test_what_was_cut_stays_held_until_it_is_dropped(store: SQLStore) -> None:
    with store.writing() as tx:
        cut, standing = _add(tx, _queued("a")), _add(tx, _queued("b"))
        _move(tx, cut, _granted(cut, 0))
        _move(tx, standing, _granted(standing, 4, cut=False))
        for lease_id in "ab":
            granted = tx.lease(lease_id)
            assert isinstance(granted, Granted)
            _move(tx, granted, transition.requeue(granted))
        remnant = tx.remnants()[0]
        assert (len(tx.remnants()), remnant.placement, remnant.lease_id) == (1, Placement("GPU-0", 0, 4), "a")
        waiting = tx.lease("b")
        assert isinstance(waiting, Queued)
        with pytest.raises(SliceTaken):
            _move(tx, waiting, _granted(waiting, 0))
        tx.drop_remnant(remnant)
        _move(tx, waiting, _granted(waiting, 0))


def _active(lease_id: str, start: int) -> Active:
    ready = transition.make_ready(_granted(_queued(lease_id), start), f"MIG-{lease_id}", NOW)
    return transition.activate(ready, NOW)


def test_a_lease_is_restored_whole_or_not_at_all(store: SQLStore) -> None:
    restored = _active("a", 0)
    with store.writing() as tx:
        tx.restore(restored, who="test", why="test")
        with pytest.raises(SliceTaken):
            tx.restore(_active("b", 3), who="test", why="test")
        with pytest.raises(HolderHasLease):
            tx.restore(replace(_active("c", 4), holder=restored.holder), who="test", why="test")
        # The transaction goes on, and nothing of the refused ones is there.
        tx.restore(_active("d", 4), who="test", why="test")
    with store.reading() as tx:
        assert (tx.lease("a"), tx.lease("b"), tx.lease("c")) == (restored, None, None)
        assert [(row.lease_id, row.before, row.after) for row in tx.audit()] == [
            ("a", None, "active"),
            ("d", None, "active"),
        ]


def test_a_note_moves_nothing(store: SQLStore) -> None:
    active = _active("a", 0)
    with store.writing() as tx:
        tx.restore(active, who="test", why="test")
        tx.note(active, who="somebody", why="something")
    with store.reading() as tx:
        row = tx.audit("a")[-1]
        assert (row.who, row.before, row.after, row.why) == ("somebody", "active", "active", "something")
        assert tx.lease("a") == active


def test_what_a_pod_says_is_kept_until_it_says_something_else(store: SQLStore) -> None:
    claim = Claim(
        Holder("1", "s", "n"),
        Placement("GPU-0", 2, 1),
        ProfileName.parse("1g.10gb"),
        "MIG-1",
        "n1",
        True,
        NOW,
        picked_by_node=True,
    )
    pod = Pod("u", "a", "hub", "jupyter-a", "Running", "MIG-1", NOW, claim=claim, trouble="why")
    with store.writing() as tx:
        tx.put_pod(pod)
    for changed in (pod, replace(pod, claim=None), replace(pod, trouble="", claim=replace(claim, expires_at=NOW))):
        with store.writing() as tx:
            tx.put_pod(changed)
        with store.reading() as tx:
            assert tx.pods() == [changed]


def test_a_node_is_forgotten_with_its_gpus(store: SQLStore) -> None:
    gpu = gpu_document(find_model("a100-80gb").gpu("GPU-0"))
    with store.writing() as tx:
        tx.put_report("n1", NodeReport(agent_version="1", boot_id="1", gpus=(gpu,)))
        tx.put_report("n2", NodeReport(agent_version="1", boot_id="1"))
    revision = store.revision()
    with store.writing() as tx:
        tx.drop_node("n1")
    with store.reading() as tx:
        assert ([node.name for node in tx.nodes()], tx.gpu_owners()) == (["n2"], {})
    assert store.revision() == revision + 1


def test_what_fails_in_the_middle_was_never_there(store: SQLStore) -> None:
    revision = store.revision()

    def fail() -> None:
        with store.writing() as tx:
            _add(tx, _queued("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.reading() as tx:
        assert (tx.lease("a"), tx.audit(), store.revision()) == (None, [], revision)


def test_the_revision_moves_with_every_change(store: SQLStore) -> None:
    first = store.revision()
    with store.writing() as tx:
        tx.queue_length()
    assert store.revision() == first
    with store.writing() as tx:
        _add(tx, _queued("a"))
    assert store.revision() == first + 1


def test_the_queue_keeps_the_order_of_arrival(store: SQLStore) -> None:
    with store.writing() as tx:
        for number in range(50):
            # A clock that goes backwards changes nothing.
            _add(tx, _queued(f"l{number}", queued_at=NOW - timedelta(seconds=number)))
        assert [lease.lease_id for lease in tx.queue()] == [f"l{number}" for number in range(50)]
        assert tx.queue_place("l9") == (10, 50)
        assert tx.queue_place("nope") == (0, 50)


def test_replicas_take_turns_by_the_databases_clock(place: Place) -> None:
    now = [NOW]
    store = place.store(clock=lambda: now[0])

    def turn(task: str) -> bool:
        with store.writing() as tx:
            return tx.take_turn(task, timedelta(seconds=10))

    assert (turn("a"), turn("a"), turn("b")) == (True, False, True)
    now[0] += timedelta(seconds=9)
    assert not turn("a")
    now[0] += timedelta(seconds=1)
    assert (turn("a"), turn("a")) == (True, False)
    now[0] -= timedelta(hours=1)  # a clock that was set back stops nobody
    assert (turn("a"), turn("a")) == (True, False)


def test_taking_a_turn_is_no_news(store: SQLStore) -> None:
    revision = store.revision()
    with store.writing() as tx:
        assert tx.take_turn("a", timedelta(seconds=10))
    assert store.revision() == revision
