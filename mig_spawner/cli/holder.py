"""Options that say for whom a lease is, and what is asked for."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from pydantic import ValidationError

from mig_spawner.cli.option import SPAN
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.lease import ChoiceDocument, HolderDocument, LeaseRequest

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
    """Give a command the fields of `Wanted`, for `request_of`."""
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
        click.option(
            "--priority", type=int, default=0, help="Greater goes first. A person may ask for 0 or less. [default: 0]"
        ),
        click.option("--choice", default="", metavar="ID", help="An entry of the allocator's menu, by its id."),
        click.option(
            "--or",
            "alternatives",
            multiple=True,
            metavar="CHOICE",
            help="What would do as well if that is not to be had at once: a profile, a number of GB, or whole.",
        ),
        click.option("--device", metavar="MIG_UUID", help="One partition that an admin has made, by name."),
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


@dataclass(frozen=True)
class Wanted:
    """What was typed of a request."""

    profile: str | None
    memory_gb: float | None
    whole: bool
    device: str | None
    alternatives: tuple[str, ...]
    choice: str
    priority: int
    wait_budget_s: float | None
    duration_s: float | None

    @property
    def ways(self) -> int:
        """How many ways of asking were used."""
        named = (self.profile, self.memory_gb, self.device)
        return sum(way is not None for way in named) + self.whole


def request_of(holder: HolderDocument, wanted: Wanted, *, node: str | None = None) -> LeaseRequest:
    """The document that asks for it."""
    if wanted.ways > 1 or not (wanted.ways or wanted.choice):
        raise click.UsageError("Say what you want: one of --profile, --memory, --whole and --device, or a --choice.")
    try:
        return LeaseRequest(
            holder=holder,
            accelerator_partition_type=wanted.profile,
            min_memory=wanted.memory_gb,
            whole=wanted.whole,
            mig_uuid=wanted.device,
            alternatives=tuple(_alternative(text) for text in wanted.alternatives),
            choice=wanted.choice,
            priority=wanted.priority,
            wait_budget=wanted.wait_budget_s,
            duration=wanted.duration_s,
            node=node,
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise InvalidRequest(f"{where}: {fault['msg'].removeprefix('Value error, ')}".removeprefix(": ")) from error


def _alternative(text: str) -> ChoiceDocument:
    if text == "whole":
        return ChoiceDocument(whole=True)
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return ChoiceDocument(min_memory=float(text))
    return ChoiceDocument(accelerator_partition_type=text)
