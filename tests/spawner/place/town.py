"""A hub and where browsers find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.spawner.hub.conftest import World

BASE: Final = "/gpus"
DOMAIN: Final = "hub.localhost"
"""Browsers find every domain below localhost on this machine, without asking anybody."""


@dataclass(frozen=True)
class Town:
    """A running hub.

    Attributes:
        hub: its URL, with the base path; `pages` that of the allocator's pages. Neither ends with a slash.
    """

    world: World
    hub: str
    pages: str
