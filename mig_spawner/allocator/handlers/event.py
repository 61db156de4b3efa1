"""`api/v1/events`: a stream of what happens, as server-sent events."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from tornado.iostream import StreamClosedError

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.event.stream import Wish, stream
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.openapi.parameter import KINDS, SERVER_NAME, USER_ID
from mig_spawner.allocator.refusal import refusal
from mig_spawner.errors import StoreError
from mig_spawner.wire.problem import ProblemCode

log = logging.getLogger(__name__)

FLUSH_S: Final = 30.0
"""Whoever does not take what is sent for so long is let go; it can come again and go on."""


class Events(Handler):
    """What happens to the leases that the caller may see, and what is free."""

    _pump: asyncio.Task[None] | None = None
    _gone = False

    @allow(Role.SERVICE, Role.READ)
    @query(USER_ID, SERVER_NAME, KINDS)
    async def get(self) -> None:
        context, last_id = self.context, self._last_event_id()
        wish = Wish(self.principal, self.value(USER_ID, None), self.value(SERVER_NAME, None), self.value(KINDS, None))
        with context.feed.place(self.principal.who):
            pieces = stream(context.feed, context.changes, wish, last_id)
            # The first piece is made before the answer begins: if the ledger cannot be read, that can still be said.
            first = await anext(pieces)
            self.set_header("Content-Type", "text/event-stream")
            self.set_header("X-Accel-Buffering", "no")
            self._pump = asyncio.create_task(self._send(first, pieces))
            try:
                await self._pump
            except asyncio.CancelledError:
                if not self._gone:
                    raise

    async def _send(self, first: str, pieces: AsyncGenerator[str]) -> None:
        try:
            async with aclosing(pieces):
                await self._write(first)
                async for piece in pieces:
                    await self._write(piece)
        except StoreError as error:
            log.warning("An event stream ends: %s", error)
        except TimeoutError:
            log.info("%s does not take its events: its stream ends", self.principal.who)
            connection: Any = self.request.connection
            connection.close()
        except StreamClosedError:
            pass

    async def _write(self, piece: str) -> None:
        self.write(piece)
        async with asyncio.timeout(FLUSH_S):
            await self.flush()

    def on_connection_close(self) -> None:
        self._gone = True
        if self._pump is not None:
            self._pump.cancel()

    def _last_event_id(self) -> int | None:
        text = self.request.headers.get("Last-Event-ID", "")
        if not text:
            return None
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
            raise refusal(ProblemCode.INVALID, "Last-Event-ID: the id of an event, a whole number.")
        return int(text)
