"""`mig-spawner renew`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, print_json


@click.command(cls=Verb)
@click.argument("lease_id", metavar="LEASE")
@with_access
@with_json
def renew(access: Access, lease_id: str, *, as_json: bool) -> None:
    """Take a ready slice, or say that you still use it.

    Do it every few minutes: a lease that nobody renews, and on which nothing runs, is released.
    """
    with access.client() as client:
        lease = client.renew(lease_id)
    if as_json:
        print_json(lease)
    else:
        lease_lines(lease)
