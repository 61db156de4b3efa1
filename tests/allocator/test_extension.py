"""Keeping a lease for longer: how far menu and quotas let it, and what is against it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseExtension, LeaseRequest
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import EPOCH, Rig

HOUR = 3600
MENU: dict[str, Any] = {
    "contact": "gpu-help",
    "entries": [
        {"id": "small", "display_name": "Small", "profile": "1g.10gb", "duration": HOUR, "max_duration": 3 * HOUR},
        {"id": "fixed", "display_name": "Fixed", "profile": "2g.20gb", "duration": HOUR},
        {"id": "free", "display_name": "Free", "profile": "3g.40gb", "groups": ["lab"]},
    ],
    "quotas": [{"per": "person", "gpu_hours": 1, "window": "7d"}],
}
PATIENT = dict.fromkeys(("node_silent_after", "make_timeout", "ready_timeout", "heartbeat_timeout"), 10_000_000)


async def extend(rig: Rig, lease: LeaseDocument, hours: float) -> LeaseDocument:
    return await rig.hub.extend(lease.lease_id, LeaseExtension(duration=hours * HOUR))


async def refused(rig: Rig, lease: LeaseDocument, hours: float) -> tuple[str, str]:
    with pytest.raises(AllocatorRefused) as caught:
        await extend(rig, lease, hours)
    return caught.value.code, str(caught.value)


def length(lease: LeaseDocument) -> timedelta:
    assert lease.placement is not None
    return lease_end(lease) - lease.placement.granted_at


def lease_end(lease: LeaseDocument) -> datetime:
    assert lease.placement is not None
    assert lease.placement.expires_at is not None
    return lease.placement.expires_at


async def of_menu(rig: Rig, choice: str, **more: Any) -> LeaseDocument:
    holder = HolderDocument(user_id="ann", user_name="ann")
    return await rig.hub.acquire(LeaseRequest(holder=holder, choice=choice, **more))


@pytest.mark.parametrize("state", ["granted", "ready", "active"])
async def test_a_lease_goes_on_until_the_new_end(rig: Rig, state: str) -> None:
    node = await rig.node()
    lease = await rig.acquire("1", duration=HOUR)
    if state != "granted":
        await node.turn()
    if state == "active":
        await rig.hub.renew(lease.lease_id)
    longer = await extend(rig, lease, 2)
    assert (longer.state, length(longer)) == (state, timedelta(hours=2))
    assert length(await extend(rig, lease, 2)) == timedelta(hours=2), "doing it twice does no harm"
    assert length(await extend(rig, lease, 1)) == timedelta(hours=2), "it is never shortened"
    rows = [row for row in rig.audit(lease) if "extended" in row.why]
    assert [(row.before, row.after, row.who, row.why) for row in rows] == [(state, state, "hub", "extended by 1 h")]


async def test_it_ends_when_the_new_end_has_come(make_rig: MakeRig) -> None:
    rig = await make_rig(**PATIENT)
    await rig.node()
    lease = await rig.active("1", duration=HOUR)
    await extend(rig, lease, 2)
    await rig.tick(HOUR + 60)
    assert (await rig.state(lease)).state == "active"
    await rig.tick(HOUR)
    assert (await rig.state(lease)).reason == "expired"


async def test_who_is_warned_of_the_old_end_is_warned_of_the_new_one(make_rig: MakeRig) -> None:
    rig = await make_rig(**PATIENT, expiry_warning=600)
    await rig.node()
    lease = await rig.active("1", duration=HOUR)
    await rig.tick(HOUR - 300)
    assert _warned(rig) == {lease_end(lease)}
    longer = await extend(rig, lease, 2)
    await rig.tick(HOUR)
    assert _warned(rig) == {lease_end(longer)}


def _warned(rig: Rig) -> set[datetime]:
    with rig.app.desk.store.reading() as tx:
        return {ends for _, ends in tx.warned()}


async def test_the_menu_says_how_far(make_rig: MakeRig) -> None:
    rig = await make_rig(menu=MENU, **PATIENT)
    await rig.node()
    lease = await of_menu(rig, "small")
    assert length(lease) == timedelta(hours=1)
    said = "Small (small) may be kept for 3 h in all. For more ask gpu-help."
    assert await refused(rig, lease, 4) == (
        "not-offered",
        f"{said} It can be extended until {EPOCH + timedelta(hours=3):%Y-%m-%d %H:%M} UTC.",
    )
    assert length(await extend(rig, lease, 3)) == timedelta(hours=3)
    assert await refused(rig, lease, 4) == ("not-offered", f"{said} It cannot be extended.")


async def test_without_more_in_the_menu_the_duration_is_all(make_rig: MakeRig) -> None:
    rig = await make_rig(menu=MENU, **PATIENT)
    await rig.node()
    code, said = await refused(rig, await of_menu(rig, "fixed"), 2)
    assert (code, said) == (
        "not-offered",
        "Fixed (fixed) may be kept for 1 h in all. For more ask gpu-help. It cannot be extended.",
    )


async def test_the_hours_that_are_left_say_how_far(make_rig: MakeRig) -> None:
    """Of one GPU-hour half is used after an hour on half a GPU: another hour is left."""
    rig = await make_rig(menu=MENU, **PATIENT)
    await rig.node()
    lease = await of_menu(rig, "free", duration=1.5 * HOUR, groups=("lab",))
    rig.clock.move(HOUR)
    code, said = await refused(rig, lease, 3)
    assert code == "quota"
    assert said.startswith(
        "You have used 0.5 of 1 GPU-hours of the last 7 days. It can be extended until 2026-03-01 02:00 UTC."
    )
    assert length(await extend(rig, lease, 1.9)) == timedelta(hours=1.9)


async def test_who_may_not_have_it_any_more_may_not_extend_it(make_rig: MakeRig) -> None:
    night = {
        "entries": [{"id": "night", "display_name": "Night", "profile": "1g.10gb", "hours": ["Sat-Sun 00:00-06:00"]}]
    }
    rig = await make_rig(menu=night, **PATIENT)
    await rig.node()
    lease = await of_menu(rig, "night", duration=HOUR)
    assert length(await extend(rig, lease, 8)) == timedelta(hours=8)
    rig.clock.move(7 * HOUR)
    code, said = await refused(rig, lease, 9)
    assert code == "not-offered"
    assert said.startswith("Night (night) is not to be had for ann.")
    assert said.endswith("It cannot be extended.")


async def test_a_cordoned_node_is_left_to_empty(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", duration=HOUR)
    async with rig.http() as http:
        await http.post("api/v1/nodes/n1/cordon")
    assert await refused(rig, lease, 2) == ("conflict", "An admin has cordoned node n1. It cannot be extended.")


async def test_a_gpu_that_is_emptied_for_somebody_is_left_to_empty(make_rig: MakeRig) -> None:
    rig = await make_rig(**PATIENT, starvation_after=60)
    await rig.node()
    lease = await rig.active("1", duration=HOUR)
    await rig.acquire("2", None)
    await rig.tick(120)
    code, said = await refused(rig, lease, 2)
    assert (code, said) == (
        "conflict",
        "Its GPU is being emptied for somebody who has waited for long. It cannot be extended.",
    )


async def test_what_cannot_be_extended(rig: Rig) -> None:
    node = await rig.node()
    endless = await rig.active("1")
    queued = await rig.acquire("2", None, duration=HOUR)
    over = await rig.acquire("3", "1g.10gb", wait_budget=0, duration=HOUR)
    assert [await refused(rig, lease, 2) for lease in (endless, queued, over)] == [
        ("conflict", "This lease has no end: there is nothing to extend."),
        ("conflict", "This lease waits. Change for how long it is wanted."),
        ("conflict", "This lease has ended: it cannot be extended. Ask for a new one."),
    ]
    await node.turn()
