"""The fieldset as a browser gets it, read with an HTML parser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag

from mig_spawner.domain.quota import Scope, Unit
from mig_spawner.spawner.allowance import Own
from mig_spawner.spawner.form import Live, form_view, render_form
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.lease import RangeDocument
from mig_spawner.wire.menu import Menu, live_menu
from mig_spawner.wire.quota import QuotaDocument

MakeAvailability = Callable[..., Availability]
MakeOffer = Callable[..., OfferDocument]


class Form:
    """What can be seen of a rendered form."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.soup = BeautifulSoup(html, "html.parser")

    @property
    def radios(self) -> dict[str, Tag]:
        return {str(r["value"]): r for r in self.soup.select(".mig-choice input[type=radio][name=mig_choice]")}

    @property
    def checked(self) -> list[str]:
        return [value for value, radio in self.radios.items() if radio.has_attr("checked")]

    @property
    def disabled(self) -> set[str]:
        return {value for value, radio in self.radios.items() if radio.has_attr("disabled")}

    def label(self, value: str) -> str:
        [label] = self.soup.select(f'label.form-check-label[for="{self.radios[value]["id"]}"]')
        return label.get_text(strip=True)

    def about(self, value: str) -> str:
        """The text that describes a choice to whoever cannot see where it stands."""
        ids = str(self.radios[value]["aria-describedby"]).split()
        parts = [self.soup.find(id=i) for i in ids]
        assert all(parts), ids
        return " ".join(p.get_text(" ", strip=True) for p in parts if p is not None)

    def text(self, selector: str) -> str:
        return " ".join(t.get_text(" ", strip=True) for t in self.soup.select(selector))


@pytest.fixture
def show(menu: list[dict[str, Any]]) -> Callable[..., Form]:
    def render(availability: Availability | None, entries: Any = None, **options: Any) -> Form:
        return Form(render_form(form_view(Menu.parse(menu if entries is None else entries), availability, **options)))

    return render


@pytest.fixture
def up(availability: MakeAvailability, offer: MakeOffer) -> Availability:
    return availability(
        offer("1g.10gb", 5, 7), offer("2g.20gb", 0, 3), offer("3g.40gb", 0, 2), offer(None, 0, 0), queue_length=3
    )


def test_each_choice_has_a_label_size_share_sms_and_counts(show: Callable[..., Form], up: Availability) -> None:
    form = show(up)
    assert form.label("small") == "Small slice"
    assert form.about("small") == (
        "free now 5 of 7 10 GB · 12.5 % of a GPU · 14 of 98 SMs Room to run models of about 3 billion parameters in 16 bit."
    )
    assert form.about("none") == ""
    assert form.soup.fieldset is not None
    assert form.soup.fieldset.legend is not None
    assert form.soup.select_one(".mig-live-status[role=status][aria-live=polite]") is not None


def test_none_free_means_waiting_in_line_and_stays_possible(show: Callable[..., Form], up: Availability) -> None:
    form = show(up)
    assert "medium" not in form.disabled
    assert "free now 0 of 2" in form.about("medium")
    assert "you would wait in line (nobody waits for it yet)" in form.about("medium")


def test_what_nothing_can_ever_serve_is_disabled_with_the_reason(show: Callable[..., Form], up: Availability) -> None:
    form = show(up, [{"display_name": "Huge", "profile": "7g.80gb"}, {"display_name": "Whole", "whole": True}])
    assert form.disabled == {"huge", "whole"}
    assert form.about("huge") == "No GPU of this hub can serve this choice."
    assert form.checked == []


