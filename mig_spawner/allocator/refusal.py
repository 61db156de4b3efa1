"""Saying no: the code decides the HTTP status, the sentence is for the person."""

from __future__ import annotations

from typing import Final

from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.problem import ProblemCode

STATUS: Final = {
    ProblemCode.INVALID: 400,
    ProblemCode.UNAUTHENTICATED: 401,
    ProblemCode.FORBIDDEN: 403,
    ProblemCode.NOT_OFFERED: 403,
    ProblemCode.QUOTA: 403,
    ProblemCode.NOT_FOUND: 404,
    ProblemCode.METHOD_NOT_ALLOWED: 405,
    ProblemCode.CONFLICT: 409,
    ProblemCode.TOO_LARGE: 413,
    ProblemCode.UNSUPPORTED_MEDIA_TYPE: 415,
    ProblemCode.IMPOSSIBLE: 422,
    ProblemCode.NOT_ON_MENU: 422,
    ProblemCode.QUEUE_FULL: 429,
    ProblemCode.TOO_MANY_STREAMS: 429,
    ProblemCode.RATE_LIMITED: 429,
    ProblemCode.INTERNAL: 500,
    ProblemCode.NOT_READY: 503,
}

TITLE: Final = {
    ProblemCode.INVALID: "The request cannot be understood",
    ProblemCode.UNAUTHENTICATED: "Not logged in",
    ProblemCode.FORBIDDEN: "Not allowed",
    ProblemCode.NOT_OFFERED: "Not for you now",
    ProblemCode.QUOTA: "The quota is used up",
    ProblemCode.NOT_ON_MENU: "Not on the menu",
    ProblemCode.NOT_FOUND: "Not found",
    ProblemCode.METHOD_NOT_ALLOWED: "Not a verb of this page",
    ProblemCode.CONFLICT: "Not in this state",
    ProblemCode.TOO_LARGE: "Too large",
    ProblemCode.IMPOSSIBLE: "Never to be had",
    ProblemCode.UNSUPPORTED_MEDIA_TYPE: "Not JSON",
    ProblemCode.QUEUE_FULL: "The queue is full",
    ProblemCode.TOO_MANY_STREAMS: "Too many event streams",
    ProblemCode.RATE_LIMITED: "Asked too often",
    ProblemCode.INTERNAL: "A fault of the allocator",
    ProblemCode.NOT_READY: "Not ready",
}


def refusal(code: ProblemCode, detail: str, *, retry_after_s: float | None = None) -> AllocatorRefused:
    """The error to raise; handlers turn it into a problem document."""
    return AllocatorRefused(detail, status=STATUS[code], code=code, retry_after_s=retry_after_s)
