"""Rigs on the C library alone, for what only a library can do to a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.nvml import probe
from tests.nvml.build import NEWEST
from tests.nvml.fixture import Imitation, imitation
from tests.nvml.node import ImitatedNode
from tests.nvml.worker import RemoteDriver, Worker

__all__ = ["imitation"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Bench:
    """The driver, the GPUs behind it, and `pynvml` bare beside it."""

    driver: RemoteDriver
    node: ImitatedNode
    worker: Worker

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.worker.run(function, *args, **kwargs)

    def ask(self, function: str, where: probe.Where, *args: Any, **named: Any) -> Any:
        return self.run(probe.ask, function, where, *args, **named)

    def code(self, function: str, where: probe.Where, *args: Any, **named: Any) -> int:
        """The error that NVML answers."""
        with pytest.raises(probe.Code) as caught:
            self.ask(function, where, *args, **named)
        return caught.value.value

    def ready(self, index: int = 0) -> str:
        """A GPU with MIG mode on."""
        gpu_uuid = self.node.gpu_uuids()[index]
        self.driver.set_mig_mode(gpu_uuid, True)
        return gpu_uuid


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(imitation: Imitation) -> Iterator[MakeBench]:
    """`make_bench("a100-80gb", …)`: one GPU per model; `generation`: the driver's major version."""
    with ExitStack() as stack:

        def make(*models: str, generation: int = NEWEST) -> Bench:
            return Bench(*stack.enter_context(imitation.rig(*models, generation=generation)))

        yield make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """One A100 80GB, MIG mode on."""
    made = make_bench("a100-80gb")
    made.ready()
    return made
