"""What `mig-spawner simulate` does, from words to figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.layout import NamedLayout
from mig_spawner.domain.policy import POLICIES
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.bench import Effort, House
from mig_spawner.planning.compare import Comparison, compare, steps
from mig_spawner.planning.declared import PER_NODE
from mig_spawner.planning.fleet import DYNAMIC, Group, gpus_of
from mig_spawner.planning.kept import Kept
from mig_spawner.planning.report import as_csv, as_json, as_table
from mig_spawner.planning.rule import REFUSE, parse_apart, parse_quotas
from mig_spawner.planning.scenario import GPUS, SPAN, STUDIES, Scenario, of_trace, scenario
from mig_spawner.planning.setup import Knows, Setup
from mig_spawner.planning.trace import Trace, read_trace, write_trace
from mig_spawner.wire.menu.file import read_menu

COMPARED: Final = ("first-fit", "best-fit", "min-fragmentation", "auto")
"""Compared when nobody says which."""

WRITERS: Final = {"table": as_table, "json": as_json, "csv": as_csv}


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be compared on what, in the words of the command line; empty for the default."""

    scenarios: Sequence[str] = ()
    trace: Path | None = None
    gpus: Sequence[str] = ()
    policies: Sequence[str] = ()
    layouts: Sequence[str] = ()
    rules: Sequence[str] = ()
    quotas: Sequence[str] = ()
    menu: Path | None = None
    keep_apart: Sequence[str] = ()
    today: Sequence[NamedLayout] = ()
    per_node: int = PER_NODE
    knows: Sequence[str] = ()
    span: float = SPAN
    keep: Path | None = None
    effort: Effort = field(default_factory=Effort)


def gpus_named(texts: Sequence[str]) -> list[GPU]:
    """The GPUs of `--gpu`, or those of the study."""
    return gpus_of([Group.parse(text) for text in texts] or GPUS)


class Work:
    """A comparison that is ready to run.

    Raises:
        InvalidRequest: the options cannot be understood; with a sentence that says what to write instead.
    """

    def __init__(self, options: Options, history: Trace | None = None) -> None:
        """`history` is what the ledger remembers, if that is to be played."""
        gpus = gpus_named(options.gpus)
        names = [name for given in options.scenarios for name in STUDIES.get(given, (given,))]
        self._scenarios: list[Scenario] = [scenario(name, gpus, span=options.span) for name in names]
        if options.trace is not None:
            self._scenarios.append(of_trace(options.trace.name, gpus, read_trace(options.trace)))
        if history is not None:
            self._scenarios.append(of_trace("ledger", gpus, history))
        if not self._scenarios:
            raise InvalidRequest("Name a --scenario (--list shows all), a --trace or a ledger.")
        self._setups = list(_setups(options))
        menu = () if options.menu is None else read_menu(str(options.menu)).quotas
        quotas = (*menu, *parse_quotas(options.quotas))
        self._house = House(quotas, parse_apart(options.keep_apart), tuple(options.today), options.per_node)
        self._kept = Kept(options.keep)
        self._effort = options.effort

    @property
    def steps(self) -> int:
        """How often `run` calls its `step`."""
        return steps(self._scenarios, self._setups, self._effort)

    def run(self, step: Callable[[str], None]) -> Comparison:
        """Do it; `step` is told each time what comes next."""
        return compare(self._scenarios, self._setups, self._effort, house=self._house, kept=self._kept, step=step)

    def save_trace(self, path: Path) -> None:
        """Write the arrivals of the first scenario, seed 1."""
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                write_trace(self._scenarios[0].arrivals(1), file)
        except OSError as error:
            raise InvalidRequest(f"The trace {path} cannot be written: {error.strerror}.") from error


def _setups(options: Options) -> Sequence[Setup]:
    policies = options.policies or COMPARED
    return [
        Setup(policy, layout, rule, knows)
        for layout in (*(options.layouts or (DYNAMIC,)), *(layout.name for layout in options.today))
        for rule in options.rules or (REFUSE,)
        # Where nothing is cut, no policy has anything to say.
        for policy in (policies if layout == DYNAMIC else policies[:1])
        # Nor is there anything to know for who does not look at demand.
        for knows in (_knowing(options) if policy not in POLICIES or POLICIES[policy].heeds_demand else (Knows.DEMAND,))
    ]


def _knowing(options: Options) -> Sequence[Knows]:
    return tuple(map(Knows, options.knows)) or (Knows.DEMAND,)
