"""Proposals to cut idle partitions anew, on a running allocator: found, approved by hand, by rule and for a time, and never stale."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mig_spawner.domain.reshape import ReshapeState
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.node import CUT_ANEW, DesiredNode, StepFailure
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeRejection
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Clock, Node, Rig

TEACHING = [("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2), ("1g.10gb", 3), ("2g.20gb", 4), ("1g.10gb", 6)]
BEFORE = sorted(f"{profile}@{start}" for profile, start in TEACHING)
ANEW = ["1g.10gb@2", "1g.10gb@3", "1g.10gb@6", "2g.20gb@0", "2g.20gb@4"]
S = ReshapeState


class Agent:
    """A node cut by its admin, whose agent cuts it anew when a test says so."""

    def __init__(self, node: Node, pieces: list[tuple[str, int]]) -> None:
        self.node = node
        self.fails = ""
        for board in node.boards:
            board.reshapable = True
            for profile, start in pieces:
                board.add(profile, start)

    @property
    def pieces(self) -> list[list[str]]:
        """What is on each GPU."""
        return [sorted(f"{i.profile}@{i.start}" for i in board.instances.values()) for board in self.node.boards]

    async def report(self) -> DesiredNode:
        return await self.node.report()

    def obey(self, desired: DesiredNode) -> None:
        self.node.obey(desired)
        boards = {board.gpu.gpu_uuid: board for board in self.node.boards}
        for layout in desired.layouts:
            board = boards[layout.gpu_uuid]
            going = [(p.start, p.size, p.profile_id) for p in layout.remove]
            here = [key for key in going if key in board.instances]
            if self.fails or any(board.instances[key].processes != 0 for key in here):
                reason = self.fails or "a process runs on it"
                self.node.failures.append(StepFailure(gpu_uuid=layout.gpu_uuid, step=CUT_ANEW, reason=reason))
                continue
            for key in here:
                del board.instances[key]
            for place in layout.make:
                if (place.start, place.size, place.profile_id) not in board.instances:
                    profile = board.gpu.profile_by_id(place.profile_id)
                    assert profile is not None
                    board.add(str(profile.name), place.start)

    async def turn(self) -> DesiredNode:
        self.obey(await self.report())
        return await self.report()


async def teaching(rig: Rig, gpus: int = 1) -> Agent:
    """GPUs with five 1g and a 2g each; every 2g is held for an hour."""
    node = await rig.node(models=("a100-80gb",) * gpus, dynamic=False, report=False)
    agent = Agent(node, TEACHING)
    await agent.report()
    for number in range(gpus):
        await rig.active(f"holder-{number}", "2g.20gb", duration=3600)
    return agent


async def proposed(rig: Rig) -> ReshapeDocument:
    """The one proposal there is after a look."""
    rig.app.reshapes.review()
    (found,) = (await rig.hub.reshapes()).reshapes
    return found


@pytest.fixture
async def rig(make_rig: MakeRig) -> Rig:
    return await make_rig(reshape_interval=0, settle_after=0)


async def approve(rig: Rig, reshape_id: str, **window: Any) -> ReshapeDocument:
    return await rig.hub.approve(reshape_id, ReshapeApproval(**window))


async def waiter(rig: Rig, user: str = "waits", profile: str = "2g.20gb") -> LeaseDocument:
    lease = await rig.acquire(user, profile)
    assert lease.state is LeaseState.QUEUED
    return lease


async def test_who_waits_is_served_after_a_yes(rig: Rig) -> None:
    agent = await teaching(rig)
    lease = await waiter(rig)
    found = await proposed(rig)
    assert (found.state, found.gpu, found.pool, found.asked, found.people) == ("proposed", 0, "default", "2g.20gb", 1)
    assert found.remove == ("1g.10gb@0", "1g.10gb@1")
    assert (found.make, sorted(found.before), sorted(found.after)) == (("2g.20gb@0",), BEFORE, ANEW)
    assert found.wait_before == pytest.approx(1800, abs=5)
    assert found.wait_after == pytest.approx(0, abs=5)
    assert (
        found.summary
        == "GPU 0 of n1 → 2g.20gb+2g.20gb+1g.10gb+1g.10gb+1g.10gb: expected wait for 2g.20gb 30 min → 0 min."
    )
    assert await rig.hub.reshape(found.reshape_id) == found
    assert agent.pieces[0] == BEFORE, "nothing is cut before a yes"
    assert (await approve(rig, found.reshape_id)).state is S.APPLYING
    await agent.turn()
    assert agent.pieces[0] == ANEW
    assert (await rig.hub.reshape(found.reshape_id)).state is S.APPLIED
    assert (await rig.state(lease)).state is LeaseState.READY
    with rig.app.desk.store.reading() as tx:
        told = [c.after for c in tx.changes(limit=50)[0] if found.reshape_id in c.why][::-1]
    assert told == ["proposed", "approved", "applying", "applied"]


async def test_nothing_is_granted_on_a_gpu_while_it_is_cut(rig: Rig) -> None:
    agent = await teaching(rig)
    await waiter(rig)
    found = await proposed(rig)
    await approve(rig, found.reshape_id)
    late = await rig.acquire("late", "1g.10gb")
    assert late.state is LeaseState.QUEUED
    assert "is being cut anew" in (await rig.hub.explain(late.lease_id)).why
    await agent.turn()
    assert (await rig.state(late)).state is LeaseState.READY


async def test_what_is_used_or_kept_for_somebody_is_not_touched(rig: Rig) -> None:
    agent = await teaching(rig)
    await waiter(rig)
    agent.node.board.run(1, start=1)
    agent.node.board.run(None, start=2)
    await agent.report()
    rig.app.reshapes.review()
    assert (await rig.hub.reshapes()).reshapes == (), "a process runs in the way of every 2g, or may"
    agent.node.board.run(0, start=1)
    await agent.report()
    found = await proposed(rig)
    agent.node.board.run(None, start=1)
    await agent.report()
    with pytest.raises(AllocatorRefused, match=r"1g.10gb@1 is in use") as refused:
        await approve(rig, found.reshape_id)
    assert refused.value.code == "conflict"
    rig.app.reshapes.review()
    (ended,) = (await rig.hub.reshapes()).ended
    assert (ended.state, ended.reason) == (S.EXPIRED, "1g.10gb@1 is in use, or not there any more.")


async def test_a_proposal_for_which_nobody_waits_any_more_ends_by_itself(rig: Rig) -> None:
    await teaching(rig)
    lease = await waiter(rig)
    found = await proposed(rig)
    await rig.release(lease)
    rig.app.reshapes.review()
    ended = await rig.hub.reshape(found.reshape_id)
    assert (ended.state, ended.reason) == (S.EXPIRED, "Nobody waits for 2g.20gb any more.")


async def test_a_lease_that_takes_what_would_go_makes_it_stale(rig: Rig) -> None:
    await teaching(rig)
    await waiter(rig)
    found = await proposed(rig)
    await rig.acquire("quick", "1g.10gb")
    assert "is in use" in (await rig.hub.reshape(found.reshape_id)).stale
    with pytest.raises(AllocatorRefused, match="cannot be applied any more"):
        await approve(rig, found.reshape_id)


async def test_what_cannot_be_made_is_withdrawn_before_anything_is_granted(rig: Rig) -> None:
    agent = await teaching(rig)
    await waiter(rig)
    found = await proposed(rig)
    await approve(rig, found.reshape_id)
    agent.fails = "no room"
    desired = await agent.turn()
    withdrawing = await rig.hub.reshape(found.reshape_id)
    assert withdrawing.state is S.WITHDRAWING
    assert (desired.layouts, desired.held) == ((), (agent.node.board.gpu.gpu_uuid,))
    late = await rig.acquire("late", "1g.10gb")
    assert late.state is LeaseState.QUEUED, "the agent may not know yet"
    await agent.turn()
    assert (await rig.hub.reshape(found.reshape_id)).state is S.FAILED
    assert (await rig.hub.reshape(found.reshape_id)).reason == "It could not be made: no room"
    assert (await rig.state(late)).state is LeaseState.READY


async def test_a_rule_says_yes_within_its_limits(make_rig: MakeRig) -> None:
    rig = await make_rig(reshape_interval=0, settle_after=0, reshape_pools=["lab"], pools={"lab": ["n*"]})
    agent = await teaching(rig, gpus=3)
    for number in range(3):
        await waiter(rig, f"waits-{number}", "2g.20gb")
    first = await proposed(rig)
    assert (first.state, first.by) == (S.APPLYING, "rule")
    rig.app.reshapes.review()
    second = next(r for r in (await rig.hub.reshapes()).reshapes if r.reshape_id != first.reshape_id)
    assert second.state is S.PROPOSED, "one at a time"
    await agent.turn()
    assert first.people == 2, "two fit beside each other"
    assert agent.pieces[0] == ["1g.10gb@6", "2g.20gb@0", "2g.20gb@2", "2g.20gb@4"]


@pytest.mark.parametrize("trait", [{"reshape_minimum_gain": 7200}, {"reshape_pools": ["other"]}], ids=str)
async def test_what_a_rule_does_not_allow_waits_for_a_person(make_rig: MakeRig, trait: dict[str, Any]) -> None:
    rig = await make_rig(reshape_interval=0, settle_after=0, **{"reshape_pools": ["*"], **trait})
    await teaching(rig)
    await waiter(rig)
    assert (await proposed(rig)).state is S.PROPOSED


async def test_for_a_time_it_is_applied_then_and_taken_back_when_it_is_idle(rig: Rig, clock: Clock) -> None:
    agent = await teaching(rig)
    lease = await waiter(rig)
    found = await proposed(rig)
    starts, ends = clock.now + timedelta(seconds=100), clock.now + timedelta(seconds=1000)
    approved = await approve(rig, found.reshape_id, starts_at=starts, ends_at=ends)
    assert approved.state is S.APPROVED
    await agent.turn()
    assert "1g.10gb@0" in agent.pieces[0], "not before its time"
    clock.move(100)
    await agent.report()
    rig.app.reshapes.review()
    await agent.turn()
    assert (await rig.hub.reshape(found.reshape_id)).state is S.APPLIED
    active = await rig.hub.renew((await rig.state(lease)).lease_id)
    clock.move(1000)
    await agent.report()
    await rig.hub.renew(active.lease_id)
    rig.app.reshapes.review()
    await agent.turn()
    assert (await rig.hub.reshape(found.reshape_id)).state is S.RETURNING
    assert agent.pieces[0] == ANEW, "somebody uses what was made"
    await rig.release(active)
    await agent.turn()
    await agent.turn()
    assert agent.pieces[0] == BEFORE
    await agent.turn()
    assert (await rig.hub.reshape(found.reshape_id)).state is S.RETURNED
    assert (await rig.acquire("after", "1g.10gb")).state is LeaseState.READY


async def test_one_for_a_time_that_passes_in_vain_ends(rig: Rig, clock: Clock) -> None:
    agent = await teaching(rig)
    await waiter(rig)
    found = await proposed(rig)
    await approve(
        rig, found.reshape_id, ends_at=clock.now + timedelta(seconds=50), starts_at=clock.now + timedelta(seconds=10)
    )
    agent.node.board.run(1, start=0)
    for _ in range(2):
        clock.move(30)
        await agent.report()
        rig.app.reshapes.review()
    ended = await rig.hub.reshape(found.reshape_id)
    assert (ended.state, ended.reason) == (
        S.EXPIRED,
        "Its time is over. 1g.10gb@0 is in use, or not there any more.",
    )


async def test_no_takes_back_what_holds(rig: Rig) -> None:
    agent = await teaching(rig)
    lease = await waiter(rig)
    found = await proposed(rig)
    await approve(rig, found.reshape_id)
    await agent.turn()
    await rig.release(lease)
    said = await rig.hub.reject(found.reshape_id, ReshapeRejection(message="the course is over"))
    assert (said.state, said.reason) == (S.RETURNING, "the course is over")
    for _ in range(3):
        await agent.turn()
    assert agent.pieces[0] == BEFORE
    assert (await rig.hub.reshape(found.reshape_id)).state is S.RETURNED
    with pytest.raises(AllocatorRefused, match="there is nothing to say no to"):
        await rig.hub.reject(found.reshape_id, ReshapeRejection())


async def test_after_a_boot_nothing_is_granted_until_it_is_cut_so_again(rig: Rig) -> None:
    agent = await teaching(rig)
    lease = await waiter(rig)
    found = await proposed(rig)
    await approve(rig, found.reshape_id)
    await agent.turn()
    await rig.release(lease)
    agent.node.boot_id, agent.node.applied = "boot-2", 0
    agent.node.board.instances.clear()
    for profile, start in TEACHING:
        agent.node.board.add(profile, start)  # as the file declares it
    desired = await agent.report()
    assert desired.held == (agent.node.board.gpu.gpu_uuid,)
    early = await rig.acquire("early", "1g.10gb", wait_budget=60)
    assert early.state is LeaseState.QUEUED
    agent.obey(desired)
    assert (await agent.report()).held == ()
    assert agent.pieces[0] == ANEW


async def test_the_last_partition_of_a_profile_is_never_taken_away(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    agent = Agent(node, [("2g.20gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)])
    await agent.report()
    await rig.active("a", "1g.10gb", duration=3600)
    await rig.active("b", "1g.10gb", duration=3600)
    await waiter(rig, profile="1g.10gb")
    rig.app.reshapes.review()
    found = (await rig.hub.reshapes()).reshapes
    assert all("2g.20gb@0" not in r.remove for r in found)


async def test_two_replicas_make_one_proposal_and_one_decision(make_rig: MakeRig) -> None:
    first = await make_rig(reshape_interval=0, settle_after=0)
    await teaching(first)
    second = await make_rig(reshape_interval=0, settle_after=0)
    await waiter(first)
    first.app.reshapes.review()
    second.app.reshapes.review()
    (found,) = (await second.hub.reshapes()).reshapes
    await approve(second, found.reshape_id)
    with pytest.raises(AllocatorRefused, match="there is nothing to say yes to"):
        await approve(first, found.reshape_id)


async def test_what_is_left_over_where_gpus_are_cut_on_demand_goes(rig: Rig) -> None:
    node = await rig.node(dynamic=True, report=False)
    agent = Agent(node, [("1g.10gb", 0)])
    await agent.report()
    await rig.active("a", "3g.40gb", duration=3600)
    await agent.turn()
    lease = await waiter(rig, profile="4g.40gb")
    found = await proposed(rig)
    assert (found.remove, found.make) == (("1g.10gb@0",), ())
    await approve(rig, found.reshape_id)
    for _ in range(3):
        await agent.turn()
    assert (await rig.hub.reshape(found.reshape_id)).state is S.APPLIED
    assert (await rig.state(lease)).state is LeaseState.READY
    assert (await rig.hub.reshapes()).reshapes == (), "it is done with: its place is everybody's"


async def test_a_time_needs_a_zone_and_an_end_to_come(rig: Rig, clock: Clock) -> None:
    await teaching(rig)
    await waiter(rig)
    found = await proposed(rig)
    async with rig.http() as http:
        for body, status in (
            ({"starts_at": "2026-03-01T10:00:00"}, 400),
            ({"ends_at": "2020-03-01T10:00:00Z"}, 409),
            ({"starts_at": "2027-03-01T10:00:00Z", "ends_at": "2026-03-02T10:00:00Z"}, 400),
        ):
            answer = await http.post(f"api/v1/reshapes/{found.reshape_id}/approve", json=body)
            assert answer.status_code == status, answer.text
        assert (await http.get("api/v1/reshapes/nope")).status_code == 404
