"""What admins may do with proposals to cut GPUs anew: one transaction per use case."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.reshape.advance import advance, begin, returning, step
from mig_spawner.allocator.reshape.check import stale
from mig_spawner.allocator.reshape.propose import proposals
from mig_spawner.allocator.reshape.rule import BY_RULE, Rule
from mig_spawner.allocator.service import Desk, settle
from mig_spawner.domain.reshape import Reshape, ReshapeState, Window, move
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeList, ReshapeRejection

S = ReshapeState
WHO: Final = "reshape"
ENDED: Final = 20
"""So many that have ended are shown."""
_OPEN: Final = (S.PROPOSED, S.APPROVED)


class ReshapeService:
    """List, preview, approve and reject. Errors as in `LeaseService`."""

    def __init__(self, desk: Desk, rule: Rule | None = None) -> None:
        self._desk = desk
        self._rule = rule or Rule()

    def reshapes(self) -> ReshapeList:
        """Those of which something may still become or that hold, and the last that have ended."""
        with self._desk.reading() as ledger:
            return ReshapeList(
                reshapes=tuple(reshape_document(ledger, reshape) for reshape in ledger.tx.open_reshapes()),
                ended=tuple(reshape_document(ledger, reshape) for reshape in ledger.tx.ended_reshapes(ENDED)),
            )

    def preview(self, reshape_id: str) -> ReshapeDocument:
        """One of them: the GPU before and after, what it would do, and why it could not be applied now."""
        with self._desk.reading() as ledger:
            return reshape_document(ledger, _stored(ledger, reshape_id))

    def approve(self, reshape_id: str, approval: ReshapeApproval, *, who: str) -> ReshapeDocument:
        """Apply a proposal, now or at its time. What it would cut has to be idle then."""
        window = Window(_utc(approval.starts_at), _utc(approval.ends_at))
        with self._desk.writing(who) as ledger:
            reshape = _stored(ledger, reshape_id)
            if window.over(ledger.now):
                raise refusal(ProblemCode.CONFLICT, "That time is over already. Say an ends_at that is still to come.")
            why = stale(ledger, reshape) if reshape.state is S.PROPOSED and window.begun(ledger.now) else ""
            if why:
                raise refusal(ProblemCode.CONFLICT, f"It cannot be applied any more. {why}")
            _approve(ledger, reshape, window, who)
            settle(ledger)
            return reshape_document(ledger, _stored(ledger, reshape_id))

    def reject(self, reshape_id: str, rejection: ReshapeRejection, *, who: str) -> ReshapeDocument:
        """Say no, or take back what holds: the GPU is cut as before as soon as nobody uses what was made."""
        with self._desk.writing(who) as ledger:
            reshape = _stored(ledger, reshape_id)
            if reshape.state in _OPEN:
                step(ledger, reshape, move(reshape, S.REJECTED, ledger.now, reason=rejection.message))
            elif reshape.state is S.APPLIED and not reshape.closed:
                step(ledger, reshape, returning(ledger, reshape, rejection.message))
            else:
                raise refusal(ProblemCode.CONFLICT, f"It is {reshape.state}: there is nothing to say no to.")
            settle(ledger)
            return reshape_document(ledger, _stored(ledger, reshape_id))

    def review(self) -> None:
        """What time changes, and new proposals. Finding them only reads: nobody has to wait for the forecasts."""
        with self._desk.writing(WHO) as ledger:
            advance(ledger)
            settle(ledger)
        with self._desk.reading() as ledger:
            found = proposals(ledger)
        if not found:
            return
        with self._desk.writing(WHO) as ledger:
            for reshape in found:
                if not stale(ledger, reshape) and ledger.tx.add_reshape(reshape, who=WHO):
                    pool = ledger.setting.pool_of(reshape.node)
                    if self._rule.allows(reshape, pool, sum(one.under_way for one in ledger.tx.open_reshapes())):
                        _approve(ledger, reshape, Window(), BY_RULE)
            settle(ledger)


def _approve(ledger: Ledger, reshape: Reshape, window: Window, who: str) -> None:
    if reshape.state is not S.PROPOSED:
        raise refusal(ProblemCode.CONFLICT, f"It is {reshape.state}: there is nothing to say yes to.")
    approved = move(reshape, S.APPROVED, ledger.now, by=who, window=window)
    step(ledger, reshape, approved)
    begun = begin(ledger, approved)
    if begun is not None:
        step(ledger, approved, begun)


def _stored(ledger: Ledger, reshape_id: str) -> Reshape:
    reshape = ledger.tx.reshape(reshape_id)
    if reshape is None:
        raise refusal(ProblemCode.NOT_FOUND, "There is no such proposal.")
    return reshape


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise refusal(ProblemCode.INVALID, "Say the time zone: 2026-03-01T10:00:00+01:00, or with a Z for UTC.")
    return moment.astimezone(UTC)


def reshape_document(ledger: Ledger, reshape: Reshape) -> ReshapeDocument:
    """A proposal for people."""
    node = ledger.nodes.get(reshape.node)
    shown = [] if node is None or node.report is None else [gpu.gpu_uuid for gpu in node.report.gpus]
    gpu = shown.index(reshape.gpu_uuid) if reshape.gpu_uuid in shown else None
    window, effect = reshape.window, reshape.effect
    return ReshapeDocument(
        reshape_id=reshape.reshape_id,
        node=reshape.node,
        gpu_uuid=reshape.gpu_uuid,
        gpu=gpu,
        pool=ledger.setting.pool_of(reshape.node),
        state=reshape.state,
        summary=_summary(reshape, gpu),
        before=reshape.before,
        after=reshape.after,
        remove=tuple(map(str, reshape.remove)),
        make=tuple(map(str, reshape.make)),
        asked=reshape.asked,
        wait_before=effect.before_s,
        wait_after=effect.after_s,
        people=effect.people,
        proposed_at=reshape.proposed_at,
        changed_at=reshape.changed_at,
        starts_at=window.starts_at,
        ends_at=window.ends_at,
        by=reshape.by,
        reason=reshape.reason,
        stale=stale(ledger, reshape) if reshape.state in _OPEN else "",
    )


def _summary(reshape: Reshape, gpu: int | None) -> str:
    where = f"GPU {reshape.gpu_uuid}" if gpu is None else f"GPU {gpu} of {reshape.node}"
    names = sorted((text.partition("@")[0] for text in reshape.after), reverse=True)
    what = "+".join(names) or "free"
    if not reshape.standing:
        what += f", room for {reshape.asked}"
    effect = reshape.effect
    before = "nobody can tell" if effect.before_s is None else _minutes(effect.before_s)
    first = "" if effect.people == 1 else f" for the first of {effect.people}"
    return f"{where} → {what}: expected wait for {reshape.asked} {before} → {_minutes(effect.after_s)}{first}."


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"
