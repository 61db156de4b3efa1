"""Quotas over HTTP: what is refused, how, and what is shown of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mig_spawner.domain.lease import PodFate
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRequest, LeaseState
from mig_spawner.wire.quota import UsageKey
from tests.allocator.conftest import MakeRig
from tests.allocator.process import AllocatorProcess
from tests.allocator.rig import EPOCH, Rig

HOUR = 3600
# Hours pass here in which no agent reports and no server says that it lives.
PATIENT: dict[str, Any] = dict.fromkeys(
    ("node_silent_after", "make_timeout", "ready_timeout", "heartbeat_timeout"), 10_000_000
)


async def limited(make_rig: MakeRig, *quotas: dict[str, Any], **more: Any) -> Rig:
    """An allocator with these quotas, and two GPUs."""
    rig = await make_rig(menu={"quotas": list(quotas), "contact": "gpu-help"}, **PATIENT, **more)
    await rig.node(models=("a100-80gb", "a100-80gb"))
    return rig


def asks(user: str, server: str = "", profile: str | None = "1g.10gb", **more: Any) -> LeaseRequest:
    holder = HolderDocument(user_id=user, user_name=user, server_name=server)
    return LeaseRequest(holder=holder, accelerator_partition_type=profile, **more)


async def refused(rig: Rig, request: LeaseRequest) -> str:
    with pytest.raises(AllocatorRefused) as caught:
        await rig.hub.acquire(request)
    assert (caught.value.status, caught.value.code) == (403, "quota")
    return str(caught.value)


async def give_back(rig: Rig, lease: LeaseDocument) -> None:
    await rig.release(lease)
    await rig.nodes["n1"].turn(2)


async def test_one_slice_a_person_over_all_servers(make_rig: MakeRig) -> None:
    rig = await limited(make_rig, {"per": "person", "slices": 1, "name": "One each"})
    lease = await rig.hub.acquire(asks("ann"))
    said = await refused(rig, asks("ann", "other"))
    assert said == (
        "You have or wait for 1 of 1 slice (One each). Give one back first; what is still being released counts until it is free. "
        "For more ask gpu-help."
    )
    assert (await rig.hub.acquire(asks("ann"))).lease_id == lease.lease_id
    [quota] = (await rig.hub.menu(user="ann")).quotas
    assert (quota.used, quota.left) == (1, 0), "the form says it without asking more"
    assert (await rig.hub.acquire(asks("bob"))).state is LeaseState.GRANTED
    await give_back(rig, lease)
    assert (await rig.hub.acquire(asks("ann", "other"))).state is LeaseState.GRANTED


async def test_a_person_is_one_whoever_asks_for_them(make_rig: MakeRig) -> None:
    """The hub knows them by number, they themselves by name."""
    rig = await limited(make_rig, {"per": "person", "slices": 1})
    await rig.hub.acquire(LeaseRequest(holder=HolderDocument(user_id="17", user_name="ann"), min_memory=5))
    holder = HolderDocument(user_id="name:ann", user_name="ann")
    assert "1 of 1" in await refused(rig, LeaseRequest(holder=holder, min_memory=5))


async def test_who_waits_has_it_as_good_as_held(make_rig: MakeRig) -> None:
    rig = await limited(make_rig, {"per": "person", "slices": 2})
    for user in ("a", "b"):
        await rig.hub.acquire(asks(user, profile=None))
    assert (await rig.hub.acquire(asks("ann", "1"))).state is LeaseState.QUEUED
    assert (await rig.hub.acquire(asks("ann", "2"))).state is LeaseState.QUEUED
    assert "2 of 2 slices" in await refused(rig, asks("ann", "3"))


async def test_memory_and_compute_are_counted_in_their_units(make_rig: MakeRig) -> None:
    rig = await limited(
        make_rig, {"per": "person", "memory_gb": 30}, {"per": "group", "groups": ["lab"], "compute_share": 0.5}
    )
    await rig.hub.acquire(asks("ann", profile="2g.20gb"))
    assert "20 of 30 GB of GPU memory" in await refused(rig, asks("ann", "2", "2g.20gb"))
    await rig.hub.acquire(asks("ann", "2", "1g.10gb"))
    said = await refused(rig, asks("bob", profile="3g.40gb"))
    assert said.startswith("3g.40gb is 40 GB of GPU memory, more than you may have at once: 30 GB of GPU memory.")
    lab: dict[str, Any] = {"groups": ("lab",)}
    await rig.hub.acquire(asks("cat", profile="2g.20gb", **lab))
    said = await refused(rig, asks("dan", profile="2g.20gb", **lab))
    assert said.startswith("All in the group lab have or wait for 0.26 of 0.5 GPUs by compute")


async def test_every_alternative_must_be_within(make_rig: MakeRig) -> None:
    rig = await limited(make_rig, {"per": "person", "memory_gb": 20})
    large = [{"accelerator_partition_type": "3g.40gb"}]
    assert "3g.40gb is 40 GB" in await refused(rig, asks("ann", alternatives=large))


async def test_all_together_and_the_tightest_is_named(make_rig: MakeRig) -> None:
    rig = await limited(
        make_rig, {"per": "hub", "slices": 2, "name": "The rest is for the course"}, {"per": "person", "slices": 2}
    )
    await rig.hub.acquire(asks("ann", duration=HOUR))
    await rig.hub.acquire(asks("bob", duration=2 * HOUR))
    said = await refused(rig, asks("ann", "2"))
    until = f"{EPOCH + timedelta(hours=1):%Y-%m-%d %H:%M} UTC"
    assert said == (
        "All people here have or wait for 2 of 2 slices (The rest is for the course). "
        f"There is room again at the latest from {until} on. For more ask gpu-help."
    )


async def test_gpu_hours_of_a_rolling_window(make_rig: MakeRig) -> None:
    rig = await limited(make_rig, {"per": "person", "gpu_hours": 2, "window": "1d"})
    lease = await rig.hub.acquire(asks("ann", profile="3g.40gb"))
    rig.clock.move(3 * HOUR)
    await rig.nodes["n1"].turn()
    running = await rig.hub.acquire(asks("ann", "2"))
    rig.clock.move(HOUR)
    await rig.nodes["n1"].turn()
    said = await refused(rig, asks("ann", "3"))
    assert "You have used 2.13 of 2 GPU-hours of the last day." in said
    assert "2026-03-02 0" in said
    await give_back(rig, lease)
    await give_back(rig, running)
    assert "2.13 of 2" in await refused(rig, asks("ann", "3"))
    rig.clock.move(21 * HOUR)
    await rig.nodes["n1"].turn()
    assert (await rig.hub.acquire(asks("ann", "3"))).state is LeaseState.GRANTED


async def test_quotas_that_were_lowered_pass_over_who_waits_and_say_so(make_rig: MakeRig, tmp_path: Path) -> None:
    menu = tmp_path / "menu.yaml"
    menu.write_text("quotas: [{per: person, slices: 3}]", encoding="utf-8")
    rig = await make_rig(menu_file=str(menu))
    await rig.node()
    await rig.hub.acquire(asks("ann", profile="3g.40gb"))
    blocker = await rig.hub.acquire(asks("bob", profile="4g.40gb"))
    waiting = await rig.hub.acquire(asks("ann", "2", "4g.40gb"))
    behind = await rig.hub.acquire(asks("cat", profile="4g.40gb"))
    menu.write_text("quotas: [{per: person, slices: 1}]", encoding="utf-8")
    await rig.tick()
    await rig.nodes["n1"].turn()
    await rig.release(blocker)
    await rig.nodes["n1"].turn(3)
    assert (await rig.state(behind)).state in (LeaseState.GRANTED, LeaseState.READY)
    passed_over = await rig.state(waiting)
    assert (passed_over.state, passed_over.position) == (LeaseState.QUEUED, 1)
    assert "It is passed over: You have or wait for 1 of 1 slice." in passed_over.detail
    menu.write_text("quotas: [{per: person, slices: 2}]", encoding="utf-8")
    await rig.release(await rig.state(behind))
    await rig.nodes["n1"].turn(3)
    await rig.tick()
    assert (await rig.state(waiting)).placement is not None


async def test_hours_that_were_used_up_meanwhile_pass_over_who_waits(make_rig: MakeRig) -> None:
    rig = await make_rig(menu={"quotas": [{"per": "person", "gpu_hours": 1, "window": "1d"}]}, **PATIENT)
    await rig.node(models=("a100-80gb",))
    mine = await rig.hub.acquire(asks("ann", profile="4g.40gb"))
    blocker = await rig.hub.acquire(asks("bob", profile="3g.40gb"))
    waiting = await rig.hub.acquire(asks("ann", "2", "3g.40gb"))
    rig.clock.move(3 * HOUR)
    await rig.nodes["n1"].turn()
    await give_back(rig, blocker)
    passed_over = await rig.state(waiting)
    assert passed_over.state is LeaseState.QUEUED
    assert "of 1 GPU-hours of the last day" in passed_over.detail
    assert (await rig.state(mine)).state is not LeaseState.CLOSED


async def test_two_clicks_at_once_cannot_pass_a_quota_of_one(make_rig: MakeRig, tmp_path: Path) -> None:
    """Real processes on one database: whatever comes first, exactly one gets it."""
    menu = tmp_path / "menu.yaml"
    menu.write_text(yaml.safe_dump({"quotas": [{"per": "person", "slices": 1}, {"per": "hub", "slices": 4}]}))
    rig = await make_rig(clock=None, menu_file=str(menu))
    await rig.node(models=("a100-80gb", "a100-80gb"))
    async with AllocatorProcess(rig.database, rig.tokens, f"--AllocatorApp.menu_file={menu}") as process:
        other = process.client()
        rig.clients.append(other)

        codes: set[str] = set()

        async def click(user: str, server: int) -> bool:
            try:
                await (rig.hub, other)[server % 2].acquire(asks(user, str(server)))
            except AllocatorRefused as error:
                codes.add(error.code)
                return False
            return True

        for turn in range(6):
            users = [f"{turn}-{number}" for number in range(6)]
            got = await asyncio.gather(*(click(user, server) for server in range(4) for user in users))
            assert sum(got) == 4
            assert codes == {"quota"}
            found = (await rig.hub.leases()).leases
            assert len({lease.holder.user_name for lease in found}) == len(found) == 4
            for lease in found:
                await rig.release(lease, PodFate.NONE)
            await rig.nodes["n1"].turn(2)
            assert (await rig.hub.leases()).leases == ()


async def see(rig: Rig, path: str) -> Any:
    async with rig.http() as http:
        answer = await http.get(f"api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_is_left_is_shown(make_rig: MakeRig) -> None:
    rig = await limited(
        make_rig,
        {"per": "person", "slices": 2, "name": "Two each"},
        {"per": "group", "groups": ["lab"], "gpu_hours": 10, "window": "7d"},
    )
    assert await see(rig, "quotas?user=ann") == {
        "quotas": [
            {
                "name": "Two each",
                "per": "person",
                "subject": "ann",
                "unit": "slices",
                "limit": 2,
                "used": 0,
                "left": 2,
                "window": None,
                "resets_at": None,
                "contact": "gpu-help",
                "text": "You have or wait for 0 of 2 slices.",
            }
        ]
    }
    await rig.hub.acquire(asks("ann", groups=("lab",), profile="4g.40gb"))
    rig.clock.move(HOUR)
    quotas = (await see(rig, "quotas?user=bob&group=lab"))["quotas"]
    assert [(q["unit"], q["used"], q["left"], q["window"]) for q in quotas] == [
        ("slices", 0, 2, None),
        ("gpu_hours", 0.5, 9.5, 7 * 86400),
    ]
    assert (await rig.hub.quotas(user="bob", groups=["lab"])).quotas[1].left == 9.5
    assert quotas[1]["text"] == "All in the group lab have used 0.5 of 10 GPU-hours of the last 7 days."


async def test_who_used_how_much(make_rig: MakeRig) -> None:
    rig = await limited(make_rig)
    first = await rig.hub.acquire(asks("ann", profile="4g.40gb", groups=("lab", "staff")))
    rig.clock.move(HOUR)
    await rig.nodes["n1"].turn()
    await give_back(rig, first)
    await rig.hub.acquire(asks("ann", groups=("lab",)))
    await rig.hub.acquire(asks("=bob", "x", profile=None))
    rig.clock.move(HOUR)
    rows = (await see(rig, "usage"))["rows"]
    assert [(r["key"], r["leases"], r["open"], round(r["gpu_seconds"], -1)) for r in rows] == [
        ("=bob", 1, 1, 3600),
        ("ann", 2, 1, 1800 + 450),
    ]
    groups = (await see(rig, "usage?by=group"))["rows"]
    assert {r["key"]: round(r["gpu_seconds"], -1) for r in groups} == {"": 3600, "lab": 2250, "staff": 1800}
    profiles = await see(rig, "usage?by=profile&window=5400")
    assert {r["key"]: round(r["gpu_seconds"], -1) for r in profiles["rows"]} == {
        "whole": 3600,
        "4g.40gb": 900,
        "1g.10gb": 450,
    }
    assert round(profiles["gpu_seconds"], -1) == 4950
    assert [r["key"] for r in (await see(rig, "usage?user=ann"))["rows"]] == ["ann"]
    used = await rig.hub.usage(by=UsageKey.PROFILE, window_s=5400, user="ann")
    assert [row.key for row in used.rows] == ["4g.40gb", "1g.10gb"]
    async with rig.http() as http:
        answer = await http.get("api/v1/usage.csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[0] == "person,leases,open,gpu_seconds,gpu_hours,since,until"
    assert lines[1].startswith("'=bob,1,1,36")
