"""The seams of `MIGSpawner`, on a spawner without a hub."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio.client import ApiException, V1Pod
from kubespawner import KubeSpawner
from traitlets import TraitError

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.release import Creation
from mig_spawner.wire.lease import LeaseDocument

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

MakeSpawner = Callable[..., MIGSpawner]
MakeLease = Callable[..., LeaseDocument]
PROFILES = [
    {"display_name": "Large", "slug": "large", "kubespawner_override": {"image": "img:large"}},
    {"display_name": "Large + GPU", "slug": "large-gpu", "kubespawner_override": {"image": "img:gpu"}},
]


def env_of(pod: V1Pod) -> dict[str, Any]:
    return {e.name: e.value for e in pod.spec.containers[0].env}


async def manifest(spawner: MIGSpawner, options: dict[str, Any]) -> V1Pod:
    """The pod as a start would make it."""
    spawner.user_options = options
    spawner._entry = spawner._granted = None
    await spawner.load_user_options()
    return await spawner.get_pod_manifest()


# --- pods -----------------------------------------------------------------------------------------------------------


async def test_a_slice_is_in_the_pod(make_spawner: MakeSpawner) -> None:
    pod = await manifest(make_spawner(environment={"NVIDIA_VISIBLE_DEVICES": "all"}), {"mig": "small"})
    assert env_of(pod)["NVIDIA_VISIBLE_DEVICES"] == "MIG-1111"
    assert pod.metadata.labels["mig-spawner/lease"] == "lease-1"
    assert pod.spec.runtime_class_name == "nvidia"
    assert int(pod.spec.containers[0].resources.limits["memory"]) == 16 << 30


async def test_a_gpu_server_leaves_nothing_for_the_next_one(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner(node_selector={"pool": "x"}, tolerations=[{"key": "a"}], profile_list=PROFILES)
    traits = deepcopy({name: getattr(spawner, name) for name in ("node_selector", "tolerations", "environment")})
    first = await manifest(spawner, {"mig": "none"})
    await manifest(spawner, {"mig": "small"})
    spawner.clear_state()
    again = await manifest(spawner, {"mig": "none"})
    assert again.to_dict() == first.to_dict()
    assert {name: getattr(spawner, name) for name in traits} == traits


async def test_the_lease_is_asked_for_once(make_spawner: MakeSpawner, allocator: ScriptedAllocator) -> None:
    spawner = make_spawner()
    await manifest(spawner, {"mig": "small"})
    await spawner.get_pod_manifest()
    assert allocator.paths("POST") == ["leases"]
    assert allocator.bodies("leases")[0]["wait_budget"] == 300


async def test_a_server_without_a_gpu_never_asks_the_allocator(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    allocator.down = True
    spawner = make_spawner()
    await manifest(spawner, {"mig": "none"})
    spawner._started_here = True
    await spawner.run_post_stop_hook()
    assert allocator.calls == []


# --- starting and ending --------------------------------------------------------------------------------------------


@pytest.fixture
def started(make_spawner: MakeSpawner, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MIGSpawner]:
    """A spawner whose KubeSpawner part only loads options and makes the pod, as the real `_start` does in this order."""

    async def _start(self: Any) -> str:
        assert self.start_timeout == 60, "what KubeSpawner sees is the pod's own time"
        await self.load_user_options()
        await self.get_pod_manifest()
        return "http://10.0.0.1:8888"

    async def no_pod(self: Any) -> int:
        return 1

    monkeypatch.setattr(KubeSpawner, "_start", _start)
    monkeypatch.setattr(KubeSpawner, "poll", no_pod)

    def make(choice: object = "small", **traits: Any) -> MIGSpawner:
        spawner: MIGSpawner = make_spawner(
            user_options={"mig": choice}, start_timeout=60, events_enabled=False, **traits
        )
        return spawner

    return make


async def test_the_hub_waits_longer_than_the_pod_may_take(started: Callable[..., MIGSpawner]) -> None:
    spawner = started(queue_timeout=100)
    future = spawner.start()
    assert spawner.start_timeout >= 60 + 100
    assert await future == "http://10.0.0.1:8888"
    assert spawner.start_timeout == 60


async def test_a_start_that_is_cancelled_at_once_leaves_the_timeout_as_it_was(
    started: Callable[..., MIGSpawner],
) -> None:
    spawner = started()
    future = spawner.start()
    future.cancel()
    await asyncio.wait([future])
    await spawner.run_post_stop_hook()
    assert spawner.start_timeout == 60


async def test_progress_tells_the_way_of_the_lease_to_every_page(
    started: Callable[..., MIGSpawner], allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1), lease("ready")]
    spawner = started()

    async def read() -> list[str]:
        return [e["message"] async for e in spawner.progress()]

    pages = [asyncio.create_task(read()), asyncio.create_task(read())]
    await spawner.start()
    first, second = await asyncio.gather(*pages)
    assert first == second
    assert first[0] == "Waiting for 1g.10gb: position 1 of 1."
    assert first[-2:] == ["The slice is ready, the pod is starting.", "The server is about to answer."]


async def test_cancelled_in_line_the_slice_goes_back_at_once(
    started: Callable[..., MIGSpawner], allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1)]
    spawner = started()
    future = spawner.start()
    async with asyncio.timeout(5):
        while not spawner._progress.messages:
            await asyncio.sleep(0.005)
    assert await spawner.poll() is None, "a start under way counts as running, so that the hub stops it"
    future.cancel()
    done, _ = await asyncio.wait([future], timeout=0.5)
    assert done
    assert await spawner.poll() == 1
    await spawner.run_post_stop_hook()
    [body] = allocator.bodies("leases/lease-1/release")
    assert (body["reason"], body["pod"], body["pod_name"]) == ("cancelled", "none", spawner.pod_name)


async def test_the_slice_goes_back_although_the_admins_hook_fails(
    started: Callable[..., MIGSpawner], allocator: ScriptedAllocator
) -> None:
    async def broken(_: MIGSpawner) -> None:
        raise RuntimeError("hook")

    spawner = started(post_stop_hook=broken)
    await spawner.start()
    with pytest.raises(RuntimeError, match="hook"):
        await spawner.run_post_stop_hook()
    assert len(allocator.bodies("leases/lease-1/release")) == 1
    await asyncio.gather(spawner.run_post_stop_hook(), return_exceptions=True)
    assert len(allocator.bodies("leases/lease-1/release")) == 1, "once is enough"


@pytest.mark.parametrize(
    ("outcome", "creation", "polled"),
    [
        (True, Creation.DONE, 1),
        (False, Creation.TRIED, None),
        (ApiException(status=422), Creation.NONE, 1),
        (ApiException(status=500), Creation.TRIED, None),
    ],
    ids=["created", "timed out", "refused", "failed"],
)
async def test_what_became_of_the_pod_is_remembered(
    started: Callable[..., MIGSpawner],
    monkeypatch: pytest.MonkeyPatch,
    outcome: bool | Exception,
    creation: Creation,
    polled: int | None,
) -> None:
    async def create(self: Any, pod: V1Pod, request_timeout: float) -> bool:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(KubeSpawner, "_make_create_pod_request", create)
    spawner = started()
    try:
        await spawner._make_create_pod_request(V1Pod(), 1)
    except ApiException:
        assert isinstance(outcome, ApiException)
    assert spawner._creation is creation
    assert await spawner.poll() == polled


async def test_a_quota_of_the_cluster_is_a_sentence(
    started: Callable[..., MIGSpawner], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(self: Any, pod: V1Pod, request_timeout: float) -> bool:
        error = ApiException(status=403)
        error.body = b'{"message": "pods \\"x\\" is forbidden: exceeded quota: gpu"}'
        raise error

    monkeypatch.setattr(KubeSpawner, "_make_create_pod_request", create)
    with pytest.raises(SpawnRefused) as refused:
        await started()._make_create_pod_request(V1Pod(), 1)
    assert refused.value.reason == Reason.QUOTA.value


async def test_a_server_whose_lease_has_ended_is_stopped(
    started: Callable[..., MIGSpawner],
    allocator: ScriptedAllocator,
    monkeypatch: pytest.MonkeyPatch,
    lease: MakeLease,
) -> None:
    stopped: list[bool] = []

    async def running(self: Any) -> None:
        return None

    async def stop(self: Any, now: bool = False) -> None:
        stopped.append(now)

    spawner = started()
    await spawner.start()
    monkeypatch.setattr(KubeSpawner, "poll", running)
    monkeypatch.setattr(KubeSpawner, "stop", stop)
    allocator.answers = [(409, "conflict"), lease("releasing", reason="forced", message="We need the node.")]
    assert await spawner.poll() is None
    async with asyncio.timeout(5):
        while spawner._keeper.lost is None:
            await asyncio.sleep(0.005)
    assert await spawner.poll() == 1
    assert stopped == [True]
    form = await spawner.get_options_form()
    assert "Your last server lost its GPU. An admin ended it. \N{LEFT DOUBLE QUOTATION MARK}We need the node." in form


async def test_the_state_is_a_cache_that_another_life_of_the_hub_takes_up(
    started: Callable[..., MIGSpawner], make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = started()
    await spawner.start()
    state = spawner.get_state()
    assert state["mig"] == {"lease_id": "lease-1"}
    assert {"pod_name", "namespace"} <= set(state), "going back to KubeSpawner finds what it needs"
    other = make_spawner()
    other.load_state({**state, "unknown": {"x": 1}})
    other.api = Unreachable()
    await other.run_post_stop_hook()
    assert allocator.bodies("leases/lease-1/release")[0]["pod"] == "unknown"
    other.clear_state()
    assert "mig" not in other.get_state()


@pytest.mark.parametrize("saved", [None, 5, [], {"lease_id": 5}, {"lease_id": ["x"]}], ids=str)
async def test_a_broken_state_does_no_harm(make_spawner: MakeSpawner, saved: object) -> None:
    make_spawner().load_state({"pod_name": "x", "mig": saved})


async def test_a_start_that_a_killed_hub_forgot_is_given_back_by_its_holder(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner()
    spawner.load_state({})
    spawner.api = Unreachable()
    await spawner.run_post_stop_hook()
    assert allocator.paths("POST") == ["leases/release"]
    assert allocator.bodies("leases/release")[0]["pod"] == "unknown"


async def test_a_deleted_server_gives_back_whatever_is_left(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner(delete_pvc=False)
    spawner.api = Unreachable()
    await spawner.delete_forever()
    assert allocator.paths("POST") == ["leases/release"]


# --- configuration --------------------------------------------------------------------------------------------------


async def test_a_wrong_menu_is_refused_with_its_sentence(make_spawner: MakeSpawner) -> None:
    with pytest.raises(TraitError, match=r"entry 1 .'x'.*exactly one of"):
        make_spawner(menu=[{"display_name": "x"}])
    with pytest.raises(TraitError, match="cannot be read"):
        make_spawner(menu_file="/nowhere.yaml")


async def test_a_menu_file_that_breaks_while_the_hub_runs_leaves_the_menu_from_before(
    make_spawner: MakeSpawner, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "menu.yaml"
    file.write_text("- {display_name: Only, none: true}")
    spawner = make_spawner(menu=[], menu_file=str(file))
    file.write_text("- {display_name: [broken")
    with caplog.at_level(logging.WARNING):
        assert [e.id for e in spawner.mig_menu] == ["only"]
    assert "The menu from before holds on" in caplog.text


async def test_the_token_comes_from_the_environment_and_is_never_shown(
    make_spawner: MakeSpawner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MIG_ALLOCATOR_TOKEN", "from-the-environment")
    spawner = MIGSpawner(_mock=True)
    assert spawner.allocator_token == "from-the-environment"
    assert "from-the-environment" not in repr(spawner)
    assert "from-the-environment" not in caplog.text


async def test_every_trait_of_ours_says_what_it_is_for() -> None:
    own = set(MIGSpawner.class_traits(config=True)) - set(KubeSpawner.class_traits(config=True))
    assert len(own) == 24
    for name in own:
        assert len(MIGSpawner.class_traits()[name].help.strip()) > 60, name


class Unreachable:
    """A cluster that nobody answers for."""

    async def read_namespaced_pod(self, *_: Any) -> None:
        raise OSError("no route")
