"""One caller's stream: which events it gets, and how they look on the wire.

Each is `event: <kind>`, `id: <number>` and one line of JSON. A comment now and then shows that the stream lives. A stream ends
after a while, since what a caller may see is asked only when it comes; whoever comes again with its `Last-Event-ID` misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from mig_spawner.allocator.auth import Principal
from mig_spawner.allocator.changes import Changes
from mig_spawner.allocator.event.feed import PAGE, Feed
from mig_spawner.wire.event import AVAILABILITY, GAP, AvailabilityEvent, GapEvent, LeaseEvent

HEARTBEAT_S: Final = 15.0
LIFE_S: Final = 900.0
HELLO: Final = "retry: 2000\n\n"
"""What a browser does when a stream ends: it comes again after two seconds."""
HEARTBEAT: Final = ":\n\n"


@dataclass(frozen=True)
class Wish:
    """What a caller wants to hear, and may.

    Attributes:
        kinds: None for all.
    """

    principal: Principal
    user_id: str | None = None
    server_name: str | None = None
    kinds: frozenset[str] | None = None

    @property
    def availability(self) -> bool:
        return self.kinds is None or AVAILABILITY in self.kinds

    def wants(self, event: LeaseEvent) -> bool:
        holder = event.lease.holder
        return (
            (self.principal.sees_all or self.principal.person == holder.user_name)
            and self.user_id in (None, holder.user_id)
            and self.server_name in (None, holder.server_name)
            and (self.kinds is None or event.kind in self.kinds)
        )


async def stream(feed: Feed, changes: Changes, wish: Wish, last_id: int | None) -> AsyncGenerator[str]:
    """Pieces of text to send, until the service ends or the stream has lived long enough."""
    clock = asyncio.get_running_loop().time
    lost, last = await feed.range()
    cursor = last if last_id is None else last_id
    yield HELLO
    if not lost <= cursor <= last:
        cursor = last
        yield _message(GAP, GapEvent(number=last).model_dump_json(), last)
    until, quiet_since, shown = clock() + LIFE_S, clock(), ""
    while not changes.closed and clock() < until:
        told = await feed.after(cursor)
        pieces = [_message(t.event.kind, t.text, t.event.number) for t in told if wish.wants(t.event)]
        cursor = told[-1].event.number if told else cursor
        if wish.availability:
            free = AvailabilityEvent(availability=await feed.availability())
            content = free.model_dump_json(exclude={"availability": {"as_of"}})
            if content != shown:
                shown = content
                pieces.append(_message(AVAILABILITY, free.model_dump_json()))
        if not pieces and clock() - quiet_since >= HEARTBEAT_S:
            pieces.append(HEARTBEAT)
        if pieces:
            quiet_since = clock()
            yield "".join(pieces)
        if len(told) < PAGE:
            waits = [quiet_since + HEARTBEAT_S - clock(), until - clock()]
            waits += [feed.until_look()] if wish.availability else []
            await changes.wait(lambda _: True, feed.revision, max(min(waits), 0))


def _message(kind: str, text: str, number: int | None = None) -> str:
    identity = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{identity}data: {text}\n\n"
