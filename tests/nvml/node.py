"""`ImitatedNode`: the GPUs behind the C library, and the hand that disturbs them.

It has the faults and events of `mig_spawner.testing.gpu.SimulatedNode`, under the same names, so that one contract runs on
both; and those that only a library can have. The numbers of the boards come from `boards.json`.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from mig_spawner.testing.gpu import Model, Verb, find_model
from mig_spawner.testing.gpu.board import stable_uuid
from mig_spawner.testing.gpu.fault import ErrorKind
from tests.nvml.record import Record, State, change, read, record, text, write

WITHOUT_MIG: Final = "l40s"
"""A GPU without MIG, for mixed nodes; no model of `boards.json`."""

CONSTANTS: Final = 18
"""How many constants the newest known driver has: 0 … 17."""

_FILLING: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""By compute slices: the compute instance profile that fills a GPU instance. On the 1g with double memory it is 7."""
_DOUBLE_MEMORY: Final = 9

NO_INSTANCE: Final = 0xFFFFFFFF
"""In an event: it concerns the whole GPU."""

_FUNCTIONS: Final = {
    Verb.READ_GPU: "nvmlDeviceGetMemoryInfo",
    Verb.LIST_PROFILES: "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    Verb.LIST_INSTANCES: "nvmlDeviceGetGpuInstances",
    Verb.COUNT_PROCESSES: "nvmlDeviceGetComputeRunningProcesses_v3",
    Verb.CREATE_GPU_INSTANCE: "nvmlDeviceCreateGpuInstanceWithPlacement",
    Verb.CREATE_COMPUTE_INSTANCE: "nvmlGpuInstanceCreateComputeInstance",
    Verb.DESTROY_GPU_INSTANCE: "nvmlGpuInstanceDestroy",
    Verb.DESTROY_COMPUTE_INSTANCE: "nvmlComputeInstanceDestroy",
    Verb.SET_MIG_MODE: "nvmlDeviceSetMigMode",
}

RECOVERIES: Final = {"reset": 1, "boot": 2, "other": 5}

CODES: Final = {
    ErrorKind.DRIVER_ERROR: 999,
    ErrorKind.DEVICE_IN_USE: 19,
    ErrorKind.INSUFFICIENT_RESOURCES: 23,
    ErrorKind.DEVICE_NOT_FOUND: 6,
    ErrorKind.NOT_SUPPORTED: 3,
    ErrorKind.NO_PERMISSION: 4,
    ErrorKind.DEVICE_LOST: 15,
}


