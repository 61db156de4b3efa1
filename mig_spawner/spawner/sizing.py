"""How much GPU memory a model needs: a rule of thumb, and what it does not know. Pure.

GB for each billion parameters: the bytes of a parameter; a fifth more to run it; for adapters 0.6 GB more, for their gradients
and optimizer; for training all of it with Adam 16 bytes a parameter in mixed precision (weights, gradients and optimizer states;
Rajbhandari et al., "ZeRO", 2020, section 3.1) and a tenth more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRECISIONS: Final = ("32 bit", "16 bit", "8 bit", "4 bit")
CONTEXT_GB: Final = 1.0
"""What CUDA and the framework take before a model is there."""
UNKNOWN: Final = (
    "It does not know your batch size, the length of your texts, the size of your images or what else your program keeps on the GPU. "
    "Try, watch the memory, and take the next size if it is tight."
)


@dataclass(frozen=True, slots=True)
class Task:
    """What is done with a model, and GB for each billion parameters by precision; None where that is not done."""

    name: str
    gb_per_billion: tuple[float | None, ...]


TASKS: Final = (
    Task("Run a model", (4.8, 2.4, 1.2, 0.6)),
    Task("Fine-tune with adapters (LoRA)", (5.4, 3.0, 1.8, 1.2)),
    Task("Train all of it (Adam)", (17.6, 17.6, None, None)),
)


def billions_to_run(memory_gb: float) -> int:
    """How many billion parameters a model may have to be run in 16 bit with so much memory; 0 for less than one."""
    per_billion = TASKS[0].gb_per_billion[1] or 1.0
    return max(int((memory_gb - CONTEXT_GB) / per_billion), 0)
