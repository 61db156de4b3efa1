"""What can be asked for."""

from __future__ import annotations

import math

import pytest

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest


@pytest.mark.parametrize("gigabytes", [0, -1, 10_001, math.nan, math.inf], ids=str)
def test_an_absurd_memory_is_refused(gigabytes: float) -> None:
    with pytest.raises(InvalidRequest, match="more than 0 and at most 10000 GB"):
        MemoryRequest(gigabytes)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(SliceRequest(ProfileName(1, 5, "+me")), "1g.5gb+me", id="slice"),
        pytest.param(MemoryRequest(12), "at least 12 GB", id="memory"),
        pytest.param(MemoryRequest(0.5), "at least 0.5 GB", id="half a GB"),
        pytest.param(WholeRequest(), "a whole GPU", id="whole"),
        pytest.param(DeviceRequest("MIG-1"), "the device MIG-1", id="device"),
    ],
)
def test_a_request_says_itself_in_words(request_: Request, words: str) -> None:
    assert str(request_) == words
