"""The one-liner for `jupyterhub_config.py`, and where templates are found."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner import MIGSpawner, setup, template_path
from mig_spawner.spawner.templates import environment, template_folder

URL = "http://mig-allocator:8080/services/mig"
TOKEN = "0123456789abcdef"


def configured(**options: Any) -> JupyterHub:
    c = Config()
    setup(c, **{"allocator_url": URL, "allocator_token": TOKEN, **options})
    return JupyterHub(config=c)


def test_a_hub_gets_the_spawner_the_service_and_the_scopes() -> None:
    hub = configured()
    assert hub.spawner_class is MIGSpawner
    [service] = hub.services
    assert (service["name"], service["url"], service["api_token"]) == ("mig", "http://mig-allocator:8080", TOKEN)
    assert set(hub.custom_scopes) == {"custom:mig:read", "custom:mig:reserve", "custom:mig:admin"}
    assert hub.config.MIGSpawner.allocator_public_url == "/services/mig"
    assert template_path() == hub.template_paths[0]
    assert len(hub.template_paths) > 1


def test_everybody_may_open_the_service_on_this_hub() -> None:
    hub = configured(public_prefix="/services/gpus")
    granted = hub.extra_user_scopes if jupyterhub.version_info >= (6,) else set(hub.load_roles[0]["scopes"])
    assert {"access:services!service=gpus", "custom:mig:reserve!user"} <= granted


def test_on_jupyterhub_5_the_role_of_all_users_is_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyterhub, "version_info", (5, 5, 0))
    [role] = configured().load_roles
    assert role == {
        "name": "user",
        "scopes": ["self", "access:services!service=mig", "custom:mig:reserve!user"],
    }
    c = Config()
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "shares!user"]}]
    setup(c, allocator_url=URL, allocator_token=TOKEN)
    assert c.JupyterHub.load_roles[0]["scopes"][:2] == ["self", "shares!user"]
    assert len(c.JupyterHub.load_roles[0]["scopes"]) == 4


def test_what_an_admin_set_before_is_kept() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "other", "api_token": "x" * 10}]
    c.JupyterHub.template_paths = ["/own"]
    c.JupyterHub.custom_scopes = {"custom:x": {"description": "x"}}
    setup(c, allocator_url=URL, allocator_token=TOKEN, admin_groups=["gpu-admins"])
    assert [s["name"] for s in c.JupyterHub.services] == ["other", "mig"]
    assert c.JupyterHub.template_paths[1] == "/own"
    assert len(c.JupyterHub.custom_scopes) == 4
    admins = JupyterHub(config=c).load_roles[-1]
    assert admins["groups"] == ["gpu-admins"]
    assert "custom:mig:admin" in admins["scopes"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"public_prefix": "/mig"}, "/services/ and a name"),
        ({"public_prefix": "/services/a/b"}, "/services/ and a name"),
        ({"allocator_token": "short"}, "at least 8 characters"),
        ({"allocator_url": "mig-allocator:8080"}, "is a URL such as"),
        ({"menu": [{"display_name": "x"}]}, "exactly one of"),
    ],
)
def test_what_cannot_work_stops_the_hub_with_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        configured(**options)


def test_the_entry_point_is_the_class() -> None:
    [found] = entry_points(group="jupyterhub.spawners", name="mig")
    assert found.load() is MIGSpawner


def test_templates_escape_by_themselves_and_miss_nothing_silently() -> None:
    assert environment().from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"
    with pytest.raises(Exception, match="undefined"):
        environment().from_string("{{ x }}").render()


def test_missing_templates_are_a_loud_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mig_spawner.spawner.templates._PACKAGE", tmp_path / "mig_spawner")
    with pytest.raises(RuntimeError, match="Install mig-spawner again"):
        template_folder()
