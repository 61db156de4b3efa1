"""The hub of the tests beside, where browsers find it at another address than the tests, and with more to choose from."""

import os

c = get_config()  # type: ignore[name-defined]  # noqa: F821
load_subconfig(os.environ["TEST_HUB_CONFIG"])  # type: ignore[name-defined]  # noqa: F821
c.JupyterHub.bind_url = os.environ["TEST_PUBLIC_URL"]
c.JupyterHub.subdomain_host = os.environ["TEST_SUBDOMAIN_HOST"]
if c.JupyterHub.subdomain_host:
    c.MIGSpawner.allocator_public_url = os.environ["TEST_PAGES_URL"]
c.MIGSpawner.live_interval = 1
c.MIGSpawner.menu = [
    {"id": "none", "display_name": "CPU only", "none": True, "default": True},
    {"id": "small", "display_name": "Small slice", "description": "First steps.", "profile": "1g.10gb"},
    {"id": "medium", "display_name": "Medium slice", "profile": "2g.20gb", "duration": 28800},
    {"id": "large", "display_name": "Large slice", "profile": "3g.40gb", "duration": 14400},
    {"id": "all", "display_name": "All slices", "profile": "7g.80gb"},
    {"id": "whole", "display_name": "Whole GPU", "whole": True},
    {"id": "huge", "display_name": "Huge slice", "profile": "7g.141gb"},
    {"id": "evil", "display_name": "<b>Bold</b><script>document.title = 'stolen'</script>", "profile": "4g.40gb"},
]
