"""`mig-spawner wait`."""

from __future__ import annotations

import click

from mig_spawner.cli.interrupt import ends_at_once
from mig_spawner.cli.option import SPAN, Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, print_json, progress
from mig_spawner.cli.waiting import wait_ready


@click.command(cls=Verb)
@click.argument("lease_id", metavar="LEASE")
@click.option("--for", "for_s", type=SPAN, help="Give up after so long. [default: never]")
@with_access
@with_json
def wait(access: Access, lease_id: str, for_s: float | None, *, as_json: bool) -> None:
    """Wait until a lease is ready."""
    with ends_at_once(), access.client() as client, progress() as tell:
        lease = wait_ready(client, client.lease(lease_id), tell, timeout_s=for_s)
    if as_json:
        print_json(lease)
    else:
        lease_lines(lease)
