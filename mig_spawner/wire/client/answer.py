"""Reading what comes back: every answer is one of three things, a document, "no", or no answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import httpx
from pydantic import ValidationError

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.problem import Problem, ProblemCode

A = TypeVar("A")

_AWAY: Final = frozenset({502, 503, 504})
"""It, or a proxy before it, says that it cannot serve now. A 500 is a fault that a second try would meet again."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_MAX_DETAIL: Final = 2000


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def missed(self) -> bool:
        """It counts as no answer."""
        return self.status in _AWAY

    @property
    def untouched(self) -> bool:
        """It is certain that nothing was done: the allocator itself says that it could not, not a proxy on its way."""
        problem = _problem(self)
        return self.status == 503 and problem is not None and problem.code is ProblemCode.NOT_READY

    @property
    def retry_after_s(self) -> float | None:
        """How long it asks to be left alone, seconds; None if it does not, or not in seconds."""
        if self.status not in (429, 503):
            return None
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        return seconds if seconds >= 0 and math.isfinite(seconds) else None


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came."""

    error: httpx.HTTPError

    missed = True
    retry_after_s = None

    @property
    def untouched(self) -> bool:
        """It is certain that nothing was sent."""
        return isinstance(self.error, _NEVER_SENT)


def read(parse: Callable[[bytes], A], reply: Reply | Lost, url: str) -> A:
    """What an answer says.

    Raises:
        AllocatorUnavailable: there is no usable answer.
        AllocatorRefused: it is no.
    """
    if isinstance(reply, Lost):
        raise AllocatorUnavailable(
            f"The GPU allocator at {url} does not answer ({type(reply.error).__name__})."
        ) from reply.error
    problem = _problem(reply)
    if reply.status >= 500:
        detail = "" if problem is None else problem.detail
        raise AllocatorUnavailable(f"The GPU allocator answered {reply.status}. {detail}".strip())
    if reply.status >= 400:
        if problem is None:
            raise AllocatorRefused(f"The GPU allocator answered {reply.status}.", status=reply.status, code="unknown")
        raise AllocatorRefused(problem.detail[:_MAX_DETAIL], status=problem.status, code=problem.code)
    try:
        return parse(reply.content)
    except ValidationError as error:
        raise AllocatorUnavailable(f"The answer of {url} is not one of a mig-spawner allocator.") from error


def _problem(reply: Reply) -> Problem | None:
    if reply.status < 400:
        return None
    try:
        return Problem.model_validate_json(reply.content)
    except ValidationError:
        return None
