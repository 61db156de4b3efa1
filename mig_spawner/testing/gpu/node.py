"""`SimulatedNode`: the simulated GPUs of one node, called as a driver is called and disturbed as hardware is.

The first half of the class are the calls, raising what `mig_spawner.errors` says of a driver. The second half is the
world outside: processes start, a GPU falls off the bus, the node boots, an admin cuts a GPU by hand, a call is told to fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from mig_spawner.domain.gpu import GPU, Profile
from mig_spawner.domain.layout.arrangement import arrange
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import DeviceInUse, DeviceNotFound, DriverError, InvalidRequest
from mig_spawner.testing.gpu.board import Board, Busyness, SimulatedInstance, stable_uuid
from mig_spawner.testing.gpu.fault import ErrorKind, Fault, Verb
from mig_spawner.testing.gpu.model import find_model
from mig_spawner.testing.gpu.state import IDLE_MIB, BoardState, NodeState, StateBox

MAX_GPUS = 16


class SimulatedNode:
    """The GPUs of one node.

    Args:
        name: of the node. Names, and so UUIDs, are the same each time for the same name and models.
        models: key or alias of each GPU, in order.
        state_file: keep the state there; whoever opens the same file sees and changes the same GPUs.
        sleep: how a slow call waits; give a fake in tests.

    Raises:
        InvalidRequest: a model that cannot be simulated, too many GPUs, or a state file that belongs to other GPUs.
    """

    def __init__(
        self,
        name: str,
        models: Sequence[str],
        *,
        state_file: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        keys = [find_model(m).key for m in models]
        if len(keys) > MAX_GPUS:
            raise InvalidRequest(f"A node has at most {MAX_GPUS} simulated GPUs, not {len(keys)}.")
        boards = [
            BoardState(model=key, gpu_uuid=f"GPU-{stable_uuid(name, index, key)}") for index, key in enumerate(keys)
        ]
        self._box = StateBox(NodeState(node=name, boards=boards), state_file)
        self._sleep = sleep
        self.name = name
        held = self._box.read()
        if [(b.model, b.gpu_uuid) for b in held.boards] != [(b.model, b.gpu_uuid) for b in boards]:
            raise InvalidRequest(
                f"{state_file} holds other GPUs ({', '.join(b.model for b in held.boards) or 'none'} of node {held.node}). "
                "Remove it, or ask for the same GPUs again."
            )

    @classmethod
    def open(cls, state_file: Path) -> Self:
        """The node that some agent keeps in this file. Raises `InvalidRequest` if there is none."""
        state = StateBox(None, state_file).read()
        return cls(state.node, [b.model for b in state.boards], state_file=state_file)

    def snapshot(self) -> NodeState:
        """A copy of the whole state, faults included."""
        return self._box.read()

    # -- the calls of a driver -----------------------------------------------------------------------------------------

    def boot_id(self) -> str:
        """Changes whenever the node boots."""
        with self._box.change() as state:
            return str(stable_uuid(state.node, "boot", state.boots))

    def gpu_uuids(self) -> tuple[str, ...]:
        """Every GPU that was there at boot, in order, lost ones too."""
        with self._box.change() as state:
            return tuple(b.gpu_uuid for b in state.boards)

    def read_gpu(self, gpu_uuid: str) -> tuple[GPU, bool]:
        """A GPU (without its profiles) and whether MIG mode is on."""
        with self._call(Verb.READ_GPU, gpu_uuid) as board:
            board.answer()
            gpu = board.gpu
            return GPU(gpu.gpu_uuid, gpu.model, gpu.memory_mib, gpu.multiprocessors), board.state.mig_enabled

    def pci_device_id(self, gpu_uuid: str) -> str:
        """As NVIDIA writes it, `0x20B210DE`; empty if no public source says."""
        with self._outside(gpu_uuid) as board:
            return board.model.pci_device_id

    def profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        """What it can be cut into. An old driver says nothing while MIG mode is off."""
        with self._call(Verb.LIST_PROFILES, gpu_uuid) as board:
            return board.profiles()

    def instances(self, gpu_uuid: str) -> tuple[SimulatedInstance, ...]:
        """Raises `NotSupported` while MIG mode is off."""
        with self._call(Verb.LIST_INSTANCES, gpu_uuid) as board:
            return board.instances()

    def mig_device(self, gpu_uuid: str, index: int) -> SimulatedInstance:
        """By MIG index; raises `DeviceNotFound` for a hole."""
        with self._call(Verb.LIST_INSTANCES, gpu_uuid) as board:
            return board.mig_device(index)

    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        """How many run on the uncut GPU or a MIG device of it. Raises `DriverError` if that cannot be read."""
        with self._call(Verb.COUNT_PROCESSES, gpu_uuid) as board:
            count = board.processes(device_uuid)
        if count is None:
            raise DriverError(f"The processes on {device_uuid} cannot be read.")
        return count

    def memory(self, gpu_uuid: str, device_uuid: str) -> tuple[int, int]:
        """Used and total MiB of the uncut GPU or a MIG device of it."""
        with self._outside(gpu_uuid) as board:
            return board.memory(device_uuid)

    def activity(self, gpu_uuid: str) -> tuple[Busyness, ...]:
        """How busy each MIG device of it is; none on Ampere."""
        with self._outside(gpu_uuid) as board:
            return board.busyness()

    def wear_of(self, gpu_uuid: str) -> BoardState:
        """What it counts of its own faults, and the mode that waits for a reset; a copy of its whole state."""
        with self._outside(gpu_uuid) as board:
            board.answer()
            return board.state.model_copy(deep=True)

    def take_announced(self) -> tuple[tuple[str, int, int | None], ...]:
        """Critical errors since the last call: GPU, XID, GPU instance or None."""
        with self._box.change() as state:
            announced, state.announced = state.announced, []
        return tuple(announced)

    def create_gpu_instance(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> SimulatedInstance:
        """A GPU instance without compute instance. Raises `InsufficientResources`, `NotSupported`."""
        with self._call(Verb.CREATE_GPU_INSTANCE, gpu_uuid) as board:
            return board.create_gpu_instance(profile_id, start, size)

    def create_compute_instance(self, gpu_uuid: str, gpu_instance_id: int) -> SimulatedInstance:
        """The compute instance that fills a GPU instance."""
        with self._call(Verb.CREATE_COMPUTE_INSTANCE, gpu_uuid) as board:
            return board.create_compute_instance(gpu_instance_id)

    def destroy_compute_instance(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Raises `DeviceInUse` while a process runs on it."""
        with self._call(Verb.DESTROY_COMPUTE_INSTANCE, gpu_uuid) as board:
            board.destroy_compute_instance(gpu_instance_id)

    def destroy_gpu_instance(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Raises `DeviceInUse` while it has its compute instance."""
        with self._call(Verb.DESTROY_GPU_INSTANCE, gpu_uuid) as board:
            board.destroy_gpu_instance(gpu_instance_id)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        """Raises `DeviceInUse` with instances or clients on the GPU."""
        with self._call(Verb.SET_MIG_MODE, gpu_uuid) as board:
            board.set_mig_mode(enabled)

    # -- the world outside ---------------------------------------------------------------------------------------------

    def set_processes(self, device_uuid: str, count: int | None) -> None:
        """So many processes run on this MIG device or uncut GPU now; None: it cannot be read how many."""
        with self._box.change() as state:
            for board in map(Board, state.boards):
                if device_uuid == board.gpu.gpu_uuid or board.has_device(device_uuid):
                    board.set_processes(device_uuid, count)
                    return
        raise DeviceNotFound(f"Node {self.name} has no device {device_uuid}.")

    def set_usage(
        self, device_uuid: str, *, memory_mib: int = IDLE_MIB, sm: float = 0, tensor: float = 0, dram: float = 0
    ) -> None:
        """So much memory a device uses, and so busy it is, 0 to 1."""
        with self._box.change() as state:
            for board in map(Board, state.boards):
                if device_uuid == board.gpu.gpu_uuid or board.has_device(device_uuid):
                    board.set_usage(device_uuid, memory_mib=memory_mib, sm=sm, tensor=tensor, dram=dram)
                    return
        raise DeviceNotFound(f"Node {self.name} has no device {device_uuid}.")

    def announce(self, gpu_uuid: str, xid: int, gpu_instance_id: int | None = None) -> None:
        """The driver announces a critical error of the GPU, or of one instance."""
        with self._box.change() as state:
            state.announced.append((gpu_uuid, xid, gpu_instance_id))

    def wear(
        self,
        gpu_uuid: str,
        *,
        memory_errors: int = 0,
        remap_pending: bool = False,
        remap_failed: bool = False,
        recovery: Literal["reset", "boot", "other"] | None = None,
    ) -> None:
        """Memory errors that could not be corrected, what is to be done about them, and what the driver says the GPU needs."""
        with self._outside(gpu_uuid) as board:
            board.state.memory_errors = memory_errors
            board.state.remap_pending, board.state.remap_failed = remap_pending, remap_failed
            board.state.recovery = recovery

    def want_mode(self, gpu_uuid: str, enabled: bool) -> None:
        """Somebody has asked for a MIG mode that comes with the next reset."""
        with self._outside(gpu_uuid) as board:
            board.state.mig_pending = enabled

    def lose(self, gpu_uuid: str) -> None:
        """The GPU falls off the bus; it is back after a reboot."""
        with self._outside(gpu_uuid) as board:
            board.state.lost = True

    def reset_gpu(self, gpu_uuid: str) -> None:
        """Somebody resets the GPU: its instances are gone."""
        with self._outside(gpu_uuid) as board:
            board.reset()

    def reboot(self) -> None:
        """The node boots: no instances, another boot id, and MIG mode off on everything newer than Ampere."""
        with self._box.change() as state:
            state.boots += 1
            for board in state.boards:
                Board(board).reboot()

    def cut(self, gpu_uuid: str, names: Sequence[ProfileName]) -> tuple[SimulatedInstance, ...]:
        """An admin cuts an empty GPU by hand, MIG mode on, wherever the instances fit together.

        Raises:
            InvalidRequest: the GPU has no such profile, or they do not fit together.
            DeviceInUse: something is on it already.
        """
        with self._outside(gpu_uuid) as board:
            places = arrange(board.gpu, names)
            if board.state.instances or board.busy:
                raise DeviceInUse(f"GPU {gpu_uuid} is not empty. Destroy what is on it first.")
            board.set_mig_mode(True)
            made = [board.create_gpu_instance(profile.profile_id, start, profile.size) for profile, start in places]
            return tuple(board.create_compute_instance(instance.gpu_instance_id) for instance in made)

    def fail_next(
        self,
        verb: Verb,
        error: ErrorKind = ErrorKind.DRIVER_ERROR,
        *,
        times: int = 1,
        gpu_uuid: str | None = None,
    ) -> None:
        """The next calls of a verb fail with this error, before they do anything."""
        with self._box.change() as state:
            state.faults.append(Fault(verb=verb, error=error, times=times, gpu_uuid=gpu_uuid))

    def fail_no_more(self) -> None:
        """Forget what was to fail."""
        with self._box.change() as state:
            state.faults = []

    def delay(self, verb: Verb, seconds: float) -> None:
        """Calls of a verb take so long from now on; 0 for at once."""
        with self._box.change() as state:
            state.delays[verb] = seconds

    def hide_profiles_without_mig(self) -> None:
        """Be an old driver (as seen around 535): no profiles while MIG mode is off."""
        with self._box.change() as state:
            for board in state.boards:
                board.profiles_need_mig = True

    @contextmanager
    def _outside(self, gpu_uuid: str) -> Iterator[Board]:
        with self._box.change() as state:
            yield _board(state, gpu_uuid)

    @contextmanager
    def _call(self, verb: Verb, gpu_uuid: str) -> Iterator[Board]:
        with self._box.change() as state:
            wait = state.delays.get(verb, 0)
        if wait:
            self._sleep(wait)
        with self._box.change() as state:
            board = _board(state, gpu_uuid)
            fault = next((f for f in state.faults if f.applies_to(verb, gpu_uuid)), None)
            if fault is not None:
                fault.times -= 1
                state.faults = [f for f in state.faults if f.times > 0]
                raise fault.exception()
            yield board


def _board(state: NodeState, gpu_uuid: str) -> Board:
    found = next((b for b in state.boards if b.gpu_uuid == gpu_uuid), None)
    if found is None:
        raise DeviceNotFound(f"Node {state.node} has no GPU {gpu_uuid}.")
    return Board(found)
