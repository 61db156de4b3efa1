"""Who may have what: told by the form, refused before a server is asked for, and decided by the allocator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import SpawnRefused
from mig_spawner.spawner.menu import groups_of
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.seen import SeenEntry, SeenMenu
from tests.spawner.conftest import ScriptedAllocator

MakeSpawner = Callable[..., MIGSpawner]
RULED: list[dict[str, Any]] = [
    {"id": "none", "display_name": "No GPU", "none": True},
    {"id": "small", "display_name": "Small", "profile": "1g.10gb", "price": 0.5},
    {"id": "large", "display_name": "Large", "profile": "3g.40gb", "groups": ["research"]},
    {"id": "hidden", "display_name": "Hidden", "whole": True, "users": ["root"], "hide": True},
]


def seen(**refused: str) -> SeenMenu:
    """The allocator's menu, with what it refuses and why."""
    entries = [e.model_dump(by_alias=True) for e in Menu.parse(RULED) if not e.hide]
    return SeenMenu(
        entries=tuple(
            SeenEntry.model_validate({**e, "allowed": e["id"] not in refused, "reason": refused.get(e["id"], "")})
            for e in entries
        ),
        contact="gpu-help",
        currency="credits",
    )


def groups(spawner: MIGSpawner, *names: str) -> None:
    spawner.user.groups = [SimpleNamespace(name=name) for name in names]


async def choices(spawner: MIGSpawner) -> dict[str, Tag]:
    soup = BeautifulSoup(await spawner.get_options_form(), "html.parser")
    return {str(box.select_one("input")["value"]): box for box in soup.select(".mig-choice")}  # type: ignore[index]


async def test_the_form_explains_what_a_rule_of_the_hub_is_against(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner(menu=RULED)
    shown = await choices(spawner)
    assert list(shown) == ["none", "small", "large"]
    assert shown["large"].select("input[disabled]")
    assert "It is for the group research." in shown["large"].text
    assert not shown["large"].select(".mig-free")
    assert "0.5 per hour" in shown["small"].text
    groups(spawner, "research")
    assert not (await choices(spawner))["large"].select("input[disabled]")


async def test_the_form_explains_what_a_rule_of_the_allocator_is_against(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    allocator.menu = seen(small="It can be had Sat-Sun only.")
    for menu in ([], RULED):
        shown = await choices(make_spawner(menu=menu))
        assert list(shown) == ["none", "small", "large"]
        assert "It can be had Sat-Sun only." in shown["small"].text
        assert "0.5 credits per hour" in shown["small"].text
        assert shown["none"].select("input[checked]")


@pytest.mark.parametrize("menu", [[], RULED])
async def test_a_refused_choice_is_refused_before_anything_is_asked_for(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, menu: list[dict[str, Any]]
) -> None:
    allocator.menu = seen(large="It is for the group research.")
    spawner = make_spawner(menu=menu)
    with pytest.raises(SpawnRefused, match=r"Large is not to be had for you\. It is for the group research."):
        await spawner.run_options_from_form({"mig_choice": ["large"]})
    spawner.user_options = {"mig": {"choice": "large"}}
    with pytest.raises(SpawnRefused):
        await spawner.load_user_options()
    assert allocator.bodies("leases") == []


async def test_who_chose_nothing_gets_what_they_may_have(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    allocator.menu = seen(none="It could be had until 2026-01-01.")
    assert await make_spawner(menu=[]).run_options_from_form({}) == {"mig": {"choice": "small"}}


async def test_choice_and_groups_are_said_to_the_allocator(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner(menu=RULED)
    groups(spawner, "research", "b\x00d", "", "staff")
    spawner.user_options = {"mig": "large"}
    await spawner.load_user_options()
    await spawner.get_pod_manifest()
    [body] = allocator.bodies("leases")
    assert (body["choice"], body["groups"], body["accelerator_partition_type"]) == (
        "large",
        ["research", "staff"],
        "3g.40gb",
    )
    assert [path for path in allocator.paths("GET") if path == "menu"]


@pytest.mark.parametrize(
    ("code", "status"), [("not-offered", 403), ("not-on-menu", 422), ("quota", 403), ("rate-limited", 429)]
)
async def test_the_last_word_is_the_allocators(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, code: str, status: int
) -> None:
    allocator.answers = [(status, code)]
    spawner = make_spawner(menu=RULED)
    spawner.user_options = {"mig": "small"}
    await spawner.load_user_options()
    with pytest.raises(SpawnRefused, match=f"The script says {code}") as caught:
        await spawner.get_pod_manifest()
    assert caught.value.status_code == status


def test_groups_are_as_many_and_as_long_as_the_allocator_takes() -> None:
    user = SimpleNamespace(groups=[SimpleNamespace(name=f"group-{i:03}") for i in range(300)])
    assert len(groups_of(user)) == 200
    assert groups_of(SimpleNamespace(groups=[SimpleNamespace(name="x" * 300)])) == ()
    assert groups_of(SimpleNamespace()) == ()
