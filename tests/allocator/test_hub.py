"""With a real JupyterHub: people log in, as an external service and as one that the hub starts itself."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from jupyterhub.httpclient import JupyterHubHTTPClient

from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseRequest, LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import SERVICE_TOKEN, until

pytestmark = pytest.mark.hub

PASSWORD: Final = "a password for tests"
SCOPES: Final = ["custom:mig:read", "custom:mig:reserve", "custom:mig:admin"]

CONFIG: Final = """
from jupyterhub.proxy import Proxy


class NoProxy(Proxy):
    # The tests go to the hub and to the service directly.
    should_start = False

    async def add_route(self, routespec, target, data):
        pass

    async def delete_route(self, routespec):
        pass

    async def get_all_routes(self):
        return {{}}


c = get_config()  # noqa
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{password}"
c.Authenticator.allow_all = True
c.JupyterHub.custom_scopes = {{
    "custom:mig:read": {{"description": "See free GPU slices"}},
    "custom:mig:reserve": {{"description": "Lease GPU slices", "subscopes": ["custom:mig:read"]}},
    "custom:mig:admin": {{"description": "Manage GPU slices", "subscopes": ["custom:mig:reserve"]}},
}}
c.JupyterHub.load_roles = [
    {{"name": "user", "scopes": ["self", "access:services!service=mig", "custom:mig:reserve!user"]}},
    {{"name": "mig-admins", "users": ["root"], "scopes": ["access:services!service=mig", "custom:mig:admin"]}},
]
c.JupyterHub.services = [
    {{
        "name": "mig",
        "url": "{service}",
        "api_token": "{token}",
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": {scopes},
        {more}
    }}
]
"""


class Hub:
    """A JupyterHub without a proxy.

    Attributes:
        url: of the hub itself, `…/hub/`.
    """

    def __init__(self, folder: Path, service: str, more: str = "") -> None:
        self._folder = folder
        self.port, public = _free_port(), _free_port()
        self.url = f"http://127.0.0.1:{self.port}/hub/"
        self._config = folder / "jupyterhub_config.py"
        self._config.write_text(
            CONFIG.format(
                folder=folder,
                port=self.port,
                public=public,
                password=PASSWORD,
                service=service,
                token=SERVICE_TOKEN,
                scopes=SCOPES,
                more=more,
            ),
            encoding="utf-8",
        )
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with (self._folder / "hub.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "jupyterhub", "-f", str(self._config), cwd=self._folder, stdout=log, stderr=log
            )
        process = self._process

        async def up() -> bool:
            assert process.returncode is None, self.log()
            # Only then does it end what it has started, when it is told to end.
            return "JupyterHub is now running" in self.log() and await _status(self.url + "api/") == 200

        await until(up, 60)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()

    def log(self) -> str:
        return (self._folder / "hub.log").read_text(encoding="utf-8")


class Browser:
    """Somebody's browser: one cookie jar, and the hub and the service seen as parts of one site, as behind a proxy."""

    def __init__(self, hub: Hub, service: str) -> None:
        self._hub, self._service = hub, service
        self.http = httpx.AsyncClient(trust_env=False, timeout=20, verify=False)

    async def get(self, path: str) -> httpx.Response:
        """A page, after all redirects."""
        for _ in range(12):
            root = self._hub.url if path.startswith("/hub/") else self._service
            answer = await self.http.get(urljoin(root, path))
            if not answer.is_redirect:
                return answer
            parts = urlsplit(urljoin(path, answer.headers["Location"]))
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        raise AssertionError(f"redirected for ever, last to {path}")

    async def log_in(self, name: str) -> None:
        page = await self.get("/hub/login")
        token = page.text.split('name="_xsrf" value="')[1].split('"')[0]
        form = {"username": name, "password": PASSWORD, "_xsrf": token}
        answer = await self.http.post(self._hub.url + "login", data=form)
        assert answer.status_code == 302, answer.text

    async def token(self, name: str) -> str:
        """An API token of theirs, as the hub's token page makes it."""
        await self.get("/hub/home")
        xsrf = next(c.value for c in self.http.cookies.jar if c.name == "_xsrf" and c.path == "/hub/")
        answer = await self.http.post(
            f"{self._hub.url}api/users/{name}/tokens", headers={"X-XSRFToken": xsrf or ""}, json={"expires_in": 600}
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])


