"""A real Kubernetes control plane: etcd, API server, controllers and scheduler as processes of this machine.

    async with ControlPlane(find_programs(os.environ)) as plane:
        kubeconfig = plane.kubeconfig(folder / "hub.yaml", "system:serviceaccount:hub:hub")

No kubelet: nodes are what somebody registers. It listens on the loopback address only, and dies with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import re
import secrets
import shutil
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Self

import httpx
import yaml

from mig_spawner.errors import DemoFailed
from mig_spawner.testing.controlplane.certificate import make_keys
from mig_spawner.testing.controlplane.command import HOST, Layout, Ports, kubernetes_version
from mig_spawner.testing.controlplane.tether import tethered
from mig_spawner.testing.kube import KubeUser
from mig_spawner.testing.process import Part

ADMIN: Final = KubeUser("admin", ("system:masters",))
HUB: Final = KubeUser(
    "system:serviceaccount:hub:hub", ("system:serviceaccounts", "system:serviceaccounts:hub", "system:authenticated")
)
"""May do nothing until a role binding says so."""

READY_S: Final = 60.0
"""For one program, on a machine that is busy with other things."""
STOP_S: Final = 3.0
TRIES: Final = 3
"""Somebody may take a port between the moment it was found free and the moment it is used."""
_PANIC: Final = re.compile(r"\bpanic(ked)?\b(?!Total|: false|-reason: <nil>)", re.IGNORECASE)
"""But not what the API server says of a request that outlived its time and did not panic."""


class Panicked(DemoFailed):
    """A program of the control plane panicked: what was seen meanwhile is worth nothing."""


class ControlPlane:
    """One control plane, from `async with` to its end.

    Args:
        assets: the folder with the four programs.
        users: who may log in besides `ADMIN` and `HUB`; each gets a token of its own.
        folder: where keys, data and logs go; by default a temporary folder that is removed at the end.
        environ: added to the environment of all programs, which have next to nothing of ours otherwise.

    Raises:
        DemoFailed: on entering, when a program does not come up, with the last lines of its log.
        Panicked: on leaving, when a program panicked.
    """

    def __init__(
        self,
        assets: Path,
        *,
        users: Iterable[KubeUser] = (),
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = dict(environ or {})
        self.assets = assets.absolute()
        self._folder = folder
        self._users = {user.name: user for user in (ADMIN, HUB, *users)}
        self._tokens = {name: secrets.token_urlsafe(24) for name in self._users}
        self._layout: Layout | None = None
        self._parts: list[Part] = []
        self._panics: list[str] = []
        self._stack = contextlib.AsyncExitStack()
        self.started_in_s = 0.0
        """How long the start took."""

    def __repr__(self) -> str:
        return f"ControlPlane({str(self.assets)!r}, users={sorted(self._users)})"

    async def __aenter__(self) -> Self:
        began = time.monotonic()
        for tries_left in reversed(range(TRIES)):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    await self._start(stack)
                    self._stack = stack.pop_all()
                    break
                except DemoFailed as error:
                    if "address already in use" not in str(error) or not tries_left:
                        raise
        self.started_in_s = time.monotonic() - began
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        await self._stack.aclose()
        if self._panics:
            panicked = Panicked("the control plane panicked:\n" + "\n".join(self._panics))
            if error is None:
                raise panicked
            error.add_note(str(panicked))

    @property
    def url(self) -> str:
        """Of the API server, without a slash at the end."""
        return self._running.api_url

    @property
    def ca_file(self) -> Path:
        """The authority that signed the API server's certificate."""
        return self._running.keys.ca

    @property
    def version(self) -> tuple[int, int]:
        """Of Kubernetes, `(1, 36)`."""
        return self._running.version

    @property
    def logs(self) -> dict[str, Path]:
        """The log of each program."""
        return {part.name: part.log for part in self._parts}

    @property
    def pids(self) -> dict[str, int]:
        """The process of each program that was started."""
        return {part.name: part.pid for part in self._parts if part.pid is not None}

    def token(self, user: str = ADMIN.name) -> str:
        """The bearer token of one of the users."""
        try:
            return self._tokens[user]
        except KeyError:
            raise ValueError(
                f"{user!r} is no user of this control plane; there are: {', '.join(self._users)}"
            ) from None

    def kubeconfig(self, path: Path, user: str = ADMIN.name, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for one of the users, by name, and return the absolute path."""
        return self.write_kubeconfig(path, token=self.token(user), namespace=namespace)

    def write_kubeconfig(self, path: Path, *, token: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig with any token, known or not; without one it is anonymous. As `EmbeddedKube` has it."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "real", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real", "namespace": namespace}}],
            "current-context": "real",
        }
        path = path.absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def panics(self) -> list[str]:
        """Lines of the logs that speak of a panic, each after the program's name."""
        return [
            f"{part.name}: {line}"
            for part in self._parts
            if part.log.exists()
            for line in part.log.read_text(errors="replace").splitlines()
            if _PANIC.search(line)
        ]

    async def cut_watches(self) -> None:
        """Kill the API server and start it again at the same address: every watch is cut.

        A watch that wants to go on from before is told 410 Gone. Takes some seconds; stored objects stay.
        """
        api = self._part("kube-apiserver")
        await api.kill()
        await api.start()
        await api.ready(self._answers(f"{self.url}/readyz"), timeout_s=READY_S)

    @property
    def _running(self) -> Layout:
        if self._layout is None:
            raise RuntimeError("ControlPlane has no address while it does not run: use `async with`")
        return self._layout

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        self._parts = []
        folder = self._make_folder(stack)
        version = await asyncio.to_thread(kubernetes_version, self.assets)
        layout = Layout(self.assets, folder, make_keys(folder, HOST), Ports.free(), version)
        self._layout = layout
        stack.callback(self._end)
        self._write_tokens(layout.tokens)
        self.kubeconfig(layout.kubeconfig)

        etcd = await self._begin(stack, "etcd", layout.etcd())
        await etcd.ready(self._answers(f"{layout.etcd_url}/health"), timeout_s=READY_S)
        api = await self._begin(stack, "kube-apiserver", layout.api_server())
        await api.ready(self._answers(f"{self.url}/readyz"), timeout_s=READY_S)
        # These two need the API server, not each other.
        controllers = await self._begin(stack, "kube-controller-manager", layout.controllers())
        scheduler = await self._begin(stack, "kube-scheduler", layout.scheduler())
        account = f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        await controllers.ready(self._answers(account), timeout_s=READY_S)
        healthz = f"https://{HOST}:{layout.ports.scheduler}/healthz"
        await scheduler.ready(self._answers(healthz), timeout_s=READY_S)

    def _make_folder(self, stack: contextlib.AsyncExitStack) -> Path:
        folder = Path(self._folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="controlplane-")))
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "etcd", ignore_errors=True)  # of a first try
        return folder

    async def _begin(self, stack: contextlib.AsyncExitStack, name: str, argv: list[str]) -> Part:
        """Start a program that ends when the stack is unwound."""
        folder = self._running.folder
        # None of this machine's settings, proxies least of all.
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder), **self._environ}
        log = folder / f"{name}.log"
        log.unlink(missing_ok=True)
        part = Part(name, tethered(argv), env, log, folder)
        self._parts.append(part)
        stack.push_async_callback(part.stop, STOP_S)
        await part.start()
        return part

    def _answers(self, url: str) -> Callable[[], Awaitable[bool]]:
        """Asks, as the admin, whether there is a 200 at `url`."""
        context = ssl.create_default_context(cafile=self.ca_file)
        headers = {"Authorization": f"Bearer {self.token()}"} if url.startswith(self.url) else {}

        async def ask() -> bool:
            async with httpx.AsyncClient(verify=context, headers=headers, timeout=5, trust_env=False) as http:
                try:
                    return (await http.get(url)).status_code == httpx.codes.OK
                except httpx.HTTPError:
                    return False

        return ask

    def _end(self) -> None:
        """All programs have ended, the folder is still there."""
        self._panics = self.panics()
        self._layout, self._parts = None, []

    def _part(self, name: str) -> Part:
        return next(part for part in self._parts if part.name == name)

    def _write_tokens(self, path: Path) -> None:
        path.touch(mode=0o600)
        with path.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for user in self._users.values():
                rows.writerow([self._tokens[user.name], user.name, user.name, ",".join(user.groups)])
