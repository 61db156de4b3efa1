"""The menu at the allocator: who may have what, by whatever way they ask, and what they see of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.errors import AllocatorRefused, InvalidRequest
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRequest, LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig

MENU: dict[str, Any] = {
    "contact": "gpu-help@example.org",
    "currency": "credits",
    "entries": [
        {"id": "cpu", "display_name": "No GPU", "none": True},
        {"id": "small", "display_name": "Small", "profile": "1g.10gb", "price": 0.5},
        {"id": "middle", "display_name": "Middle", "profile": "2g.20gb", "groups": ["research"], "duration": 3600},
        {"id": "night", "display_name": "Night", "profile": "4g.40gb", "hours": ["Mon-Fri 22:00-06:00"]},
        {"id": "march", "display_name": "March", "whole": True, "from": "2026-03-10", "until": "2026-03-20"},
        {"id": "secret", "display_name": "Secret", "profile": "7g.80gb", "users": ["root"], "hide": True},
    ],
}


@pytest.fixture
async def rig(make_rig: MakeRig) -> Rig:
    rig = await make_rig(menu=MENU)
    await rig.node()
    return rig


def asks(user: str = "ann", *, groups: tuple[str, ...] = (), **more: Any) -> LeaseRequest:
    return LeaseRequest(holder=HolderDocument(user_id=user, user_name=user), groups=groups, **more)


async def refused(rig: Rig, request: LeaseRequest) -> tuple[int, str, str]:
    with pytest.raises(AllocatorRefused) as caught:
        await rig.hub.acquire(request)
    return caught.value.status, caught.value.code, str(caught.value)


async def test_a_choice_stands_for_what_its_entry_says(rig: Rig) -> None:
    lease = await rig.hub.acquire(asks(choice="middle", groups=("research",)))
    assert (lease.asked, lease.choice, lease.state) == ("2g.20gb", "middle", LeaseState.GRANTED)
    assert lease.placement is not None
    assert lease.placement.expires_at is not None
    assert (lease.placement.expires_at - lease.placement.granted_at).total_seconds() == 3600


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ({"accelerator_partition_type": "mig-1g.10gb"}, ("1g.10gb", "small")),
        ({"choice": "small", "accelerator_partition_type": "1g.10gb"}, ("1g.10gb", "small")),
        ({"min_memory": 8}, ("1g.10gb", "small")),
        ({"choice": "1g.10gb", "accelerator_partition_type": "1g.10gb"}, ("1g.10gb", "small")),
        ({"min_memory": 11, "groups": ("research",)}, ("2g.20gb", "middle")),
        ({"min_memory": 11, "groups": ("research",), "duration": 60}, ("2g.20gb", "middle")),
    ],
)
async def test_a_request_without_a_choice_is_served_by_what_the_menu_has_for_it(
    rig: Rig, asked: dict[str, Any], served: tuple[str, str]
) -> None:
    lease = await rig.hub.acquire(asks(**asked))
    assert (lease.asked, lease.choice) == served
    again = await rig.hub.acquire(asks(**asked))
    assert again.lease_id == lease.lease_id


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({"choice": "smal"}, "not-on-menu", "'smal' is not on the menu. Did you mean 'small'?"),
        ({"choice": "3g.40gb", "accelerator_partition_type": "3g.40gb"}, "not-on-menu", "3g.40gb is not on the menu"),
        ({"choice": "whole"}, "not-offered", "March (march) is not to be had for ann."),
        ({"choice": "xyz"}, "not-on-menu", "It has small, middle, night, march."),
        ({"choice": "cpu"}, "not-on-menu", "there is nothing to lease"),
        ({"choice": "small", "accelerator_partition_type": "2g.20gb"}, "not-on-menu", "is 1g.10gb, not 2g.20gb"),
        ({"accelerator_partition_type": "3g.40gb"}, "not-on-menu", "3g.40gb is not on the menu"),
        ({"min_memory": 100}, "not-on-menu", "At least 100 GB is not on the menu"),
        ({"choice": "middle"}, "not-offered", "It is for the group research. Ask gpu-help@example.org."),
        ({"min_memory": 11}, "not-offered", "Middle (middle) is not to be had for ann. It is for the group research."),
        ({"choice": "night"}, "not-offered", "It can be had Mon-Fri 22:00-06:00 (UTC) only."),
        ({}, "not-offered", "March (march) is not to be had for ann. It can be had from 2026-03-10 on."),
        ({"choice": "secret", "groups": ("root",)}, "not-offered", "whom an admin has named"),
    ],
)
async def test_the_refusal_names_the_rule(rig: Rig, asked: dict[str, Any], code: str, says: str) -> None:
    status, got, detail = await refused(rig, asks(**asked))
    assert (status, got) == ({"not-on-menu": 422, "not-offered": 403}[code], code)
    assert says in detail
    assert (await rig.hub.leases()).leases == ()


async def test_alternatives_are_decided_by_the_menu_as_well(rig: Rig) -> None:
    small, middle = {"accelerator_partition_type": "1g.10gb"}, {"min_memory": 15}
    request = asks(choice="small", alternatives=[middle], groups=("research",))
    await rig.acquire("blocker", "1g.10gb")
    for other in range(6):
        await rig.acquire(f"other-{other}", "1g.10gb")
    lease = await rig.hub.acquire(request)
    assert (lease.asked, lease.alternatives, lease.choice) == ("1g.10gb", ("2g.20gb",), "small")
    assert (await rig.hub.acquire(request)).lease_id == lease.lease_id
    assert (await refused(rig, asks("bob", choice="small", alternatives=[middle])))[1] == "not-offered"
    taboo = {"accelerator_partition_type": "3g.40gb"}
    assert (await refused(rig, asks("bob", choice="small", alternatives=[small, taboo])))[1] == "not-on-menu"


async def test_a_device_by_name_is_given_by_the_entry_of_its_profile(make_rig: MakeRig) -> None:
    rig = await make_rig(menu=MENU)
    node = await rig.node(dynamic=False)
    device, other = node.board.add("1g.10gb", 0), node.board.add("3g.40gb", 4)
    await node.report()
    assert (await rig.hub.acquire(asks(mig_uuid=device.mig_uuid))).choice == "small"
    assert (await refused(rig, asks("bob", mig_uuid=other.mig_uuid)))[1] == "not-on-menu"
    assert (await refused(rig, asks("bob", mig_uuid="MIG-nobody-knows")))[1] == "not-on-menu"


async def test_what_is_held_is_held_whatever_the_rules_say_later(rig: Rig) -> None:
    rig.clock.move(86400 + 23 * 3600)  # Monday, 23:00
    lease = await rig.hub.acquire(asks(choice="night"))
    rig.clock.move(8 * 3600)
    assert (await rig.hub.acquire(asks(choice="night"))).lease_id == lease.lease_id
    assert (await rig.hub.acquire(asks(accelerator_partition_type="4g.40gb"))).lease_id == lease.lease_id
    assert (await refused(rig, asks("bob", choice="night")))[1] == "not-offered"
    assert (await refused(rig, asks(choice="small")))[1] == "conflict"


async def test_without_a_menu_a_choice_is_but_a_name(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.node()
    lease = await rig.hub.acquire(asks(choice="anything", accelerator_partition_type="1g.10gb"))
    assert (lease.asked, lease.choice) == ("1g.10gb", "anything")
    async with rig.http() as http:
        assert (await http.get("api/v1/menu")).json()["entries"] == []


async def see(rig: Rig, query: str = "", token: str | None = None) -> dict[str, Any]:
    async with rig.http(*([token] if token is not None else [])) as http:
        answer = await http.get(f"api/v1/menu{query}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_an_admin_sees_it_as_somebody_at_some_day(rig: Rig) -> None:
    seen = await see(rig, "?user=ann&group=research&group=staff&date=2026-03-12")
    assert (seen["contact"], seen["currency"], seen["timezone"]) == ("gpu-help@example.org", "credits", "UTC")
    allowed = {entry["id"]: (entry["allowed"], entry["reason"]) for entry in seen["entries"]}
    assert allowed == {
        "cpu": (True, ""),
        "small": (True, ""),
        "middle": (True, ""),
        "night": (False, "It can be had Mon-Fri 22:00-06:00 (UTC) only."),
        "march": (True, ""),
    }
    assert all(entry["users"] == entry["groups"] == [] for entry in seen["entries"])
    assert seen["entries"][4]["from"] == "2026-03-10"


async def test_who_sees_everything_sees_for_whom_each_entry_is(rig: Rig) -> None:
    entries = {entry["id"]: entry for entry in (await see(rig))["entries"]}
    assert entries["secret"]["users"] == ["root"]
    assert entries["middle"]["groups"] == ["research"]


def write(path: Path, *profiles: str, contact: str = "ann") -> None:
    entries = "".join(f"\n  - {{display_name: '{p}', id: '{p}', profile: {p}}}" for p in profiles)
    path.write_text(f"contact: {contact}\nentries:{entries}\n", encoding="utf-8")


async def test_a_changed_file_holds_at_once_and_touches_nobody(
    make_rig: MakeRig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mig_spawner")
    path = tmp_path / "menu.yaml"
    write(path, "1g.10gb", "2g.20gb")
    rig = await make_rig(menu_file=str(path))
    await rig.node()
    lease = await rig.hub.acquire(asks(accelerator_partition_type="2g.20gb"))
    write(path, "1g.10gb", "3g.40gb", contact="bob")
    await rig.tick()
    assert [entry["id"] for entry in (await see(rig))["entries"]] == ["1g.10gb", "3g.40gb"]
    assert (await refused(rig, asks("bob", accelerator_partition_type="2g.20gb")))[1] == "not-on-menu"
    kept: LeaseDocument = await rig.hub.acquire(asks(accelerator_partition_type="2g.20gb"))
    assert kept.lease_id == lease.lease_id
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("The menu has changed")]
    assert said == [
        "The menu has changed: contact: ann became bob",
        "The menu has changed: 3g.40gb is new (3g.40gb)",
        "The menu has changed: 2g.20gb is gone",
    ]


@pytest.mark.parametrize("broken", ["entries: [{display_name: x}]", "a: [", "\x00"])
async def test_a_broken_file_changes_nothing_and_is_said_once(
    make_rig: MakeRig, tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    path = tmp_path / "menu.yaml"
    write(path, "1g.10gb")
    rig = await make_rig(menu_file=str(path))
    path.write_text(broken, encoding="utf-8")
    await rig.tick()
    await rig.tick()
    seen = await see(rig)
    assert [entry["id"] for entry in seen["entries"]] == ["1g.10gb"]
    assert str(path) in seen["problem"]
    assert (await see(rig, "?user=ann"))["problem"] == ""
    said = [r.getMessage() for r in caplog.records if "holds on" in r.getMessage()]
    assert len(said) == 1
    assert str(path) in said[0]
    write(path, "1g.10gb")
    await rig.tick()
    assert (await see(rig))["problem"] == ""


async def test_it_does_not_start_with_a_broken_file(make_rig: MakeRig, tmp_path: Path) -> None:
    path = tmp_path / "menu.yaml"
    path.write_text("entries: 3", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"menu\.yaml"):
        await make_rig(menu_file=str(path))
