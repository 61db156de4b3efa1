"""A person at a browser, as far as HTTP can tell: logs in, fills in the form, follows the progress page, uses the notebook.

Cookies and XSRF tokens go the way a browser sends them, through the real proxy; no API token is used.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

import httpx

from mig_spawner.demo.kernel import Kernel
from mig_spawner.demo.terminal import type_into
from mig_spawner.errors import DemoFailed
from mig_spawner.testing.process import until

NAVIGATE: Final = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
FETCH: Final = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin", "Accept": "application/json"}
READY_S: Final = 90.0
MESSAGES: Final = 8


class Person:
    """One browser with one person logged in.

    Args:
        url: of the hub's front door, `http://127.0.0.1:8000`.
    """

    def __init__(self, name: str, url: str, password: str) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._password = password
        self._http = httpx.AsyncClient(base_url=self._url, follow_redirects=True, timeout=30, trust_env=False)

    def __repr__(self) -> str:
        return f"Person({self.name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def log_in(self) -> None:
        await self._page("/hub/login")
        body = {"username": self.name, "password": self._password, "_xsrf": self._xsrf("/hub/")}
        page = await self._page("/hub/login", body)
        if page.url.path == "/hub/login":
            raise DemoFailed(f"{self.name} could not log in.")
        await self._page("/hub/home")  # the first page after login brings the XSRF token of the logged-in person

    async def open(self, path: str) -> str:
        """Open a page, `/services/mig/`; its text."""
        return (await self._page(path)).text

    async def form(self) -> str:
        """The spawn form's page."""
        return await self.open(f"/hub/spawn/{self.name}")

    async def start(self, choice: Mapping[str, str]) -> str:
        """Send the spawn form; the page that came back.

        Raises:
            DemoFailed: the form came back with an error.
        """
        await self.form()
        body = {**choice, "_xsrf": self._xsrf("/hub/")}
        page = await self._page(f"/hub/spawn/{self.name}", body)
        if "/spawn-pending/" not in page.url.path and not page.url.path.startswith(f"/user/{self.name}/"):
            raise DemoFailed(f"{self.name}'s form was not accepted; the answer was the page {page.url.path}.")
        return page.text

    async def progress(self) -> AsyncGenerator[dict[str, Any]]:
        """The events of the progress page, until the server is ready or has failed."""
        path = f"/hub/api/users/{self.name}/server/progress"
        headers = {**FETCH, "Accept": "text/event-stream", "X-XSRFToken": self._xsrf("/hub/")}
        timeout = httpx.Timeout(30, read=READY_S)
        async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                raise DemoFailed(f"{self.name}'s progress page answered {response.status_code}.")
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    async def see(self, text: str) -> str:
        """Follow the progress page until it says `text`; the message that does."""
        seen: list[str] = []
        async with aclosing(self.progress()) as events:
            async for event in events:
                message = str(event.get("message", ""))
                if text in message:
                    return message
                seen.append(message)
        raise DemoFailed(f"{self.name}'s progress page never said {text!r}. It said: {told(seen)}")

    async def ready(self) -> None:
        """Follow the progress page until the server is ready.

        Raises:
            DemoFailed: it failed, with what the page said.
        """
        seen: list[str] = []
        try:
            async with aclosing(self.progress()) as events:
                async for event in events:
                    seen.append(str(event.get("message", "")))
                    if event.get("failed"):
                        break
                    if event.get("ready"):
                        return
        except httpx.HTTPError as error:
            seen.append(f"(no further answer: {type(error).__name__})")
        raise DemoFailed(f"{self.name}'s server did not become ready. The progress page said: {told(seen)}")

    async def server(self) -> dict[str, Any] | None:
        """The hub's record of the person's running or pending server; None if there is none."""
        user = await self._fetch("GET", f"/hub/api/users/{self.name}")
        server: dict[str, Any] | None = user["servers"].get("")
        return server

    async def stop(self) -> None:
        """Stop the server (or give up waiting for it), and see that it has stopped."""
        await self._fetch("DELETE", f"/hub/api/users/{self.name}/server")

        async def gone() -> bool:
            return await self.server() is None

        await until(gone, timeout_s=30, seen=f"{self.name}'s server did not stop within 30 s")

    async def kernel(self) -> Kernel:
        """A new kernel in the person's running Jupyter server."""
        await self._page(f"{self._base}lab")
        kernel = await self._fetch("POST", f"{self._base}api/kernels", {"name": "python3"}, xsrf=self._base)
        url = f"{self._socket_url}api/kernels/{kernel['id']}/channels"
        return Kernel(f"{self.name}'s kernel", url, self._socket_headers(), origin=self._url)

    async def terminal(self, command: str, *, until: str) -> str:
        """Type a command into a new terminal of the person's server; what it shows, up to the text `until`."""
        await self._page(f"{self._base}lab")
        terminal = await self._fetch("POST", f"{self._base}api/terminals", {}, xsrf=self._base)
        url = f"{self._socket_url}terminals/websocket/{terminal['name']}"
        return await type_into(url, self._socket_headers(), self._url, command, until=until)

    @property
    def _base(self) -> str:
        return f"/user/{self.name}/"

    @property
    def _socket_url(self) -> str:
        return f"{self._url.replace('http', 'ws', 1)}{self._base}"

    def _socket_headers(self) -> dict[str, str]:
        cookies = (f"{c.name}={c.value}" for c in self._http.cookies.jar if self._base.startswith(c.path))
        return {"Cookie": "; ".join(cookies), "Sec-Fetch-Mode": "websocket"}

    async def _page(self, path: str, form: Mapping[str, str] | None = None) -> httpx.Response:
        method = "GET" if form is None else "POST"
        headers = {**NAVIGATE, "Origin": self._url, "Referer": f"{self._url}{path}"}
        try:
            response = await self._http.request(method, path, data=form, headers=headers)
        except httpx.HTTPError as error:
            raise DemoFailed(f"{self.name}'s browser got no answer for {path} ({type(error).__name__}).") from error
        if response.status_code >= 400:
            raise DemoFailed(f"{self.name}'s browser got {response.status_code} for {method} {path}.")
        return response

    async def _fetch(self, method: str, path: str, body: object = None, *, xsrf: str = "/hub/") -> Any:
        headers = {**FETCH, "X-XSRFToken": self._xsrf(xsrf)}
        try:
            response = await self._http.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise DemoFailed(f"{self.name} got no answer for {method} {path} ({type(error).__name__}).") from error
        if response.status_code >= 400:
            raise DemoFailed(f"{self.name} got {response.status_code} for {method} {path}: {response.text[:300]}")
        return response.json() if response.content else None

    def _xsrf(self, path: str) -> str:
        """The XSRF cookie of the hub (`/hub/`) or of a server (`/user/NAME/`)."""
        for cookie in self._http.cookies.jar:
            if cookie.name == "_xsrf" and cookie.path == path:
                return cookie.value or ""
        return ""


def told(messages: list[str]) -> str:
    """What a progress page said, the end of it where that is long."""
    left_out = ["…"] if len(messages) > MESSAGES else []
    return " | ".join(left_out + messages[-MESSAGES:])