@pytest.fixture(autouse=True)
async def _close_hub_client() -> AsyncIterator[None]:
    yield
    await JupyterHubHTTPClient.loop_instance().close()


async def test_an_external_service(make_rig: MakeRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    port = _free_port()
    hub = Hub(tmp_path, f"http://127.0.0.1:{port}")
    rig = await make_rig(bind_url=f"http://127.0.0.1:{port}/services/mig/", hub_api_url=f"{hub.url}api")
    node = await rig.node()
    node.simulated = True
    await node.report()
    # The hub is down: whoever needs it is told so, and the rest works.
    async with rig.http("some-token-of-ann") as http:
        assert (await http.get("/api/v1/leases")).status_code == 503
    assert (await rig.acquire("1")).state is LeaseState.GRANTED
    async with hub:
        ann = Browser(hub, rig.app.url)
        await ann.log_in("ann")
        page = await ann.get("/services/mig/")
        assert page.status_code == 200, page.text
        assert "<strong>ann</strong>" in page.text
        assert "Simulated GPUs" in page.text
        await _leases_by_cookie(ann, rig.app.url)
        async with rig.http(await ann.token("ann")) as http:
            mine = (await http.get("/api/v1/leases")).json()["leases"]
            assert [lease["holder"]["user_name"] for lease in mine] == ["ann"]
            assert (await http.get("/api/v1/nodes")).status_code == 403
        root = Browser(hub, rig.app.url)
        await root.log_in("root")
        async with rig.http(await root.token("root")) as http:
            assert len((await http.get("/api/v1/leases")).json()["leases"]) == 2
            assert (await http.get("/api/v1/nodes")).status_code == 200
        for browser in (ann, root):
            await browser.http.aclose()


async def _leases_by_cookie(browser: Browser, url: str) -> None:
    """A page of ours may write with the XSRF token that only it can read; nobody else's may."""
    holder = HolderDocument(user_id="name:ann")
    body = LeaseRequest(holder=holder, accelerator_partition_type="1g.10gb").model_dump_json()
    refused = await browser.http.post(url + "api/v1/leases", content=body)
    assert refused.status_code == 401
    xsrf = next(c.value for c in browser.http.cookies.jar if c.name == "_xsrf" and c.path == "/services/mig/")
    answer = await browser.http.post(url + "api/v1/leases", content=body, headers={"X-XSRFToken": xsrf or ""})
    assert answer.status_code == 200, answer.text
    assert answer.json()["holder"]["user_name"] == "ann"


async def test_a_managed_service(tmp_path: Path) -> None:
    port = _free_port()
    command = [
        sys.executable,
        "-m",
        "mig_spawner.cli",
        "allocator",
        f"--database-url=sqlite:///{tmp_path}/ledger.sqlite",
    ]
    url = f"http://127.0.0.1:{port}/services/mig/"
    async with Hub(tmp_path, f"http://127.0.0.1:{port}", more=f'"command": {command!r},') as hub:

        async def up() -> bool:
            return await _status(url + "readyz") == 200

        await until(up, 60)
        async with AllocatorClient(url, SERVICE_TOKEN) as client:
            request = LeaseRequest(holder=HolderDocument(user_id="1"), accelerator_partition_type="1g.10gb")
            assert (await client.acquire(request)).state is LeaseState.QUEUED
        ann = Browser(hub, url)
        await ann.log_in("ann")
        page = await ann.get("/services/mig/")
        assert page.status_code == 200, hub.log()
        assert "<strong>ann</strong>" in page.text
        await ann.http.aclose()
    assert await _status(url + "healthz") is None, "it ends with its hub"


async def _status(url: str) -> int | None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        try:
            return (await http.get(url)).status_code
        except httpx.HTTPError:
            return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
