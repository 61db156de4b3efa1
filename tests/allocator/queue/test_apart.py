"""Groups that never share a GPU, on a running allocator: at the border, in the queue and in `explain`."""

from __future__ import annotations

import pytest
from traitlets import TraitError

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.wire.lease import LeaseState
from tests.allocator.conftest import MakeRig


async def test_who_is_kept_apart_waits_is_told_why_and_is_served_after(make_rig: MakeRig) -> None:
    rig = await make_rig(keep_apart=[["clinic", "students"]], settle_after=0)
    node = await rig.node()
    first = await rig.active("1", groups=("clinic", "staff"))
    waits = await rig.acquire("2", groups=("students",))
    assert waits.state is LeaseState.QUEUED
    found = await rig.hub.explain(waits.lease_id)
    assert found.why == (
        "Somebody of the group clinic has a slice on every GPU that could serve it, and the groups are kept apart."
    )
    assert [c.verdict for c in found.candidates] == [
        "Somebody of the group clinic is on it, and the groups are kept apart."
    ]
    for user, groups in (("3", ("staff",)), ("4", ()), ("5", ("clinic",))):
        await rig.acquire(user, groups=groups)
    states = {lease.holder.user_id: lease.state for lease in (await rig.hub.leases()).leases}
    assert states["3"] is states["4"] is LeaseState.GRANTED, "they are in no such group"
    await node.turn()
    await rig.release(first)
    for lease in (await rig.hub.leases()).leases:
        if lease.holder.user_id == "5":
            await rig.release(lease)
    await node.turn(3)
    assert (await rig.state(waits)).state is LeaseState.READY


@pytest.mark.parametrize("wrong", [[["clinic"]], [["clinic", "clinic"]], [["clinic", ""]]], ids=str)
def test_an_entry_names_two_groups(wrong: list[list[str]]) -> None:
    with pytest.raises(TraitError, match="at least two groups"):
        AllocatorApp().keep_apart = wrong
