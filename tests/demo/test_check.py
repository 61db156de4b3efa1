"""The whole demo, as a person runs it: the tour, Ctrl-C, and what the command says to bad arguments."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time

import pytest

from mig_spawner.testing.kube.audit import created
from tests.controlplane.fixture import assets_or_skip
from tests.demo.command import Command
from tests.kube.referee import Referee

pytestmark = pytest.mark.hub


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_scripted_tour_passes_in_time_and_leaves_nothing(
    command: Command, referee: Referee | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Two cores are enough for 120 s; others who work on this machine at the same time get their share.
    limit_s = 120 * max(1.0, os.getloadavg()[0] / 2)
    began = time.monotonic()
    logs = tmp_path_factory.mktemp("logs")
    status, output = command.run("demo", "--check", "--logs", str(logs), timeout_s=280)
    assert status == 0, output
    assert output.count("✓") >= 10, output
    assert time.monotonic() - began < limit_s, output
    assert command.left_processes() == []
    assert command.left_files() == []
    audit_log = logs / "kubernetes-audit.log"
    assert len(list(created(audit_log, "pods"))) >= 4
    if referee is not None:
        referee.judge(audit_log)


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.timeout(300)
def test_the_tour_passes_on_a_real_kubernetes_and_leaves_nothing(command: Command) -> None:
    assets_or_skip()
    status, output = command.run("demo", "--check", "--kube", "real", timeout_s=280)
    assert status == 0, output
    assert re.search(r"✓ Kubernetes \(real\) and the kubelet  1\.\d\d", output), output
    assert output.count("✓") >= 10, output
    assert command.left_processes() == []
    assert command.left_files() == []


@pytest.mark.slow
@pytest.mark.controlplane
def test_a_real_kubernetes_ends_with_a_demo_that_is_killed(command: Command) -> None:
    assets_or_skip()
    process = command.start("demo", "--port", "0", "--gpu", "a100-80gb:1", "--kube", "real")
    read_until(process, "✓ Kubernetes (real)")
    assert any("kube-scheduler" in line for line in command.left_processes())
    process.kill()
    process.communicate(timeout=30)
    command.wait_until_clean()


def test_without_the_programs_of_a_real_kubernetes_one_sentence_says_how_to_get_them(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(command.tmp.parent / "no-cache"))
    status, output = command.run("demo", "--kube", "real", "--port", "0")
    assert status == 1
    said = " ".join(output.split())
    assert said.startswith("A real Kubernetes needs a Kubernetes control plane: `make controlplane` builds one"), said
    assert "KUBEBUILDER_ASSETS" in said
    assert command.left_files() == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_running_demo_that_is_ended_leaves_nothing(command: Command, how: signal.Signals) -> None:
    process = command.start("demo", "--port", "0", "--gpu", "a100-80gb:1")
    output = read_until(process, "Ctrl-C ends the demo")
    assert "SIMULATED" in output
    assert "alice, bob, carol, dave" in output
    assert command.left_processes() != []
    process.send_signal(how)
    rest, _ = process.communicate(timeout=30)
    if how is not signal.SIGKILL:
        assert process.returncode == 0, rest
        assert "its files are gone" in rest
    command.wait_until_clean()


@pytest.mark.slow
def test_ctrl_c_while_it_starts_leaves_nothing(command: Command) -> None:
    process = command.start("demo", "--port", "0")
    read_until(process, "The proxy")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    command.wait_until_clean()


@pytest.mark.slow
def test_logs_are_kept_where_they_were_wanted(command: Command, tmp_path_factory: pytest.TempPathFactory) -> None:
    logs = tmp_path_factory.mktemp("logs")
    process = command.start("demo", "--port", "0", "--logs", str(logs))
    read_until(process, "Ctrl-C ends the demo")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert f"Logs are in {logs}" in rest
    assert {p.name for p in logs.iterdir()} >= {"hub.log", "allocator.log", "proxy.log", "pods"}
    assert "JupyterHub is now running" in (logs / "hub.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--gpu", "tpu-v5:1"], "a100-80gb", id="unknown model"),
        pytest.param(["--users", "0"], "from 1 to 50, not 0", id="nobody"),
        pytest.param(["--users", "1000"], "from 1 to 50, not 1000", id="a crowd"),
        pytest.param(["--check", "--gpu", "a30:1"], "Leave --gpu and --menu out", id="gpus for the tour"),
        pytest.param(["--menu", "missing.yaml"], "cannot be read", id="menu"),
    ],
)
def test_a_bad_argument_gets_a_sentence_and_no_traceback(command: Command, arguments: list[str], sentence: str) -> None:
    status, output = command.run("demo", *arguments)
    assert status == 2
    assert sentence in " ".join(output.split())
    assert "Traceback" not in output
    assert command.left_files() == []


def test_a_port_in_use_gets_a_sentence(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, output = command.run("demo", "--port", str(port))
    assert status == 1
    assert f"Port {port} is in use" in output
    assert "Traceback" not in output
    assert command.left_files() == []


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What the command writes, up to the line with this text."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    pytest.fail(f"the demo ended without saying {text!r}:\n{seen}")
