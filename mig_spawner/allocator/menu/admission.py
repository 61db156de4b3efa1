"""Whether somebody may have what they ask for, by the menu. Pure: menu, request and time in; the entry or a refusal out.

Without a menu everything on offer may be had by everybody. With one, nothing else: a request names an entry, or what some entry of
the menu gives, and the first entry that serves it and is for this person is the one it is decided by.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain.fleet import GPUState, profiles_for
from mig_spawner.domain.lease import Held, Lease, Queued
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.domain.rule import Person
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import LeaseRequest
from mig_spawner.wire.menu import Menu, MenuEntry
from mig_spawner.wire.problem import ProblemCode

_MAX_LISTED: Final = 20
WHOLE: Final = "whole"
"""What a hub calls a whole GPU that its menu does not have."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What is asked for, as the menu has it.

    Attributes:
        choice: the id of the main choice's entry; empty without a menu, but for what the caller calls it.
        duration_s: how long it may be kept: the shortest of what was asked for and what the entries of all choices say.
    """

    request: Request
    alternatives: tuple[Request, ...]
    choice: str
    duration_s: float | None

    @property
    def choices(self) -> tuple[Request, ...]:
        """All that would do, the best first."""
        return (self.request, *self.alternatives)


def asker(request: LeaseRequest) -> Person:
    """Whom a request is for."""
    return Person(request.holder.to_domain().person, frozenset(request.groups))


def asks_for_the_same(menu: Menu, request: LeaseRequest, lease: Lease) -> bool:
    """Whether a request is one for the lease that its holder has already. Rules have no say: what is held is held."""
    entry = menu.get(request.choice) if request.choice else None
    if entry is not None and lease.choice:
        same = entry.id == lease.choice
    else:
        same = _stands_for(menu, (entry and entry.request) or request.to_domain(), lease.request)
    if not isinstance(lease, Queued):
        return same
    pairs = zip(request.alternatives_to_domain(), lease.alternatives, strict=False)
    as_many = len(request.alternatives) == len(lease.alternatives)
    return same and as_many and all(_stands_for(menu, wanted, stored) for wanted, stored in pairs)


def _stands_for(menu: Menu, wanted: Request, stored: Request) -> bool:
    return wanted == stored or stored in [entry.request for entry in _serving(menu, wanted, ())]


def admit(menu: Menu, request: LeaseRequest, fleet: Sequence[GPUState], now: datetime) -> Admission:
    """The request as the menu serves it.

    Raises:
        AllocatorRefused: `not-on-menu` when no entry gives it, `not-offered` when a rule is against it for this person now.
    """
    wanted, alternatives = request.to_domain(), request.alternatives_to_domain()
    if not len(menu):
        return Admission(wanted, alternatives, request.choice, request.duration)
    person = asker(request)
    candidates = [_chosen(menu, request)] if _names_entry(menu, request) else _candidates(menu, wanted, fleet)
    main = _first_allowed(menu, candidates, person, now)
    others = [_first_allowed(menu, _candidates(menu, other, fleet), person, now) for other in alternatives]
    durations = [d for d in (request.duration, *(entry.duration for entry in (main, *others))) if d is not None]
    return Admission(
        request=_request_of(main, wanted),
        alternatives=tuple(_request_of(*pair) for pair in zip(others, alternatives, strict=True)),
        choice=main.id,
        duration_s=min(durations, default=None),
    )


def _candidates(menu: Menu, wanted: Request, fleet: Sequence[GPUState]) -> Sequence[MenuEntry]:
    candidates = _serving(menu, wanted, fleet)
    if not candidates:
        raise refusal(ProblemCode.NOT_ON_MENU, f"{_capital(str(wanted))} is not on the menu. {_choices(menu)}")
    return candidates


def _first_allowed(menu: Menu, candidates: Sequence[MenuEntry], person: Person, now: datetime) -> MenuEntry:
    clock = menu.clock(now)
    allowed = next((entry for entry in candidates if not entry.rule.refusal(person, clock)), None)
    if allowed is None:
        raise not_offered(menu, candidates[0], person, now)
    return allowed


def _request_of(entry: MenuEntry, wanted: Request) -> Request:
    """What the entry says; a device that was named stays named."""
    return wanted if isinstance(wanted, DeviceRequest) or entry.request is None else entry.request


def not_offered(menu: Menu, entry: MenuEntry, person: Person, now: datetime) -> AllocatorRefused:
    """The refusal that names the rule."""
    reason = entry.rule.refusal(person, menu.clock(now))
    contact = f" Ask {menu.contact}." if menu.contact else ""
    return refusal(
        ProblemCode.NOT_OFFERED,
        f"{entry.display_name} ({entry.id}) is not to be had for {person.name}. {reason}{contact}",
    )


def _names_entry(menu: Menu, request: LeaseRequest) -> bool:
    """Whether the choice decides. One that is not known does not where the request says by itself what it wants: a profile of the
    hub may bring a slice that its own menu does not have."""
    if menu.get(request.choice) is not None:
        return True
    return bool(request.choice) and not (request.names_something or request.choice == WHOLE)


def _chosen(menu: Menu, request: LeaseRequest) -> MenuEntry:
    entry = menu.get(request.choice)
    if entry is None:
        near = difflib.get_close_matches(request.choice, [e.id for e in menu], n=1)
        hint = f"Did you mean {near[0]!r}?" if near else _choices(menu)
        raise refusal(ProblemCode.NOT_ON_MENU, f"{request.choice!r} is not on the menu. {hint}")
    if entry.request is None:
        raise refusal(
            ProblemCode.NOT_ON_MENU, f"{entry.display_name} ({entry.id}) is without a GPU: there is nothing to lease."
        )
    if request.names_something and request.to_domain() != entry.request:
        raise refusal(
            ProblemCode.NOT_ON_MENU,
            f"On the menu {entry.id!r} is {entry.request}, not {request.to_domain()}. Leave one of the two out, "
            "or let the hub have the same menu as the allocator.",
        )
    return entry


def entry_held(menu: Menu, lease: Held, now: datetime) -> MenuEntry | None:
    """The entry by which a lease has what it was granted; None without a menu.

    Raises:
        AllocatorRefused: no entry gives it any more, or not to this person now.
    """
    if not len(menu):
        return None
    wanted = lease.choices[lease.grant.choice]
    if isinstance(wanted, DeviceRequest):
        wanted = WholeRequest() if lease.grant.profile is None else SliceRequest(lease.grant.profile)
    named = menu.get(lease.choice) if lease.grant.choice == 0 else None
    return _first_allowed(menu, _candidates(menu, wanted, ()) if named is None else [named], lease.person, now)


def _serving(menu: Menu, request: Request, fleet: Sequence[GPUState]) -> Sequence[MenuEntry]:
    """The entries that give what is asked for, the best first. A device is given by the entry of its profile."""
    match request:
        case MemoryRequest(least):
            sized = [(size, entry) for entry in menu if (size := entry.size) is not None and size[0] >= least]
            return [entry for _, entry in sorted(sized, key=lambda pair: pair[0])]
        case DeviceRequest():
            names = profiles_for(request, fleet)
            return [entry for entry in menu if entry.mig_profile in names]
        case SliceRequest() | WholeRequest():
            return [entry for entry in menu if entry.request == request]


def _choices(menu: Menu) -> str:
    ids = [e.id for e in menu if not e.none and not e.hide]
    if not ids:
        return "It has nothing with a GPU."
    more = ", …" if len(ids) > _MAX_LISTED else ""
    return f"It has {', '.join(ids[:_MAX_LISTED])}{more}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
