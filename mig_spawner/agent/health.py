"""How well a GPU is, from what its driver announces and counts. Pure: the time is an argument.

| state | nothing new is granted, and | until |
|---|---|---|
| ok | | |
| suspect | what is there is left as it is | it has been quiet for ten minutes |
| draining | what runs runs on, what is over is removed; then it needs a reset, or a repair | it was reset, or the node booted |
| bad | nothing of it can be known or touched | the node booted; often it has to be replaced |

The numbers are NVIDIA's (documentation of the driver, "XID errors"). Errors that a person's program causes are no fault of the
GPU; the list of those is the one that NVIDIA's device plugin leaves out as well.

What was announced before an agent began is not announced again. What of it still matters is seen all the same: in the counters, and
in what newer drivers say a GPU needs to be well again, until it has had that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from mig_spawner.agent.driver.base import Event, Recovery, Vitals
from mig_spawner.domain.sentence import counted
from mig_spawner.wire.node import Health

QUIET_S: Final = 600.0
"""How long a suspect GPU must have been quiet, seconds."""

_PROGRAM: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of a program: it used memory that it had not, or was ended."""

_COUNTED: Final = frozenset({63, 92})
"""Announcements of what the GPU counts itself; its counters say what follows."""

_KNOWN: Final[Mapping[int, tuple[Health, str]]] = MappingProxyType(
    {
        48: (Health.DRAINING, "a memory error that cannot be corrected"),
        62: (Health.DRAINING, "its micro-controller has halted"),
        64: (Health.DRAINING, "a faulty row of its memory could not be replaced"),
        74: (Health.DRAINING, "a fault of its NVLink"),
        79: (Health.BAD, "it has fallen off the bus"),
        94: (Health.DRAINING, "a memory error that was contained"),
        95: (Health.DRAINING, "a memory error that was not contained"),
        119: (Health.DRAINING, "its system processor does not answer"),
        120: (Health.DRAINING, "an error of its system processor"),
        140: (Health.DRAINING, "a memory error that was not recovered from"),
    }
)

_ORDER: Final = (Health.OK, Health.SUSPECT, Health.DRAINING, Health.BAD)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a GPU is, and why in words; no words for one that is well."""

    health: Health = Health.OK
    reason: str = ""

    def or_worse(self, other: Verdict) -> Verdict:
        """The worse of both; this one if they are alike."""
        return other if _ORDER.index(other.health) > _ORDER.index(self.health) else self


WELL: Final = Verdict()


class Record:
    """What was announced of each GPU in this session of the driver."""

    def __init__(self) -> None:
        self._lasting: dict[str, Verdict] = {}
        self._suspect: dict[str, tuple[Verdict, float]] = {}

    def note(self, events: Iterable[Event], now: float) -> None:
        """Take in what was announced just now. `now` is in seconds of any steady clock."""
        for event in events:
            if event.xid in _PROGRAM or event.xid in _COUNTED:
                continue
            where = "" if event.gpu_instance_id is None else f" on GPU instance {event.gpu_instance_id}"
            if event.xid in _KNOWN:
                health, what = _KNOWN[event.xid]
                verdict = Verdict(health, _sentence(f"XID {event.xid}{where}: {what}"))
                self._lasting[event.gpu_uuid] = self._lasting.get(event.gpu_uuid, WELL).or_worse(verdict)
            else:
                verdict = Verdict(Health.SUSPECT, f"The driver announced XID {event.xid}{where}.")
                self._suspect[event.gpu_uuid] = (verdict, now)

    def judge(self, gpu_uuid: str, vitals: Vitals, now: float) -> Verdict:
        """How a GPU is that answers."""
        verdict = by_counters(vitals).or_worse(self._lasting.get(gpu_uuid, WELL)).or_worse(asked(vitals))
        suspect, since = self._suspect.get(gpu_uuid, (WELL, now))
        return verdict.or_worse(suspect) if now - since < QUIET_S else verdict


def by_counters(vitals: Vitals) -> Verdict:
    """How a GPU is by its own counters. What it does not count speaks neither for nor against it."""
    verdict = WELL
    if vitals.mode_pending is not None:
        mode = "on" if vitals.mode_pending else "off"
        verdict = Verdict(Health.DRAINING, f"Its MIG mode goes {mode} with its next reset. Reset it, or boot the node.")
    if vitals.memory_errors:
        what = f"{counted(vitals.memory_errors, 'memory error')} could not be corrected"
        verdict = verdict.or_worse(Verdict(Health.DRAINING, _sentence(what)))
    if vitals.remap_pending:
        what = "a faulty row of its memory waits to be replaced"
        verdict = verdict.or_worse(Verdict(Health.DRAINING, _sentence(what)))
    if vitals.remap_failed:
        what = "a faulty row of its memory could not be replaced"
        verdict = Verdict(Health.DRAINING, f"{what[0].upper()}{what[1:]}. Have it checked; a reset does not help.")
    return verdict


def asked(vitals: Vitals) -> Verdict:
    """How a GPU is by what its driver says it needs."""
    match vitals.recovery:
        case None:
            return WELL
        case Recovery.RESET:
            return Verdict(Health.DRAINING, _sentence("its driver says that it needs a reset"))
        case Recovery.BOOT:
            return Verdict(Health.DRAINING, "Its driver says that the node needs a boot.")
        case Recovery.OTHER:
            return Verdict(Health.DRAINING, "Its driver says that it needs to be recovered. Ask nvidia-smi -q how.")


def _sentence(what: str) -> str:
    return f"{what[0].upper()}{what[1:]}. Reset it when it is empty, or boot the node."
