"""Worlds on the real control plane: nodes that run pods, a real allocator, agents that do what they are told, and spawners to try.

from tests.spawner.cluster.world import make_world  # in a test module
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner import spawner as spawner_module
from mig_spawner.testing.controlplane.run import HUB
from mig_spawner.testing.gpu import find_model
from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.wire.client import AllocatorClient
from tests.allocator.rig import SERVICE_TOKEN, Board, Node, open_app
from tests.cluster.right import HUB_RULES, grant, verbs_of
from tests.controlplane.corner import Corner

SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}


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

    async def none_left(self) -> bool:
        return not await self.leases()


class MakeWorld(Protocol):
    """Makes a world of nodes, by what they have for pods; each has one GPU, number 0 in the first one."""

    async def __call__(
        self,
        capacity: Mapping[str, Mapping[str, str]],
        *,
        board: Callable[[int, str], Board] = ...,
        extra_env: Callable[[Any], Mapping[str, str]] | None = None,
    ) -> World: ...


def plain(number: int, gpu_uuid: str) -> Board:
    """A GPU that is partly taken is taken further first, so the first node, with an instance of somebody else, is the first choice."""
    board = Board(find_model("a100-80gb").gpu(gpu_uuid))
    if number == 0:
        board.add("3g.40gb", 4, processes=1)
    return board


@pytest.fixture
async def make_world(
    corner: Corner,
    admin_kubeconfig: Path,
    tmp_path: Path,
    make_spawner: Callable[..., MIGSpawner],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[MakeWorld]:
    """See `MakeWorld`."""
    async with AsyncExitStack() as stack:

        async def make(
            capacity: Mapping[str, Mapping[str, str]],
            *,
            board: Callable[[int, str], Board] = plain,
            extra_env: Callable[[Any], Mapping[str, str]] | None = None,
        ) -> World:
            nodes = {short: f"{short}-{corner.namespace}" for short in capacity}
            tokens = {name: f"agent-token-of-{name}" for name in nodes.values()}
            app: AllocatorApp = await open_app(tmp_path / "ledger.sqlite", tokens)
            stack.push_async_callback(app.close)
            clients = [AllocatorClient(app.url, token) for token in (SERVICE_TOKEN, *tokens.values())]
            for client in clients:
                stack.push_async_callback(client.aclose)
            hub, *agents = clients
            monkeypatch.setattr(spawner_module, "shared_client", lambda *_: hub)
            obeying = []
            for number, (name, client) in enumerate(zip(nodes.values(), agents, strict=True)):
                node = Node(name, client, [board(number, f"GPU-{number}-{corner.namespace}")])
                await node.report()
                obeying.append(node)
            task = asyncio.create_task(obey(obeying))
            stack.push_async_callback(ended, task)
            specs = [NodeSpec(nodes[short], capacity=dict(quantities)) for short, quantities in capacity.items()]
            kubelet = Kubelet(
                admin_kubeconfig, specs, state_dir=tmp_path / "kubelet", schedule=False, extra_env=extra_env
            )
            await stack.enter_async_context(kubelet)
            await grant(corner, SUBJECT, corner.hub, verbs_of(HUB_RULES))

            def spawner(**traits: Any) -> MIGSpawner:
                made = make_spawner(
                    namespace=corner.namespace,
                    image="demo/notebook:1",
                    cmd=[sys.executable, "-c", "import time; time.sleep(600)"],
                    nvidia_runtime_class="",
                    cpu_guarantee=1,
                    start_timeout=60,
                    queue_timeout=20,
                    **{"pod_name_template": "server", "unschedulable_timeout": 1, **traits},
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
