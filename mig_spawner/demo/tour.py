"""The scripted tour: what four people, an unlucky allocator and an unlucky hub would see. `mig-spawner demo --check`.

It runs on one A100 80GB. Alice's 3g.40gb, bob's 2g.20gb and carol's 1g.10gb leave no room for a second 3g.40gb, so dave waits.
Every step says what it expects, and ends the tour with what it saw instead.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from mig_spawner.demo.kernel import Kernel
from mig_spawner.demo.person import Person
from mig_spawner.demo.report import Report
from mig_spawner.demo.sight import Facts, Seen, expect, free_counts, look
from mig_spawner.demo.stack import Stack
from mig_spawner.demo.wiring import SERVICE
from mig_spawner.errors import DemoFailed
from mig_spawner.testing.gpu.smi import BANNER
from mig_spawner.testing.gpu.state import read_state
from mig_spawner.testing.process import until
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseState

LARGE, MEDIUM, SMALL = "3g.40gb", "2g.20gb", "1g.10gb"
FREE_S: Final = 30.0
"""How long a slice may take to be free again after its server has stopped."""


class Tour:
    """One walk through a running demo. `run` raises `DemoFailed` at the first step that saw something wrong."""

    def __init__(self, stack: Stack, report: Report) -> None:
        self._stack = stack
        self._report = report
        self._kernels: dict[str, Kernel] = {}

    async def run(self) -> None:
        async with AsyncExitStack() as exit_stack:
            self._ledger: AllocatorClient = await exit_stack.enter_async_context(self._stack.client())
            names = self._stack.options.people[:4]
            people = [Person(name, self._stack.url, self._stack.options.password) for name in names]
            self._alice, self._bob, self._carol, self._dave = people
            for person in people:
                await exit_stack.enter_async_context(person)
            with self._report.step("Four people log in; form and allocator's page show what is free") as step:
                step.note = await self._form()
            with self._report.step("Three of them start on different slices at once") as step:
                step.note = await self._three_at_once()
            with self._report.step("Their kernels see one slice each, the one in the ledger") as step:
                step.note = await self._kernels_see_their_slices()
            with self._report.step(
                f"{self._dave.name} waits in line, and starts when {self._alice.name} stops"
            ) as step:
                step.note = await self._the_fourth()
            with self._report.step("kill -9 of the allocator while two run and one waits") as step:
                step.note = await self._allocator_killed()
            with self._report.step("kill -9 of the hub while two run") as step:
                step.note = await self._hub_killed()
            with self._report.step("Everybody stops, and everything is free again") as step:
                step.note = await self._the_end()

    async def _form(self) -> str:
        people = (self._alice, self._bob, self._carol, self._dave)
        await asyncio.gather(*(person.log_in() for person in people))
        counts = free_counts(await self._alice.form())
        expect(counts, {LARGE: (2, 2), MEDIUM: (3, 3), SMALL: (7, 7)}, "free and total in alice's form")
        expect(
            SMALL in await self._bob.open(f"{SERVICE}/"),
            True,
            f"{SMALL} being on the allocator's page, which bob opens",
        )
        return ", ".join(f"{name}: {free} of {total}" for name, (free, total) in counts.items())

    async def _three_at_once(self) -> str:
        wishes = {self._alice: LARGE, self._bob: MEDIUM, self._carol: SMALL}
        await asyncio.gather(*(self._start(person, profile) for person, profile in wishes.items()))
        await asyncio.gather(*(person.ready() for person in wishes))
        await self._all_active(*wishes)
        return ", ".join(f"{person.name}: {profile}" for person, profile in wishes.items())

    async def _kernels_see_their_slices(self) -> str:
        people = (self._alice, self._bob, self._carol)
        for person, kernel in zip(people, await asyncio.gather(*(p.kernel() for p in people)), strict=True):
            self._kernels[person.name] = kernel
        seen = await self._check_slices(people)
        expect(len(set(seen.values())), len(people), "number of different MIG devices")
        shown = await self._carol.terminal("nvidia-smi -L", until="UUID: MIG-")
        expect(BANNER in shown, True, "a line in carol's terminal that says the GPUs are simulated")
        return f"{len(seen)} different UUIDs; nvidia-smi -L lists one device each, in a terminal too"

    async def _the_fourth(self) -> str:
        await self._start(self._dave, LARGE)
        waiting = await self._dave.see("position 1")
        lease = (await self._leases())[self._dave.name]
        expect((lease.state, lease.position), (LeaseState.QUEUED, 1), "dave's lease")
        await asyncio.gather(self._alice.stop(), self._carol.stop())
        await self._dave.ready()
        self._kernels[self._dave.name] = await self._dave.kernel()
        await self._check_slices((self._bob, self._dave))
        return f"he read: {waiting}"

    async def _allocator_killed(self) -> str:
        await self._start(self._alice, LARGE)
        await self._alice.see("position 1")
        running = (self._bob, self._dave)
        before = await self._facts(running)
        await self._remember(running)
        await self._stack.allocator.kill()
        await self._still_there(running)
        expect(await self._stack.cluster.pods(), before.pods, "pods while the allocator is down")
        await self._stack.restart_allocator()
        after = await self._facts(running)
        expect(after, before, "pods and leases after the allocator came back")
        await self._check_slices(running)
        lease = (await self._leases())[self._alice.name]
        expect((lease.state, lease.position), (LeaseState.QUEUED, 1), "alice's lease after the allocator came back")
        await self._dave.stop()
        await self._alice.ready()
        self._kernels[self._alice.name] = await self._alice.kernel()
        await self._check_slices((self._alice, self._bob))
        return "nothing changed for the two; the one in line was served after it came back"

    async def _hub_killed(self) -> str:
        running = (self._alice, self._bob)
        before = await self._facts(running)
        await self._remember(running)
        await self._stack.hub.kill()
        await self._still_there(running)
        await self._stack.restart_hub()
        for person in running:
            server = await person.server()
            expect(server is not None and server["ready"], True, f"{person.name}'s server is ready for the new hub")
        expect(await self._facts(running), before, "pods and leases after the hub came back")
        await self._still_there(running)
        return "same pods, same kernels, same leases"

    async def _the_end(self) -> str:
        await asyncio.gather(self._alice.stop(), self._bob.stop())

        async def all_free() -> bool:
            offers = (await self._ledger.availability()).offers
            return all(o.free == o.total for o in offers) and not await self._leases() and not self._devices()

        try:
            await until(all_free, timeout_s=FREE_S)
        except TimeoutError as error:
            offers = {o.profile: f"{o.free} of {o.total}" for o in (await self._ledger.availability()).offers}
            raise DemoFailed(
                f"Expected everything to be free {FREE_S:g} s after the last stop. Seen: {offers}, "
                f"leases {list((await self._leases()).values())}, MIG devices {self._devices()}."
            ) from error
        expect(await self._stack.cluster.pods(), {}, "pods")
        return "no lease, no pod, no MIG device"

    async def _start(self, person: Person, profile: str) -> None:
        await person.start({"mig_choice": profile})

    async def _leases(self) -> dict[str, LeaseDocument]:
        """The open leases by name of their holder, as the ledger has them."""
        return {lease.holder.user_name: lease for lease in (await self._ledger.leases()).leases}

    async def _all_active(self, *people: Person) -> None:
        """These and no others have a lease, and it is Active: the hub has said that their servers run."""
        expected = {person.name: str(LeaseState.ACTIVE) for person in people}
        seen: dict[str, str] = {}

        async def active() -> bool:
            nonlocal seen
            seen = {name: str(lease.state) for name, lease in (await self._leases()).items()}
            return seen == expected

        try:
            await until(active, timeout_s=FREE_S)
        except TimeoutError:
            expect(seen, expected, "leases")

    async def _check_slices(self, people: tuple[Person, ...]) -> dict[str, str]:
        """Kernels see exactly the device that the ledger says; the device by person."""
        leases = await self._leases()
        seen = dict(zip(people, await asyncio.gather(*(look(self._kernels[p.name]) for p in people)), strict=True))
        for person, sight in seen.items():
            device = leases[person.name].device_uuid if person.name in leases else None
            expect(sight, Seen(str(device), (str(device),)), f"GPUs in {person.name}'s kernel")
        return {person.name: sight.variable for person, sight in seen.items()}

    async def _facts(self, people: tuple[Person, ...]) -> Facts:
        leases = await self._leases()
        return Facts(
            pods={n: uid for n, uid in (await self._stack.cluster.pods()).items() if any(p.name in n for p in people)},
            devices={p.name: (leases[p.name].lease_id, leases[p.name].device_uuid) for p in people if p.name in leases},
        )

    async def _remember(self, people: tuple[Person, ...]) -> None:
        for person in people:
            await self._kernels[person.name].run(f"kept = {person.name!r}")

    async def _still_there(self, people: tuple[Person, ...]) -> None:
        """The very same kernels still answer, through the proxy."""
        for person in people:
            said = await self._kernels[person.name].run("print(kept)")
            expect(said.strip(), person.name, f"what {person.name}'s kernel remembers")

    def _devices(self) -> list[str]:
        """GPU instances on the simulated GPUs, as `node gpu start:size`."""
        states = [read_state(self._stack.workspace.gpu_file(node.name)) for node in self._stack.options.nodes]
        return [f"{s.node} {b.gpu_uuid} {i.start}:{i.size}" for s in states for b in s.boards for i in b.instances]
