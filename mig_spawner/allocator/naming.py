"""A device that is asked for by the older form of its name is the one that sits there now."""

from __future__ import annotations

from typing import Any, TypeVar

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.device_name import older_name
from mig_spawner.wire.lease import LeaseRequest, WaysOfAsking
from mig_spawner.wire.queue import LeaseChange

Asking = TypeVar("Asking", LeaseRequest, LeaseChange)


def as_reported(ledger: Ledger, asked: Asking) -> Asking:
    """The same request with every device called what its node calls it. One that cannot be found keeps its name."""
    changes: dict[str, Any] = _changes(ledger, asked)
    others = tuple(o.model_copy(update=_changes(ledger, o)) for o in asked.alternatives or ())
    if others and others != asked.alternatives:
        changes["alternatives"] = others
    return asked.model_copy(update=changes) if changes else asked


def _changes(ledger: Ledger, asked: WaysOfAsking) -> dict[str, Any]:
    place = None if asked.mig_uuid is None else older_name(asked.mig_uuid)
    node = None if place is None else ledger.owners.get(place.gpu_uuid)
    gpu = None if place is None or node is None else ledger.reported_gpu(node, place.gpu_uuid)
    # Whatever is leased fills its GPU instance, and is the first compute instance there.
    if gpu is None or place is None or place.compute_instance_id != 0:
        return {}
    found = (i.mig_uuid for i in gpu.instances if i.gpu_instance_id == place.gpu_instance_id)
    return {"mig_uuid": name} if (name := next(found, None)) is not None else {}
