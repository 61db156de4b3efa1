"""`mig-spawner leases`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import got_text, holder_text, moment_text, print_json, table


@click.command(cls=Verb)
@click.option("--user-id", help="Only of the holder with this id.")
@click.option("--server", help="Only of servers with this name.")
@with_access
@with_json
def leases(access: Access, user_id: str | None, server: str | None, *, as_json: bool) -> None:
    """List the open leases: your own, or for an admin those of all."""
    with access.client() as client:
        found = client.leases(user_id=user_id, server_name=server)
    if as_json:
        print_json(found)
        return
    table(
        ("LEASE", "HOLDER", "STATE", "ASKED", "GOT", "NODE", "DEVICE", "EXPIRES"),
        [
            (
                lease.lease_id,
                holder_text(lease),
                lease.state if lease.position is None else f"{lease.state}, {lease.position}.",
                lease.asked,
                got_text(lease),
                None if lease.placement is None else lease.placement.node,
                lease.device_uuid,
                None if lease.placement is None else moment_text(lease.placement.expires_at),
            )
            for lease in found.leases
        ],
    )
