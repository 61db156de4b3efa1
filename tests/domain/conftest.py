"""Shared by the domain tests: real GPU models, and a GPU state in one word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import find_model

MakeGPU = Callable[..., GPU]
MakeState = Callable[..., GPUState]


@pytest.fixture
def make_gpu() -> MakeGPU:
    """A GPU of a model: `make_gpu("a100-80gb")`, a second one with `number=1`."""

    def make(model: str = "a100-80gb", number: int = 0) -> GPU:
        return find_model(model).gpu(f"GPU-{model}-{number}")

    return make


@pytest.fixture
def make_state(make_gpu: MakeGPU) -> MakeState:
    """A GPU with instances on it: `make_state("a100-80gb", [("1g.10gb", 0)])`; other arguments go to `GPUState`."""

    def make(
        model: str = "a100-80gb", taken: list[tuple[str, int]] | None = None, number: int = 0, **kwargs: object
    ) -> GPUState:
        gpu = make_gpu(model, number)
        layout = Layout(gpu)
        for name, start in taken or []:
            profile = gpu.profile(ProfileName.parse(name))
            assert profile is not None
            layout = layout.with_instance(profile, start)
        return GPUState(**{"node": f"node-{number}", "gpu": gpu, "layout": layout, **kwargs})  # type: ignore[arg-type]

    return make
