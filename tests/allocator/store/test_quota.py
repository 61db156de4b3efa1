"""What quotas need of a ledger, on every database: what was held in the past, and that no two clicks pass at once."""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from threading import Barrier

import pytest

from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import EndReason, Holder, Lease, PodFate, Queued
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import WholeRequest
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import HolderDocument, LeaseRequest
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import gpu_document
from tests.allocator.store.place import Place

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPU = find_model("a100-80gb").gpu("GPU-0")
HOUR = 3600.0


def held(store: SQLStore, number: int, user: str, begins: float, ends: float, groups: frozenset[str]) -> None:
    """A closed lease of 3g.40gb, half a GPU, from and until so many hours after `NOW`. Every second one has no name but an id."""
    holder = Holder(f"{user}" if number % 2 else "7", "", "" if number % 2 else user)
    queued = Queued(lease_id=f"l{number}", holder=holder, request=WholeRequest(), queued_at=NOW, groups=groups)
    profile = GPU.profile(ProfileName.parse("3g.40gb"))
    decision = Decision("n1", GPU, Placement(GPU.gpu_uuid, 0, 4), profile, None, cut=False)
    granted = transition.grant(queued, decision, number, NOW + timedelta(hours=begins), None)
    releasing = transition.release(granted, EndReason.STOPPED, PodFate.GONE, NOW)
    steps: list[Lease] = [queued, granted, releasing, transition.close(releasing, NOW + timedelta(hours=ends))]
    with store.writing() as tx:
        tx.add(queued, who="test", why="test")
        for before, after in pairwise(steps):
            tx.move(before, after, who="test", why="test")


@pytest.mark.parametrize("seed", range(3))
def test_what_was_held_is_added_up(store: SQLStore, seed: int) -> None:
    chance = random.Random(seed)
    expected: dict[tuple[str, frozenset[str]], float] = defaultdict(float)
    since, until = -10.0, 10.0
    spells = 0
    for number in range(12):
        user, groups = chance.choice(["ann", "bob"]), frozenset(chance.sample(["lab", "staff"], chance.randint(0, 2)))
        begins = chance.uniform(-30, 5)
        ends = begins + chance.uniform(0, 20)
        held(store, number, user, begins, ends, groups)
        seconds = max(min(ends, until) - max(begins, since), 0) * 0.5 * HOUR
        expected[user, groups] += max(ends - max(begins, since), 0) * 0.5 * HOUR
        spells += seconds > 0
    with store.reading() as tx:
        start = NOW + timedelta(hours=since)
        found: dict[tuple[str, frozenset[str]], float] = defaultdict(float)
        for person, gpu_seconds in tx.closed_seconds(start):
            found[person.name, person.groups] += gpu_seconds
        assert {key: s for key, s in found.items() if s > 1} == pytest.approx(
            {k: s for k, s in expected.items() if s > 1}
        )
        own = sum(seconds for _, seconds in tx.closed_seconds(start, person="ann"))
        assert own == pytest.approx(sum(s for (user, _), s in expected.items() if user == "ann"))
        past = tx.closed_spells(start, until=NOW + timedelta(hours=until))
        assert len(past) == spells
        assert all(one.profile == "3g.40gb" and one.spell.share == 0.5 for one in past)
        assert all(start <= one.spell.begins <= one.spell.ends <= NOW + timedelta(hours=until) for one in past)
        assert {one.person.name for one in tx.closed_spells(start, person="bob")} <= {"bob"}


def test_two_clicks_at_once_cannot_pass_a_quota_of_one(lasting: Place) -> None:
    """Two replicas, many threads, one person: whatever comes first, exactly one gets it."""
    menu = Menu.parse({"quotas": [{"per": "person", "slices": 1}, {"per": "hub", "slices": 5}]})
    desks = [Desk(lasting.store(), Setting(), lambda _: None, lambda: menu) for _ in range(2)]
    gpus = tuple(gpu_document(find_model("a100-80gb").gpu(f"GPU-{number}")) for number in range(2))
    report = NodeReport(agent_version="test", boot_id="b", applied_generation=0, gpus=gpus)
    NodeService(desks[0]).report("n1", report, who="agent n1")
    services = [LeaseService(desk) for desk in desks]
    threads = 12

    def click(number: int, user: str, barrier: Barrier) -> bool:
        holder = HolderDocument(user_id=f"{user}", server_name=str(number), user_name=user)
        request = LeaseRequest(holder=holder, accelerator_partition_type="1g.10gb")
        barrier.wait(60)
        try:
            services[number % 2].acquire(request, who="test")
        except AllocatorRefused as error:
            return error.code != "quota"
        return True

    with ThreadPoolExecutor(threads) as pool:
        for turn in range(7):
            barrier = Barrier(threads)
            got = list(pool.map(lambda n, turn=turn, b=barrier: click(n, f"user-{turn}", b), range(threads)))
            assert sum(got) == (1 if turn < 5 else 0)
    found = services[0].leases().leases
    assert sorted(lease.holder.user_name for lease in found) == [f"user-{turn}" for turn in range(5)]
