"""A node with a slice and no CPU left: the real scheduler's words reach the user, and the lease moves to another node."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.domain.lease import EndReason
from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner import spawner as spawner_module
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.move import MOVES
from mig_spawner.testing.controlplane.run import HUB
from mig_spawner.testing.gpu import find_model
from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.wire.client import AllocatorClient
from tests.allocator.rig import SERVICE_TOKEN, Board, Node, open_app
from tests.cluster.right import HUB_RULES, grant, verbs_of
from tests.controlplane.corner import Corner, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}
SHORT = "Insufficient cpu"


@dataclass
class World:
    """A cluster with nodes, a real allocator, and agents that do what they are told."""

    corner: Corner
    allocator: AllocatorClient
    make: Callable[..., MIGSpawner]
    nodes: dict[str, str]

    async def node_of_pod(self) -> str | None:
        pods = (await self.corner.core.list_namespaced_pod(self.corner.namespace)).items
        return next((pod.spec.node_name for pod in pods), None)

    async def leases(self) -> list[str]:
        return [lease.lease_id for lease in (await self.allocator.leases()).leases]


MakeWorld = Callable[[dict[str, str]], Awaitable[World]]


@pytest.fixture
async def make_world(
    corner: Corner,
    admin_kubeconfig: Path,
    tmp_path: Path,
    make_spawner: Callable[..., MIGSpawner],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[MakeWorld]:
    """Makes a world of nodes, by the CPU that they have; each has one GPU, and the first is the allocator's first choice."""
    async with AsyncExitStack() as stack:

        async def make(cpu: dict[str, str]) -> World:
            nodes = {short: f"{short}-{corner.namespace}" for short in cpu}
            tokens = {name: f"agent-token-of-{name}" for name in nodes.values()}
            app: AllocatorApp = await open_app(tmp_path / "ledger.sqlite", tokens)
            stack.push_async_callback(app.close)
            clients = [AllocatorClient(app.url, token) for token in (SERVICE_TOKEN, *tokens.values())]
            for client in clients:
                stack.push_async_callback(client.aclose)
            hub, *agents = clients
            monkeypatch.setattr(spawner_module, "shared_client", lambda *_: hub)
            # A GPU that is partly taken is taken further first: the first node has an instance of somebody else.
            obeying = []
            for number, (name, client) in enumerate(zip(nodes.values(), agents, strict=True)):
                board = Board(find_model("a100-80gb").gpu(f"GPU-{number}-{corner.namespace}"))
                if number == 0:
                    board.add("3g.40gb", 4, processes=1)
                node = Node(name, client, [board])
                await node.report()
                obeying.append(node)
            task = asyncio.create_task(obey(obeying))
            stack.push_async_callback(ended, task)
            specs = [NodeSpec(nodes[short], capacity={"cpu": quantity}) for short, quantity in cpu.items()]
            state = tmp_path / "kubelet"
            await stack.enter_async_context(Kubelet(admin_kubeconfig, specs, state_dir=state, schedule=False))
            await grant(corner, SUBJECT, corner.hub, verbs_of(HUB_RULES))

            def spawner(**traits: Any) -> MIGSpawner:
                made = make_spawner(
                    namespace=corner.namespace,
                    pod_name_template="server",
                    image="demo/notebook:1",
                    cmd=[sys.executable, "-c", "import time; time.sleep(600)"],
                    nvidia_runtime_class="",
                    cpu_guarantee=1,
                    start_timeout=60,
                    queue_timeout=20,
                    **{"unschedulable_timeout": 1, **traits},
                )
                made.user_options = {"mig": "small"}
                return made

            return World(corner, hub, spawner, nodes)

        yield make


async def obey(nodes: list[Node]) -> None:
    while True:
        for node in nodes:
            await node.turn()
        await asyncio.sleep(0.1)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stop(spawner: MIGSpawner) -> None:
    await spawner.stop(now=True)
    await spawner.run_post_stop_hook()


async def test_the_scheduler_is_heard_and_the_lease_moves_to_another_node(make_world: MakeWorld) -> None:
    world = await make_world({"full": "500m", "roomy": "4"})
    spawner = world.make()
    starting = spawner.start()
    messages = [str(event["message"]) async for event in spawner.progress()]
    await starting
    # Its own words as they came, and what follows from them.
    assert any("[Warning] 0/" in message and SHORT in message for message in messages), messages
    told = next(m for m in messages if m.startswith(f"The scheduler finds no room on {world.nodes['full']}: 0/"))
    assert SHORT in told
    assert any(world.nodes["roomy"] in message and "Slice held" in message for message in messages), messages
    assert any("Successfully assigned" in message for message in messages), messages
    assert await world.node_of_pod() == world.nodes["roomy"]
    [lease] = (await world.allocator.leases()).leases
    assert lease.placement is not None
    assert lease.placement.node == world.nodes["roomy"]
    assert await spawner.poll() is None
    await stop(spawner)
    await eventually(lambda: none_left(world), "the end of the lease")


async def test_where_no_other_node_can_serve_the_start_fails_with_the_schedulers_words(make_world: MakeWorld) -> None:
    world = await make_world({"full": "500m"})
    spawner = world.make()
    with pytest.raises(SpawnRefused) as refused:
        await spawner.start()
    said = refused.value.message
    assert said.startswith(f"There is no room for this server on {world.nodes['full']}. The scheduler says: 0/"), said
    assert SHORT in said
    assert refused.value.reason == Reason.CAPACITY.value
    await stop(spawner)
    await eventually(lambda: none_left(world), "the end of the lease")
    assert await world.node_of_pod() is None


async def test_a_start_ends_after_some_moves(make_world: MakeWorld) -> None:
    world = await make_world({f"full-{number}": "500m" for number in range(MOVES + 1)})
    spawner = world.make(unschedulable_timeout=0.5)
    with pytest.raises(SpawnRefused, match="enough nodes for one start") as refused:
        await spawner.start()
    assert all(node in refused.value.message for node in world.nodes.values())
    await stop(spawner)
    await eventually(lambda: none_left(world), "the end of the lease")


async def test_with_no_time_set_it_waits_until_there_is_room(make_world: MakeWorld) -> None:
    world = await make_world({"full": "1500m", "roomy": "4"})
    core, namespace = world.corner.core, world.corner.namespace
    container = {"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}, "command": ["sleep", "600"]}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": world.nodes["full"]}}
    await core.create_namespaced_pod(namespace, {"metadata": {"name": "greedy"}, "spec": spec})
    await eventually(world.node_of_pod, "the other pod's place")
    spawner = world.make(unschedulable_timeout=0)
    starting = spawner.start()

    async def told() -> bool:
        return spawner._unplaced() is not None

    await eventually(told, "the scheduler's refusal")
    await core.delete_namespaced_pod("greedy", namespace, grace_period_seconds=0)
    await starting
    assert await world.node_of_pod() == world.nodes["full"]
    await stop(spawner)


async def test_a_start_that_is_cancelled_while_it_moves_leaves_nothing(make_world: MakeWorld) -> None:
    world = await make_world({"full": "500m", "also-full": "500m"})
    spawner = world.make()
    starting = spawner.start()
    async for event in spawner.progress():
        if "finds no room" in str(event["message"]):
            break
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await stop(spawner)
    await eventually(lambda: none_left(world), "the end of the lease")
    assert await world.node_of_pod() is None
    assert spawner._end_reason() is EndReason.CANCELLED


async def none_left(world: World) -> bool:
    return not await world.leases()
