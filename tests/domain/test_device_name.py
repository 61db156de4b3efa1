"""Names of MIG devices: both forms, and what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from mig_spawner.domain.device_name import OlderName, older_name, spelled
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.lease import DeviceName

UUIDS = st.uuids().map(str)
NUMBERS = st.integers(0, 63)
NEW, OLD = "MIG-a1b2c3d4-e5f6-5890-a1b2-c3d4e5f67890", "MIG-GPU-abcdef12-3456-7890-abcd-ef1234567890/9/0"


@given(UUIDS, NUMBERS, NUMBERS)
def test_the_older_form_says_where_a_device_sits(gpu: str, instance: int, compute: int) -> None:
    name = f"MIG-GPU-{gpu}/{instance}/{compute}"
    assert spelled(name) == name
    assert older_name(name) == OlderName(f"GPU-{gpu}", instance, compute)


@given(UUIDS)
def test_the_newer_form_says_nothing_and_is_one_name_in_any_case(device: str) -> None:
    assert spelled(f"MIG-{device.upper()}") == spelled(f"MIG-{device}") == f"MIG-{device}"
    assert older_name(f"MIG-{device}") is None


def test_letters_of_the_older_form_are_lowered_too() -> None:
    assert spelled("MIG-GPU-ABCDEF12-3456-7890-ABCD-EF1234567890/9/0") == OLD


@pytest.mark.parametrize(
    "name",
    [
        "",
        "MIG-",
        "mig-" + NEW[4:],
        "GPU-abcdef12-3456-7890-abcd-ef1234567890",
        NEW + " ",
        " " + NEW,
        NEW + "\n",
        OLD.removesuffix("/0"),
        OLD + "/0",
        OLD.replace("GPU-", "GPU-GPU-"),
        OLD.replace("/9/", "/x/"),
        "MIG-abcdef12/9/0",
        "all",
        NEW + "," + NEW,
    ],
    ids=repr,
)
def test_what_is_of_neither_form_is_refused_with_both(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"names no MIG device.*MIG-<uuid>.*older form MIG-GPU-<uuid>/"):
        spelled(name)
    with pytest.raises(ValidationError):
        TypeAdapter(DeviceName).validate_python(name)
