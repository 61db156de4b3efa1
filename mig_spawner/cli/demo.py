"""`mig-spawner demo`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mig_spawner.errors import InvalidRequest


@click.command()
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="MODEL:COUNT",
    help="A node with simulated GPUs, such as a100-80gb:2; repeat it for more nodes. [default: a100-80gb:1 and h100-80gb:1]",
)
@click.option("--users", default=4, show_default=True, help="How many people may log in, besides the admin.")
@click.option("--port", type=int, help="Where the browser goes, on 127.0.0.1; 0 for any free port. [default: 8000]")
@click.option("--menu", type=click.Path(path_type=Path), help="A menu of your own for the spawn form (YAML).")
@click.option("--logs", type=click.Path(path_type=Path), help="Keep the logs of all parts in this folder.")
@click.option(
    "--kube",
    type=click.Choice(["embedded", "real"]),
    default="embedded",
    show_default=True,
    help="Which Kubernetes: one in memory, or a real API server and scheduler (`make controlplane` builds them).",
)
@click.option("--check", is_flag=True, help="Walk through a scripted tour instead, and exit with 0 or 1.")
def demo(
    gpus: tuple[str, ...],
    users: int,
    port: int | None,
    menu: Path | None,
    logs: Path | None,
    kube: str,
    *,
    check: bool,
) -> None:
    """Try everything on this machine: real JupyterHub, real notebooks, simulated GPUs. No root, no cluster."""
    try:
        from mig_spawner.demo.option import Options
        from mig_spawner.demo.run import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mig_spawner"):
            raise
        raise click.ClickException(
            f"The demo needs the package {error.name!r}, which is not installed. "
            "Install all it needs: pip install 'mig-spawner[demo]'"
        ) from error
    make = Options.for_check if check else Options.of
    try:
        options = make(gpus=gpus, users=users, port=port, menu=menu, logs=logs, kube=kube)
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from error
    sys.exit(run(options, check=check))
