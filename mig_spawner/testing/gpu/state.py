"""The state of simulated GPUs as it lies in memory or in a JSON file.

The file is shared: the agent, the demo's kubelet and its `nvidia-smi` are different processes. Everybody takes the lock
file beside it, reads, changes, and puts a whole new file in place, so that a reader without the lock never sees half of one.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu.fault import Fault, Verb

Number = Annotated[int, Field(ge=0)]
Part = Annotated[float, Field(ge=0, le=1)]
IDLE_MIB: Final = 13
"""What a device that nobody uses shows as used."""


class InstanceState(BaseModel):
    """A GPU instance.

    Attributes:
        device_index: the MIG index of its compute instance; None while it has none.
        processes: on its MIG device; None for "cannot be read".
        memory_used_mib: of its MIG device. `sm`, `tensor` and `dram` say how busy it is, 0 to 1.
    """

    model_config = ConfigDict(extra="forbid")

    gpu_instance_id: Number
    profile_id: Number
    start: Number
    size: Annotated[int, Field(ge=1)]
    device_index: Number | None = None
    processes: Number | None = 0
    memory_used_mib: Number = IDLE_MIB
    sm: Part = 0.0
    tensor: Part = 0.0
    dram: Part = 0.0


class BoardState(BaseModel):
    """One GPU.

    Attributes:
        mig_pending: the mode after the next reset.
        processes: on the uncut GPU; None for "cannot be read".
        profiles_need_mig: its driver is old and lists no profiles while MIG mode is off.
        resets: how often it was reset.
        memory_used_mib: on the uncut GPU.
        memory_errors: that could not be corrected, since its last reset. `remap_pending` and `remap_failed` say what becomes of
            the faulty row.
        recovery: what its driver says it needs to be well again; gone after a reset, or a boot.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    gpu_uuid: str
    mig_enabled: bool = False
    mig_pending: bool = False
    lost: bool = False
    processes: Number | None = 0
    profiles_need_mig: bool = False
    resets: Number = 0
    memory_used_mib: Number = IDLE_MIB
    memory_errors: Number = 0
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: Literal["reset", "boot", "other"] | None = None
    instances: list[InstanceState] = []


class NodeState(BaseModel):
    """The GPUs of one node and what they were told to do wrong.

    Attributes:
        boots: how often the node was booted.
        delays: seconds that a call of a verb takes.
        announced: critical errors that nobody has heard yet: GPU, XID, GPU instance or None.
    """

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    node: str
    boots: Number = 1
    boards: list[BoardState] = []
    faults: list[Fault] = []
    announced: list[tuple[str, Number, Number | None]] = []
    delays: dict[Verb, Annotated[float, Field(ge=0)]] = {}


class StateBox:
    """Where a `NodeState` is kept: in memory, or in a file that other processes change as well.

    Args:
        first: the state to begin with, unless the file is there already; None to take what is in the file or fail.
    """

    def __init__(self, first: NodeState | None, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._state = first or NodeState(node="")
        if path is None or path.exists():
            return
        if first is None:
            raise InvalidRequest(f"There is no file of simulated GPUs at {path}. Start the agent that keeps it first.")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _file_lock(path):
            if not path.exists():
                _write(path, first)

    def read(self) -> NodeState:
        """The state now; a copy."""
        if self._path is not None:
            return read_state(self._path)
        with self._lock:
            return self._state.model_copy(deep=True)

    @contextmanager
    def change(self) -> Iterator[NodeState]:
        """The state, to be changed in place: one caller at a time, over threads and processes alike.

        What was changed is kept even if the caller raises.
        """
        with self._lock:
            if self._path is None:
                yield self._state
                return
            with _file_lock(self._path):
                state = read_state(self._path)
                before = state.model_dump_json()
                try:
                    yield state
                finally:
                    if state.model_dump_json() != before:
                        _write(self._path, state)


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with Path(f"{path}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_state(path: Path) -> NodeState:
    """The state in a file.

    Raises:
        InvalidRequest: the file is missing or holds something else.
    """
    try:
        return NodeState.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidRequest(f"The file of simulated GPUs {path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise InvalidRequest(f"{path} is no file of simulated GPUs. Remove it or name another one.") from error


def _write(path: Path, state: NodeState) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    fresh.write_text(state.model_dump_json(indent=1), encoding="utf-8")
    fresh.replace(path)
