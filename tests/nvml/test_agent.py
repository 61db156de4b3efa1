"""The real agent process with `--driver nvml` on the C library, and the real allocator: a lease becomes a device and leaves none."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from traitlets.config import Config

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest, LeaseState
from tests.nvml.fixture import Imitation
from tests.nvml.node import WITHOUT_MIG, ImitatedNode
from tests.nvml.record import read
from tests.nvml.worker import environment

SERVICE_TOKEN, AGENT_TOKEN = "service-token-of-the-test", "agent-token-of-the-test"
WAIT_S = 30.0
MEMORY_LIMIT_MIB = 60


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[AllocatorApp]:
    given = {
        "bind_url": "http://127.0.0.1:0/services/mig/",
        "database_url": f"sqlite:///{tmp_path}/ledger.sqlite",
        "service_tokens": [SERVICE_TOKEN],
        "agent_tokens": {"node-a": AGENT_TOKEN},
    }
    app = AllocatorApp(config=Config(AllocatorApp=given))
    await app.open()
    yield app
    await app.close()


@pytest.fixture
async def hub(ledger: AllocatorApp) -> AsyncIterator[AllocatorClient]:
    async with AllocatorClient(ledger.url, SERVICE_TOKEN) as client:
        yield client


@asynccontextmanager
async def agent(
    ledger: AllocatorApp, library: Path, node: ImitatedNode, *, ends_by: signal.Signals = signal.SIGTERM
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`mig-spawner agent`, until the block ends. It must end well, unless it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "mig_spawner.cli", "agent", "--driver=nvml", "--node=node-a"),
        *(f"--allocator-url={ledger.url}", "--report-interval=0.5", "--metrics-bind=127.0.0.1:0"),
        env=environment(library, state=node.path) | {"MIG_AGENT_TOKEN": AGENT_TOKEN},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(ends_by)
        _, log = await process.communicate()
        assert process.returncode == (0 if ends_by is signal.SIGTERM else -ends_by), log.decode()
        assert AGENT_TOKEN.encode() not in log


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():
            await asyncio.sleep(0.02)


async def acquire(hub: AllocatorClient, user: str, profile: str | None, *, wait_s: float = WAIT_S) -> LeaseDocument:
    request = LeaseRequest(holder=HolderDocument(user_id=user), accelerator_partition_type=profile)
    lease = await hub.acquire(request, wait_s=wait_s)
    async with asyncio.timeout(wait_s):
        while lease.state in (LeaseState.QUEUED, LeaseState.GRANTED):
            lease = await hub.lease(lease.lease_id, wait_s=wait_s, known=lease)
    return lease


async def release(hub: AllocatorClient, lease: LeaseDocument) -> None:
    await hub.release(lease.lease_id, LeaseRelease(reason=EndReason.STOPPED, pod=PodFate.GONE))


def resident_mib(pid: int) -> int:
    """Memory of a process that is in RAM and its own or shared, as Kubernetes counts it."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) // 1024


async def test_a_slice_is_leased_cut_released_and_destroyed(
    ledger: AllocatorApp, hub: AllocatorClient, imitation: Imitation, tmp_path: Path
) -> None:
    node = ImitatedNode(tmp_path, "node-a", ["a100-80gb", WITHOUT_MIG])
    gpu = node.gpu_uuids()[0]
    async with agent(ledger, imitation.library(), node):
        first = await acquire(hub, "1", "3g.40gb")
        second = await acquire(hub, "2", "1g.10gb")
        assert (first.state, second.state) == (LeaseState.READY, LeaseState.READY)
        assert node.mig_uuids(gpu) == {first.device_uuid, second.device_uuid}
        await release(hub, first)
        await until(lambda: node.mig_uuids(gpu) == {second.device_uuid})
        await release(hub, second)
        await until(lambda: not read(node.path).of("instance"))
    assert not node.in_session()


async def test_a_device_with_a_process_is_not_destroyed_before_it_ends(
    ledger: AllocatorApp, hub: AllocatorClient, imitation: Imitation, tmp_path: Path
) -> None:
    node = ImitatedNode(tmp_path, "node-a", ["h100-80gb"])
    (gpu,) = node.gpu_uuids()
    async with agent(ledger, imitation.library(), node):
        lease = await acquire(hub, "1", "7g.80gb")
        node.set_processes(str(lease.device_uuid), 1)
        with node.calls() as calls:
            await release(hub, lease)
            rounds = node.count_calls("nvmlDeviceGetCount_v2")
            await until(lambda: node.count_calls("nvmlDeviceGetCount_v2") >= rounds + 3)
        assert not [c for c in calls if "Destroy" in c]
        assert node.mig_uuids(gpu) == {lease.device_uuid}
        node.set_processes(str(lease.device_uuid), 0)
        await until(lambda: not node.mig_uuids(gpu))


async def test_an_agent_that_is_killed_leaves_the_devices_and_the_next_one_takes_them_over(
    ledger: AllocatorApp, hub: AllocatorClient, imitation: Imitation, tmp_path: Path
) -> None:
    node = ImitatedNode(tmp_path, "node-a", ["a30-24gb"])
    (gpu,) = node.gpu_uuids()
    async with agent(ledger, imitation.library(), node, ends_by=signal.SIGKILL):
        lease = await acquire(hub, "1", "2g.12gb")
    assert node.mig_uuids(gpu) == {lease.device_uuid}
    assert not node.in_session()
    async with agent(ledger, imitation.library(), node):
        other = await acquire(hub, "2", "2g.12gb")
        assert node.mig_uuids(gpu) == {lease.device_uuid, other.device_uuid}
        await release(hub, lease)
        await until(lambda: node.mig_uuids(gpu) == {other.device_uuid})


async def test_without_a_driver_it_stays_says_so_and_begins_when_there_is_one(
    ledger: AllocatorApp, hub: AllocatorClient, imitation: Imitation, tmp_path: Path
) -> None:
    node = ImitatedNode(tmp_path, "node-a", ["a100-80gb"])
    away = node.path.rename(tmp_path / "away")

    def problem() -> str:
        with ledger.desk.reading() as seen:
            record = seen.nodes.get("node-a")
            return "" if record is None or record.report is None else record.report.problem

    async with agent(ledger, imitation.library(), node) as process:
        await until(lambda: "driver is not loaded" in problem())
        assert process.returncode is None
        away.rename(node.path)
        lease = await acquire(hub, "1", "1g.10gb")
        assert lease.state is LeaseState.READY
        assert problem() == ""


async def test_the_memory_of_an_agent_with_sixteen_cut_gpus(
    ledger: AllocatorApp, hub: AllocatorClient, imitation: Imitation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)  # the agent's memory, without that of who measures lines
    node = ImitatedNode(tmp_path, "node-a", ["h100-80gb"] * 16)
    with imitation.driver(node) as (driver, _):
        for gpu in node.gpu_uuids():
            driver.set_mig_mode(gpu, True)
            for start in range(7):
                driver.create(gpu, 19, start, 1)
    async with agent(ledger, imitation.library(), node) as process:
        lease = await acquire(hub, "1", "1g.10gb")
        assert lease.state is LeaseState.READY
        assert lease.device_uuid in {uuid for gpu in node.gpu_uuids() for uuid in node.mig_uuids(gpu)}
        mib = resident_mib(process.pid)
        print(f"\nagent of 16 GPUs with 7 MIG devices each: {mib} MiB resident")
        assert mib < MEMORY_LIMIT_MIB
