"""Lists, selectors and watches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import watch

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

Event = tuple[str, str]


class Watching:
    """The events of a watch that runs beside the test."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    @property
    def seen(self) -> list[Event]:
        return [(event["type"], event["raw_object"]["metadata"]["name"]) for event in self.events]


@contextlib.asynccontextmanager
async def watching(cluster: Cluster, **options: Any) -> AsyncIterator[Watching]:
    """Watches the pods of the namespace while the block runs."""
    result = Watching()
    stream = watch.Watch()

    async def follow() -> None:
        options.setdefault("timeout_seconds", 30)
        async for event in stream.stream(cluster.core.list_namespaced_pod, cluster.namespace, **options):
            result.events.append(event)

    task = asyncio.create_task(follow())
    try:
        yield result
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stream.close()


async def current_revision(cluster: Cluster) -> str:
    return str((await cluster.core.list_namespaced_pod(cluster.namespace)).metadata.resource_version)


async def label(cluster: Cluster, name: str, **labels: str | None) -> None:
    await cluster.core.patch_namespaced_pod(name, cluster.namespace, {"metadata": {"labels": labels}})


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=hub", ["a"]),
        ("app==hub", ["a"]),
        ("app!=hub", ["b", "c"]),
        ("app in (hub, user)", ["a", "b"]),
        ("app notin (hub)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app=user,tier=gold", ["b"]),
        ("app=nothing", []),
    ],
)
async def test_a_label_selector_chooses(cluster: Cluster, selector: str, names: list[str]) -> None:
    await cluster.create_pod("a", labels={"app": "hub"})
    await cluster.create_pod("b", labels={"app": "user", "tier": "gold"})
    await cluster.create_pod("c")
    found = await cluster.core.list_namespaced_pod(cluster.namespace, label_selector=selector)
    assert [pod.metadata.name for pod in found.items] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("status.phase=Pending", ["a", "b"]),
        ("status.phase!=Pending", []),
        ("spec.nodeName=there,status.phase=Pending", ["b"]),
    ],
)
async def test_a_field_selector_chooses(cluster: Cluster, selector: str, names: list[str]) -> None:
    await cluster.create_pod("a", nodeSelector={"no": "such-node"})
    await cluster.create_pod("b", nodeName="there")
    found = await cluster.core.list_namespaced_pod(cluster.namespace, field_selector=selector)
    assert [pod.metadata.name for pod in found.items] == names


@pytest.mark.parametrize("selector", ["spec.unheard=x", "nonsense"])
async def test_an_unknown_field_selector_is_a_bad_request(cluster: Cluster, selector: str) -> None:
    with cluster.refused(400):
        await cluster.core.list_namespaced_pod(cluster.namespace, field_selector=selector)


async def test_a_broken_label_selector_is_a_bad_request(cluster: Cluster) -> None:
    with cluster.refused(400):
        await cluster.core.list_namespaced_pod(cluster.namespace, label_selector="a in (b")


async def test_a_list_tells_its_kind_and_revision(cluster: Cluster) -> None:
    pod = await cluster.create_pod()
    listed = await cluster.raw(cluster.core.list_namespaced_pod(cluster.namespace, _preload_content=False))
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) >= int(pod.metadata.resource_version)
    assert listed["items"][0]["metadata"]["namespace"] == cluster.namespace
    assert not {"kind", "apiVersion"} & listed["items"][0].keys()


async def test_a_list_of_all_namespaces_holds_this_one(cluster: Cluster) -> None:
    await cluster.create_pod()
    found = await cluster.core.list_pod_for_all_namespaces()
    assert cluster.namespace in {pod.metadata.namespace for pod in found.items}


