"""The agent's conversation with the allocator: see, tell, do one step, see again.

Each round reads every GPU and reports. If the answer is the desired layout that is known already, the first step of the plan
is taken, and the next round begins: every step is decided on what is true now. With no step left the report says so
(`applied_generation`), and the agent waits in a long poll.

Nothing is remembered that matters: an agent that starts, one that lost the allocator for a day and one that was told
something new do the same. While the allocator does not answer, nothing is touched. Without a driver the agent stays, says so in its
reports, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from mig_spawner._version import __version__
from mig_spawner.agent.board import Board, Sight
from mig_spawner.agent.driver.base import Instance
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.keeper import Keeper
from mig_spawner.agent.plan import Create, Destroy, Step, SwitchMode, plan
from mig_spawner.agent.thread import DriverThread
from mig_spawner.agent.usage import Meter
from mig_spawner.domain.layout import NamedLayout
from mig_spawner.errors import AllocatorError, DeviceNotFound, DriverError
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.node import DesiredNode, GPUDocument, InstanceDocument, NodeReport, StepFailure

log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.5
_MAX_AWAY_S: Final = 30.0
_MAX_FAILURES: Final = 256


class BackOff:
    """Growing pauses with jitter: half a second, doubling up to `longest_s`, each shortened by up to half by chance so that a
    fleet of agents does not return in one moment."""

    def __init__(self, longest_s: float, *, chance: Callable[[], float] = random.random) -> None:
        self._longest_s = longest_s
        self._chance = chance
        self._next_s = _FIRST_RETRY_S

    def pause(self) -> float:
        """Seconds to pause now."""
        pause, self._next_s = min(self._next_s, self._longest_s), min(self._next_s * 2, self._longest_s)
        return pause * (1 - self._chance() / 2)

    def reset(self) -> None:
        self._next_s = _FIRST_RETRY_S


class AgentLoop:
    """Leads the conversation of one node until it is cancelled.

    Args:
        node: its name, as Kubernetes says it.
        simulated: the GPUs are a simulation.
        report_interval_s: the longest time between two reports.
        layout: how the GPUs are to be cut, if an admin declares it.
        board: where to leave what was seen, for those who ask this agent.
        owners: says why something else owns the GPUs of this node, a sentence each; asked before each look.

    `rounds` counts how often it has looked at the GPUs.
    """

    def __init__(
        self,
        node: str,
        driver: DriverThread,
        client: AllocatorClient,
        *,
        dynamic: bool,
        simulated: bool,
        report_interval_s: float,
        layout: NamedLayout | None = None,
        board: Board | None = None,
        owners: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.node = node
        self.rounds = 0
        self._driver = driver
        self._client = client
        observer = Observer(driver.driver, dynamic=dynamic)
        self._keeper = Keeper(driver.driver, observer, layout)
        self._bare = observer
        self._owners = owners
        self._owned: tuple[str, ...] = ()
        self._meter = Meter(driver.driver)
        self._board = Board() if board is None else board
        self._simulated = simulated
        self._report_interval_s = report_interval_s
        self._away = BackOff(_MAX_AWAY_S)
        self._retry = BackOff(report_interval_s)
        self._desired: DesiredNode | None = None
        self._applied = 0
        self._unfinished = False
        self._failed: dict[Step, StepFailure] = {}
        self._tried: set[Step] = set()
        self._told: tuple[StepFailure, ...] = ()

    async def run(self) -> None:
        """One round after the other. Cancelling ends it between two driver calls; the call that runs goes to its end."""
        while True:
            try:
                await self._round()
            except (AllocatorError, DriverError) as error:
                pause = self._away.pause()
                log.warning("%s Nothing is touched meanwhile; next try in %.1f s.", error, pause)
                await asyncio.sleep(pause)

    async def _round(self) -> None:
        """Look, tell, and then do one thing: learn, take a step or wait.

        The report goes out before the step: its answer says whether the step is still wanted, and that somebody is there to
        want it. A GPU that was reset, for example, shows up in the report, and its leases end instead of being made again.
        """
        self.rounds += 1
        sight = await self._look()
        gpus = sight.gpus
        step = None if sight.problem else self._next_step(gpus)
        answer = await self._client.report(self.node, await self._report(sight))
        self._board.answered()
        self._away.reset()
        if self._learn(answer):
            return
        if step is not None:
            await self._take(step)
        else:
            await self._wait(answer)

    async def _look(self) -> Sight:
        """Every GPU and what its devices use.

        Without a driver the allocator is told, so that people can read why nothing is offered here; then it raises.
        """
        try:
            await self._driver.open()
            owned = await self._driver.call(self._ask_owners)
            # Of a node with another owner all is told and nothing made, not even a layout that an admin declares.
            gpus = await self._driver.call(self._bare.observe if owned else self._keeper.observe)
            sight = Sight(gpus, await self._driver.call(self._meter.read, gpus), owned)
        except DriverError as error:
            self._board.saw(Sight(problem=str(error)[:2000], driver=False))
            await self._client.report(self.node, await self._report(self._board.sight))
            raise
        self._board.saw(sight)
        return sight

    def _ask_owners(self) -> str:
        """Why nothing may be touched here now; empty if it may."""
        owned = tuple(self._owners())
        if owned != self._owned:
            log.warning("Another owner of the GPUs: %s", " ".join(owned) or "none any more")
            self._owned = owned
        return " ".join(owned)[:2000]

    def _next_step(self, gpus: tuple[GPUDocument, ...]) -> Step | None:
        """The first step that was not tried since the last pause. Without one, what is desired has been applied as far as it
        can be, and the report may say so: these GPUs were looked at after it became known."""
        if self._desired is None:
            return None
        agenda = plan(gpus, self._desired)
        self._failed = {step: failure for step, failure in self._failed.items() if step in agenda.steps}
        step = next((s for s in agenda.steps if s not in self._tried), None)
        if step is None:
            for vain in agenda.steps:
                if vain not in self._failed:
                    self._note(vain, "The driver did it without an error, but it does not show.")
            self._applied = self._desired.generation
            self._told = (*agenda.failures, *self._failed.values(), *self._keeper.failures)[:_MAX_FAILURES]
            self._unfinished = bool(agenda.steps or agenda.failures or self._keeper.failures)
        return step

    def _learn(self, answer: DesiredNode) -> bool:
        """Whether the answer is news. Then nothing that was tried or failed before it counts any more."""
        news = self._desired is None or answer.generation != self._desired.generation
        self._desired = answer
        if news:
            self._keeper.want(answer.layouts)
            self._failed.clear()
            self._tried.clear()
            self._told = ()
            self._retry.reset()
        return news

    async def _report(self, sight: Sight) -> NodeReport:
        return NodeReport(
            agent_version=__version__,
            boot_id=await self._driver.call(self._driver.driver.boot_id),
            applied_generation=self._applied,
            simulated=self._simulated,
            problem=sight.problem,
            gpus=sight.gpus,
            failures=self._told,
            usage=sight.usage,
        )

    async def _take(self, step: Step) -> None:
        log.info("GPU %s: %s", step.gpu_uuid, step)
        self._tried.add(step)
        try:
            await self._driver.call(self._apply, step)
        except DeviceNotFound as error:
            if not isinstance(step, Destroy):
                self._note(step, str(error))
        except DriverError as error:
            self._note(step, str(error))
        else:
            self._failed.pop(step, None)

    def _note(self, step: Step, reason: str) -> None:
        log.warning("GPU %s: could not %s: %s", step.gpu_uuid, step, reason)
        self._failed[step] = StepFailure(
            lease_id=step.lease_id, gpu_uuid=step.gpu_uuid, step=str(step), reason=reason[:2000]
        )

    def _apply(self, step: Step) -> None:
        driver = self._driver.driver
        match step:
            case Destroy(gpu_uuid, instance):
                driver.destroy(_instance(gpu_uuid, instance))
            case SwitchMode(gpu_uuid, enabled):
                driver.set_mig_mode(gpu_uuid, enabled)
            case Create(gpu_uuid, profile_id, start, size):
                driver.create(gpu_uuid, profile_id, start, size)

    async def _wait(self, known: DesiredNode) -> None:
        """Until something else is desired, or it is time to look again: soon after a failure, then less and less often."""
        if not self._unfinished:
            self._retry.reset()
        pause = self._retry.pause() if self._unfinished else self._report_interval_s
        clock = asyncio.get_running_loop().time
        until = clock() + pause
        answer = await self._client.desired(self.node, known=known.generation, wait_s=pause)
        if not self._learn(answer):
            # An allocator, or a proxy before it, that answers early must not make us run in circles.
            await asyncio.sleep(until - clock())
        self._tried.clear()


def _instance(gpu_uuid: str, seen: InstanceDocument) -> Instance:
    return Instance(
        gpu_uuid=gpu_uuid,
        gpu_instance_id=seen.gpu_instance_id,
        profile_id=seen.profile_id,
        start=seen.start,
        size=seen.size,
        mig_uuid=seen.mig_uuid,
        compute_instances=int(seen.mig_uuid is not None),
    )
