"""The allocator in a cluster. `mig-spawner allocator --config=allocator_config.py`; every setting: `--help-all`.

The token that it shares with the hub is in $JUPYTERHUB_API_TOKEN (or $MIG_ALLOCATOR_TOKEN).
"""

import os
from pathlib import Path

c = get_config()  # noqa: F821

# Where to listen, with the prefix of the JupyterHub service. A NetworkPolicy says who may come.
c.AllocatorApp.bind_url = os.environ.get("MIG_ALLOCATOR_BIND_URL", "http://0.0.0.0:8080") + "/services/mig/"

# The ledger: on a volume that survives restarts, not on a network file system.
c.AllocatorApp.database_url = "sqlite:////var/lib/mig-allocator/ledger.sqlite"

# Watch the pods that have a lease, with the rights of the service account.
c.AllocatorApp.kubeconfig = "in-cluster"
c.AllocatorApp.namespace = os.environ.get("POD_NAMESPACE", "default")

# One token per node, from the Secret `mig-agents`: a file named as the node holds its token.
c.AllocatorApp.agent_tokens = {
    file.name: file.read_text().strip() for file in Path("/etc/mig-agents").glob("[!.]*") if file.is_file()
}
