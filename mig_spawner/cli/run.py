"""`mig-spawner run -- CMD`."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from typing import Any, Final

import click

from mig_spawner.cli.child import Interrupted, follow, held_back, interruptible, start
from mig_spawner.cli.holder import Wanted, holder_of, request_of, with_holder, with_request
from mig_spawner.cli.option import SPAN, Access, with_access
from mig_spawner.cli.outcome import Failed, Outcome, Verb, printable
from mig_spawner.cli.renewal import RENEW_S, Renewal
from mig_spawner.cli.show import progress
from mig_spawner.cli.waiting import wait_ready
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.errors import AllocatorError
from mig_spawner.wire.client import Patience, SyncAllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseRelease, LeaseRequest

_GIVING_BACK: Final = Patience(attempts=8, budget_s=30, break_after=None)
_OURS: Final = ("MIG_LEASE_ID", "MIG_PROFILE", "MIG_DEVICE_UUID", "GPU_MEM_LIMIT")


@click.command(cls=Verb, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CMD...")
@with_request
@with_holder
@click.option(
    "--node",
    envvar="MIG_NODE_NAME",
    show_envvar=True,
    help="The name of this node, as its agent reports it. [default: the host name]",
)
@click.option(
    "--grace",
    "grace_s",
    type=SPAN,
    default="30s",
    show_default=True,
    help="When the lease ends before CMD does, CMD gets SIGTERM, and so long afterwards SIGKILL.",
)
@click.option(
    "--renew-every", "renew_s", type=SPAN, default=f"{RENEW_S:.0f}s", show_default=True, help="How often to renew."
)
@with_access
def run(
    access: Access,
    command: tuple[str, ...],
    user: str | None,
    user_id: str | None,
    node: str | None,
    grace_s: float,
    renew_s: float,
    **wanted: Any,
) -> None:
    """Lease a slice on this node, run a command on it, and give it back whatever happens.

    The command sees the slice alone: CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, MIG_DEVICE_UUID, MIG_PROFILE, GPU_MEM_LIMIT (bytes) and
    MIG_LEASE_ID are set. Signals reach it, and its exit code is that of run: 128 and the number of a signal that ended it; 125 when
    there was no slice, 126 when the command cannot be started, 127 when there is none.
    """
    program = _program(command[0])
    here = socket.gethostname()
    server = f"run-{here[:200]}-{os.getpid()}-{secrets.token_hex(3)}"
    request = request_of(holder_of(user, user_id, server), Wanted(**wanted), node=node or here)
    with access.client() as client, access.client(_GIVING_BACK) as last, interruptible():
        lease: LeaseDocument | None = None
        ended = EndReason.CANCELLED
        try:
            lease = _leased(client, request)
            with held_back():
                renewal = Renewal(client, lease.lease_id, _tell, every_s=renew_s)
                renewal.start()
                try:
                    pid = start(program, command, {**os.environ, **environment(lease)})
                    ended = EndReason.STOPPED
                    code = follow(pid, renewal.lost, grace_s)
                finally:
                    renewal.end()
        except Interrupted as signal:
            code = signal.exit_code
        except OSError as error:
            raise Failed(f"{command[0]} cannot be started: {error.strerror}.", Outcome.NOT_EXECUTABLE) from error
        except (AllocatorError, Failed) as error:
            raise Failed(str(error), Outcome.NO_SLICE) from error
        finally:
            with held_back():
                _give_back(client if lease is None else last, request, lease, ended)
    click.get_current_context().exit(code)


def environment(lease: LeaseDocument) -> Mapping[str, str]:
    """What tells a command of its slice."""
    device = lease.device_uuid or ""
    given = dict.fromkeys(_OURS, "")
    given |= {"CUDA_VISIBLE_DEVICES": device, "NVIDIA_VISIBLE_DEVICES": device, "MIG_LEASE_ID": lease.lease_id}
    if lease.memory_bytes is not None:
        given["GPU_MEM_LIMIT"] = str(lease.memory_bytes)
    if lease.placement is not None and lease.placement.profile is not None:
        given |= {"MIG_PROFILE": lease.placement.profile, "MIG_DEVICE_UUID": device}
    return given


def _program(name: str) -> str:
    """Where the command is; asked before anything is leased."""
    found = shutil.which(name)
    if found is not None:
        return found
    there = os.path.exists(name) if "/" in name else shutil.which(name, mode=os.F_OK) is not None  # noqa: PTH110
    if there:
        raise Failed(f"{name} cannot be started: it is not executable.", Outcome.NOT_EXECUTABLE)
    raise Failed(f"There is no command {name!r}.", Outcome.NOT_FOUND)


def _leased(client: SyncAllocatorClient, request: LeaseRequest) -> LeaseDocument:
    with progress() as tell:
        lease = wait_ready(client, client.acquire(request), tell)
    lease = client.renew(lease.lease_id)
    _tell(f"{lease.device_uuid}: {lease.asked} on {'' if lease.placement is None else lease.placement.node}")
    return lease


def _give_back(
    client: SyncAllocatorClient, request: LeaseRequest, lease: LeaseDocument | None, reason: EndReason
) -> None:
    how = LeaseRelease(reason=reason, pod=PodFate.NONE)
    holder = request.holder
    try:
        if lease is not None:
            client.release(lease.lease_id, how)
        else:
            # The answer to our question may have been lost. Nobody else has this holder's name.
            client.release_holder(holder.user_id, holder.server_name, how)
    except AllocatorError as error:
        _tell(f"The slice could not be given back; the allocator takes it when nothing renews it. {error}")


def _tell(text: str) -> None:
    click.echo(f"mig-spawner: {printable(text)}", err=True)
