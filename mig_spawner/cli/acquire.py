"""`mig-spawner acquire`."""

from __future__ import annotations

from typing import Any

import click

from mig_spawner.cli.holder import DEFAULT_SERVER, Wanted, holder_of, request_of, with_holder, with_request
from mig_spawner.cli.interrupt import ends_at_once
from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, print_json, progress
from mig_spawner.cli.waiting import wait_ready


@click.command(cls=Verb)
@with_request
@with_holder
@click.option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    help="What it is for. You have one lease for each: to ask again gives you the same one.",
)
@click.option("--wait", is_flag=True, help="Return when the slice is ready. Whoever stops waiting keeps the place.")
@with_access
@with_json
def acquire(
    access: Access, user: str | None, user_id: str | None, server: str, *, wait: bool, as_json: bool, **wanted: Any
) -> None:
    """Lease a slice, or stand in line for one."""
    request = request_of(holder_of(user, user_id, server), Wanted(**wanted))
    with access.client() as client:
        lease = client.acquire(request)
        if wait:
            with ends_at_once(), progress() as tell:
                lease = wait_ready(client, lease, tell)
    if as_json:
        print_json(lease)
    else:
        lease_lines(lease)
