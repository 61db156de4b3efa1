"""Layouts that an admin declares: how the GPUs of a node are to be cut, in our words and in those of mig-parted.

`model` is what is declared, `reader` parses it from either dialect, `writer` prints it, `intent` says what it means for the GPUs of
one node. Pure: texts come in parsed (YAML is read by whoever has a file), and a fault is a sentence and not an exception, so that
one faulty layout does not hide the others.
"""

from __future__ import annotations

from mig_spawner.domain.layout.intent import Intent, Seat, intend
from mig_spawner.domain.layout.model import Declaration, Finding, NamedLayout, Part, Pool
from mig_spawner.domain.layout.reader import Parsed, read
from mig_spawner.domain.layout.writer import current, to_config_map, to_mig_parted, to_ours

__all__ = [
    "Declaration",
    "Finding",
    "Intent",
    "NamedLayout",
    "Parsed",
    "Part",
    "Pool",
    "Seat",
    "current",
    "intend",
    "read",
    "to_config_map",
    "to_mig_parted",
    "to_ours",
]
