"""The hub of `mig-spawner demo`. Read it as an example of how the parts are wired; what runs where comes from the demo.

Everything that differs from a hub on a cluster carries a remark. For a hub of your own see `hub_config/` in the sources.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from mig_spawner.spawner import setup
from mig_spawner.testing.kube.strict import ask_for_strict_validation

c = get_config()  # type: ignore[name-defined]  # noqa: F821

demo = json.loads(Path(os.environ["MIG_DEMO_SETTINGS"]).read_text())

# --- who may log in ---------------------------------------------------------------------------------------------
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["MIG_DEMO_PASSWORD"]
c.Authenticator.allowed_users = set(demo["people"])
c.Authenticator.admin_users = {demo["admin"]}

# --- where things are ---------------------------------------------------------------------------------------------
c.JupyterHub.bind_url = demo["public_url"]
c.JupyterHub.hub_bind_url = demo["hub_url"]
c.JupyterHub.db_url = f"sqlite:///{demo['folder']}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{demo['folder']}/cookie_secret"
# The proxy is a process of its own, as in a cluster: notebooks stay reachable while the hub restarts.
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = demo["proxy_api_url"]
c.ConfigurableHTTPProxy.auth_token = os.environ["CONFIGPROXY_AUTH_TOKEN"]
# A hub that stops leaves the servers alone; the demo ends the pods itself.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
# Show the progress page at once.
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}

# --- slices of GPUs -----------------------------------------------------------------------------------------------
# MIGSpawner, the allocator as service `mig`, and the scopes people need to see it.
setup(
    c,
    allocator_url=demo["allocator_url"],
    allocator_token=os.environ["MIG_ALLOCATOR_TOKEN"],
    menu=demo["menu"],
    admin_users=[demo["admin"]],
)
c.MIGSpawner.queue_timeout = 600
c.MIGSpawner.live_interval = 2  # so that one sees it; 10 s is kinder to a hub with a class of students

# --- the notebooks' pods ------------------------------------------------------------------------------------------
# A real API server drops unknown fields of a pod in silence; here a misspelt one shall be seen.
ask_for_strict_validation()
shell = ["bash", "--noprofile", "--norc"] if shutil.which("bash") else ["sh"]
c.KubeSpawner.namespace = "default"
c.KubeSpawner.environment = {
    # JupyterLab asks nobody outside for news, and starts a little faster.
    "JUPYTER_CONFIG_PATH": demo["notebook_config"],
    "PS1": r"\u:\w$ ",
}
c.KubeSpawner.image = (
    "mig-spawner/demo-notebook:1"  # only a name: the demo's kubelet runs the command below on this machine
)
c.KubeSpawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.KubeSpawner.args = [
    # A shell of this machine, without its start-up files: they would put other folders before the pod's on the PATH.
    f"--ServerApp.terminado_settings={{'shell_command': {shell}}}",
    "--LabApp.extension_manager=readonly",
    *(["--allow-root"] if os.geteuid() == 0 else []),
]
c.KubeSpawner.default_url = "/lab"
c.KubeSpawner.start_timeout = 120
c.KubeSpawner.http_timeout = 90  # three people on a small laptop at once
c.KubeSpawner.poll_interval = 10
# A volume for each person's files: here a folder that goes with the demo.
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.storage_capacity = "1Gi"
c.KubeSpawner.volumes = {"home": {"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}}}
c.KubeSpawner.volume_mounts = {"home": {"name": "home", "mountPath": "/home/jovyan"}}
