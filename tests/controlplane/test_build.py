"""Building: once, whole or not at all, told as it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mig_spawner.testing.controlplane.program import PROGRAMS, ProgramsMissing
from mig_spawner.testing.process import until
from tests.controlplane import assets, build
from tests.controlplane.conftest import Machine
from tests.controlplane.pin import MODULES, find_go

ROOT = Path(__file__).resolve().parents[2]


def test_all_four_are_built_and_nothing_else_stays(machine: Machine) -> None:
    built = assets.provide(machine.environ, list[str]().append)
    assert sorted(path.name for path in built.iterdir()) == sorted(PROGRAMS)
    assert machine.left() == [built.name]


def test_what_the_machine_has_set_for_go_does_not_change_what_comes_out(machine: Machine) -> None:
    assets.provide({**machine.environ, "GOFLAGS": "-mod=mod", "GOCACHE": "/somewhere"}, list[str]().append)
    assert len(machine.builds) == len(MODULES)
    for line in machine.builds:
        assert "GOFLAGS=-mod=readonly " in line
        assert f"GOCACHE={machine.cache}" in line


def test_progress_says_which_part_how_far_and_for_how_long(machine: Machine, tmp_path: Path) -> None:
    gate, said = tmp_path / "gate", list[str]()
    environ = {**machine.environ, "FAKE_GO_GATE": str(gate)}

    def say(line: str) -> None:
        said.append(line)
        if sum(" 0 of 3 packages compiled" in line for line in said) == 3:
            gate.touch()

    build.build(machine.cache / "target", find_go(environ), environ, say, every_s=0.05)
    kubernetes = [line for line in said if line.startswith("kubernetes v1.")]
    assert kubernetes[0].endswith("fetching its modules, 0 s")
    assert " 2 of 3 packages compiled, " in kubernetes[-1]
    assert sum(line.startswith("etcd v3.") for line in said) >= 4
    assert said[-1].startswith("built in ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("no-compile", r"(?s)could not build etcd v3.*syntax error"), ("no-scheduler", "without kube-scheduler")],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(machine: Machine, wrong: str, message: str) -> None:
    with pytest.raises(ProgramsMissing, match=message):
        assets.provide({**machine.environ, "FAKE_GO": wrong}, list[str]().append)
    assert machine.left() == []
    assert assets.provide(machine.environ, list[str]().append).is_dir()


async def test_two_at_once_build_once(machine: Machine, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with started(machine, tmp_path / "first", gate) as first:
        await until(lambda: _true(bool(machine.builds)), timeout_s=20, seen="no build began")
        with started(machine, tmp_path / "second", gate) as second:
            waiting = "another process builds the control plane, waiting for it"
            await until(lambda: _true(waiting in text(tmp_path / "second.err")), timeout_s=20, seen="nobody waits")
            gate.touch()
            assert first.wait(20) == second.wait(20) == 0, text(tmp_path / "first.err") + text(tmp_path / "second.err")
    assert text(tmp_path / "first.out") == text(tmp_path / "second.out")
    assert Path(text(tmp_path / "first.out").strip()).is_relative_to(machine.cache)
    assert len(machine.builds) == len(MODULES)


async def test_a_builder_that_is_killed_takes_its_compiler_along_and_the_next_one_starts_over(
    machine: Machine, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with started(machine, tmp_path / "first", gate) as first:
        await until(lambda: _true(bool(machine.builds)), timeout_s=20, seen="no build began")
        first.kill()
        first.wait()
    compiler = int(machine.builds[0].split()[0])
    await until(lambda: _true(not _alive(compiler)), timeout_s=20, seen="the compiler goes on")
    assert [name.rpartition(".")[2] for name in machine.left()] == ["partial"]
    built = assets.provide(machine.environ, list[str]().append)
    assert machine.left() == [built.name]


def test_without_a_way_the_command_says_one_sentence_and_fails(machine: Machine, tmp_path: Path) -> None:
    environ = {**machine.environ, "KUBEBUILDER_ASSETS": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, "tests/controlplane/assets.py"], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("controlplane: KUBEBUILDER_ASSETS=")
    assert done.stderr.count("\n") == 1


def test_as_a_module_it_prints_the_folder_alone(machine: Machine, tmp_path: Path) -> None:
    named = machine.programs(tmp_path / "named")
    environ = {**machine.environ, "KUBEBUILDER_ASSETS": str(named)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.controlplane"], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{named}\n", "")


@contextmanager
def started(machine: Machine, name: Path, gate: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, its output in `{name}.out` and `{name}.err`, its builds held up by the gate."""
    with Path(f"{name}.out").open("wb") as out, Path(f"{name}.err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.controlplane"],
            cwd=ROOT,
            env={**machine.environ, "FAKE_GO_GATE": str(gate)},
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def _true(answer: bool) -> bool:
    return answer


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
