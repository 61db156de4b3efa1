"""The moves of a lease, and what each state keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import (
    Active,
    Closed,
    EndReason,
    Granted,
    Holder,
    PodFate,
    Queued,
    Ready,
    Releasing,
    activate,
    cancel,
    close,
    grant,
    make_ready,
    release,
    requeue,
)
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import find_model

T0 = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
GPU = find_model("a100-80gb").gpu("GPU-a")
THREE = GPU.profile(ProfileName(3, 40))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.fixture
def queued() -> Queued:
    return Queued(
        lease_id="l-1",
        holder=Holder("7", "big", "ada"),
        request=SliceRequest(ProfileName(3, 40)),
        queued_at=T0,
        wait_until=at(60),
        duration_s=3600,
        avoid=frozenset({"GPU-z"}),
    )


@pytest.fixture
def granted(queued: Queued) -> Granted:
    decision = Decision("node-a", GPU, Placement(GPU.gpu_uuid, 4, 4), THREE, None, cut=True)
    return grant(queued, decision, 5, at(10), at(3610))


@pytest.fixture
def ready(granted: Granted) -> Ready:
    return make_ready(granted, "MIG-1", at(12))


@pytest.fixture
def active(ready: Ready) -> Active:
    return activate(ready, at(20))


def test_granting_says_what_and_where(granted: Granted, queued: Queued) -> None:
    assert granted.grant.node == "node-a"
    assert granted.grant.placement == Placement("GPU-a", 4, 4)
    assert (granted.grant.profile, granted.grant.profile_id) == (ProfileName(3, 40), 9)
    assert (granted.grant.share, granted.grant.memory_mib, granted.grant.multiprocessors) == (0.5, 40192, 42)
    assert (granted.grant.generation, granted.grant.cut, granted.grant.expires_at) == (5, True, at(3610))
    assert (granted.holder, granted.request, granted.queued_at) == (queued.holder, queued.request, T0)


def test_granting_a_whole_gpu_names_no_profile(queued: Queued) -> None:
    lease = grant(queued, Decision("n", GPU, GPU.whole, None, GPU.gpu_uuid, cut=False), 1, at(1), None)
    assert (lease.grant.profile, lease.grant.profile_id) == (None, None)
    assert (lease.grant.share, lease.grant.memory_mib) == (1.0, GPU.memory_mib)


def test_what_cannot_be_made_returns_to_its_old_place_and_avoids_that_gpu(granted: Granted) -> None:
    again = requeue(granted)
    assert isinstance(again, Queued)
    assert again.queued_at == T0
    assert again.avoid == {"GPU-z", "GPU-a"}
    assert (again.wait_until, again.duration_s) == (granted.wait_until, granted.duration_s)


def test_ready_has_a_device(ready: Ready) -> None:
    assert (ready.device_uuid, ready.ready_at) == ("MIG-1", at(12))


def test_activating_twice_only_moves_when_it_was_seen(active: Active) -> None:
    again = activate(active, at(50))
    assert (again.active_at, again.seen_at, again.ready_at) == (at(20), at(50), at(12))


@pytest.mark.parametrize("state", ["granted", "ready", "active"])
@pytest.mark.parametrize("pod", list(PodFate), ids=str)
def test_every_held_lease_can_be_given_back(request: pytest.FixtureRequest, state: str, pod: PodFate) -> None:
    lease: Granted | Ready | Active = request.getfixturevalue(state)
    ending = release(lease, EndReason.STOPPED, pod, at(100))
    assert isinstance(ending, Releasing)
    assert (ending.reason, ending.pod, ending.releasing_at) == (EndReason.STOPPED, pod, at(100))
    assert ending.grant == lease.grant
    assert ending.device_uuid == (None if state == "granted" else "MIG-1")


@pytest.mark.parametrize(
    ("closed_at", "gpu_seconds"),
    [
        pytest.param(110, 50.0, id="100 s of half a GPU"),
        pytest.param(10, 0.0, id="at once"),
        pytest.param(5, 0.0, id="a clock that went back costs nobody anything"),
    ],
)
def test_gpu_seconds_are_share_times_time_held(active: Active, closed_at: float, gpu_seconds: float) -> None:
    closed = close(release(active, EndReason.EXPIRED, PodFate.GONE, at(90)), at(closed_at))
    assert isinstance(closed, Closed)
    assert closed.gpu_seconds == gpu_seconds
    assert (closed.reason, closed.device_uuid, closed.closed_at) == (EndReason.EXPIRED, "MIG-1", at(closed_at))


def test_giving_up_in_the_queue_costs_nothing(queued: Queued) -> None:
    closed = cancel(queued, EndReason.WAIT_OVER, at(60))
    assert (closed.grant, closed.device_uuid, closed.gpu_seconds) == (None, None, 0.0)
    assert closed.reason is EndReason.WAIT_OVER


def test_states_have_only_the_fields_they_can_have(queued: Queued, granted: Granted, ready: Ready) -> None:
    assert not hasattr(queued, "grant")
    assert not hasattr(granted, "device_uuid")
    assert not hasattr(ready, "avoid")
    with pytest.raises(AttributeError):
        queued.lease_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "names",
    [("", "", ""), ("x" * 256, "", ""), ("1", "x" * 256, ""), ("1", "", "x" * 256)],
    ids=["no id", "long id", "long server name", "long user name"],
)
def test_a_holder_has_an_id_and_sane_names(names: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidRequest, match="user id"):
        Holder(*names)


def test_a_holder_is_known_by_id_and_server() -> None:
    assert Holder("7", "", "ada").key == Holder("7", "", "ada lovelace").key != Holder("7", "big").key
    assert (str(Holder("7", "big", "ada")), str(Holder("7"))) == ("ada/big", "7/")
