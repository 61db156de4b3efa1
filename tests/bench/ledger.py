"""How quick the ledger is, beside the database it lives in and the cluster it serves: `python -m tests.bench.ledger`.

Prints the tables of `docs/speed.md`. All in one run, since machines differ and are busy: read the ratios. `--quick` for a look.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.page.fleet import MapQuery
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain.lease import PodFate
from mig_spawner.domain.rule import Person
from mig_spawner.testing.controlplane import ControlPlane, find_programs
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest
from mig_spawner.wire.node import GPUDocument, NodeReport
from tests.allocator.replica import Replica, call, context
from tests.allocator.rig import Board
from tests.postgres.server import Server

QUICK: Final = "--quick" in sys.argv[1:]
PAIRS: Final = 60 if QUICK else 200
THREADS: Final = 16
CLICKS: Final = 500
FLEETS: Final = (10, 1000) if QUICK else (10, 1000, 10_000)
SETTING: Final = Setting(node_silent_after=timedelta(days=1))
_BOARD: Final = Board(find_model("a100-80gb").gpu("GPU-x"), dynamic=False)
for _start in range(7):
    _BOARD.add("1g.10gb", _start)
SHOWN: Final = _BOARD.document()


def main() -> None:
    """All tables."""
    if sys.argv[1:2] == ["--fleet"]:
        print(fleet_row(int(sys.argv[2])))
        return
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print_fleets()
    pods = asyncio.run(pods_per_second())
    print(f"\nPods created on a real kube-apiserver: {pods:.0f}/s.\n", flush=True)
    print(
        "| database | commits/s | pairs/s | pairs/s, 16 at once | of commits | of pods | 500 click, p50 / p99 | over HTTP |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="mig-bench-") as folder, Server(durable=True) as server:
        print(row("SQLite", f"sqlite:///{folder}/ledger.sqlite", pods), flush=True)
        print(row("PostgreSQL", server.url(server.database()), pods), flush=True)


COLUMNS: Final = ("acquire and release", "report of a node", "availability", "my slices", "map")


def print_fleets() -> None:
    """What things cost, by the size of the fleet: CPU time, and that beside the smallest fleet."""
    print(f"| GPUs | {' | '.join(COLUMNS)} | to read all once | memory |")
    print(f"|---|{'---|' * len(COLUMNS)}---|---|")
    first: list[float] = []
    for count in FLEETS:
        # A process of its own each: memory that was had is not given back.
        argv = [sys.executable, "-m", "tests.bench.ledger", "--fleet", str(count)]
        *spent, cold, memory = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        first = first or spent
        shown = " | ".join(f"{s * 1000:.1f} ms, {s / f:.2f} x" for s, f in zip(spent, first, strict=True))
        print(f"| {count:,} | {shown} | {cold:.1f} s | {memory:.0f} MiB |", flush=True)


@contextmanager
def ledger(url: str, gpus: int) -> Iterator[tuple[SQLStore, LeaseService]]:
    """A ledger whose GPUs have seven partitions each."""
    store = SQLStore(url)
    store.open()
    with store.writing() as tx:
        for number in range(-(-gpus // 8)):
            documents = tuple(partitioned(f"GPU-{number}-{i}") for i in range(min(8, gpus - 8 * number)))
            tx.put_report(f"n{number}", NodeReport(agent_version="1", boot_id="1", gpus=documents))
    yield store, LeaseService(Desk(store, SETTING, lambda _: None))
    store.close()


def partitioned(uuid: str) -> GPUDocument:
    """The GPU as its agent shows it."""
    instances = (i.model_copy(update={"mig_uuid": f"MIG-{uuid}-{i.start}"}) for i in SHOWN.instances)
    return SHOWN.model_copy(update={"gpu_uuid": uuid, "instances": tuple(instances)})


def acquire(service: LeaseService, user: str) -> str:
    holder = HolderDocument(user_id=user, user_name=user)
    request = LeaseRequest(holder=holder, accelerator_partition_type="1g.10gb")
    return service.acquire(request, who="bench").document.lease_id


def pair(service: LeaseService) -> str:
    """Take a slice and give it back; its lease. An admin vouches for the pod, so that it is free at once."""
    lease_id = acquire(service, secrets.token_hex(8))
    service.release(lease_id, LeaseRelease(pod=PodFate.GONE), who="bench")
    return lease_id


def row(name: str, url: str, pods: float) -> str:
    with ledger(url, 80) as (store, service):
        pair(service)
        bare = commits_per_second(store)
        alone = rate(lambda: [pair(service) for _ in range(PAIRS // 4)], PAIRS // 4)
        with ThreadPoolExecutor(THREADS) as pool:
            together = rate(lambda: list(pool.map(lambda _: pair(service), range(PAIRS))), PAIRS)
            inside = middle_and_worst(clicks(service, pool))
    with ledger(url, 80) as (store, _):
        outside = middle_and_worst(asyncio.run(clicks_over_http(store)))
    return (
        f"| {name} | {bare:.0f} | {alone:.0f} | {together:.0f} | {together / bare:.0%} | {together / pods:.1f} x | "
        f"{inside} | {outside} |"
    )


def middle_and_worst(took: list[float]) -> str:
    """The median and the 99th of a hundred."""
    return f"{statistics.median(took) * 1000:.0f} / {sorted(took)[int(len(took) * 0.99)] * 1000:.0f} ms"


def commits_per_second(store: SQLStore) -> float:
    """One row, one commit, again and again, on one connection of the same database."""
    with store.database.engine.connect() as connection:
        connection.execute(text("CREATE TABLE bare (a INTEGER)"))
        connection.commit()

        def commit() -> None:
            for _ in range(PAIRS):
                connection.execute(text("INSERT INTO bare VALUES (1)"))
                connection.commit()

        return rate(commit, PAIRS)


def clicks(service: LeaseService, pool: ThreadPoolExecutor) -> list[float]:
    """How long each waits for its answer when all click at the same moment."""
    begun = time.perf_counter()

    def click(number: int) -> float:
        acquire(service, f"click-{number}")
        return time.perf_counter() - begun

    return list(pool.map(click, range(CLICKS)))


async def clicks_over_http(store: SQLStore) -> list[float]:
    """The same on an allocator of its own, each on a connection of its own."""
    traits = {"node_silent_after": 86_400.0}
    with tempfile.TemporaryDirectory(prefix="mig-bench-") as folder:
        url = store.database.url.render_as_string(hide_password=False)
        replica = Replica(context(), url, {}, Path(folder) / "log", **traits)
        await replica.start()
        try:
            begun = time.perf_counter()

            async def click(number: int) -> float:
                body = LeaseRequest(
                    holder=HolderDocument(user_id=f"http-{number}"), accelerator_partition_type="1g.10gb"
                ).model_dump_json(exclude_defaults=True)
                status, answer = await call(replica.port, "POST", "/api/v1/leases", body)
                assert status == 200, answer
                return time.perf_counter() - begun

            return await asyncio.gather(*(click(number) for number in range(CLICKS)))
        finally:
            await replica.kill()


def rate(work: Callable[[], Any], count: int) -> float:
    """So many a second; the best of three, since the machine does other things too."""
    best = float("inf")
    for _ in range(1 if QUICK else 2):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return count / best


def fleet_row(gpus: int) -> str:
    with (
        tempfile.TemporaryDirectory(prefix="mig-bench-") as folder,
        ledger(f"sqlite:///{folder}/ledger.sqlite", gpus) as (store, service),
    ):
        desk = Desk(store, SETTING, lambda _: None)
        nodes, pages = NodeService(desk), PageService(desk)
        report = NodeReport(agent_version="1", boot_id="1", gpus=tuple(partitioned(f"GPU-0-{i}") for i in range(8)))
        holder = acquire(service, "ann")
        begun = time.process_time()
        service.availability()
        cold = time.process_time() - begun
        spent = [
            cpu(lambda: pair(service)),
            cpu(lambda: nodes.report("n0", report, who="bench")),
            cpu(service.availability),
            cpu(lambda: pages.own(Person("ann", frozenset()))),
            cpu(lambda: pages.map(MapQuery())),
        ]
        assert service.lease(holder).document.state == "ready"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return json.dumps([*spent, cold, memory])


def cpu(work: Callable[[], Any]) -> float:
    """Seconds of CPU for one; the best of several times ten, since the machine does other things too."""
    work()
    best = float("inf")
    for _ in range(2 if QUICK else 8):
        begun = time.process_time()
        for _ in range(10):
            work()
        best = min(best, (time.process_time() - begun) / 10)
    return best


async def pods_per_second() -> float:
    """Pods that a real API server has taken, by sixteen who ask at once; nobody schedules them."""
    from kubernetes_asyncio import client, config

    with tempfile.TemporaryDirectory(prefix="mig-bench-") as folder:
        async with ControlPlane(find_programs(os.environ)) as plane:
            plane.kubeconfig(Path(folder) / "admin.yaml")
            settings = client.Configuration()
            await config.load_kube_config(str(Path(folder) / "admin.yaml"), client_configuration=settings)
            async with client.ApiClient(settings) as api:
                core: Any = client.CoreV1Api(api)
                numbers = iter(range(PAIRS))

                async def create() -> None:
                    for number in numbers:
                        await core.create_namespaced_pod("default", pod(number))

                await core.create_namespaced_pod("default", pod(PAIRS))
                begun = time.perf_counter()
                await asyncio.gather(*(create() for _ in range(THREADS)))
                return PAIRS / (time.perf_counter() - begun)


def pod(number: int) -> dict[str, Any]:
    container = {"name": "notebook", "image": "demo/notebook:1"}
    return {"metadata": {"name": f"bench-{number}"}, "spec": {"schedulerName": "nobody", "containers": [container]}}


if __name__ == "__main__":
    main()
