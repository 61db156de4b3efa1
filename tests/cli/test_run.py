"""`mig-spawner run`, as a process: a slice on this node for one command, given back whatever happens."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mig_spawner.domain.lease import PodFate
from mig_spawner.wire.lease import LeaseDocument
from tests.allocator.rig import Rig, until
from tests.cli.conftest import Program, Start

SECONDS = 60
SCRIPT = """
import json, os, pathlib, signal, sys, time
told = pathlib.Path("told")
def tell(text):
    with told.open("a") as file:
        file.write(text + "\\n")
def note(number, frame):
    tell(signal.Signals(number).name)
    if number == signal.SIGTERM and "stubborn" not in sys.argv:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, note)
tell("up")
while True:
    time.sleep(0.01)
"""


@pytest.fixture
async def node(rig: Rig) -> AsyncIterator[None]:
    """Node n1, whose agent does what it is told, and another one."""
    await rig.node("n1")
    await rig.node("n2", ("h100-80gb",))

    async def obey() -> None:
        while True:
            for node in rig.nodes.values():
                await node.turn()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(obey())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def told(tmp_path: Path) -> list[str]:
    file = tmp_path / "told"
    return file.read_text(encoding="utf-8").split() if file.exists() else []


async def up(program: Program, tmp_path: Path) -> None:
    async def runs() -> bool:
        assert program.process.returncode is None, await program.end()
        return told(tmp_path) == ["up"]

    await until(runs, SECONDS)


async def held(rig: Rig) -> tuple[LeaseDocument, ...]:
    """What is held by others than the tests' own."""
    return tuple(lease for lease in (await rig.hub.leases()).leases if lease.holder.user_id.startswith("name:"))


async def given_back(rig: Rig) -> None:
    async def nothing() -> bool:
        leases = await held(rig)
        assert all(lease.state in ("releasing", "closed") for lease in leases), leases
        return not leases

    await until(nothing, SECONDS)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("where", ["n1", "n2"])
async def test_a_command_sees_its_slice_on_its_node(rig: Rig, start: Start, where: str) -> None:
    words = [
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "MIG_DEVICE_UUID",
        "MIG_PROFILE",
        "GPU_MEM_LIMIT",
        "MIG_LEASE_ID",
    ]
    code = f"import json, os; print(json.dumps([os.environ[name] for name in {words}]))"
    program = await start(
        *("run", "--node", where, "--profile", "1g.10gb", "--", sys.executable, "-c", code), MIG_PROFILE="of the parent"
    )
    ended = await program.end()
    assert ended.code == 0, ended.err
    cuda, nvidia, device, profile, memory, lease_id = json.loads(ended.out)
    assert cuda == nvidia == device
    assert device.startswith(f"MIG-GPU-{where}-0-")
    assert (profile, int(memory) > 9 * 2**30) == ("1g.10gb", True)
    lease = await rig.hub.lease(lease_id)
    assert lease.holder.server_name.startswith("run-")
    assert (lease.placement is not None and lease.placement.node, lease.reason) == (where, "stopped")
    await given_back(rig)


@pytest.mark.usefixtures("node")
async def test_a_whole_gpu_is_no_mig_device(rig: Rig, start: Start) -> None:
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], '|', os.environ['MIG_PROFILE'])"
    program = await start("run", "--node", "n1", "--whole", sys.executable, "-c", code, MIG_PROFILE="of the parent")
    ended = await program.end()
    assert (ended.code, ended.out) == (0, "GPU-n1-0 | \n")


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([sys.executable, "-c", "import sys; sys.exit(41)"], 41),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 137),
        (["no-such-command"], 127),
        (["/etc/passwd"], 126),
        (["./text"], 126),
    ],
    ids=["its own code", "killed", "not there", "not executable", "no program"],
)
async def test_the_exit_code(rig: Rig, start: Start, tmp_path: Path, command: list[str], code: int) -> None:
    text = tmp_path / "text"
    text.write_text("\x00no program", encoding="utf-8")
    text.chmod(0o755)
    ended = await (await start("run", "--node", "n1", "--profile", "1g.10gb", "--", *command)).end()
    assert (ended.code, ended.out) == (code, "")
    await given_back(rig)


