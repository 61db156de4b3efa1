"""Kubernetes quantities: `500m`, `1Gi`, `2`. Exact numbers in, exact numbers out."""

from __future__ import annotations

import re
from fractions import Fraction

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse_quantity(text: object) -> Fraction:
    """The number that a quantity stands for. Raises `ValueError` for what is no quantity."""
    match = _FORM.fullmatch(str(text)) if isinstance(text, (str, int, float)) and not isinstance(text, bool) else None
    if match is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            f" (got {text!r})"
        )
    number, suffix, exponent = match.groups()
    if suffix in _BINARY:
        return Fraction(number) * Fraction(2 ** _BINARY[suffix])
    return Fraction(number) * _power_of_ten(int(exponent or _DECIMAL[suffix or ""]))


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def format_quantity(value: Fraction) -> str:
    """The shortest plain form: whole numbers, a round binary suffix from `Ki` on, else milli (rounded up)."""
    if value.denominator != 1:
        return f"{-(-value * 1000 // 1)}m"
    whole = value.numerator
    for suffix, power in reversed(_BINARY.items()):
        if whole and whole % 2**power == 0:
            return f"{whole // 2**power}{suffix}"
    return str(whole)
