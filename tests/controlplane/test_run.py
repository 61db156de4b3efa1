"""The control plane comes up, ends without a trace, and says why when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config, watch

from mig_spawner.errors import DemoFailed
from mig_spawner.testing.controlplane.certificate import Keys
from mig_spawner.testing.controlplane.command import CONTROLLERS, HOST, Layout, Ports
from mig_spawner.testing.controlplane.program import PROGRAMS
from mig_spawner.testing.controlplane.run import ControlPlane, Panicked
from mig_spawner.testing.kube import KubeUser
from mig_spawner.testing.process import until

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).resolve().parents[2]
START_S = 15.0
GUEST = KubeUser('guest, "the first"', ("visitors", "guests"))


async def test_it_starts_quickly_and_is_a_current_kubernetes(control_plane: ControlPlane) -> None:
    assert control_plane.started_in_s < START_S
    assert control_plane.version >= (1, 34)
    assert sorted(control_plane.pids) == sorted(PROGRAMS)
    assert control_plane.panics() == []


async def test_no_token_is_seen_by_others(control_plane: ControlPlane) -> None:
    token = control_plane.token()
    assert token not in repr(control_plane)
    for pid in control_plane.pids.values():
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    folder = control_plane.logs["etcd"].parent
    holding = [path for path in folder.iterdir() if path.is_file() and token in path.read_text(errors="replace")]
    assert {path.name for path in holding} == {"tokens.csv", "controlplane.yaml"}
    assert [path for path in holding if path.stat().st_mode & 0o077] == []


async def test_it_listens_on_loopback_alone(control_plane: ControlPlane) -> None:
    sockets = {
        target.removeprefix("socket:[").removesuffix("]")
        for pid in control_plane.pids.values()
        for target in _open_files(pid)
        if target.startswith("socket:[")
    }
    listening = [
        line.split()[1].partition(":")[0]
        for table in map(Path, ("/proc/net/tcp", "/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()
        if line.split()[3] == "0A" and line.split()[9] in sockets
    ]
    assert listening == ["0100007F"] * 5


async def test_a_whole_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control_plane: ControlPlane) -> None:
    """A port that is taken is no obstacle; the API server comes back; a panic is not overlooked; nothing is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    plane = ControlPlane(control_plane.assets, users=[GUEST])
    taken = socket.create_server((HOST, 0))
    free, tries = Ports.free, list[Ports]()

    def ports() -> Ports:
        found = free()
        tries.append(found if tries else replace(found, etcd=taken.getsockname()[1]))
        return tries[-1]

    monkeypatch.setattr(Ports, "free", ports)
    with taken:
        await plane.__aenter__()
    assert len(tries) == 2
    folder, pids = plane.logs["etcd"].parent, list(plane.pids.values())
    assert folder.parent == tmp_path
    try:
        await _meet_the_guest(plane, tmp_path)
        await _cut_a_watch(plane, tmp_path)
        with plane.logs["etcd"].open("a") as log:
            log.write("goroutine 7: panic: at the disco\n")
            log.write("post-timeout activity - panicked: false, err: <nil>, panic-reason: <nil>\n")
        assert plane.panics() == ["etcd: goroutine 7: panic: at the disco"]
    finally:
        with pytest.raises(Panicked, match=r"etcd: goroutine 7: panic: at the disco"):
            await plane.__aexit__(None, None, None)
    for pid in pids:
        assert await _ended(pid)
    assert not folder.exists()
    assert plane.pids == {}
    with pytest.raises(RuntimeError, match="while it does not run"):
        _ = plane.url


async def _meet_the_guest(plane: ControlPlane, folder: Path) -> None:
    """A user of the test's own is who we said, comma, quotes and all."""
    path = plane.kubeconfig(folder / "guest.yaml", GUEST.name)
    async with await config.new_client_from_config(str(path)) as guest:
        api: Any = client.AuthenticationV1Api(guest)
        review = await api.create_self_subject_review({})
    assert review.status.user_info.username == GUEST.name
    assert set(review.status.user_info.groups) >= set(GUEST.groups)


async def _cut_a_watch(plane: ControlPlane, folder: Path) -> None:
    """A watch ends, its continuation from long ago is 410, and what was stored is still there."""
    async with await config.new_client_from_config(str(plane.kubeconfig(folder / "admin.yaml"))) as admin:
        core: Any = client.CoreV1Api(admin)
        version = (await core.list_namespace()).metadata.resource_version
        seen = list[str]()
        watching = asyncio.create_task(_watch(core, version, seen.append))
        await core.create_namespace({"metadata": {"name": "mark"}})
        await until(lambda: _true("mark" in seen), timeout_s=20, seen="the watch saw nothing")
        await plane.cut_watches()
        with contextlib.suppress(aiohttp.ClientPayloadError):  # cut in the middle, as when a server dies
            await asyncio.wait_for(watching, 20)
        with pytest.raises(client.ApiException) as gone:
            await _watch(core, version, seen.append)
        assert gone.value.status == 410
        assert (await core.read_namespace("mark")).metadata.name == "mark"


@pytest.mark.parametrize(
    ("etcd", "server", "message"),
    [
        (
            "echo the disk is on fire; exit 3",
            "echo Kubernetes v1.36.3",
            r"(?s)etcd ended by itself.*the disk is on fire",
        ),
        ("sleep 30", "exit 1", "kube-apiserver does not run"),
        ("sleep 30", "echo Kubernetes", "tells no version but"),
    ],
)
async def test_a_program_that_does_not_come_up_says_why(tmp_path: Path, etcd: str, server: str, message: str) -> None:
    for name, body in (("etcd", etcd), ("kube-apiserver", server)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    plane = ControlPlane(tmp_path, folder=tmp_path / "run")
    with pytest.raises(DemoFailed, match=message):
        await plane.__aenter__()
    with pytest.raises(RuntimeError, match="while it does not run"):
        _ = plane.url


async def test_a_parent_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; from mig_spawner.testing.controlplane.tether import tethered; "
        "child = subprocess.Popen(tethered(['/bin/sleep', '60'])); print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        await until(lambda: _command(child, "/bin/sleep"), timeout_s=10)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await until(lambda: _ended(child), timeout_s=10)


def test_an_unknown_user_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'mallory' is no user of this control plane; there are: admin, system:serv"):
        ControlPlane(tmp_path).token("mallory")


def test_an_old_kubernetes_gets_the_words_it_knows(tmp_path: Path) -> None:
    keys = Keys(*(tmp_path / name for name in ("ca", "crt", "key", "sa")))
    new, old = (Layout(tmp_path, tmp_path, keys, Ports(1, 2, 3, 4, 5), version) for version in ((1, 36), (1, 20)))
    assert "--port=0" in old.scheduler()
    assert "--port=0" not in new.scheduler()
    assert f"--controllers={','.join(CONTROLLERS)}" in new.controllers()
    assert not any("resourceclaim" in word or "-controller," in word for word in old.controllers())


async def _watch(core: Any, version: str, report: Callable[[str], None]) -> None:
    async with watch.Watch() as stream:
        async for event in stream.stream(core.list_namespace, resource_version=version, timeout_seconds=120):
            report(event["object"].metadata.name)


async def _true(answer: bool) -> bool:
    return answer


async def _command(pid: int, program: str) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(program.encode())


async def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            found.append(str(link.readlink()))
    return found
