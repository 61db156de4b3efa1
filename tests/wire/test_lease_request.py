"""A request for a lease, made from what a spawner knows."""

from __future__ import annotations

import pytest

from mig_spawner.domain.lease import Holder
from mig_spawner.domain.request import WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.lease import LeaseRequest


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\u202eb"])
def test_a_name_that_no_allocator_takes_is_an_invalid_request(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Choose another name for the server"):
        LeaseRequest.of(WholeRequest(), Holder("7", name, "alice"))


@pytest.mark.parametrize("name", ["", "Ünï ☃ 漢字", "👩\u200d💻", "x" * 255])
def test_other_names_are_kept(name: str) -> None:
    assert LeaseRequest.of(WholeRequest(), Holder("7", name, "alice")).holder.server_name == name
