"""How people log in: JupyterHub's own OAuth, set up for this service."""

from __future__ import annotations

import os
from typing import Final

from jupyterhub.services.auth import HubOAuth
from traitlets.config import Configurable

CACHE_S: Final = 60
"""How long an answer of the hub is believed. Who loses a scope, or logs out, loses it here after so many seconds."""


def hub_oauth(parent: Configurable, *, api_url: str, prefix: str, service_name: str) -> HubOAuth | None:
    """The hub's OAuth client; None without a token of this service at the hub. It asks the hub nothing yet.

    Whatever else it needs (client id, cookies, subdomains, TLS) comes from the environment that the hub gives a managed service, or
    from `c.HubOAuth` in the configuration.
    """
    if not os.environ.get("JUPYTERHUB_API_TOKEN") and "HubOAuth" not in parent.config:
        return None
    given = {
        "api_url": api_url,
        "base_url": prefix,
        "cache_max_age": CACHE_S,
    }
    if not os.environ.get("JUPYTERHUB_CLIENT_ID"):
        given["oauth_client_id"] = f"service-{service_name}"
    if not os.environ.get("JUPYTERHUB_OAUTH_ACCESS_SCOPES"):
        given["access_scopes"] = {"access:services", f"access:services!service={service_name}"}
    return HubOAuth(
        parent=parent, **{name: v for name, v in given.items() if name not in parent.config.get("HubOAuth", {})}
    )
