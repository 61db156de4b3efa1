"""Hubs whose next life is another one: of a later version, with another class of spawners, or without the database."""

from __future__ import annotations

import json
import secrets
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, Person, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]

STATES = sorted((Path(__file__).parent / "state").glob("*.json"))
"""What hubs wrote of running servers: one file for each version that people come from, recorded with it."""


async def lease_of(desk: Desk, person: Person) -> Any:
    [lease] = [x for x in (await desk.allocator.leases()).leases if x.holder.user_name == person.name]
    return lease


async def number_up_to(desk: Desk, number: int) -> None:
    """Make people, until the next one gets this number."""
    there = len((await desk.hub.get("users")).json())
    names = [f"other-{secrets.token_hex(4)}" for _ in range(number - 1 - there)]
    if names:
        (await desk.hub.post("users", json={"usernames": names})).raise_for_status()


async def uid_of(person: Person) -> str:
    pod = await person.pod()
    assert pod is not None
    return str(pod["metadata"]["uid"])


@pytest.mark.parametrize("choice", ["slice", "none"])
@pytest.mark.parametrize("recorded", STATES, ids=lambda path: path.stem)
async def test_servers_of_an_older_version_go_on_and_give_back(
    desk: Desk, world: World, recorded: Path, choice: str
) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small" if choice == "slice" else "none"})
    await desk.until(ada.ready)
    lease = await lease_of(desk, ada) if choice == "slice" else None
    world.hub.kill(signal.SIGTERM)
    old = json.loads(recorded.read_text())[choice]
    name = old["state"]["pod_name"].removeprefix("jupyter-")
    text = json.dumps(old["state"]).replace(name, ada.name)
    if lease is not None:
        text = text.replace(old["state"]["mig"]["lease_id"], lease.lease_id)
    with closing(sqlite3.connect(world.database)) as database, database:
        written = database.execute(
            "update spawners set state = ?, user_options = ? where user_id = (select id from users where name = ?)",
            (text, json.dumps(old["user_options"]), ada.name),
        )
        assert written.rowcount == 1
    world.start_hub()
    await desk.until(ada.ready)
    assert (await ada.environment()).get("MIG_PROFILE") == (None if lease is None else "1g.10gb")
    await ada.stop()
    await desk.until(desk.all_free)
    if lease is not None:
        assert await desk.was_stopped(lease.lease_id)
    await ada.start()
    await desk.until(ada.ready)
    assert (await ada.environment()).get("MIG_PROFILE") == (None if lease is None else "1g.10gb"), "the saved choice"
    await ada.stop()
    await desk.clean(ada)


async def test_a_hub_that_goes_back_to_kubespawner_and_then_forth_leaves_running_servers_alone(
    desk: Desk, world: World
) -> None:
    ada, bob, eve = [await desk.person(name) for name in ("ada", "bob", "eve")]
    for person in (ada, bob):
        await person.start({"mig": "small"})
        await desk.until(person.ready)
    before = [(await lease_of(desk, person)).lease_id for person in (ada, bob)]
    pods = [await uid_of(person) for person in (ada, bob)]
    world.hub.kill(signal.SIGTERM)
    world.start_hub(spawner_class="kubespawner.KubeSpawner")
    for person, lease_id, pod in zip((ada, bob), before, pods, strict=True):
        await desk.until(person.ready)
        assert await uid_of(person) == pod
        assert (await lease_of(desk, person)).lease_id == lease_id
    # Whoever starts now has no GPU, also where a slice was chosen before; the page of a start is JupyterHub's own.
    world.knobs.stuck_pending = "*"
    assert (await eve.start()).status_code == 202
    async with desk.log_in(eve.name) as browser:
        page = await browser.get(f"/hub/spawn-pending/{eve.name}")
        assert page.status_code == 200
        assert "mig-room" not in page.text
    world.knobs.stuck_pending = None
    await desk.until(eve.ready)
    await ada.stop()
    await desk.until(ada.stopped)

    async def only_bob() -> bool:
        return [x.holder.user_name for x in (await desk.allocator.leases()).leases] == [bob.name]

    await desk.until(only_bob, "the pod is gone, so its slice is free, although nobody gave it back")
    await ada.start()
    await desk.until(ada.ready)
    assert "MIG_PROFILE" not in await ada.environment()
    world.hub.kill(signal.SIGTERM)
    world.start_hub()
    for person in (ada, bob, eve):
        await desk.until(person.ready)
    assert await uid_of(bob) == pods[1]
    await bob.stop()
    await desk.until(desk.all_free)
    assert await desk.was_stopped(before[1])
    for person in (ada, eve):
        await person.stop()
    await desk.clean(ada)


async def test_a_hub_that_lost_its_database_gives_nobody_the_slice_of_somebody_else(desk: Desk, world: World) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    lost = await lease_of(desk, ada)
    world.hub.kill(signal.SIGTERM)
    world.database.unlink()
    world.start_hub()
    # Numbers of users begin anew, so somebody else gets hers, and is the same holder by it.
    await number_up_to(desk, int(lost.holder.user_id))
    bob = await desk.person("bob")
    assert (await desk.allocator.lease(lost.lease_id)).state == "active", "her server runs on, unknown to the hub"
    await bob.start({"mig": "small"})
    messages = [
        e["message"] for e in await bob.progress(lambda e: "given back" in e["message"] or bool(e.get("ready")))
    ]
    assert "still being given back" in messages[-1], messages
    assert await bob.pod() is None
    # Her pod ends: by hand, or because no server has it.
    (await desk.kube.delete(f"pods/jupyter-{ada.name}", params={"gracePeriodSeconds": 0})).raise_for_status()
    await desk.until(bob.ready)
    taken = await lease_of(desk, bob)
    assert taken.holder.user_id == lost.holder.user_id
    assert taken.lease_id != lost.lease_id
    await bob.stop()
    await desk.clean(bob)


@pytest.mark.parametrize("same_number", [True, False])
async def test_who_starts_again_at_a_hub_that_lost_its_database_replaces_the_pod(
    desk: Desk, world: World, same_number: bool
) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    lost, pod = await lease_of(desk, ada), await uid_of(ada)
    world.hub.kill(signal.SIGTERM)
    world.database.unlink()
    world.start_hub()
    await number_up_to(desk, int(lost.holder.user_id) + (not same_number))
    (await desk.hub.post(f"users/{ada.name}")).raise_for_status()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    assert await uid_of(ada) != pod

    async def new_one() -> bool:
        [*found] = (await desk.allocator.leases()).leases
        return len(found) == 1 and found[0].lease_id != lost.lease_id

    await desk.until(new_one, "the former lease has ended with its pod")
    assert ((await lease_of(desk, ada)).holder.user_id == lost.holder.user_id) == same_number
    await ada.stop()
    await desk.clean(ada)
