"""What is said to somebody who wants something of which none is free."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mig_spawner.wire.queue import LeaseChange
from tests.allocator.rig import Rig


async def test_who_is_ahead_and_when_the_first_ends(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("1", "3g.40gb", duration=7200)
    await rig.acquire("2", "3g.40gb", duration=3600)
    ends = rig.clock.now + timedelta(seconds=3600)
    await rig.acquire("3", "3g.40gb")
    await rig.acquire("4", "2g.20gb")
    seen = await rig.hub.availability()
    large, small, whole = seen.offer("3g.40gb"), seen.offer("1g.10gb"), seen.offer(None)
    assert large is not None
    assert small is not None
    assert whole is not None
    assert (large.free, large.waiting) == (0, 1)
    assert large.first_end is not None
    assert abs((large.first_end - ends).total_seconds()) < 1
    assert (small.free, small.waiting) == (0, 0)
    assert small.first_end == large.first_end, "a larger one that ends makes room for a small one"
    assert (whole.waiting, whole.first_end) == (0, None), "one that ends does not make a GPU whole"


async def test_when_somebody_would_begin_who_came_now(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("1", None, duration=7200)
    await rig.acquire("2", "7g.80gb", duration=3600)
    offer = (await rig.hub.availability()).offer("1g.10gb")
    assert offer is not None
    assert offer.starts_between is not None, "behind both, if they stay for as long as they may"
    earliest, latest = offer.starts_between.earliest - rig.clock.now, offer.starts_between.latest - rig.clock.now
    assert earliest <= timedelta(0), "nobody has to stay"
    assert timedelta(hours=3) < latest <= timedelta(hours=3, minutes=10)
    later = (await rig.hub.availability()).offer("1g.10gb")
    assert later == offer, "the same for a while, so that an ETag spares the wire"


async def test_nobody_can_tell_when_nothing_was_agreed(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("1", "7g.80gb")
    for user in ("2", "3"):
        await rig.acquire(user, None, min_memory=15)
    offer = (await rig.hub.availability()).offer("2g.20gb")
    assert offer is not None
    assert (offer.waiting, offer.first_end, offer.starts_between) == (2, None, None)
    assert offer.cannot_tell is not None
    assert "without an agreed end" in offer.cannot_tell


@pytest.mark.parametrize("profile", ["1g.10gb", "7g.80gb"])
async def test_what_is_free_says_nothing_of_waiting(rig: Rig, profile: str) -> None:
    await rig.node()
    offer = (await rig.hub.availability()).offer(profile)
    assert offer is not None
    assert (offer.waiting, offer.first_end) == (0, None)


async def test_what_one_who_waits_could_have_instead(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("1", "1g.10gb")
    waiting = await rig.acquire("2", "7g.80gb")
    offer = (await rig.hub.availability()).offer("1g.10gb")
    assert offer is not None
    assert offer.free == 0, "to anybody else it would be given before who waits"
    offers = await rig.hub.availability(without=waiting.lease_id)
    instead, same = offers.offer("1g.10gb"), offers.offer("7g.80gb")
    assert instead is not None
    assert same is not None
    assert (instead.free, same.free, same.waiting) == (6, 0, 0)
    changed = await rig.hub.change(waiting.lease_id, LeaseChange(accelerator_partition_type="1g.10gb"))
    assert changed.placement is not None