def test_the_reason_of_the_allocator_is_told(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    form = show(availability(offer("1g.10gb", 0, 0, "All nodes are silent.")))
    assert form.about("small") == "All nodes are silent."


def test_a_minimum_memory_counts_what_would_fit(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    form = show(availability(offer("1g.10gb", 7, 7), offer("3g.40gb", 1, 2), offer("2g.20gb", 2, 3), offer(None, 1, 1)))
    assert form.about("about-12").startswith("free now 2 of 3 20 GB · 25 % of a GPU · 28 of 98 SMs")


def test_while_the_allocator_is_down_only_gpu_choices_are_disabled(show: Callable[..., Form]) -> None:
    form = show(None, saved={"choice": "small"}, live=Live("/services/mig", "t", 5))
    assert form.disabled == {"small", "medium", "about-12", "whole"}
    assert form.checked == ["none"]
    assert "does not answer" in form.text(".mig-notice")
    assert "Not known" in form.about("small")
    assert "Your last choice, Small slice, cannot be started now." in form.text(".mig-stale")
    assert not form.soup.select("script")


@pytest.mark.parametrize("saved", [{"choice": "medium"}, "medium", {"profile": "3g.40gb"}])
def test_a_saved_choice_is_selected_again(show: Callable[..., Form], up: Availability, saved: object) -> None:
    form = show(up, saved=saved)
    assert form.checked == ["medium"]
    assert form.text(".mig-stale") == ""


@pytest.mark.parametrize("saved", [{"choice": "gone"}, ["x"], 5, "7g.80gb", {"choice": "<script>"}])
def test_a_stale_choice_is_explained_and_the_default_selected(
    show: Callable[..., Form], up: Availability, saved: object
) -> None:
    form = show(up, saved=saved)
    assert form.checked == ["none"]
    assert "no longer on the menu" in form.text(".mig-stale")


def test_how_the_last_lease_ended_is_said(show: Callable[..., Form], up: Availability) -> None:
    said = "Your last server lost its GPU. An admin ended it. <b>Sorry</b>"
    assert show(up, ended=said).text(".mig-ended") == said
    assert show(up).text(".mig-ended") == ""


def test_nothing_saved_is_not_stale(show: Callable[..., Form], up: Availability) -> None:
    assert show(up).text(".mig-stale") == ""
    assert show(up).checked == ["none"]


def test_simulated_gpus_say_so(show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer) -> None:
    assert show(availability(offer("1g.10gb", 1, 1), simulated=True)).text(".badge.text-bg-warning") == "Simulated GPUs"
    assert "Simulated" not in show(availability(offer("1g.10gb", 1, 1))).html


def test_live_counts_need_a_ticket_and_bring_one_script(show: Callable[..., Form], up: Availability) -> None:
    form = show(up, live=Live("/hub/services/mig", "a-ticket", 7.5))
    [script] = form.soup.select("script")
    assert script["src"] == "/hub/services/mig/static/live.js"
    assert script.has_attr("defer")
    fieldset = form.soup.fieldset
    assert fieldset is not None
    assert (fieldset["data-mig-url"], fieldset["data-mig-ticket"]) == ("/hub/services/mig", "a-ticket")
    assert fieldset["data-mig-interval"] == "7.5"
    offers = {str(c["data-mig-offer"]) for c in form.soup.select(".mig-choice") if c["data-mig-offer"]}
    assert offers == {"profile:1g.10gb", "profile:3g.40gb", "memory:12"}
    assert not show(up).soup.select("script")


def test_texts_of_others_are_shown_and_not_obeyed(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    evil = '"><img src=x onerror=alert(1)></script><b>'
    entries = [{"id": "x", "display_name": evil, "description": evil, "profile": "1g.10gb"}]
    form = show(availability(offer("1g.10gb", 0, 0, evil)), entries, live=Live(f"/a{evil}", evil, 5), notice=evil)
    assert not form.soup.select("img, b")
    assert form.label("x") == evil
    assert form.about("x").count(evil) == 2
    assert form.soup.fieldset is not None
    assert form.soup.fieldset["data-mig-ticket"] == evil


def test_an_empty_form_says_so(availability: MakeAvailability) -> None:
    form = Form(render_form(form_view(Menu(), availability())))
    assert "offers no choice of GPU" in form.text("fieldset")


def test_the_menu_of_a_hub_without_one(up: Availability) -> None:
    form = Form(render_form(form_view(live_menu(up), up)))
    assert list(form.radios) == ["none", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert form.checked == ["none"]


def test_what_is_full_says_how_many_are_ahead_until_when_and_what_is_free_instead(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    end, late = datetime(2026, 1, 1, 8, 20, tzinfo=UTC), datetime(2026, 1, 1, 14, 30, tzinfo=UTC)
    starts = RangeDocument(earliest=end, latest=late)
    full = offer("3g.40gb", 0, 2).model_copy(update={"waiting": 2, "first_end": end, "starts_between": starts})
    form = show(availability(offer("1g.10gb", 5, 7), full))
    assert "you would wait in line (2 ahead of you). The first ends about 08:20 UTC" in form.about("medium")
    assert "would start between 08:20 UTC and Thu 14:30 UTC" in form.about("medium")
    assert {time["datetime"] for time in form.soup.select(".mig-first-end time")} == {end.isoformat()}
    instead = form.soup.select(".mig-choice .mig-instead:not([hidden]) label")
    assert {(str(label["for"]), label.get_text()) for label in instead} >= {
        ("mig-choice-small", "Small slice (10 GB)"),
        ("mig-choice-none", "No GPU"),
    }


def test_how_long_one_waits_may_not_be_known(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    about = {"waiting": 1, "cannot_tell": "It has to wait for 2 leases."}
    form = show(availability(offer("1g.10gb", 0, 7).model_copy(update=about)))
    assert "When it would start cannot be told: It has to wait for 2 leases." in form.about("small")


def test_what_is_left_and_what_was_used_is_said_of_each_choice(
    show: Callable[..., Form], up: Availability, availability: MakeAvailability, offer: MakeOffer
) -> None:
    quota = QuotaDocument(
        name="",
        per=Scope.PERSON,
        subject="ada",
        unit=Unit.MEMORY_GB,
        limit=30,
        used=0,
        left=30,
        text="You have 0 of 30 GB.",
    )
    form = show(up, own=Own([quota], {"1g.10gb": 7500}), saved="medium")
    assert (
        "You have used at most 7.32 GB of such a slice before. Within your quotas: room for 3 of these."
        in form.about("small")
    )
    assert "A quota is against it: you have 0 of 30 GB." in form.about("medium")
    assert form.text(".mig-summary") == "Your server would not start. A quota is against it: you have 0 of 30 GB."
    none = show(availability(offer("1g.10gb", 5, 7), offer(None, 1, 1)), own=Own([quota]))
    assert "quota" not in none.about("none"), "to do without a GPU uses none"


def test_counts_that_nobody_knows_are_unknown_not_none(show: Callable[..., Form]) -> None:
    assert show(None).about("small").startswith("free now: unknown")


def test_the_profile_is_one_click_away_and_limit_and_price_in_sight(
    show: Callable[..., Form], up: Availability
) -> None:
    entry = {"display_name": "Small", "profile": "1g.10gb", "duration": 5400, "price": 0.5}
    form = show(up, {"currency": "credits", "contact": "help@example.org", "entries": [entry]})
    assert form.text(".mig-choice details code") == "1g.10gb"
    assert "For at most 1 h 30 min." in form.about("small")
    assert "0.5 credits per hour" in form.about("small")
    assert "Ask help@example.org." in form.text("fieldset")
    assert (
        form.text(".mig-summary")
        == "Your server starts with Small (10 GB), for at most 1 h 30 min, at 0.5 credits per hour."
    )


def test_by_need_goes_as_far_as_the_menu_does(show: Callable[..., Form], up: Availability) -> None:
    form = show(up)
    need = form.soup.select_one("#mig-need")
    assert need is not None
    assert (need["min"], need["max"]) == ("1", "40")
    assert form.soup.select_one(".mig-need input[type=range][hidden]") is not None, "a script shows the slider"
    assert "does not know your batch size" in form.text(".mig-calculator")
    assert not show(up, [{"display_name": "None", "none": True}]).soup.select(".mig-need")
    assert not show(None).soup.select(".mig-need")


def test_nothing_in_it_needs_a_weaker_policy_of_the_page(show: Callable[..., Form], up: Availability) -> None:
    form = show(up, live=Live("/services/mig", "t", 5), assets="/services/mig")
    assert not form.soup.select("style, [style], script:not([src])")
    assert not [tag for tag in form.soup.find_all(True) if any(name.startswith("on") for name in tag.attrs)]


def test_the_form_does_not_grow_with_the_fleet(
    show: Callable[..., Form], availability: MakeAvailability, offer: MakeOffer
) -> None:
    few = show(availability(offer("1g.10gb", 7, 7), offer("3g.40gb", 2, 2)))
    many = show(availability(offer("1g.10gb", 70_000, 70_000), offer("3g.40gb", 20_000, 20_000)))
    assert len(many.html) - len(few.html) < 40
