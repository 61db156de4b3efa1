"""A real hub with the real allocator and agent, on the embedded Kubernetes; one for all tests of a module.

Only the proxy is not there: the hub is asked directly, and the pods too. Every test has people of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import jupyterhub
import pytest
from bs4 import BeautifulSoup

from mig_spawner.domain.lease import EndReason
from mig_spawner.testing.kube import EmbeddedKube, KubeKnobs, Kubelet, NodeSpec
from mig_spawner.wire.client import AllocatorClient
from tests.kube.referee import Referee

T = TypeVar("T")
HERE = Path(__file__).resolve().parent
DEADLINE_S = 60.0
GPUS = int(os.environ.get("MIG_SOAK_GPUS", "1"))


class Cluster:
    """The embedded Kubernetes with a kubelet, in an event loop of its own so that all tests can share it."""

    namespace = "default"

    def __init__(self, folder: Path) -> None:
        self.knobs = KubeKnobs()
        self.kubeconfig = folder / "kubeconfig.yaml"
        self.audit_log = folder / "kubernetes-audit.log"
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def client(self) -> httpx.AsyncClient:
        """An admin's, for the namespace of the hub."""
        return httpx.AsyncClient(
            base_url=f"{self.url}/api/v1/namespaces/{self.namespace}/", timeout=10, trust_env=False
        )

    async def _open(self) -> None:
        kube = await self._stack.enter_async_context(EmbeddedKube(knobs=self.knobs, audit_log=self.audit_log))
        self.url = kube.url
        kube.write_kubeconfig(self.kubeconfig)
        state = self._folder / "kubelet"
        await self._stack.enter_async_context(
            Kubelet(kube.url, [NodeSpec("gpu-a"), NodeSpec("cpu-a")], state_dir=state)
        )


class Part:
    """A child process that can be killed and started again."""

    def __init__(self, name: str, arguments: list[str], env: dict[str, str], folder: Path) -> None:
        self.arguments = [sys.executable, "-m", *arguments]
        self.env = env
        self._folder = folder
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTERHUB_", "MIG_", "COV_"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments, cwd=self._folder, env={**clean, **self.env}, stdout=log, stderr=log
            )

    def freeze(self) -> None:
        """Let it answer nothing, with its connections open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None


class World:
    """All parts, and the questions that tests ask of them."""

    def __init__(
        self, folder: Path, cluster: Cluster, *, config: Path = HERE / "jupyterhub_config.py", base: str = ""
    ) -> None:
        """`base`: the path below which hub and allocator are, without a slash at its end."""
        self.cluster = cluster
        self.knobs = cluster.knobs
        ports = _free_ports(2)
        self.hub_url = f"http://127.0.0.1:{ports[0]}{base}"
        self.allocator_url = f"http://127.0.0.1:{ports[1]}{base}/services/mig"
        self._tokens = {name: secrets.token_hex(16) for name in ("allocator", "agent", "tests")}
        shared = {"MIG_ALLOCATOR_TOKEN": self._tokens["allocator"]}
        self.allocator = Part(
            "allocator",
            [
                *("mig_spawner.cli", "allocator", f"--AllocatorApp.bind_url={self.allocator_url}/"),
                f"--AllocatorApp.database_url=sqlite:///{folder}/ledger.sqlite",
                f"--AllocatorApp.kubeconfig={cluster.kubeconfig}",
                f"--AllocatorApp.namespace={cluster.namespace}",
                f"--AllocatorApp.hub_api_url={self.hub_url}/hub/api",
            ],
            {**shared, "MIG_ALLOCATOR_AGENT_TOKENS": json.dumps({"gpu-a": self._tokens["agent"]})},
            folder,
        )
        self.agent = Part(
            "agent",
            [
                *("mig_spawner.cli", "agent", "--node=gpu-a", f"--allocator-url={self.allocator_url}"),
                *(
                    "--driver=fake",
                    f"--gpu=a100-80gb:{GPUS}",
                    "--report-interval=1",
                    f"--state-file={folder}/gpus.json",
                ),
            ],
            {"MIG_AGENT_TOKEN": self._tokens["agent"]},
            folder,
        )
        self.hub = Part(
            "hub",
            ["jupyterhub", "-f", str(config)],
            {
                **shared,
                "KUBECONFIG": str(cluster.kubeconfig),
                "TEST_HUB_URL": self.hub_url,
                "TEST_NAMESPACE": cluster.namespace,
                "TEST_TOKEN": self._tokens["tests"],
                "TEST_ALLOCATOR_URL": self.allocator_url,
                "TEST_SERVER": str(HERE / "server.py"),
            },
            folder,
        )
        self.database = folder / "hub.sqlite"
        self.parts = (self.allocator, self.agent, self.hub)

    def start_allocator(self) -> None:
        self.allocator.start()
        self._await_http(f"{self.allocator_url}/readyz", self.allocator)

    def start_hub(self, *, spawner_class: str = "") -> None:
        """With a MIGSpawner, or with another class of spawners."""
        self.hub.env["TEST_SPAWNER_CLASS"] = spawner_class
        self.hub.start()
        self._await_http(f"{self.hub_url}/hub/health", self.hub)

    def heal(self) -> None:
        """Start again what a failed test left dead, or what ended by itself, as a cluster would."""
        if not self.allocator.alive:
            self.start_allocator()
        if not self.hub.alive:
            self.start_hub()

    def _await_http(self, url: str, part: Part) -> None:
        pause = threading.Event()
        for _ in range(300):
            try:
                if httpx.get(url, trust_env=False).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if part.process is None or part.process.poll() is not None:
                break
            pause.wait(0.1)
        pytest.fail(f"{url} does not answer:\n{part.log.read_text(errors='replace')[-4000:]}")

    def clients(self) -> tuple[httpx.AsyncClient, httpx.AsyncClient, AllocatorClient]:
        """The hub's API as an admin, the cluster's as its admin, and the allocator's as the hub."""
        admin = {"Authorization": f"token {self._tokens['tests']}"}
        return (
            httpx.AsyncClient(base_url=f"{self.hub_url}/hub/api/", headers=admin, timeout=30, trust_env=False),
            self.cluster.client(),
            AllocatorClient(self.allocator_url, self._tokens["allocator"]),
        )


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


