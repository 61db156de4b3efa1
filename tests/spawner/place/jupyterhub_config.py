"""The hub of the tests beside, where browsers find it at another address than the tests."""

import os

c = get_config()  # type: ignore[name-defined]  # noqa: F821
load_subconfig(os.environ["TEST_HUB_CONFIG"])  # type: ignore[name-defined]  # noqa: F821
c.JupyterHub.bind_url = os.environ["TEST_PUBLIC_URL"]
c.JupyterHub.subdomain_host = os.environ["TEST_SUBDOMAIN_HOST"]
if c.JupyterHub.subdomain_host:
    c.MIGSpawner.allocator_public_url = os.environ["TEST_PAGES_URL"]
