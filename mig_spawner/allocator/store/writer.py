"""One writing transaction after another, and one commit for all that stand in line.

A commit waits for the disk, a decision does not. So while somebody is in line, the one who is done leaves the database's transaction
open and hands it on; the last one commits for all. Each of them is whole for itself: what fails is undone up to where it began, and
nobody is told anything before the commit is on disk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from mig_spawner.allocator.store.change import Changed, Slot
from mig_spawner.allocator.store.session import Session
from mig_spawner.allocator.store.transaction import SQLTransaction
from mig_spawner.errors import StoreUnavailable

MOST: Final = 100
"""So many commit together at most, and …"""
LONGEST_S: Final = 0.1
"""… so long after the first of them began nobody more joins, since another replica may wait."""


class Writer:
    """Lets writing transactions in, in the order in which they come.

    Args:
        begin: opens a transaction of the database that is alone, with the slot that it has.
        now: the time, asked for each who joins one.

    Attributes:
        slot: what those who write keep from one to the next.
    """

    def __init__(self, begin: Callable[[Slot], SQLTransaction], now: Callable[[Connection], datetime]) -> None:
        self._begin = begin
        self.slot = Slot()
        self._now = now
        self._line = _Line()
        self._batch: _Batch | None = None

    @contextmanager
    def transaction(self) -> Iterator[SQLTransaction]:
        """A transaction; on disk when the block has ended, or undone when it raises.

        Raises:
            StoreUnavailable: the commit failed, whoever caused it. Whether it was done is not known if the connection was lost
                meanwhile.
            DBAPIError: what a statement raised.
        """
        self._line.enter()
        batch = self._batch
        try:
            if batch is None:
                self.slot.checked = False
                batch = self._batch = _Batch(self._begin(self.slot), self._now)
            with batch.member() as transaction:
                yield transaction
        finally:
            if batch is None or not batch.may_grow or not self._line.anybody:
                self._batch = None
                if batch is not None:
                    batch.end()
            self._line.leave()
            if batch is not None:
                batch.wait()


class _Line:
    """A lock that is had in the order in which it was asked for, and knows whether anybody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    @property
    def anybody(self) -> bool:
        """Whether somebody waits. Who has the lock and is told so knows that it will be taken once more."""
        return bool(self._waiting)

    def enter(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


class _Batch:
    """A transaction of the database, and those who share it."""

    def __init__(self, first: SQLTransaction, now: Callable[[Connection], datetime]) -> None:
        self._first = first
        self._now = now
        self._connection = first.session.connection
        self._begun = time.monotonic()
        self._members = 0
        self._news = self._broken = False
        self._written = Changed()
        self._error: BaseException | None = None
        self._done = threading.Event()

    @property
    def may_grow(self) -> bool:
        return not self._broken and self._members < MOST and time.monotonic() - self._begun < LONGEST_S

    @contextmanager
    def member(self) -> Iterator[SQLTransaction]:
        """One who shares it. What they wrote is undone when they raise; what the others wrote is not."""
        self._members += 1
        mine = self._first if self._members == 1 else self._first.joined(now=self._now(self._connection))
        try:
            yield mine
            mine.flush()
            if mine.session.savepoint is not None:
                mine.session.savepoint.commit()
        except BaseException as error:
            self._undo(mine.session, error)
            # What it wrote may be in the view as it had it: it is read again.
            mine.slot.stale.add(mine.written)
            raise
        self._news |= mine.news
        self._written.add(mine.written)

    def _undo(self, session: Session, error: BaseException) -> None:
        """After it the transaction is as it was before this member, or broken for all."""
        try:
            if session.savepoint is not None:
                session.savepoint.rollback()
            elif isinstance(error, DBAPIError):
                self._broken, self._error = True, error
            elif session.wrote:
                self._broken = True  # it is the first one, so there is nobody whom that concerns
        except DBAPIError as worse:
            self._broken, self._error = True, worse

    def end(self) -> None:
        """Commit for all, or undo for all."""
        try:
            if self._broken:
                self._first.slot.stale.add(self._written)
                self._connection.rollback()
            else:
                self._first.finish(news=self._news, written=self._written)
                self._connection.commit()
        except BaseException as error:
            # If it was not done, the mark in the slot is one of a change that is not there: then everything is read anew.
            self._error = error
            with suppress(Exception):
                self._connection.rollback()
        finally:
            self._connection.close()
            self._done.set()

    def wait(self) -> None:
        """Until it is on disk."""
        self._done.wait()
        if self._error is not None:
            # One of its own for each who waits: an exception belongs to one thread.
            what = self._error.orig if isinstance(self._error, DBAPIError) else self._error
            raise StoreUnavailable(f"The ledger could not be written ({what}). Try again.") from self._error