@pytest.fixture(autouse=True)
def every_pod_is_valid(world: World, referee: Referee | None) -> Iterator[None]:
    """What the hub had made during a test, a real API server takes as well, to the last field."""
    yield
    if referee is not None:
        referee.judge(world.cluster.audit_log)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with Cluster(folder) as cluster:
        made = World(folder, cluster)
        try:
            made.start_allocator()
            made.agent.start()
            made.start_hub()
            yield made
        finally:
            for part in reversed(made.parts):
                part.kill(signal.SIGTERM if part is not made.hub else signal.SIGKILL)


class Person:
    """Somebody with servers, asked about by the REST API of the hub."""

    def __init__(self, desk: Desk, name: str) -> None:
        self.name = name
        self._desk = desk
        self._base = f"users/{name}"

    async def start(self, options: Any = None, *, body: Any = None, server: str = "server") -> httpx.Response:
        """Ask for a server: 201 it runs, 202 it is on its way, 4xx and 5xx it is not."""
        if body is None and options is not None:
            body = {"user_options": options} if jupyterhub.version_info >= (6,) else options
        return await self._desk.hub.post(f"{self._base}/{server}", json=body)

    async def stop(self, server: str = "server", **body: Any) -> httpx.Response:
        return await self._desk.hub.request("DELETE", f"{self._base}/{server}", json=body or None)

    async def change(self, server: str = "", **values: Any) -> httpx.Response:
        """Change the user, or one of its servers."""
        answer = await self._desk.hub.patch(f"{self._base}{server}", json=values)
        if not server and answer.is_success and "name" in values:
            self.name, self._base = values["name"], f"users/{values['name']}"
        return answer

    async def delete(self) -> httpx.Response:
        return await self._desk.hub.delete(self._base)

    async def server(self, name: str = "") -> dict[str, Any] | None:
        """The hub's word on the server; None while it is not active."""
        answer = await self._desk.hub.get(self._base)
        found: dict[str, Any] | None = answer.json()["servers"].get(name)
        return found

    async def servers(self) -> list[tuple[str, dict[str, Any]]]:
        """The active servers by name."""
        found: dict[str, dict[str, Any]] = (await self._desk.hub.get(self._base)).json()["servers"]
        return list(found.items())

    async def ready(self) -> bool:
        return bool((await self.server() or {}).get("ready"))

    async def stopped(self) -> bool:
        return await self.server() is None

    async def progress(self, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The events of the progress page, until one is the last."""
        events: list[dict[str, Any]] = []
        async with self._desk.hub.stream("GET", f"{self._base}/server/progress") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                    if last(events[-1]):
                        break
        return events

    async def failure(self) -> str:
        """The last word of a start that fails."""
        events = await self.progress(lambda e: bool(e.get("failed") or e.get("ready")))
        assert events[-1].get("failed"), events
        return str(events[-1]["message"])

    async def waiting(self) -> str:
        """The first sentence of the progress page about the line."""
        events = await self.progress(lambda e: "Waiting for" in e["message"] or bool(e.get("failed")))
        return str(events[-1]["message"])

    async def pod(self) -> dict[str, Any] | None:
        """The pod of the default server."""
        for pod in await self._desk.pods():
            if pod["metadata"]["annotations"].get("hub.jupyter.org/username") == self.name:
                return pod
        return None

    async def environment(self, path: str = "/") -> dict[str, str]:
        """The variables of the running process."""
        pod = await self.pod()
        assert pod is not None
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{pod['status']['podIP']}:8888{path}")
        found: dict[str, str] = answer.json()
        return found


class Desk:
    """A test's hands: clients, and people of its own whose servers are stopped when it ends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hub, self.kube, self.allocator = world.clients()
        self._people: list[Person] = []

    async def person(self, kind: str = "ada") -> Person:
        person = Person(self, f"{kind}-{secrets.token_hex(4)}")
        (await self.hub.post(f"users/{person.name}")).raise_for_status()
        self._people.append(person)
        return person

    @asynccontextmanager
    async def log_in(self, name: str) -> AsyncIterator[httpx.AsyncClient]:
        """Somebody's browser, without scripts."""
        async with httpx.AsyncClient(base_url=self.world.hub_url, follow_redirects=True, trust_env=False) as browser:
            page = BeautifulSoup((await browser.get("/hub/login")).text, "html.parser")
            xsrf = page.select("input[name=_xsrf]")[0]["value"]
            await browser.post("/hub/login", data={"username": name, "password": "x", "_xsrf": xsrf})
            yield browser

    async def pods(self) -> list[dict[str, Any]]:
        answer = await self.kube.get("pods")
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    async def pod_events(self, person: Person, *, until: str) -> AsyncIterator[str]:
        """How the pod of somebody's default server comes and goes, up to an event; changes in between are left out."""
        listed = (await self.kube.get("pods")).json()
        query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        async with (
            asyncio.timeout(DEADLINE_S),
            self.kube.stream("GET", "pods", params=query, timeout=DEADLINE_S) as stream,
        ):
            async for line in stream.aiter_lines():
                event = json.loads(line)
                if event["object"]["metadata"]["name"].endswith(person.name) and event["type"] != "MODIFIED":
                    yield event["type"]
                    if event["type"] == until:
                        return

    async def free(self, profile: str = "1g.10gb") -> int:
        offer = (await self.allocator.availability()).offer(profile)
        return 0 if offer is None else offer.free

    async def held(self) -> bool:
        """Somebody has a lease."""
        return bool((await self.allocator.leases()).leases)

    async def was_stopped(self, lease_id: str) -> bool:
        """A lease ended because its server was stopped.

        Hub and pod watch both see the pod go. Where the watch is first the hub's word still corrects the reason, but not after the
        next report of the node has closed the lease, and of these two either may be first.
        """
        return (await self.allocator.lease(lease_id)).reason in {EndReason.STOPPED, EndReason.POD_GONE}

    async def clean(self, person: Person) -> None:
        """Nothing of somebody's server is left: no lease, no pod, a form without a word about it, and the next start works."""
        await self.until(person.stopped)
        await self.until(self.all_free, "all slices are free again")
        assert await person.pod() is None
        async with self.log_in(person.name) as browser:
            # The page of a failed start shows its reason, and the form is one click further.
            form = BeautifulSoup((await browser.get(f"/hub/spawn/{person.name}")).text, "html.parser")
        assert form.select("input[name=mig_choice]:checked"), "something is selected"
        assert not form.select(".mig-stale")
        answer = await person.start({"mig": "none"})
        assert answer.status_code in {201, 202}, answer.text
        await self.until(person.ready)
        await person.stop()
        await self.until(person.stopped)

    async def all_free(self) -> bool:
        return not (await self.allocator.leases()).leases and await self.free() == 7 * GPUS

    async def until(self, question: Callable[[], Awaitable[T]], what: str = "", timeout_s: float = DEADLINE_S) -> T:
        """Ask until the answer is true, and give it."""
        answer: T | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while not (answer := await question()):
                    await asyncio.sleep(0.05)
                return answer
        except TimeoutError:
            pytest.fail(f"{what or question} did not come about; last answer {answer!r}\n{await self._scene()}")

    async def _scene(self) -> str:
        leases = (await self.allocator.leases()).leases
        logs = [f"--- {p.log.name}\n{p.log.read_text(errors='replace')[-3000:]}" for p in self.world.parts]
        return "\n".join([*(lease.model_dump_json() for lease in leases), *logs])

    async def close(self) -> None:
        """Every server is stopped, and everything is free again."""
        vars(self.world.knobs).update(vars(KubeKnobs()))
        try:
            for person in self._people:
                await self.until(partial(self._gone, person), f"{person.name}'s server stops")
            await self.until(self.all_free, "all slices are free again")
        finally:
            for client in (self.hub, self.kube, self.allocator):
                await client.aclose()

    async def _gone(self, person: Person) -> bool:
        if (await self.hub.get(f"users/{person.name}")).status_code == 404:
            return True
        for name, named in await person.servers():
            if name and named["pending"] != "stop":
                await person.stop(f"servers/{name}")
        server = await person.server()
        if server is not None and server["pending"] != "stop":
            await person.stop()
        return await person.stopped()


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    world.heal()
    desk = Desk(world)
    try:
        await desk.until(desk.all_free, "a world at rest")
        yield desk
    finally:
        await desk.close()
