"""A menu against what the GPUs really have: what nobody could ever get, and what would do instead. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.quota import Size, Unit
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu.entry import MenuEntry
from mig_spawner.wire.menu.menu import Menu
from mig_spawner.wire.node import NodeReport


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Nobody can ever get it."""
    WARNING = "warning"
    """It can be had, but perhaps not as it was meant."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one entry. `instead`: the nearest that can be had, as a line of YAML; empty for none."""

    severity: Severity
    entry: str
    text: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Offered:
    """Something the GPUs have. `profile`: None for a whole GPU."""

    profile: ProfileName | None
    size: Size


def offered_by(availability: Availability) -> list[Offered]:
    """What an allocator offers: also what is all in use now."""
    return [
        Offered(
            None if offer.profile is None else ProfileName.parse(offer.profile),
            Size(offer.memory_gb, offer.multiprocessors / max(offer.multiprocessors_total, 1)),
        )
        for offer in availability.offers
        if offer.total
    ]


def offered_on(report: NodeReport) -> list[Offered]:
    """What the GPUs of one node have, as its agent reports them."""
    found: list[Offered] = []
    for document in report.gpus:
        gpu = document.to_domain()
        standing = {gpu.profile_by_id(instance.profile_id) for instance in document.instances}
        cut = document.dynamic and document.mig_enabled is not None
        for profile in gpu.profiles if cut else [profile for profile in standing if profile is not None]:
            share = profile.multiprocessors / max(gpu.multiprocessors, 1)
            found.append(Offered(profile.name, Size(profile.name.memory_gb, share)))
        if document.dynamic or document.mig_enabled is not True:
            found.append(Offered(None, Size(round(gpu.memory_mib / 1024), 1.0)))
    return found


def check(menu: Menu, offered: Sequence[Offered], now: datetime) -> list[Finding]:
    """What is wrong with a menu for these GPUs, in the order of the menu."""
    return [finding for entry in menu for finding in _entry(menu, entry, offered, now)]


def without_entry(menu: Menu, offered: Iterable[Offered]) -> list[str]:
    """Profiles that the GPUs have and no entry gives, smallest first."""
    names = {o.profile for o in offered if o.profile is not None}
    given = {entry.mig_profile for entry in menu}
    plain = sorted(names - given, key=lambda name: (name.memory_gb, name.compute_slices, name.suffix))
    return [str(name) for name in plain]


def _entry(menu: Menu, entry: MenuEntry, offered: Sequence[Offered], now: datetime) -> Iterator[Finding]:
    fitting = [o for o in offered if _gives(o, entry)]
    if not entry.none and not fitting:
        yield _missing(entry, offered)
    elif not entry.none:
        yield from _over_quota(menu, entry, [o.size for o in fitting])
    last = entry.rule.ends
    if last is not None and last < menu.clock(now).date():
        yield Finding(
            Severity.WARNING, entry.id, f"it could be had until {last.isoformat()}, so nobody can have it now"
        )
    rule = entry.rule
    if menu.default is entry and (rule.users or rule.groups or rule.begins or rule.ends or rule.hours):
        text = "it is what is taken when nobody chose, but not everybody may have it at all times"
        yield Finding(Severity.WARNING, entry.id, text)


def _gives(offered: Offered, entry: MenuEntry) -> bool:
    if entry.whole:
        return offered.profile is None
    if entry.min_memory is not None:
        name = offered.profile
        return name is not None and not name.suffix and name.memory_gb >= entry.min_memory
    return offered.profile is not None and offered.profile == entry.mig_profile


def _missing(entry: MenuEntry, offered: Sequence[Offered]) -> Finding:
    names = [o.profile for o in offered if o.profile is not None]
    whole = "whole: true" if any(o.profile is None for o in offered) else ""
    plain = [name for name in names if not name.suffix]
    if entry.whole:
        largest = max(plain, key=lambda n: (n.memory_gb, n.compute_slices), default=None)
        instead = "" if largest is None else f"profile: {largest}"
        return Finding(Severity.ERROR, entry.id, "no GPU here can be had whole: all are cut into fixed slices", instead)
    if entry.min_memory is not None:
        most = max((name.memory_gb for name in plain), default=None)
        text = f"no slice here has {entry.min_memory:g} GB" + ("" if most is None else f"; the largest has {most}")
        return Finding(Severity.ERROR, entry.id, text, whole or ("" if most is None else f"min_memory: {most}"))
    wanted = entry.mig_profile
    if wanted is None or not names:
        return Finding(Severity.ERROR, entry.id, f"no GPU here offers {wanted}", whole)
    return Finding(Severity.ERROR, entry.id, f"no GPU here offers {wanted}", f"profile: {_nearest(wanted, names)}")


def _nearest(wanted: ProfileName, names: Iterable[ProfileName]) -> ProfileName:
    """The one most alike: the same suffix and memory rather than the same compute, and rather more than less."""

    def distance(name: ProfileName) -> tuple[object, ...]:
        memory, compute = name.memory_gb - wanted.memory_gb, name.compute_slices - wanted.compute_slices
        return (name.suffix != wanted.suffix, abs(memory), memory < 0, abs(compute), compute < 0, str(name))

    return min(names, key=distance)


def _over_quota(menu: Menu, entry: MenuEntry, sizes: Sequence[Size]) -> Iterator[Finding]:
    """A quota that holds for everybody and is smaller than the entry."""
    for rule in menu.quotas:
        if rule.users or rule.groups or rule.unit is Unit.GPU_HOURS:
            continue
        least = min(size.in_unit(rule.unit) for size in sizes)
        if least > rule.limit:
            text = f"it is {least:g} {rule.unit.replace('_', ' ')}, more than the quota {rule} lets anybody have"
            yield Finding(Severity.WARNING, entry.id, text)
