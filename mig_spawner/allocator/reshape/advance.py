"""What time and reports change about proposals. Every step looks at the ledger; taking one twice, or on two replicas, does no harm."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.reshape.check import stale, wanted
from mig_spawner.allocator.reshape.desire import is_cut, write_layouts
from mig_spawner.domain.reshape import Reshape, ReshapeState, move
from mig_spawner.wire.node import CUT_ANEW, Health, NodeReport

S = ReshapeState
LIFE: Final = timedelta(days=1)
"""A proposal to which nobody has said yes or no for so long is dropped."""


def advance(ledger: Ledger) -> None:
    """What is due: proposals that make no sense any more end, approved ones begin, and those whose time is over are taken back."""
    for reshape in ledger.tx.open_reshapes():
        if (after := _due(ledger, reshape)) is not None:
            step(ledger, reshape, after)
        elif reshape.state is S.RETURNING:
            write_layouts(ledger, reshape.node)


def step(ledger: Ledger, before: Reshape, after: Reshape) -> None:
    """Write a step, and what follows from it for the agent and for what is granted next."""
    ledger.tx.move_reshape(before, after, who=ledger.who)
    write_layouts(ledger, before.node)


def _due(ledger: Ledger, reshape: Reshape) -> Reshape | None:
    now = ledger.now
    if reshape.node not in ledger.nodes:
        to = S.FAILED if reshape.state in (S.APPLYING, S.WITHDRAWING) else S.EXPIRED
        return move(reshape, to, now, reason=f"Node {reshape.node} was forgotten.")
    match reshape.state:
        case S.PROPOSED:
            why = stale(ledger, reshape)
            if not why and not wanted(ledger, reshape):
                why = f"Nobody waits for {reshape.asked} any more."
            if not why and now - reshape.proposed_at > LIFE:
                why = "Nobody has said yes or no for a day."
            return move(reshape, S.EXPIRED, now, reason=why) if why else None
        case S.APPROVED:
            return begin(ledger, reshape)
        case S.APPLIED if reshape.window.over(now):
            return returning(ledger, reshape, "Its time is over.")
        case _:
            return None


def begin(ledger: Ledger, reshape: Reshape) -> Reshape | None:
    """An approved one, when its time has come. One with a time waits for what it would cut to be idle, one without ends at once."""
    now, window = ledger.now, reshape.window
    if window.over(now):
        return move(reshape, S.EXPIRED, now, reason=f"Its time is over. {stale(ledger, reshape)}".strip())
    if not window.begun(now):
        return None
    why = stale(ledger, reshape)
    if not why:
        return move(reshape, S.APPLYING, now, generation=ledger.tx.next_generation())
    return None if window.ends_at is not None else move(reshape, S.EXPIRED, now, reason=why)


def returning(ledger: Ledger, reshape: Reshape, reason: str) -> Reshape:
    """One that holds, to be taken back when it is idle."""
    return move(reshape, S.RETURNING, ledger.now, reason=reason, generation=ledger.tx.next_generation())


def follow(ledger: Ledger, node: str, report: NodeReport) -> None:
    """What a report, already stored, says of the proposals on its node."""
    record = ledger.nodes.get(node)
    if record is None or not (record.desired.layouts or record.desired.held):
        return
    for reshape in ledger.tx.open_reshapes(node=node):
        after = _seen(ledger, reshape, report)
        if after is not None:
            ledger.tx.move_reshape(reshape, after, who=ledger.who)
    write_layouts(ledger, node)


def _seen(ledger: Ledger, reshape: Reshape, report: NodeReport) -> Reshape | None:
    # Each generation is drawn just before the one under which the agent is told.
    known = report.applied_generation > reshape.generation
    match reshape.state:
        case S.APPLYING if known:
            return _tried(ledger, reshape, report)
        case S.RETURNING if is_cut(ledger, reshape, back=True):
            return _withdrawing(ledger, reshape, S.RETURNED, reshape.reason)
        case S.WITHDRAWING if known and reshape.end is not None:
            return move(reshape, reshape.end, ledger.now, reason=reshape.reason)
        case _:
            return None


def _tried(ledger: Ledger, reshape: Reshape, report: NodeReport) -> Reshape | None:
    if is_cut(ledger, reshape):
        if reshape.standing:
            return move(reshape, S.APPLIED, ledger.now)
        return _withdrawing(ledger, reshape, S.APPLIED, "")
    said = [f.reason for f in report.failures if f.gpu_uuid == reshape.gpu_uuid and f.step == CUT_ANEW]
    sick = any(gpu.gpu_uuid == reshape.gpu_uuid and gpu.health is Health.BAD for gpu in report.gpus)
    if not said and sick:
        return None
    why = said[0] if said else "Its agent did not do it."
    return _withdrawing(ledger, reshape, S.FAILED, f"It could not be made: {why}")


def _withdrawing(ledger: Ledger, reshape: Reshape, end: ReshapeState, reason: str) -> Reshape:
    generation = ledger.tx.next_generation()
    return move(reshape, S.WITHDRAWING, ledger.now, reason=reason, generation=generation, end=end)
