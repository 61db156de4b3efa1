"""How every document behaves: immutable, no unknown key accepted, no silent conversion of types."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from mig_spawner.domain.profile import ProfileName


class Document(BaseModel):
    """A JSON document that crosses HTTP."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """A document that a newer peer may extend: unknown keys are ignored by the reader."""

    model_config = ConfigDict(extra="ignore", frozen=True)


PLAIN: Final = r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*"
"""The pattern of a name: no control character, and none that ends a line or turns the direction of writing."""


# As patterns, which pydantic checks without Python: a report has thousands of names.
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=f"^{PLAIN}$")]
Label = Annotated[str, Field(max_length=255, pattern=f"^{PLAIN}$")]
"""As `Name`, but may be empty."""
Text = Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


def profile_text(name: ProfileName | None) -> str | None:
    """A profile as it is written in a document; None for a whole GPU."""
    return None if name is None else str(name)
