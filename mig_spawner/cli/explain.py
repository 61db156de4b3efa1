"""`mig-spawner explain`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, moment_text, print_json, say, table


@click.command(cls=Verb)
@click.argument("lease_id", metavar="LEASE")
@with_access
@with_json
def explain(access: Access, lease_id: str, *, as_json: bool) -> None:
    """Say why a lease is where it is, or why it is nowhere yet."""
    with access.client() as client:
        found = client.explain(lease_id)
    if as_json:
        print_json(found)
        return
    lease_lines(found.lease)
    say(found.why)
    if found.candidates:
        say(f"Places, best first by {found.policy}:")
        table(
            ("", "NODE", "GPU", "PROFILE", "AT", "SCORE", "VERDICT"),
            [
                (
                    "*" if c.chosen else "",
                    c.node,
                    c.gpu_uuid,
                    c.profile or "whole GPU",
                    f"{c.start}:{c.size}",
                    "" if c.rank is None else f"{c.rank[0]},{c.rank[1]}",
                    f"{c.verdict} {c.fragmentation}".strip(),
                )
                for c in found.candidates
            ],
        )
    for pool in found.pools:
        if pool.fragmentation:
            say(
                f"Pool {pool.pool}: {pool.fragmentation} {pool.stranded:.0%} of its GPUs is free and of no use for the next request."
            )
    if found.ahead:
        say("Served before it:")
        table(("", "ASKED", "WHY"), [(f"{entry.position}.", entry.asked, entry.why) for entry in found.ahead])
    table(("WHEN", "STATE", "WHY"), [(moment_text(step.at), step.after, step.why) for step in found.history])
