"""What the tests of the allocator share: a clock to move, nodes that obey, a running allocator, and a look at its ledger."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from traitlets.config import Config

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.allocator.pods.base import PodListing, PodSighting, PodWatch
from mig_spawner.allocator.store.base import AuditRow
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import ChoiceDocument, HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest
from mig_spawner.wire.node import (
    DesiredNode,
    EnginesDocument,
    GPUDocument,
    Health,
    InstanceDocument,
    NodeReport,
    ProfileDocument,
    StepFailure,
)

T = TypeVar("T")

SERVICE_TOKEN: Final = "service-token-for-tests"
EPOCH: Final = datetime(2026, 3, 1, tzinfo=UTC)


class Clock:
    """Stands still but for a millisecond each time it is read, until it is moved."""

    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def gpu_document(gpu: GPU, **changes: Any) -> GPUDocument:
    """The report of an empty GPU in MIG mode whose agent may cut it."""
    profiles = tuple(
        ProfileDocument(
            name=str(p.name),
            profile_id=p.profile_id,
            size=p.size,
            starts=p.starts,
            compute_slices=p.compute_slices,
            memory_mib=p.memory_mib,
            multiprocessors=p.multiprocessors,
            engines=EnginesDocument(
                copy_engines=p.engines.copy,
                decoders=p.engines.decoder,
                encoders=p.engines.encoder,
                jpeg=p.engines.jpeg,
                ofa=p.engines.ofa,
            ),
        )
        for p in gpu.profiles
    )
    document = GPUDocument(
        gpu_uuid=gpu.gpu_uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        multiprocessors=gpu.multiprocessors,
        mig_enabled=True,
        dynamic=True,
        profiles=profiles,
    )
    return document.model_copy(update=changes)


@dataclass
class Board:
    """A GPU of a node in a test: what is on it, and what goes wrong with it."""

    gpu: GPU
    dynamic: bool = True
    reshapable: bool = False
    mig_enabled: bool | None = True
    health: Health = Health.OK
    processes: int | None = 0
    instances: dict[tuple[int, int, int], InstanceDocument] = field(default_factory=dict)
    fails: str = ""

    def add(
        self, profile: str, start: int, *, processes: int | None = 0, mig_uuid: str | None = ""
    ) -> InstanceDocument:
        """An instance as an admin makes it."""
        shape = next(p for p in self.gpu.profiles if str(p.name) == profile)
        made = f"MIG-{self.gpu.gpu_uuid}-{shape.profile_id}-{start}" if mig_uuid == "" else mig_uuid
        instance = InstanceDocument(
            gpu_instance_id=len(self.instances) + 1,
            profile_id=shape.profile_id,
            profile=profile,
            start=start,
            size=shape.size,
            mig_uuid=made,
            processes=processes,
        )
        self.instances[start, shape.size, shape.profile_id] = instance
        return instance

    def run(self, processes: int | None, start: int | None = None) -> None:
        """So many processes run on the instance at a start, or on the uncut GPU."""
        if start is None:
            self.processes = processes
        else:
            key = next(key for key in self.instances if key[0] == start)
            self.instances[key] = self.instances[key].model_copy(update={"processes": processes})

    def document(self) -> GPUDocument:
        return gpu_document(
            self.gpu,
            mig_enabled=self.mig_enabled,
            dynamic=self.dynamic,
            reshapable=self.reshapable,
            health=self.health,
            processes=self.processes,
            instances=tuple(self.instances.values()),
        )


@dataclass
class Node:
    """A node whose agent does what it is told, when a test says so."""

    name: str
    client: AllocatorClient
    boards: list[Board]
    simulated: bool = False
    applied: int = 0
    failures: list[StepFailure] = field(default_factory=list)
    boot_id: str = "boot-1"
    destroyed: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def board(self) -> Board:
        return self.boards[0]

    def document(self) -> NodeReport:
        return NodeReport(
            agent_version="test",
            boot_id=self.boot_id,
            applied_generation=self.applied,
            simulated=self.simulated,
            gpus=tuple(board.document() for board in self.boards),
            failures=tuple(self.failures),
        )

    async def report(self) -> DesiredNode:
        """Tell what is there now, without doing anything about the answer."""
        return await self.client.report(self.name, self.document())

    def obey(self, desired: DesiredNode) -> None:
        """Make the node look as desired."""
        self.failures = []
        boards = {board.gpu.gpu_uuid: board for board in self.boards}
        for d in desired.destroy:
            board = boards[d.gpu_uuid]
            instance = board.instances.get((d.start, d.size, d.profile_id))
            if instance is not None and instance.processes == 0:
                del board.instances[d.start, d.size, d.profile_id]
                self.destroyed.append((d.gpu_uuid, d.start, d.size))
        for i in desired.instances:
            board = boards[i.gpu_uuid]
            if board.fails:
                self.failures.append(
                    StepFailure(lease_id=i.lease_id, gpu_uuid=i.gpu_uuid, step="create", reason=board.fails)
                )
            elif (i.start, i.size, i.profile_id) not in board.instances:
                profile = board.gpu.profile_by_id(i.profile_id)
                assert profile is not None
                board.mig_enabled = True
                board.add(str(profile.name), i.start)
        for w in desired.whole:
            assert not boards[w.gpu_uuid].instances
            boards[w.gpu_uuid].mig_enabled = False
        self.applied = desired.generation

    async def turn(self, times: int = 1) -> DesiredNode:
        """Report, obey, report again; more than once where one step only allows the next."""
        desired = await self.report()
        for _ in range(times):
            self.obey(desired)
            desired = await self.report()
        return desired


@dataclass
class Rig:
    """A running allocator with its clients.

    Attributes:
        database: the file, where the ledger is one.
        rows: what a query finds in the ledger, by the names of its columns.
    """

    app: AllocatorApp
    hub: AllocatorClient
    clock: Clock
    database: Path
    tokens: dict[str, str]
    rows: Callable[[str], list[dict[str, Any]]]
    nodes: dict[str, Node] = field(default_factory=dict)
    clients: list[AllocatorClient] = field(default_factory=list)

    def client(self, token: str) -> AllocatorClient:
        client = AllocatorClient(self.app.url, token, timeout_s=60)
        self.clients.append(client)
        return client

    def http(self, token: str = SERVICE_TOKEN) -> httpx.AsyncClient:
        """For what `AllocatorClient` never sends."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.app.url, headers=headers, trust_env=False, timeout=60, verify=False)

    async def node(
        self, name: str = "n1", models: tuple[str, ...] = ("a100-80gb",), *, report: bool = True, **board: Any
    ) -> Node:
        """A node with GPUs of these models, which has reported once."""
        boards = [Board(find_model(model).gpu(f"GPU-{name}-{i}"), **board) for i, model in enumerate(models)]
        node = self.nodes[name] = Node(name, self.client(self.tokens[name]), boards)
        if report:
            await node.report()
        return node

    def request(self, user: str, profile: str | None = "1g.10gb", server: str = "", **more: Any) -> LeaseRequest:
        """A request; `alternatives` are profiles, or None for a whole GPU."""
        holder = HolderDocument(user_id=user, server_name=server, user_name=f"name-{user}")
        others = more.pop("alternatives", ())
        choices = tuple(ChoiceDocument(accelerator_partition_type=name, whole=name is None) for name in others)
        return LeaseRequest(holder=holder, accelerator_partition_type=profile, alternatives=choices, **more)

    async def acquire(self, user: str, profile: str | None = "1g.10gb", server: str = "", **more: Any) -> LeaseDocument:
        return await self.hub.acquire(self.request(user, profile, server, **more))

    async def ready(self, user: str, profile: str | None = "1g.10gb", node: str = "n1", **more: Any) -> LeaseDocument:
        """A lease whose device has been made."""
        lease = await self.acquire(user, profile, **more)
        await self.nodes[node].turn()
        return await self.hub.lease(lease.lease_id)

    async def active(self, user: str, profile: str | None = "1g.10gb", node: str = "n1", **more: Any) -> LeaseDocument:
        lease = await self.ready(user, profile, node, **more)
        return await self.hub.renew(lease.lease_id)

    async def release(
        self, lease: LeaseDocument, pod: PodFate = PodFate.GONE, reason: EndReason = EndReason.STOPPED
    ) -> LeaseDocument:
        return await self.hub.release(lease.lease_id, LeaseRelease(reason=reason, pod=pod))

    async def state(self, lease: LeaseDocument) -> LeaseDocument:
        return await self.hub.lease(lease.lease_id)

    async def tick(self, move: float = 0) -> None:
        """Move the clock, then do what time alone does."""
        self.clock.move(move)
        await self.app.tick()

    async def pods(self, *lease_ids: str, age: float = 0, gone: tuple[str, ...] = ()) -> None:
        """Kubernetes shows one pod for each of these leases, and no others."""
        pods = tuple(
            PodSighting(f"uid-{lease_id}", lease_id, "hub", f"jupyter-{lease_id}", "Running", None)
            for lease_id in lease_ids
        )
        await self.show(*pods, age=age, gone=gone)

    async def show(self, *pods: PodSighting, age: float = 0, gone: tuple[str, ...] = ()) -> None:
        """Kubernetes shows these pods, and no others."""
        await self.app.see_pods(PodListing(pods, timedelta(seconds=age), frozenset(f"uid-{g}" for g in gone)))

    async def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        async with self.http() as http:
            lines = (await http.get("metrics")).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def audit(self, lease: LeaseDocument) -> list[AuditRow]:
        with self.app.desk.store.reading() as tx:
            return tx.audit(lease.lease_id)

    def check(self) -> None:
        if self.database.exists():
            check_ledger(self.database)
        else:
            check_tables(self.rows)


