"""Where the shipped finder looks for the programs, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mig_spawner.testing.controlplane.program import ProgramsMissing, find_programs
from tests.controlplane.conftest import Machine


def test_the_newest_version_in_the_cache_is_taken_by_number(machine: Machine) -> None:
    for name in ("v1.9.9-aa-go1.26.8", "v1.36.3-bb-go1.26.8", "v1.35.12-cc-go1.26.8"):
        machine.programs(machine.cache / name)
    assert find_programs(machine.environ).name == "v1.36.3-bb-go1.26.8"


def test_what_is_not_whole_does_not_count(machine: Machine) -> None:
    machine.programs(machine.cache / "v1.36.3-aa-go1.26.8", "etcd")
    machine.programs(machine.cache / "v1.36.3-aa-go1.26.8.partial" / "bin")
    machine.programs(machine.cache / "debian-0123456789ab")
    with pytest.raises(ProgramsMissing, match=r"`make controlplane` builds one .*KUBEBUILDER_ASSETS names a folder"):
        find_programs(machine.environ)


def test_the_named_folder_comes_before_the_cache(machine: Machine, tmp_path: Path) -> None:
    machine.programs(machine.cache / "v1.36.3-aa-go1.26.8")
    named = machine.programs(tmp_path / "named")
    assert find_programs({**machine.environ, "KUBEBUILDER_ASSETS": str(named)}) == named
    (named / "etcd").unlink()
    with pytest.raises(ProgramsMissing, match="has no etcd: add what is missing"):
        find_programs({**machine.environ, "KUBEBUILDER_ASSETS": str(named)})