async def test_a_list_comes_in_chunks_when_asked(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await cluster.create_pod(name)
    first = await cluster.core.list_namespaced_pod(cluster.namespace, limit=2)
    rest = await cluster.core.list_namespaced_pod(cluster.namespace, limit=2, _continue=first.metadata._continue)
    assert [pod.metadata.name for pod in first.items + rest.items] == ["a", "b", "c"]
    assert not rest.metadata._continue


async def test_a_watch_sees_what_happens_to_a_pod(cluster: Cluster) -> None:
    revision = await current_revision(cluster)
    async with watching(cluster, resource_version=revision) as watched:
        await cluster.create_pod()
        await label(cluster, "one", a="b")
        await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)

        async def is_complete() -> bool:
            return ("DELETED", "one") in watched.seen

        await cluster.wait_for(is_complete)
    kinds = [kind for kind, _ in watched.seen]
    assert kinds[0] == "ADDED"
    assert "MODIFIED" in kinds
    assert kinds[-1] == "DELETED"
    revisions = [int(event["raw_object"]["metadata"]["resourceVersion"]) for event in watched.events]
    assert revisions == sorted(set(revisions))


async def test_a_watch_without_revision_begins_with_what_is_there(cluster: Cluster) -> None:
    await cluster.create_pod()
    async with watching(cluster) as watched:

        async def saw_it() -> bool:
            return bool(watched.seen)

        await cluster.wait_for(saw_it)
    assert watched.seen[0] == ("ADDED", "one")


async def test_a_watch_goes_on_where_another_ended(cluster: Cluster) -> None:
    first = await cluster.create_pod("first")
    await cluster.create_pod("second")
    async with watching(cluster, resource_version=first.metadata.resource_version) as watched:

        async def saw_it() -> bool:
            return ("ADDED", "second") in watched.seen

        await cluster.wait_for(saw_it)
    assert ("ADDED", "first") not in watched.seen


async def test_a_watch_tells_only_what_is_selected(cluster: Cluster) -> None:
    revision = await current_revision(cluster)
    async with watching(cluster, resource_version=revision, label_selector="mine=yes") as watched:
        await cluster.create_pod("other")
        await cluster.create_pod("mine", labels={"mine": "yes"})

        async def saw_it() -> bool:
            return bool(watched.seen)

        await cluster.wait_for(saw_it)
    assert {name for _, name in watched.seen} == {"mine"}


async def test_the_end_of_what_was_held_is_told_once(cluster: Cluster) -> None:
    body = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}, "spec": cluster.pod()["spec"]}
    body["spec"]["schedulerName"] = "none"
    await cluster.core.create_namespaced_pod(cluster.namespace, body)
    await cluster.core.delete_namespaced_pod("held", cluster.namespace)
    async with watching(cluster, resource_version=await current_revision(cluster)) as watched:
        steps = [{"op": "remove", "path": "/metadata/finalizers"}]
        await cluster.core.patch_namespaced_pod("held", cluster.namespace, steps)

        async def saw_it() -> bool:
            return ("DELETED", "held") in watched.seen

        await cluster.wait_for(saw_it)
    assert watched.seen == [("DELETED", "held")]


async def test_entering_a_selection_is_added_and_leaving_it_is_deleted(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    revision = await current_revision(cluster)
    async with watching(cluster, resource_version=revision, label_selector="mine=yes") as watched:
        await label(cluster, "one", mine="yes")
        await label(cluster, "one", mine="no")

        async def is_complete() -> bool:
            return ("DELETED", "one") in watched.seen

        await cluster.wait_for(is_complete)
    assert watched.seen[0] == ("ADDED", "one")
    assert (await cluster.core.read_namespaced_pod("one", cluster.namespace)).metadata.labels["mine"] == "no"


async def test_a_watch_ends_after_its_timeout(cluster: Cluster) -> None:
    async with asyncio.timeout(10):
        async with watch.Watch() as stream:
            async for _ in stream.stream(cluster.core.list_namespaced_pod, cluster.namespace, timeout_seconds=1):
                pass


async def test_a_list_from_the_future_is_refused(cluster: Cluster) -> None:
    ahead = str(int(await current_revision(cluster)) + 1_000_000)
    with cluster.refused(504) as refusal:
        await cluster.core.list_namespaced_pod(
            cluster.namespace, resource_version=ahead, resource_version_match="NotOlderThan"
        )
    assert "Too large resource version" in refusal.message
