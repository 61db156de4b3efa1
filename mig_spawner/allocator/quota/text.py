"""Quotas in sentences for the person who meets one."""

from __future__ import annotations

from datetime import datetime, timedelta

from mig_spawner.domain.quota import Quota, Scope, Size, Standing, Unit


def refusal_text(standing: Standing, what: str, size: Size, now: datetime) -> str:
    """Which quota says no, how much of it is used, when there is room again, and whom to ask."""
    rule = standing.quota.rule
    name = f" ({rule.name})" if rule.name else ""
    if size.in_unit(rule.unit) > rule.limit:
        first = f"{what} is {_amount(size.in_unit(rule.unit), rule.unit)}, more than {whose(standing.quota)} may have at once{name}: "
        return f"{first}{_amount(rule.limit, rule.unit)}. Choose something smaller.{_contact(standing)}"
    return f"{standing_text(standing)}{name}. {_reset(standing, now)}{_contact(standing)}"


def standing_text(standing: Standing) -> str:
    """`You have 1 of 2 slices`, without a full stop."""
    rule, who = standing.quota.rule, whose(standing.quota)
    used = _number(standing.used)
    if rule.window is not None:
        verb = "You have used" if rule.scope is Scope.PERSON else f"{_capital(who)} have used"
        return f"{verb} {used} of {_number(rule.limit)} GPU-hours of the last {span_text(rule.window)}"
    verb = "You have or wait for" if rule.scope is Scope.PERSON else f"{_capital(who)} have or wait for"
    return f"{verb} {used} of {_amount(rule.limit, rule.unit)}"


def whose(quota: Quota) -> str:
    """Whose use is counted, in words."""
    match quota.rule.scope:
        case Scope.PERSON:
            return "you"
        case Scope.GROUP:
            return f"all in the group {quota.subject}"
        case Scope.HUB:
            return "all people here"


def span_text(span: timedelta) -> str:
    """`7 days`, `12 hours`."""
    seconds = span.total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} seconds"


def _reset(standing: Standing, now: datetime) -> str:
    at = standing.resets_at
    if at is not None:
        shown = f"{at.astimezone(now.tzinfo):%Y-%m-%d %H:%M %Z}"
        return f"There is room again at the latest from {shown} on."
    if standing.quota.rule.scope is Scope.PERSON and standing.quota.rule.window is None:
        return "Give one back first; what is still being released counts until it is free."
    return "There is room again when something is given back; nobody can tell when."


def _contact(standing: Standing) -> str:
    contact = standing.quota.rule.contact
    return f" For more ask {contact}." if contact else ""


def _amount(value: float, unit: Unit) -> str:
    number = _number(value)
    match unit:
        case Unit.SLICES:
            return f"{number} slice{'' if number == '1' else 's'}"
        case Unit.MEMORY_GB:
            return f"{number} GB of GPU memory"
        case Unit.COMPUTE_SHARE:
            return f"{number} GPU{'' if number == '1' else 's'} by compute"
        case Unit.GPU_HOURS:
            return f"{number} GPU-hours"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
