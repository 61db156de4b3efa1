"""`mig-spawner allocator`: traits, wiring, beginning and end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from traitlets import Bool, Dict, List, TraitError, Unicode, default, validate
from traitlets.config import Application

from mig_spawner._version import __version__
from mig_spawner.allocator import loops
from mig_spawner.allocator.auth import Auth, Tickets
from mig_spawner.allocator.changes import Changes
from mig_spawner.allocator.event.trait import EventTraits
from mig_spawner.allocator.foresight.loop import foresight_tasks
from mig_spawner.allocator.foresight.trait import PolicyTraits
from mig_spawner.allocator.handlers import application
from mig_spawner.allocator.handlers.context import Context, Traffic
from mig_spawner.allocator.menu.trait import MenuTraits
from mig_spawner.allocator.metrics import Metrics
from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.pods.base import PodListing, PodWatch
from mig_spawner.allocator.pods.choice import watch_of
from mig_spawner.allocator.queue.service import QueueService
from mig_spawner.allocator.rate import Rate, RateTraits
from mig_spawner.allocator.reshape.loop import reshape_tasks
from mig_spawner.allocator.reshape.rule import ReshapeTraits
from mig_spawner.allocator.reshape.service import ReshapeService
from mig_spawner.allocator.service import Desk, LeaseService, Steps
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.sighting import begin_watch, forget_pods, see_pods
from mig_spawner.allocator.silence import Silence
from mig_spawner.allocator.store.base import Store
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.telling import Telling
from mig_spawner.allocator.template import TemplateTraits, environment
from mig_spawner.allocator.timer import take_turn, tick
from mig_spawner.allocator.token import checked_tokens, parse_tokens
from mig_spawner.allocator.visitor import hub_oauth
from mig_spawner.allocator.wait import WaitTraits
from mig_spawner.errors import InvalidRequest, StoreError

T = TypeVar("T")

TICK_S: Final = 1.0
THREADS: Final = 16
"""So many requests at once read, or stand in line and share a commit."""
BACKLOG: Final = 1024
SHUTDOWN_S: Final = 5


class AllocatorApp(
    MenuTraits, EventTraits, PolicyTraits, ReshapeTraits, RateTraits, TemplateTraits, WaitTraits, Application
):
    """The allocator: leases GPU slices to JupyterHub servers, and to other tools, from one ledger."""

    name = "mig-spawner allocator"
    description = __doc__ or ""
    version = __version__

    bind_url = Unicode(
        help="""Where to listen, with the service prefix as its path.

        Default: $JUPYTERHUB_SERVICE_URL and $JUPYTERHUB_SERVICE_PREFIX when a hub runs this as a managed service, else
        http://127.0.0.1:8095/services/mig/. In a container listen on 0.0.0.0, and let a network policy keep out everybody
        but the hub, its proxy, the agents and Prometheus. Port 0 takes a free one.
        """
    ).tag(config=True)

    database_url = Unicode(
        help="""The ledger, as SQLAlchemy writes it: `sqlite:///relative/path`, `sqlite:////absolute/path` or
        `postgresql+psycopg://user:password@server/database`.

        Put a file on a local disk that survives restarts; SQLite does not work on network file systems, and serves one allocator.
        PostgreSQL (13 or newer) serves several: give all of them the same configuration. A password may come from $PGPASSWORD or
        $PGPASSFILE instead; behind a pooler of connections use one that keeps transactions together.

        Default: $MIG_ALLOCATOR_DATABASE_URL, else a file in the current folder.
        """,
    ).tag(config=True)

    service_tokens = List(
        Unicode(),
        help="""Tokens of the hub's spawner and of other services that may lease for anybody. At least 8 characters.

        Default: $JUPYTERHUB_API_TOKEN (the service's own token, which the spawner sends as well) and $MIG_ALLOCATOR_TOKEN.
        """,
    ).tag(config=True)

    agent_tokens = Dict(
        Unicode(),
        Unicode(),
        help="""The token of each node's agent, `{node: token}`: a token speaks for its one node only.

        Default: the JSON object in $MIG_ALLOCATOR_AGENT_TOKENS.
        """,
    ).tag(config=True)

    agent_tokens_file = Unicode(
        help="A JSON file with more agent tokens, `{node: token}`, such as a mounted Secret. Read at start. Empty for none."
    ).tag(config=True)

    hub_api_url = Unicode(
        help="""Where the hub's API is, to ask who a person is. Default: $JUPYTERHUB_API_URL, else http://127.0.0.1:8081/hub/api.

        The hub may be down when the allocator starts: people cannot log in then, everything else works.
        """
    ).tag(config=True)

    service_name = Unicode(
        help="The name of this service at the hub. Default: $JUPYTERHUB_SERVICE_NAME, else the last part of the prefix."
    ).tag(config=True)

    kubeconfig = Unicode(
        help="""How to watch the pods that use slices: a path, `in-cluster`, or empty for no watch.

        With a watch a lease ends with its pod, even when the hub is down. Without one the allocator goes by heartbeats and by the
        processes on the devices. The account needs list and watch of pods.
        """
    ).tag(config=True)

    namespace = Unicode(help="The namespace of those pods; empty for all of the cluster.").tag(config=True)

    metrics_name_people = Bool(
        False,
        help="Whether the series `mig_lease_device_info` says the user and server of each lease. `metrics` is open to all who reach the "
        "allocator; set it when only your Prometheus does.",
    ).tag(config=True)

    config_file = Unicode("", help="A configuration file in Python to load, `c.AllocatorApp.bind_url = …`.").tag(
        config=True
    )

    aliases = {  # noqa: RUF012  # traitlets declares it for instances
        "f": "AllocatorApp.config_file",
        "config": "AllocatorApp.config_file",
        "bind-url": "AllocatorApp.bind_url",
        "database-url": "AllocatorApp.database_url",
        "kubeconfig": "AllocatorApp.kubeconfig",
        "log-level": "AllocatorApp.log_level",
    }

    subcommands = {"upgrade-db": ("mig_spawner.allocator.upgrade.UpgradeApp", "Bring the ledger up to date.")}  # noqa: RUF012

    @default("log_level")
    def _default_log_level(self) -> int:
        return logging.INFO

    clock: Callable[[], datetime] | None = None
    """The time to use instead of the database's; for tests."""

    pod_watch: PodWatch | None = None
    """The pods to use instead of what `kubeconfig` says; for tests and for other runtimes."""

    @default("bind_url")
    def _default_bind_url(self) -> str:
        url = os.environ.get("JUPYTERHUB_SERVICE_URL", "") or "http://127.0.0.1:8095"
        return url.rstrip("/") + (os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "") or "/services/mig/")

    @validate("bind_url")
    def _checked_bind_url(self, proposal: Any) -> str:
        parts = urlsplit(proposal.value)
        if parts.scheme != "http" or not parts.hostname:
            raise TraitError(f"bind_url is like http://127.0.0.1:8095/services/mig/, not {proposal.value!r}.")
        return str(proposal.value)

    @default("service_tokens")
    def _default_service_tokens(self) -> list[str]:
        tokens = [os.environ.get("JUPYTERHUB_API_TOKEN", ""), os.environ.get("MIG_ALLOCATOR_TOKEN", "")]
        return sorted({token for token in tokens if token})

    @default("agent_tokens")
    def _default_agent_tokens(self) -> dict[str, str]:
        text = os.environ.get("MIG_ALLOCATOR_AGENT_TOKENS", "")
        return parse_tokens(text, "$MIG_ALLOCATOR_AGENT_TOKENS") if text else {}

    @default("hub_api_url")
    def _default_hub_api_url(self) -> str:
        return os.environ.get("JUPYTERHUB_API_URL", "") or "http://127.0.0.1:8081/hub/api"

    @default("service_name")
    def _default_service_name(self) -> str:
        return os.environ.get("JUPYTERHUB_SERVICE_NAME", "") or self.prefix.strip("/").rpartition("/")[2] or "mig"

    @default("database_url")
    def _default_database_url(self) -> str:
        return os.environ.get("MIG_ALLOCATOR_DATABASE_URL", "") or "sqlite:///mig-allocator.sqlite"

    @property
    def prefix(self) -> str:
        """The service prefix, with a slash at both ends."""
        path = urlsplit(self.bind_url).path.strip("/")
        return f"/{path}/" if path else "/"

    @property
    def url(self) -> str:
        """Where the service listens, with its prefix; known once it is open."""
        host = urlsplit(self.bind_url).hostname or ""
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._port}{self.prefix}"

    def initialize(self, argv: list[str] | None = None) -> None:
        super().initialize(argv)
        if self.config_file:
            path = Path(self.config_file)
            self.load_config_file(path.name, path=str(path.resolve().parent))

    def start(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        if self.subapp is not None:
            self.subapp.start()
            return
        ours = logging.getLogger("mig_spawner")
        ours.setLevel(self.log.level)
        for handler in self.log.handlers:
            ours.addHandler(handler)
        try:
            asyncio.run(self._serve())
        except (InvalidRequest, StoreError, OSError) as error:
            self.exit(f"The allocator cannot start: {error}")

    async def _serve(self) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.open()
        self.log.info("The allocator listens at %s", self.url)
        try:
            await stop.wait()
        finally:
            await self.close()
            self.log.info("The allocator has ended")

    async def open(self) -> None:
        """Open the ledger, begin to listen, start the timers. Once open, `close` must be called."""
        tokens = checked_tokens(self.service_tokens, self.agent_tokens, self.agent_tokens_file)
        watch = self.pod_watch or watch_of(self.kubeconfig, self.namespace)
        self._menu = menu = await asyncio.to_thread(self.menu_source)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ledger")
        store = SQLStore(self.database_url, clock=self.clock)
        await self._run(store.open)
        self.desk = Desk(store, self._setting(watches_pods=watch.watches), self._count, menu.current)
        self._metrics = Metrics(names_people=self.metrics_name_people)
        self._traffic = Traffic()
        self._silence = Silence()
        self.changes = Changes(store, self._run)
        self.telling = Telling(self, self.desk, self.changes, self._run)
        self.reshapes = ReshapeService(self.desk, self.reshape_rule())
        context = Context(
            prefix=self.prefix,
            desk=self.desk,
            leases=LeaseService(self.desk),
            queue=QueueService(self.desk),
            nodes=NodeService(self.desk),
            reshapes=self.reshapes,
            menu=menu,
            pages=PageService(self.desk),
            rate=Rate(self.acquire_limit),
            auth=self._auth(store, tokens),
            changes=self.changes,
            feed=self.telling.feed,
            webhooks=self.telling.webhooks,
            metrics=self._metrics,
            templates=environment(self.template_paths),
            run=self._run,
            traffic=self._traffic,
        )
        begin = begin_watch if watch.watches else forget_pods
        await self._run(lambda: begin(self.desk))
        self._listen(application(context, cookie_secret=store.secret("cookie")))
        self._tasks = [
            asyncio.create_task(self.changes.run()),
            asyncio.create_task(loops.every(TICK_S, self._tick_in_turn, "timer")),
            *(asyncio.create_task(task) for task in self.telling.tasks()),
            asyncio.create_task(watch.run(self.see_pods)),
        ]
        self._tasks += [asyncio.create_task(task) for task in foresight_tasks(self, self.desk, self._run)]
        self._tasks += [asyncio.create_task(task) for task in reshape_tasks(self, self.desk, self.reshapes, self._run)]

    async def close(self) -> None:
        """Answer who waits, let running requests end, close the ledger."""
        self._server.stop()
        await self.changes.close()
        try:
            async with asyncio.timeout(SHUTDOWN_S):
                await self._traffic.quiet()
        except TimeoutError:
            self.log.warning("Some requests did not end in time")
        await self._server.close_all_connections()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.telling.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self.desk.store.close()

    async def tick(self) -> None:
        """One round of everything that time alone changes."""
        await self._run(self._menu.refresh)
        self._silence.tell(await self._run(lambda: tick(self.desk)))
        self.changes.poke()

    async def _tick_in_turn(self) -> None:
        """The same, unless another replica has just done it; what each replica reads for itself it reads in any case."""
        await self._run(self._menu.refresh)
        if await self._run(lambda: take_turn(self.desk, timedelta(seconds=TICK_S * 0.9))):
            await self.tick()

    async def see_pods(self, listing: PodListing) -> None:
        """Take in what the pod watch shows."""
        try:
            await self._run(lambda: see_pods(self.desk, listing))
        except StoreError as error:
            self.log.warning("The pods that were seen could not be written: %s", error)
        self.changes.poke()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _count(self, steps: Steps) -> None:
        self._metrics.count_steps(steps)

    def _listen(self, web: Any) -> None:
        parts = urlsplit(self.bind_url)
        sockets = bind_sockets(80 if parts.port is None else parts.port, parts.hostname, backlog=BACKLOG)
        self._port = sockets[0].getsockname()[1]
        # Bodies are limited by the handlers, which can say so; headers by Tornado.
        self._server = HTTPServer(web, xheaders=True, max_body_size=1 << 40)
        self._server.add_sockets(sockets)

    def _auth(self, store: Store, agent_tokens: dict[str, str]) -> Auth:
        hub = hub_oauth(self, api_url=self.hub_api_url, prefix=self.prefix, service_name=self.service_name)
        if hub is None:
            self.log.info("No $JUPYTERHUB_API_TOKEN: people cannot log in, services and agents can")
        if not self.service_tokens:
            self.log.warning(
                "No service token: no hub can lease. Set AllocatorApp.service_tokens or $MIG_ALLOCATOR_TOKEN"
            )
        tickets = Tickets(store.secret("ticket"))
        return Auth(service_tokens=self.service_tokens, agent_tokens=agent_tokens, tickets=tickets, hub=hub)

    def _setting(self, *, watches_pods: bool) -> Setting:
        return Setting(
            **self.wait_settings(),
            **self.placement_settings(),
            expiry_warning=timedelta(seconds=self.expiry_warning),
            watches_pods=watches_pods,
        )
