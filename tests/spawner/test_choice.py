"""How a choice gets to a spawner: form, link, script and saved options; on a spawner without a hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup
from kubernetes_asyncio.client import V1Pod
from kubespawner import __version__ as kubespawner_version

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import SpawnRefused
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


# --- the form -------------------------------------------------------------------------------------------------------


def _profiles_of(spawner: MIGSpawner) -> list[dict[str, Any]]:
    return PROFILES


async def _profiles_later(spawner: MIGSpawner) -> list[dict[str, Any]]:
    return PROFILES


@pytest.mark.parametrize(
    ("traits", "base"),
    [
        ({}, None),
        ({"profile_list": PROFILES}, "input[value=large-gpu]"),
        pytest.param(
            {"profile_list": {"1": PROFILES[0], "2": PROFILES[1]}},
            "input[value=large-gpu]",
            marks=pytest.mark.skipif(kubespawner_version.startswith("7.0."), reason="KubeSpawner 7.0 knows lists only"),
        ),
        ({"profile_list": _profiles_of}, "input[value=large-gpu]"),
        ({"profile_list": _profiles_later}, "input[value=large-gpu]"),
        ({"options_form": "<p id='own'>own</p>"}, "#own"),
        ({"options_form": lambda spawner: f"<p id='own'>{spawner.user.name}</p>"}, "#own"),
    ],
    ids=["nothing", "list", "mapping", "callable", "async callable", "text", "form callable"],
)
async def test_the_fieldset_stands_beside_any_form(
    make_spawner: MakeSpawner, traits: dict[str, Any], base: str | None
) -> None:
    soup = BeautifulSoup(await make_spawner(**traits).get_options_form(), "html.parser")
    assert len(soup.select("fieldset#mig-choices .mig-choice input[name=mig_choice]")) == 5
    assert base is None or soup.select(base)


async def test_profiles_that_cannot_be_listed_do_not_cost_the_page(make_spawner: MakeSpawner) -> None:
    def broken(_: MIGSpawner) -> list[Any]:
        raise RuntimeError("no directory")

    html = await make_spawner(profile_list=broken).get_options_form()
    assert "profiles cannot be shown" in html
    assert "mig-choices" in html


async def test_the_form_renders_while_the_allocator_is_down(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    allocator.down = True
    soup = BeautifulSoup(await make_spawner().get_options_form(), "html.parser")
    assert [r["value"] for r in soup.select("input:not([disabled])")] == ["none"]


@pytest.mark.parametrize(
    ("url", "base_url", "public"),
    [
        ("/services/mig", "/hub/", "/services/mig"),
        ("/services/mig/", "/jupyter/hub/", "/jupyter/services/mig"),
        ("https://mig.example.org/services/mig", "/jupyter/hub/", "https://mig.example.org/services/mig"),
    ],
)
async def test_live_counts_are_read_where_browsers_reach_the_allocator(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, url: str, base_url: str, public: str
) -> None:
    spawner = make_spawner(allocator_public_url=url, user_name="ü" * 200)
    spawner.hub.base_url = base_url
    soup = BeautifulSoup(await spawner.get_options_form(), "html.parser")
    assert [script["src"] for script in soup.select("script")] == [f"{public}/static/{n}.js" for n in ("form", "live")]
    assert soup.select("link[rel=stylesheet]")[0]["href"] == f"{public}/static/form.css"
    assert soup.select("fieldset")[0]["data-mig-ticket"] == "a-ticket"
    assert allocator.bodies("tickets") == [{"user_name": "ü" * 200}]


async def test_live_counts_can_be_turned_off(make_spawner: MakeSpawner, allocator: ScriptedAllocator) -> None:
    assert "live.js" not in await make_spawner(live_interval=0).get_options_form()
    assert allocator.bodies("tickets") == []


async def test_the_smallest_that_fits_a_need_is_chosen(make_spawner: MakeSpawner) -> None:
    form = {"mig_choice": [":need"], "mig_need": ["8,5"], "other": ["kept"]}
    options = await make_spawner().run_options_from_form(form)
    assert options["mig"] == {"choice": "small"}


# --- options --------------------------------------------------------------------------------------------------------


async def test_form_data_of_ours_and_of_the_profiles_do_not_mix(make_spawner: MakeSpawner) -> None:
    form = {"mig_choice": ["small"], "profile": ["large"], "profile-option-large--x": ["1"]}
    options = await make_spawner(profile_list=PROFILES).run_options_from_form(form)
    assert options == {"profile": "large", "x": "1", "mig": {"choice": "small"}}


async def test_an_admins_own_reading_of_the_form_is_kept(make_spawner: MakeSpawner) -> None:
    async def own(form: dict[str, Any]) -> dict[str, Any]:
        return {"seen": sorted(form)}

    spawner = make_spawner(options_from_form=own)
    assert await spawner.run_options_from_form({"mig_choice": ["small"], "a": ["b"]}) == {
        "seen": ["a"],
        "mig": {"choice": "small"},
    }


async def test_a_form_without_our_field_takes_the_default(make_spawner: MakeSpawner) -> None:
    assert await make_spawner().run_options_from_form({}) == {"mig": {"choice": "none"}}


@pytest.mark.parametrize("field", ["gone", "x" * 10_000])
async def test_a_bad_form_is_refused_before_anything_starts(make_spawner: MakeSpawner, field: str) -> None:
    with pytest.raises(SpawnRefused) as refused:
        await make_spawner().run_options_from_form({"mig_choice": [field]})
    assert refused.value.status_code == 400
    assert refused.value.reason == "mig-invalid"


async def test_a_link_does_not_take_a_slice_without_a_click(make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    with pytest.raises(SpawnRefused, match="mig-invalid"):
        await spawner.options_from_query({"mig": ["1g.10gb"]})
    soup = BeautifulSoup(await spawner.get_options_form(), "html.parser")
    assert [r["value"] for r in soup.select("input[checked]")] == ["small"]
    soup = BeautifulSoup(await spawner.get_options_form(), "html.parser")
    assert [r["value"] for r in soup.select("input[checked]")] == ["none"]


async def test_a_link_without_a_choice_does_not_take_the_default_slice_either(
    make_spawner: MakeSpawner, menu: list[dict[str, Any]]
) -> None:
    spawner = make_spawner(menu=[{**menu[1], "default": True}])
    with pytest.raises(SpawnRefused):
        await spawner.options_from_query({"profile": ["large"]})


async def test_links_without_a_gpu_and_where_the_admin_allows_them(make_spawner: MakeSpawner) -> None:
    assert await make_spawner().options_from_query({"mig": ["none"]}) == {"mig": {"choice": "none"}}
    allowed = make_spawner(slices_by_link=True)
    assert await allowed.options_from_query({"mig": ["1g.10gb"]}) == {"mig": {"choice": "small"}}


@pytest.mark.parametrize(
    "options",
    [
        {"mig": ["small"]},
        {"mig": {"choice": "gone"}},
        {"mig": {"profile": "7g.80gb"}},
        {"profile": "gone"},
        {"profile": ["large"]},
        {"profile": {"a": 1}},
    ],
    ids=str,
)
async def test_bad_options_are_a_refusal_and_no_fault_of_the_hub(
    make_spawner: MakeSpawner, options: dict[str, Any]
) -> None:
    spawner = make_spawner(profile_list=PROFILES, user_options=options)
    with pytest.raises(SpawnRefused) as refused:
        await spawner.load_user_options()
    assert refused.value.status_code == 400
    assert refused.value.jupyterhub_message


async def test_a_wrong_configuration_is_not_called_a_wrong_choice(make_spawner: MakeSpawner) -> None:
    profiles = [{"display_name": "x", "profile_options": {"o": {"display_name": "o"}}}]
    with pytest.raises(ValueError, match="default choice"):
        await make_spawner(profile_list=profiles).load_user_options()


@pytest.mark.parametrize("options", [{}, {"mig": None}, {"mig": {}}, {"profile": "large-gpu"}], ids=str)
async def test_without_a_choice_the_default_is_taken(make_spawner: MakeSpawner, options: dict[str, Any]) -> None:
    pod = await manifest(make_spawner(profile_list=PROFILES), options)
    assert env_of(pod)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert pod.spec.containers[0].image == ("img:gpu" if options.get("profile") else "img:large")


async def test_without_a_menu_the_allocators_offers_are_the_menu(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator
) -> None:
    spawner = make_spawner(menu=[])
    assert await spawner.run_options_from_form({"mig_choice": ["3g.40gb"]}) == {"mig": {"choice": "3g.40gb"}}
    with pytest.raises(SpawnRefused, match="mig-invalid"):
        await spawner.run_options_from_form({"mig_choice": ["7g.80gb"]})
    allocator.down = True
    assert await spawner.run_options_from_form({}) == {"mig": {"choice": "none"}}
    with pytest.raises(SpawnRefused, match="mig-allocator-down"):
        await spawner.run_options_from_form({"mig_choice": ["3g.40gb"]})
