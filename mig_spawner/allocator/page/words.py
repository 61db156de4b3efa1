"""Times and sizes in words, for people whose browser runs no scripts; where it does, `page.js` writes them in their own language."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from markupsafe import Markup, escape

from mig_spawner.wire.lease import LeaseDocument, LeaseState


class Named(Protocol):
    """A holder, of the domain or on the wire."""

    @property
    def user_id(self) -> str: ...

    @property
    def server_name(self) -> str: ...

    @property
    def user_name(self) -> str: ...


def holder_name(holder: Named) -> str:
    """`alice`, or `alice/server` for a named one."""
    name = holder.user_name or holder.user_id
    return f"{name}/{holder.server_name}" if holder.server_name else name


def span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`: never more than two units, rounded down."""
    s = int(max(seconds, 0))
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60} min"
    if s < 86400:
        return f"{s // 3600} h {s % 3600 // 60} min" if s % 3600 >= 60 else f"{s // 3600} h"
    return f"{s // 86400} d {s % 86400 // 3600} h" if s % 86400 >= 3600 else f"{s // 86400} d"


def moment(at: datetime | None) -> Markup:
    """A point in time as `<time>`, UTC until a script writes it in the reader's own zone; a dash for never."""
    if at is None:
        return Markup("\N{EN DASH}")
    utc = at.astimezone(UTC)
    return Markup('<time class="moment" datetime="{}">{} UTC</time>').format(
        utc.isoformat(timespec="seconds"), utc.strftime("%Y-%m-%d %H:%M")
    )


def countdown(until: datetime | None, now: datetime) -> Markup:
    """How long until then, as `<time>` that a script counts down without telling every step."""
    if until is None:
        return Markup("no limit")
    left = span((until - now).total_seconds()) if until > now else "over"
    return Markup('<time class="countdown" datetime="{}">{}</time>').format(
        until.astimezone(UTC).isoformat(timespec="seconds"), left
    )


def number(value: float, digits: int = 0) -> Markup:
    """A number as `<data>`, which a script writes as the reader's language does."""
    text = f"{value:.{digits}f}"
    return Markup('<data class="number" value="{}" data-digits="{}">{}</data>').format(text, digits, text)


def percent(share: float) -> Markup:
    """A share of a GPU, with one decimal where it has one."""
    return number(share * 100, 0 if round(share * 100, 1) % 1 == 0 else 1) + Markup("&nbsp;%")


def processes(count: int) -> str:
    """`1 process`, `2 processes`."""
    return "1 process" if count == 1 else f"{count} processes"


def gigabytes(mib: float) -> Markup:
    """MiB as GB, one decimal below ten."""
    gb = mib / 1024
    return escape("") + number(gb, 0 if gb >= 10 or gb == int(gb) else 1) + Markup("&nbsp;GB")


def gpu_hours(seconds: float) -> Markup:
    """GPU-seconds as GPU-hours."""
    return number(seconds / 3600, 2 if seconds < 36_000 else 1)


def extendable(lease: LeaseDocument) -> bool:
    """Whether there is an end to put off. The rules may be against it; the page that asks says so."""
    held = lease.state in (LeaseState.GRANTED, LeaseState.READY, LeaseState.ACTIVE)
    return held and lease.placement is not None and lease.placement.expires_at is not None
