"""The rules that both clients share, without HTTP and without time: what is tried again, when, and when nothing is tried."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest

from mig_spawner.domain.lease import Holder
from mig_spawner.domain.request import WholeRequest
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client import ONCE, AllocatorClient, Patience, SyncAllocatorClient, verb
from mig_spawner.wire.client.answer import Lost, Reply
from mig_spawner.wire.client.flow import Flow, Pause, Peer, Send
from mig_spawner.wire.client.patience import Breaker
from mig_spawner.wire.lease import LeaseRelease, LeaseRequest
from mig_spawner.wire.problem import Problem, ProblemCode

R = TypeVar("R")

URL = "http://allocator"
LEASE = b'{"lease_id": "l1", "holder": {"user_id": "7"}, "state": "ready", "asked": "", "queued_at": "2026-01-01T00:00:00Z"}'
GOOD = Reply(200, LEASE, {})
REFUSED = Lost(httpx.ConnectError("refused"))
CUT = Lost(httpx.RemoteProtocolError("cut"))
LATE = Lost(httpx.ReadTimeout("late"))
ACQUIRE = LeaseRequest.of(WholeRequest(), Holder("7"))


def problem(code: ProblemCode, status: int, **headers: str) -> Reply:
    body = Problem(status=status, code=code, title="", detail="A sentence.").model_dump_json()
    return Reply(status, body.encode(), {k.replace("_", "-"): v for k, v in headers.items()})


NOT_READY = problem(ProblemCode.NOT_READY, 503)
PROXY = Reply(502, b"<html>bad gateway", {})
FAULT = problem(ProblemCode.INTERNAL, 500)
IMPOSSIBLE = problem(ProblemCode.IMPOSSIBLE, 422)


@dataclass
class Stage:
    """Answers the calls of a flow from a list, and lets the clock run as fast as the flow pauses."""

    patience: Patience = field(default_factory=Patience)
    now: float = 1000.0
    sent: list[Send] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        breaker = Breaker(URL, self.patience, lambda: self.now)
        self.peer = Peer(URL, 5.0, self.patience, breaker, lambda: self.now, lambda: 0.0)

    def run(self, flow: Flow[R], *replies: Reply | Lost, seconds: float = 0) -> R:
        left = list(replies)
        reply: Reply | Lost | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: R = end.value
                assert left == []
                return result
            match step:
                case Send():
                    self.sent.append(step)
                    reply = left.pop(0)
                    self.now += seconds
                case Pause(pause):
                    self.pauses.append(pause)
                    self.now += pause
                    reply = None


@pytest.mark.parametrize("miss", [REFUSED, CUT, LATE, NOT_READY, PROXY], ids=["refused", "cut", "late", "503", "502"])
def test_what_may_be_done_twice_is_tried_again(miss: Reply | Lost) -> None:
    stage = Stage()
    assert stage.run(verb.acquire(stage.peer, ACQUIRE, 0), miss, miss, GOOD).lease_id == "l1"
    assert stage.pauses == [0.25, 0.5]
    assert len({send.content for send in stage.sent}) == 1


@pytest.mark.parametrize(
    ("miss", "again"),
    [(REFUSED, True), (NOT_READY, True), (CUT, False), (LATE, False), (PROXY, False)],
    ids=["refused", "503 of the allocator", "cut", "late", "502 of a proxy"],
)
def test_what_may_not_is_tried_again_only_if_it_was_surely_not_done(miss: Reply | Lost, again: bool) -> None:
    stage = Stage()
    flow = verb.release_holder(stage.peer, "7", "", LeaseRelease())
    if again:
        assert stage.run(flow, miss, Reply(200, b'{"leases": []}', {})).leases == ()
    else:
        with pytest.raises(AllocatorUnavailable):
            stage.run(flow, miss)


@pytest.mark.parametrize(("reply", "error"), [(IMPOSSIBLE, AllocatorRefused), (FAULT, AllocatorUnavailable)])
def test_no_and_a_fault_are_not_tried_again(reply: Reply, error: type[Exception]) -> None:
    stage = Stage()
    with pytest.raises(error, match=r"A sentence\."):
        stage.run(verb.renew(stage.peer, "l1"), reply)


def test_it_gives_up_after_so_many_attempts_with_what_was_seen_last() -> None:
    stage = Stage()
    with pytest.raises(AllocatorUnavailable, match=r"answered 503. A sentence\."):
        stage.run(verb.availability(stage.peer), REFUSED, REFUSED, REFUSED, NOT_READY)
    assert stage.pauses == [0.25, 0.5, 1.0]


def test_it_gives_up_when_its_time_is_over_but_a_long_poll_may_take_its_own() -> None:
    stage = Stage()
    with pytest.raises(AllocatorUnavailable):
        stage.run(verb.availability(stage.peer), LATE, seconds=21)
    assert stage.run(verb.lease(stage.peer, "l1", 30, None), LATE, GOOD, seconds=31).lease_id == "l1"


def test_chance_shortens_a_pause_by_half_at_most() -> None:
    patience = Patience()
    assert [patience.pause(n, 0) for n in range(7)] == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert patience.pause(2, 1) == 0.5


@pytest.mark.parametrize("text", ["3", "3.0"])
def test_an_allocator_that_says_when_to_come_again_is_obeyed(text: str) -> None:
    stage = Stage()
    stage.run(verb.renew(stage.peer, "l1"), problem(ProblemCode.QUEUE_FULL, 429, retry_after=text), GOOD)
    assert stage.pauses == [3]


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "Wed, 21 Oct 2026 07:28:00 GMT", "3600"])
def test_but_not_when_that_is_no_time_or_too_long(text: str) -> None:
    stage = Stage()
    with pytest.raises(AllocatorRefused):
        stage.run(verb.renew(stage.peer, "l1"), problem(ProblemCode.QUEUE_FULL, 429, retry_after=text))
    assert stage.pauses == []


def test_once_means_once() -> None:
    stage = Stage(ONCE)
    for _ in range(20):
        with pytest.raises(AllocatorUnavailable, match="ConnectError"):
            stage.run(verb.availability(stage.peer), REFUSED)
    assert stage.pauses == []


def test_after_many_misses_calls_fail_at_once_and_one_looks_again_now_and_then() -> None:
    stage = Stage(Patience(attempts=1, break_after=3, break_s=5))
    for _ in range(3):
        with pytest.raises(AllocatorUnavailable, match="ConnectError"):
            stage.run(verb.availability(stage.peer), REFUSED)
    with pytest.raises(AllocatorUnavailable, match=r"not answered 3 times in a row. It is asked again in \d s"):
        stage.run(verb.availability(stage.peer))
    stage.now += 5
    one, other = verb.renew(stage.peer, "l1"), verb.renew(stage.peer, "l1")
    assert isinstance(one.send(None), Send)
    with pytest.raises(AllocatorUnavailable, match="in a row"):
        other.send(None)
    with pytest.raises(StopIteration):
        one.send(GOOD)
    assert stage.run(verb.renew(stage.peer, "l1"), GOOD).lease_id == "l1"


def test_a_no_is_an_answer_too() -> None:
    stage = Stage(Patience(attempts=1, break_after=2))
    for reply in (REFUSED, IMPOSSIBLE, REFUSED, FAULT, IMPOSSIBLE, REFUSED, IMPOSSIBLE):
        with pytest.raises((AllocatorUnavailable, AllocatorRefused), match=r"ConnectError|A sentence"):
            stage.run(verb.renew(stage.peer, "l1"), reply)


def _methods(client: type[Any]) -> dict[str, str]:
    found = {name: f for name, f in vars(client).items() if inspect.isfunction(f) and not name.startswith("_")}
    return {name.replace("aclose", "close"): str(inspect.signature(f)) for name, f in found.items()}


def test_the_twins_have_the_same_methods_with_the_same_arguments() -> None:
    asynchronous = {
        name: shape.replace("AsyncIterator", "Iterator") for name, shape in _methods(AllocatorClient).items()
    }
    assert asynchronous == _methods(SyncAllocatorClient)
    ours, theirs = (inspect.signature(c.__init__).parameters for c in (AllocatorClient, SyncAllocatorClient))
    assert list(ours) == list(theirs)
