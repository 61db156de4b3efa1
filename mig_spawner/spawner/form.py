"""The fieldset of GPU choices in the spawn form: menu and availability in, view model, HTML out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner import sizing
from mig_spawner.spawner.allowance import Own
from mig_spawner.spawner.menu import price_text
from mig_spawner.spawner.options import BY_NEED, FIELD, NEED_FIELD, choose
from mig_spawner.spawner.profile import Bound, entry_of
from mig_spawner.spawner.templates import render
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.lease import RangeDocument
from mig_spawner.wire.menu import Menu, MenuEntry

NO_ANSWER = "The GPU allocator does not answer. GPU choices cannot be started now; a server without a GPU can."
NOTHING_OFFERS = "No GPU of this hub can serve this choice."
_INSTEAD = 2
_SOON = timedelta(hours=12)


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
        memory_gb: what a program gets at least; None where unknown or without meaning.
        good_for: what fits in it, in words.
        profile, models: how admins call it; behind one click.
        limit: how long it may be kept, in words; empty for no limit.
        price: for an hour, in words; empty for none.
        free, total: GPU instances that could be had now, and at most; None where unknown or without meaning.
        quota: how much more of it the person's quotas leave; `over` which of them is against one more.
        peak: how much memory this person used of such slices before.
        ahead: how many wait for it; `first_end` when the first who has one must give it back, None when nobody can tell.
        starts: when it would begin, asked for now; `cannot_tell` why that is not known.
        instead: what could be had at once, where this cannot.
        reason: why it is disabled, or what to expect when none is free; empty otherwise.
        offer: what the live counts are looked up by: `profile:1g.10gb`, `memory:12` or `whole`; empty without counts.
        refused: it is not for this user.
        need: GB and compute slices that a choice by need counts it by; None for what cannot be chosen so.
    """

    id: str
    name: str
    description: str
    checked: bool
    enabled: bool
    gpu: bool
    size: str = ""
    memory_gb: float | None = None
    good_for: str = ""
    profile: str = ""
    models: str = ""
    limit: str = ""
    price: str = ""
    free: int | None = None
    total: int | None = None
    ahead: int = 0
    first_end: datetime | None = None
    starts: RangeDocument | None = None
    cannot_tell: str = ""
    quota: str = ""
    over: str = ""
    peak: str = ""
    instead: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    offer: str = ""
    refused: bool = False
    need: tuple[float, int] | None = None

    @property
    def short(self) -> str:
        """The name with the memory, as the summary says it."""
        return self.name if self.memory_gb is None else f"{self.name} ({self.memory_gb:g} GB)"

    @property
    def unknown(self) -> bool:
        """A GPU of which nobody can say now whether one is free."""
        return self.gpu and self.total is None and not self.refused

    @property
    def full(self) -> bool:
        return bool(self.total) and not self.free


