"""What `nvidia-smi` says in a container of the demo, of GPUs that do not exist.

Run as `python -m mig_spawner.testing.gpu.smi [-L]`. It reads `NVIDIA_VISIBLE_DEVICES`, as the container toolkit would, and
the files of simulated GPUs named in `MIG_DEMO_BOARD_FILE` (several separated like `PATH`). The first line always says
that this is a simulation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mig_spawner.errors import MigSpawnerError
from mig_spawner.testing.gpu.board import Board, SimulatedInstance
from mig_spawner.testing.gpu.state import NodeState, read_state

BANNER: Final = "mig-spawner demo: simulated GPUs, no real hardware"
NOTHING: Final = "No devices were found"
BOARD_FILES: Final = "MIG_DEMO_BOARD_FILE"
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"

_EXIT_NOTHING: Final = 6
"""What the real `nvidia-smi` exits with when it finds no device."""

Visible = tuple[Board, tuple[SimulatedInstance, ...]]
"""A GPU and those of its MIG devices that are visible; none for an uncut GPU."""


def visible_devices(states: Iterable[NodeState], visible: str | None) -> list[Visible]:
    """What a container sees whose `NVIDIA_VISIBLE_DEVICES` is `visible`: UUIDs of GPUs and MIG devices, or `all`.

    Unset, empty, `void`, `none` and UUIDs that do not exist show nothing.
    """
    wanted = {word.strip() for word in (visible or "").split(",")}
    found: list[Visible] = []
    for board in (Board(b) for state in states for b in state.boards):
        if board.state.lost:
            continue
        instances = board.instances() if board.state.mig_enabled else ()
        devices = tuple(i for i in instances if i.mig_uuid is not None and (i.mig_uuid in wanted or "all" in wanted))
        if devices or board.gpu.gpu_uuid in wanted or "all" in wanted:
            found.append((board, devices))
    return found


def list_devices(states: Iterable[NodeState], visible: str | None) -> list[str]:
    """The lines of `nvidia-smi -L`, below a line that says they are simulated."""
    lines = [BANNER]
    for index, (board, devices) in enumerate(visible_devices(states, visible)):
        lines.append(f"GPU {index}: {board.gpu.model} (UUID: {board.gpu.gpu_uuid})")
        lines += [
            f"  MIG {device.profile.name!s:<11} Device {number:>2}: (UUID: {device.mig_uuid})"
            for number, device in enumerate(devices)
        ]
    return lines if len(lines) > 1 else [BANNER, NOTHING]


def table(states: Iterable[NodeState], visible: str | None) -> list[str]:
    """A short table of the same devices, for `nvidia-smi` without arguments."""
    rows = [("device", "memory", "SMs", "processes", "UUID")]
    for board, devices in visible_devices(states, visible):
        gpu = board.gpu
        if not devices:
            rows.append(
                (
                    gpu.model,
                    f"{gpu.memory_mib} MiB",
                    str(gpu.multiprocessors),
                    _count(board.state.processes),
                    gpu.gpu_uuid,
                )
            )
        for device in devices:
            profile = device.profile
            name = f"{gpu.model} MIG {profile.name}"
            rows.append(
                (
                    name,
                    f"{profile.memory_mib} MiB",
                    str(profile.multiprocessors),
                    _count(device.processes),
                    str(device.mig_uuid),
                )
            )
    if len(rows) == 1:
        return [BANNER, NOTHING]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [BANNER, *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)]


def _count(processes: int | None) -> str:
    return "?" if processes is None else str(processes)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print what was asked for; the exit code. Arguments other than `-L` and `--list-gpus` are not simulated."""
    unknown = [a for a in arguments if a not in ("-L", "--list-gpus")]
    if unknown:
        print(BANNER)
        print(f"The simulation knows -L and no arguments, not {unknown[0]!r}.", file=sys.stderr)
        return 2
    paths = [Path(p) for p in environment.get(BOARD_FILES, "").split(os.pathsep) if p]
    try:
        states = [read_state(path) for path in paths]
    except MigSpawnerError as error:
        print(BANNER)
        print(error, file=sys.stderr)
        return 1
    lines = (list_devices if arguments else table)(states, environment.get(VISIBLE_DEVICES))
    print("\n".join(lines))
    return _EXIT_NOTHING if lines[-1] == NOTHING else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