class ImitatedNode:
    """GPUs in a state file.

    Args:
        folder: for the state file and what lies beside it.
        models: key or alias of each GPU, in order; `WITHOUT_MIG` for one that cannot be cut.
    """

    def __init__(self, folder: Path, name: str, models: Sequence[str]) -> None:
        self.path = folder / "nvml-state"
        self.boot_file = folder / "boot_id"
        self.name = name
        records = [record("node", boots=1, repeat=1, limit=CONSTANTS, serial=0)]
        for index, word in enumerate(models):
            records += _plain_gpu(name, index) if word == WITHOUT_MIG else _gpu(name, index, find_model(word))
        write(self.path, State(records))
        self._write_boot()

    # -- looking -------------------------------------------------------------------------------------------------------

    def gpu_uuids(self) -> tuple[str, ...]:
        return tuple(g.values["uuid"] for g in read(self.path).of("gpu"))

    def mig_uuids(self, gpu_uuid: str) -> set[str]:
        """Of all MIG devices on a GPU."""
        state = read(self.path)
        return {c.values["uuid"] for c in state.of("compute", gpu=state.number(gpu_uuid))}

    def gpu(self, gpu_uuid: str) -> Record:
        return read(self.path).gpu(gpu_uuid)

    @contextmanager
    def calls(self) -> Iterator[list[str]]:
        """Which functions of the library are called within the block; filled when it ends."""
        log, seen = Path(f"{self.path}.calls"), list[str]()
        log.touch()
        yield seen
        seen += [line.split()[0] for line in log.read_text("ascii").splitlines()]
        log.unlink()

    def count_calls(self, function: str) -> int:
        """How often it was called since the block of `calls` began."""
        return Path(f"{self.path}.calls").read_text("ascii").count(f"{function} ")

    def in_session(self) -> bool:
        """Whether some process has NVML open, which blocks a reset."""
        with Path(f"{self.path}.session").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    # -- the world outside, as SimulatedNode has it --------------------------------------------------------------------

    def set_processes(self, device_uuid: str, count: int | None, kind: str = "compute") -> None:
        """So many processes of a kind (compute, graphics, mps) run on it now; None: it cannot be read how many."""
        value = {kind: -1 if count is None else count}
        with change(self.path) as state:
            for gpu in state.of("gpu", uuid=device_uuid):
                gpu.set(**value)
            for compute in state.of("compute", uuid=device_uuid):
                (instance,) = state.of("instance", gpu=compute["gpu"], id=compute["instance"])
                instance.set(**value)

    def set_usage(
        self, device_uuid: str, *, memory_mib: int = 13, sm: float = 0, tensor: float = 0, dram: float = 0
    ) -> None:
        """So much memory a device uses, and so busy it is, 0 to 1."""
        with change(self.path) as state:
            for gpu in state.of("gpu", uuid=device_uuid):
                gpu.set(used=memory_mib)
            for compute in state.of("compute", uuid=device_uuid):
                (instance,) = state.of("instance", gpu=compute["gpu"], id=compute["instance"])
                busy = {"sm": sm, "tensor": tensor, "dram": dram}
                instance.set(used=memory_mib, **{name: round(part * 1000) for name, part in busy.items()})

    def announce(self, gpu_uuid: str, xid: int, gpu_instance_id: int | None = None) -> None:
        """The driver announces a critical error of the GPU, or of one instance."""
        instance = NO_INSTANCE if gpu_instance_id is None else gpu_instance_id
        with change(self.path) as state:
            number = state.number(gpu_uuid)
            state.records.append(record("event", gpu=number, xid=xid, instance=instance, compute=NO_INSTANCE))

    def wear(
        self,
        gpu_uuid: str,
        *,
        memory_errors: int = 0,
        remap_pending: bool = False,
        remap_failed: bool = False,
        recovery: str | None = None,
    ) -> None:
        """Memory errors that could not be corrected, what is to be done about them, and what the driver says the GPU needs."""
        wear = {"ecc": memory_errors, "remap": int(remap_pending), "remapfail": int(remap_failed)}
        self.set_gpu(gpu_uuid, **wear, recovery=0 if recovery is None else RECOVERIES[recovery])

    def want_mode(self, gpu_uuid: str, enabled: bool) -> None:
        """Somebody has asked for a MIG mode that comes with the next reset."""
        self.set_gpu(gpu_uuid, pending=int(enabled))

    def cut(self, gpu_uuid: str, profile_id: int, starts: Iterable[int]) -> None:
        """An admin cuts a GPU by hand, MIG mode on."""
        with change(self.path) as state:
            number = state.number(gpu_uuid)
            state.gpu(gpu_uuid).set(mig=1, pending=1)
            (profile,) = state.of("profile", gpu=number, id=profile_id)
            for place in starts:
                number_of_it = 7 + place
                idle = {"used": 13, "sm": 0, "tensor": 0, "dram": 0, "compute": 0, "graphics": 0, "mps": 0}
                instance = {
                    "gpu": number,
                    "id": number_of_it,
                    "profile": profile_id,
                    "start": place,
                    "size": profile["size"],
                }
                state.records.append(record("instance", **instance, **idle))
                fills = 7 if profile["constant"] == _DOUBLE_MEMORY else _FILLING[profile["slices"]]
                whole = {"profile": fills, "start": 0, "size": profile["slices"], "index": place}
                device = f"MIG-{stable_uuid(gpu_uuid, place, 'by hand')}"
                state.records.append(record("compute", gpu=number, instance=number_of_it, id=0, **whole, uuid=device))

    def fail_next(
        self, verb: Verb, error: ErrorKind = ErrorKind.DRIVER_ERROR, *, times: int = 1, gpu_uuid: str | None = None
    ) -> None:
        self.fail(_FUNCTIONS[verb], CODES[error], times=times, gpu_uuid=gpu_uuid)

    def fail_no_more(self) -> None:
        with change(self.path) as state:
            state.remove("fault")

    def delay(self, verb: Verb, seconds: float) -> None:
        with change(self.path) as state:
            state.remove("delay", function=_FUNCTIONS[verb])
            state.records.append(
                record("delay", function=_FUNCTIONS[verb], value=round(seconds * 1000), times=1, gpu=-1)
            )

    def lose(self, gpu_uuid: str) -> None:
        self.set_gpu(gpu_uuid, lost=1)

    def hide_profiles_without_mig(self) -> None:
        with change(self.path) as state:
            for gpu in state.of("gpu"):
                gpu.set(hiding=1)

    def reset_gpu(self, gpu_uuid: str) -> None:
        """Somebody resets the GPU; the session of others must have ended."""
        assert not self.in_session(), "in use by another client"
        with change(self.path) as state:
            _reset(state, gpu_uuid)

    def reboot(self) -> None:
        """The node boots: no instances, another boot id, and MIG mode off on everything newer than Ampere."""
        with change(self.path) as state:
            (node,) = state.of("node")
            node.set(boots=node["boots"] + 1)
            for gpu in state.of("gpu"):
                gpu.set(lost=0, recovery=0)
                if not gpu["ampere"]:
                    gpu.set(pending=0)
                _reset(state, gpu.values["uuid"])
        self._write_boot()

    # -- what only a library does --------------------------------------------------------------------------------------

    def fail(self, function: str, code: int, *, times: int = 1, gpu_uuid: str | None = None) -> None:
        """The next calls of a function answer this code; 0: they say success and do nothing."""
        with change(self.path) as state:
            number = -1 if gpu_uuid is None else state.number(gpu_uuid)
            state.records.append(record("fault", function=function, value=code, times=times, gpu=number))

    def set_gpu(self, gpu_uuid: str, **values: object) -> None:
        with change(self.path) as state:
            state.gpu(gpu_uuid).set(**values)

    def rename(self, gpu_uuid: str, name: bytes) -> None:
        self.set_gpu(gpu_uuid, name=text(name))

    def set_profile(self, gpu_uuid: str, profile_id: int, **values: object) -> None:
        """Change what the library says of a profile; `name` as bytes."""
        changes = {k: text(v) if isinstance(v, bytes) else v for k, v in values.items()}
        with change(self.path) as state:
            (profile,) = state.of("profile", gpu=state.number(gpu_uuid), id=profile_id)
            profile.set(**changes)

    def set_node(self, **values: object) -> None:
        """`repeat=0`: UUIDs do not come back. `limit`: the first constant that is an invalid argument."""
        with change(self.path) as state:
            state.of("node")[0].set(**values)

    def rebind_with_the_next_mode(self) -> None:
        """The next change of a MIG mode unbinds and binds GPUs: the first two change places."""
        self.fail("nvmlDeviceSetMigMode.rebind", 1)

    def swap(self) -> None:
        """The first two GPUs change places, as after unbinding and binding: handles by index mean the other one now."""
        with change(self.path) as state:
            places = [n for n, r in enumerate(state.records) if r.kind == "gpu"][:2]
            first, second = places
            state.records[first], state.records[second] = state.records[second], state.records[first]
            for r in state.records:
                if r.kind in ("profile", "instance", "compute") and r["gpu"] in (0, 1):
                    r.set(gpu=1 - r["gpu"])

    def _write_boot(self) -> None:
        boots = read(self.path).of("node")[0]["boots"]
        self.boot_file.write_text(f"{stable_uuid(self.name, 'boot', boots)}\n", "ascii")


