"""What an entry's `hints` say to frameworks: environment variables, each of them documented by whom it is for, and all of them optional.

A server has its device for itself, but several kernels of one server share it, and two frameworks take most of its memory at the first
operation, so that the second kernel finds none. A third asks NVML for things that a slice may not tell. Sources:

- PyTorch: `expandable_segments` asks NVML of the physical GPU, which a container with a MIG device may not do, and the process ends with
  `NVML_SUCCESS == r INTERNAL ASSERT FAILED` where it should say that memory is short: https://github.com/pytorch/pytorch/issues/197312,
  https://github.com/vllm-project/vllm/pull/39874. Until PyTorch no longer asks.
- JAX: https://docs.jax.dev/en/latest/gpu_memory_allocation.html. `XLA_CLIENT_MEM_FRACTION` stays unset: its older name may be set in the
  image, and both together are an error of the plugin.
- TensorFlow: https://www.tensorflow.org/guide/gpu, "Limiting GPU memory growth".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from mig_spawner.wire.menu.value import Framework


@dataclass(frozen=True, slots=True)
class Hint:
    """One variable.

    Attributes:
        unless: other names of the same setting: whoever has set one of them has decided.
        whole: it is of use on a GPU that is not cut as well.
    """

    name: str
    value: str
    unless: frozenset[str] = frozenset()
    whole: bool = True


HINTS: Final = {
    Framework.PYTORCH: Hint(
        "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", frozenset({"PYTORCH_ALLOC_CONF"}), whole=False
    ),
    Framework.JAX: Hint("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    Framework.TENSORFLOW: Hint("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
}


def hint_env(frameworks: Collection[Framework], present: Collection[str], *, cut: bool) -> dict[str, str]:
    """The variables for these frameworks, but those that somebody has set already.

    Args:
        present: names of variables that the container has.
        cut: the device is a slice, not a whole GPU.
    """
    hints = [HINTS[framework] for framework in frameworks]
    return {
        hint.name: hint.value
        for hint in hints
        if (cut or hint.whole) and hint.name not in present and hint.unless.isdisjoint(present)
    }
