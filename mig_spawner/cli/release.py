"""`mig-spawner release`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, print_json
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.lease import LeaseRelease


@click.command(cls=Verb)
@click.argument("lease_id", metavar="LEASE")
@click.option(
    "--pod",
    type=click.Choice([fate.value for fate in PodFate]),
    default=PodFate.UNKNOWN.value,
    show_default=True,
    help="What you know of its pod: the slice stays held while it may still run. From people other than admins it counts as unknown.",
)
@click.option("--force", is_flag=True, help="End it as an admin, and vouch that its pod is gone.")
@with_access
@with_json
def release(access: Access, lease_id: str, pod: str, *, force: bool, as_json: bool) -> None:
    """Give a lease back. Doing it twice does no harm."""
    how = LeaseRelease(reason=EndReason.FORCED, pod=PodFate.GONE) if force else LeaseRelease(pod=PodFate(pod))
    with access.client() as client:
        lease = client.release(lease_id, how)
    if as_json:
        print_json(lease)
    else:
        lease_lines(lease)
