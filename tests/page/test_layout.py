"""Proposals to cut a GPU anew: shown with what they would do, approved, taken back and rejected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from mig_spawner.domain.reshape import ReshapeState
from mig_spawner.wire.reshape import ReshapeDocument
from tests.allocator.reshape.test_reshape import Agent, proposed, teaching, waiter
from tests.allocator.rig import SERVICE_TOKEN
from tests.page.site import Site, site
from tests.page.test_act import ask, do, told


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Site, Agent, ReshapeDocument]]:
    """Somebody waits for a 2g beside five idle 1g, so another cut is proposed."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    async with site(tmp_path, reshape_interval=0, settle_after=0) as running:
        agent = await teaching(running.rig)
        await waiter(running.rig)
        yield running, agent, await proposed(running.rig)


async def test_a_proposal_is_seen_approved_for_a_time_and_taken_back(
    scene: tuple[Site, Agent, ReshapeDocument],
) -> None:
    running, agent, found = scene
    async with running.http() as http:
        page = await ask(http, "admin/layouts")
        assert [piece.text for piece in page.select("del")] == ["1g.10gb@0", "1g.10gb@1"]
        assert [piece.text for piece in page.select("ins")] == ["2g.20gb@0"]
        path = f"admin/layouts/{found.reshape_id}/approve"
        assert page.select_one(f"a[href$='{path}']") is not None
        assert "everything is put back" in (await ask(http, path)).get_text(" ", strip=True)
        assert "It was approved" in await told(http, await do(http, path, hours="2"))
        under_way = await running.rig.hub.reshape(found.reshape_id)
        assert (under_way.state, under_way.by) == (ReshapeState.APPLYING, "user root")
        assert under_way.ends_at is not None
        assert abs(under_way.ends_at - running.rig.clock.now - timedelta(hours=2)) < timedelta(seconds=1)
        await agent.turn()
        back = f"admin/layouts/{found.reshape_id}/reject"
        assert "Take this cut back?" in (await ask(http, back)).get_text(" ")
        await told(http, await do(http, back, message="The course begins."))
    assert (await running.rig.hub.reshape(found.reshape_id)).state is ReshapeState.RETURNING


async def test_a_proposal_is_rejected_with_the_reason(scene: tuple[Site, Agent, ReshapeDocument]) -> None:
    running, agent, found = scene
    before = agent.pieces
    async with running.http() as http:
        await told(http, await do(http, f"admin/layouts/{found.reshape_id}/reject", message="Not <b>now</b>."))
        page = await http.get("admin/layouts")
        late = await do(http, f"admin/layouts/{found.reshape_id}/approve")
    assert "Not &lt;b&gt;now&lt;/b&gt;." in page.text
    assert "Nothing is proposed now." in page.text
    assert (late.status_code, "nothing to say yes to" in late.text) == (409, True)
    await agent.turn()
    assert agent.pieces == before
