"""What `hints` of an entry put into a pod, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_asyncio.client import V1Pod
from kubespawner.objects import make_pod

from mig_spawner.spawner.pod import edit_pod
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import Menu

MakeLease = Callable[..., LeaseDocument]
ALL = ["pytorch", "jax", "tensorflow"]
PYTORCH = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
TENSORFLOW = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def env_of(pod: V1Pod) -> dict[str, str]:
    shown = [e if isinstance(e, dict) else e.to_dict() for e in pod.spec.containers[0].env]
    assert len(shown) == len({e["name"] for e in shown})
    return {e["name"]: e["value"] for e in shown}


def hinted(lease: LeaseDocument | None, hints: list[str], entry: dict[str, Any], **pod: Any) -> dict[str, str]:
    """The variables that are there because of the hints."""
    made = [
        make_pod(name="jupyter-ada", image="img", cmd=["start"], port=8888, image_pull_policy="Always", **pod)
        for _ in range(2)
    ]
    menus = [Menu.parse([{"display_name": "x", **entry, "hints": said}]) for said in (hints, [])]
    with_hints, without = (
        env_of(edit_pod(m, lease, menu.entries[0], runtime_class="")) for m, menu in zip(made, menus, strict=True)
    )
    assert without.items() <= with_hints.items()
    return {name: value for name, value in with_hints.items() if name not in without}


@pytest.mark.parametrize(
    ("hints", "env"),
    [
        ([], {}),
        (["pytorch"], PYTORCH),
        (["jax"], JAX),
        (["tensorflow"], TENSORFLOW),
        (ALL, PYTORCH | JAX | TENSORFLOW),
        (["jax", "jax"], JAX),
    ],
)
def test_a_slice_gets_the_hints_of_its_entry(lease: MakeLease, hints: list[str], env: dict[str, str]) -> None:
    assert hinted(lease(), hints, {"profile": "1g.10gb"}) == env


def test_a_whole_gpu_gets_only_what_is_of_use_there(lease: MakeLease) -> None:
    whole = lease(profile=None, device_uuid="GPU-1")
    assert hinted(whole, ALL, {"whole": True}) == JAX | TENSORFLOW


def test_without_a_device_nothing_is_hinted() -> None:
    assert hinted(None, ALL, {"profile": "1g.10gb"}) == {}


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, JAX | TENSORFLOW),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, JAX | TENSORFLOW),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, PYTORCH | TENSORFLOW),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": ""}, PYTORCH | JAX),
    ],
)
@pytest.mark.parametrize("way", ["environment", "extra_container_config"])
def test_what_the_admin_sets_wins(lease: MakeLease, theirs: dict[str, str], left: dict[str, str], way: str) -> None:
    listed = [{"name": name, "value": value} for name, value in theirs.items()]
    pod = {"env": theirs} if way == "environment" else {"extra_container_config": {"env": listed}}
    assert hinted(lease(), ALL, {"profile": "1g.10gb"}, **pod) == left
