"""The verbs that tell of the queue, against a running allocator."""

from __future__ import annotations

from mig_spawner.wire.queue import ExplainDocument, QueueDocument
from tests.allocator.rig import Rig
from tests.cli.conftest import Type


async def test_who_waits_and_why(rig: Rig, typed: Type) -> None:
    await rig.node()
    held = await rig.active("1", "7g.80gb")
    waits = await rig.acquire("2", "7g.80gb")
    shown = await typed("queue")
    assert (shown.code, shown.err) == (0, "")
    assert "1. name-2/" in " ".join(shown.out.split())
    assert "1 waiting." in shown.out
    assert QueueDocument.model_validate((await typed("queue", "--json")).json).length == 1
    for lease in (held, waits):
        told = await typed("explain", lease.lease_id)
        assert (told.code, lease.lease_id in told.out) == (0, True)
        document = ExplainDocument.model_validate((await typed("explain", lease.lease_id, "--json")).json)
        assert " ".join(document.why.split()) in " ".join(told.out.split())
    assert (await typed("explain", "nothing")).code == 3