class HandPods:
    """A pod watch that shows what a test says, through `Rig.pods`."""

    watches = True

    async def run(self, deliver: Callable[[PodListing], Awaitable[None]]) -> None:
        await asyncio.Event().wait()


async def open_app(
    database: Path,
    tokens: dict[str, str],
    clock: Clock | None = None,
    *,
    pod_watch: PodWatch | bool = False,
    listed: bool = True,
    **traits: Any,
) -> AllocatorApp:
    """An allocator on a free port. With `pod_watch` a test shows it pods; one list was `listed` when it started."""
    given = {
        "bind_url": "http://127.0.0.1:0/services/mig/",
        "database_url": f"sqlite:///{database}",
        "service_tokens": [SERVICE_TOKEN],
        "agent_tokens": tokens,
        **traits,
    }
    # As a configuration, since what is not given may come from the environment.
    app = AllocatorApp(config=Config(AllocatorApp=given))
    app.clock = clock
    app.pod_watch = HandPods() if pod_watch is True else pod_watch or None
    await app.open()
    if pod_watch is True and listed:
        # As if that list had nothing to say of any pod.
        with app.desk.writing("test") as ledger:
            ledger.tx.put_pods_listed_at(ledger.now)
    return app


async def until(question: Callable[[], Awaitable[T]], seconds: float = 10) -> T:
    """Ask until the answer is true."""
    async with asyncio.timeout(seconds):
        while not (answer := await question()):
            await asyncio.sleep(0.01)
    return answer