@dataclass(frozen=True, slots=True)
class FormView:
    """The fieldset.

    Attributes:
        notice: a sentence about the whole of it.
        stale: one about a saved choice that is no more.
        ended: one about a lease that ended although its server ran.
        as_of: when the counts were true; None when there are none.
        assets: where the form's style and scripts are: the allocator's public URL.
        contact: whom to ask for more.
        profiles: of the admin's, that bring a slice: nothing to choose here, just what is free.
    """

    choices: tuple[ChoiceView, ...]
    profiles: tuple[ChoiceView, ...] = ()
    notice: str = ""
    stale: str = ""
    ended: str = ""
    simulated: bool = False
    queue_length: int = 0
    as_of: datetime | None = None
    live: Live | None = None
    assets: str = ""
    contact: str = ""

    @property
    def largest_gb(self) -> float:
        """The most memory that can be asked for by need; 0 when nothing can."""
        return max((c.need[0] for c in self.choices if c.enabled and c.need is not None), default=0.0)

    @property
    def chosen(self) -> ChoiceView | None:
        return next((choice for choice in self.choices if choice.checked), None)


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
    assets: str = "",
    ended: str = "",
    own: Own | None = None,
) -> FormView:
    """What the form shows.

    Args:
        availability: None when the allocator does not answer.
        saved: the option `mig` of the last start, as hostile as any; None if there was none.
        notice: shown above the choices; without it, the form says by itself when availability is unknown.
        refusals: why this user may not have an entry, by its id.
        bound: what of the admin's profiles brings a slice.
        beside: there are choices beside the profiles; without, only what profiles bring is shown.
        assets: where the form's style and scripts are; empty for a form without them.
        own: what is left for this person, and what they used.
        ended: how the last lease of this server ended, where it did not end it itself.
    """
    wanted, stale = _preselected(menu, saved)
    views = [_offered(entry, menu, availability, (refusals or {}).get(entry.id, ""), own or Own()) for entry in menu]
    views = [replace(view, instead=_instead(view, views)) for view in views]
    checked = _first([v for v in views if wanted is not None and v.id == wanted.id], views)
    if not notice and availability is None:
        notice = NO_ANSWER
    if not stale and wanted is not None and checked is not None and checked != wanted.id and saved is not None:
        stale = f"Your last choice, {wanted.display_name}, cannot be started now."
    return FormView(
        choices=tuple(replace(v, checked=v.id == checked) for v in views) if beside else (),
        profiles=tuple(_beside(number, item, menu, availability) for number, item in enumerate(bound)),
        notice=notice if beside or bound else "",
        stale=stale if beside else "",
        ended=ended,
        simulated=availability is not None and availability.simulated,
        queue_length=0 if availability is None else availability.queue_length,
        as_of=None if availability is None else availability.as_of,
        live=live if availability is not None else None,
        assets=assets,
        contact=menu.contact,
    )


def _beside(number: int, item: Bound, menu: Menu, availability: Availability | None) -> ChoiceView:
    """What a profile brings. A word that means nothing is said where a start would fail with it."""
    try:
        entry = entry_of(item.word, menu)
    except InvalidRequest as error:
        return ChoiceView(f"profile-{number}", item.name, "", checked=False, enabled=False, gpu=True, reason=str(error))
    view = choice_view(entry, availability)
    return replace(view, id=f"profile-{number}", name=item.name, description=entry.display_name)


def render_form(view: FormView, template_paths: Sequence[str] = ()) -> str:
    """The fieldset as HTML; everything in it is escaped. `template_paths`: an admin's folders, looked into first."""
    return render(
        "form.html",
        template_paths,
        view=view,
        field=FIELD,
        need_field=NEED_FIELD,
        by_need=BY_NEED,
        sizing=sizing,
        summary=summary_text,
        clock=lambda moment: clock_text(moment, view.as_of),
    )


def clock_text(moment: datetime, now: datetime | None) -> str:
    """`14:20 UTC`, with the day of the week where it is not soon. A script writes it in the reader's own zone and language."""
    soon = now is None or moment - now < _SOON
    return f"{moment:%H:%M} UTC" if soon else f"{moment:%a %H:%M} UTC"


def summary_text(choice: ChoiceView) -> str:
    """What happens when the form is sent, in one line. The script says the same when the choice or the counts change."""
    if not choice.gpu:
        return "Your server starts without a GPU."
    limit = f", for at most {choice.limit}" if choice.limit else ""
    price = f", at {choice.price}" if choice.price else ""
    if choice.over:
        return f"Your server would not start. {choice.over}"
    if choice.full:
        behind = f", behind {choice.ahead}," if choice.ahead else ""
        return f"Your server waits in line for {choice.short}{behind} and starts with it{limit}{price}."
    return f"Your server starts with {choice.short}{limit}{price}."


def _preselected(menu: Menu, saved: object) -> tuple[MenuEntry | None, str]:
    try:
        return (choose(saved, menu) if len(menu) else None), ""
    except InvalidRequest:
        return menu.default, "Your last choice is no longer on the menu, so the usual one is selected."


def _first(preferred: list[ChoiceView], views: list[ChoiceView]) -> str | None:
    """The preferred choice if it can be had, else one without a GPU, else any that can be had."""
    without = [v for v in views if not v.gpu]
    return next((v.id for v in [*preferred, *without, *views] if v.enabled), None)


