"""The demo's one temporary directory, and the ports and secrets its parts share."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.demo.fleet import Node
from mig_spawner.demo.guard import MARK
from mig_spawner.errors import InvalidRequest

HOST: Final = "127.0.0.1"
_FOREIGN: Final = ("JUPYTER", "JPY_", "KUBE", "CONFIGPROXY_", "MIG_", "IPY", "COV_", "PYTEST_")
"""What a shell inside another hub, cluster or test may have set and our parts must not inherit."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the parts listen, all on 127.0.0.1."""

    public: int
    proxy_api: int
    hub: int
    allocator: int

    @classmethod
    def choose(cls, public: int) -> Ports:
        """Take the public port (0 for any free one), and free ones for the rest.

        Raises:
            InvalidRequest: somebody listens on the public port.
        """
        with ExitStack() as held:
            # All are held until all are chosen, so that they differ.
            return cls(_take(held, public), _take(held, 0), _take(held, 0), _take(held, 0))


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Tokens between the parts, new for each run; one per node for the agents."""

    allocator: str
    proxy: str
    agents: Mapping[str, str]

    @classmethod
    def make(cls, nodes: Sequence[Node]) -> Secrets:
        return cls(secrets.token_hex(16), secrets.token_hex(16), {node.name: secrets.token_hex(16) for node in nodes})


@dataclass(frozen=True, slots=True)
class Workspace:
    """Folders of one run, all below `root`, which only this user can read."""

    root: Path
    logs: Path

    @classmethod
    def create(cls, logs: Path | None) -> Workspace:
        """Make the folders.

        Args:
            logs: where logs shall stay; None to keep them below `root`, and lose them.

        Raises:
            InvalidRequest: `logs` cannot be made.
        """
        root = Path(tempfile.mkdtemp(prefix="mig-spawner-demo-")).resolve()
        workspace = cls(root, root / "logs" if logs is None else logs.absolute())
        for folder in (workspace.gpus, workspace.hub, workspace.pods, workspace.bin):
            folder.mkdir()
        try:
            (workspace.logs / "pods").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            shutil.rmtree(root)
            raise InvalidRequest(f"Logs cannot be kept in {logs}: {error.strerror}.") from error
        (workspace.pods / "logs").symlink_to(workspace.logs / "pods")
        workspace._write_nvidia_smi()
        return workspace

    @property
    def gpus(self) -> Path:
        """What the agents' simulated GPUs hold, one file per node."""
        return self.root / "gpus"

    @property
    def hub(self) -> Path:
        """The hub's database and cookie secret."""
        return self.root / "hub"

    @property
    def pods(self) -> Path:
        """The kubelet's: people's home folders (one per persistent volume claim) and the output of their servers."""
        return self.root / "pods"

    @property
    def bin(self) -> Path:
        """First on the PATH of every pod."""
        return self.root / "bin"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of `hub`, `mig-allocator` or `admin`."""
        return self.root / f"kubeconfig-{name}.yaml"

    def gpu_file(self, node: str) -> Path:
        return self.gpus / f"{node}.json"

    def write(self, name: str, text: str) -> Path:
        """Write a file that only this user may read."""
        path = self.root / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def env(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a part: this shell's, without what belongs to other hubs, with the guard's mark."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
        return {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", MARK: str(self.root), **extra}

    def _write_nvidia_smi(self) -> None:
        script = self.bin / "nvidia-smi"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mig_spawner.testing.gpu.smi "$@"\n')
        script.chmod(0o755)


def _take(held: ExitStack, port: int) -> int:
    listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except PermissionError as error:
        raise InvalidRequest(f"Port {port} may not be used by this user. Choose one above 1023 with --port.") from error
    except OSError as error:
        raise InvalidRequest(
            f"Port {port} is in use. Stop what listens there, or choose another with --port (0 takes any free one)."
        ) from error
    return int(listener.getsockname()[1])
