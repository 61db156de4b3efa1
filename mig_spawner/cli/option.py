"""Options that verbs share: where the allocator is and who asks, JSON instead of tables, spans of time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mig_spawner.wire.client import Patience, SyncAllocatorClient

F = TypeVar("F", bound=Callable[..., Any])

URL_VARIABLE: Final = "MIG_ALLOCATOR_URL"
TOKEN_VARIABLES: Final = ("MIG_ALLOCATOR_TOKEN", "JUPYTERHUB_API_TOKEN")
"""Looked at in this order. In a notebook the second one is there already."""

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


@dataclass(frozen=True)
class Access:
    """Where the allocator is, and with what to go there."""

    url: str
    token: str = field(repr=False)
    timeout_s: float
    ca_file: str | None

    def client(self, patience: Patience | None = None) -> SyncAllocatorClient:
        return SyncAllocatorClient(
            self.url, self.token, timeout_s=self.timeout_s, patience=patience, ca_file=self.ca_file
        )


def with_access(command: F) -> F:
    """Give a command `access`: an `Access`, from options, environment or a file."""
    return _with_access(command, lambda gather: gather())


def with_optional_access(command: F) -> F:
    """Give a command `access`: a function that gathers the `Access`, for verbs that do not always need one."""
    return _with_access(command, lambda gather: gather)


def _with_access(command: F, give: Callable[[Callable[[], Access]], Any]) -> F:
    def gather(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        given = {name: ctx.params.pop(name) for name in ("ca_file", "token_file", "timeout_s")}
        return give(lambda: access(given, value))

    def access(given: dict[str, Any], value: str | None) -> Access:
        url = value or ""
        if not url.startswith(("http://", "https://")):
            raise click.BadParameter(
                f"Say where the allocator is, --url or ${URL_VARIABLE}, like https://hub.example.org/services/mig."
            )
        ca_file = given["ca_file"]
        return Access(url, _token(given["token_file"]), given["timeout_s"], None if ca_file is None else str(ca_file))

    for option in (
        # Read before `url`, whose callback takes them up.
        click.option(
            "--url",
            "access",
            envvar=URL_VARIABLE,
            show_envvar=True,
            callback=gather,
            metavar="URL",
            help="Where the allocator is, with the service prefix.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=SPAN,
            default="10s",
            show_default=True,
            is_eager=True,
            help="How long to wait for one answer.",
        ),
        click.option(
            "--ca-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar="MIG_ALLOCATOR_CA_FILE",
            show_envvar=True,
            is_eager=True,
            help="Certificates to trust instead of the usual ones.",
        ),
        click.option(
            "--token-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar="MIG_ALLOCATOR_TOKEN_FILE",
            show_envvar=True,
            is_eager=True,
            help=f"A file with the token. Without it the token is in {' or '.join('$' + name for name in TOKEN_VARIABLES)}.",
        ),
    ):
        command = option(command)
    return command


def with_json(command: F) -> F:
    """Give a command `as_json`: print the API's document, on one line, instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def _token(file: Path | None) -> str:
    if file is not None:
        token = file.read_text(encoding="utf-8", errors="replace").strip()
        source = str(file)
    else:
        token = next((os.environ[name].strip() for name in TOKEN_VARIABLES if os.environ.get(name)), "")
        source = f"${TOKEN_VARIABLES[0]}"
    # What is no token must not be sent as a header, and must not be shown either.
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError(
            f"There is no token in {source}. Make one on the hub's token page; name a file with --token-file or set ${TOKEN_VARIABLES[0]}."
        )
    return token


class Span(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on, and only for type checkers
    """A span of time: `90`, `90s`, `15m`, `4h`, `2d`. The value is in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        match = _SPAN.fullmatch(value)
        if match is None:
            self.fail(f"{value!r} is no span of time. Write 90, 90s, 15m, 4h or 2d.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


SPAN: Final = Span()
