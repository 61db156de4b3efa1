"""The command `mig-spawner agent`: what it refuses, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.agent.app import TOKEN_VARIABLE, AgentApp, parse_gpus
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.node import DesiredInstance, NodeReport

Allocator = Any
Launch = Callable[..., Awaitable[asyncio.subprocess.Process]]

URL = "--allocator-url=http://127.0.0.1:9"
FAKE = ["--node=node-a", URL, "--driver=fake", "--gpu=a100-80gb"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(TOKEN_VARIABLE, "agent-token-of-the-test")
    monkeypatch.delenv("MIG_NODE_NAME", raising=False)
    before = {name: list(logging.getLogger(name).handlers) for name in ("mig_spawner", "AgentApp")}
    yield
    for name, handlers in before.items():
        logging.getLogger(name).handlers[:] = handlers


@pytest.fixture
async def launch(allocator: Allocator) -> AsyncIterator[Launch]:
    """The agent as a process of its own, talking to the tiny allocator."""
    running: list[asyncio.subprocess.Process] = []

    async def start(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mig_spawner.cli",
            "agent",
            "--node=node-a",
            f"--allocator-url={allocator.url}",
            "--driver=fake",
            *arguments,
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def run(arguments: list[str]) -> None:
    app = AgentApp()
    app.initialize(arguments)
    app.start()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param([], "Say where the allocator is", id="no allocator"),
        pytest.param(["--allocator-url=ftp://x"], "Say where the allocator is", id="no HTTP"),
        pytest.param(["--allocator-url=http://"], "Say where the allocator is", id="no host"),
        pytest.param(["--allocator-url=http://[::1"], "Say where the allocator is", id="no URL"),
        pytest.param(["--bogus=1"], "--bogus is no argument", id="unknown argument"),
        pytest.param(["--AgentApp.mod=static"], "--AgentApp.mod is no argument", id="unknown trait"),
        pytest.param([URL, "stray"], "'stray' is no argument", id="stray word"),
        pytest.param([URL, "--driver=cuda"], "driver", id="unknown driver"),
        pytest.param([URL, "--mode=both"], "mode", id="unknown mode"),
        pytest.param([URL, "--report-interval=soon"], "report_interval", id="no number"),
        pytest.param([*FAKE, "--report-interval=0"], "0.1 to 300 seconds", id="too often"),
        pytest.param([*FAKE, "--report-interval=nan"], "0.1 to 300 seconds", id="not a number"),
        pytest.param([URL, "--driver=fake"], "Say which GPUs to simulate", id="no GPUs"),
        pytest.param([URL, "--driver=fake", "--gpu=gtx-1080"], "'gtx-1080' is no GPU model", id="unknown model"),
        pytest.param([URL, "--driver=fake", "--gpu=thor"], "cannot be simulated", id="model without placements"),
        pytest.param([URL, "--driver=fake", "--gpu=a30:0"], "count of 1 to 16", id="no count"),
        pytest.param([URL, "--driver=fake", "--gpu=a30:many"], "count of 1 to 16", id="count in words"),
        pytest.param([URL, "--driver=fake", "--gpu=a30:9", "--gpu=a30:9"], "at most 16", id="too many"),
        pytest.param([URL, "--gpu=a30"], "add --driver=fake", id="GPUs without the fake driver"),
        pytest.param([*FAKE, "--static-layout=1g.10gb"], "--mode=static", id="layout of a dynamic node"),
        pytest.param(
            [*FAKE, "--mode=static", "--static-layout=4g.40gb,4g.40gb"], "do not fit together", id="impossible layout"
        ),
        pytest.param([*FAKE, "--mode=static", "--static-layout=1g.5gb"], "offers no 1g.5gb", id="foreign profile"),
        pytest.param([*FAKE, "--mode=static", "--static-layout=huge"], "'huge' is no MIG profile", id="no profile"),
        pytest.param([*FAKE, "--token-file=/nowhere/token"], "The token cannot be read", id="no token file"),
        pytest.param([*FAKE, "--config=/nowhere/config.py"], "no configuration file", id="no configuration"),
        pytest.param([f"--node={'x' * 254}", *FAKE[1:]], "1 to 253 characters", id="long node name"),
    ],
)
def test_bad_arguments_give_one_clear_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert sentence in lines[0]
    assert "agent-token-of-the-test" not in lines[0]


@pytest.mark.parametrize("token", ["", "  ", "two\nlines", "umläut"], ids=repr)
def test_without_a_usable_token_it_does_not_start(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    app = AgentApp()
    app.initialize(FAKE)
    with pytest.raises(SystemExit):
        app.start()
    error = capsys.readouterr().err
    assert f"no usable token in ${TOKEN_VARIABLE}" in error
    assert not token.strip() or token not in error


def test_arguments_can_be_written_in_both_ways() -> None:
    app = AgentApp()
    app.initialize(["--node", "node-b", "--gpu", "a100-80gb:2", "--gpu", "a30", "--AgentApp.mode=static"])
    assert (app.node, app.gpus, app.mode) == ("node-b", ["a100-80gb:2", "a30"], "static")
    assert parse_gpus(app.gpus) == ["a100-80gb", "a100-80gb", "a30"]


def test_a_file_configures_it(tmp_path: Path) -> None:
    config = tmp_path / "agent_config.py"
    config.write_text("c = get_config()\nc.AgentApp.mode = 'static'\nc.AgentApp.report_interval = 3\n")
    app = AgentApp()
    app.initialize([f"--config={config}"])
    assert (app.mode, app.report_interval) == ("static", 3.0)


def test_the_node_name_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIG_NODE_NAME", "gpu-7")
    assert AgentApp().node == "gpu-7"


@pytest.mark.parametrize("word", ["a30:1:1", "a30:-1", "a30:17", "a30:\u0661"])
def test_a_count_is_a_small_number(word: str) -> None:
    with pytest.raises(InvalidRequest, match="model:count"):
        parse_gpus([word])


async def test_the_command_itself_refuses_in_one_sentence(launch: Launch) -> None:
    process = await launch("--gpu=thor")
    _, error = await process.communicate()
    assert process.returncode == 1
    assert error.decode().startswith("mig-spawner agent: No public source says")
    assert len(error.decode().strip().splitlines()) == 1


@pytest.mark.parametrize("away", [False, True], ids=["in a long poll", "while the allocator is away"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
async def test_a_signal_ends_it_at_once(
    allocator: Allocator, launch: Launch, away: bool, number: signal.Signals
) -> None:
    process = await launch("--gpu=a100-80gb")
    await allocator.settled()
    if away:
        allocator.away = True
        await allocator.want()
        await allocator.called(2)
    began = time.monotonic()
    process.send_signal(number)
    _, error = await process.communicate()
    assert time.monotonic() - began < 8, "before the next report is due"
    assert process.returncode == 0
    assert b"Traceback" not in error
    assert b"agent-token-of-the-test" not in error


async def test_killed_it_finds_its_devices_again(allocator: Allocator, launch: Launch, state_file: Path) -> None:
    arguments = ("--gpu=a100-80gb", f"--state-file={state_file}")
    process = await launch(*arguments)
    gpu = (await allocator.settled()).gpus[0].gpu_uuid
    await allocator.want((DesiredInstance(lease_id="l1", gpu_uuid=gpu, profile_id=9, start=4, size=4),))
    before = (await allocator.settled()).gpus[0].instances
    process.kill()
    await process.communicate()
    assert SimulatedNode.open(state_file).instances(gpu)[0].mig_uuid == before[0].mig_uuid
    allocator.reports.clear()
    await launch(*arguments)
    report: NodeReport = await allocator.settled()
    assert all(r.gpus[0].instances == before for r in allocator.reports)
    assert report.failures == ()


async def test_a_static_node_is_cut_when_it_starts_and_only_then(
    allocator: Allocator, launch: Launch, state_file: Path
) -> None:
    arguments = (
        "--gpu=a100-80gb:2",
        "--mode=static",
        "--static-layout=1g.10gb,1g.10gb,3g.40gb",
        f"--state-file={state_file}",
    )
    process = await launch(*arguments)
    report: NodeReport = await allocator.settled()
    for gpu in report.gpus:
        assert not gpu.dynamic
        assert sorted(i.profile or "" for i in gpu.instances) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    process.terminate()
    await process.communicate()
    allocator.reports.clear()
    await launch(*arguments)
    assert (await allocator.settled()).gpus == report.gpus
