"""A hub on Kubernetes whose people may have slices of GPUs. The allocator runs by itself, see `kubernetes/allocator.yaml`.

Copy it, change the lines marked CHANGE, run `jupyterhub -f jupyterhub_config.py`. With Zero to JupyterHub take
`z2jh-values.yaml` instead. Needs: pip install 'mig-spawner[hub]'
"""

import os
from pathlib import Path

from mig_spawner.spawner import setup

c = get_config()  # noqa: F821

# --- slices of GPUs: the spawner, the allocator as service `mig`, and the scopes people need ----------------------
setup(
    c,
    allocator_url=os.environ.get("MIG_ALLOCATOR_URL", "http://mig-allocator:8080/services/mig"),
    # The same token is in the Secret `mig-allocator`; make one with `openssl rand -hex 32`.
    allocator_token=os.environ["MIG_ALLOCATOR_TOKEN"],
    admin_groups=["gpu-admins"],  # CHANGE: who may manage all slices
)
# What people may have. The file is read again when it changes.
c.MIGSpawner.menu_file = str(Path(__file__).resolve().with_name("menu.yaml"))
# How long somebody may wait in line, seconds, before the server gives up.
c.MIGSpawner.queue_timeout = 300

# --- notebooks: everything KubeSpawner has still works --------------------------------------------------------------
c.KubeSpawner.image = "quay.io/jupyter/pytorch-notebook:cuda12-latest"  # CHANGE
c.KubeSpawner.namespace = os.environ.get("POD_NAMESPACE", "default")
c.KubeSpawner.start_timeout = 300  # begins when the slice is held
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.storage_capacity = "10Gi"
c.KubeSpawner.volumes = {"home": {"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}}}
c.KubeSpawner.volume_mounts = {"home": {"name": "home", "mountPath": "/home/jovyan"}}

# --- the hub --------------------------------------------------------------------------------------------------------
c.JupyterHub.hub_ip = "0.0.0.0"  # noqa: S104 - pods must reach it; a NetworkPolicy says which
c.JupyterHub.hub_connect_ip = os.environ.get("HUB_CONNECT_IP", "hub")  # CHANGE: how pods reach the hub
c.JupyterHub.cleanup_servers = False  # notebooks and their slices outlive a restart of the hub
c.JupyterHub.authenticator_class = "dummy"  # CHANGE: anybody may log in as anybody
c.Authenticator.allow_all = True  # CHANGE
