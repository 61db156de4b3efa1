"""What goes wrong on bad days, made to go wrong on purpose; and what only the embedded server has."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from mig_spawner.testing.kube import EmbeddedKube, KubeKnobs, Kubelet, KubeUser, NodeSpec
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.resources import PODS

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

PODS_PATH = "/api/v1/namespaces/default/pods"


def pod(name: str = "one", **spec: Any) -> dict[str, Any]:
    container = {"name": "notebook", "image": "a:1", "command": [sys.executable, "-c", "import time; time.sleep(600)"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


class Api:
    """A client without manners: it asks, and shows status and answer."""

    def __init__(self, session: aiohttp.ClientSession, kube: EmbeddedKube) -> None:
        self.session = session
        self.kube = kube

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.kube.url + path, json=body, **options) as response:
            return response.status, await response.json()

    async def create(self, name: str = "one", **spec: Any) -> int:
        return (await self.ask("POST", PODS_PATH, pod(name, **spec)))[0]

    async def names(self) -> list[str]:
        _, listed = await self.ask("GET", PODS_PATH)
        return [item["metadata"]["name"] for item in listed["items"]]

    async def bind(self, name: str = "one") -> int:
        binding = {"metadata": {"name": name}, "target": {"name": "gpu-a"}}
        return (await self.ask("POST", f"{PODS_PATH}/{name}/binding", binding))[0]

    async def wait_for(self, question: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(30):
            while not (answer := await question()):
                await asyncio.sleep(0.02)
            return answer


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with EmbeddedKube() as kube, aiohttp.ClientSession() as session:
        yield Api(session, kube)


async def test_the_pods_of_these_tests_are_valid_on_every_server(cluster: Cluster) -> None:
    shown = await cluster.core.create_namespaced_pod(cluster.namespace, pod(), dry_run="All")
    assert shown.spec.containers[0].command == pod()["spec"]["containers"][0]["command"]


async def test_a_late_create_is_stored_late(api: Api) -> None:
    api.kube.knobs.create_delay = 1.0
    creating = asyncio.create_task(api.create())
    await asyncio.sleep(0)
    assert await api.names() == []
    assert await creating == 201
    assert await api.names() == ["one"]


async def test_a_late_create_happens_though_the_client_gave_up(api: Api) -> None:
    api.kube.knobs.create_delay = 1.0
    with pytest.raises(TimeoutError):
        await api.ask("POST", PODS_PATH, pod(), timeout=aiohttp.ClientTimeout(total=0.1))
    assert await api.names() == []
    await api.wait_for(api.names)


async def test_a_create_may_be_stored_at_once_and_answered_late(api: Api) -> None:
    api.kube.knobs.create_delay = 5
    api.kube.knobs.create_persists_first = True
    with pytest.raises(TimeoutError):
        await api.ask("POST", PODS_PATH, pod(), timeout=aiohttp.ClientTimeout(total=0.2))
    assert await api.names() == ["one"]


async def test_a_delay_may_be_for_some_pods_only(api: Api) -> None:
    api.kube.knobs.create_delay = 60
    api.kube.knobs.create_delay_for = "slow-*"
    assert await api.create("fast") == 201


async def test_a_refused_create_says_why(api: Api) -> None:
    api.kube.knobs.create_refused = "exceeded quota: gpu"
    status, answer = await api.ask("POST", PODS_PATH, pod())
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == 'pods "one" is forbidden: exceeded quota: gpu'
    api.kube.knobs.create_refused = None
    assert await api.create() == 201


async def test_so_many_deletions_fail(api: Api) -> None:
    await api.create()
    api.kube.knobs.delete_failures = 2
    assert [(await api.ask("DELETE", f"{PODS_PATH}/one"))[0] for _ in range(3)] == [500, 500, 200]
    assert await api.names() == []


async def test_a_stuck_pod_is_never_bound(api: Api, tmp_path: Path) -> None:
    api.kube.knobs.stuck_pending = "stuck"
    async with Kubelet(api.kube.url, [NodeSpec("gpu-a")], state_dir=tmp_path) as kubelet:
        await api.create("stuck")
        await api.create("free")

        async def runs() -> bool:
            return list(kubelet.running()) == ["default/free"]

        await api.wait_for(runs)
        assert await api.bind("stuck") == 500
        api.kube.knobs.stuck_pending = None

        async def both_run() -> bool:
            return set(kubelet.running()) == {"default/free", "default/stuck"}

        await api.wait_for(both_run)


async def test_the_more_important_pod_is_placed_first(api: Api, tmp_path: Path) -> None:
    """The real scheduler has no such order among pods that were refused before: each waits for a while of its own."""
    urgent = {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"}
    await api.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    async with Kubelet(api.kube.url, [NodeSpec("gpu-a", capacity={"pods": "1"})], state_dir=tmp_path) as kubelet:

        async def runs(name: str) -> None:
            async def question() -> bool:
                return list(kubelet.running()) == [f"default/{name}"]

            await api.wait_for(question)

        await api.create("first")
        await runs("first")
        await api.create("early")
        await api.create("important", priorityClassName="urgent")
        await api.ask("DELETE", f"{PODS_PATH}/first?gracePeriodSeconds=0")
        await runs("important")


async def test_a_predicate_may_say_which_pods_are_stuck(api: Api) -> None:
    api.kube.knobs.stuck_pending = lambda pod: pod["spec"].get("priority", 0) == 0
    await api.create()
    assert await api.bind() == 500


async def test_a_terminating_pod_may_be_stuck(api: Api, tmp_path: Path) -> None:
    api.kube.knobs.stuck_terminating = "*"
    async with Kubelet(api.kube.url, [NodeSpec("gpu-a")], state_dir=tmp_path) as kubelet:
        await api.create()

        async def runs() -> bool:
            return bool(kubelet.running())

        async def stopped() -> bool:
            return not kubelet.running()

        async def gone() -> bool:
            return await api.names() == []

        await api.wait_for(runs)
        await api.ask("DELETE", f"{PODS_PATH}/one?gracePeriodSeconds=1")
        await api.wait_for(stopped)
        _, left = await api.ask("GET", f"{PODS_PATH}/one")
        assert left["metadata"]["deletionTimestamp"]
        api.kube.knobs.stuck_terminating = None
        await api.wait_for(gone)


async def test_an_api_that_is_down_answers_503_and_ends_watches(api: Api) -> None:
    async with api.session.get(f"{api.kube.url}{PODS_PATH}?watch=true") as watching:
        api.kube.knobs.api_down = True
        assert await watching.content.read() == b""
    status, answer = await api.ask("GET", PODS_PATH)
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    api.kube.knobs.api_down = False
    assert await api.names() == []


async def test_the_kubelet_lives_through_an_api_that_is_down(api: Api, tmp_path: Path) -> None:
    async with Kubelet(api.kube.url, [NodeSpec("gpu-a")], state_dir=tmp_path) as kubelet:
        await api.create("before")

        async def one_runs() -> bool:
            return len(kubelet.running()) == 1

        async def two_run() -> bool:
            return len(kubelet.running()) == 2

        await api.wait_for(one_runs)
        api.kube.knobs.api_down = True
        await api.ask("GET", PODS_PATH)
        assert len(kubelet.running()) == 1
        api.kube.knobs.api_down = False
        await api.create("after")
        await api.wait_for(two_run)


async def test_a_watch_that_fell_too_far_behind_is_told_gone(api: Api) -> None:
    _, listed = await api.ask("GET", PODS_PATH)
    await api.create()
    api.kube.forget_history()
    revision = listed["metadata"]["resourceVersion"]
    async with api.session.get(f"{api.kube.url}{PODS_PATH}?watch=1&resourceVersion={revision}") as watching:
        event = json.loads(await watching.content.readline())
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_ends_with_a_bookmark_when_asked(api: Api) -> None:
    url = f"{api.kube.url}{PODS_PATH}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
    async with api.session.get(url) as watching:
        event = json.loads(await watching.content.readline())
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) > 0


async def test_watches_that_are_cut_end(api: Api) -> None:
    async with api.session.get(f"{api.kube.url}{PODS_PATH}?watch=true") as watching:
        api.kube.cut_watches()
        assert await watching.content.read() == b""


async def test_a_restarted_server_goes_on_where_it_was(tmp_path: Path) -> None:
    kube = EmbeddedKube()
    async with aiohttp.ClientSession() as session:
        api = Api(session, kube)

        async def runs(*names: str) -> None:
            async def question() -> bool:
                return set(kubelet.running()) == {f"default/{name}" for name in names}

            await api.wait_for(question)

        async with kube:
            url = kube.url
            kubelet = Kubelet(url, [NodeSpec("gpu-a")], state_dir=tmp_path)
            await kubelet.__aenter__()
            await api.create("before")
            await runs("before")
        async with kube:
            assert kube.url == url
            assert await api.names() == ["before"]
            await api.create("after")
            await runs("before", "after")
            await kubelet.__aexit__(None, None, None)
            _, node = await api.ask("GET", "/api/v1/nodes/gpu-a")
            ready = next(found for found in node["status"]["conditions"] if found["type"] == "Ready")
            assert ready["status"] == "False"


def test_history_is_bounded() -> None:
    objects = Objects(history=2)
    for number in range(4):
        objects.put(PODS, {"kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "n"}})
    assert [change.object["metadata"]["name"] for change in objects.changes_since(PODS, objects.revision - 2)] == [
        "p2",
        "p3",
    ]
    with pytest.raises(Exception, match="too old resource version"):
        objects.changes_since(PODS, 1)


async def test_unknown_tokens_are_refused_when_tokens_are_known() -> None:
    tokens = {"known": KubeUser("somebody")}
    async with EmbeddedKube(tokens=tokens, anonymous=False) as kube, aiohttp.ClientSession() as session:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer other"}, 401),
            ({"Authorization": "Bearer known"}, 403),
        ):
            async with session.get(kube.url + PODS_PATH, headers=headers) as answer:
                assert answer.status == status


async def test_the_nvidia_runtime_class_is_there(api: Api) -> None:
    assert await api.create(runtimeClassName="nvidia") == 201


async def test_kubectl_finds_its_way(api: Api) -> None:
    for path in ("/version", "/api", "/apis", "/api/v1", "/apis/coordination.k8s.io/v1", "/apis/node.k8s.io"):
        status, _ = await api.ask("GET", path)
        assert status == 200
    await api.create()
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    _, table = await api.ask("GET", PODS_PATH, headers=headers)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == ["one", "0/1", "Pending", "0"]


async def test_knobs_may_be_given_at_the_start() -> None:
    knobs = KubeKnobs(api_down=True)
    async with EmbeddedKube(knobs=knobs) as kube, aiohttp.ClientSession() as session:
        assert kube.knobs is knobs
        async with session.get(kube.url + "/healthz") as answer:
            assert answer.status == 503


def test_the_address_is_not_known_before_the_start() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = EmbeddedKube().url


async def test_a_taken_port_is_an_error(api: Api) -> None:
    port = int(api.kube.url.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        async with EmbeddedKube(port):
            pass


def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("nothing: here")
    with pytest.raises(ValueError, match="no kubeconfig"):
        Kubelet(tmp_path / "config", [], state_dir=tmp_path)


def test_a_kubeconfig_is_for_its_owner_alone(tmp_path: Path) -> None:
    async def mode() -> int:
        async with EmbeddedKube() as kube:
            return kube.write_kubeconfig(tmp_path / "deep" / "config", token="secret").stat().st_mode & 0o777

    assert asyncio.run(mode()) == 0o600