@pytest.mark.usefixtures("node")
async def test_signals_reach_the_command_and_its_end_is_ours(
    rig: Rig, start: Start, tmp_path: Path, script: str
) -> None:
    program = await start("run", "--node", "n1", "--profile", "1g.10gb", "--", sys.executable, script)
    await up(program, tmp_path)
    [lease] = await held(rig)
    assert lease.state == "active"
    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        program.process.send_signal(number)
        await until(lambda number=number: _has(tmp_path, number.name), SECONDS)  # type: ignore[misc]
    program.process.send_signal(signal.SIGTERM)
    assert (await program.end()).code == 7
    assert told(tmp_path) == ["up", "SIGUSR1", "SIGINT", "SIGHUP", "SIGTERM"]
    await given_back(rig)


async def _has(tmp_path: Path, word: str) -> bool:
    return word in told(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_who_is_interrupted_in_the_queue_leaves_it(rig: Rig, start: Start, number: signal.Signals) -> None:
    await rig.node("n1")
    await rig.active("1", "7g.80gb")
    program = await start("run", "--node", "n1", "--profile", "7g.80gb", "--", "true")
    assert program.process.stderr is not None
    assert b"number 1 of 1" in await asyncio.wait_for(program.process.stderr.readline(), SECONDS)
    program.process.send_signal(number)
    assert (await program.end()).code == 128 + number
    assert await held(rig) == ()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("how", ["willing", "stubborn"])
async def test_a_command_whose_lease_ends_is_ended(
    rig: Rig, start: Start, tmp_path: Path, script: str, how: str
) -> None:
    program = await start(
        *("run", "--node", "n1", "--profile", "1g.10gb", "--renew-every", "0.05s", "--grace", "0.2s"),
        *("--", sys.executable, script, how),
    )
    await up(program, tmp_path)
    [lease] = await held(rig)
    await rig.release(lease, PodFate.UNKNOWN)
    ended = await program.end()
    assert ended.code == (7 if how == "willing" else 137)
    assert "This lease has ended." in ended.err
    assert told(tmp_path) == ["up", "SIGTERM"]


@pytest.mark.usefixtures("node")
async def test_it_is_renewed_for_as_long_as_it_runs(rig: Rig, start: Start, tmp_path: Path, script: str) -> None:
    program = await start(
        *("run", "--node", "n1", "--profile", "1g.10gb", "--renew-every", "0.05s", "--", sys.executable, script)
    )
    await up(program, tmp_path)
    [lease] = await held(rig)
    rig.clock.move(200)
    before = _seen_at(rig, lease)
    await until(lambda: _is_newer(rig, lease, before), SECONDS)
    assert (await rig.state(lease)).state == "active"
    program.process.send_signal(signal.SIGTERM)
    assert (await program.end()).code == 7


def _seen_at(rig: Rig, lease: LeaseDocument) -> object:
    with rig.app.desk.store.reading() as tx:
        return getattr(tx.lease(lease.lease_id), "seen_at", None)


async def _is_newer(rig: Rig, lease: LeaseDocument, than: object) -> bool:
    return _seen_at(rig, lease) != than


async def test_without_a_slice_the_command_is_not_run(rig: Rig, start: Start, tmp_path: Path, script: str) -> None:
    await rig.node("n1")
    await rig.active("1", "7g.80gb")
    run = ("run", "--node", "n1")
    full = await start(*run, "--profile", "7g.80gb", "--wait-budget", "0", "--", sys.executable, script)
    elsewhere = await start("run", "--node", "n9", "--profile", "1g.10gb", "--", sys.executable, script)
    away = await start(*run, "--whole", "--url", "http://127.0.0.1:1", "--", sys.executable, script)
    for program, says in ((full, "has ended"), (elsewhere, "a node n9 is known"), (away, "does not answer")):
        ended = await program.end()
        assert ended.code == 125
        assert says in ended.err
    assert told(tmp_path) == []
    assert await held(rig) == ()


async def test_a_lease_bound_to_a_node_waits_for_it_whatever_else_is_free(rig: Rig) -> None:
    await rig.node("n1")
    mine = await rig.active("1", "7g.80gb")
    await rig.node("n2")
    bound = await rig.acquire("2", "7g.80gb", node="n1")
    assert bound.state == "queued"
    assert "on node n1 alone" in bound.detail
    # Whoever waits for n1 stands in nobody's way elsewhere, and no time and no new node changes that.
    assert (await rig.acquire("3", "7g.80gb")).state == "granted"
    await rig.node("n3", ("a100-80gb", "a100-80gb"))
    for _ in range(3):
        await rig.hub.renew(mine.lease_id)
        for node in rig.nodes.values():
            await node.report()
        await rig.tick(100)
        assert (await rig.state(bound)).state == "queued"
    await rig.release(mine)
    await rig.nodes["n1"].turn(3)
    placed = (await rig.state(bound)).placement
    assert placed is not None
    assert placed.node == "n1"
