"""What the person at the terminal sees: a spinner while something runs, a line with its time when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mig_spawner.demo.option import ADMIN, KubeKind, Options


class Report:
    """Prints progress. On a terminal with a spinner and colour, in a pipe as plain lines."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """One thing that is done: a line with a mark and its time at the end, whatever the end."""
        step, began = Step(), time.monotonic()
        mark, style = "✗", "bold red"
        try:
            with self.console.status(Text(f"{title} …")):
                yield step
            mark, style = "✓", "bold green"
        finally:
            took = time.monotonic() - began
            line = Text.assemble((mark, style), f" {title}", (f"  {step.note}" if step.note else "", "dim"))
            self.console.print(Text.assemble(f"{took:6.1f} s  ", line))

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def fail(self, text: str) -> None:
        """A sentence about what went wrong, with whatever helps below it."""
        sentence, _, rest = text.partition("\n")
        self.console.print(Text(sentence, style="bold red"))
        if rest:
            self.console.print(Text(rest, style="dim"))

    def welcome(self, options: Options, url: str, logs: str) -> None:
        """Where to go, who may log in, what to try."""
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="bold")
        facts.add_column(overflow="fold")
        facts.add_row("Open", Text(url, style="bold cyan"))
        facts.add_row("Log in as", f"{', '.join(options.people)} (people), {ADMIN} (admin)")
        facts.add_row("Password", Text(options.password, style="bold"))
        gpus = ", ".join(f"{n.count} x {n.model} on {n.name}" for n in options.nodes) or "none"
        below = "as is the Kubernetes below" if options.kube is KubeKind.EMBEDDED else "as is the kubelet"
        facts.add_row("GPUs", f"{gpus}. SIMULATED, {below}; hub, allocator, agents and notebooks are real.")
        facts.add_row("Logs", logs)
        self.console.print(Panel(facts, title="mig-spawner demo", expand=False))
        self.say(
            "Try this:\n"
            "  1. Log in, pick a slice, start: JupyterLab opens and holds exactly that slice.\n"
            "  2. In its terminal: nvidia-smi -L, and echo $NVIDIA_VISIBLE_DEVICES $MIG_PROFILE\n"
            "  3. In a private window, as somebody else: the counts have gone down. Take what is left until you wait in line.\n"
            "  4. Stop the first server (File > Hub Control Panel) and see the one in line start.\n"
            "Ctrl-C ends the demo and removes everything it made."
        )


class Step:
    """Something that is being done. Set `note` to say what came of it."""

    note: str = ""
