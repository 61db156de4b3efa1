"""The command lines of the control plane's four programs, for Kubernetes 1.34 and newer and for Debian's 1.20."""

from __future__ import annotations

import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.errors import DemoFailed
from mig_spawner.testing.controlplane.certificate import Keys

HOST: Final = "127.0.0.1"

# What pods, claims, quotas, nodes and namespaces need, and no more: each controller costs memory and start-up time.
CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "taint-eviction-controller",
)
_OLD_CONTROLLERS: Final = (
    "clusterrole-aggregation",
    "disruption",
    "garbagecollector",
    "namespace",
    "nodelifecycle",
    "persistentvolume-binder",
    "podgc",
    "pv-protection",
    "pvc-protection",
    "resourcequota",
    "root-ca-cert-publisher",
    "serviceaccount",
    "serviceaccount-token",
)
_OLD: Final = (1, 24)
"""Before it the insecure port had to be switched off, and controllers had other names."""


@dataclass(frozen=True)
class Ports:
    """One for each thing that listens, all on the loopback address."""

    api: int
    etcd: int
    etcd_peer: int
    controllers: int
    scheduler: int

    @classmethod
    def free(cls) -> Ports:
        """Ports that are free at this moment, and distinct: all are held until all are found."""
        taken = [socket.socket() for _ in range(5)]
        try:
            for sock in taken:
                sock.bind((HOST, 0))
            return cls(*(sock.getsockname()[1] for sock in taken))
        finally:
            for sock in taken:
                sock.close()


@dataclass(frozen=True)
class Layout:
    """Where everything of one control plane is."""

    assets: Path
    folder: Path
    keys: Keys
    ports: Ports
    version: tuple[int, int]
    """Of Kubernetes, `(1, 36)`."""

    @property
    def tokens(self) -> Path:
        """The token file: who may log in with what."""
        return self.folder / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        """What controllers and scheduler log in with."""
        return self.folder / "controlplane.yaml"

    @property
    def api_url(self) -> str:
        return f"https://{HOST}:{self.ports.api}"

    @property
    def etcd_url(self) -> str:
        return f"http://{HOST}:{self.ports.etcd}"

    def etcd(self) -> list[str]:
        """A store that never waits for the disk: nothing outlives the test session."""
        peer = f"http://{HOST}:{self.ports.etcd_peer}"
        return [
            str(self.assets / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def api_server(self) -> list[str]:
        """RBAC as in a cluster; users by token; addresses of services from a range that nobody routes."""
        return [
            str(self.assets / "kube-apiserver"),
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={self.ports.api}",
            f"--tls-cert-file={self.keys.certificate}",
            f"--tls-private-key-file={self.keys.key}",
            f"--token-auth-file={self.tokens}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self.keys.service_account_key}",
            f"--service-account-key-file={self.keys.service_account_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            # No endpoint of ourselves: there is no pod that would look for it.
            "--endpoint-reconciler-type=none",
        ]

    def controllers(self) -> list[str]:
        """Quick: a namespace is emptied with hundreds of requests, and tests make many."""
        names = _OLD_CONTROLLERS if self.version < _OLD else CONTROLLERS
        return [
            str(self.assets / "kube-controller-manager"),
            *self._client(self.ports.controllers),
            f"--controllers={','.join(names)}",
            f"--root-ca-file={self.keys.ca}",
            f"--service-account-private-key-file={self.keys.service_account_key}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def scheduler(self) -> list[str]:
        return [str(self.assets / "kube-scheduler"), *self._client(self.ports.scheduler)]

    def _client(self, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            *(["--port=0"] if self.version < _OLD else []),
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={self.keys.certificate}",
            f"--tls-private-key-file={self.keys.key}",
        ]


def kubernetes_version(assets: Path) -> tuple[int, int]:
    """As the API server's program tells it.

    Raises:
        DemoFailed: when it cannot be run, or tells none.
    """
    program = assets / "kube-apiserver"
    try:
        told = subprocess.run(  # noqa: S603 - a program that the user named or built
            [program, "--version"], capture_output=True, text=True, timeout=60, check=True, env={}
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise DemoFailed(f"{program} does not run: {error}.") from error
    found = re.search(r"v(\d+)\.(\d+)", told)
    if found is None:
        raise DemoFailed(f"{program} tells no version but {told!r}.")
    return int(found[1]), int(found[2])
