"""The client turns every kind of answer into one of three things: a document, "no", or "no answer"."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from mig_spawner.domain.lease import Holder
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client import ONCE, AllocatorClient
from mig_spawner.wire.lease import LeaseRequest, LeaseState

QUEUED = {
    "lease_id": "l1",
    "holder": {"user_id": "7", "server_name": "", "user_name": "alice"},
    "state": "queued",
    "asked": "1g.10gb",
    "queued_at": "2026-01-01T00:00:00Z",
    "position": 2,
    "queue_length": 3,
}
REQUEST = LeaseRequest.of(SliceRequest(ProfileName(1, 10)), Holder("7", "", "alice"), wait_budget=60)


def client(answer: Callable[[httpx.Request], httpx.Response]) -> AllocatorClient:
    transport = httpx.MockTransport(answer)
    return AllocatorClient("http://allocator/services/mig", "a-secret-token", patience=ONCE, transport=transport)


async def test_acquire_sends_the_token_the_holder_and_the_wait_and_reads_a_lease() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=QUEUED)

    async with client(answer) as allocator:
        lease = await allocator.acquire(REQUEST, wait_s=20)

    assert lease.state is LeaseState.QUEUED
    assert lease.position == 2
    [request] = seen
    assert str(request.url) == "http://allocator/services/mig/api/v1/leases?wait=20"
    assert request.headers["Authorization"] == "Bearer a-secret-token"
    body = json.loads(request.content)
    assert body["accelerator_partition_type"] == "1g.10gb"
    assert body["holder"]["user_id"] == "7"


async def test_a_long_poll_outlasts_the_ordinary_timeout() -> None:
    timeouts: list[dict[str, float]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"])
        return httpx.Response(200, json=QUEUED)

    async with client(answer) as allocator:
        lease = await allocator.acquire(REQUEST, wait_s=30)
        await allocator.lease("l1", wait_s=30, known=lease)

    assert all(t["read"] > 30 for t in timeouts)


async def test_names_in_paths_cannot_leave_their_place() -> None:
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, json=QUEUED)

    async with client(answer) as allocator:
        await allocator.lease("../nodes?x=1")

    assert paths == ["/services/mig/api/v1/leases/..%2Fnodes%3Fx%3D1"]


async def test_a_problem_is_a_refusal_with_code_and_sentence() -> None:
    problem = {
        "status": 422,
        "code": "impossible",
        "title": "No GPU offers that",
        "detail": "No GPU here offers 9g.99gb.",
    }
    async with client(lambda _: httpx.Response(422, json=problem)) as allocator:
        with pytest.raises(AllocatorRefused, match=r"No GPU here offers 9g\.99gb\.") as caught:
            await allocator.acquire(REQUEST)
    assert (caught.value.status, caught.value.code) == (422, "impossible")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(httpx.Response(502, text="bad gateway"), id="a proxy's error page"),
        pytest.param(httpx.Response(200, text="<html>log in</html>"), id="a login page instead of JSON"),
        pytest.param(httpx.Response(200, json={"lease_id": 3}), id="JSON of another shape"),
    ],
)
async def test_what_is_no_answer_of_an_allocator_counts_as_no_answer(answer: httpx.Response) -> None:
    async with client(lambda _: answer) as allocator:
        with pytest.raises(AllocatorUnavailable):
            await allocator.acquire(REQUEST)


async def test_a_refused_connection_counts_as_no_answer_and_names_the_address_not_the_token() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with client(answer) as allocator:
        with pytest.raises(AllocatorUnavailable, match="http://allocator/services/mig does not answer") as caught:
            await allocator.availability()
        assert "a-secret-token" not in str(caught.value) + repr(allocator)


async def test_a_refusal_without_a_problem_body_is_still_a_refusal() -> None:
    async with client(lambda _: httpx.Response(403, text="forbidden")) as allocator:
        with pytest.raises(AllocatorRefused, match="403"):
            await allocator.availability()


async def test_keys_that_a_newer_allocator_adds_are_ignored() -> None:
    async with client(lambda _: httpx.Response(200, json={**QUEUED, "colour": "blue"})) as allocator:
        assert (await allocator.lease("l1")).lease_id == "l1"
