"""What runs inside the container, as a process on the imitation of NVML: the same words as in a pod, and no nvidia-smi anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes_asyncio.client import V1Container, V1ObjectMeta, V1Pod, V1PodSpec

from mig_spawner.spawner.check import inside
from mig_spawner.spawner.check.outside import fault_of, put_before
from tests.nvml.fixture import Imitation, imitation
from tests.nvml.node import ImitatedNode

__all__ = ["imitation"]

OK = 42
SMALLEST = 19


@pytest.fixture(scope="module")
def library(imitation: Imitation) -> Path:
    return imitation.library()


@pytest.fixture
def node(tmp_path: Path) -> ImitatedNode:
    """A container with one GPU in it, a slice of which is visible."""
    made = ImitatedNode(tmp_path, "node-a", ["a100-80gb"])
    made.cut(made.gpu_uuids()[0], SMALLEST, [0])
    return made


def start(env: dict[str, str], library: Path | None = None, node: ImitatedNode | None = None) -> tuple[int, str]:
    """The exit code and the last words of a container whose server ends with 42."""
    pod = V1Pod(
        metadata=V1ObjectMeta(),
        spec=V1PodSpec(
            containers=[V1Container(name="notebook", args=[sys.executable, "-c", f"raise SystemExit({OK})"])]
        ),
    )
    assert put_before(pod)
    seen = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **env}
    if library is not None and node is not None:
        seen |= {"LD_LIBRARY_PATH": str(library), "NVML_IMITATION_STATE": str(node.path)}
    ended = subprocess.run(
        pod.spec.containers[0].args, env=seen, capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stderr


def leased(node: ImitatedNode, **changes: str) -> dict[str, str]:
    [uuid] = node.mig_uuids(node.gpu_uuids()[0])
    env = {"MIG_LEASE_ID": "lease-1", "MIG_DEVICE_UUID": uuid, "NVIDIA_VISIBLE_DEVICES": uuid, "MIG_PROFILE": "1g.10gb"}
    return env | changes


def test_the_leased_device_is_let_pass(library: Path, node: ImitatedNode) -> None:
    assert start(leased(node), library, node) == (OK, "")
    assert start(leased(node, MIG_DEVICE_UUID=""), library, node) == (OK, ""), "where nobody knows it beforehand"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"MIG_DEVICE_UUID": "MIG-somebody-elses"}, inside.OTHER, "and leased is MIG-somebody-elses"),
        ({"GPU_MEM_LIMIT": str(40 << 30)}, inside.SIZE, "leased are 40960 MiB"),
        ({"MIG_LEASE_ID": ""}, inside.UNLEASED, "has no lease, and sees 1 GPU devices"),
    ],
    ids=["another", "another size", "no lease"],
)
def test_what_is_not_as_leased_does_not_start(
    library: Path, node: ImitatedNode, changes: dict[str, str], code: int, words: str
) -> None:
    ended, said = start(leased(node, **changes), library, node)
    assert ended == code
    assert words in said


def test_two_devices_are_one_too_many(library: Path, node: ImitatedNode) -> None:
    env = leased(node)
    node.cut(node.gpu_uuids()[0], SMALLEST, [1])
    ended, said = start(env, library, node)
    assert ended == inside.SEVERAL
    assert "sees 2 GPU devices" in said


def test_without_nvml_it_says_that_it_cannot_check_and_starts(tmp_path: Path) -> None:
    ended, said = start({"MIG_LEASE_ID": "x"})
    assert ended == OK
    assert "cannot check the GPU of this server: NVML is not in this container" in said
    assert start({"NVIDIA_VISIBLE_DEVICES": "void"}) == (OK, "")


def test_without_python_it_says_that_it_cannot_check_and_starts(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    ended, said = start({"PATH": str(tmp_path), "MIG_LEASE_ID": "x"})
    assert ended == OK
    assert "its image has no Python" in said


def test_a_profile_is_read_from_the_name_where_the_driver_says_it() -> None:
    env = {"MIG_LEASE_ID": "x", "MIG_PROFILE": "1g.10gb"}
    assert inside.compare([("MIG-1", "NVIDIA A100 MIG 1g.10gb", 1)], env) is None
    assert inside.compare([("MIG-1", "NVIDIA A100", 1)], env) is None
    fault = inside.compare([("MIG-1", "NVIDIA A100 MIG 2g.20gb", 1)], env)
    assert fault == (inside.SHAPE, "The device is a 2g.20gb, and leased is a 1g.10gb.")
    assert inside.compare([], env) == (inside.NONE, "The server has a lease, and sees no GPU device.")


@pytest.mark.parametrize("where", ["state", "lastState"])
def test_the_verdict_is_read_from_the_status_of_the_pod(where: str) -> None:
    def pod(code: int, message: str = "") -> dict[str, object]:
        ended = {"terminated": {"exitCode": code, "message": message}}
        return {"status": {"containerStatuses": [{"name": "notebook", where: ended}]}}

    assert fault_of(pod(inside.OTHER, "noise\nThe cause.\n")) == "The cause."
    assert fault_of(pod(inside.OTHER)) == "The server sees another device than the leased one."
    assert fault_of(pod(1, "The cause.")) is None
    assert fault_of(None) is None


def test_a_pod_that_leaves_its_command_to_its_image_is_left_alone() -> None:
    pod = V1Pod(metadata=V1ObjectMeta(), spec=V1PodSpec(containers=[V1Container(name="notebook")]))
    assert not put_before(pod)
    assert pod.spec.containers[0].args is None
