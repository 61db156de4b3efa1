"""How both clients speak HTTP."""

from __future__ import annotations

import ssl
from typing import Any, Final

import httpx

from mig_spawner._version import __version__
from mig_spawner.wire.client.answer import Reply

DEFAULT_TIMEOUT_S: Final = 5.0


def settings(url: str, token: str, timeout_s: float, ca_file: str | None) -> dict[str, Any]:
    """What an `httpx` client is made with. The token is in its headers, which it never shows."""
    return {
        "base_url": url + "/api/v1/",
        "headers": {
            "Authorization": f"Bearer {token}",
            "User-Agent": f"mig-spawner/{__version__}",
            "Accept": "application/json",
        },
        "timeout": timeout_s,
        "trust_env": False,
        "verify": _verify(url, ca_file),
    }


def _verify(url: str, ca_file: str | None) -> bool | ssl.SSLContext:
    if not url.startswith("https:"):
        # Reading the certificates of the system takes a tenth of a second, and nobody is asked for one on plain HTTP.
        return False
    return True if ca_file is None else ssl.create_default_context(cafile=ca_file)


def reply_of(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.content, response.headers)
