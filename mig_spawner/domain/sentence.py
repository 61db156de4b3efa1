"""Words in sentences for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """So many of it: `1 lease`, `2 leases`, `0 leases`. The noun is one whose plural takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
