"""Many people, and everything that can go wrong at once: at the end each running server has its lease, and nothing else has any.

The suite walks a short form of it. The long form is `make soak`: 200 people, 2,000 steps, three hubs killed in the middle. What is done
follows from the seed, which is printed; `make soak SOAK="... seed=7"` does the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mig_spawner.spawner.injection.conflict import LEASE_LABEL

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, Person, World

LONG = os.environ.get("MIG_SOAK", "")
pytestmark = [
    pytest.mark.hub,
    pytest.mark.slow,
    pytest.mark.timeout(7200 if LONG else 600),
]

ACTS = {"start": 8, "twice": 2, "stop": 5, "kill-pod": 2, "slow-create": 1, "failed-delete": 1, "outage": 1}
CHOICES = {"small": 8, "none": 3, "all": 1}


@dataclass(frozen=True)
class Size:
    """How much of it."""

    people: int = 6
    steps: int = 30
    restarts: int = 1
    at_once: int = 6
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Size:
        """`people=200 steps=2000 seed=7`; a seed of one's own for 0."""
        said = {key: int(value) for key, _, value in (word.partition("=") for word in text.split())}
        size = cls(**said)
        return size if size.seed else cls(**{**said, "seed": secrets.randbelow(1 << 32) + 1})


@dataclass(frozen=True)
class Step:
    """Somebody does something."""

    who: int
    act: str
    choice: str


def steps_of(size: Size) -> Iterator[Step]:
    chance = random.Random(size.seed)
    for _ in range(size.steps):
        [act] = chance.choices(list(ACTS), weights=list(ACTS.values()))
        [choice] = chance.choices(list(CHOICES), weights=list(CHOICES.values()))
        yield Step(chance.randrange(size.people), act, choice)


class Soak:
    """One run."""

    def __init__(self, desk: Desk, world: World, people: list[Person]) -> None:
        self.desk = desk
        self.world = world
        self.people = people
        self.answers: Counter[str] = Counter()

    async def do(self, step: Step) -> None:
        person, knobs = self.people[step.who], self.world.knobs
        # A hub that was just killed answers nobody; the person clicks again later, or does not.
        with contextlib.suppress(httpx.HTTPError):
            match step.act:
                case "start":
                    self._count(step, await person.start({"mig": step.choice}))
                case "twice":
                    for answer in await asyncio.gather(*(person.start({"mig": step.choice}) for _ in range(2))):
                        self._count(step, answer)
                case "stop":
                    self._count(step, await person.stop())
                case "kill-pod":
                    for pod in await self._pods():
                        if _owner(pod) == person.name:
                            self._count(step, await self.desk.kube.delete(f"pods/{pod['metadata']['name']}"))
                case "slow-create":
                    knobs.create_delay = 0 if knobs.create_delay else 1.5
                case "failed-delete":
                    knobs.delete_failures = 1
                case "outage":
                    knobs.api_down = True
                    await asyncio.sleep(0.3)
                    knobs.api_down = False
                case _:
                    raise AssertionError(step.act)

    def _count(self, step: Step, answer: httpx.Response) -> None:
        self.answers[f"{step.act} {answer.status_code}"] += 1

    async def overlaps(self) -> list[str]:
        """Devices that two pods have; also pods that are going have theirs."""
        devices = Counter(
            device
            for pod in await self._pods()
            if (device := pod["metadata"].get("annotations", {}).get("mig-spawner/device-uuid"))
        )
        return [device for device, pods in devices.items() if pods > 1]

    async def _pods(self) -> list[dict[str, Any]]:
        answer = await self.desk.kube.get("pods")
        found: list[dict[str, Any]] = answer.json()["items"] if answer.is_success else []
        return found

    async def settled(self) -> Agreement:
        """Whether nothing is on its way, and servers, pods and leases are the same people's."""
        found: list[str] = []
        running = set()
        for person in self.people:
            for name, server in await person.servers():
                assert not name
                if server["pending"] or not server["ready"]:
                    found.append(f"the server of {person.name} is {server['pending'] or 'not ready'}")
                running.add(person.name)
        pods = await self._pods()
        owners = Counter(_owner(pod) for pod in pods)
        found += [f"{owner} has {n} pods" for owner, n in owners.items() if n > 1]
        found += [f"{owner} has a pod and no server" for owner in sorted(set(owners) - running)]
        found += [f"{owner} has a server and no pod" for owner in sorted(running - set(owners))]
        of_pods = {(_owner(pod), lease) for pod in pods if (lease := pod["metadata"]["labels"].get(LEASE_LABEL))}
        of_ledger = {(x.holder.user_name, x.lease_id) for x in (await self.desk.allocator.leases()).leases}
        found += [f"{owner} has lease {lease} and no pod of it" for owner, lease in sorted(of_ledger - of_pods)]
        found += [f"{owner} has a pod and no lease {lease}" for owner, lease in sorted(of_pods - of_ledger)]
        return Agreement(tuple(found))


@dataclass(frozen=True)
class Agreement:
    """True if there are no differences."""

    differences: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.differences


def _owner(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["annotations"]["hub.jupyter.org/username"])


async def test_after_all_that_each_server_has_its_lease_and_nothing_else_has_any(desk: Desk, world: World) -> None:
    size = Size.parse(LONG)
    print(f"soak: {size}")
    people = [await desk.person("hasty") for _ in range(size.people)]
    soak = Soak(desk, world, people)
    steps = list(steps_of(size))
    every = max(size.steps // (size.restarts + 1), 1)
    killed = 0
    for number in range(0, size.steps, size.at_once):
        acts = asyncio.gather(*(soak.do(step) for step in steps[number : number + size.at_once]))
        if killed < size.restarts and number >= every * (killed + 1):
            killed += 1
            await asyncio.sleep(0.2)
            world.hub.kill()
            await asyncio.to_thread(world.start_hub)
        await acts
        await asyncio.to_thread(world.heal)  # a hub ends itself after too many failed starts in a row
        assert await soak.overlaps() == []
        if number % (size.at_once * 20) == 0:
            print(f"soak: {number} of {size.steps} steps, {killed} hubs killed", flush=True)
    vars(world.knobs).update(vars(type(world.knobs)()))
    await desk.until(soak.settled, f"servers, pods and leases agree (seed {size.seed})", timeout_s=150)
    assert await soak.overlaps() == []
    leases = (await desk.allocator.leases()).leases
    print(f"soak: {len(leases)} leases at the end, {killed} hubs killed, answers {dict(sorted(soak.answers.items()))}")
