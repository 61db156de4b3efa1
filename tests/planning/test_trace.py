"""Arrivals in CSV files: read, written, refused."""

from __future__ import annotations

import io
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning import trace as traces
from mig_spawner.planning.trace import Arrival, from_zero, parse_trace, read_trace, write_trace

ONE = SliceRequest(ProfileName(1, 10))
SECONDS = st.floats(0, 1e9)
REQUESTS = st.one_of(
    st.sampled_from([ONE, SliceRequest(ProfileName(3, 40, "+me")), WholeRequest()]),
    st.integers(1, 9999).map(MemoryRequest),
)
ARRIVALS = st.builds(
    Arrival,
    at=SECONDS,
    duration=SECONDS,
    request=REQUESTS,
    group=st.sampled_from(["", "physics", 'a,"b"', "Größe"]),
    holder=st.sampled_from(["", "u1/"]),
    wait=st.one_of(st.just(inf), SECONDS),
)


@given(st.lists(ARRIVALS, min_size=1, max_size=10))
def test_what_is_written_is_read_back(arrivals: list[Arrival]) -> None:
    arrivals = from_zero(arrivals)
    text = io.StringIO()
    write_trace(arrivals, text)
    assert parse_trace(text.getvalue().splitlines(keepends=True), "t") == arrivals


def test_times_may_be_written_as_such_and_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "profile,arrival,duration\n1g.10gb,2026-03-01T10:05:00+00:00,60\n,2026-03-01T11:00:00+01:00,7\n", "utf-8"
    )
    assert read_trace(path) == [Arrival(0, 7, WholeRequest()), Arrival(300, 60, ONE)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "has no column arrival, duration, profile", id="empty"),
        pytest.param("arrival,duration,profile\n", "has no arrivals", id="no lines"),
        pytest.param("arrival,duration,profile,color\n1,2,,\n", "unknown columns color", id="unknown column"),
        pytest.param("arrival,duration,profile\n1,2,1g.10gb\n1,2,5x\n", "line 3: '5x' is no MIG profile", id="profile"),
        pytest.param("arrival,duration,profile\n1,-2,\n", "line 2: duration is a number", id="negative"),
        pytest.param("arrival,duration,profile\n1,nan,\n", "line 2: duration is a number", id="nan"),
        pytest.param("arrival,duration,profile\n1,2\n", "line 2: it has more or fewer fields", id="short line"),
        pytest.param("arrival,duration,profile\n1,2,,4\n", "line 2: it has more or fewer fields", id="long line"),
        pytest.param("arrival,duration,profile\nnow,2,\n", "line 2: arrival is a number", id="no time"),
        pytest.param("arrival,duration,profile\n2026-03-01T10:00,2,\n", "no time zone", id="no zone"),
        pytest.param(
            "arrival,duration,profile,memory_gb\n1,2,1g.10gb,10\n", "a profile or a memory, not both", id="both"
        ),
        pytest.param("arrival,duration,profile,memory_gb\n1,2,,0\n", "Ask for more than 0", id="no memory"),
        pytest.param("arrival,duration,profile,group\n1,2,,a\x07\n", "group has at most", id="control character"),
    ],
)
def test_a_faulty_trace_is_refused_with_its_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidRequest, match="The trace ") as caught:
        read_trace(path)
    assert fault in str(caught.value)


def test_a_trace_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_trace(tmp_path / "nowhere.csv")
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="no UTF-8"):
        read_trace(binary)
    monkeypatch.setattr(traces, "MAX_ROWS", 1)
    with pytest.raises(InvalidRequest, match="more than 1 lines"):
        parse_trace(["arrival,duration,profile\n", "1,2,\n", "1,2,\n"], "t")
