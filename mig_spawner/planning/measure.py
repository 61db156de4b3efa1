"""Figures with their uncertainty: means over independent runs, with 95 % intervals, and differences of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Final

_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for 95 %, by degrees of freedom from 1 on."""
_T_MANY: Final = 1.960


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean and half the width of its 95 % interval; None where one run says nothing of it."""

    mean: float
    plus_minus: float | None

    def text(self, scale: float = 1.0, digits: int = 1) -> str:
        """`97.1 ± 0.2`."""
        shown = f"{self.mean * scale:.{digits}f}"
        return shown if self.plus_minus is None else f"{shown} ± {self.plus_minus * scale:.{digits}f}"


def figure(values: Sequence[float]) -> Figure:
    """Of independent runs, by Student's t.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("a figure needs at least one run")
    count = len(values)
    if count == 1:
        return Figure(values[0], None)
    t = _T[count - 2] if count - 2 < len(_T) else _T_MANY
    return Figure(mean(values), t * stdev(values) / sqrt(count))


def quantile(values: Sequence[float], part: float) -> float:
    """The value that this part of the values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0
