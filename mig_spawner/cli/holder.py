"""Options that say for whom a lease is, and what is asked for."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from pydantic import ValidationError

from mig_spawner.cli.option import SPAN
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.lease import HolderDocument, LeaseRequest

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SERVER: Final = "cli"


def with_holder(command: F) -> F:
    """Give a command `user` and `user_id`, for `holder_of`."""
    for option in (
        click.option(
            "--user-id",
            help="The holder's id instead, for services that lease for others, such as the hub's number of a user.",
        ),
        click.option(
            "--user",
            help="Your name at the hub. [default: $JUPYTERHUB_USER, else your login name]",
        ),
    ):
        command = option(command)
    return command


def holder_of(user: str | None, user_id: str | None, server: str) -> HolderDocument:
    """Who asks. A person is known by name, `name:alice`, as the allocator wants it from people."""
    name = user or os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    try:
        return HolderDocument(
            user_id=user_id or f"name:{name}", server_name=server, user_name="" if user_id and not user else name
        )
    except ValidationError as error:
        raise click.UsageError("A user or server name is too long, or has a control character.") from error


def with_request(command: F) -> F:
    """Give a command `profile`, `memory_gb`, `whole`, `wait_budget_s` and `duration_s`, for `request_of`."""
    for option in (
        click.option(
            "--duration",
            "duration_s",
            type=SPAN,
            help="End the lease so long after it was granted. [default: no limit]",
        ),
        click.option(
            "--wait-budget",
            "wait_budget_s",
            type=SPAN,
            help="How long to stand in the queue; 0 for now or never. [default: for ever]",
        ),
        click.option("--whole", is_flag=True, help="A whole GPU."),
        click.option(
            "--memory",
            "memory_gb",
            type=click.FloatRange(min=0, min_open=True),
            metavar="GB",
            help="The smallest slice with at least so much memory.",
        ),
        click.option("--profile", metavar="PROFILE", help="A slice of this MIG profile, such as 1g.10gb."),
    ):
        command = option(command)
    return command


def request_of(
    holder: HolderDocument,
    *,
    profile: str | None,
    memory_gb: float | None,
    whole: bool,
    wait_budget_s: float | None,
    duration_s: float | None,
) -> LeaseRequest:
    """The document that asks for it."""
    if (profile is not None) + (memory_gb is not None) + whole != 1:
        raise click.UsageError("Say what you want: one of --profile, --memory and --whole.")
    try:
        return LeaseRequest(
            holder=holder,
            accelerator_partition_type=profile,
            min_memory=memory_gb,
            wait_budget=wait_budget_s,
            duration=duration_s,
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise InvalidRequest(
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}"
        ) from error
