"""How long a start takes with MIGSpawner and with plain KubeSpawner, on one hub and one cluster: `python -m tests.bench.spawn`.

Prints the table of `docs/speed.md`. The kinds take turns in one run, in a new order each time, since machines differ and are busy: read
the ratios. `--quick` for a look.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.spawner.hub.conftest import Cluster, Desk, Person, World

ROUNDS: Final = 12 if "--quick" in sys.argv[1:] else 60
WARM_UP: Final = 2
CONFIG: Final = Path(__file__).with_name("spawn_config.py")
KINDS: Final[dict[str, tuple[str, Any]]] = {
    "KubeSpawner": ("plain", None),
    "MIGSpawner, no GPU": ("none", {"mig": "none"}),
    "MIGSpawner, a slice": ("slice", {"mig": "small"}),
}
"""What is measured, by its row: who it is for, and what they choose."""


def main() -> None:
    """The table."""
    with tempfile.TemporaryDirectory(prefix="mig-bench-") as folder, running(Path(folder)) as world:
        times = asyncio.run(measure(world))
    print(f"{ROUNDS} starts of each, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print("| | median | quartiles | of KubeSpawner's median |")
    print("|---|---|---|---|")
    plain = statistics.median(times["KubeSpawner"])
    for kind, seconds in times.items():
        low, middle, high = statistics.quantiles(seconds, n=4)
        print(f"| {kind} | {middle * 1000:.0f} ms | {low * 1000:.0f} to {high * 1000:.0f} ms | {middle / plain:.3f} |")


@contextmanager
def running(folder: Path) -> Iterator[World]:
    """Cluster, allocator, agent and hub."""
    with Cluster(folder) as cluster:
        world = World(folder, cluster, config=CONFIG)
        try:
            world.start_allocator()
            world.agent.start()
            world.start_hub()
            yield world
        finally:
            for part in reversed(world.parts):
                part.kill(signal.SIGTERM if part is not world.hub else signal.SIGKILL)


async def measure(world: World) -> dict[str, list[float]]:
    """Seconds of each start, by kind."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    desk = Desk(world)
    people = {kind: await desk.person(name) for kind, (name, _) in KINDS.items()}
    await desk.until(desk.all_free, "a world at rest")
    for number in range(WARM_UP + ROUNDS):
        for kind in random.sample(list(KINDS), len(KINDS)):
            took = await start(desk, people[kind], KINDS[kind][1])
            if number >= WARM_UP:
                times[kind].append(took)
    await desk.close()
    return times


async def start(desk: Desk, person: Person, choice: Any) -> float:
    """From the click until the server answers; then everything is as it was."""
    began = time.perf_counter()
    answer = await person.start(choice)
    took = time.perf_counter() - began
    assert answer.status_code == 201, answer.text
    await person.stop()
    await desk.until(person.stopped)
    await desk.until(desk.all_free)
    return took


if __name__ == "__main__":
    main()
