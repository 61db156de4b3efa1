"""Documents refuse what cannot be meant, and say why."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mig_spawner.domain.lease import Holder
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.wire.lease import LeaseRequest
from mig_spawner.wire.node import GPUDocument, NodeReport

HOLDER = {"user_id": "7"}


@pytest.mark.parametrize(
    "request_",
    [SliceRequest(ProfileName(1, 5, "+me")), MemoryRequest(12.5), WholeRequest(), DeviceRequest("MIG-1")],
    ids=["slice", "memory", "whole", "device"],
)
def test_a_request_survives_the_wire(request_: Request) -> None:
    document = LeaseRequest.of(request_, Holder("7"), alternatives=(request_, WholeRequest()))
    read = LeaseRequest.model_validate_json(document.model_dump_json())
    assert read.to_domain() == request_
    assert read.alternatives_to_domain() == (request_, WholeRequest())


def test_a_whole_gpu_may_be_named() -> None:
    assert LeaseRequest.model_validate({"holder": HOLDER, "whole": True}).to_domain() == WholeRequest()


def test_both_spellings_of_a_profile_are_one() -> None:
    mig = LeaseRequest.model_validate({"holder": HOLDER, "accelerator_partition_type": "mig-1g.10gb"})
    assert mig.accelerator_partition_type == "1g.10gb"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(None, id="null"),
        pytest.param([], id="list"),
        pytest.param({}, id="no holder"),
        pytest.param({"holder": {"user_id": ""}}, id="empty user"),
        pytest.param({"holder": {"user_id": 7}}, id="number for a text"),
        pytest.param({"holder": {"user_id": "x" * 300}}, id="endless user"),
        pytest.param({"holder": HOLDER, "accelerator_partition_type": ["1g.10gb"]}, id="list of profiles"),
        pytest.param({"holder": HOLDER, "accelerator_partition_type": "large"}, id="no profile"),
        pytest.param({"holder": HOLDER, "accelerator_partition_type": "1c.3g.20gb"}, id="compute instance"),
        pytest.param({"holder": HOLDER, "min_memory": 0}, id="no memory"),
        pytest.param({"holder": HOLDER, "min_memory": float("nan")}, id="NaN memory"),
        pytest.param(
            {"holder": HOLDER, "min_memory": 5, "accelerator_partition_type": "1g.10gb"}, id="both ways at once"
        ),
        pytest.param({"holder": HOLDER, "min_memory": 5, "whole": True}, id="a part and the whole"),
        pytest.param({"holder": HOLDER, "mig_uuid": "GPU-1"}, id="no MIG device"),
        pytest.param({"holder": HOLDER, "mig_uuid": "MIG-1\n"}, id="a line"),
        pytest.param({"holder": HOLDER, "alternatives": [{}]}, id="an alternative that says nothing"),
        pytest.param({"holder": HOLDER, "alternatives": [{"whole": False}]}, id="an alternative that is none"),
        pytest.param({"holder": HOLDER, "alternatives": [{"whole": True}] * 9}, id="endless alternatives"),
        pytest.param({"holder": HOLDER, "priority": 101}, id="too great a priority"),
        pytest.param({"holder": HOLDER, "priority": 1.5}, id="half a priority"),
        pytest.param({"holder": HOLDER, "wait_budget": -1}, id="negative wait"),
        pytest.param({"holder": HOLDER, "gpu": 1}, id="unknown key"),
    ],
)
def test_a_bad_request_does_not_parse(body: Any) -> None:
    with pytest.raises(ValidationError):
        LeaseRequest.model_validate(body)


def gpu(**changes: Any) -> dict[str, Any]:
    profile = {
        "name": "1g.10gb",
        "profile_id": 19,
        "size": 1,
        "starts": [0, 1, 2, 3, 4, 5, 6],
        "compute_slices": 1,
        "memory_mib": 9728,
        "multiprocessors": 14,
    }
    whole = {**profile, "name": "7g.80gb", "profile_id": 0, "size": 8, "starts": [0]}
    return {
        "gpu_uuid": "GPU-1",
        "model": "NVIDIA A100",
        "memory_mib": 81920,
        "multiprocessors": 108,
        "mig_enabled": True,
        "dynamic": True,
        "profiles": [profile, whole],
        **changes,
    }


def instance(start: int, size: int = 1) -> dict[str, Any]:
    return {
        "gpu_instance_id": 7,
        "profile_id": 19,
        "profile": "1g.10gb",
        "start": start,
        "size": size,
        "mig_uuid": "MIG-1",
        "processes": 0,
    }


def test_the_grid_comes_from_the_farthest_placement() -> None:
    assert GPUDocument.model_validate(gpu()).to_domain().grid == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"instances": [instance(0, 2), instance(1)]}, "two instances overlap", id="overlap"),
        pytest.param({"instances": [instance(7, 2)]}, "does not fit the grid of 8", id="outside the grid"),
        pytest.param(
            {"profiles": [{**gpu()["profiles"][0], "starts": [63], "size": 9}]}, "ends after memory slice", id="grid"
        ),
        pytest.param({"profiles": [{**gpu()["profiles"][0], "name": "one"}]}, "is no MIG profile", id="profile name"),
        pytest.param({"profiles": [{**gpu()["profiles"][0], "starts": []}]}, "starts", id="no start"),
    ],
)
def test_a_report_that_cannot_be_true_does_not_parse(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        GPUDocument.model_validate(gpu(**changes))


def test_a_gpu_is_reported_once() -> None:
    with pytest.raises(ValidationError, match="reported twice"):
        NodeReport.model_validate({"agent_version": "1", "boot_id": "b", "gpus": [gpu(), gpu()]})
