"""Traits of the allocator that are about telling."""

from __future__ import annotations

from typing import Any

from traitlets import Float, Integer, List, TraitError, Unicode, validate
from traitlets.config import Configurable

from mig_spawner.allocator.webhook.address import origins_of
from mig_spawner.errors import InvalidRequest


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

    webhook_origins = List(
        Unicode(),
        help="""Where webhooks may send events: origins such as `https://hooks.example.org` or `http://10.1.2.3:8080`.

        An admin of the hub chooses the address of a webhook, and the allocator stands inside the cluster: name only what it may talk to.
        No wildcards, no redirects, no proxy. Default: nowhere, so that no webhook can be made.
        """,
    ).tag(config=True)

    @validate("webhook_origins")
    def _checked_origins(self, proposal: Any) -> list[str]:
        try:
            origins_of(proposal.value)
        except InvalidRequest as error:
            raise TraitError(f"webhook_origins: {error}") from error
        return list(proposal.value)
