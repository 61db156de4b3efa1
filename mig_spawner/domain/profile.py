"""Names of MIG profiles: `3g.40gb`, `1g.5gb+me`, `1g.24gb-me`.

A name says how many compute slices a GPU instance has, about how much memory, and which media or graphics engines. Each new card
has brought new words for those, so any word is read: what a driver names can be had, whether we knew of it or not.
It is for people and labels: two profiles of one GPU can have the same memory (`1g.20gb`, `2g.20gb`), and the memory in a
name is rounded by whoever prints it, so code that talks to a GPU uses the profile's id as the driver reports it.

Source of the grammar: NVIDIA MIG User Guide, "MIG Device Names"; resource names write `.` for `+` (k8s-device-plugin).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mig_spawner.errors import InvalidProfile

MEDIA_EXTENSIONS: Final = ("", "+me", "+me.all", "-me", "+gfx")
"""The suffixes that NVIDIA has printed so far: media engines, all of them, none of them, graphics APIs."""

_WORDS: Final = r"[a-z][a-z0-9]{0,11}(?:\.[a-z0-9]{1,12}){0,2}"
"""What follows the sign of a suffix: `me`, `me.all`."""
_SUFFIX: Final = re.compile(rf"(?:[+-]{_WORDS})?", re.ASCII)
NAME_PATTERN: Final = rf"(mig-)?[1-9][0-9]?g\.[0-9]{{1,4}}gb([+.-]{_WORDS})?"
"""How a name may be written, for schemas."""

_MAX_LENGTH: Final = 64
_PATTERN: Final = re.compile(
    rf"(?:mig-)?(?:(?P<ci>\d{{1,2}})c\.)?(?P<g>[1-9]\d?)g\.(?P<gb>\d{{1,4}})gb(?P<suffix>[+.-]{_WORDS})?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class ProfileName:
    """A parsed profile name. Equal names print equally; order is by compute slices, then memory.

    Attributes:
        compute_slices: the number before `g`.
        memory_gb: the number before `gb`, as printed by the driver (GB, rounded).
        suffix: a sign and words, such as one of `MEDIA_EXTENSIONS`, or nothing.
    """

    compute_slices: int
    memory_gb: int
    suffix: str = ""

    def __post_init__(self) -> None:
        if not _SUFFIX.fullmatch(self.suffix):
            raise InvalidProfile(
                f"A profile ends in a word such as {', '.join(MEDIA_EXTENSIONS[1:])} or in nothing, not in {self.suffix!r}."
            )

    @classmethod
    def parse(cls, text: str) -> ProfileName:
        """Read `1g.10gb`, `mig-1g.10gb` or the label form `1g.5gb.me`.

        Raises:
            InvalidProfile: with a sentence that says what a profile looks like, or why this one cannot be had.
        """
        if not isinstance(text, str):
            raise InvalidProfile(f"A MIG profile is a text such as 1g.10gb, not {type(text).__name__}.")
        match = _PATTERN.fullmatch(text.strip().lower()) if len(text) <= _MAX_LENGTH else None
        if match is None:
            shown = text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…"
            raise InvalidProfile(
                f"{shown!r} is no MIG profile. Write it as NVIDIA does, for example 1g.10gb, 3g.40gb or 1g.5gb+me."
            )
        if match["ci"] is not None:
            whole = text.strip().lower().removeprefix("mig-").split(".", 1)[1]
            raise InvalidProfile(
                f"{text.strip()!r} names a part of a GPU instance (a compute instance). Its memory would be shared with the other parts, "
                f"so it cannot be leased. Ask for the whole GPU instance instead: {whole}."
            )
        suffix = match["suffix"] or ""
        return cls(int(match["g"]), int(match["gb"]), suffix.replace(".", "+", 1) if suffix.startswith(".") else suffix)

    def __str__(self) -> str:
        return f"{self.compute_slices}g.{self.memory_gb}gb{self.suffix}"

    @property
    def label(self) -> str:
        """The form for Kubernetes labels and resource names, where `+` is not allowed: `1g.5gb.me`."""
        return str(self).replace("+", ".")
