"""Profiles that bring their slice along, and profiles that say which slices go with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import SpawnRefused

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

MakeSpawner = Callable[..., MIGSpawner]
SIZES = {
    "display_name": "Size",
    "choices": {
        "plain": {"display_name": "no GPU", "kubespawner_override": {"cpu_limit": 1}},
        "quarter": {"display_name": "a quarter", "kubespawner_override": {"mig_profile": "2g.20gb"}},
    },
}
PROFILES: list[dict[str, Any]] = [
    {"display_name": "Python", "slug": "python", "default": True},
    {"display_name": "PyTorch", "slug": "torch", "kubespawner_override": {"image": "t", "mig_profile": "1g.10gb"}},
    {"display_name": "Sizes", "slug": "sizes", "profile_options": {"size": SIZES}},
    {"display_name": "By need", "slug": "need", "kubespawner_override": {"mig_profile": lambda spawner: "medium"}},
    {"display_name": "Few", "slug": "few", "mig": {"allow": ["small", "3g.40gb", "gone"]}},
    {"display_name": "Any", "slug": "any", "mig": True},
    {"display_name": "No", "slug": "no", "mig": False},
]


async def chosen(spawner: MIGSpawner, **options: Any) -> str:
    """The id of what a start with these options asks for."""
    spawner.user_options = options
    await spawner.load_user_options()
    assert spawner._entry is not None
    return spawner._entry.id


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"profile": "torch"}, "small"),
        ({"profile": "torch", "mig": {"choice": "none"}}, "small"),
        ({"profile": "torch", "mig": {"choice": "small"}}, "small"),
        ({"profile": "torch", "mig": {"choice": "gone since"}}, "small"),
        ({"profile": "sizes"}, "none"),
        ({"profile": "sizes", "size": "plain"}, "none"),
        ({"profile": "sizes", "size": "quarter"}, "2g.20gb"),
        ({"profile": "sizes", "mig": "medium"}, "medium"),
        ({"profile": "need"}, "medium"),
        ({"profile": "few", "mig": "3g.40gb"}, "medium"),
        ({"profile": "few"}, "none"),
        ({"profile": "any", "mig": "whole"}, "whole"),
        ({"profile": "no"}, "none"),
        ({}, "none"),
    ],
    ids=str,
)
async def test_what_a_profile_brings_and_admits(
    make_spawner: MakeSpawner, options: dict[str, Any], expected: str
) -> None:
    assert await chosen(make_spawner(profile_list=PROFILES), **options) == expected
    # A form says beforehand what the start will say.
    form = {"profile": [options.get("profile", "python")], "mig_choice": [str(options.get("mig", "") or "")]}
    if isinstance(options.get("mig"), dict):
        form["mig_choice"] = [options["mig"]["choice"]]
    if "size" in options:
        form["profile-option-sizes--size"] = [options["size"]]
    read = await make_spawner(profile_list=PROFILES).run_options_from_form(form)
    assert read["mig"] == {"choice": expected}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"profile": "torch", "mig": "medium"}, "comes with Small slice, and Medium slice was chosen beside it"),
        ({"profile": "few", "mig": "whole"}, "Whole GPU does not go with this profile.*No GPU, Small slice, Medium"),
        ({"profile": "no", "mig": "small"}, "does not go with this profile. With it you may have: No GPU"),
    ],
    ids=str,
)
async def test_what_contradicts_a_profile_is_refused_in_form_link_and_script(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, options: dict[str, Any], sentence: str
) -> None:
    given = {"profile": [options["profile"]], "mig_choice": [options["mig"]]}
    with pytest.raises(SpawnRefused) as in_form:
        await make_spawner(profile_list=PROFILES).run_options_from_form(given)
    with pytest.raises(SpawnRefused) as in_link:
        await make_spawner(profile_list=PROFILES).options_from_query(given)
    with pytest.raises(SpawnRefused) as in_script:
        await chosen(make_spawner(profile_list=PROFILES), **options)
    for refused in (in_form, in_link, in_script):
        refused.match("mig-invalid")
        assert re.search(sentence, str(refused.value.message))
    assert allocator.paths("POST") == []


@pytest.mark.parametrize(
    ("beside", "profile", "admitted"),
    [
        ("tagged", "python", False),
        ("tagged", "any", True),
        ("tagged", "few", True),
        ("none", "python", False),
        ("none", "any", False),
        ("all", "python", True),
        ("all", "no", False),
    ],
)
async def test_slices_go_beside_all_profiles_the_tagged_ones_or_none(
    make_spawner: MakeSpawner, beside: str, profile: str, admitted: bool
) -> None:
    spawner = make_spawner(profile_list=PROFILES, slices_beside_profiles=beside)
    if admitted:
        assert await chosen(spawner, profile=profile, mig="small") == "small"
    else:
        with pytest.raises(SpawnRefused, match="mig-invalid"):
            await chosen(spawner, profile=profile, mig="small")
    assert await chosen(make_spawner(profile_list=PROFILES, slices_beside_profiles=beside), profile="torch") == "small"


async def test_what_profiles_bring_stands_in_the_form_with_live_counts(make_spawner: MakeSpawner) -> None:
    form = BeautifulSoup(await make_spawner(profile_list=PROFILES).get_options_form(), "html.parser")
    torch, quarter, need = form.select("#mig-choices .mig-of-profile")
    assert torch["data-mig-offer"] == "profile:1g.10gb"
    assert "PyTorch" in torch.get_text()
    assert torch.select(".mig-free")[0].get_text() == "free now 5 of 7"
    assert "Sizes, a quarter" in quarter.get_text()
    assert "No GPU of this hub can serve" in quarter.get_text()
    assert need["data-mig-offer"] == "profile:3g.40gb"
    assert form.select("input[name=mig_choice]")


async def test_with_profiles_alone_the_form_has_their_slices_and_no_choices(make_spawner: MakeSpawner) -> None:
    text = await make_spawner(profile_list=PROFILES, slices_beside_profiles="none").get_options_form()
    form = BeautifulSoup(text, "html.parser")
    assert len(form.select("#mig-choices .mig-of-profile")) == 3
    assert not form.select("input[name=mig_choice]")
    assert "offers no choice" not in text


async def test_a_profile_with_a_slice_is_not_started_by_a_link_alone(make_spawner: MakeSpawner) -> None:
    link = {"profile": ["torch"]}
    with pytest.raises(SpawnRefused) as refused:
        await make_spawner(profile_list=PROFILES).options_from_query(link)
    assert "not started by a link alone" in refused.value.message
    allowed = make_spawner(profile_list=PROFILES, slices_by_link=True)
    assert (await allowed.options_from_query(link))["mig"] == {"choice": "small"}


@pytest.mark.parametrize(
    "profile",
    [
        {"display_name": "x", "slug": "x", "kubespawner_override": {"mig_profile": "a big one"}},
        {"display_name": "x", "slug": "x", "mig": {"allowed": ["small"]}},
        {"display_name": "x", "slug": "x", "mig": "small"},
    ],
    ids=str,
)
async def test_what_an_admin_misspelt_is_said_and_starts_nothing(
    make_spawner: MakeSpawner, profile: dict[str, Any]
) -> None:
    spawner = make_spawner(profile_list=[profile])
    with pytest.raises(SpawnRefused, match="mig-invalid") as refused:
        await chosen(spawner, profile="x")
    assert "tell an admin" in refused.value.message
    assert "mig-choices" in await spawner.get_options_form()


async def test_the_slice_of_a_whole_hub_may_be_a_setting(make_spawner: MakeSpawner) -> None:
    assert await chosen(make_spawner(mig_profile="whole")) == "whole"
    assert await chosen(make_spawner(mig_profile="7g.80gb")) == "7g.80gb"
