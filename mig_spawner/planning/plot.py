"""A comparison as a picture: for each scenario what every setup accepted, with its interval, and what could be, if all could be moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.compare import Comparison

KINDS: Final = (".png", ".svg")


def save_plot(comparison: Comparison, path: Path) -> None:
    """Write a PNG or an SVG, by the end of the name. The same comparison gives the same bytes.

    Raises:
        InvalidRequest: another kind of file, no matplotlib, or the file cannot be written.
    """
    if path.suffix not in KINDS:
        raise InvalidRequest(f"A plot is a {' or '.join(KINDS)} file, not {path.name}.")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise InvalidRequest("A plot needs matplotlib: pip install 'mig-spawner[plot]'.") from error
    # No date and no random ids, so that equal figures are equal files.
    with mpl.rc_context({"svg.hashsalt": "mig-spawner"}):
        picture = Figure(figsize=(9, 1.5 + 0.32 * len(comparison.rows)), layout="constrained")
        _draw(picture, comparison)
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        try:
            picture.savefig(path, metadata=metadata)
        except OSError as error:
            raise InvalidRequest(f"The plot {path} cannot be written: {error.strerror}.") from error


def _draw(picture: Any, comparison: Comparison) -> None:
    names = list(dict.fromkeys(row.scenario for row in comparison.rows))
    heights = [sum(row.scenario == name for row in comparison.rows) for name in names]
    axes = picture.subplots(len(names), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for name, axis in zip(names, axes, strict=True):
        rows = [row for row in comparison.rows if row.scenario == name]
        for place, row in enumerate(rows):
            figure = row.figures["accepted_slices"]
            half = None if figure.plus_minus is None else figure.plus_minus * 100
            axis.errorbar(figure.mean * 100, place, xerr=half, fmt="o", capsize=3, color="tab:blue")
        bound = comparison.bounds.get(name)
        if bound is not None:
            axis.axvline(bound.mean * 100, linestyle="--", color="tab:gray", label="all could be moved")
            axis.legend(loc="lower left", fontsize="small")
        axis.set_yticks(range(len(rows)), [str(row.setup) for row in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.set_title(name, loc="left", fontsize="medium")
        axis.grid(axis="x", alpha=0.3)
    axes[-1].set_xlabel("accepted slice-time, % of what was asked for")
