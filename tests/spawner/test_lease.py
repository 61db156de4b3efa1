"""Asking, waiting, renewing and giving back, with an allocator that has good and bad days."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mig_spawner.domain.lease import EndReason, Holder, PodFate
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import AllocatorUnavailable
from mig_spawner.spawner import lease as lease_module
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.lease import LeaseKeeper
from mig_spawner.spawner.progress import Progress
from mig_spawner.wire.client import ONCE, AllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseRelease

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

MakeLease = Callable[..., LeaseDocument]
REQUEST = SliceRequest(ProfileName.parse("1g.10gb"))
GONE = httpx.ConnectError("refused")
EVE = {"user_id": "7", "server_name": "", "user_name": "eve"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "OUTAGE_S", 0.3)
    monkeypatch.setattr(lease_module, "GRACE_S", 0.1)
    monkeypatch.setattr(lease_module, "CUT_S", 0.2)


@pytest.fixture
async def keeper(allocator: ScriptedAllocator) -> LeaseKeeper:
    client: AllocatorClient = allocator.client()
    return LeaseKeeper(lambda: client, lambda: Holder("7", "", "ada"), logging.getLogger("test"))


@pytest.fixture
async def progress() -> Progress:
    return Progress()


async def acquire(keeper: LeaseKeeper, progress: Progress, budget_s: float = 30) -> LeaseDocument:
    lease = await keeper.acquire(REQUEST, progress, budget_s=budget_s, duration_s=None)
    assert lease is not None, "nobody asked to go on without one"
    return lease


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_the_way_of_a_lease_is_told(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease
) -> None:
    allocator.answers = [
        lease("queued", position=2, queue_length=3),
        lease("queued", position=2, queue_length=3),
        lease("queued", position=1, queue_length=2),
        lease("granted"),
        lease("ready"),
    ]
    held = await acquire(keeper, progress)
    assert held.device_uuid == "MIG-1111"
    assert keeper.lease_id == "lease-1"
    assert progress.messages == [
        "Waiting for 1g.10gb: position 2 of 3.",
        "Waiting for 1g.10gb: position 1 of 2.",
        "Slice held: 1g.10gb (9.5 GiB) on gpu-a.",
        "Cutting the slice…",
        "The slice is ready, the pod is starting.",
    ]
    body = allocator.bodies("leases")[0]
    assert body["holder"] == {"user_id": "7", "server_name": "", "user_name": "ada"}
    assert (body["accelerator_partition_type"], body["wait_budget"]) == ("1g.10gb", 30)


async def test_the_outage_of_an_allocator_does_not_end_a_wait(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1), GONE, GONE, (503, "not-ready"), lease("ready")]
    assert (await acquire(keeper, progress)).device_uuid
    assert "The GPU allocator does not answer, still waiting." in progress.messages


async def test_an_allocator_that_forgot_the_lease_is_asked_again(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1), (404, "not-found"), lease("ready")]
    assert (await acquire(keeper, progress)).device_uuid
    assert allocator.paths("POST") == ["leases", "leases"]


async def test_the_former_slice_is_ended_once_and_waited_for(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease
) -> None:
    allocator.answers = [(409, "conflict"), (409, "conflict"), lease("ready")]
    assert (await acquire(keeper, progress)).device_uuid
    assert allocator.paths("POST").count("leases/release") == 1
    assert "still being given back" in progress.messages[0]


@pytest.mark.parametrize(
    "former",
    [
        {"state": "active"},
        {"state": "releasing", "reason": "stopped"},
        {"state": "queued", "holder": EVE},
        {"state": "ready", "holder": EVE},
        {"state": "active", "holder": EVE},
    ],
    ids=str,
)
async def test_a_lease_that_was_there_before_is_never_taken(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease, former: dict[str, Any]
) -> None:
    """A pod has taken it, or it is of somebody whose number this user has got from a hub that lost its database."""
    ended: list[int] = []

    async def end_former() -> None:
        ended.append(len(allocator.calls))

    allocator.answers = [lease(**former), lease(**former), lease("ready", lease_id="lease-2")]
    held = await keeper.acquire(REQUEST, progress, budget_s=30, duration_s=None, end_former=end_former)
    assert held is not None
    assert held.lease_id == keeper.lease_id == "lease-2"
    assert allocator.paths("POST") == ["leases", "leases/release", "leases", "leases"]
    assert ended == [2], "once, and after the release"


async def test_a_former_slice_that_does_not_come_back_in_time_is_a_sentence(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress, lease: MakeLease
) -> None:
    allocator.answers = [lease("active")]
    with pytest.raises(SpawnRefused, match="mig-capacity") as refused:
        await acquire(keeper, progress, budget_s=0)
    assert "still being given back" in refused.value.message


@pytest.mark.parametrize(
    ("answers", "reason", "status", "sentence"),
    [
        ([GONE], Reason.ALLOCATOR_DOWN, 503, "does not answer"),
        ([(500, "internal")], Reason.ALLOCATOR_DOWN, 503, "does not answer"),
        ([(422, "impossible")], Reason.CAPACITY, 422, "The script says impossible"),
        ([(429, "queue-full")], Reason.CAPACITY, 429, "queue-full"),
        ([(401, "unauthenticated")], Reason.ALLOCATOR_DOWN, 503, "token is wrong"),
        ([(400, "invalid")], Reason.INVALID, 400, "The script says invalid"),
    ],
    ids=str,
)
async def test_a_no_becomes_a_refusal_with_a_reason(
    allocator: ScriptedAllocator,
    keeper: LeaseKeeper,
    progress: Progress,
    answers: list[Any],
    reason: Reason,
    status: int,
    sentence: str,
) -> None:
    allocator.answers = answers
    with pytest.raises(SpawnRefused) as refused:
        await acquire(keeper, progress)
    assert refused.value.reason == reason.value
    assert refused.value.status_code == status
    assert sentence in refused.value.jupyterhub_message
    assert "a-token" not in str(refused.value)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"state": "closed", "reason": "wait-over"}, Reason.QUEUE_TIMEOUT),
        ({"state": "closed", "reason": "forced"}, Reason.CAPACITY),
        ({"state": "releasing", "reason": "expired"}, Reason.CAPACITY),
    ],
    ids=str,
)
async def test_a_lease_that_ends_while_waiting_is_a_refusal(
    allocator: ScriptedAllocator,
    keeper: LeaseKeeper,
    progress: Progress,
    lease: MakeLease,
    last: dict[str, Any],
    reason: Reason,
) -> None:
    allocator.answers = [lease("queued", position=1, queue_length=1), lease(last["state"], reason=last["reason"])]
    with pytest.raises(SpawnRefused) as refused:
        await acquire(keeper, progress)
    assert refused.value.reason == reason.value


@pytest.mark.parametrize(("state", "reason"), [("queued", Reason.QUEUE_TIMEOUT), ("granted", Reason.CAPACITY)], ids=str)
async def test_the_hub_gives_up_by_itself_when_nobody_tells_it(
    allocator: ScriptedAllocator,
    keeper: LeaseKeeper,
    progress: Progress,
    lease: MakeLease,
    state: str,
    reason: Reason,
) -> None:
    allocator.answers = [lease(state)]
    with pytest.raises(SpawnRefused) as refused:
        await acquire(keeper, progress, budget_s=0)
    assert refused.value.reason == reason.value


async def test_a_question_that_was_cancelled_is_undone_when_its_answer_comes(
    allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    """Cancelled between question and answer, nobody knows the lease id; the release waits for the answer and goes by holder."""
    asked, may_answer = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        order.append(request.url.path.rsplit("/api/v1/")[1])
        if order[-1] == "leases":
            asked.set()
            await may_answer.wait()
            order.append("answered")
            return httpx.Response(200, content=lease("ready").model_dump_json())
        return httpx.Response(200, json={"leases": []})

    client = AllocatorClient("http://allocator/services/mig", "t", patience=ONCE, transport=httpx.MockTransport(answer))
    keeper = LeaseKeeper(lambda: client, lambda: Holder("7", "", "ada"), logging.getLogger("test"))
    task = asyncio.ensure_future(acquire(keeper, Progress()))
    await asked.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.5)
    assert done, "a cancelled start must end at once"
    paying = asyncio.create_task(keeper.debt().pay(LeaseRelease()))
    keeper.forget()
    may_answer.set()
    await paying
    assert order == ["leases", "answered", "leases/release"]
    await client.aclose()


async def test_a_debt_is_paid_by_id_and_said_to_be_unpaid_when_nobody_heard(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, progress: Progress
) -> None:
    await acquire(keeper, progress)
    debt = keeper.debt()
    keeper.forget()
    allocator.release_failures = 1
    release = LeaseRelease(reason=EndReason.STOPPED, pod=PodFate.GONE, pod_name="jupyter-ada")
    with pytest.raises(AllocatorUnavailable):
        await debt.pay(release)
    await debt.pay(release)
    assert LeaseRelease.model_validate(allocator.bodies("leases/lease-1/release")[-1]) == release


@pytest.mark.parametrize(
    ("answers", "lost"),
    [
        ([{"state": "active"}], False),
        ([GONE], False),
        ([(401, "unauthenticated")], False),
        ([(404, "not-found")], False),
        ([(409, "conflict"), GONE], False),
        ([(409, "conflict"), {"state": "queued"}], False),
        ([(409, "conflict"), {"state": "closed", "reason": "expired"}], True),
        ([(409, "conflict"), {"state": "releasing", "reason": "forced"}], True),
    ],
    ids=str,
)
async def test_only_an_ended_lease_is_lost(
    allocator: ScriptedAllocator, keeper: LeaseKeeper, lease: MakeLease, answers: list[Any], lost: bool
) -> None:
    keeper.adopt("lease-1")
    allocator.answers = [
        lease(a.pop("state"), **a) if isinstance(a, dict) else a for a in [dict_or(a) for a in answers]
    ]
    before = len(allocator.calls)
    keeper.renew_soon()
    await until(lambda: keeper.idle)
    assert (keeper.lost is not None) == lost
    keeper.forget()
    assert (keeper.over is not None) == lost, "the form tells it until something is asked for again"
    keeper.renew_soon()
    assert keeper.idle, "not again so soon"
    assert len(allocator.calls) - before <= len(answers)


def dict_or(answer: Any) -> Any:
    return dict(answer) if isinstance(answer, dict) else answer


async def test_without_a_lease_nothing_is_renewed(allocator: ScriptedAllocator, keeper: LeaseKeeper) -> None:
    keeper.renew_soon(force=True)
    assert keeper.idle
    assert allocator.calls == []


async def test_every_page_reads_all_progress_at_its_own_pace(progress: Progress) -> None:
    async def read() -> list[object]:
        return [e["message"] async for e in progress.events(lambda: False)]

    first = asyncio.create_task(read())
    progress.say("one", 5)
    await asyncio.sleep(0)
    progress.say("<b>two</b>", 10)
    second = asyncio.create_task(read())
    progress.close()
    assert await first == await second == ["one", "<b>two</b>"]
    [*_, last] = [e async for e in progress.events(lambda: False)]
    assert last["html_message"] == "&lt;b&gt;two&lt;/b&gt;"
