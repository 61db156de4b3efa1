"""A comparison as a table for people, as JSON and as CSV for programs. The same comparison gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mig_spawner.planning.compare import Comparison, Row, Total
from mig_spawner.planning.measure import Figure
from mig_spawner.planning.part import MEASURES

DIGITS: Final = 6

_COLUMNS: Final = (
    ("accepted slices %", "accepted_slices", 100.0, 2),
    ("by size %", "accepted_sizes", 100.0, 2),
    ("requests %", "accepted_requests", 100.0, 2),
    ("wait p50 min", "wait_p50_s", 1 / 60, 1),
    ("p90 min", "wait_p90_s", 1 / 60, 1),
    ("longest min", "wait_longest_s", 1 / 60, 0),
    ("starved %", "starved_requests", 100.0, 1),
    ("GPUs in use", "active_gpus", 1.0, 1),
    ("stranded GPUs", "stranded_gpus", 1.0, 2),
    ("wasted GPU-h", "wasted_gpu_hours", 1.0, 0),
)


def as_table(comparison: Comparison) -> str:
    """One block for each scenario, one line for each setup."""
    blocks = []
    for name in dict.fromkeys(row.scenario for row in comparison.rows):
        rows = [row for row in comparison.rows if row.scenario == name]
        lines = [["", *(title for title, *_ in _COLUMNS), "gain", "by size", "refused most"]]
        lines += [_line(row) for row in rows]
        bound = comparison.bounds.get(name)
        if bound is not None:
            lines.append(["all could be moved", bound.text(100, 2), *[""] * (len(_COLUMNS) + 2)])
        if name in comparison.optima:
            best = f"{comparison.optima[name] * 100:.2f}"
            lines.append(["the best possible", best, *[""] * (len(_COLUMNS) + 2)])
        blocks.append(f"{name}\n{columns(lines)}")
    if len(blocks) > 1:
        blocks.append(f"over all {len(blocks)}\n{columns(_totals(comparison))}")
    runs = f"means of {comparison.seeds} runs ± 95 %" if comparison.seeds > 1 else "one run"
    return (
        "\n\n".join(blocks)
        + f"\n\n{runs}; gain: accepted slices, and by size, less those of the first line, in points\n"
    )


def _line(row: Row) -> list[str]:
    cells = [row.figures[name].text(scale, digits) for _, name, scale, digits in _COLUMNS]
    gains = ["" if gain is None else _signed(gain) for gain in (row.gain, row.gain_by_size)]
    by_group = {group: count for group, count in row.refused_by_group.items() if group}
    refused = [most for counts in (row.refused_by_profile, by_group) if (most := _most(counts))]
    return [str(row.setup), *cells, *gains, "; ".join(refused)]


def _most(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{name} {count}" for name, count in most)


def _totals(comparison: Comparison) -> list[list[str]]:
    lines = [["", "gain by size", "least", "where", "loses more than its interval in"]]
    for total in comparison.totals():
        worse = ", ".join(total.worse) or "none"
        lines.append([str(total.setup), _signed(total.gain), _signed(total.least), total.worst, worse])
    return lines


def _signed(figure: Figure) -> str:
    text = figure.text(100, 2)
    return text if text.startswith("-") else f"+{text}"


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, each column as wide as its widest cell; the first and the last to the left, figures to the right."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    last = len(widths) - 1

    def cell(text: str, n: int) -> str:
        return text.ljust(widths[n]) if n in (0, last) else text.rjust(widths[n])

    return "\n".join("  ".join(cell(text, n) for n, text in enumerate(line)).rstrip() for line in lines)


def as_json(comparison: Comparison) -> str:
    """Everything, figures rounded to six digits."""
    document = {
        "measures": dict(MEASURES),
        "seeds": comparison.seeds,
        "rows": [_document(row) for row in comparison.rows],
        "bounds": {name: _figure(bound) for name, bound in comparison.bounds.items()},
        "optima": {name: round(best, DIGITS) for name, best in comparison.optima.items()},
        "totals": [_total(total) for total in comparison.totals()],
    }
    return json.dumps(document, indent=2) + "\n"


def _document(row: Row) -> dict[str, Any]:
    setup = row.setup
    return {
        "scenario": row.scenario,
        "policy": setup.policy,
        "layout": setup.layout,
        "rule": setup.rule,
        "knows": str(setup.knows),
        **{name: _figure(figure) for name, figure in row.figures.items()},
        "gain": None if row.gain is None else _figure(row.gain),
        "gain_by_size": None if row.gain_by_size is None else _figure(row.gain_by_size),
        "refused_why": dict(row.refused_why),
        "refused_by_profile": dict(row.refused_by_profile),
        "refused_by_group": dict(row.refused_by_group),
    }


def _total(total: Total) -> dict[str, Any]:
    setup = total.setup
    return {
        "policy": setup.policy,
        "layout": setup.layout,
        "rule": setup.rule,
        "knows": str(setup.knows),
        "gain": _figure(total.gain),
        "worst": total.worst,
        "least_gain": _figure(total.least),
        "worse": list(total.worse),
    }


def _figure(figure: Figure) -> dict[str, float | None]:
    half = figure.plus_minus
    return {"mean": round(figure.mean, DIGITS), "plus_minus": None if half is None else round(half, DIGITS)}


def as_csv(comparison: Comparison) -> str:
    """One line for each setup and scenario; refusals by what they are of, `1g.10gb=3;7g.80gb=12`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*MEASURES, "gain", "gain_by_size"]
    refusals = ("refused_why", "refused_by_profile", "refused_by_group")
    figures = [column for name in names for column in (name, f"{name}_plus_minus")]
    writer.writerow(["scenario", "policy", "layout", "rule", "knows", *figures, *refusals])
    for row in comparison.rows:
        cells: list[object] = []
        for name in MEASURES:
            cells += _cells(row.figures[name])
        for gain in (row.gain, row.gain_by_size):
            cells += ["", ""] if gain is None else _cells(gain)
        setup = row.setup
        counts = [_counts(row.refused_why), _counts(row.refused_by_profile), _counts(row.refused_by_group)]
        writer.writerow([row.scenario, setup.policy, setup.layout, setup.rule, setup.knows, *cells, *counts])
    return text.getvalue()


def _cells(figure: Figure) -> list[object]:
    half = figure.plus_minus
    return [round(figure.mean, DIGITS), "" if half is None else round(half, DIGITS)]


def _counts(counts: Mapping[str, int]) -> str:
    return ";".join(f"{name}={count}" for name, count in counts.items())
