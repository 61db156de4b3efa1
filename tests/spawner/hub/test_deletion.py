"""Servers and people that are deleted or get another name: what they hold goes with them, or comes along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jupyterhub
import pytest

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def test_a_user_who_is_deleted_leaves_nothing(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)

    async def deleted() -> bool:
        # A hub refuses while a server stops.
        return (await ada.delete()).status_code in {204, 404}

    await desk.until(deleted)
    await desk.until(desk.all_free)
    assert await ada.pod() is None


@pytest.mark.parametrize("options", ["small", "all"], ids=["running", "waiting"])
async def test_a_named_server_that_is_removed_leaves_nothing(desk: Desk, options: str) -> None:
    ada, bob = await desk.person("ada"), await desk.person("bob")
    waits = options == "all"
    if waits:
        await bob.start({"mig": "small"})
        await desk.until(bob.ready)
    await ada.start({"mig": options}, server="servers/second")

    async def there() -> bool:
        server = await ada.server("second")
        holders = {x.holder.server_name for x in (await desk.allocator.leases()).leases}
        return bool("second" in holders and server and (waits or server["ready"]))

    await desk.until(there)
    assert (await ada.stop("servers/second", remove=True)).status_code in {202, 204}

    async def gone() -> bool:
        leases = (await desk.allocator.leases()).leases
        return await ada.server("second") is None and {x.holder.server_name for x in leases} <= {""}

    await desk.until(gone)
    await bob.stop()
    await desk.until(desk.all_free)
    assert await ada.pod() is None


@pytest.mark.skipif(jupyterhub.version_info < (6,), reason="JupyterHub 5 cannot rename servers")
async def test_a_renamed_server_starts_with_a_lease_of_its_new_name(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"}, server="servers/first")

    async def ready() -> bool:
        return bool((await ada.server("first") or {}).get("ready"))

    await desk.until(ready)
    refused = await ada.change("/servers/first", name="other")
    assert refused.status_code >= 400, "not while it runs"
    await ada.stop("servers/first")
    await desk.until(desk.all_free)
    assert (await ada.change("/servers/first", name="other")).status_code == 200
    await ada.start({"mig": "small"}, server="servers/other")

    async def ready_again() -> bool:
        return bool((await ada.server("other") or {}).get("ready"))

    await desk.until(ready_again)
    assert [x.holder.server_name for x in (await desk.allocator.leases()).leases] == ["other"]


async def test_a_user_who_gets_another_name_keeps_the_lease_and_gives_it_back(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [before] = (await desk.allocator.leases()).leases
    assert (await ada.change(name=f"new-{ada.name}")).status_code == 200
    [after] = (await desk.allocator.leases()).leases
    assert after.lease_id == before.lease_id
    assert await ada.ready()
    await ada.stop()
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [again] = (await desk.allocator.leases()).leases
    assert (again.holder.user_id, again.holder.user_name) == (before.holder.user_id, ada.name)
