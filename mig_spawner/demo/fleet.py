"""The simulated nodes of a demo, as the command line names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu.model import find_model

MAX_GPUS: Final = 8
_GPU: Final = re.compile(r"(?P<model>[a-z0-9][a-z0-9.-]{0,63})(?::(?P<count>\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class Node:
    """A simulated node: its name, the model of its GPUs and how many it has."""

    name: str
    model: str
    count: int

    @classmethod
    def parse(cls, name: str, text: str) -> Node:
        """Read `a100-80gb:2`; without a count, one GPU.

        Raises:
            InvalidRequest: no such model (the sentence lists them), or not this form.
        """
        match = _GPU.fullmatch(text.strip().lower())
        if match is None:
            raise InvalidRequest(f"--gpu takes MODEL:COUNT, for example a100-80gb:2, not {text[:80]!r}.")
        model = find_model(match["model"])
        count = int(match["count"] or 1)
        if not 1 <= count <= MAX_GPUS:
            raise InvalidRequest(f"A node has 1 to {MAX_GPUS} GPUs, not {count} (--gpu {text.strip()}).")
        return cls(name, model.key, count)

    @property
    def gpu(self) -> str:
        """As the agent takes it: `a100-80gb:2`."""
        return f"{self.model}:{self.count}"
