"""The NVML adapter where no driver is: it loads, and says what is missing. With a library it runs the contract instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.nvml import NVMLDriver
from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InsufficientResources,
    NoPermission,
    NotSupported,
)
from mig_spawner.testing.gpu import list_models
from tests.nvml.fixture import has_real_driver

without_driver = pytest.mark.skipif(has_real_driver(), reason="this machine has an NVIDIA driver")


@without_driver
def test_without_a_driver_it_says_what_is_missing() -> None:
    driver = NVMLDriver()
    for call in (driver.open, driver.list_gpus, driver.list_gpus):
        with pytest.raises(DriverError, match=r"libnvidia-ml\.so\.1 was not found.*--driver fake"):
            call()
    driver.close()


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    file = tmp_path / "boot_id"
    file.write_text("7d0c5f9e-1111-2222-3333-444455556666\n")
    assert NVMLDriver(boot_id=file).boot_id() == "7d0c5f9e-1111-2222-3333-444455556666"
    with pytest.raises(DriverError, match="boot id cannot be read"):
        NVMLDriver(boot_id=tmp_path / "none").boot_id()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, NotSupported),
        (4, NoPermission),
        (6, DeviceNotFound),
        (13, NotSupported),
        (15, DeviceLost),
        (16, DeviceInUse),
        (19, DeviceInUse),
        (23, InsufficientResources),
        (25, NotSupported),
        (2, DriverError),
        (999, DriverError),
    ],
)
def test_codes_become_errors_that_say_what_was_tried(value: int, kind: type[DriverError]) -> None:
    error = code.error_of(value, "In use", "creating it")
    assert type(error) is kind
    assert str(error).startswith(f"NVML answered {value} (In use) when creating it.")


@pytest.mark.parametrize(
    ("action", "need"),
    [
        (0, None),
        (1, "reset"),
        (2, "boot"),
        (3, "reset"),
        (4, "reset"),
        (5, "other"),
        (6, "reset"),
        (7, "boot"),
        (8, "other"),
    ],
)
def test_what_the_driver_says_a_gpu_needs(action: int, need: str | None) -> None:
    assert code.recovery(action) == need


def test_a_missing_right_is_named() -> None:
    assert "NVIDIA_MIG_CONFIG_DEVICES=all" in str(code.error_of(4, "Insufficient Permissions", "reading it"))
    assert "NVIDIA_MIG" not in str(code.error_of(19, "In use", "reading it"))


@pytest.mark.parametrize("answer", [b"NVIDIA A100", "NVIDIA A100"], ids=["old wheels", "new wheels"])
def test_texts_are_read_alike_from_bytes_and_str(answer: bytes | str) -> None:
    assert code.text(answer) == code.decoded(lambda: answer) == "NVIDIA A100"


def test_a_text_that_cannot_be_decoded_is_empty() -> None:
    assert code.decoded(lambda: b"\xf8".decode()) == ""
    assert code.decoded(lambda: b"\xf8A") == "\ufffdA"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [(9, "nvidia-smi must work"), (12, "libnvidia-ml.so.1 was not found"), (4, "NVML answered 4 (why)")],
)
def test_no_driver_has_a_reason(value: int, sentence: str) -> None:
    assert sentence in code.why_no_driver(value, "why")


@pytest.mark.parametrize("key", ["a30-24gb", "a100-40gb", "a100-80gb", "h100-80gb-sxm", "h100-80gb-pcie"])
def test_names_that_an_old_driver_does_not_give_are_computed_as_printed(key: str) -> None:
    model = next(m for m in list_models() if m.key == key)
    for row in model.profiles:
        profile = row.profile
        name = code.computed_name(row.nvml_profile_value, profile.compute_slices, profile.memory_mib, model.memory_mib)
        assert name == str(profile.name)


@pytest.mark.parametrize(
    ("cores", "capability", "expected"),
    [
        pytest.param(6912, (8, 0), 108, id="A100"),
        pytest.param(16896, (9, 0), 132, id="H100"),
        pytest.param(24064, (12, 0), 188, id="RTX PRO 6000"),
    ],
)
def test_multiprocessors_of_a_whole_gpu(cores: int, capability: tuple[int, int], expected: int) -> None:
    assert code.multiprocessors(cores, capability) == expected
