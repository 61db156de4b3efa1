"""Errors on the wire: `application/problem+json` (RFC 9457) with a closed set of codes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel

MEDIA_TYPE: Final = "application/problem+json"


class ProblemCode(StrEnum):
    """Why the allocator said no. Each says who can do something about it."""

    INVALID = "invalid"
    """400. The body or query cannot be understood: whoever wrote it."""
    UNAUTHENTICATED = "unauthenticated"
    """401. No token, or one that is not known: log in again."""
    FORBIDDEN = "forbidden"
    """403. Known, but not allowed: ask an admin of the hub for the scope."""
    QUOTA = "quota"
    """403. A quota is used up: wait until it resets, give something back, or ask the contact it names."""
    NOT_FOUND = "not-found"
    """404. No such lease, node or page."""
    METHOD_NOT_ALLOWED = "method-not-allowed"
    """405. The page exists, not for this verb."""
    IMPOSSIBLE = "impossible"
    """422. No waiting will ever serve this request on these GPUs: choose another, or ask an admin."""
    NOT_OFFERED = "not-offered"
    """403. On the menu, but a rule of it is against it for this person now: ask the contact it names, or choose another."""
    NOT_ON_MENU = "not-on-menu"
    """422. The menu has no such thing: choose from what it has."""
    CONFLICT = "conflict"
    """409. The lease is in a state that does not allow it, or the holder already has a lease of another kind."""
    TOO_LARGE = "too-large"
    """413. The body is larger than any honest one."""
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    """415. The body is declared as something else than JSON: whoever wrote it."""
    QUEUE_FULL = "queue-full"
    """429. Too many wait already: try later."""
    TOO_MANY_STREAMS = "too-many-streams"
    """429. The caller has as many event streams open as it may: close one."""
    RATE_LIMITED = "rate-limited"
    """429. Asked too often: whoever wrote the caller lets it wait as long as `Retry-After` says."""
    INTERNAL = "internal"
    """500. A fault of ours; the log of the allocator has it under the request id."""
    NOT_READY = "not-ready"
    """503. The allocator or its database cannot serve now: try again."""


class Problem(BaseModel):
    """The body of every answer that is an error.

    Attributes:
        status: the HTTP status, repeated.
        code: one of `ProblemCode`.
        title: the kind of problem in a few words.
        detail: a sentence for a person: what happened and what to do.
    """

    status: int
    code: ProblemCode
    title: str
    detail: str
