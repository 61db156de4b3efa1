"""Killed at any moment, and started again: nothing is granted twice, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from mig_spawner.domain.lease import PodFate
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest, LeaseState
from tests.allocator.process import AllocatorProcess
from tests.allocator.rig import Board, Node, check_ledger

T = TypeVar("T")

KILLS = 5
HOLDERS = 8
TOKENS = {"n1": "agent-token-of-n1"}


class Load:
    """Holders that take and give back slices for as long as they are let, and never mind that nobody answers now and then."""

    def __init__(self, client: AllocatorClient, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._in_use: dict[tuple[str, int], str] = {}
        self.seen: set[str] = set()
        self.ended = asyncio.Event()
        self.rounds = 0

    async def holder(self, user: str) -> None:
        while not self.ended.is_set():
            profile = self._random.choice(["1g.10gb", "2g.20gb", "3g.40gb"])
            holder = HolderDocument(user_id=user, user_name=user)
            request = LeaseRequest(holder=holder, accelerator_partition_type=profile)
            try:
                lease = await stubborn(lambda: self._client.acquire(request))  # noqa: B023
                self.seen.add(lease.lease_id)
                await self._use(lease)
            except AllocatorRefused as refused:
                if refused.code != "conflict":
                    raise
                await asyncio.sleep(0.02)

    async def _use(self, lease: LeaseDocument) -> None:
        while lease.state in (LeaseState.QUEUED, LeaseState.GRANTED) and not self.ended.is_set():
            known = lease
            lease = await stubborn(lambda: self._client.lease(known.lease_id, wait_s=1, known=known))  # noqa: B023
        if lease.state is LeaseState.READY and lease.placement is not None:
            place = lease.placement
            slices = [(place.gpu_uuid, i) for i in range(place.start, place.start + place.size)]
            await stubborn(lambda: self._client.renew(lease.lease_id))
            for key in slices:
                assert key not in self._in_use, f"{key} was given to {self._in_use[key]} and {lease.lease_id}"
                self._in_use[key] = lease.lease_id
            await asyncio.sleep(self._random.random() * 0.05)
            for key in slices:
                del self._in_use[key]
            self.rounds += 1
        release = LeaseRelease(pod=PodFate.GONE)
        await stubborn(lambda: self._client.release(lease.lease_id, release))


async def stubborn(call: Callable[[], Awaitable[T]]) -> T:
    """Try until somebody answers, as every client of ours must."""
    while True:
        try:
            return await call()
        except AllocatorUnavailable:
            await asyncio.sleep(0.05)


async def agent(node: Node, ended: asyncio.Event) -> None:
    """Report, obey, report, and wait a little."""
    while not ended.is_set():
        node.obey(await stubborn(node.report))
        desired = await stubborn(node.report)
        await stubborn(lambda: node.client.desired("n1", known=desired.generation, wait_s=0.2))  # noqa: B023


@pytest.mark.slow
async def test_nothing_is_granted_twice_or_lost_when_it_is_killed(tmp_path: Path) -> None:
    database = tmp_path / "ledger.sqlite"
    async with AllocatorProcess(database, TOKENS) as allocator:
        hub, agent_client = allocator.client(), allocator.client(TOKENS["n1"])
        boards = [Board(find_model("a100-80gb").gpu(f"GPU-{i}")) for i in range(2)]
        node = Node("n1", agent_client, boards)
        load = Load(hub, seed=7)
        async with hub, agent_client, asyncio.TaskGroup() as group:
            group.create_task(agent(node, load.ended))
            for number in range(HOLDERS):
                group.create_task(load.holder(f"u{number}"))
            for kill in range(KILLS):
                rounds = load.rounds
                async with asyncio.timeout(60):
                    while load.rounds < rounds + 5:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(random.Random(kill).random() * 0.1)
                await allocator.end(signal.SIGKILL)
                check_ledger(database)
                await allocator.start()
            load.ended.set()
        check_ledger(database)
        _nobody_forgotten(database, load.seen)


def _nobody_forgotten(database: Path, seen: set[str]) -> None:
    """Every lease that anybody was told of is in the ledger."""
    connection = sqlite3.connect(database)
    try:
        known = {row[0] for row in connection.execute("SELECT lease_id FROM lease")}
    finally:
        connection.close()
    assert seen <= known
    assert len(seen) > KILLS


async def test_a_stopped_allocator_answers_who_waits(tmp_path: Path) -> None:
    async with AllocatorProcess(tmp_path / "ledger.sqlite", TOKENS) as allocator:
        async with allocator.client() as hub, allocator.client(TOKENS["n1"]) as agent_client:
            node = Node("n1", agent_client, [Board(find_model("a100-80gb").gpu("GPU-0"))])
            await node.report()
            holder = HolderDocument(user_id="1")
            lease = await hub.acquire(LeaseRequest(holder=holder, accelerator_partition_type="1g.10gb"))
            waiting = asyncio.create_task(hub.lease(lease.lease_id, wait_s=50, known=lease))
            await _polled(allocator.url)
            assert await allocator.end(signal.SIGTERM) == 0, allocator.log()
            assert (await waiting).state is LeaseState.GRANTED
        assert "Traceback" not in allocator.log()


async def _polled(url: str) -> None:
    """Wait until the long poll has surely been read: a request sent after it was answered."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        for _ in range(3):
            assert (await http.get(f"{url}/healthz")).status_code == 200


async def test_logins_and_tickets_outlive_a_restart(tmp_path: Path) -> None:
    async with AllocatorProcess(tmp_path / "ledger.sqlite", TOKENS) as allocator:
        async with allocator.client() as hub:
            ticket = (await hub.ticket("ann")).ticket
        await allocator.end(signal.SIGKILL)
        await allocator.start()
        async with allocator.client(ticket) as browser:
            assert (await browser.availability()).nodes == 0
