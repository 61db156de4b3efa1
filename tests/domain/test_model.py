"""The published numbers come out of two rules: placements do not overlap, engines suffice. On every model we can simulate."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import Model, find_model, list_models
from mig_spawner.testing.gpu.model import ModelProfile

SIMULATED = [m for m in list_models() if not m.refusal]
SEVEN_SLICE = [m for m in SIMULATED if m.gpu("x").grid == 8]
PROFILES = [pytest.param(m, p, id=f"{m.key} {p.profile.name}") for m in SIMULATED for p in m.profiles]


def by_key(model: Model) -> str:
    return model.key


def most(layout: Layout, profile: Profile, after: int = -1) -> int:
    """The greatest number of instances, by trying every set of starts."""
    starts = [s for s in layout.starts(profile) if s > after]
    return max((1 + most(layout.with_instance(profile, s), profile, s) for s in starts), default=0)


def allowed_sets(gpu: GPU, profiles: list[Profile]) -> tuple[int, int]:
    """How many sets of instances are allowed (the empty one too), and how many of them can take nothing more."""
    seen: set[frozenset[tuple[int, int]]] = {frozenset()}
    todo, full = [(frozenset[tuple[int, int]](), Layout(gpu))], 0
    while todo:
        instances, layout = todo.pop()
        places = [(p, s) for p in profiles for s in layout.starts(p)]
        full += not places
        for profile, start in places:
            more = instances | {(profile.profile_id, start)}
            if more not in seen:
                seen.add(more)
                todo.append((more, layout.with_instance(profile, start)))
    return len(seen), full


def test_every_model_of_the_facts_is_there() -> None:
    assert len(list_models()) == 22
    assert len(SIMULATED) == 19
    assert sum(len(m.profiles) for m in SIMULATED) == 5 + 17 * 7 + 11


@pytest.mark.parametrize(("model", "facts"), PROFILES)
def test_max_instances_follows_from_placements_and_engines(model: Model, facts: ModelProfile) -> None:
    empty = Layout(model.gpu("x"))
    assert empty.capacity(facts.profile) == facts.max_instances
    assert most(empty, facts.profile) == facts.max_instances


@pytest.mark.parametrize("model", SEVEN_SLICE, ids=by_key)
def test_the_seven_slice_family_has_723_layouts(model: Model) -> None:
    gpu = model.gpu("x")
    plain = [p for p in gpu.profiles if not p.name.suffix]
    assert allowed_sets(gpu, plain) == (723, 78)
    single = [p for p in plain if (p.compute_slices, p.size) != (1, 2)]
    assert allowed_sets(gpu, single) == (298, 19), "without the double-memory profile, as papers count"


@pytest.mark.parametrize("model", SIMULATED, ids=by_key)
def test_what_a_simulation_needs_is_there_and_makes_sense(model: Model) -> None:
    gpu = model.gpu("x")
    assert gpu.memory_mib > 0
    assert gpu.multiprocessors >= max(p.multiprocessors for p in gpu.profiles)
    assert max(p.memory_mib for p in gpu.profiles) <= gpu.memory_mib
    assert len({p.profile_id for p in gpu.profiles}) == len(gpu.profiles) == len({p.name for p in gpu.profiles})
    for row in model.profiles:
        assert row.profile.memory_mib > 0
        assert row.profile.multiprocessors > 0
        assert row.profile.engines.copy > 0
        assert set(row.confidence.values()) <= {"high", "medium", "low", "inferred"}


def test_gaps_are_filled_from_the_sibling_and_say_so() -> None:
    b300 = find_model("b300-269gb")
    by_name = {str(p.profile.name): p for p in b300.profiles}
    one = by_name["1g.34gb"]
    assert one.profile.memory_mib == 33920, "97.5 % of 34 GiB in steps of 64 MiB"
    assert one.profile.multiprocessors == 18, "as the B200"
    assert one.confidence["memory"] == one.confidence["multiprocessors"] == one.confidence["engines"] == "inferred"
    assert "multiprocessors" in b300.inferred
    known = {str(p.profile.name): p for p in find_model("h200").profiles}["1g.18gb"]
    assert known.confidence["memory"] == "medium", "what a source says stays what it says"
    assert known.profile.memory_mib == 16384


def test_the_file_keeps_what_is_not_known_as_null() -> None:
    document = json.loads(files("mig_spawner.testing.gpu").joinpath("boards.json").read_text("utf-8"))
    rows = [p for b in document["boards"] for p in b["profiles"]]
    assert len(rows) == 155
    assert sum(p["memory_mib"] is None for p in rows) > 40
    for row in rows:
        assert (row["memory_mib"] is None) == (row["confidence"]["memory"] is None)
        assert (row["placements"] is None) == (row["confidence"]["placements"] is None)
        assert set(row["sources"]) <= set(document["sources"])
    siblings = {b["sibling"] for b in document["boards"]} - {None}
    assert siblings <= {b["key"] for b in document["boards"]}


@pytest.mark.parametrize(
    ("alias", "key"),
    [("h100-80gb", "h100-80gb-sxm"), (" A30 ", "a30-24gb"), ("rtx-pro-6000", "rtx-pro-6000-blackwell-96gb")],
)
def test_short_names(alias: str, key: str) -> None:
    assert find_model(alias).key == key


def test_no_name_means_two_models() -> None:
    names = [n for m in list_models() for n in (m.key, *m.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", ["rtx-pro-5000-blackwell-48gb", "rtx-pro-4500-blackwell-32gb", "thor-igpu"])
def test_a_model_without_known_placements_is_listed_and_refused(key: str) -> None:
    assert any(m.key == key and m.refusal and not m.profiles for m in list_models())
    with pytest.raises(InvalidRequest, match=r"cannot be simulated. Choose one of: a30-24gb"):
        find_model(key)


def test_an_unknown_model_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidRequest, match=r"'gtx-1080' is no GPU model.*a100-80gb"):
        find_model("gtx-1080")
