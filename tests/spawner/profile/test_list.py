"""Menus of real hubs, unchanged: beside our fieldset they make the same pods as with KubeSpawner, and with a slice that slice more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from bs4 import BeautifulSoup
from kubespawner import KubeSpawner

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.container import as_json
from mig_spawner.spawner.error import SpawnRefused
from mig_spawner.spawner.injection.conflict import asked_of_plugin
from mig_spawner.spawner.sweep import HUB_LABEL

MakeSpawner = Callable[..., MIGSpawner]
LISTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "lists.yaml").read_text(encoding="utf-8")
)
ONES_OWN = "registry.example/own:1"


def selections(profiles: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The options of the form: nothing, each profile as it is, and each choice of each of its options."""
    yield {}
    slugs = [p["slug"] for p in KubeSpawner(_mock=True)._get_initialized_profile_list(profiles)]
    for slug, profile in zip(slugs, profiles, strict=True):
        yield {"profile": slug}
        for name, option in profile.get("profile_options", {}).items():
            for choice in option.get("choices", {}):
                yield {"profile": slug, name: choice}
            if option.get("unlisted_choice", {}).get("enabled"):
                yield {"profile": slug, f"{name}--unlisted-choice": ONES_OWN}


async def manifest(spawner: KubeSpawner, profiles: list[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """The pod as a start would make it."""
    spawner.profile_list = deepcopy(profiles)
    spawner.user_options = options
    await spawner.load_user_options()
    pod: dict[str, Any] = as_json(await spawner.get_pod_manifest())
    return pod


def as_plain(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod but for the label that says which hub made it, and the word that tells the NVIDIA runtime to show no GPU."""
    pod = deepcopy(pod)
    pod["metadata"]["labels"].pop(HUB_LABEL, None)
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
        void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
        container["env"] = sorted((e for e in container.get("env", []) if e != void), key=lambda e: str(e["name"]))
    return pod


@pytest.mark.parametrize("name", LISTS)
async def test_every_choice_of_the_menu_makes_the_same_pod_and_a_slice_makes_it_that_slice_more(
    name: str, make_spawner: MakeSpawner
) -> None:
    someone = make_spawner().user
    for options in selections(LISTS[name]):
        plain = await manifest(KubeSpawner(_mock=True, user=someone), LISTS[name], options)
        ours = await manifest(make_spawner(), LISTS[name], {**options, "mig": "none"})
        assert as_plain(ours) == as_plain(plain), options
        asking = any(asked_of_plugin(c) for c in plain["spec"]["containers"])
        void = {e["name"]: e.get("value") for e in ours["spec"]["containers"][0]["env"]}.get("NVIDIA_VISIBLE_DEVICES")
        assert void == (None if asking else "void"), options
        if asking:
            with pytest.raises(SpawnRefused, match=r"asks for nvidia\.com/.* by itself"):
                await manifest(make_spawner(), LISTS[name], {**options, "mig": "small"})
            continue
        sliced = await manifest(make_spawner(), LISTS[name], {**options, "mig": "small"})
        assert sliced["metadata"]["labels"]["mig-spawner/lease"] == "lease-1"
        selector = plain["spec"].get("nodeSelector") or {}
        assert sliced["spec"]["nodeSelector"] == {**selector, "kubernetes.io/hostname": "gpu-a"}
        assert sliced["spec"]["containers"][0]["image"] == plain["spec"]["containers"][0]["image"]


@pytest.mark.parametrize("name", LISTS)
async def test_the_form_has_the_menu_as_it_was_and_the_slices_after_it(name: str, make_spawner: MakeSpawner) -> None:
    plain = KubeSpawner(_mock=True, user=make_spawner().user, profile_list=deepcopy(LISTS[name]))
    form = await make_spawner(profile_list=deepcopy(LISTS[name])).get_options_form()
    assert form.startswith(await plain.get_options_form())
    ours = BeautifulSoup(form, "html.parser").select("#mig-choices")[0]
    assert len(ours.select(".mig-choice input[name=mig_choice]")) == 5
    assert not ours.select(".mig-of-profile")