def _offered(entry: MenuEntry, menu: Menu, availability: Availability | None, refusal: str, own: Own) -> ChoiceView:
    """The choice, or why it is not for this user; then counts mean nothing to them."""
    view = replace(choice_view(entry, availability), price=price_text(entry, menu.currency))
    if not refusal:
        return _with_own(view, smallest_of(entry, availability), own)
    return replace(view, enabled=False, reason=refusal, offer="", free=None, total=None, first_end=None, refused=True)


def _with_own(view: ChoiceView, offer: OfferDocument | None, own: Own) -> ChoiceView:
    """The choice with what is left of it for this person. The allocator would refuse at once what is over a quota."""
    if offer is None:
        return view
    over = own.over(offer)
    return replace(view, over=over, quota=over or own.left(offer, span_text), peak=own.peak(offer))


def smallest_of(entry: MenuEntry, availability: Availability | None) -> OfferDocument | None:
    """The smallest offer that could serve an entry; None where there is none."""
    if availability is None or entry.none:
        return None
    return next((o for o in fitting(entry, availability.offers) if o.total), None)


def _instead(view: ChoiceView, views: Sequence[ChoiceView]) -> tuple[tuple[str, str], ...]:
    """The nearest sizes that are free, larger ones first, and to do without."""
    if not view.full or not view.enabled:
        return ()
    mine = view.memory_gb or 0
    free = [v for v in views if v.enabled and v.free and v.memory_gb is not None]
    free.sort(key=lambda v: ((v.memory_gb or 0) < mine, abs((v.memory_gb or 0) - mine)))
    none = [v for v in views if not v.gpu and v.enabled]
    return tuple((v.id, v.short) for v in [*free[:_INSTEAD], *none[:1]])


def choice_view(entry: MenuEntry, availability: Availability | None) -> ChoiceView:
    """What an entry of the menu is and how much of it is free."""
    view = ChoiceView(
        entry.id,
        entry.display_name,
        entry.description,
        checked=False,
        enabled=True,
        gpu=not entry.none,
        profile=entry.profile or "",
        need=entry.size,
        limit="" if entry.duration is None else span_text(entry.duration),
    )
    if entry.none:
        return view
    if availability is None:
        return replace(view, enabled=False, reason="Not known while the GPU allocator does not answer.")
    offers = fitting(entry, availability.offers)
    if not offers or not any(o.total for o in offers):
        reason = next((o.reason for o in offers if o.reason), NOTHING_OFFERS)
        return replace(view, enabled=False, free=0, total=0, reason=reason)
    free = max(o.free for o in offers)
    smallest = next(o for o in offers if o.total)
    ahead = max(o.waiting for o in offers)
    starts = min(
        (o.starts_between for o in offers if o.starts_between is not None), key=lambda r: r.latest, default=None
    )
    first_end = min((o.first_end for o in offers if o.first_end is not None), default=None)
    return replace(
        view,
        offer=offer_key(entry),
        size=size_text(smallest),
        memory_gb=float(smallest.memory_gb),
        good_for=good_for_text(smallest.memory_gb),
        profile=entry.profile or smallest.profile or "",
        models=", ".join(smallest.models),
        free=free,
        total=max(o.total for o in offers),
        ahead=ahead,
        first_end=None if free else first_end,
        starts=None if free else starts,
        cannot_tell="" if free or starts else next((o.cannot_tell for o in offers if o.cannot_tell), ""),
        reason="" if free else waiting_text(ahead),
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


def good_for_text(memory_gb: float) -> str:
    """What fits, by the rule of thumb of the size calculator."""
    billions = sizing.billions_to_run(memory_gb)
    if billions < 1:
        return "Good for first steps, plots and small models."
    return f"Room to run models of about {billions} billion parameters in 16 bit."


def waiting_text(ahead: int) -> str:
    """What to expect when none is free."""
    waiting = "nobody waits for it yet" if ahead == 0 else f"{ahead} ahead of you"
    return f"None free now: you would wait in line ({waiting})."


def span_text(seconds: float) -> str:
    """`40 min`, `8 h`, `1 d 12 h`."""
    minutes = round(seconds / 60)
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (rest, "min")) if n]
    return " ".join(parts[:2]) or f"{seconds:g} s"
