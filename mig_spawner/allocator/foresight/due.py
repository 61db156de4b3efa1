"""When a new plan is to be made, and for what: both follow from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mig_spawner.allocator.foresight.ranking import WORTHS
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.fleet import profile_names, profiles_for
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.lease import Lease
from mig_spawner.domain.policy import POLICIES, Demand
from mig_spawner.domain.policy.demand import HALF_LIFE
from mig_spawner.domain.policy.priced.plan import Job, jobs, kind_of
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, WholeRequest

EVERY: Final = 200
"""So many further requests make a new plan."""
REMEMBERED: Final = int(4 * HALF_LIFE)
"""Requests that are looked back on; what is older would count less than a sixteenth."""


@dataclass(frozen=True, slots=True)
class Due:
    """A plan to be made.

    Attributes:
        number: that it will have in the ledger; one more than that of the newest.
        arrivals: requests ever made, by now.
        jobs: by kind of GPU; empty where the policy needs nothing but the demand.
    """

    number: int
    arrivals: int
    demand: Demand
    jobs: Mapping[str, Job]


def due(ledger: Ledger) -> Due | None:
    """The plan that is to be made now; None if that in the ledger will do."""
    policy = ledger.setting.policy
    if not POLICIES[policy].heeds_demand:
        return None
    gpus = [state.gpu for state in ledger.fleet if state.cuttable_when_empty]
    if not gpus:
        return None
    record, arrivals = ledger.tx.plan(), ledger.tx.arrivals()
    if record is not None and arrivals - record.arrivals < EVERY and _covers(record.plan.kinds, gpus, policy):
        return None
    demand = Demand.estimate(_asked(ledger, ledger.tx.newest(REMEMBERED)), _offered(gpus))
    number = 1 if record is None else record.number + 1
    return Due(number, arrivals, demand, jobs(gpus, demand) if policy in WORTHS else {})


def _covers(kinds: Mapping[str, object], gpus: Iterable[GPU], policy: str) -> bool:
    return policy not in WORTHS or all(kind_of(gpu) in kinds for gpu in gpus)


def _offered(gpus: Iterable[GPU]) -> set[ProfileName]:
    return {profile.name for gpu in gpus for profile in gpu.profiles}


def _asked(ledger: Ledger, leases: Sequence[Lease]) -> list[ProfileName]:
    """What each lease asked for first: any slice with enough memory counts as the smallest such, a whole GPU as the largest profile."""
    fleet = ledger.fleet
    plain = [name for name in profile_names(fleet) if not name.suffix]
    known: dict[object, ProfileName | None] = {}
    found = []
    for lease in leases:
        request = lease.request
        if request not in known:
            if isinstance(request, WholeRequest):
                known[request] = plain[-1] if plain else None
            elif isinstance(request, DeviceRequest):
                known[request] = None
            else:
                known[request] = next(iter(profiles_for(request, fleet)), None)
        name = known[request]
        if name is not None:
            found.append(name)
    return found