def _reset(state: State, gpu_uuid: str) -> None:
    gpu, number = state.gpu(gpu_uuid), state.number(gpu_uuid)
    state.remove("instance", gpu=number)
    state.remove("compute", gpu=number)
    gpu.set(compute=0, graphics=0, mps=0, ecc=0, remap=0, mig=gpu["pending"], resets=gpu["resets"] + 1)
    if gpu["recovery"] == RECOVERIES["reset"]:
        gpu.set(recovery=0)


@cache
def _rows() -> dict[str, Any]:
    document = json.loads(files("mig_spawner.testing.gpu").joinpath("boards.json").read_text("utf-8"))
    return {row["key"]: row for row in document["boards"]}


def _gpu(node: str, index: int, model: Model) -> list[Record]:
    row = _rows()[model.key]
    major, minor = map(int, row["compute_capability"].split("."))
    gpu = _gpu_record(node, index, model.key, model.product, model.memory_mib, (major, minor), model.multiprocessors)
    gpu.set(capable=1, ampere=int(model.ampere), pci=row["pci"][0]["device_filter"].removeprefix("0x").lower())
    profiles = []
    for known in model.profiles:
        profile, engines = known.profile, known.profile.engines
        profiles.append(
            record(
                "profile",
                gpu=index,
                constant=known.nvml_profile_value,
                id=profile.profile_id,
                slices=profile.compute_slices,
                count=known.max_instances,
                memory=profile.memory_mib,
                sms=profile.multiprocessors,
                copy=engines.copy,
                decoder=engines.decoder,
                encoder=engines.encoder,
                jpeg=engines.jpeg,
                ofa=engines.ofa,
                size=profile.size,
                starts=f"{sum(1 << start for start in profile.starts):x}",
                name=text(f"MIG {profile.name}"),
            )
        )
    return [gpu, *profiles]


def _plain_gpu(node: str, index: int) -> list[Record]:
    return [_gpu_record(node, index, WITHOUT_MIG, "NVIDIA L40S", 46068, (8, 9), 142)]


def _gpu_record(
    node: str, index: int, key: str, product: str, memory_mib: int, capability: tuple[int, int], multiprocessors: int
) -> Record:
    major, minor = capability
    return record(
        "gpu",
        uuid=f"GPU-{stable_uuid(node, index, key)}",
        mig=0,
        pending=0,
        capable=0,
        ampere=0,
        hiding=0,
        lost=0,
        memory=memory_mib,
        cores=multiprocessors * (64 if capability == (8, 0) else 128),
        major=major,
        minor=minor,
        bus=16 + index,
        pci="26b910de",
        resets=0,
        ecc=0,
        remap=0,
        remapfail=0,
        recovery=0,
        used=13,
        compute=0,
        graphics=0,
        mps=0,
        name=text(product),
    )
