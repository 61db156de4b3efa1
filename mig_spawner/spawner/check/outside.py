"""The start check from outside: put before the server's command, and its verdict read from the pod's status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from kubernetes_asyncio.client import V1Pod

from mig_spawner.spawner.container import notebook_of

_SHELL: Final = (
    'for python in python3 python; do if command -v $python >/dev/null 2>&1; then exec $python -c "$0" "$@"; fi; done; '
    'echo "mig-spawner cannot check the GPU of this server: its image has no Python" >&2; exec "$@"'
)

_FAULTS: Final = {
    71: "The server has a lease, and sees no GPU device.",
    72: "The server sees another device than the leased one.",
    73: "The server sees more than one GPU device.",
    74: "The device has not the memory that was leased.",
    75: "The device has not the profile that was leased.",
    76: "The server has no lease, and sees GPU devices.",
}
"""What the exit codes of `inside` mean, for clusters that keep no last words of a container."""


@cache
def _inside() -> str:
    return (files("mig_spawner.spawner.check") / "inside.py").read_text(encoding="utf-8")


def put_before(pod: V1Pod) -> bool:
    """Check first, then start what would have been started. False where the pod leaves that to the image, so nothing is known of it."""
    notebook = notebook_of(pod)
    if not notebook.args:
        return False
    notebook.args = ["/bin/sh", "-c", _SHELL, _inside(), *notebook.args]
    notebook.termination_message_policy = "FallbackToLogsOnError"
    return True


def fault_of(pod: Mapping[str, Any] | None) -> str | None:
    """Why the check failed; None while it did not."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    for status in statuses:
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated") or {}
            if status.get("name") == "notebook" and ended.get("exitCode") in _FAULTS:
                said = str(ended.get("message") or "").strip().splitlines()
                return said[-1][:500] if said else _FAULTS[ended["exitCode"]]
    return None
