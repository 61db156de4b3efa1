"""The states of a GPU, which of them are alike, and what could fit at best."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.policy import UNKNOWN, Demand
from mig_spawner.domain.policy.priced import chart as charts
from mig_spawner.domain.policy.priced.chart import Chart, Shape, chart, merged, pieces, shapes_of
from mig_spawner.domain.policy.priced.packing import capacity, packings
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import find_model


def chart_of(model: str, demand: Demand = UNKNOWN) -> tuple[GPU, Chart]:
    gpu = find_model(model).gpu("GPU-x")
    made = chart(gpu.grid, shapes_of(gpu, demand))
    assert made is not None
    return gpu, made


def reachable(gpu: GPU) -> set[tuple[int, int]]:
    """Every state, by making one instance after the other as the GPU allows."""
    seen, todo = {(0, 0)}, [Layout(gpu)]
    while todo:
        layout = todo.pop()
        for profile in gpu.profiles:
            for start in layout.starts(profile) if not profile.name.suffix else ():
                after = layout.with_instance(profile, start)
                if (after.mask, after.heads) not in seen:
                    seen.add((after.mask, after.heads))
                    todo.append(after)
    return seen


@pytest.mark.parametrize(
    ("model", "states", "classes"), [("a100-80gb", 417, 100), ("a30-24gb", 26, 11), ("rtx-pro-6000", 26, 11)]
)
def test_a_chart_has_every_state_that_can_be_reached(model: str, states: int, classes: int) -> None:
    gpu, made = chart_of(model)
    assert set(made.keys) == reachable(gpu)
    assert (len(made.keys), len(set(merged(made)))) == (states, classes)


@pytest.mark.parametrize("model", ["a100-80gb", "a30-24gb"])
def test_growing_and_shrinking_are_each_others_way_back(model: str) -> None:
    _, made = chart_of(model)
    for state, ways in enumerate(made.grow):
        for after in {after for shape in ways for after in shape}:
            assert state in made.shrink[after]
    for state, rests in enumerate(made.shrink):
        assert len(rests) == len(pieces(made.keys[state]))
        for rest in rests:
            assert any(state in shape for shape in made.grow[rest])


def test_states_of_a_class_cannot_be_told_apart_by_anything_that_happens() -> None:
    _, made = chart_of("a100-80gb", Demand.of({ProfileName(1, 10): 5, ProfileName(3, 40): 1}))
    classes = merged(made)

    def seen(state: int) -> object:
        grown = [{classes[after] for after in shape} for shape in made.grow[state]]
        return grown, sorted(classes[rest] for rest in made.shrink[state])

    first = {c: state for state, c in reversed(list(enumerate(classes)))}
    assert 1 < len(first) < len(classes)
    assert all(seen(state) == seen(first[c]) for state, c in enumerate(classes))


def test_profiles_that_sit_alike_are_one_shape_and_unasked_ones_none() -> None:
    gpu = find_model("a100-80gb").gpu("GPU-x")
    demand = Demand.of({ProfileName(1, 10): 1, ProfileName(1, 10, "+me"): 1, ProfileName(4, 40): 2})
    assert shapes_of(gpu, demand) == (Shape(1, tuple(range(7)), 0.5), Shape(4, (0,), 0.5))


def test_a_grid_with_too_many_states_is_not_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_STATES", 10)
    shapes = (Shape(1, (0, 1, 2, 3), 0.0123),)  # no other test asks for these, whose answer would be remembered
    assert chart(4, shapes) is None


@pytest.mark.parametrize(
    ("weights", "fits"),
    [
        pytest.param({"1g.10gb": 1}, 7, id="seven 1g"),
        pytest.param({"2g.20gb": 1}, 3, id="three 2g"),
        pytest.param({"3g.40gb": 1}, 2, id="two 3g"),
        pytest.param({"7g.80gb": 1}, 1, id="one 7g"),
        pytest.param({"1g.10gb": 1, "4g.40gb": 1}, 2, id="a 1g beside each 4g, and two places are left"),
        pytest.param({"1g.10gb": 3, "4g.40gb": 1}, 4, id="4g + 3 x 1g"),
        pytest.param({"1g.10gb": 7, "7g.80gb": 1}, 4, id="every second GPU 7 x 1g"),
        pytest.param(dict.fromkeys(("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), 1), 16 / 7,
                     id="all alike"),
    ],
)  # fmt: skip
def test_how_many_requests_fit_at_best(weights: dict[str, float], fits: float) -> None:
    gpu = find_model("a100-80gb").gpu("GPU-x")
    shapes = shapes_of(gpu, Demand.of({ProfileName.parse(name): w for name, w in weights.items()}))
    found = capacity(packings(gpu.grid, shapes), [shape.share for shape in shapes])
    assert found == pytest.approx(fits, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), st.sampled_from(["a30-24gb", "rtx-pro-6000"]))
def test_no_gpus_hold_more_than_the_bound_and_many_come_near(weights: list[int], model: str) -> None:
    gpu = find_model(model).gpu("GPU-x")
    names = [p.name for p in gpu.profiles if not p.name.suffix]
    shapes = shapes_of(gpu, Demand.of(dict(zip(names, weights, strict=True))))
    ways = packings(gpu.grid, shapes)
    bound = capacity(ways, [shape.share for shape in shapes])
    best = 0.0
    for gpus in (1, 2, 3, 13, 21):
        for chosen in combinations_with_replacement(ways, gpus):
            held = [sum(counts) / gpus for counts in zip(*chosen, strict=True)]
            best = max(best, min(h / shape.share for h, shape in zip(held, shapes, strict=True)))
    assert best <= bound * (1 + 1e-6)
    assert best >= bound * 0.85
