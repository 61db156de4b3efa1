"""`mig-spawner`: the verbs people type. Every command is a thin caller; the work is done by the part it names.

`allocator` and `agent` hand their arguments to traitlets applications, as admins of a hub expect
(`--help-all`, `--AllocatorApp.bind_url=…`, a configuration file). Every other verb has a module of its own here, which is imported
when the verb is used: no verb pays for what another one needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

import click

from mig_spawner import __version__
from mig_spawner.cli.outcome import EPILOG

_HAND_OVER = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

VERBS: Final[Mapping[str, str]] = {
    "acquire": "mig_spawner.cli.acquire",
    "availability": "mig_spawner.cli.availability",
    "demo": "mig_spawner.cli.demo",
    "layout": "mig_spawner.cli.layout",
    "extend": "mig_spawner.cli.extend",
    "explain": "mig_spawner.cli.explain",
    "leases": "mig_spawner.cli.leases",
    "menu": "mig_spawner.cli.menu",
    "plan": "mig_spawner.cli.plan",
    "queue": "mig_spawner.cli.queue",
    "release": "mig_spawner.cli.release",
    "renew": "mig_spawner.cli.renew",
    "reshape": "mig_spawner.cli.reshape",
    "run": "mig_spawner.cli.run",
    "simulate": "mig_spawner.cli.simulate",
    "wait": "mig_spawner.cli.wait",
}
"""The module of each verb; the command in it is called as the verb, with `_` for `-`."""


class Verbs(click.Group):
    """Imports a verb when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *VERBS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name not in VERBS:
            return known
        command = getattr(importlib.import_module(VERBS[cmd_name]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)  # noqa: S101  # for the type checker
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="mig-spawner")
def main() -> None:
    """Fractional GPU notebooks for JupyterHub."""


@main.command(context_settings=_HAND_OVER)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def allocator(arguments: tuple[str, ...]) -> None:
    """Run the allocator: the service that leases slices."""
    from mig_spawner.allocator.app import AllocatorApp

    AllocatorApp.launch_instance(argv=list(arguments))


@main.command(context_settings=_HAND_OVER)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Run the agent: reads and cuts the GPUs of one node."""
    from mig_spawner.agent.app import AgentApp

    AgentApp.launch_instance(argv=list(arguments))
