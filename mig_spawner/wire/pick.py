"""What a node picked for a lease, on the wire."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mig_spawner.wire.base import Document


class DevicePick(Document):
    """The device that a node gave to the pod of a lease: the UUID of a MIG device, or of a GPU that is not cut."""

    device_uuid: Annotated[str, Field(max_length=128, pattern=r"^(MIG|GPU)-[A-Za-z0-9/-]+$")]
