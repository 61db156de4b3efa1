"""Setups side by side, and how they are shown."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from mig_spawner.domain.policy import Demand
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.bench import Effort, House
from mig_spawner.planning.compare import Comparison, compare, steps
from mig_spawner.planning.fleet import Group, gpus_of
from mig_spawner.planning.measure import Figure, figure, quantile
from mig_spawner.planning.plot import save_plot
from mig_spawner.planning.report import as_csv, as_json, as_table
from mig_spawner.planning.rule import parse_quotas
from mig_spawner.planning.scenario import Scenario, of_trace, scenario
from mig_spawner.planning.setup import Knows, Setup
from mig_spawner.planning.trace import Arrival

QUICK = Effort(seeds=2, rehearsed=200, replan=100_000)
GPUS = gpus_of([Group("a100-80gb", 3)])
SETUPS = [Setup("first-fit"), Setup("auto"), Setup("auto", knows=Knows.ESTIMATE), Setup("first-fit", "all-balanced")]


@pytest.fixture(scope="module")
def small() -> Comparison:
    return compare([scenario("steady-uniform-1.0", GPUS, span=10)], SETUPS, QUICK)


def test_every_setup_meets_the_same_arrivals(small: Comparison) -> None:
    assert [str(row.setup) for row in small.rows] == ["first-fit", "auto", "auto, by estimate", "all-balanced"]
    first, *others = small.rows
    assert first.gain is None
    for row in others:
        assert row.gain is not None
        assert row.gain_by_size is not None
        for gain, name in ((row.gain, "accepted_slices"), (row.gain_by_size, "accepted_sizes")):
            assert gain.mean == pytest.approx(row.figures[name].mean - first.figures[name].mean)
    assert 0 < small.bounds["steady-uniform-1.0"].mean <= 1
    balanced = others[-1]
    assert balanced.refused_by_profile["7g.80gb"] > 0
    assert sum(balanced.refused_by_profile.values()) == sum(balanced.refused_why.values())


def test_the_same_again_is_the_same_bytes(small: Comparison) -> None:
    again = compare([scenario("steady-uniform-1.0", GPUS, span=10)], SETUPS, QUICK)
    assert as_json(again) == as_json(small)
    assert as_csv(again) == as_csv(small)
    assert as_table(again) == as_table(small)


def test_json_csv_and_table_say_the_same(small: Comparison) -> None:
    document = json.loads(as_json(small))
    rows = list(csv.DictReader(io.StringIO(as_csv(small))))
    table = as_table(small)
    assert len(document["rows"]) == len(rows) == 4
    for one, line, row in zip(document["rows"], rows, small.rows, strict=True):
        assert (one["policy"], one["layout"]) == (line["policy"], line["layout"])
        assert float(line["accepted_slices"]) == one["accepted_slices"]["mean"]
        for gain in ("gain", "gain_by_size"):
            assert line[gain] == ("" if one[gain] is None else str(one[gain]["mean"]))
        assert row.figures["accepted_slices"].text(100, 2) in table
        profiles = dict(part.split("=") for part in line["refused_by_profile"].split(";"))
        assert {name: int(count) for name, count in profiles.items()} == one["refused_by_profile"]
    assert "all could be moved" in table
    assert "means of 2 runs" in table


def test_a_trace_has_intervals_from_the_parts_of_its_time() -> None:
    trace = [Arrival(60.0 * n, 900.0, SliceRequest(ProfileName(3, 40)), group="abc"[n % 3]) for n in range(100)]
    told = compare(
        [of_trace("mine", GPUS, trace)],
        [Setup("best-fit"), Setup("best-fit")],
        QUICK,
        house=House(parse_quotas(["a=0.9"])),
    )
    row, again = told.rows
    figure = row.figures["accepted_requests"]
    assert figure.plus_minus is not None
    assert again.gain == Figure(0, 0)
    assert not told.bounds
    assert row.refused_by_group["a"] == row.refused_why["quota"]
    assert f"; a {row.refused_by_group['a']}" in as_table(told)


def test_a_policy_that_estimates_follows_what_arrives() -> None:
    """First small ones only, then large ones only: told nothing, it plans anew every ten arrivals."""
    gpus = gpus_of([Group("a30-24gb", 3)])
    names = [ProfileName(1, 6)] * 60 + [ProfileName(2, 12)] * 60
    trace = [Arrival(60.0 * n, 500.0, SliceRequest(name)) for n, name in enumerate(names)]
    setups = [Setup("share-weighted", knows=Knows.ESTIMATE), Setup("auto", knows=Knows.ESTIMATE)]
    told = compare([of_trace("t", gpus, trace)], setups, Effort(rehearsed=100, replan=10))
    assert all(row.figures["accepted_requests"].mean > 0.5 for row in told.rows)


def test_a_quiet_trace_and_one_without_a_bound_are_told_too() -> None:
    lone = of_trace("lone", GPUS, [Arrival(0, 5, WholeRequest())])
    mixed = scenario("steady-uniform-0.9", [*GPUS, *gpus_of([Group("a30-24gb", 1)])], span=3)
    told = compare([lone, mixed], [Setup("best-fit")], Effort(seeds=1))
    assert told.rows[0].figures["accepted_slices"].mean == 1
    assert not told.bounds
    assert "one run" in as_table(told)


def test_what_was_gained_over_all_scenarios() -> None:
    scenarios = [scenario(f"steady-uniform-{load}", GPUS, span=10) for load in ("0.7", "1.0", "1.3")]
    told = compare(scenarios, [Setup("worst-fit"), Setup("best-fit"), Setup("worst-fit", rule="in-order")], QUICK)
    best, _ = told.totals()
    rows = [row for row in told.rows if row.setup == best.setup]
    gains = {row.scenario: row.gain_by_size for row in rows if row.gain_by_size is not None}
    assert best.gain == figure([gain.mean for gain in gains.values()])
    assert best.least == gains[best.worst] == min(gains.values(), key=lambda gain: gain.mean)
    assert "over all 3" in as_table(told)
    assert [total["policy"] for total in json.loads(as_json(told))["totals"]] == ["best-fit", "worst-fit"]


def test_who_loses_more_than_chance_is_named() -> None:
    """Big ones come to GPUs on which small ones stay for ever: spread over all, they leave no room."""
    stay = [Arrival(0.0, 1e9, SliceRequest(ProfileName(1, 10)))] * 3
    trace = [*stay, *(Arrival(60.0 * n, 30.0, SliceRequest(ProfileName(7, 80))) for n in range(1, 100))]
    setups = [Setup("best-fit"), Setup("worst-fit"), Setup("first-fit")]
    worst, first = compare([of_trace("t", GPUS, trace)], setups, QUICK).totals()
    assert (worst.worst, worst.worse) == ("t", ("t",))
    assert first.worse == ()
    lone = compare([scenario("steady-skew-big-1.3", GPUS, span=20)], setups[:2], Effort(seeds=1, bound=False)).totals()
    assert lone[0].least.mean < 0
    assert lone[0].worse == ()


def test_progress_is_told_as_often_as_was_said() -> None:
    told: list[str] = []
    scenarios = [
        scenario("steady-uniform-1.0", GPUS, span=2),
        scenario("small-1.0", gpus_of([Group("a30-24gb", 1)]), span=1),
        of_trace("t", GPUS, [Arrival(0, 5, WholeRequest())]),
    ]
    compare(scenarios, SETUPS[:1], QUICK, step=told.append)
    assert told == [
        f"{name}, seed {seed}: {what}" if seed else f"{name}: {what}"
        for name, seeds in (("steady-uniform-1.0", (1, 2)), ("small-1.0", (1, 2, 0)), ("t", (0,)))
        for seed in seeds
        for what in (["first-fit", "the bound"] if seed else ["first-fit" if name == "t" else "the best possible"])
    ]
    assert len(told) == steps(scenarios, SETUPS[:1], QUICK)


@pytest.mark.parametrize("field", ["policy", "rule"])
def test_a_setup_that_is_none_is_refused(field: str) -> None:
    with pytest.raises(InvalidRequest, match="'magic' is no"):
        Setup(**{field: "magic"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["p.png", "p.svg"])
def test_a_picture_is_the_same_bytes_again(small: Comparison, tmp_path: Path, name: str) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save_plot(small, tmp_path / folder / name)
    picture = (tmp_path / "a" / name).read_bytes()
    assert picture == (tmp_path / "b" / name).read_bytes()
    assert picture.startswith((b"\x89PNG", b"<?xml"))


def test_a_picture_that_cannot_be_made_is_refused(
    small: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match=r"\.png or \.svg"):
        save_plot(small, tmp_path / "p.pdf")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        save_plot(small, tmp_path / "nowhere" / "p.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidRequest, match="pip install"):
        save_plot(small, tmp_path / "p.png")


def test_figures() -> None:
    assert figure([1.0]) == Figure(1.0, None)
    assert figure([1.0, 1.0]) == Figure(1.0, 0.0)
    told = figure([1.0, 2.0, 3.0, 4.0, 5.0])
    assert told.mean == 3
    assert told.plus_minus == pytest.approx(2.776 * 2.5**0.5 / 5**0.5)
    assert told.text(10, 0) == "30 ± 20"
    assert figure([0.0, 1.0] * 40).plus_minus == pytest.approx(0.1109, abs=0.002)
    with pytest.raises(ValueError, match="at least one"):
        figure([])


@pytest.mark.parametrize(("values", "part", "expected"), [([], 0.9, 0), ([3, 1, 2], 0.5, 2), ([1, 2], 0.9, 2)])
def test_quantiles(values: list[float], part: float, expected: float) -> None:
    assert quantile(values, part) == expected


@pytest.mark.parametrize("told", ["large", "small"])
def test_who_knows_the_demand_knows_that_of_the_moment(told: str) -> None:
    """Three 1g come first. Who then expects a 4g leaves room for it, who expects more 1g does not care, and begins at slice 0."""
    demands = {"small": Demand.of({ProfileName(1, 10): 1}), "large": Demand.of({ProfileName(4, 40): 1})}
    first, then = demands.pop(told), *demands.values()
    stay = [Arrival(0.0, 1e6, SliceRequest(ProfileName(1, 10)))] * 3
    trace = [*stay, *(Arrival(60.0 * n, 30.0, SliceRequest(ProfileName(4, 40))) for n in range(1, 50))]
    setting = Scenario("t", GPUS[:1], lambda _: trace, moves=((0.0, first), (30.0, then)), seeded=False)
    setups = [Setup("share-weighted", knows=knows) for knows in (Knows.NOTHING, Knows.DEMAND)]
    nothing, moment = compare([setting], setups, QUICK).rows
    assert not nothing.refused_by_profile
    assert moment.refused_by_profile == ({} if told == "large" else {"4g.40gb": 49})
