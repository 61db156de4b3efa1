"""The menu of the demo's hub: CPU only, a small, a medium and a large slice of the GPUs at hand, "about 12 GB", a whole GPU.

Host limits are small, so that a few notebooks fit on a laptop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mig_spawner.demo.fleet import Node
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu.model import find_model

Entry = Mapping[str, Any]

_SIZES: Final = (
    ("small", "Small slice", "First steps, small models, most exercises."),
    ("medium", "Medium slice", "Fine-tuning small models, inference of models up to about 7 billion parameters."),
    ("large", "Large slice", "Training, larger batches."),
)
_COMPUTE_SLICES: Final = {"small": 1, "medium": 2, "large": 3}
_HOST: Final = {"cpu_limit": 1, "mem_limit": "1G"}
_MEMORY_GB: Final = 12


def menu_for(nodes: Sequence[Node]) -> list[Entry]:
    """The menu as `MIGSpawner.menu` takes it."""
    entries: list[Entry] = [
        {
            "id": "cpu",
            "display_name": "CPU only",
            "description": "For everything that needs no GPU.",
            "none": True,
            "default": True,
            "cpu_limit": 1,
            "mem_limit": "512M",
        }
    ]
    entries += [
        {
            "id": str(name),
            "display_name": f"{title} ({name})",
            "description": description,
            "profile": str(name),
            **_HOST,
        }
        for size, title, description in _SIZES
        for name in _profiles(nodes, size)
    ]
    if _largest_gb(nodes) >= _MEMORY_GB:
        entries.append(
            {
                "id": "about-12-gb",
                "display_name": f"About {_MEMORY_GB} GB",
                "description": f"Whatever slice has at least {_MEMORY_GB} GB, the smallest that is free.",
                "min_memory": _MEMORY_GB,
                **_HOST,
            }
        )
    entries.append(
        {
            "id": "whole-gpu",
            "display_name": "Whole GPU",
            "description": "A GPU for yourself alone. Please give it back soon.",
            "whole": True,
            **_HOST,
        }
    )
    return entries


def _profiles(nodes: Sequence[Node], size: str) -> list[ProfileName]:
    """The plain profiles of one size, one for each kind of GPU; equal ones once."""
    found: list[ProfileName] = []
    for node in nodes:
        names = sorted(p.profile.name for p in find_model(node.model).profiles if not p.profile.name.suffix)
        # An A30 has no 3g, an RTX PRO 6000 no 3g either: the next larger that exists.
        match = next((n for n in names if n.compute_slices >= _COMPUTE_SLICES[size]), None)
        if match is not None and match not in found:
            found.append(match)
    return found


def _largest_gb(nodes: Sequence[Node]) -> int:
    return max((p.profile.name.memory_gb for n in nodes for p in find_model(n.model).profiles), default=0)
