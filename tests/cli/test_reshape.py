"""`mig-spawner reshape`, against a running allocator."""

from __future__ import annotations

from mig_spawner.wire.reshape import ReshapeDocument, ReshapeList
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import SERVICE_TOKEN
from tests.cli.conftest import Type


async def test_list_approve_and_reject(make_rig: MakeRig, typed: Type) -> None:
    rig = await make_rig(reshape_interval=0)
    access = {"MIG_ALLOCATOR_URL": rig.app.url, "MIG_ALLOCATOR_TOKEN": SERVICE_TOKEN}
    node = await rig.node(dynamic=False, reshapable=True, report=False)
    for profile, start in (("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2), ("2g.20gb", 4)):
        node.board.add(profile, start)
    await node.report()
    await rig.active("1", "2g.20gb", duration=3600)
    await rig.acquire("2", "2g.20gb")
    assert "0 to say yes or no to." in (await typed("reshape", "list", **access)).out
    rig.app.reshapes.review()
    shown = await typed("reshape", "list", **access)
    assert (shown.code, shown.err) == (0, "")
    assert "expected wait for 2g.20gb 30 min" in shown.out
    assert "1 to say yes or no to." in shown.out
    (found,) = ReshapeList.model_validate((await typed("reshape", "list", "--json", **access)).json).reshapes
    wrong = await typed("reshape", "approve", found.reshape_id, "--until", "tomorrow", **access)
    assert (wrong.code, "no time with a zone" in wrong.err) == (2, True)
    backwards = ("--from=2026-03-02T10:00Z", "--until=2026-03-02T09:00Z")
    assert (await typed("reshape", "approve", found.reshape_id, *backwards, **access)).code == 2
    refused = await typed("reshape", "approve", "nothing", **access)
    assert refused.code == 3
    window = ("--from=2026-03-02T10:00Z", "--until=2026-03-02T12:00Z")
    said = await typed("reshape", "approve", found.reshape_id, *window, **access)
    assert "It is approved, from 2026-03-02 10:00:00 UTC until 2026-03-02 12:00:00 UTC." in said.out
    no = await typed("reshape", "reject", found.reshape_id, "--message=not on my watch", "--json", **access)
    rejected = ReshapeDocument.model_validate(no.json)
    assert (rejected.state, rejected.reason) == ("rejected", "not on my watch")
    assert "not on my watch" in (await typed("reshape", "list", **access)).out
