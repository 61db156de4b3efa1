"""How broken up a GPU is, as a number and as a sentence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Layout, Profile
from mig_spawner.domain.policy import Demand, stranded, stranded_together
from mig_spawner.domain.policy.demand import PARTS
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import list_models

MakeState = Callable[..., GPUState]


@pytest.mark.parametrize(
    ("taken", "sentence"),
    [
        pytest.param([], "", id="empty"),
        pytest.param([("7g.80gb", 0)], "", id="full"),
        pytest.param([("4g.40gb", 0)], "", id="the better half is whole"),
        pytest.param(
            [("1g.10gb", 0), ("1g.10gb", 4)],
            "6 of 8 memory slices are free, yet no 3g.40gb fits.",
            id="both halves broken",
        ),
        pytest.param([("3g.40gb", 4)], "", id="a 3g and a 4g fit still"),
        pytest.param([("3g.40gb", 0)], "", id="a 3g fits, if no 4g"),
        pytest.param(
            [("3g.40gb", 0), ("1g.10gb", 5), ("1g.10gb", 6)],
            "2 of 8 memory slices are free, yet no 1g.20gb fits.",
            id="two that are apart",
        ),
    ],
)
def test_what_is_free_and_does_not_fit(make_state: MakeState, taken: list[tuple[str, int]], sentence: str) -> None:
    told = stranded(make_state(taken=taken))
    assert told is not None
    assert told.sentence == sentence


def test_the_part_is_what_the_demand_cannot_use(make_state: MakeState) -> None:
    state = make_state(taken=[("3g.40gb", 0)])
    for name, part in (("1g.10gb", 1 / 8), ("3g.40gb", 0), ("7g.80gb", 0.5)):
        told = stranded(state, Demand.of({ProfileName.parse(name): 1}))
        assert told is not None
        assert told.part == pytest.approx(part)


@pytest.mark.parametrize("change", [{"unavailable": "cordoned"}, {"dynamic": False}, {"mig_enabled": None}], ids=str)
def test_where_nothing_is_cut_nothing_is_stranded(make_state: MakeState, change: dict[str, object]) -> None:
    assert stranded(make_state(**change)) is None


def test_together_nothing_is_lost_that_fits_somewhere(make_state: MakeState) -> None:
    broken = make_state(taken=[("1g.10gb", 0), ("1g.10gb", 4)])
    told = stranded_together([broken, make_state(number=1)])
    assert told is not None
    assert told.sentence == ""


def test_together_the_free_slices_of_all_could_hold_it(make_state: MakeState) -> None:
    taken = [("3g.40gb", 0), ("2g.20gb", 4)]
    states = [make_state(taken=taken, number=number) for number in range(2)]
    assert [lost.sentence for state in states if (lost := stranded(state)) is not None] == ["", ""]
    told = stranded_together(states)
    assert told is not None
    assert told.sentence == "4 of 16 memory slices of 2 GPUs are free, yet no 3g.40gb fits on any."


def test_together_those_on_which_nothing_is_granted_do_not_count(make_state: MakeState) -> None:
    away = make_state(number=1, unavailable="cordoned")
    assert stranded_together([away]) is None
    assert stranded_together([make_state(taken=[("1g.10gb", 3)]), away]) == stranded_together(
        [make_state(taken=[("1g.10gb", 3)])]
    )


MODELS = [model for model in list_models() if not model.refusal]
NAMES = sorted({p.profile.name for model in MODELS for p in model.profiles})


@st.composite
def boards(draw: st.DrawFn) -> GPUState:
    """A GPU of any model with anything on it that can be."""
    gpu = draw(st.sampled_from(MODELS)).gpu(f"GPU-{draw(st.integers(0, 999))}")
    layout = Layout(gpu)
    for _ in range(draw(st.integers(0, 7))):
        places = [(p, s) for p in gpu.profiles for s in layout.starts(p)]
        if places:
            layout = layout.with_instance(*draw(st.sampled_from(places)))
    return GPUState(draw(st.sampled_from(["n1", "n2"])), gpu, layout)


DEMANDS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9), max_size=4).map(Demand.of)


@settings(max_examples=200, deadline=None)
@given(fleet=st.lists(boards(), min_size=1, max_size=4), demand=DEMANDS)
def test_both_are_what_trying_every_place_finds(fleet: list[GPUState], demand: Demand) -> None:
    parts = []
    for state in fleet:
        told = stranded(state, demand)
        assert told is not None
        parts.append(_part(state, demand))
        assert told.part == pytest.approx(float(parts[-1]))
        assert told.sentence == _sentence([state], "memory slices are free, yet no {} fits.")
    together = stranded_together(fleet, demand)
    assert together is not None
    assert together.part == pytest.approx(float(sum(parts) / len(parts)))
    assert (
        together.sentence.split(", yet no ")[-1] == _sentence(fleet, ", yet no {} fits on any.").split(", yet no ")[-1]
    )


def _places(state: GPUState, profile: Profile) -> list[set[int]]:
    """Every window of a profile that is legal now, slice by slice and engine by engine."""
    taken = {n for n in range(state.gpu.grid) if state.layout.mask >> n & 1}
    kinds = ("copy", "decoder", "encoder", "jpeg", "ofa")
    if any(
        getattr(profile.engines, k) + getattr(state.layout.engines, k) > getattr(state.gpu.engines, k) for k in kinds
    ):
        return []
    windows = [set(range(start, start + profile.size)) for start in profile.starts]
    return [window for window in windows if not window & taken]


def _part(state: GPUState, demand: Demand) -> Fraction:
    profiles = state.gpu.profiles
    free = {n for n in range(state.gpu.grid) if not state.layout.mask >> n & 1}
    lost = Fraction(0)
    for profile, share in zip(profiles, demand.parts(profiles), strict=True):
        usable = set().union(*_places(state, profile))
        lost += Fraction(share, PARTS) * len(free - usable)
    return lost / state.gpu.grid


def _sentence(fleet: list[GPUState], words: str) -> str:
    """The smallest plain profile, as a part of a GPU, that the free slices of those that have it could hold, and that fits on none."""
    lost = []
    for name in {p.name for state in fleet for p in state.gpu.profiles if not p.name.suffix}:
        having = [(state, p) for state in fleet for p in state.gpu.profiles if p.name == name]
        free = sum(state.gpu.grid - state.layout.taken for state, _ in having)
        same = [(s, q) for s, p in having for q in s.gpu.profiles if q.size == p.size and not q.name.suffix]
        if not any(_places(state, q) for state, q in same) and free >= having[0][1].size:
            lost.append((having[0][1].size / having[0][0].gpu.grid, name, free))
    if not lost:
        return ""
    _, name, free = min(lost)
    of = f"{free} of {fleet[0].gpu.grid} " if len(fleet) == 1 else ""
    return of + words.format(name)
