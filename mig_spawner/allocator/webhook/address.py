"""Where events may be sent: only to origins that whoever runs the allocator has named.

An admin of the hub chooses the address, and the allocator stands inside the cluster: without this rule it could be made to talk to
whatever is reachable from there. An origin is scheme, host and port, compared as `httpx` reads them, which is also who sends: no second
reading of an address can differ. Redirects are not followed, no proxy of the environment is used, and of an answer only its status
counts.
"""

from __future__ import annotations

from collections.abc import Iterable

import httpx

from mig_spawner.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """`https://hooks.example.org:443` of any address there.

    Raises:
        InvalidRequest: it is no address that could be sent to.
    """
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise InvalidRequest("url: it cannot be read. Write it like https://hooks.example.org/mig.") from error
    if parsed.scheme not in _PORTS or not host:
        raise InvalidRequest("url: it begins with https:// (or http://) and a host.")
    if parsed.userinfo or parsed.fragment:
        raise InvalidRequest(
            "url: it has neither a user nor a fragment. What is sent is signed, so no password is needed."
        )
    return f"{parsed.scheme}://{host.lower()}:{parsed.port or _PORTS[parsed.scheme]}"


def origins_of(allowed: Iterable[str]) -> frozenset[str]:
    """The origins of a configuration.

    Raises:
        InvalidRequest: one of them is more than an origin, or none.
    """
    origins = set()
    for text in allowed:
        origin = origin_of(text)
        if httpx.URL(text).raw_path not in (b"", b"/"):
            raise InvalidRequest(f"{text!r} is more than scheme, host and port.")
        origins.add(origin)
    return frozenset(origins)
