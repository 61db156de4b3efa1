"""The agent's command with the boot id of an imitated node: that of a real one is the kernel's, and no test can boot that."""

from __future__ import annotations

import os
from pathlib import Path

from mig_spawner.agent.app import AgentApp
from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.driver.nvml import NVMLDriver

BOOT_FILE = "NVML_IMITATION_BOOT"


class BootableAgent(AgentApp):
    def _make_driver(self) -> Driver:
        return NVMLDriver(boot_id=Path(os.environ[BOOT_FILE]))


if __name__ == "__main__":
    BootableAgent.launch_instance()
