"""The part of a node that goes with a slice, and that a node that is full of servers always has room for all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubespawner.objects import make_pod
from traitlets import TraitError

from mig_spawner.domain.gpu import GPU, Placement, Profile
from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.share import (
    NodeSize,
    Share,
    ShareBounds,
    beyond_share,
    parse_bounds,
    share_of,
    size_of,
    with_share,
)
from mig_spawner.testing.gpu.model import find_model, list_models
from mig_spawner.wire.lease import LeaseDocument, PlacementDocument
from mig_spawner.wire.menu import Menu, MenuEntry

MakeLease = Callable[..., LeaseDocument]
MakeSpawner = Callable[..., MIGSpawner]
GIB = 1 << 30
NODE = NodeSize(gpus=8, cpu=112, memory=896 * GIB)
MODELS = [m.key for m in list_models() if not m.refusal]


def placed(profile: str | None, size: int, grid: int = 8) -> PlacementDocument:
    fields = {"node": "gpu-a", "gpu_uuid": "GPU-1", "model": "x", "start": 0, "size": size, "profile": profile}
    numbers = {"memory_mib": 1, "multiprocessors": 1, "share": size / grid, "generation": 1, "expires_at": None}
    return PlacementDocument.model_validate({**fields, **numbers, "granted_at": "2026-01-01T00:00:00Z"})


def entry_of(**fields: Any) -> MenuEntry:
    return Menu.parse([{"display_name": "x", "profile": "1g.10gb", **fields}]).entries[0]


# --- the share ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "bounds", "cpu", "memory"),
    [
        (placed("1g.10gb", 1), {}, (2000, 2000), (16, 16)),
        (placed("1g.20gb", 2), {}, (2000, 2000), (16, 16)),
        (placed("1g.10gb+me", 1), {}, (2000, 2000), (16, 16)),
        (placed("3g.40gb", 4), {}, (6000, 6000), (48, 48)),
        (placed("7g.80gb", 8), {}, (14000, 14000), (112, 112)),
        (placed(None, 8), {}, (14000, 14000), (112, 112)),
        (placed("1g.6gb", 1, 4), {}, (3500, 3500), (28, 28)),
        (placed("1g.24gb", 3, 12), {}, (3500, 3500), (28, 28)),
        (placed("1g.10gb", 1), {"min_cpu": 4, "min_memory": "32G"}, (2000, 4000), (16, 32)),
        (placed("3g.40gb", 4), {"min_cpu": 4, "min_memory": "32G"}, (6000, 6000), (48, 48)),
        (placed(None, 8), {"max_cpu": 8, "max_memory": "64G"}, (8000, 8000), (64, 64)),
        (placed("1g.10gb", 1), {"min_cpu": 4, "max_cpu": 4, "max_memory": "8G"}, (2000, 4000), (8, 8)),
    ],
)
def test_a_slice_gets_the_part_of_its_compute_slices(
    lease: PlacementDocument, bounds: dict[str, Any], cpu: tuple[int, int], memory: tuple[int, int]
) -> None:
    assert share_of(lease, NODE, parse_bounds(bounds)) == Share(*cpu, memory[0] * GIB, memory[1] * GIB)


@pytest.mark.parametrize("model", MODELS)
def test_a_whole_gpu_has_as_many_compute_slices_as_its_largest_profile(model: str) -> None:
    gpu = find_model(model).gpu("GPU-1")
    largest = max(gpu.profiles, key=lambda p: (p.compute_slices, p.size))
    sliced = placed(str(largest.name), largest.size, gpu.grid)
    assert share_of(sliced, NODE, ShareBounds()) == share_of(placed(None, gpu.grid, gpu.grid), NODE, ShareBounds())


def cut_full(gpu: GPU, rng: random.Random) -> list[Profile]:
    """Some layout of a GPU on which nothing more has room."""
    choices = [(p, start) for p in gpu.profiles for start in p.starts]
    rng.shuffle(choices)
    taken: list[Placement] = []
    profiles: list[Profile] = []
    for profile, start in choices:
        placement = Placement(gpu.gpu_uuid, start, profile.size)
        if not any(placement.overlaps(other) for other in taken):
            taken.append(placement)
            profiles.append(profile)
    return profiles


@given(
    model=st.sampled_from(MODELS),
    gpus=st.integers(1, 16),
    cores=st.floats(0.1, 64),
    memory=st.integers(GIB, 512 * GIB),
    least=st.tuples(st.none() | st.floats(0.1, 64), st.none() | st.integers(1, 512 * GIB)),
    seed=st.integers(0, 1 << 30),
)
def test_a_full_node_has_room_for_what_all_its_slices_request(
    model: str, gpus: int, cores: float, memory: int, least: tuple[float | None, int | None], seed: int
) -> None:
    gpu, rng = find_model(model).gpu("GPU-1"), random.Random(seed)
    size = NodeSize(gpus=gpus, cpu=cores * gpus, memory=memory * gpus)
    bounds = ShareBounds(min_cpu=least[0], min_memory=least[1])
    slices = [p for _ in range(gpus) for p in cut_full(gpu, rng)]
    shares = [share_of(placed(str(p.name), p.size, gpu.grid), size, bounds) for p in slices]
    assert sum(s.cpu_guarantee for s in shares) <= size.cpu * 1000
    assert sum(s.mem_guarantee for s in shares) <= size.memory
    assert all(0 < s.cpu_guarantee <= s.cpu_limit and 0 < s.mem_guarantee <= s.mem_limit for s in shares)


# --- what an entry gets ---------------------------------------------------------------------------------------------


def host_of(entry: MenuEntry) -> tuple[float | None, float | None, int | None, int | None, int | None]:
    memory = [None if b is None else b // GIB for b in (entry.mem_limit, entry.mem_guarantee, entry.shm)]
    return (entry.cpu_limit, entry.cpu_guarantee, *memory)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("says", "host"),
    [
        ({}, (2.0, 2.0, 16, 16, 4)),
        ({"cpu_limit": 8}, (8.0, None, 16, 16, 4)),
        ({"mem_limit": "8G"}, (2.0, 2.0, 8, None, 2)),
        ({"mem_guarantee": "4G"}, (2.0, 2.0, None, 4, 1)),
        ({"shm": "2G"}, (2.0, 2.0, 16, 16, 2)),
        ({"shm": "20G"}, (2.0, 2.0, 20, 16, 20)),
        ({"cpu_guarantee": 1, "mem_limit": "8G", "shm": "1G"}, (None, 1.0, 8, None, 1)),
    ],
)
def test_what_the_entry_says_is_left_and_the_rest_is_its_share(says: dict[str, Any], host: tuple[Any, ...]) -> None:
    entry = with_share(entry_of(**says), placed("1g.10gb", 1), {"gpu-*": NODE}, ShareBounds(shm=0.25))
    assert host_of(entry) == host


def test_on_a_node_of_unknown_size_nothing_is_shared() -> None:
    entry = entry_of()
    assert with_share(entry, placed("1g.10gb", 1), {"other": NODE}, ShareBounds(shm=0.5)) is entry


def test_the_first_pattern_that_matches_says_the_size() -> None:
    small = NODE.model_copy(update={"gpus": 1})
    assert size_of("gpu-a", {"gpu-a": small, "*": NODE}) is small
    assert size_of("gpu-b", {"gpu-a": small, "*": NODE}) is NODE


@pytest.mark.parametrize(
    ("traits", "parts"),
    [
        ({"mem_guarantee": 16 * GIB, "cpu_guarantee": 2}, []),
        ({"mem_guarantee": 17 * GIB}, ["17.00 GiB of memory on gpu-a, and 16.00 go with its lease"]),
        ({"mem_limit": 32 * GIB}, ["32.00 GiB of memory"]),
        ({"mem_limit": 32 * GIB, "mem_guarantee": GIB}, []),
        ({"cpu_limit": 4, "mem_limit": 32 * GIB}, ["4.00 cores of CPU", "32.00 GiB of memory"]),
        ({}, []),
    ],
)
def test_a_pod_that_requests_more_than_its_share_is_told_of(traits: dict[str, Any], parts: list[str]) -> None:
    pod = make_pod(name="jupyter-ada", image="i", cmd=["x"], port=8888, image_pull_policy="Always", **traits)
    sentences = list(beyond_share(pod, placed("1g.10gb", 1), {"*": NODE}))
    assert [part in sentence for part, sentence in zip(parts, sentences, strict=True)] == [True] * len(parts)
    assert list(beyond_share(pod, placed("1g.10gb", 1), {})) == []


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"*": {"gpus": 8, "cpu": 96}}, "nodes '\\*': `memory` is missing. Write all of gpus, cpu, memory"),
        ({"*": {"gpus": 8, "cpu": 96, "memory": "1T", "disk": 1}}, "a mapping of gpus, cpu, memory, and nothing else"),
        ({"*": 8}, "write a mapping of"),
        ({"*": {"gpus": 0, "cpu": 96, "memory": "1T"}}, "`gpus` cannot be '0'"),
        ({"*": {"gpus": 8, "cpu": 96, "memory": "lots"}}, "`memory` cannot be 'lots'; write bytes"),
        ({"*": {"gpus": 8, "cpu": 96, "memory": "4G"}}, "at least 0.1 cores and 1 GiB"),
    ],
)
def test_a_wrong_size_is_refused_by_a_sentence(sizes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraitError, match=sentence):
        MIGSpawner(_mock=True, node_sizes=sizes)


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"min_cpu": 4, "max_cpu": 2}, "min_cpu is more than max_cpu"),
        ({"min_memory": "4G", "max_memory": "2G"}, "min_memory is more than max_memory"),
        ({"shm": 2}, "`shm` cannot be '2'"),
        ({"cpu": 2}, "a mapping of min_cpu, max_cpu, min_memory, max_memory, shm"),
    ],
)
def test_wrong_bounds_are_refused_by_a_sentence(bounds: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraitError, match=sentence):
        MIGSpawner(_mock=True, node_share=bounds)


async def test_a_server_gets_its_share_of_the_node(make_spawner: MakeSpawner, caplog: pytest.LogCaptureFixture) -> None:
    # the allocator of these tests leases a 1g.10gb whatever is asked; `medium` says nothing of the host, `small` says 16G
    sizes = {"gpu-*": {"gpus": 8, "cpu": 112, "memory": "448G"}}
    spawner = make_spawner(node_sizes=sizes, node_share={"min_cpu": 4, "shm": 0.5}, mem_limit="1G", cpu_limit=1)

    async def made(choice: str) -> Any:
        spawner.user_options = {"mig": choice}
        spawner._entry = spawner._granted = None
        await spawner.load_user_options()
        return (await spawner.get_pod_manifest()).spec

    spec = await made("medium")
    resources = spec.containers[0].resources
    assert (resources.limits["cpu"], int(resources.limits["memory"])) == (4.0, 8 * GIB)
    assert (resources.requests["cpu"], int(resources.requests["memory"])) == (2.0, 8 * GIB)
    assert [v.empty_dir.size_limit for v in spec.volumes if v.name == "mig-shm"] == [str(4 * GIB)]
    limits = (await made("none")).containers[0].resources.limits
    assert (limits["cpu"], int(limits["memory"])) == (1, GIB)
    assert "go with its lease" not in caplog.text
    await made("small")
    assert "requests 16.00 GiB of memory on gpu-a, and 8.00 go with its lease" in caplog.text
