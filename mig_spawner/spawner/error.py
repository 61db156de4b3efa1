"""Refusals: a server that is not started for a reason a person can understand, as JupyterHub shows and counts it.

JupyterHub 6 has `SpawnException` for this; on 5 an `HTTPError` does the same, except that the hub counts it as a failure, and ends
itself after some of them in a row (`consecutive_failure_limit`). `uncounted` sees to that.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from tornado import web

from mig_spawner.errors import InvalidRequest

COUNTED = False
"""This hub counts every start that fails, for whatever reason, towards `consecutive_failure_limit`."""

try:
    from jupyterhub.spawner import SpawnException
except ImportError:  # JupyterHub 5; until support for it ends

    class SpawnException(web.HTTPError):  # type: ignore[no-redef]
        """What JupyterHub 6 calls so, with the same arguments."""

        def __init__(
            self, message: str, *, reason: str, log_message: str = "", message_html: str = "", status_code: int = 400
        ) -> None:
            super().__init__(status_code, log_message or message, reason=reason)
            self.message = message
            self.message_html = message_html

    COUNTED = True


class Reason(StrEnum):
    """Why a server was not started: the `reason` label of the hub's metric of spawns. A closed set."""

    CAPACITY = "mig-capacity"
    """Nothing here can serve the request, or the queue is full."""
    QUEUE_TIMEOUT = "mig-queue-timeout"
    """Nothing became free within `queue_timeout`."""
    ALLOCATOR_DOWN = "mig-allocator-down"
    """The allocator gave no usable answer."""
    INVALID = "mig-invalid"
    """What was asked for cannot be understood, or is not offered here."""
    CHECK = "mig-check"
    """What the container saw was not what was leased."""
    QUOTA = "mig-quota"
    """A quota of the allocator's menu, or of the cluster, is used up."""


_STATUS = {
    Reason.CAPACITY: 409,
    Reason.QUEUE_TIMEOUT: 408,
    Reason.ALLOCATOR_DOWN: 503,
    Reason.INVALID: 400,
    Reason.CHECK: 409,
    Reason.QUOTA: 403,
}


class SpawnRefused(SpawnException):  # type: ignore[misc]
    """A server is not started, and `message` says to its user why and what to do.

    Args:
        message: a sentence; plain text, escaped wherever it becomes HTML.
        status_code: of the HTTP answer, where the one that belongs to the reason does not fit.
    """

    def __init__(self, message: str, *, reason: Reason, status_code: int | None = None) -> None:
        arguments: dict[str, Any] = {
            "reason": reason.value,
            "status_code": _STATUS[reason] if status_code is None else status_code,
            "message_html": html.escape(message),
        }
        super().__init__(message, **arguments)
        # What the progress page and the page of a failed start read; SpawnException of 6.1 sets neither.
        self.jupyterhub_message = message
        self.jupyterhub_html_message = html.escape(message)


def invalid(message: str) -> SpawnRefused:
    """What was asked for cannot be had, whatever the GPUs do."""
    return SpawnRefused(message, reason=Reason.INVALID)


def pod_refusal(status: int | None, body: str) -> SpawnRefused | None:
    """What to say of a pod that the API server did not take, if it is a case that people meet."""
    if status != 403:
        return None
    if "exceeded quota" in body:
        return SpawnRefused(
            "The quota of this cluster is used up, so the server cannot start. Stop another server, or ask an admin for more.",
            reason=Reason.QUOTA,
        )
    if "RuntimeClass" in body and "not found" in body:
        return SpawnRefused(
            "This cluster lacks the RuntimeClass that servers with a GPU need. Please tell an admin of this hub, who can create it "
            "or set MIGSpawner.nvidia_runtime_class.",
            reason=Reason.CAPACITY,
        )
    return None


def node_refusal(pod: Mapping[str, Any] | None) -> SpawnRefused | None:
    """What to say of a pod that its node did not take: the kubelet ends such a pod before any of its containers is made."""
    status = (pod or {}).get("status") or {}
    if pod is None or status.get("phase") != "Failed" or status.get("containerStatuses") or not status.get("reason"):
        return None
    reason, node = str(status["reason"]), (pod.get("spec") or {}).get("nodeName")
    said = str(status.get("message") or "It gives no reason").removeprefix("Pod was rejected: ")[:300].rstrip(".")
    where = f"The node {node}" if node else "Its node"
    return SpawnRefused(
        f"{where} did not take this server ({reason}): {said}. Try again, or tell an admin of this hub.",
        reason=Reason.CAPACITY,
    )


@contextmanager
def uncounted(settings: MutableMapping[str, Any] | None) -> Iterator[None]:
    """A refusal in here is no failure of the hub: where the hub is about to count it, it is taken off beforehand.

    Args:
        settings: of the hub's application, where its count is; None where nobody counts.
    """
    try:
        yield
    except SpawnRefused:
        if COUNTED and settings is not None:
            settings["failure_count"] = settings.get("failure_count", 0) - 1
        raise


@contextmanager
def refusing() -> Iterator[None]:
    """What cannot be served refuses the start, with the sentence it has."""
    try:
        yield
    except InvalidRequest as error:
        raise invalid(str(error)) from error
