"""What the tour looks at: a form's counts, a kernel's GPUs, the facts that must not change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mig_spawner.demo.kernel import Kernel
from mig_spawner.errors import DemoFailed
from mig_spawner.testing.gpu.smi import BANNER

_LOOK: Final = """
import os, subprocess
print(os.environ["NVIDIA_VISIBLE_DEVICES"])
print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a kernel sees of GPUs: the environment variable, and the MIG devices that `nvidia-smi -L` lists."""

    variable: str
    listed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What must not change: pods (name to uid), and lease and device of each person."""

    pods: Mapping[str, str]
    devices: Mapping[str, tuple[str, str | None]]


def expect(seen: object, expected: object, what: str) -> None:
    """Raises: DemoFailed, saying both, unless they are equal."""
    if seen != expected:
        raise DemoFailed(f"Expected of {what}: {expected}. Seen: {seen}.")


async def look(kernel: Kernel) -> Seen:
    """What a running kernel sees of GPUs."""
    printed = await kernel.run(_LOOK)
    variable, _, listing = printed.partition("\n")
    if BANNER not in listing:
        raise DemoFailed(f"Expected {kernel.name} to run an nvidia-smi that says it is simulated. Seen: {listing!r}.")
    return Seen(variable, tuple(re.findall(r"MIG-[0-9a-f-]{36}", listing)))


def free_counts(page: str) -> dict[str, tuple[int, int]]:
    """Free and total by profile, as a spawn form shows them."""
    counts: dict[str, tuple[int, int]] = {}
    for choice in page.split('data-mig-offer="')[1:]:
        offer = choice.partition('"')[0]
        found = re.search(r"free now (\d+) of (\d+)", choice)
        if offer.startswith("profile:") and found is not None:
            counts[offer.removeprefix("profile:")] = (int(found[1]), int(found[2]))
    return counts
