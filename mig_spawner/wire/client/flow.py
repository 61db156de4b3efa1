"""Flows: calls of the API as generators that do no I/O. A client sends what they say, pauses as long as they say, and tells them
what came back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client.answer import Lost, Reply, read
from mig_spawner.wire.client.patience import Breaker, Patience

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class Call(Generic[A]):
    """One question.

    Attributes:
        parse: reads the body of a good answer; a `ValidationError` says that it is no answer of an allocator.
        wait_s: for how long the allocator may hold its answer back.
        repeatable: doing it twice does no harm, so it is tried again when it may have been done already.
    """

    parse: Callable[[bytes], A]
    method: str
    path: str
    body: BaseModel | None = None
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    wait_s: float = 0
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Send:
    """Send this and say what came back: a `Reply`, or `Lost`."""

    call: Call[Any]
    timeout_s: float

    @property
    def params(self) -> dict[str, str | Sequence[str]]:
        wait = {"wait": f"{self.call.wait_s:g}"} if self.call.wait_s else {}
        return {**self.call.query, **wait}

    @property
    def content(self) -> str | None:
        return None if self.call.body is None else self.call.body.model_dump_json()

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.call.body is None else {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


Flow = Generator[Send | Pause, Reply | Lost | None, R]


@dataclass(frozen=True)
class Peer:
    """The allocator as one client knows it.

    Attributes:
        timeout_s: for one answer, on top of what a long poll waits for.
    """

    url: str
    timeout_s: float
    patience: Patience
    breaker: Breaker
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    @classmethod
    def at(cls, url: str, timeout_s: float, patience: Patience) -> Peer:
        return cls(url, timeout_s, patience, Breaker(url, patience))


def ask(peer: Peer, call: Call[A]) -> Flow[A]:
    """Make a call, again if that may help and does no harm.

    Raises:
        AllocatorUnavailable: no usable answer came in the end.
        AllocatorRefused: it said no.
    """
    began, attempt = peer.clock(), 0
    while True:
        peer.breaker.admit()
        reply = yield Send(call, peer.timeout_s + call.wait_s)
        if reply is None:
            raise TypeError("whoever runs a flow answers a Send with a Reply or Lost")
        try:
            answer = read(call.parse, reply, peer.url)
        except AllocatorUnavailable:
            if reply.missed:
                peer.breaker.missed()
            if not (reply.untouched or (call.repeatable and reply.missed)):
                raise
        except AllocatorRefused:
            peer.breaker.heard()
            if reply.retry_after_s is None:
                raise
        else:
            peer.breaker.heard()
            return answer
        attempt += 1
        pause = max(peer.patience.pause(attempt - 1, peer.chance()), reply.retry_after_s or 0)
        left = began + peer.patience.budget_s + call.wait_s - peer.clock()
        if attempt >= peer.patience.attempts or pause > left:
            read(call.parse, reply, peer.url)  # raises what it raised above
        yield Pause(pause)
