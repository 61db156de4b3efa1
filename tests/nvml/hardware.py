"""The contract on the GPUs of this machine: reading by default, cutting only where the environment allows it.

A test that needs another model, a knob that no hardware has, or a right it was not given is skipped with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from mig_spawner.agent.driver.base import Instance
from mig_spawner.agent.driver.nvml import NVMLDriver
from mig_spawner.testing.gpu import find_model
from tests.nvml.fixture import MAY_CUT


class OutOfReach:
    """Stands for the hand that disturbs the hardware: real hardware has none."""

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"real GPUs have no {name}")


class CarefulDriver(NVMLDriver):
    """Changes nothing without leave, and puts back what it has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[Instance] = []
        self._switched: set[str] = set()

    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        _ask_leave()
        made = super().create(gpu_uuid, profile_id, start, size)
        self._made.append(made)
        return made

    def destroy(self, instance: Instance) -> None:
        _ask_leave()
        super().destroy(instance)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        _ask_leave()
        self._switched.add(gpu_uuid)
        super().set_mig_mode(gpu_uuid, enabled)

    def put_back(self) -> None:
        """Remove what is left of what was made here, and switch MIG mode off where it was switched."""
        for instance in self._made:
            if instance in self.list_instances(instance.gpu_uuid):
                super().destroy(instance)
        for gpu_uuid in self._switched:
            super().set_mig_mode(gpu_uuid, False)


def _ask_leave() -> None:
    if os.environ.get(MAY_CUT) != "1":
        pytest.skip(f"real GPUs are only read; {MAY_CUT}=1 lets the contract cut them")


@contextmanager
def real_driver(*models: str) -> Iterator[CarefulDriver]:
    """The driver of this machine, if its first GPUs are of these models and have MIG mode off, as the contract begins."""
    with CarefulDriver() as driver:
        gpus = driver.list_gpus()[: len(models)]
        wanted = [find_model(model).product for model in models]
        if [g.model for g in gpus] != wanted:
            pytest.skip(f"this machine has {', '.join(g.model for g in gpus) or 'no GPU'}, not {', '.join(wanted)}")
        if any(g.mig_enabled for g in gpus):
            pytest.skip("MIG mode is on; the contract begins with it off")
        yield driver
        driver.put_back()
