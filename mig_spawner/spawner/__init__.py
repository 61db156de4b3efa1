"""The part inside the hub: `MIGSpawner`, and what a `jupyterhub_config.py` needs beside it.

from mig_spawner.spawner import setup
setup(c, allocator_url="http://mig-allocator:8080/services/mig", allocator_token=os.environ["MIG_ALLOCATOR_TOKEN"])
"""

from mig_spawner.spawner.setup import setup
from mig_spawner.spawner.spawner import MIGSpawner
from mig_spawner.spawner.templates import template_path
from mig_spawner.spawner.waiting.handler import handlers

__all__ = ["MIGSpawner", "handlers", "setup", "template_path"]
