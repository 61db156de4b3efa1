"""Webhooks: signed, written with what they tell of, tried again, given up for an admin to look at, and only to where it is allowed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from mig_spawner.allocator.store.post import Delivery
from mig_spawner.allocator.webhook import delivery as module
from mig_spawner.allocator.webhook.address import origin_of, origins_of
from mig_spawner.allocator.webhook.delivery import Postman
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.event import EventKind
from mig_spawner.wire.webhook import DeliveryState
from tests.allocator.both import make_rig
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig, until

__all__ = ["make_rig"]

API: Final = "/api/v1/webhooks"
SECONDS: Final = 30


class Receiver:
    """A server that takes deliveries.

    Attributes:
        answers: the statuses of the next answers; then 204.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[int] = []
        self.taken: list[tuple[Mapping[str, str], str]] = []

    async def take(self, request: web.Request) -> web.Response:
        self.taken.append((request.headers.copy(), await request.text()))
        status = self.answers.pop(0) if self.answers else 204
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 307 else {})

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.taken]

    @property
    def types(self) -> list[str]:
        return [document["type"] for document in self.documents]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield receiver
    await runner.cleanup()


@pytest.fixture
async def rig(make_rig: MakeRig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Rig:
    # Deliveries happen when a test says so.
    monkeypatch.setattr(Postman, "step", _nothing)
    rig = await make_rig(webhook_origins=[receiver.url])
    await rig.node()
    return rig


_step = Postman.step


async def _nothing(postman: Postman) -> None:
    pass


async def deliver(rig: Rig, move: float = 0) -> None:
    rig.clock.move(move)
    await _step(rig.app.telling.postman)


async def create(rig: Rig, receiver: Receiver, **more: Any) -> dict[str, Any]:
    async with rig.http() as http:
        answer = await http.post(API, json={"url": f"{receiver.url}/token-in-the-path", **more})
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def listed(rig: Rig, path: str = "") -> Any:
    async with rig.http() as http:
        answer = await http.get(f"{API}{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def deliveries(rig: Rig, webhook: Mapping[str, Any], query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await listed(rig, f"/{webhook['webhook_id']}/deliveries{query}"))["deliveries"]
    return found


async def test_a_receiver_can_prove_what_it_gets(make_rig: MakeRig, receiver: Receiver) -> None:
    """By the reference implementation of Standard Webhooks, which looks at the time as well: here it is the real one."""
    rig = await make_rig(clock=None, webhook_origins=[receiver.url])
    await rig.node()
    webhook = await create(rig, receiver)
    lease = await rig.ready("1")
    await until(lambda: _taken(receiver, 2), SECONDS)
    judge = Webhook(webhook["secret"])
    documents = [judge.verify(body, dict(headers)) for headers, body in receiver.taken]
    assert sorted(document["type"] for document in documents) == ["lease.granted", "lease.ready"]
    assert all(document["data"]["lease"]["lease_id"] == lease.lease_id for document in documents)
    headers, body = receiver.taken[0]
    with pytest.raises(WebhookVerificationError):
        judge.verify(body + " ", dict(headers))
    other = await create(rig, receiver)
    with pytest.raises(WebhookVerificationError):
        Webhook(other["secret"]).verify(body, dict(headers))


async def _taken(receiver: Receiver, number: int) -> bool:
    return len(receiver.taken) >= number


async def test_the_secret_is_shown_once_and_nothing_secret_is_logged(
    rig: Rig, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = [410]
    webhook = await create(rig, receiver, description="for accounting")
    await rig.acquire("1")
    await deliver(rig)
    [shown] = (await listed(rig))["webhooks"]
    assert shown == {name: value for name, value in webhook.items() if name != "secret"} | {"dead": 1}
    assert webhook["secret"].startswith("whsec_")
    with rig.app.desk.store.reading() as tx:
        seen = repr(tx.webhooks()) + repr(rig.app.telling.postman)
    seen += "\n".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")
    assert f"{webhook['webhook_id']} to {receiver.url}" in seen
    assert "is given up for the webhook" in seen
    assert webhook["secret"] not in seen
    assert "token-in-the-path" not in seen
    assert webhook["secret"] not in str(rig.rows("SELECT * FROM webhook"))


async def test_only_what_a_webhook_wants_is_sent_and_only_from_then_on(rig: Rig, receiver: Receiver) -> None:
    await rig.acquire("0")
    await create(rig, receiver, kinds=["ended", "ready", "ready"])
    lease = await rig.active("1")
    await rig.release(lease)
    await deliver(rig)
    assert receiver.types == ["lease.ready", "lease.ready", "lease.ended"]
    await deliver(rig, 3600)
    assert len(receiver.taken) == 3
    [shown] = (await listed(rig))["webhooks"]
    assert (shown["kinds"], shown["pending"], shown["dead"]) == (["ready", "ended"], 0, 0)


async def test_what_is_undone_is_not_sent(rig: Rig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = await create(rig, receiver)
    with monkeypatch.context() as broken:
        broken.setattr("mig_spawner.allocator.service.refresh_desired", None)
        async with rig.http() as http:
            body = rig.request("1").model_dump_json()
            assert (await http.post("/api/v1/leases", content=body)).status_code == 500
    assert await deliveries(rig, webhook) == []


async def test_what_fails_is_tried_again_later_and_later_until_it_is_dead(
    rig: Rig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.app.telling.postman, "_chance", lambda: 0)
    webhook = await create(rig, receiver, kinds=["granted"])
    receiver.answers = [500] * module.ATTEMPTS
    await rig.acquire("1")
    pauses = []
    for attempt in range(1, module.ATTEMPTS + 1):
        await deliver(rig)
        await deliver(rig)
        [seen] = await deliveries(rig, webhook)
        assert (seen["attempts"], seen["status"], seen["error"]) == (attempt, 500, "The answer was 500.")
        assert len(receiver.taken) == attempt
        if seen["state"] == "pending":
            with rig.app.desk.store.reading() as tx:
                [one] = tx.deliveries(webhook["webhook_id"], state=None, before=None, limit=10)
                pauses.append(round((one.next_at - tx.now).total_seconds()))
            rig.clock.move(pauses[-1] + 1)
    assert pauses == [10, 40, 160, 640, 2560, 10240, 21600, 21600, 21600]
    assert await deliveries(rig, webhook, "?state=pending") == []
    [dead] = await deliveries(rig, webhook, "?state=dead")
    assert dead["next_at"] is None
    assert len({headers["webhook-id"] for headers, _ in receiver.taken}) == 1
    assert len({body for _, body in receiver.taken}) == 1
    assert await rig.metric('mig_webhook_delivery_count{state="dead"}') == 1
    async with rig.http() as http:
        again = await http.post(f"{API}/{webhook['webhook_id']}/deliveries/{dead['number']}/redeliver")
        assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (200, "pending", 0)
    await deliver(rig)
    [arrived] = await deliveries(rig, webhook)
    assert (arrived["state"], arrived["attempts"], arrived["status"], arrived["error"]) == ("delivered", 1, 204, "")


@pytest.mark.parametrize(
    ("answer", "state", "taken"), [(307, "pending", 1), (404, "pending", 1), (410, "dead", 1), (200, "delivered", 1)]
)
async def test_answers(rig: Rig, receiver: Receiver, answer: int, state: str, taken: int) -> None:
    webhook = await create(rig, receiver, kinds=["granted"])
    receiver.answers = [answer]
    await rig.acquire("1")
    await deliver(rig)
    assert [one["state"] for one in await deliveries(rig, webhook)] == [state]
    assert len(receiver.taken) == taken


async def test_a_receiver_that_is_away_or_slow_is_tried_again(
    make_rig: MakeRig, receiver: Receiver, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = await create(rig, receiver, kinds=["granted"])
    await rig.acquire("1")
    monkeypatch.setattr(module, "TIMEOUT_S", 0)
    await deliver(rig)
    [late] = await deliveries(rig, webhook)
    assert (late["state"], late["error"]) == ("pending", "No answer (TimeoutError).")
    monkeypatch.undo()
    monkeypatch.setattr(Postman, "step", _nothing)
    nowhere = await make_rig("other.sqlite", webhook_origins=["http://127.0.0.1:1"])
    await nowhere.node()
    async with nowhere.http() as http:
        lost = (await http.post(API, json={"url": "http://127.0.0.1:1/x"})).json()
    await nowhere.acquire("1")
    await deliver(nowhere)
    [seen] = await deliveries(nowhere, lost)
    assert (seen["state"], seen["status"], seen["error"]) == ("pending", None, "No answer (ConnectError).")


async def test_two_replicas_deliver_each_event_once(make_rig: MakeRig, rig: Rig, receiver: Receiver) -> None:
    await create(rig, receiver)
    beside = await make_rig(webhook_origins=[receiver.url])
    for user in range(7):
        await rig.acquire(str(user))
    await asyncio.gather(*(deliver(each) for each in (rig, beside) * 3))
    ids = [headers["webhook-id"] for headers, _ in receiver.taken]
    assert len(ids) == len(set(ids)) == 7


async def test_whoever_was_killed_while_sending_is_made_good_and_counted_once(rig: Rig, receiver: Receiver) -> None:
    webhook = await create(rig, receiver, kinds=["granted"])
    await rig.acquire("1")
    with rig.app.desk.store.writing() as tx:
        [claimed] = tx.claim_deliveries(10, tx.now + timedelta(seconds=60))
    await deliver(rig, 50)
    assert receiver.taken == []
    await deliver(rig, 20)
    assert len(receiver.taken) == 1
    # The first one was only slow: what it says now comes too late.
    _finish(rig, claimed)
    [seen] = await deliveries(rig, webhook)
    assert (seen["state"], seen["attempts"]) == ("delivered", 1)


def _finish(rig: Rig, claimed: Delivery) -> None:
    with rig.app.desk.store.writing() as tx:
        tx.finish_delivery(claimed, DeliveryState.DEAD, next_at=tx.now, status=500, error="late")


async def test_more_than_are_sent_at_once_are_sent_and_listed_in_pages(
    rig: Rig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    webhook = await create(rig, receiver)
    for user in range(5):
        await rig.acquire(str(user))
    await deliver(rig)
    assert len(receiver.taken) == 5
    first = await listed(rig, f"/{webhook['webhook_id']}/deliveries?limit=3")
    second = await listed(rig, f"/{webhook['webhook_id']}/deliveries?limit=3&cursor={first['next']}")
    numbers = [one["number"] for page in (first, second) for one in page["deliveries"]]
    assert numbers == sorted(numbers, reverse=True)
    assert (len(set(numbers)), second["next"]) == (5, None)


async def test_a_deleted_webhook_gets_nothing_more_and_old_deliveries_go_with_their_events(
    rig: Rig, receiver: Receiver
) -> None:
    webhook, other = await create(rig, receiver), await create(rig, receiver)
    await rig.acquire("1")
    async with rig.http() as http:
        assert (await http.delete(f"{API}/{webhook['webhook_id']}")).status_code == 204
        gone = await http.delete(f"{API}/{webhook['webhook_id']}")
        assert (gone.status_code, gone.json()["code"]) == (404, "not-found")
        assert (await http.get(f"{API}/{webhook['webhook_id']}/deliveries")).status_code == 404
    await deliver(rig)
    assert len(receiver.taken) == 1
    rig.clock.move(200 * 3600)
    await rig.app.telling.forget()
    assert await deliveries(rig, other) == []


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("http://127.0.0.1:1/", "forbidden", "webhook_origins"),
        ("http://169.254.169.254/latest/meta-data", "forbidden", "http://169.254.169.254:80"),
        ("{origin}.example.org/", "forbidden", "cannot be read"),
        ("{origin}@evil.example.org/", "invalid", "write it like"),
        ("https://user:secret@hooks.example.org/", "invalid", "write it like"),
        ("file:///etc/passwd", "invalid", "write it like"),
        ("gopher://127.0.0.1/", "invalid", "write it like"),
        ("/relative", "invalid", "write it like"),
        ("http://exa mple/", "invalid", "write it like"),
        ("", "invalid", "url"),
        ("http://x/\r\nHost: y", "invalid", "write it like"),
    ],
)
async def test_where_nothing_is_sent_to(rig: Rig, receiver: Receiver, url: str, code: str, says: str) -> None:
    async with rig.http() as http:
        answer = await http.post(API, json={"url": url.format(origin=receiver.url)})
    assert answer.json()["code"] == code
    assert says in answer.json()["detail"]
    assert "secret" not in answer.text
    assert (await listed(rig))["webhooks"] == []


async def test_without_a_setting_nothing_is_sent_anywhere(make_rig: MakeRig, receiver: Receiver) -> None:
    rig = await make_rig()
    async with rig.http() as http:
        assert (await http.post(API, json={"url": receiver.url})).json()["code"] == "forbidden"


async def test_an_origin_that_is_not_allowed_any_more_gets_nothing(
    make_rig: MakeRig, rig: Rig, receiver: Receiver
) -> None:
    webhook = await create(rig, receiver, kinds=["granted"])
    await rig.acquire("1")
    stricter = await make_rig()
    await deliver(stricter)
    assert receiver.taken == []
    [seen] = await deliveries(rig, webhook)
    assert (seen["state"], "webhook_origins" in seen["error"]) == ("dead", True)


async def test_there_are_so_many_webhooks_and_no_more(rig: Rig, receiver: Receiver) -> None:
    for _ in range(20):
        await create(rig, receiver)
    async with rig.http() as http:
        assert (await http.post(API, json={"url": receiver.url})).json()["code"] == "conflict"


@pytest.mark.parametrize("number", ["x", "0", "\u00b2", "1" * 19])
async def test_what_was_never_sent_is_not_sent_again(rig: Rig, receiver: Receiver, number: str) -> None:
    webhook = await create(rig, receiver)
    async with rig.http() as http:
        answer = await http.post(f"{API}/{webhook['webhook_id']}/deliveries/{number}/redeliver")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Hooks.Example.org/a?b=c", "https://hooks.example.org:443"),
        ("http://[::1]:8080/", "http://::1:8080"),
        ("http://b\u00fccher.example/", "http://xn--bcher-kva.example:80"),
        ("HTTP://x:80", "http://x:80"),
    ],
)
def test_an_origin_is_read_as_it_is_sent_to(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize("text", ["https://x/path", "https://x?y", "x.example.org", "https://u@x", "*", ""])
def test_an_origin_that_is_none_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InvalidRequest):
        origins_of([text])


def test_kinds_are_a_closed_set() -> None:
    assert set(EventKind) == {"queued", "granted", "ready", "active", "moved", "expiring", "ended", "closed"}
