"""How every document behaves: immutable, no unknown key accepted, no silent conversion of types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mig_spawner.domain.profile import ProfileName


class Document(BaseModel):
    """A JSON document that crosses HTTP."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """A document that a newer peer may extend: unknown keys are ignored by the reader."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Name = Annotated[str, Field(min_length=1, max_length=255)]
Text = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


def profile_text(name: ProfileName | None) -> str | None:
    """A profile as it is written in a document; None for a whole GPU."""
    return None if name is None else str(name)
