"""The driver of real GPUs, through NVML. The only folder that knows pynvml.

Traps that shape it (see "NVML" in NVIDIA's header and the pynvml wheel):

- Two numbers name a profile: a constant that *asks* (0, 1, 2 …, with gaps) and an id that *creates*. Only ids leave this folder.
- `NVMLError` cannot be hashed and compares badly, so errors are told apart by `.value`.
- `nvmlDeviceSetMigMode` raises nothing when the GPU is in use: the reason is its return value.
- MIG indices have holes: "not found" means the next one.
- A handle means what sits in its place *now*; so a GPU's is asked for its UUID before it is used.
- Old wheels answer bytes where new ones answer text, and new ones raise `UnicodeDecodeError` for a text that is none.
- A function without a version in its name raises something that is no `NVMLError` if the driver is older than the wheel.
"""

from __future__ import annotations

from mig_spawner.agent.driver.nvml.driver import NVMLDriver

__all__ = ["NVMLDriver"]
