"""The same hub with the allocator as a *managed* service: a child process of the hub, started and restarted by it.

Simpler, for one small hub: nothing else to deploy. The price: the allocator goes down with every restart of the hub (running
notebooks keep their slices), and the agents must be able to reach the hub's pod, at port 8090. `allocator_config.py` beside this file says
where the ledger and the agents' tokens are: the hub's pod needs /var/lib/mig-allocator on a volume, /etc/mig-agents from the Secret
`mig-agents`, and the right to list and watch pods, which a hub has. Needs: pip install 'mig-spawner[hub,allocator]'
"""

import os
import sys
from pathlib import Path

from mig_spawner.spawner import setup

c = get_config()  # noqa: F821

here = Path(__file__).resolve().parent
token = os.environ["MIG_ALLOCATOR_TOKEN"]

# --- slices of GPUs -----------------------------------------------------------------------------------------------
c.JupyterHub.services = []
setup(c, allocator_url="http://127.0.0.1:8090/services/mig", allocator_token=token, admin_groups=["gpu-admins"])
c.MIGSpawner.menu_file = str(here / "menu.yaml")

# `setup` has named the service and its scopes; what is left is how to start it.
service = c.JupyterHub.services[-1]
service["command"] = [sys.executable, "-m", "mig_spawner.cli", "allocator", f"--config={here / 'allocator_config.py'}"]
service["environment"] = {
    "MIG_ALLOCATOR_TOKEN": token,
    "MIG_ALLOCATOR_BIND_URL": "http://0.0.0.0:8090",  # the agents come from other nodes
    # The hub passes little of its own environment on; without these two the allocator could not watch pods.
    **{name: os.environ[name] for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT") if name in os.environ},
}

# --- notebooks and hub: as in jupyterhub_config.py ------------------------------------------------------------------
c.KubeSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-latest"  # CHANGE
c.KubeSpawner.start_timeout = 300
c.JupyterHub.hub_ip = "0.0.0.0"  # noqa: S104 - pods must reach it; a NetworkPolicy says which
c.JupyterHub.hub_connect_ip = os.environ.get("HUB_CONNECT_IP", "hub")  # CHANGE: how pods reach the hub
c.JupyterHub.cleanup_servers = False
c.JupyterHub.authenticator_class = "dummy"  # CHANGE: anybody may log in as anybody
c.Authenticator.allow_all = True  # CHANGE
