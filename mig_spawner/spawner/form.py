"""The fieldset of GPU choices in the spawn form: menu and availability in, view model, HTML out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.menu import price_text
from mig_spawner.spawner.options import FIELD, choose
from mig_spawner.spawner.profile import Bound, entry_of
from mig_spawner.spawner.templates import render
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.menu import Menu, MenuEntry

NO_ANSWER = "The GPU allocator does not answer. GPU choices cannot be started now; a server without a GPU can."
NOTHING_OFFERS = "No GPU of this hub can serve this choice."


@dataclass(frozen=True, slots=True)
class Live:
    """How the page keeps its counts fresh: the allocator's public URL, a ticket to read with, and seconds between reads."""

    url: str
    ticket: str
    interval_s: float


@dataclass(frozen=True, slots=True)
class ChoiceView:
    """One radio button.

    Attributes:
        size: memory, share of the GPU and SMs in words; empty where nothing is known.
        free, total: GPU instances that could be had now, and at most; None where unknown or without meaning.
        reason: why it is disabled, or what to expect when none is free; empty otherwise.
        price: in words; empty without one.
        offer: what the live counts are looked up by: `profile:1g.10gb`, `memory:12` or `whole`; empty without counts.
    """

    id: str
    name: str
    description: str
    checked: bool
    enabled: bool
    gpu: bool
    size: str = ""
    free: int | None = None
    total: int | None = None
    reason: str = ""
    price: str = ""
    offer: str = ""


@dataclass(frozen=True, slots=True)
class FormView:
    """The fieldset. `notice` is a sentence about the whole of it, `stale` one about a saved choice that is no more.

    Attributes:
        profiles: of the admin's, that bring a slice: nothing to choose here, just what is free.
    """

    choices: tuple[ChoiceView, ...]
    profiles: tuple[ChoiceView, ...] = ()
    notice: str = ""
    stale: str = ""
    simulated: bool = False
    queue_length: int = 0
    live: Live | None = None


def form_view(
    menu: Menu,
    availability: Availability | None,
    *,
    saved: object = None,
    live: Live | None = None,
    notice: str = "",
    refusals: Mapping[str, str] | None = None,
    bound: Sequence[Bound] = (),
    beside: bool = True,
) -> FormView:
    """What the form shows.

    Args:
        availability: None when the allocator does not answer.
        saved: the option `mig` of the last start, as hostile as any; None if there was none.
        refusals: why this user may not have an entry, by its id.
        notice: shown above the choices; without it, the form says by itself when availability is unknown.
        bound: what of the admin's profiles brings a slice.
        beside: there are choices beside the profiles; without, only what profiles bring is shown.
    """
    wanted, stale = _preselected(menu, saved)
    views = [_offered(entry, availability, menu.currency, (refusals or {}).get(entry.id, "")) for entry in menu]
    checked = _first([v for v in views if wanted is not None and v.id == wanted.id], views)
    if not notice and availability is None:
        notice = NO_ANSWER
    if not stale and wanted is not None and checked is not None and checked != wanted.id and saved is not None:
        stale = f"Your last choice, {wanted.display_name}, cannot be started now."
    return FormView(
        choices=tuple(replace(v, checked=v.id == checked) for v in views) if beside else (),
        notice=notice if beside or bound else "",
        stale=stale if beside else "",
        simulated=availability is not None and availability.simulated,
        queue_length=0 if availability is None else availability.queue_length,
        live=live if availability is not None else None,
        profiles=tuple(_beside(number, item, menu, availability) for number, item in enumerate(bound)),
    )


def _beside(number: int, item: Bound, menu: Menu, availability: Availability | None) -> ChoiceView:
    """What a profile brings. A word that means nothing is said where a start would fail with it."""
    try:
        entry = entry_of(item.word, menu)
    except InvalidRequest as error:
        return ChoiceView(f"profile-{number}", item.name, "", checked=False, enabled=False, gpu=True, reason=str(error))
    view = choice_view(entry, availability)
    return replace(view, id=f"profile-{number}", name=item.name, description=entry.display_name)


def render_form(view: FormView) -> str:
    """The fieldset as HTML; everything in it is escaped."""
    return render("form.html", view=view, field=FIELD)


def _preselected(menu: Menu, saved: object) -> tuple[MenuEntry | None, str]:
    try:
        return (choose(saved, menu) if len(menu) else None), ""
    except InvalidRequest:
        return menu.default, "Your last choice is no longer on the menu, so the usual one is selected."


def _first(preferred: list[ChoiceView], views: list[ChoiceView]) -> str | None:
    """The preferred choice if it can be had, else one without a GPU, else any that can be had."""
    without = [v for v in views if not v.gpu]
    return next((v.id for v in [*preferred, *without, *views] if v.enabled), None)


def _offered(entry: MenuEntry, availability: Availability | None, currency: str, refusal: str) -> ChoiceView:
    """The choice, or why it is not for this user; then counts mean nothing to them."""
    view = replace(choice_view(entry, availability), price=price_text(entry, currency))
    return replace(view, enabled=False, reason=refusal, offer="", free=None, total=None) if refusal else view


def choice_view(entry: MenuEntry, availability: Availability | None) -> ChoiceView:
    view = ChoiceView(entry.id, entry.display_name, entry.description, checked=False, enabled=True, gpu=not entry.none)
    if entry.none:
        return view
    if availability is None:
        return replace(view, enabled=False, reason="Not known while the GPU allocator does not answer.")
    offers = fitting(entry, availability.offers)
    if not offers or not any(o.total for o in offers):
        reason = next((o.reason for o in offers if o.reason), NOTHING_OFFERS)
        return replace(view, enabled=False, free=0, total=0, reason=reason)
    free = max(o.free for o in offers)
    return replace(
        view,
        offer=offer_key(entry),
        size=size_text(next(o for o in offers if o.total)),
        free=free,
        total=max(o.total for o in offers),
        reason="" if free else waiting_text(availability.queue_length),
    )


def offer_key(entry: MenuEntry) -> str:
    """How the script finds the offers of an entry, as `fitting` does."""
    if entry.whole:
        return "whole"
    return f"profile:{entry.profile}" if entry.profile else f"memory:{entry.min_memory:g}"


def fitting(entry: MenuEntry, offers: Iterable[OfferDocument]) -> list[OfferDocument]:
    """The offers that could serve an entry, the smallest first."""
    if entry.whole:
        found = [o for o in offers if o.profile is None]
    elif entry.min_memory is not None:
        found = [o for o in offers if o.profile is not None and o.memory_gb >= entry.min_memory]
    else:
        found = [o for o in offers if o.profile == entry.profile]
    return sorted(found, key=lambda o: (o.memory_mib, o.multiprocessors))


def size_text(offer: OfferDocument) -> str:
    """`10 GB · 12.5 % of a GPU · 14 of 98 SMs`; of a whole GPU without the share."""
    if offer.profile is None:
        return f"{offer.memory_gb} GB · a whole GPU · {offer.multiprocessors} SMs"
    share = f"{offer.share * 100:.1f}".removesuffix(".0")
    return f"{offer.memory_gb} GB · {share} % of a GPU · {offer.multiprocessors} of {offer.multiprocessors_total} SMs"


def waiting_text(queue_length: int) -> str:
    """What to expect when none is free."""
    waiting = "nobody waits yet" if queue_length == 0 else f"{queue_length} waiting"
    return f"None free now: you would wait in line ({waiting})."
