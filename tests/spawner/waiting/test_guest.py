"""Whoever stands in line: how many may, and what changes while they do; on a spawner without a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import SpawnRefused
from mig_spawner.wire.lease import LeaseDocument

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

MakeSpawner = Callable[..., MIGSpawner]
MakeLease = Callable[..., LeaseDocument]


async def waiting(spawner: MIGSpawner) -> asyncio.Task[Any]:
    """A start up to its place in line."""
    spawner.user_options = {"mig": "small"}
    spawner.orm_spawner = SimpleNamespace(id=1, user_options=None, server=None, name="")
    await spawner.load_user_options()
    task = asyncio.ensure_future(spawner.get_pod_manifest())
    async with asyncio.timeout(10):
        while not (spawner._keeper.waits or task.done()):
            await asyncio.sleep(0.005)
    return task


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_no_more_may_wait_than_the_limit(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=9)]
    first = await waiting(make_spawner(waiting_limit=1))
    late = make_spawner(waiting_limit=1)
    with pytest.raises(SpawnRefused, match="mig-capacity") as refused:
        await (await waiting(late))
    assert refused.value.status_code == 429
    assert "1 servers of this hub wait" in refused.value.message
    await ended(first)


@pytest.mark.parametrize(("setting", "hubs", "limit"), [(-1, 64, 32), (-1, 1, 1), (-1, 0, 0), (0, 64, 0), (5, 64, 5)])
async def test_the_limit_leaves_half_of_the_hubs_to_others(
    make_spawner: MakeSpawner, setting: int, hubs: int, limit: int
) -> None:
    spawner = make_spawner(waiting_limit=setting)
    spawner.user.settings = {"concurrent_spawn_limit": hubs}
    assert spawner._waiting_limit() == limit


async def test_who_does_not_wait_can_change_nothing(make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    with pytest.raises(SpawnRefused, match="mig-invalid"):
        await spawner.mig_change("none")


async def test_who_changes_keeps_the_lease_and_so_the_place_in_line(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=2)]
    spawner = make_spawner()
    task = await waiting(spawner)
    allocator.changes = [lease("queued", position=1, queue_length=2, asked="3g.40gb")]
    await spawner.mig_change("medium")
    [changed] = [body for method, _, body in allocator.calls if method == "PATCH"]
    assert changed == {
        "accelerator_partition_type": "3g.40gb",
        "choice": "medium",
        "duration": None,
        "alternatives": [],
    }
    allocator.answers = [lease("ready", asked="3g.40gb")]
    await task
    assert allocator.paths("POST").count("leases") == 1
    assert not [path for path in allocator.paths("POST") if path.endswith("release")]
    assert spawner.orm_spawner.user_options == spawner.user_options == {"mig": {"choice": "medium"}}


async def test_a_lease_that_the_ledger_lost_after_a_change_is_asked_for_as_it_was_changed(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1)]
    task = await waiting(spawner := make_spawner())
    allocator.changes = [lease("queued", position=1, queue_length=1)]
    await spawner.mig_change("medium")
    allocator.answers = [(404, "not-found"), lease("ready")]
    await task
    asked = [(body["accelerator_partition_type"], body["choice"]) for body in allocator.bodies("leases")]
    assert asked == [("1g.10gb", "small"), ("3g.40gb", "medium")]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((409, "conflict"), "waits in line no more"),
        ((404, "not-found"), "waits in line no more"),
        ((422, "impossible"), "The script says impossible"),
        ((403, "quota"), "The script says quota"),
        ((503, "not-ready"), "does not answer"),
    ],
    ids=str,
)
async def test_a_change_that_is_refused_leaves_the_place_in_line(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, lease: MakeLease, answer: tuple[int, str], sentence: str
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1)]
    task = await waiting(spawner := make_spawner())
    allocator.changes = [answer]
    with pytest.raises(SpawnRefused) as refused:
        await spawner.mig_change("medium")
    assert sentence in refused.value.message
    assert spawner._keeper.waits
    assert spawner._entry is not None
    assert spawner._entry.id == "small"
    allocator.answers = [lease("ready")]
    await task


async def test_a_change_that_nobody_hears_leaves_the_place_in_line(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1)]
    spawner = make_spawner()
    task = await waiting(spawner)
    allocator.release_failures = 1
    with pytest.raises(SpawnRefused, match="mig-allocator-down"):
        await spawner.mig_change("none")
    assert spawner._keeper.waits
    assert spawner._entry is not None
    assert spawner._entry.id == "small"
    spawner.user_options = {"mig": "small"}
    await ended(task)
