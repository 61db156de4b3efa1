"""`mig-spawner`: the verbs people type. Every command is a thin caller; the work is done by the part it names.

`allocator` and `agent` hand their arguments to traitlets applications, as admins of a hub expect
(`--help-all`, `--AllocatorApp.bind_url=…`, a configuration file).
"""

from __future__ import annotations

import click

from mig_spawner import __version__
from mig_spawner.cli.demo import demo

_HAND_OVER = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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


main.add_command(demo)
