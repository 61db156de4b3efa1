"""The port to the pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from mig_spawner.allocator.claim import Claim

LEASE_LABEL: Final = "mig-spawner/lease"
"""The label by which a pod says whose slice it uses; its value is the lease's id."""


@dataclass(frozen=True, slots=True)
class PodSighting:
    """A pod that carries a lease label and has not ended, as Kubernetes shows it.

    Attributes:
        device_uuid: the device it was told to see; None if it does not say.
        claim: what it says of its lease; None if it does not say it, or not so that it can be read.
        unclear: then why, in words.
    """

    uid: str
    lease_id: str
    namespace: str
    name: str
    phase: str
    device_uuid: str | None
    claim: Claim | None = None
    unclear: str = ""


@dataclass(frozen=True, slots=True)
class PodListing:
    """All such pods.

    Attributes:
        pods: every one, never a part of them.
        age: how long ago the list behind it was begun. A pod that was first seen earlier and is not in `pods` is gone.
        gone: uids whose end was seen since then.
    """

    pods: tuple[PodSighting, ...]
    age: timedelta
    gone: frozenset[str] = frozenset()


class PodWatch(Protocol):
    """Watches the pods until cancelled.

    It delivers a listing as soon as it has one, after every change, and at least every 30 seconds while Kubernetes answers; when
    Kubernetes does not answer it delivers nothing and tries again. It never raises but when cancelled. A delivery that fails is
    repeated with the next one.
    """

    @property
    def watches(self) -> bool:
        """Whether it will ever deliver anything."""

    async def run(self, deliver: Callable[[PodListing], Awaitable[None]]) -> None: ...
