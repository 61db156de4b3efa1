"""How many GPUs, cut how: sums, covers and ways side by side. Small ones are checked by trying everything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.agent.layout_file import load_layouts
from mig_spawner.cli import main
from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning import cover as covers
from mig_spawner.planning.advice import DEMAND, ONCE, Trial, advise
from mig_spawner.planning.call import Lesson, Stream
from mig_spawner.planning.cover import cover, cuts
from mig_spawner.planning.declared import cuts_of
from mig_spawner.planning.fleet import Cut, Group, gpus_of
from mig_spawner.planning.need import Target, base_need, instances_for, moments, refused, streams_of, waiting
from mig_spawner.planning.tell import as_document, as_text
from mig_spawner.planning.trace import Arrival

SUMS = Trial(seeds=())


def name(text: str) -> ProfileName:
    return ProfileName.parse(text)


def fleet(text: str) -> list[GPU]:
    return gpus_of([Group.parse(part) for part in text.split()])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1g.10gb = 20/h x 2h", "1g.10gb = 20/h x 2h"),
        ("mig-1g.10gb:0.5/h*1.5h", "1g.10gb = 0.5/h x 1.5h"),
        ("30 people, 1g.10gb, Tuesday 10-12", "30 people, 1g.10gb, Tuesday 10:00-12:00"),
        ("5, 3g.40gb, wed 9:15\u201311:45", "5 people, 3g.40gb, Wednesday 9:15-11:45"),
    ],
)
def test_what_is_asked_for_is_read(text: str, shown: str) -> None:
    kind = Lesson if "," in text else Stream
    assert str(kind.parse(text)) == shown
    assert kind.parse(shown) == kind.parse(text)


@pytest.mark.parametrize("text", ["", "1g.10gb", "1g.10gb = 20 x 2", "x = 1/h x 1h", "1g.10gb = 999999/h x 9h"])
def test_a_demand_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Stream.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "30, 1g.10gb", "30, 1g.10gb, Someday 10-12", "30, 1g.10gb, Tue 12-10", "0, 1g.10gb, Tue 1-2", "3, x, Tue 1-2",
     "3, 1g.10gb, Tue 10-25"],
)  # fmt: skip
def test_a_class_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Lesson.parse(text)


@pytest.mark.parametrize(
    ("instances", "load", "part"),
    [(0, 3.0, 1.0), (1, 1.0, 0.5), (2, 1.0, 0.2), (10, 5.0, 0.018385), (30, 20.0, 0.008457), (5, 0.0, 0.0)],
)
def test_erlangs_formula_b(instances: int, load: float, part: float) -> None:
    assert refused(instances, load) == pytest.approx(part, abs=1e-5)


def test_erlangs_formula_c() -> None:
    assert waiting(1, 0.5) == pytest.approx(0.5)
    assert waiting(2, 1.0) == pytest.approx(1 / 3)
    assert waiting(10, 5.0) == pytest.approx(0.036105, abs=1e-5)


def test_the_fewest_instances_that_keep_a_promise() -> None:
    stream = Stream(name("1g.10gb"), 10, 2)
    assert instances_for(stream, Target(0.99)) == 30
    assert refused(29, 20) > 0.01 > refused(30, 20)
    patient = instances_for(stream, Target(None, 0.5))
    at_once = instances_for(stream, Target(None, 0.0))
    assert 20 < patient < at_once
    assert waiting(at_once, 20) <= 0.1 < waiting(at_once - 1, 20)
    double = Stream(name("1g.10gb"), 20, 2)
    assert base_need([stream, stream], Target(0.99)) == {double.profile: instances_for(double, Target(0.99))}
    assert base_need([Stream(name("1g.10gb"), 0, 2)], Target(0.99)) == {name("1g.10gb"): 0}


@pytest.mark.parametrize("values", [(None, None), (0.9, 1.0), (1.0, None), (0.0, None), (None, -1.0)])
def test_a_promise_is_an_acceptance_or_a_wait(values: tuple[float | None, float | None]) -> None:
    with pytest.raises(InvalidRequest):
        Target(*values)


def test_when_classes_meet() -> None:
    texts = ["30, 1g.10gb, Tue 10-12", "10, 2g.20gb, Tue 11-13", "5, 1g.10gb, Wed 10-12", "1, 1g.10gb, Tue 12-13"]
    lessons = [Lesson.parse(text) for text in texts]
    assert [(when, [lesson.people for lesson in there]) for when, there in moments(lessons)] == [
        ("Tuesday 10:00", [30]),
        ("Tuesday 11:00", [30, 10]),
        ("Wednesday 10:00", [5]),
        ("Tuesday 12:00", [10, 1]),
    ]


def test_the_streams_of_a_trace() -> None:
    trace = [Arrival(3600.0 * n, 7200.0, SliceRequest(name("1g.10gb"))) for n in range(11)]
    (stream,) = streams_of(trace, fleet("a100-80gb:1"))
    assert stream.per_hour == pytest.approx(1.1)
    assert stream.hours == 2
    assert streams_of([], fleet("a100-80gb:1")) == []


def everything(gpu: GPU, names: Sequence[ProfileName]) -> set[tuple[int, ...]]:
    """All that fits on one GPU, by trying every instance at every start."""
    found: set[tuple[int, ...]] = set()
    todo = [(Layout(gpu), (0,) * len(names))]
    while todo:
        layout, counts = todo.pop()
        found.add(counts)
        for number, one in enumerate(names):
            profile = gpu.profile(one)
            for start in () if profile is None else layout.starts(profile):
                assert profile is not None
                more = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
                if layout.mask < 1 << start:  # from left to right: every set once
                    todo.append((layout.with_instance(profile, start), more))
    return found


def by_trying(gpus: Sequence[GPU], need: dict[ProfileName, int]) -> int | None:
    """The fewest GPUs, by trying every set of them and every cut of each."""
    names = sorted(need)
    most = Counter(gpu.model for gpu in gpus)
    ways = []
    for model in sorted(most):
        found = everything(next(gpu for gpu in gpus if gpu.model == model), names)
        # What another one has and more need not be tried.
        ways += [(model, c) for c in found if not any(o != c and all(map(int.__ge__, o, c)) for o in found)]
    for count in range(len(gpus) + 1):
        for chosen in combinations_with_replacement(ways, count):
            used = Counter(model for model, _ in chosen)
            held = [sum(c[n] for _, c in chosen) for n in range(len(names))]
            if all(used[m] <= most[m] for m in used) and all(h >= need[n] for h, n in zip(held, names, strict=True)):
                return count
    return None


def holds(found: covers.Cover, need: dict[ProfileName, int]) -> bool:
    have = Counter(one for _, cut in found.gpus for one in cut)
    return all(have[one] >= count for one, count in need.items())


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.integers(0, 5)] * 3), st.sampled_from(["a30-24gb:3", "a30-24gb:2", "rtx-pro-6000:3"]))
def test_no_cover_is_smaller(counts: tuple[int, ...], gpus: str) -> None:
    found_gpus = fleet(gpus)
    names = [p.name for p in found_gpus[0].profiles if not p.name.suffix]
    need = dict(zip(names, counts, strict=False))
    found, tried = cover(found_gpus, need), by_trying(found_gpus, need)
    assert (None if found is None else len(found.gpus)) == tried
    if found is not None:
        assert found.least <= len(found.gpus)
        assert holds(found, need)


@pytest.mark.parametrize(
    ("gpus", "need"),
    [
        ("a100-80gb:3", {"1g.10gb": 9, "3g.40gb": 2}),
        ("a100-80gb:3", {"4g.40gb": 2, "3g.40gb": 2, "1g.10gb": 4}),
        ("a100-80gb:2 a30-24gb:2", {"1g.10gb": 5, "1g.6gb": 6, "2g.12gb": 1}),
        ("a100-80gb:2 h100-80gb:1", {"7g.80gb": 2, "2g.20gb": 3}),
        ("a100-80gb:2", {"1g.10gb+me": 2, "1g.10gb": 9}),
        ("a100-80gb:2", {"1g.10gb+me": 3}),
    ],
)
def test_covers_of_larger_gpus(gpus: str, need: dict[str, int]) -> None:
    wanted = {name(one): count for one, count in need.items()}
    found, tried = cover(fleet(gpus), wanted), by_trying(fleet(gpus), wanted)
    assert (None if found is None else len(found.gpus)) == tried
    assert found is None or holds(found, wanted)


def test_a_cut_has_nothing_left_to_add() -> None:
    (gpu,) = fleet("a100-80gb:1")
    names = (name("1g.10gb"), name("3g.40gb"))
    assert set(cuts(gpu, names)) == {(0, 2), (4, 1), (7, 0)} | {c for c in cuts(gpu, names) if c == (3, 1)}


def test_a_large_fleet_is_covered_and_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = fleet("a100-80gb:60")
    need = {name("1g.10gb"): 90, name("2g.20gb"): 23, name("3g.40gb"): 17, name("7g.80gb"): 9}
    found = cover(gpus, need)
    assert found is not None
    assert holds(found, need)
    assert len(found.gpus) - found.least <= 1
    monkeypatch.setattr(covers, "MAX_STEPS", 3)
    assert cover(gpus, need) is None
    assert cover(gpus, {name("1g.6gb"): 1}) is None
    assert cover(gpus, {}) == covers.Cover((), 0)


def ways(
    text: str, streams: Sequence[str], lessons: Sequence[str], target: Target, trial: Trial = SUMS
) -> dict[str, int | None]:
    calls = [Stream.parse(stream) for stream in streams]
    meetings = [Lesson.parse(lesson) for lesson in lessons]
    advice = advise(fleet(text), calls, meetings, target, trial=trial)
    return {way.name: way.gpus for way in advice.ways}


def test_the_class_of_the_docs() -> None:
    """30 people with a 1g and 4 tutors with a 3g."""
    lessons = ["30 people, 1g.10gb, Tuesday 10-12", "4 people, 3g.40gb, Tuesday 10-12"]
    found = ways("a100-80gb:8", [], lessons, Target())
    assert found == {ONCE: 6, DEMAND: 6, "all-1g": None, "all-balanced": None}
    need = {name("1g.10gb"): 30, name("3g.40gb"): 4}
    assert by_trying(fleet("a100-80gb:6"), need) == 6


def test_the_research_group_of_the_docs() -> None:
    streams = ["1g.10gb = 6/h x 3h", "2g.20gb = 1/h x 6h", "7g.80gb = 0.1/h x 10h"]
    found = ways("a100-80gb:16", streams, [], Target())
    assert found[ONCE] == 13
    need = {name("1g.10gb"): 28, name("2g.20gb"): 13, name("7g.80gb"): 5}
    assert base_need([Stream.parse(s) for s in streams], Target()) == need
    assert by_trying(fleet("a100-80gb:13"), need) == 13


def test_the_mixed_fleet_of_the_docs() -> None:
    lessons = ["8, 1g.10gb, Mon 9-11", "6, 3g.40gb, Mon 10-12", "2, 7g.80gb, Fri 9-17"]
    found = ways("a100-80gb:3 h100-80gb:3", [], lessons, Target())
    assert (found[ONCE], found[DEMAND]) == (6, 4)
    monday = {name("1g.10gb"): 8, name("3g.40gb"): 6}
    assert by_trying(fleet("a100-80gb:3 h100-80gb:3"), monday) == 4
    assert by_trying(fleet("a100-80gb:3 h100-80gb:3"), monday | {name("7g.80gb"): 2}) == 6


def test_cut_on_demand_takes_fewer_where_people_come_by_chance() -> None:
    trial = Trial(seeds=(1,), hours=600, rehearsed=200)
    streams = ["1g.6gb = 1/h x 2h", "2g.12gb = 1/h x 2h", "4g.24gb = 0.3/h x 3h"]
    found = ways("a30-24gb:16", streams, [], Target(0.98), trial)
    assert found[DEMAND] is not None
    assert found[ONCE] is not None
    assert found[DEMAND] < found[ONCE]
    few = ways("a30-24gb:1", streams, [], Target(0.95), trial)
    assert few == {ONCE: None, DEMAND: None, "all-1g": None, "all-balanced": None}


def test_todays_layout_is_compared_too() -> None:
    gpus = fleet("a100-80gb:4")
    today: dict[str, list[Cut]] = {"ours": [(name("3g.40gb"), name("3g.40gb"))] * 4, "small": [(name("1g.10gb"),)]}
    lesson = Lesson.parse("5, 3g.40gb, Tue 10-12")
    advice = advise(gpus, [], [lesson], Target(), today=today, trial=SUMS)
    found = {way.name: (way.gpus, way.why) for way in advice.ways}
    assert found["ours"][0] == 3
    assert found["small"] == (None, "it has no 3g.40gb")
    assert advice.best is not None
    assert advice.best.name == ONCE
    with pytest.raises(InvalidRequest, match="is for 5 GPUs"):
        advise(gpus, [], [lesson], Target(), today={"x": [()] * 5}, trial=SUMS)


def test_nothing_or_the_impossible_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Nothing is asked for"):
        advise(fleet("a100-80gb:1"), [], [], Target())
    with pytest.raises(InvalidRequest, match=r"offers 1g\.6gb"):
        advise(fleet("a100-80gb:1"), [], [Lesson.parse("5, 1g.6gb, Tue 10-12")], Target())


def test_text_and_json_say_the_same() -> None:
    advice = advise(fleet("a30-24gb:9"), [Stream.parse("1g.6gb = 2/h x 2h")], [], Target(None, 0.1), trial=SUMS)
    text, document = as_text(advice), json.loads(as_document(advice))
    assert "2 x 2 = 4.0" in text
    assert "nine of ten wait at most 6 min" in text
    assert document["best"] == ONCE
    for way in document["ways"]:
        assert way["why"] in text
    none = advise(fleet("a30-24gb:1"), [], [Lesson.parse("9, 1g.6gb, Tue 10-12")], Target(), trial=SUMS)
    assert "No way keeps the promise" in as_text(none)
    assert json.loads(as_document(none))["best"] is None


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def test_the_command_writes_what_it_found(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival,duration,profile\n" + "".join(f"{n * 600},900,1g.6gb\n" for n in range(60)), "utf-8")
    layout, output = tmp_path / "layout.yaml", tmp_path / "advice.json"
    result = plan(
        "--gpu", "a30-24gb:8", "--trace", str(trace), "--class", "6, 2g.12gb, Tue 10-12", "--mig-parted", str(layout),
        "--json", "--output", str(output), "--hours", "200", "--rehearsed", "200",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "cut on demand" in result.stderr
    ways = {way["name"]: way for way in json.loads(output.read_text("utf-8"))["ways"]}
    again = plan("--gpu", "a30-24gb:8", "--class", "6, 2g.12gb, Tue 10-12", "--today", str(layout), "--no-trial")
    assert again.exit_code == 0, again.output
    assert "planned" in again.stdout
    (found,) = load_layouts(layout).declaration.layouts.values()
    cut, findings = cuts_of(found, fleet(f"a30-24gb:{ways[ONCE]['gpus']}"))
    assert not findings
    assert [Counter(map(str, c)) for c in cut] == [Counter(c["profiles"]) for c in ways[ONCE]["cuts"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpu", "a30-24gb:1"], "Nothing is asked for"),
        (["--gpu", "x"], "no GPU model"),
        (["--gpu", "a30-24gb:1", "--class", "x"], "A class is written like"),
        (["--gpu", "a30-24gb:1", "--acceptance", "2", "--class", "1, 1g.6gb, Tue 1-2"], "less than 1"),
        (["--gpu", "a30-24gb:1", "--class", "9, 1g.6gb, Tue 1-2", "--mig-parted", "x"], "no layout to write"),
        (["--gpu", "a30-24gb:1", "--class", "9, 1g.6gb, Tue 1-2", "--layout", "x"], "no layout to write"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: list[str], sentence: str) -> None:
    result = plan(*arguments, "--quiet")
    assert result.exit_code != 0
    assert sentence in " ".join(result.stderr.split())