def check_ledger(database: Path) -> None:
    """`check_tables`, read from the file of SQLite itself."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("BEGIN")  # one state of it, whoever writes meanwhile
        check_tables(lambda query: connection.execute(query).fetchall())
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


def check_tables(rows: Callable[[str], Sequence[Any]]) -> None:
    """What must always hold, read past the store.

    No two leases share a memory slice, one open lease for each holder, every holding lease has its slices and nobody else's, and the
    audit tells the whole life of every lease, in the order of the database's times.

    Args:
        rows: what a query finds, by the names of its columns.
    """
    leases, remnants = rows("SELECT * FROM lease"), rows("SELECT * FROM remnant")
    holds = {(r["gpu_uuid"], r["memory_slice"]): r["lease_id"] for r in rows("SELECT * FROM hold")}
    audit = rows("SELECT * FROM audit ORDER BY number")
    expected: dict[tuple[str, int], str] = {}
    for row in [*(r for r in leases if r["state"] not in ("queued", "closed")), *remnants]:
        for memory_slice in range(row["start"], row["start"] + row["size"]):
            key = (row["gpu_uuid"], memory_slice)
            assert key not in expected, f"{key} is held by {expected[key]} and {row['lease_id']}"
            expected[key] = row["lease_id"]
    assert holds == expected
    holders = [(r["user_id"], r["server_name"]) for r in leases if r["open"]]
    assert len(holders) == len(set(holders))
    times = [row["at"] for row in audit]
    assert times == sorted(times), "times are the database's, which go on"
    lives: dict[str, list[Any]] = defaultdict(list)
    for row in audit:
        lives[row["lease_id"]].append(row)
    for lease in leases:
        life = lives[lease["lease_id"]]
        assert [r["before"] for r in life] == [None, *(r["after"] for r in life[:-1])]
        assert life[-1]["after"] == lease["state"]
        assert all(r["who"] and r["why"] for r in life)
