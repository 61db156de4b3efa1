"""Placements, layouts and the engine budget on real models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import GPU, Engines, Layout, Placement, Profile, layout_of
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

MakeGPU = Callable[..., GPU]
MakeState = Callable[..., GPUState]


def named(gpu: GPU, name: str) -> Profile:
    profile = gpu.profile(ProfileName.parse(name))
    assert profile is not None
    return profile


@pytest.mark.parametrize(
    ("size", "starts"),
    [
        pytest.param(0, (0,), id="no size"),
        pytest.param(1, (), id="no start"),
        pytest.param(1, (-1, 0), id="negative start"),
    ],
)
def test_a_profile_without_usable_placement_does_not_construct(size: int, starts: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match=r"1g\.10gb has no usable placement"):
        Profile(ProfileName(1, 10), 19, size, starts, 1, 9728, 14)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(("A", 0, 4), ("A", 3, 1), True, id="last slice shared"),
        pytest.param(("A", 0, 4), ("A", 4, 4), False, id="side by side"),
        pytest.param(("A", 2, 2), ("A", 0, 8), True, id="inside"),
        pytest.param(("A", 0, 8), ("B", 0, 8), False, id="other GPU"),
    ],
)
def test_overlap(one: tuple[str, int, int], other: tuple[str, int, int], expected: bool) -> None:
    assert Placement(*one).overlaps(Placement(*other)) is expected
    assert Placement(*other).overlaps(Placement(*one)) is expected


def test_a_placement_names_its_slices() -> None:
    placement = Placement("A", 4, 2)
    assert list(placement.slices) == [4, 5]
    assert placement.mask == 0b110000


@pytest.mark.parametrize(
    ("model", "grid"), [("a30-24gb", 4), ("a100-40gb", 8), ("gb300-278gb", 8), ("rtx-pro-6000-blackwell-96gb", 12)]
)
def test_the_grid_is_as_long_as_the_farthest_placement(make_gpu: MakeGPU, model: str, grid: int) -> None:
    gpu = make_gpu(model)
    assert gpu.grid == grid
    assert gpu.whole == Placement(gpu.gpu_uuid, 0, grid)


def test_a_gpu_without_profiles_is_one_slice_long() -> None:
    gpu = GPU("GPU-x", "Tesla T4", 15360, 40)
    assert gpu.whole.size == 1
    assert gpu.engines == Engines()


@pytest.mark.parametrize(
    ("taken", "profile", "starts"),
    [
        pytest.param([], "1g.10gb", (0, 1, 2, 3, 4, 5, 6), id="empty: seven, the eighth slice is out of reach"),
        pytest.param([("1g.10gb", 3)], "4g.40gb", (), id="a 1g at 3 blocks 4g"),
        pytest.param([("1g.10gb", 3)], "3g.40gb", (4,), id="a 1g at 3 blocks the low 3g"),
        pytest.param([("1g.10gb", 3)], "2g.20gb", (0, 4), id="a 1g at 3 blocks the 2g at 2"),
        pytest.param([("1g.10gb", 6)], "3g.40gb", (0,), id="a 1g at 6 blocks the high 3g"),
        pytest.param([("1g.10gb", 6)], "4g.40gb", (0,), id="a 1g at 6 leaves 4g"),
        pytest.param([("3g.40gb", 0), ("3g.40gb", 4)], "1g.10gb", (), id="two 3g waste a compute slice"),
        pytest.param([("4g.40gb", 0)], "1g.20gb", (4, 6), id="slice 7 is for the double-memory 1g"),
        pytest.param([("7g.80gb", 0)], "1g.10gb", (), id="full"),
        pytest.param(
            [("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 5)], "3g.40gb", (), id="three scattered 1g leave no 3g"
        ),
        pytest.param([("1g.10gb+me", 0)], "1g.10gb+me", (), id="one media extension"),
        pytest.param([("1g.10gb+me", 0)], "1g.10gb", (1, 2, 3, 4, 5, 6), id="beside it plain ones"),
    ],
)
def test_starts_on_the_seven_slice_grid(
    make_state: MakeState, taken: list[tuple[str, int]], profile: str, starts: tuple[int, ...]
) -> None:
    layout = make_state("a100-80gb", taken).layout
    assert layout.starts(named(layout.gpu, profile)) == starts


@pytest.mark.parametrize(
    ("model", "taken", "profile", "most"),
    [
        pytest.param("a30-24gb", [], "1g.6gb", 4, id="A30, four 1g"),
        pytest.param("a30-24gb", [("2g.12gb", 2)], "2g.12gb", 1, id="A30, one 2g more"),
        pytest.param("a30-24gb", [("1g.6gb+me", 0)], "2g.12gb+me", 0, id="A30, one of the two with media"),
        pytest.param("rtx-pro-6000", [], "1g.24gb", 4, id="RTX PRO, twelve slices hold four 1g"),
        pytest.param("rtx-pro-6000", [("1g.24gb", 3)], "2g.48gb", 1, id="RTX PRO, a 1g at 3 leaves the high 2g"),
        pytest.param("rtx-pro-6000", [("1g.24gb+me.all", 0)], "1g.24gb", 0, id="all media: no plain one beside it"),
        pytest.param("rtx-pro-6000", [("1g.24gb+me.all", 0)], "1g.24gb-me", 3, id="all media: only those without"),
        pytest.param("rtx-pro-6000", [("1g.24gb-me", 0)], "1g.24gb+me.all", 1, id="without media first"),
        pytest.param("rtx-pro-6000", [("1g.24gb", 0)], "2g.48gb+me.all", 0, id="a plain one took an engine"),
    ],
)
def test_capacity_beside_what_is_there(
    make_state: MakeState, model: str, taken: list[tuple[str, int]], profile: str, most: int
) -> None:
    layout = make_state(model, taken).layout
    assert layout.capacity(named(layout.gpu, profile)) == most


def test_slices_can_be_taken_by_something_unknown(make_gpu: MakeGPU) -> None:
    gpu = make_gpu()
    layout = Layout(gpu).with_taken(Placement(gpu.gpu_uuid, 0, 4))
    assert layout.taken == 4
    assert layout.starts(named(gpu, "4g.40gb")) == ()
    assert layout.starts(named(gpu, "3g.40gb")) == (4,)


def test_a_layout_adds_up_its_engines(make_gpu: MakeGPU) -> None:
    gpu = make_gpu("h100-80gb")
    layout = layout_of(gpu, [(named(gpu, "4g.40gb"), 0), (named(gpu, "3g.40gb"), 4)])
    assert layout.engines == Engines(copy=7, decoder=7, encoder=0, jpeg=7, ofa=0)
    assert layout.mask == 0xFF
    assert not layout.empty
    assert Layout(gpu).empty


def test_engines_compare_one_by_one() -> None:
    budget = Engines(copy=2, decoder=1)
    assert Engines(copy=2).fit_in(budget)
    assert not Engines(jpeg=1).fit_in(budget)
    assert Engines(copy=1, decoder=3) | Engines(copy=2) == Engines(copy=2, decoder=3)


def test_profiles_are_found_by_id(make_gpu: MakeGPU) -> None:
    gpu = make_gpu()
    assert gpu.profile_by_id(9) == named(gpu, "3g.40gb")
    assert gpu.profile_by_id(4711) is None
    assert gpu.profile(ProfileName(9, 9)) is None


def test_what_is_free_is_counted_in_places_and_not_in_slices(make_gpu: MakeGPU) -> None:
    """Three small ones at 0, 1 and 5, as after some have gone: five of eight memory slices are free, and no 3g or 4g can be had."""
    gpu = make_gpu("a100-80gb")
    layout = Layout(gpu)
    for start in (0, 1, 5):
        layout = layout.with_instance(named(gpu, "1g.10gb"), start)
    names = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    assert [layout.capacity(named(gpu, name)) for name in names] == [4, 1, 0, 0, 0]
    assert list(layout.starts(named(gpu, "2g.20gb"))) == [2]
