"""Traits of the allocator that are about telling."""

from __future__ import annotations

from traitlets import Float, Integer
from traitlets.config import Configurable


class EventTraits(Configurable):
    """A part of `AllocatorApp`, where they are set."""

    expiry_warning = Float(
        600,
        help="""Seconds before the end of a lease at which those who watch are told; 0 for never.

        A short lease is warned of in its last quarter. Longer warnings suit people who have to save their work by hand.
        """,
    ).tag(config=True)

    event_streams = Integer(
        50, help="How many event streams one caller may have open at once. Each is a connection to this process."
    ).tag(config=True)

    events_kept = Float(
        168,
        help="Hours that events are kept for those who were away. Each takes about a kilobyte of the database.",
    ).tag(config=True)
