"""The tour reads the real form, and says what it expected and saw."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mig_spawner.demo.option import Options
from mig_spawner.demo.sight import expect, free_counts
from mig_spawner.demo.tour import LARGE, MEDIUM, SMALL
from mig_spawner.errors import DemoFailed
from mig_spawner.spawner.form import form_view, render_form
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.menu import Menu


def offer(profile: str, free: int, total: int) -> OfferDocument:
    return OfferDocument(
        profile=profile,
        free=free,
        total=total,
        memory_gb=10,
        memory_mib=9728,
        multiprocessors=14,
        multiprocessors_total=98,
        share=0.125,
        models=("a model",),
    )


def page(*offers: OfferDocument) -> str:
    """The spawn form with these offers."""
    menu = Menu.parse(Options.for_check().menu)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    availability = Availability(as_of=now, offers=offers, queue_length=0, nodes=1, nodes_silent=0, simulated=True)
    return render_form(form_view(menu, availability))


def test_the_counts_of_the_form_are_read() -> None:
    text = page(offer(SMALL, 6, 7), offer(MEDIUM, 0, 3), offer(LARGE, 2, 2))
    assert free_counts(text) == {SMALL: (6, 7), MEDIUM: (0, 3), LARGE: (2, 2)}


def test_a_choice_without_counts_is_not_given_those_of_the_next() -> None:
    assert free_counts(page(offer(MEDIUM, 1, 3))) == {MEDIUM: (1, 3)}


def test_what_was_expected_and_seen_is_said() -> None:
    expect(1, 1, "the number")
    with pytest.raises(DemoFailed, match=r"Expected of the number: 2\. Seen: 1\."):
        expect(1, 2, "the number")
