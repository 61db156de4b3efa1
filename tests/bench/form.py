"""What people's pages cost on a small and on a large fleet, over HTTP: `python -m tests.bench.form`.

Prints the tables of `docs/speed.md` on the form and on the pages of admins: a real hub and a real allocator for each fleet, asked in turns
in one run, since machines differ and are busy. Read the ratios. `--quick` for a look.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from bs4 import BeautifulSoup

from tests.bench.ledger import ledger
from tests.spawner.hub.conftest import Cluster, Desk, World

QUICK: Final = "--quick" in sys.argv[1:]
ROUNDS: Final = 12 if QUICK else 60
WARM_UP: Final = 3
FLEETS: Final = (10, 10_000)
PAGES: Final = {
    "the first page": "map",
    "a later page": "map?after=n1",
    "of a node": "map?node=n1",
    "with room": "map?show=free",
    "in trouble": "map?show=trouble",
    "of a model": "map?model=a30",
    "of a holder": "map?holder=nobody",
    "nodes": "nodes",
    "leases": "leases",
    "queue": "queue",
}
"""What admins ask for, below `admin/`."""


@dataclass
class Spent:
    """What some requests took, in seconds, and how long the answer is, in bytes."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    size: int = 0


@dataclass
class Fleet:
    """A hub and an allocator with so many GPUs, and those who ask them."""

    gpus: int
    world: World
    person: httpx.AsyncClient
    admin: httpx.AsyncClient
    path: str
    spent: dict[str, Spent] = field(default_factory=dict)

    async def ask(self, what: str, client: httpx.AsyncClient, path: str, *, part: str = "") -> None:
        """Ask once; `part` is what counts of the answer, by a CSS selector."""
        cpu, begun = self._cpu(), time.perf_counter()
        answer = await client.get(path)
        took, spent = time.perf_counter() - begun, self.spent.setdefault(what, Spent())
        assert answer.status_code == 200, answer.text
        spent.wall.append(took)
        spent.cpu.append(self._cpu() - cpu)
        spent.size = len(str(BeautifulSoup(answer.text, "html.parser").select(part)[0]).encode()) if part else 0

    def _cpu(self) -> float:
        """What hub and allocator have used since they began."""
        return sum(cpu_of(part.process.pid) for part in (self.world.hub, self.world.allocator) if part.process)


def cpu_of(pid: int) -> float:
    """The CPU time of all threads of a process, seconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it ended meanwhile
    return total / 1e9


def main() -> None:
    """Both tables."""
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {ROUNDS} requests of each\n", flush=True)
    with ExitStack() as stack:
        worlds = {gpus: stack.enter_context(running(gpus)) for gpus in FLEETS}
        fleets = asyncio.run(measure(worlds))
    print("| GPUs | form, wall | CPU of hub and allocator | fieldset | live counts, wall | CPU |")
    print("|---|---|---|---|---|---|")
    first = fleets[0]
    for fleet in fleets:
        cells = [
            beside(fleet, first, "form", lambda s: s.wall),
            beside(fleet, first, "form", lambda s: s.cpu),
            f"{fleet.spent['form'].size:,} bytes",
            beside(fleet, first, "counts", lambda s: s.wall),
            beside(fleet, first, "counts", lambda s: s.cpu),
        ]
        print(f"| {fleet.gpus:,} | {' | '.join(cells)} |")
    print(f"\n| map and lists | {' | '.join(f'{f.gpus:,} GPUs' for f in fleets)} | the longest | CPU |")
    print(f"|---|{'---|' * len(fleets)}---|---|")
    for what in PAGES:
        walls = [f"{statistics.median(f.spent[what].wall) * 1000:.0f} ms" for f in fleets]
        last = fleets[-1].spent[what]
        print(
            f"| {what} | {' | '.join(walls)} | {max(last.wall) * 1000:.0f} ms | {statistics.median(last.cpu) * 1000:.0f} ms |"
        )


def beside(fleet: Fleet, first: Fleet, what: str, of: Callable[[Spent], list[float]]) -> str:
    """The median, and how many times that of the smallest fleet it is."""
    here, there = statistics.median(of(fleet.spent[what])), statistics.median(of(first.spent[what]))
    return f"{here * 1000:.1f} ms, {here / there:.2f} x"


@contextmanager
def running(gpus: int) -> Iterator[World]:
    """Cluster, allocator and hub, where so many GPUs have been reported; seven fixed partitions on each."""
    with tempfile.TemporaryDirectory(prefix="mig-bench-") as name, Cluster(Path(name)) as cluster:
        with ledger(f"sqlite:///{name}/ledger.sqlite", gpus):
            pass
        world = World(Path(name), cluster)
        world.allocator.arguments.append("--AllocatorApp.node_silent_after=86400")
        world.allocator.env["JUPYTERHUB_API_TOKEN"] = world.hub.env["MIG_ALLOCATOR_TOKEN"]
        try:
            world.start_allocator()
            world.start_hub()
            yield world
        finally:
            world.hub.kill()
            world.allocator.kill(signal.SIGTERM)


async def measure(worlds: dict[int, World]) -> list[Fleet]:
    """Ask all fleets the same, in turns."""
    async with AsyncExitStack() as stack:
        fleets = []
        for gpus, world in worlds.items():
            desk = Desk(world)
            for client in (desk.hub, desk.kube, desk.allocator):
                stack.push_async_callback(client.aclose)
            ada = await desk.person()
            person = await stack.enter_async_context(desk.log_in(ada.name))
            token = {"Authorization": f"Bearer {world.hub.env['MIG_ALLOCATOR_TOKEN']}"}
            admin = await stack.enter_async_context(
                httpx.AsyncClient(base_url=world.allocator_url, headers=token, timeout=60, trust_env=False)
            )
            fleets.append(Fleet(gpus, world, person, admin, f"/hub/spawn/{ada.name}"))
        for number in range(WARM_UP + ROUNDS):
            if number == WARM_UP:
                for fleet in fleets:
                    fleet.spent.clear()
            for fleet in random.sample(fleets, len(fleets)):
                await fleet.ask("form", fleet.person, fleet.path, part="#mig-choices")
                await fleet.ask("counts", fleet.admin, "/api/v1/availability")
                for what, path in PAGES.items():
                    await fleet.ask(what, fleet.admin, f"/admin/{path}")
        return fleets


if __name__ == "__main__":
    main()
