"""A process with the library loaded, and the way to it: functions are called there by name, answers come back.

The library is found through `LD_LIBRARY_PATH`, which a process reads when it starts, and an unmodified `pynvml` keeps what it
has loaded for ever. So the driver under test lives in a child of the tests.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar

from mig_spawner.agent.driver.base import Activity, Driver, Event, GPUInfo, Instance, Memory, Vitals
from mig_spawner.domain.gpu import Profile

P = ParamSpec("P")
T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]


def environment(library: Path | None, *, wheel: Path | None = None, state: Path | None = None) -> dict[str, str]:
    """For a process with the library.

    Args:
        library: folder with the library; None for whatever the machine has.
        wheel: folder with another `pynvml` than the installed one.
        state: the state file that the library is to use.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIG_", "NVML_"))}
    kept["PYTHONPATH"] = os.pathsep.join(str(p) for p in (wheel, ROOT) if p is not None)
    if library is not None:
        kept["LD_LIBRARY_PATH"] = str(library)
    if state is not None:
        kept["NVML_IMITATION_STATE"] = str(state)
    return kept


class Worker:
    """A child process that runs functions of `tests.nvml.probe`, one after the other."""

    def __init__(self, library: Path | None, *, wheel: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nvml.worker"],
            cwd=ROOT,
            env=environment(library, wheel=wheel),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function there. What it raises is raised here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((function, args, kwargs), self._process.stdin)
        self._process.stdin.flush()
        error, result = pickle.load(self._process.stdout)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        self._process.communicate()


class RemoteDriver(Driver):
    """The driver in a worker, as if it were here."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def _drive(self, verb: str, *args: object) -> Any:
        from tests.nvml import probe

        return self._worker.run(probe.drive, verb, *args)

    def open(self) -> None:
        self._drive("open")

    def close(self) -> None:
        self._drive("close")

    def boot_id(self) -> str:
        return str(self._drive("boot_id"))

    def list_gpus(self) -> tuple[GPUInfo, ...]:
        return tuple(self._drive("list_gpus"))

    def list_profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        return tuple(self._drive("list_profiles", gpu_uuid))

    def list_instances(self, gpu_uuid: str) -> tuple[Instance, ...]:
        return tuple(self._drive("list_instances", gpu_uuid))

    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        return int(self._drive("processes", gpu_uuid, device_uuid))

    def memory(self, gpu_uuid: str, device_uuid: str) -> Memory:
        memory: Memory = self._drive("memory", gpu_uuid, device_uuid)
        return memory

    def vitals(self, gpu_uuid: str) -> Vitals:
        vitals: Vitals = self._drive("vitals", gpu_uuid)
        return vitals

    def events(self) -> tuple[Event, ...]:
        return tuple(self._drive("events"))

    def activity(self, gpu_uuid: str) -> Mapping[int, Activity]:
        return dict(self._drive("activity", gpu_uuid))

    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        made: Instance = self._drive("create", gpu_uuid, profile_id, start, size)
        return made

    def destroy(self, instance: Instance) -> None:
        self._drive("destroy", instance)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        self._drive("set_mig_mode", gpu_uuid, enabled)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    while True:
        try:
            function, args, kwargs = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[Exception | None, Any]
        try:
            answer = (None, function(*args, **kwargs))
        except Exception as error:
            answer = (error, None)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
