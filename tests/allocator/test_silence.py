"""Nodes that fall silent: said once in the log, and forgotten when an admin wants it."""

from __future__ import annotations

import logging

import pytest

from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.lease import LeaseState
from tests.allocator.rig import Rig

NODE = "/api/v1/nodes/n1"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name.endswith(".silence")]


async def forget(rig: Rig) -> tuple[int, str]:
    """Status and sentence of the answer."""
    async with rig.http() as http:
        answer = await http.delete(NODE)
        return answer.status_code, answer.json()["detail"] if answer.content else ""


async def test_a_node_that_falls_silent_and_returns_is_said_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = await rig.node()
    await rig.node("n2")
    await rig.tick(59)
    await rig.nodes["n2"].report()
    assert said(caplog) == []
    for _ in range(3):
        await rig.tick(2)
    assert [line.split(":")[0] for line in said(caplog)] == ["Node n1 is silent"]
    await node.report()
    for _ in range(3):
        await rig.tick()
    assert said(caplog)[1:] == ["Node n1 reports again"]


async def test_a_silent_node_is_forgotten(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = await rig.node()
    await rig.tick(61)
    assert await forget(rig) == (204, "")
    assert await forget(rig) == (404, "No such node has reported yet.")
    availability = await rig.hub.availability()
    assert (availability.nodes, availability.nodes_silent, availability.offers) == (0, 0, ())
    assert "Node n1 is silent" in [line.split(":")[0] for line in said(caplog)]
    caplog.clear()
    await rig.tick()
    assert said(caplog) == [], "it is not back"
    # It may come again, and its GPUs may come from elsewhere.
    await node.report()
    assert (await rig.acquire("a")).state is LeaseState.GRANTED


async def test_a_node_that_reports_is_not_forgotten(rig: Rig) -> None:
    await rig.node()
    status, detail = await forget(rig)
    assert (status, "End its agent" in detail) == (409, True)
    assert (await rig.hub.availability()).nodes == 1


async def test_a_node_with_leases_or_what_is_left_of_them_is_not_forgotten(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    await rig.tick(61)
    status, detail = await forget(rig)
    assert (status, f"1 lease, {lease.lease_id} for one" in detail) == (409, True)
    await rig.release(lease, PodFate.UNKNOWN)
    assert (await forget(rig))[0] == 409
    await rig.release(lease, PodFate.GONE, EndReason.FORCED)
    status, detail = await forget(rig)
    assert (status, "still to destroy 1 instance" in detail) == (409, True)
    await node.turn(2)
    await rig.tick(61)
    assert await forget(rig) == (204, "")


async def test_an_agent_forgets_no_node(rig: Rig) -> None:
    await rig.node()
    await rig.tick(61)
    async with rig.http(rig.tokens["n1"]) as http:
        assert (await http.delete(NODE)).status_code == 403
    async with rig.http("") as http:
        assert (await http.delete(NODE)).status_code == 401
