"""Events: written with what they tell of, streamed to those who may know, taken up where a stream ended."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from mig_spawner.allocator import service
from mig_spawner.allocator.event import feed, stream
from mig_spawner.allocator.handlers import event as handler
from mig_spawner.allocator.store.outbox import EventRecord
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client import AllocatorClient, Patience, SyncAllocatorClient
from mig_spawner.wire.event import AvailabilityEvent, Event, EventKind, GapEvent, LeaseEvent
from mig_spawner.wire.lease import LeaseDocument
from tests.allocator.both import make_rig
from tests.allocator.conftest import MakeRig
from tests.allocator.proxy import BadWire, Fault
from tests.allocator.rig import SERVICE_TOKEN, Rig, until

__all__ = ["make_rig"]

LEASES = tuple(EventKind)
SECONDS = 30


def written(rig: Rig, after: int = 0) -> list[EventRecord]:
    with rig.app.desk.store.reading() as tx:
        return tx.events(after=after, limit=1000)


def told(rig: Rig, lease: LeaseDocument) -> list[EventKind]:
    return [record.kind for record in written(rig) if record.lease_id == lease.lease_id]


class Ear:
    """A listener in the background.

    Attributes:
        heard: what has come so far.
    """

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self.heard: list[Event] = []
        self._events = events
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._events:
            self.heard.append(event)

    @property
    def leases(self) -> list[tuple[str, EventKind]]:
        return [(e.lease.holder.user_id, e.kind) for e in self.heard if isinstance(e, LeaseEvent)]

    async def until(self, *wanted: tuple[str, EventKind]) -> None:
        """Wait until exactly these have come."""
        await self.see(lambda: len(self.leases) >= len(wanted))
        assert self.leases == list(wanted)

    async def see(self, question: Callable[[], object]) -> None:
        async def asked() -> bool:
            return self.task.done() or bool(question())

        await until(asked, SECONDS)
        if self.task.done():
            self.task.result()
        assert question()


Listen = Callable[..., Awaitable[Ear]]


@pytest.fixture
async def listen(rig: Rig) -> AsyncIterator[Listen]:
    """Listen, from the moment at which the stream is open."""
    async with AsyncExitStack() as stack:

        async def begin(client: AllocatorClient | None = None, **wish: Any) -> Ear:
            streams = rig.app.telling.feed.streams
            ear = Ear(await stack.enter_async_context(aclosing((client or rig.hub).events(**wish))))  # type: ignore[type-var]
            stack.push_async_callback(_end, ear.task)
            await until(lambda: _more(rig, streams), SECONDS)
            return ear

        yield begin


async def _more(rig: Rig, than: int) -> bool:
    return rig.app.telling.feed.streams > than


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_whole_life_of_a_lease_is_written(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("1", duration=3600)
    await rig.tick(3000)
    await rig.tick(1)
    await rig.nodes["n1"].report()
    await rig.tick(600)
    await rig.tick(60)
    await node.turn(3)
    assert told(rig, lease) == ["granted", "ready", "active", "expiring", "ended", "closed"]
    records = written(rig)
    assert all(a.number < b.number and a.at <= b.at for a, b in pairwise(records))
    documents = {r.kind: LeaseDocument.model_validate_json(r.lease) for r in records}
    assert documents[EventKind.GRANTED].device_uuid is None
    assert documents[EventKind.READY].device_uuid is not None
    assert documents[EventKind.ENDED].reason == "expired"
    seconds = documents[EventKind.CLOSED].gpu_seconds
    assert seconds is not None
    assert seconds > 0


async def test_what_waited_in_vain_has_ended_and_nothing_else(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("1", "7g.80gb")
    lease = await rig.acquire("2", "7g.80gb", wait_budget=0)
    assert told(rig, lease) == ["ended"]


async def test_a_grant_that_could_not_be_made_is_told(rig: Rig) -> None:
    node = await rig.node()
    node.board.fails = "no"
    lease = await rig.acquire("1")
    await node.turn()
    assert told(rig, lease)[:2] == ["granted", "queued"]


async def test_what_is_undone_is_not_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.node()
    lease = await rig.acquire("1")
    with monkeypatch.context() as broken:
        broken.setattr(service, "refresh_desired", None)
        with pytest.raises(AllocatorUnavailable, match="answered 500"):
            await rig.release(lease)
    assert told(rig, lease) == ["granted"]
    await rig.release(lease)
    assert told(rig, lease) == ["granted", "ended"]


@pytest.mark.parametrize(
    ("duration", "early"), [(3600, 600), (400, 100), (3600, 0)], ids=["as set", "the last quarter", "never"]
)
async def test_when_an_end_is_warned_of(make_rig: MakeRig, duration: float, early: float) -> None:
    rig = await make_rig(expiry_warning=600 if early else 0)
    await rig.node()
    lease = await rig.active("1", duration=duration)
    await rig.tick(duration - early - 2)
    assert "expiring" not in told(rig, lease)
    await rig.hub.renew(lease.lease_id)
    await rig.tick(3)
    assert ("expiring" in told(rig, lease)) == bool(early)


async def test_an_end_is_warned_of_once_whoever_starts_again_or_beside(make_rig: MakeRig) -> None:
    rig, beside = await make_rig(), await make_rig()
    await rig.node()
    lease = await rig.active("1", duration=3600)
    rig.clock.move(3100)
    await asyncio.gather(*(app.tick() for app in (rig.app, beside.app) for _ in range(3)))
    later = await make_rig()
    await later.app.tick()
    assert told(rig, lease).count(EventKind.EXPIRING) == 1


async def test_old_events_are_forgotten_and_whoever_was_away_for_longer_is_told(rig: Rig, listen: Listen) -> None:
    await rig.node()
    await rig.acquire("1")
    rig.clock.move(100 * 3600)
    await rig.nodes["n1"].report()
    await rig.acquire("2")
    [first, second] = written(rig)
    rig.clock.move(100 * 3600)
    await rig.app.telling.forget()
    assert written(rig) == [second]
    ear = await listen(kinds=LEASES, after=first.number - 1)
    await ear.see(lambda: ear.heard)
    assert ear.heard == [GapEvent(number=second.number)]
    fits = await listen(kinds=LEASES, after=first.number)
    await fits.until(("2", EventKind.GRANTED))
    from_another_ledger = await listen(kinds=LEASES, after=second.number + 1)
    await from_another_ledger.see(lambda: from_another_ledger.heard == [GapEvent(number=second.number)])


async def test_who_listens_hears_what_happens_from_then_on(rig: Rig, listen: Listen) -> None:
    node = await rig.node()
    await rig.acquire("0")
    ear = await listen(kinds=LEASES)
    await rig.active("1")
    await ear.see(lambda: ("1", EventKind.ACTIVE) in ear.leases)
    assert [kind for who, kind in ear.leases if who == "1"] == ["granted", "ready", "active"]
    assert ("0", EventKind.GRANTED) not in ear.leases
    assert node.applied


async def test_one_holder_is_listened_to_and_some_kinds(rig: Rig, listen: Listen) -> None:
    await rig.node()
    one = await listen(user_id="1", kinds=LEASES)
    server = await listen(server_name="lab", kinds=LEASES)
    kinds = await listen(kinds=("ready",))
    await rig.acquire("1")
    await rig.acquire("2", server="lab")
    await rig.nodes["n1"].turn()
    await one.until(("1", EventKind.GRANTED), ("1", EventKind.READY))
    await server.until(("2", EventKind.GRANTED), ("2", EventKind.READY))
    await kinds.until(("1", EventKind.READY), ("2", EventKind.READY))


async def test_what_is_free_is_told_at_first_and_when_it_changes(
    rig: Rig, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BUSY_S", 0.01)
    await rig.node()
    ear = await listen(kinds=("availability",))
    await ear.see(lambda: ear.heard)
    await rig.acquire("1", "7g.80gb")
    await ear.see(lambda: _free(ear) == 0)
    assert {type(event) for event in ear.heard} == {AvailabilityEvent}
    seen = len(ear.heard)
    await rig.tick()
    await rig.hub.renew((await rig.ready("1", "7g.80gb")).lease_id)
    await ear.see(lambda: ear.heard)
    assert len(ear.heard) == seen


def _free(ear: Ear) -> int:
    event = ear.heard[-1]
    assert isinstance(event, AvailabilityEvent)
    offer = event.availability.offer("7g.80gb")
    assert offer is not None
    return offer.free


async def test_what_another_replica_does_is_told(make_rig: MakeRig) -> None:
    rig, beside = await make_rig(), await make_rig()
    await rig.node()
    async with aclosing(beside.hub.events(kinds=LEASES, after=0)) as events:  # type: ignore[type-var]
        await rig.acquire("1")
        event = await asyncio.wait_for(anext(events), SECONDS)
    assert isinstance(event, LeaseEvent)
    assert event.kind is EventKind.GRANTED


@pytest.mark.parametrize("recent", [2, 2000], ids=["the ledger", "what is kept in memory"])
async def test_a_listener_that_was_away_misses_nothing(
    rig: Rig, listen: Listen, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    monkeypatch.setattr(feed, "RECENT", recent)
    monkeypatch.setattr(feed, "PAGE", 2)
    monkeypatch.setattr(stream, "PAGE", 2)
    await rig.node()
    first = await listen(kinds=LEASES)
    for user in range(7):
        await rig.acquire(str(user))
    everything = [(str(user), EventKind.GRANTED) for user in range(7)]
    await first.until(*everything)
    numbers = [event.number for event in first.heard if isinstance(event, LeaseEvent)]
    for seen in range(7):
        again = await listen(kinds=LEASES, after=numbers[seen])
        await again.until(*everything[seen + 1 :])


async def test_a_stream_that_breaks_is_taken_up(rig: Rig) -> None:
    await rig.node()
    async with BadWire(rig.app.url).open() as wire:
        wire.faults.extend([Fault.DROPPED, Fault.BUSY, Fault.CUT, Fault.LOST])
        patience = Patience(attempts=10, first_s=0.01, longest_s=0.01)
        async with (
            AllocatorClient(wire.url, SERVICE_TOKEN, patience=patience) as client,
            aclosing(client.events(kinds=LEASES, after=0)) as events,  # type: ignore[type-var]
        ):
            for user in "123":
                await rig.acquire(user)
                event = await asyncio.wait_for(anext(events), SECONDS)
                assert isinstance(event, LeaseEvent)
                assert event.lease.holder.user_id == user
                await wire.cut()


async def test_the_twin_that_blocks_listens_too(rig: Rig) -> None:
    await rig.node()
    heard: list[Event] = []

    def listen() -> None:
        with SyncAllocatorClient(rig.app.url, SERVICE_TOKEN) as client:
            for event in client.events(kinds=LEASES, after=0):
                heard.append(event)
                if len(heard) == 3:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    await rig.active("1")
    await asyncio.to_thread(thread.join, SECONDS)
    assert [event.kind for event in heard] == ["granted", "ready", "active"]


async def test_who_cannot_be_reached_is_given_up_and_who_says_no_at_once(rig: Rig) -> None:
    patience = Patience(attempts=3, first_s=0.01)
    async with AllocatorClient("http://127.0.0.1:1", SERVICE_TOKEN, patience=patience) as nowhere:
        with pytest.raises(AllocatorUnavailable, match="ConnectError"):
            await anext(nowhere.events())
    with pytest.raises(AllocatorRefused, match="kinds: some of"):
        await anext(rig.hub.events(kinds=("nonsense",)))
    with pytest.raises(AllocatorRefused) as caught:
        await anext(rig.client("wrong-token").events())
    assert caught.value.code == "unauthenticated"


@asynccontextmanager
async def raw(rig: Rig, query: str = "", token: str = SERVICE_TOKEN, **headers: str) -> AsyncIterator[httpx.Response]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with rig.http(token) as http, http.stream("GET", f"/api/v1/events{query}", headers=names) as response:
        yield response


async def test_what_is_on_the_wire(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(stream, "LIFE_S", 0.2)
    await rig.node()
    lease = await rig.acquire("1\u3000x")
    [record] = written(rig)
    async with raw(rig, "?kinds=granted,availability", Last_Event_ID="0") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        text = (await response.aread()).decode()
    hello, granted, free, *beats = text.split("\n\n")
    assert hello == "retry: 2000"
    kind, number, data = granted.split("\n")
    assert (kind, number) == ("event: granted", f"id: {record.number}")
    assert json.loads(data.removeprefix("data: "))["lease"]["lease_id"] == lease.lease_id
    assert free.startswith("event: availability\ndata: {")
    assert set(beats) == {":", ""}


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "1" * 19, "\u00b2"])
async def test_a_last_event_id_that_is_none_is_refused(rig: Rig, number: str) -> None:
    async with rig.http() as http:
        answer = await http.get("/api/v1/events", headers={b"Last-Event-ID": number.encode()})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_a_caller_has_so_many_streams_and_gets_a_place_back(make_rig: MakeRig) -> None:
    rig = await make_rig(event_streams=2)
    async with raw(rig), rig.http() as http:
        async with raw(rig):
            full = await http.get("/api/v1/events")
            assert (full.status_code, full.json()["code"]) == (429, "too-many-streams")
        await until(lambda: _streams(rig, 1), SECONDS)
        async with raw(rig) as response:
            assert response.status_code == 200
    await until(lambda: _streams(rig, 0), SECONDS)


async def _streams(rig: Rig, number: int) -> bool:
    return rig.app.telling.feed.streams == number


async def test_at_its_end_the_allocator_ends_the_streams(make_rig: MakeRig) -> None:
    rig = await make_rig()
    async with raw(rig) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        await rig.app.changes.close()
        assert [line async for line in lines][-1] == ""
    await until(lambda: _streams(rig, 0), SECONDS)


async def test_who_does_not_take_what_is_sent_is_let_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "FLUSH_S", 0.05)
    monkeypatch.setattr(stream, "HEARTBEAT", ":" + "x" * 1_000_000 + "\n\n")
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0)
    async with raw(rig, "?kinds=granted"):
        await until(lambda: _streams(rig, 1), SECONDS)
        await until(lambda: _streams(rig, 0), SECONDS)
