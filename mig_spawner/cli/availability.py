"""`mig-spawner availability`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import print_json, say, table
from mig_spawner.domain.sentence import counted


@click.command(cls=Verb)
@with_access
@with_json
def availability(access: Access, *, as_json: bool) -> None:
    """Show what is free now."""
    with access.client() as client:
        found = client.availability()
    if as_json:
        print_json(found)
        return
    table(
        ("PROFILE", "FREE", "OF", "GB", "SHARE", "GPU", "WHY NOT"),
        [
            (
                offer.profile or "whole GPU",
                offer.free,
                offer.total,
                offer.memory_gb,
                f"{offer.share:.0%}",
                ", ".join(offer.models),
                offer.reason,
            )
            for offer in found.offers
        ],
        right=("FREE", "OF", "GB", "SHARE"),
    )
    silent = f", {found.nodes_silent} of them silent" if found.nodes_silent else ""
    say(f"{counted(found.nodes, 'node')}{silent}; {found.queue_length} waiting.")
    if found.simulated:
        say("Some of these GPUs are simulated.")
