"""`mig-spawner extend`."""

from __future__ import annotations

import click
from pydantic import ValidationError

from mig_spawner.cli.option import SPAN, Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import lease_lines, print_json
from mig_spawner.wire.lease import LeaseExtension


@click.command(cls=Verb)
@click.argument("lease_id", metavar="LEASE")
@click.argument("duration_s", metavar="DURATION", type=SPAN)
@with_access
@with_json
def extend(access: Access, lease_id: str, duration_s: float, *, as_json: bool) -> None:
    """Keep a slice for longer: DURATION in all, counted from when it was granted.

    Menu and quotas say how far that goes. Doing it twice does no harm, and a lease is never shortened.
    """
    try:
        extension = LeaseExtension(duration=duration_s)
    except ValidationError as error:
        raise click.UsageError("DURATION is more than nothing, and at most 366 days.") from error
    with access.client() as client:
        lease = client.extend(lease_id, extension)
    if as_json:
        print_json(lease)
    else:
        lease_lines(lease)
