"""HTTP: each handler authorises, parses, calls a service, encodes. The table of routes is here."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from tornado.web import Application

from mig_spawner.allocator.handlers.availability import Availability, TicketHandler
from mig_spawner.allocator.handlers.base import Handler, NotFound
from mig_spawner.allocator.handlers.context import Context
from mig_spawner.allocator.handlers.event import Events
from mig_spawner.allocator.handlers.health import Healthz, MetricsHandler, Readyz
from mig_spawner.allocator.handlers.lease import Device, Extend, Lease, Leases, Release, ReleaseHolder, Renew
from mig_spawner.allocator.handlers.menu import MenuHandler
from mig_spawner.allocator.handlers.node import Cordon, Desired, Drain, Node, Nodes, Uncordon
from mig_spawner.allocator.handlers.openapi import OpenAPI
from mig_spawner.allocator.handlers.page import PAGES
from mig_spawner.allocator.handlers.page.static import OAuthCallback, Static
from mig_spawner.allocator.handlers.queue import Claim, Explain, Queue
from mig_spawner.allocator.handlers.quota import Quotas, UsageCSV, UsageHandler
from mig_spawner.allocator.handlers.reshape import Approve, Reject, ReshapeHandler, Reshapes
from mig_spawner.allocator.handlers.webhook import Deliveries, Redeliver, Webhook, Webhooks
from mig_spawner.allocator.openapi.document import openapi
from mig_spawner.allocator.page.asset import STATIC

API: Final[Sequence[tuple[str, type[Handler]]]] = (
    ("openapi.json", OpenAPI),
    ("availability", Availability),
    ("tickets", TicketHandler),
    ("menu", MenuHandler),
    ("events", Events),
    ("quotas", Quotas),
    ("usage", UsageHandler),
    ("usage.csv", UsageCSV),
    ("leases", Leases),
    ("leases/release", ReleaseHolder),
    ("leases/{id}", Lease),
    ("leases/{id}/explain", Explain),
    ("leases/{id}/claim", Claim),
    ("leases/{id}/renew", Renew),
    ("leases/{id}/extend", Extend),
    ("leases/{id}/device", Device),
    ("leases/{id}/release", Release),
    ("queue", Queue),
    ("nodes", Nodes),
    ("nodes/{node}", Node),
    ("nodes/{node}/desired", Desired),
    ("nodes/{node}/cordon", Cordon),
    ("nodes/{node}/uncordon", Uncordon),
    ("nodes/{node}/drain", Drain),
    ("reshapes", Reshapes),
    ("reshapes/{reshape}", ReshapeHandler),
    ("reshapes/{reshape}/approve", Approve),
    ("reshapes/{reshape}/reject", Reject),
    ("webhooks", Webhooks),
    ("webhooks/{webhook}", Webhook),
    ("webhooks/{webhook}/deliveries", Deliveries),
    ("webhooks/{webhook}/deliveries/{number}/redeliver", Redeliver),
)
"""What is served under `api/v1/`; the first that matches answers."""


def application(context: Context, *, cookie_secret: bytes) -> Application:
    """The web application under the service prefix."""
    given: dict[str, Any] = {"context": context}
    prefix = re.escape(context.prefix)
    health = [("healthz", Healthz), ("readyz", Readyz), ("metrics", MetricsHandler)]
    places = {"/", prefix}
    routes: list[Any] = [(f"{place}{name}", handler, given) for name, handler in health for place in places]
    routes += [(f"{prefix}api/v1/{_pattern(path)}", handler, given) for path, handler in API]
    routes += [(f"{prefix}{_pattern(path)}", handler, given) for path, handler in PAGES]
    routes.append((f"{prefix}static/(.*)", Static, {"path": str(STATIC), **given}))
    if context.auth.hub is not None:
        routes.append((f"{prefix}oauth_callback", OAuthCallback, given))
    return Application(
        routes,
        default_handler_class=NotFound,
        default_handler_args=given,
        cookie_secret=cookie_secret,
        # Whoever comes with a cookie is checked for XSRF by HubOAuth when it is asked who they are; tokens are exempt.
        xsrf_cookies=False,
        log_function=_log,
        # Made when it is first asked for, so that a start does not wait for it.
        openapi=functools.cache(lambda: json.dumps(openapi(API, context.prefix))),
    )


def _pattern(path: str) -> str:
    return re.sub(r"\{\w+\}", "([^/]+)", path)


def _log(handler: Any) -> None:
    """Handlers log what went wrong; a line for each answer would drown it."""
