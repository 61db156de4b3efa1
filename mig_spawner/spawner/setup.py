"""One line for `jupyterhub_config.py`: the spawner, the allocator as a service, and who may do what with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import jupyterhub

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.templates import template_path
from mig_spawner.spawner.waiting.handler import handlers
from mig_spawner.wire.menu import Menu

CUSTOM_SCOPES: dict[str, dict[str, Any]] = {
    "custom:mig:read": {"description": "See which GPU slices are free"},
    "custom:mig:reserve": {"description": "Have GPU slices of one's own", "subscopes": ["custom:mig:read"]},
    "custom:mig:admin": {"description": "Manage all GPU slices", "subscopes": ["custom:mig:reserve"]},
}


def setup(
    c: Any,
    *,
    allocator_url: str,
    allocator_token: str,
    public_prefix: str = "/services/mig",
    menu: object = None,
    admin_users: Iterable[str] = (),
    admin_groups: Iterable[str] = (),
) -> None:
    """Configure a hub for mig-spawner; for hubs that are configured in Python, as z2jh's values say the same in YAML.

    Call it before you change what it sets: it adds to services, roles and template paths, and leaves the rest alone.

    Args:
        c: the configuration object of `jupyterhub_config.py`.
        allocator_url: where the hub reaches the allocator, with the prefix: `http://mig-allocator:8080/services/mig`.
        allocator_token: the API token that hub and allocator share, at least 8 characters; made for example by `openssl rand -hex 32`.
        public_prefix: `/services/<name>`; the name is that of the service.
        menu: what people may have, as `c.MIGSpawner.menu`; checked here, so that the hub does not start with a wrong one.
        admin_users, admin_groups: who may manage all slices.

    Raises:
        InvalidRequest: an argument cannot be used; the sentence says what to write.
    """
    name = public_prefix.strip("/").removeprefix("services/")
    if not public_prefix.startswith("/services/") or not name or "/" in name:
        raise InvalidRequest(
            f"public_prefix is /services/ and a name, for example /services/mig, not {public_prefix!r}."
        )
    if len(allocator_token) < 8:
        raise InvalidRequest("allocator_token needs at least 8 characters. Make one with `openssl rand -hex 32`.")
    url = urlsplit(allocator_url)
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise InvalidRequest(
            f"allocator_url is a URL such as http://mig-allocator:8080/services/mig, not {allocator_url!r}."
        )
    if menu is not None:
        Menu.parse(menu)
        c.MIGSpawner.menu = menu

    c.JupyterHub.spawner_class = "mig_spawner.spawner.MIGSpawner"
    c.MIGSpawner.allocator_url = allocator_url
    c.MIGSpawner.allocator_token = allocator_token
    c.MIGSpawner.allocator_public_url = f"/services/{name}"
    c.JupyterHub.template_paths.insert(0, template_path())
    c.JupyterHub.extra_handlers.extend(handlers())
    c.JupyterHub.services.append(
        {
            "name": name,
            "url": f"{url.scheme}://{url.netloc}",
            "api_token": allocator_token,
            "display": True,
            "oauth_no_confirm": True,
            "oauth_client_allowed_scopes": ["custom:mig:reserve"],
        }
    )
    c.JupyterHub.custom_scopes.update(CUSTOM_SCOPES)
    _let_people_in(c, name)
    people, groups = sorted(admin_users), sorted(admin_groups)
    if people or groups:
        scopes = [f"access:services!service={name}", "custom:mig:admin"]
        c.JupyterHub.load_roles.append({"name": "mig-admin", "scopes": scopes, "users": people, "groups": groups})


def _let_people_in(c: Any, name: str) -> None:
    """Everybody may open the service and hold slices. JupyterHub 5 can say that only by the role of all users."""
    scopes = [f"access:services!service={name}", "custom:mig:reserve!user"]
    if jupyterhub.version_info >= (6,):
        extra = c.JupyterHub.extra_user_scopes
        (extra.extend if isinstance(extra, list) else extra.update)(scopes)
        return
    for role in c.JupyterHub.load_roles if isinstance(c.JupyterHub.load_roles, list) else []:
        if role.get("name") == "user":
            role["scopes"] = [*role.get("scopes", ["self"]), *scopes]
            return
    c.JupyterHub.load_roles.append({"name": "user", "scopes": ["self", *scopes]})
