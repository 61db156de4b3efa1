"""How nodes are cut today: a file of layouts that somebody declared, for the verbs that compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from mig_spawner.cli.outcome import printable
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.layout import NamedLayout
from mig_spawner.errors import InvalidRequest


def layouts_of_today(path: Path, fleet: Sequence[GPU], per_node: int) -> list[NamedLayout]:
    """The layouts of a file. What of them these GPUs cannot have is told on stderr.

    Raises:
        InvalidRequest: the file cannot be read, or has a fault.
    """
    from mig_spawner.agent.layout_file import load_layouts
    from mig_spawner.planning.declared import cuts_of

    parsed = load_layouts(path)
    if parsed.faulty:
        raise InvalidRequest(f"{path}: {'; '.join(str(f) for f in parsed.findings if f.fatal)}")
    layouts = list(parsed.declaration.layouts.values())
    for layout in layouts:
        for finding in cuts_of(layout, fleet, per_node=per_node)[1]:
            click.echo(printable(f"warning: {path}: {finding}"), err=True)
    return layouts
