"""Listening to `GET events`: reading server-sent events, and going on where a stream ended. No I/O here, as in `flow`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx
from pydantic import ValidationError

from mig_spawner.errors import AllocatorUnavailable
from mig_spawner.wire.client.answer import Lost, Reply, read
from mig_spawner.wire.client.flow import Peer
from mig_spawner.wire.event import AVAILABILITY, GAP, AvailabilityEvent, Event, EventKind, GapEvent, LeaseEvent

SILENCE_S: Final = 60.0
"""A stream that is silent for so long is dead: the allocator says something every 15 seconds."""
MAX_LINE: Final = 4 * 1024 * 1024

_DOCUMENTS: Final[Mapping[str, type[LeaseEvent] | type[AvailabilityEvent] | type[GapEvent]]] = {
    AVAILABILITY: AvailabilityEvent,
    GAP: GapEvent,
    **{kind.value: LeaseEvent for kind in EventKind},
}


@dataclass
class Listener:
    """What one listener wants, how far it has come, and how often in a row it heard nothing.

    Attributes:
        last: the number of the last event; the next stream goes on after it.
    """

    peer: Peer
    query: Mapping[str, str]
    last: int | None
    _misses: int = 0
    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        last = {} if self.last is None else {"Last-Event-ID": str(self.last)}
        return {"Accept": "text/event-stream", **last}

    @property
    def timeout(self) -> httpx.Timeout:
        return httpx.Timeout(self.peer.timeout_s, read=SILENCE_S + self.peer.timeout_s)

    def refused(self, reply: Reply) -> None:
        """The answer is no stream.

        Raises:
            AllocatorRefused, AllocatorUnavailable: what it is.
        """
        read(lambda _: None, reply, self.peer.url)
        raise AllocatorUnavailable(f"The answer of {self.peer.url} is not one of a mig-spawner allocator.")

    def opened(self) -> None:
        """A stream begins."""
        self._rest, self._fields = b"", {}

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that are whole now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise AllocatorUnavailable(f"The stream of {self.peer.url} is not one of a mig-spawner allocator.")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                self._misses = 0
                yield event

    def ended(self, lost: Lost | AllocatorUnavailable | None) -> float:
        """A stream has ended, or did not come about: how long to pause before the next, seconds.

        Raises:
            AllocatorUnavailable: it was so too often in a row.
        """
        if lost is None:
            return self.peer.patience.pause(0, self.peer.chance())
        self._misses += 1
        if self._misses >= self.peer.patience.attempts:
            if isinstance(lost, AllocatorUnavailable):
                raise lost
            read(lambda _: None, lost, self.peer.url)
        return self.peer.patience.pause(self._misses - 1, self.peer.chance())

    def _line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        document = _DOCUMENTS.get(fields.get("event", ""))
        if "data" not in fields or document is None:
            return None  # a comment, or a kind that only a newer allocator knows
        try:
            event = document.model_validate_json(fields["data"])
        except ValidationError as error:
            raise AllocatorUnavailable(
                f"The stream of {self.peer.url} is not one of a mig-spawner allocator."
            ) from error
        if not isinstance(event, AvailabilityEvent):
            self.last = event.number
        return event


def listener(
    peer: Peer, user_id: str | None, server_name: str | None, kinds: tuple[str, ...], after: int | None
) -> Listener:
    """For the arguments of `AllocatorClient.events`."""
    query = {"user_id": user_id, "server_name": server_name, "kinds": ",".join(kinds) or None}
    return Listener(peer, {name: value for name, value in query.items() if value is not None}, after)
