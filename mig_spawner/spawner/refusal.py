"""What becomes of an allocator's no, and of a wait that leads nowhere: refusals with a sentence and a reason."""

from __future__ import annotations

from typing import NoReturn

from mig_spawner.domain.lease import EndReason
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.problem import ProblemCode


def refuse(error: AllocatorRefused) -> NoReturn:
    """The allocator says no."""
    match error.code:
        case ProblemCode.IMPOSSIBLE:
            raise SpawnRefused(str(error), reason=Reason.CAPACITY, status_code=422) from error
        case ProblemCode.NOT_OFFERED | ProblemCode.NOT_ON_MENU:
            raise SpawnRefused(str(error), reason=Reason.INVALID, status_code=error.status) from error
        case ProblemCode.QUOTA:
            raise SpawnRefused(str(error), reason=Reason.QUOTA) from error
        case ProblemCode.QUEUE_FULL | ProblemCode.RATE_LIMITED:
            raise SpawnRefused(str(error), reason=Reason.CAPACITY, status_code=429) from error
        case ProblemCode.UNAUTHENTICATED | ProblemCode.FORBIDDEN:
            raise SpawnRefused(
                "The GPU allocator does not know this hub. Please tell its admin that the allocator token is wrong.",
                reason=Reason.ALLOCATOR_DOWN,
            ) from error
        case _:
            raise SpawnRefused(str(error), reason=Reason.INVALID) from error


def refuse_former() -> NoReturn:
    """What the server had before is not free yet."""
    raise SpawnRefused(
        "The slice of your last server is still being given back. Try again in a minute.", reason=Reason.CAPACITY
    )


def refuse_unavailable(error: AllocatorUnavailable) -> NoReturn:
    """The allocator says nothing."""
    raise SpawnRefused(
        "The GPU allocator does not answer, so no slice can be had now. Try again in a minute, or start without a GPU.",
        reason=Reason.ALLOCATOR_DOWN,
    ) from error


def refuse_ended(lease: LeaseDocument, budget_s: float) -> NoReturn:
    """The lease ended before the server ran; `budget_s` is how long it was to wait in line."""
    if lease.reason is EndReason.WAIT_OVER:
        refuse_late(lease, budget_s)
    detail = f" {lease.detail}" if lease.detail else ""
    raise SpawnRefused(
        f"The lease of {lease.asked} ended before the server ran ({lease.reason or 'no reason given'}).{detail}",
        reason=Reason.CAPACITY,
    )


def refuse_late(lease: LeaseDocument, budget_s: float) -> NoReturn:
    """It was to wait in line for so long, and nothing came."""
    if lease.state is LeaseState.GRANTED:
        raise SpawnRefused(
            f"The slice {lease.asked} was not made in time. Try again, or tell an admin of this hub.",
            reason=Reason.CAPACITY,
        )
    raise SpawnRefused(
        f"Nothing became free for {lease.asked} within {budget_s:.0f} seconds. Try again later, or choose another size.",
        reason=Reason.QUEUE_TIMEOUT,
    )
