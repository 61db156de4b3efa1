"""What tests of several folders need: the library built once, workers that hold it, and the oldest wheel that is supported."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import pytest

from tests.controlplane.assets import in_ci
from tests.nvml import probe
from tests.nvml.build import NEWEST, build, compiler
from tests.nvml.node import ImitatedNode
from tests.nvml.worker import RemoteDriver, Worker

OLDEST_WHEEL: Final = "nvidia-ml-py==13.580.*"
_WHEEL: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mig-spawner" / "nvidia-ml-py-oldest"
INSTALL: Final = ("pip", "install", "--quiet", "--no-deps", "--target", str(_WHEEL), OLDEST_WHEEL)

MAY_CUT: Final = "MIG_SPAWNER_TEST_CUTS_REAL_GPUS"
"""Set it to 1 to let the contract create and destroy on the GPUs of this machine."""


class Imitation:
    """Builds libraries and keeps workers for a test session. A worker serves one test after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: dict[tuple[int, Path | None], list[Worker]] = {}
        self._all: list[Worker] = []

    def library(self, generation: int = NEWEST) -> Path:
        """The folder for `LD_LIBRARY_PATH`. Skips the test where no C compiler is; in CI it fails."""
        if compiler() is None:
            give_up = pytest.fail if in_ci(os.environ) else pytest.skip
            give_up("no C compiler: install gcc to run these on the imitation of NVML")
        return build(self._folder, generation)

    @contextmanager
    def worker(self, generation: int = NEWEST, wheel: Path | None = None) -> Iterator[Worker]:
        """A worker with the library of such a driver, for nobody else meanwhile."""
        idle = self._idle.setdefault((generation, wheel), [])
        if not idle:
            idle.append(Worker(self.library(generation), wheel=wheel))
            self._all.append(idle[-1])
        worker = idle.pop()
        yield worker
        worker.run(probe.finish)
        idle.append(worker)

    @contextmanager
    def rig(
        self, *models: str, generation: int = NEWEST, wheel: Path | None = None
    ) -> Iterator[tuple[RemoteDriver, ImitatedNode, Worker]]:
        """A driver in its session, and the GPUs it sees."""
        node = ImitatedNode(Path(mkdtemp(dir=self._folder)), "node-a", models)
        with self.driver(node, generation=generation, wheel=wheel) as (remote, worker):
            yield remote, node, worker

    @contextmanager
    def driver(
        self, node: ImitatedNode, *, generation: int = NEWEST, wheel: Path | None = None
    ) -> Iterator[tuple[RemoteDriver, Worker]]:
        """A driver in its session, for GPUs that are there already."""
        with self.worker(generation, wheel) as worker:
            worker.run(probe.use, str(node.path), str(node.boot_file))
            remote = RemoteDriver(worker)
            remote.open()
            yield remote, worker

    def end(self) -> None:
        for worker in self._all:
            worker.end()


@pytest.fixture(scope="session")
def imitation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imitation]:
    """For whoever imports it: a folder of libraries, and workers, for the whole session."""
    made = Imitation(tmp_path_factory.mktemp("nvml"))
    yield made
    made.end()


def oldest_wheel() -> Path:
    """The folder with the oldest supported `pynvml`, installed there now if it is missing."""
    if not (_WHEEL / "pynvml.py").exists():
        subprocess.run([sys.executable, "-m", *INSTALL], check=True)
    return _WHEEL


def has_oldest_wheel() -> bool:
    """Whether it is there, or may be installed: a test run of a developer touches no network."""
    return (_WHEEL / "pynvml.py").exists() or os.environ.get("CI") == "true"


def has_real_driver() -> bool:
    """Whether this machine has an NVIDIA driver of its own."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


ADAPTERS: Final = (
    "fake",
    "nvml",
    *(["nvml-oldest-wheel"] if has_oldest_wheel() else []),
    *(["hardware"] if has_real_driver() else []),
)
"""What the driver's contract runs on, on this machine."""
