"""Four allocators on one PostgreSQL, 500 who want a slice, and somebody who kills one of the four every second."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from tests.allocator.replica import HERE, Replica, call, context
from tests.allocator.rig import Board, Node, check_tables
from tests.allocator.store.place import postgres_place
from tests.postgres.fixture import postgres
from tests.postgres.server import Server

__all__ = ["postgres"]

REPLICAS: Final = 4
CLIENTS: Final = 500
GPUS: Final = 8
SLICES: Final = 7 * GPUS
LOAD_S: Final = 25
MOST_S: Final = 180
"""Where others keep the machine busy, until every slice was granted twice."""
KILL_EVERY_S: Final = 1
TOKENS: Final = {"n1": "agent-token-of-n1"}


class Storm:
    """What the clients do, and what they have seen."""

    def __init__(self, replicas: list[Replica], node: Node) -> None:
        self.replicas = replicas
        self.node = node
        self.over = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.told: set[str] = set()
        self._in_use: dict[tuple[str, int], str] = {}
        self._dice = random.Random(5)

    async def ask(self, verb: str, path: str, body: str = "", token: str = "") -> tuple[int, Any]:
        """Ask one allocator after the other until one of them answers: whatever is asked may be asked twice."""
        while True:
            port = self._dice.choice([r for r in self.replicas if r.serves] or self.replicas).port
            self.counts["requests"] += 1
            try:
                status, answer = await call(port, verb, path, body, **({"token": token} if token else {}))
                if status < 500:
                    return status, json.loads(answer)
                assert status == 503, answer
            except OSError:
                self.counts["unanswered"] += 1
            await asyncio.sleep(0.1 + self._dice.random())

    async def client(self, number: int) -> None:
        body = json.dumps({"holder": {"user_id": str(number)}, "accelerator_partition_type": "1g.10gb"})
        while not self.over.is_set():
            status, lease = await self.ask("POST", "/api/v1/leases?wait=1", body)
            if status == 409:  # the one before is still being released
                await asyncio.sleep(0.2)
                continue
            assert status == 200, lease
            self.told.add(lease["lease_id"])
            await self._use(lease)

    async def _use(self, lease: dict[str, Any]) -> None:
        lease_id, path = lease["lease_id"], f"/api/v1/leases/{lease['lease_id']}"
        while lease["state"] in ("queued", "granted") and not self.over.is_set():
            status, lease = await self.ask("GET", f"{path}?wait=5")
            if status != 200 or lease["state"] in ("releasing", "closed"):
                self.counts["lost"] += 1
                return
        if lease["state"] == "ready":
            status, _ = await self.ask("POST", f"{path}/renew")
            self.counts["lost"] += status != 200
            place = lease["placement"]
            keys = [(place["gpu_uuid"], i) for i in range(place["start"], place["start"] + place["size"])]
            self.counts["grants"] += 1
            self.counts["double grants"] += sum(key in self._in_use for key in keys)
            self._in_use.update(dict.fromkeys(keys, lease_id))
            await asyncio.sleep(self._dice.random() * 0.1)
            for key in keys:
                self._in_use.pop(key, None)
        status, _ = await self.ask("POST", f"{path}/release", json.dumps({"reason": "stopped", "pod": "gone"}))
        self.counts["lost"] += status != 200

    async def agent(self) -> None:
        while not self.over.is_set():
            report = self.node.document().model_dump_json()
            status, answer = await self.ask("PUT", f"/api/v1/nodes/{self.node.name}", report, TOKENS[self.node.name])
            assert status == 200, answer
            await asyncio.sleep(0.1)

    async def killer(self) -> None:
        """Kill one that serves as long as another one does, and start it again.

        On a machine so busy that nothing was granted since the last time, the next one waits for that: it is about races, not about
        how quickly an allocator starts.
        """
        starting: set[asyncio.Task[None]] = set()
        granted = 0
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), KILL_EVERY_S)
            serving = [replica for replica in self.replicas if replica.serves]
            if len(serving) > 1 and not self.over.is_set() and self.counts["grants"] > granted:
                granted = self.counts["grants"]
                victim = self._dice.choice(serving)
                await victim.kill()
                starting.add(asyncio.create_task(victim.start()))
        await asyncio.gather(*starting)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(400)
async def test_500_race_on_four_allocators_that_are_killed(
    postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(variable, raising=False)  # four allocators need the cores for themselves
    name = postgres.database()
    place = postgres_place(postgres, name)
    store: SQLStore = place.store()
    boards = [Board(find_model("a100-80gb").gpu(f"GPU-{i}"), dynamic=False) for i in range(GPUS)]
    for board in boards:
        for start in range(7):
            board.add("1g.10gb", start)
    node = Node("n1", AllocatorClient(f"http://{HERE}:1", "never-used"), boards)
    made_by = context()
    replicas = [
        Replica(made_by, store.database.url.render_as_string(), TOKENS, tmp_path / f"{i}.log") for i in range(REPLICAS)
    ]
    storm = Storm(replicas, node)
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        async with asyncio.TaskGroup() as group:
            group.create_task(storm.agent())
            group.create_task(storm.killer())
            for number in range(CLIENTS):
                group.create_task(storm.client(number))
            begun = asyncio.get_running_loop().time()
            await asyncio.sleep(LOAD_S)
            while (lasted := asyncio.get_running_loop().time() - begun) < MOST_S and storm.counts[
                "grants"
            ] < 2 * SLICES:
                await asyncio.sleep(0.1)
            storm.over.set()
        kills = sum(replica.kills for replica in replicas)
    finally:
        await asyncio.gather(*(replica.kill() for replica in replicas))
    check_tables(place.rows)
    known = {row["lease_id"] for row in place.rows("SELECT lease_id FROM lease")}
    counts = storm.counts
    counts["lost"] += len(storm.told - known)
    place.close()
    postgres.drop(name)
    with capsys.disabled():
        print(
            f"\n{REPLICAS} allocators, {CLIENTS} clients, {lasted:.0f} s: {counts['requests']} requests "
            f"({counts['unanswered']} unanswered), {counts['grants']} grants, {kills} kills, "
            f"{counts['double grants']} double grants, {counts['lost']} lost"
        )
    assert (counts["double grants"], counts["lost"]) == (0, 0)
    assert counts["grants"] >= SLICES
    assert kills >= LOAD_S / 5
    assert all("Traceback" not in replica.log.read_text() for replica in replicas)
