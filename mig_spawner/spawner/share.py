"""The part of a node that goes with a slice: CPU and memory by compute slices, so that nothing strands the last slice of a node.

The scheduler counts what pods request. If the servers on some slices of a node request more than their part, the slices that are left
find no room, and stay free for ever while people wait. So what is requested here is never more than the part of the node that belongs
to the compute slices of the lease, rounded down; whatever shapes a node's GPUs are cut into, the sum over all of them fits.
That is why a floor raises only the limit, which the scheduler does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, TypeVar

from kubernetes_asyncio.client import V1Pod
from pydantic import Field, ValidationError, model_validator

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import notebook_of, resources_of
from mig_spawner.wire.base import Document
from mig_spawner.wire.lease import PlacementDocument
from mig_spawner.wire.menu import MenuEntry
from mig_spawner.wire.menu.menu import explained
from mig_spawner.wire.menu.value import Bytes, Cores

_COMPUTE_SLICES: Final = {4: 4, 8: 7, 12: 4}
"""Compute slices of a GPU by its memory slices (NVIDIA MIG User Guide). No profile has more compute than memory slices, so for a GPU
that is not here its memory slices are a safe guess."""

_D = TypeVar("_D", bound=Document)
_LEAST_CPU: Final = 0.1
_LEAST_MEMORY: Final = 1 << 30


class NodeSize(Document):
    """What servers may request on one node: what is allocatable, less what else runs there.

    Attributes:
        gpus: GPUs of which slices are leased.
        cpu: cores.
        memory: bytes.
    """

    gpus: Annotated[int, Field(strict=True, ge=1, le=64)]
    cpu: Cores
    memory: Bytes

    @model_validator(mode="after")
    def _enough(self) -> NodeSize:
        if self.cpu < _LEAST_CPU * self.gpus or self.memory < _LEAST_MEMORY * self.gpus:
            raise ValueError(
                "a node has at least 0.1 cores and 1 GiB of memory for each GPU; write what the whole node has"
            )
        return self


class ShareBounds(Document):
    """Bounds of what one server gets; None for none.

    Attributes:
        min_cpu, min_memory: cores and bytes that its limits are never below, while the node has them to spare.
        max_cpu, max_memory: cores and bytes that it never gets more than.
        shm: the part of its memory that `/dev/shm` may take, 0 to 1.
    """

    min_cpu: Cores | None = None
    max_cpu: Cores | None = None
    min_memory: Bytes | None = None
    max_memory: Bytes | None = None
    shm: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> ShareBounds:
        for least, most in (("min_cpu", "max_cpu"), ("min_memory", "max_memory")):
            low, high = getattr(self, least), getattr(self, most)
            if low is not None and high is not None and low > high:
                raise ValueError(f"{least} is more than {most}; lower {least} or raise {most}")
        return self


@dataclass(frozen=True, slots=True)
class Share:
    """What goes with a lease: thousandths of a core, and bytes. The guarantees are what the scheduler counts."""

    cpu_guarantee: int
    cpu_limit: int
    mem_guarantee: int
    mem_limit: int


def share_of(placement: PlacementDocument, size: NodeSize, bounds: ShareBounds) -> Share:
    """The part of a node of this size that goes with one GPU instance, or with a whole GPU."""
    part, whole = _compute_slices(placement)

    def bounded(total: int, least: float | None, most: float | None) -> tuple[int, int]:
        part_of_it = total * part // (whole * size.gpus)
        cap = math.inf if most is None else most
        return int(min(part_of_it, cap)), int(min(max(part_of_it, least or 0), cap))

    cpu = bounded(int(size.cpu * 1000), _milli(bounds.min_cpu), _milli(bounds.max_cpu))
    memory = bounded(size.memory, bounds.min_memory, bounds.max_memory)
    return Share(*cpu, *memory)


def with_share(
    entry: MenuEntry, placement: PlacementDocument, sizes: Mapping[str, NodeSize], bounds: ShareBounds
) -> MenuEntry:
    """The entry, and its part of the node where it says nothing: of cores, of memory, of `/dev/shm`, each by itself.

    Unchanged on a node whose size nobody has told.
    """
    size = size_of(placement.node, sizes)
    if size is None:
        return entry
    share = share_of(placement, size, bounds)
    filled: dict[str, Any] = {}
    if entry.cpu_limit is None and entry.cpu_guarantee is None:
        filled |= {"cpu_limit": share.cpu_limit / 1000, "cpu_guarantee": share.cpu_guarantee / 1000}
    memory = entry.mem_limit or entry.mem_guarantee
    if memory is None:
        memory = max(share.mem_limit, entry.shm or 0)
        filled |= {"mem_limit": memory, "mem_guarantee": share.mem_guarantee}
    if entry.shm is None and bounds.shm is not None:
        filled["shm"] = max(int(memory * bounds.shm), 1)
    return entry.model_copy(update=filled)


def beyond_share(pod: V1Pod, placement: PlacementDocument, sizes: Mapping[str, NodeSize]) -> Iterator[str]:
    """A sentence for each thing of which this pod requests more than goes with its lease.

    A request that is no number (`500m`, from `extra_container_config`) is not looked at.
    """
    size = size_of(placement.node, sizes)
    if size is None:
        return
    share = share_of(placement, size, ShareBounds())
    resources: Any = resources_of(notebook_of(pod))
    for kind, most, unit, says in (
        ("cpu", share.cpu_guarantee / 1000, 1.0, "cores of CPU"),
        ("memory", share.mem_guarantee, 1 << 30, "GiB of memory"),
    ):
        asked = (resources.requests or {}).get(kind, (resources.limits or {}).get(kind))
        if isinstance(asked, int | float) and asked > most:
            yield (
                f"{pod.metadata.name} requests {asked / unit:.2f} {says} on {placement.node}, and {most / unit:.2f} go with its lease. "
                "A node full of such servers has no room for its last slices: lower what the menu's entry or the profile asks for."
            )


def size_of(node: str, sizes: Mapping[str, NodeSize]) -> NodeSize | None:
    """The size of this node: that of the first pattern that its name matches."""
    return next((size for pattern, size in sizes.items() if fnmatchcase(node, pattern)), None)


def parse_sizes(value: Mapping[Any, Any]) -> dict[str, NodeSize]:
    """Read `MIGSpawner.node_sizes`.

    Raises:
        InvalidRequest: with a sentence that names the nodes and says what to write.
    """
    return {
        str(pattern): _parsed(NodeSize, fields, f"nodes {str(pattern)[:60]!r}") for pattern, fields in value.items()
    }


def parse_bounds(value: Mapping[Any, Any]) -> ShareBounds:
    """Read `MIGSpawner.node_share`.

    Raises:
        InvalidRequest: with a sentence that says what to write.
    """
    return _parsed(ShareBounds, value, "node_share")


def _parsed(model: type[_D], fields: object, name: str) -> _D:
    known = ", ".join(model.model_fields)
    if not isinstance(fields, Mapping) or not set(fields) <= set(model.model_fields):
        raise InvalidRequest(f"{name}: write a mapping of {known}, and nothing else.")
    missing = [key for key, field in model.model_fields.items() if field.is_required() and fields.get(key) is None]
    if missing:
        raise InvalidRequest(f"{name}: `{missing[0]}` is missing. Write all of {known}.")
    try:
        return model.model_validate({key: said for key, said in fields.items() if said is not None})
    except ValidationError as error:
        raise InvalidRequest(f"{name}: {explained(error, _HINTS)}") from error


_HINTS: Final = {
    **dict.fromkeys(("cpu", "min_cpu", "max_cpu"), "write a number of cores such as 2 or 0.5"),
    **dict.fromkeys(("memory", "min_memory", "max_memory"), "write bytes, or a number with K, M, G or T such as 900G"),
    "gpus": "write how many GPUs of a node are leased, 1 to 64",
    "shm": "write a number above 0 and at most 1 such as 0.5",
}


def _compute_slices(placement: PlacementDocument) -> tuple[int, int]:
    """Compute slices of the lease, and of its whole GPU."""
    grid = round(placement.size / placement.share)
    whole = _COMPUTE_SLICES.get(grid, grid)
    part = whole if placement.profile is None else ProfileName.parse(placement.profile).compute_slices
    return part, max(part, whole)


def _milli(cores: float | None) -> float | None:
    return None if cores is None else cores * 1000
