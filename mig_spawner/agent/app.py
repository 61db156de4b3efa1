"""`mig-spawner agent`: the agent of one node, configured as everything of JupyterHub is: arguments or a file of traits."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from traitlets import Bool, Enum, Float, List, TraitError, Unicode, default
from traitlets.config import Application

from mig_spawner._version import __version__
from mig_spawner.agent.board import Board
from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.loop import AgentLoop
from mig_spawner.agent.owner import owners, programs
from mig_spawner.agent.thread import DriverThread
from mig_spawner.domain.layout import NamedLayout
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest, MigSpawnerError
from mig_spawner.wire.client import ONCE, AllocatorClient

if TYPE_CHECKING:
    from mig_spawner.agent.metrics import MetricsServer
    from mig_spawner.testing.gpu import SimulatedNode

TOKEN_VARIABLE = "MIG_AGENT_TOKEN"  # noqa: S105  # the name of the variable, not a token
_MAX_GPUS = 16
_MAX_NODE_NAME = 253


class AgentApp(Application):
    """The agent: reads and cuts the GPUs of one node, as the allocator wants."""

    name = "mig-spawner agent"
    version = __version__
    description = __doc__ or ""
    examples = """
    mig-spawner agent --node gpu-a --allocator-url http://mig-allocator:8080/services/mig
    mig-spawner agent --node demo --allocator-url http://127.0.0.1:8080 --driver fake --gpu a100-80gb:2
    """
    aliases = {  # noqa: RUF012  # traitlets wants a plain dict
        **Application.aliases,
        "node": "AgentApp.node",
        "allocator-url": "AgentApp.allocator_url",
        "driver": "AgentApp.driver",
        "gpu": "AgentApp.gpus",
        "state-file": "AgentApp.state_file",
        "mode": "AgentApp.mode",
        "static-layout": "AgentApp.static_layout",
        "layout-file": "AgentApp.layout_file",
        "report-interval": "AgentApp.report_interval",
        "token-file": "AgentApp.token_file",
        "metrics-bind": "AgentApp.metrics_bind",
        "config": "AgentApp.config_file",
    }

    node = Unicode(
        help="Name of this node as Kubernetes says it (its label kubernetes.io/hostname). "
        "Default: $MIG_NODE_NAME, else the host name."
    ).tag(config=True)
    allocator_url = Unicode(
        help="Where the allocator is, with its service prefix: http://mig-allocator:8080/services/mig. Required."
    ).tag(config=True)
    driver = Enum(
        ["nvml", "fake"],
        default_value="nvml",
        help="`nvml` for the GPUs of this machine, `fake` for simulated ones (say which with --gpu).",
    ).tag(config=True)
    gpus = List(
        Unicode(),
        help="Simulated GPUs, `model` or `model:count`, for example a100-80gb:2; may be given several times. Only with --driver fake.",
    ).tag(config=True)
    state_file = Unicode(
        help="File that keeps the simulated GPUs, so that a restarted agent finds them as they were. Default: they are gone with the agent."
    ).tag(config=True)
    mode = Enum(
        ["dynamic", "static"],
        default_value="dynamic",
        help="`dynamic`: cut and uncut GPUs on demand. `static`: leave the partitions of the admin as they are and lease those. "
        "Choose static when something else owns the layout (mig-manager, a device plugin, a person): two owners collide.",
    ).tag(config=True)
    static_layout = Unicode(
        help="With --mode static and --driver fake: how each simulated GPU is cut at the start, for example 1g.10gb,1g.10gb,3g.40gb."
    ).tag(config=True)
    layout_file = Unicode(
        help="With --mode static: a file of layouts (ours or mig-parted's; see docs/layout.md) that gives this node one. The agent makes "
        "what is missing of it when it starts and after each boot, and destroys nothing. Default: the layout is somebody else's."
    ).tag(config=True)
    report_interval = Float(
        10.0,
        help="Longest time between two reports to the allocator, seconds. The allocator calls a node silent that misses "
        "several, so keep it well below that.",
    ).tag(config=True)
    ignore_owners = Bool(
        False,
        help="Manage the GPUs although something else does: a device plugin with a MIG strategy, mig-manager in progress, the "
        "DRA driver with DynamicMIG. Two owners of one GPU collide; set it only when you know that they mean different GPUs.",
    ).tag(config=True)
    metrics_bind = Unicode(
        help="Where this agent serves /metrics (Prometheus) and /healthz, `host:port`: 127.0.0.1:9454, or :9454 for every address. Open "
        "to all who reach it; nothing in them names a person. Default: nowhere."
    ).tag(config=True)
    token_file = Unicode(
        help=f"File with the token that the allocator knows this node by. Default: the token is in ${TOKEN_VARIABLE}."
    ).tag(config=True)
    proc = Unicode(
        "/proc",
        help="Where the programs of the node are seen. In a container that is /proc too, with the PID namespace of the host.",
    ).tag(config=True)
    config_file = Unicode(help="A configuration file to load (Python or JSON, as for JupyterHub).").tag(config=True)

    @default("node")
    def _node(self) -> str:
        return os.environ.get("MIG_NODE_NAME") or socket.gethostname()

    @default("log_level")
    def _log_level(self) -> int:
        return 20

    @default("log_format")
    def _log_format(self) -> str:
        return "%(asctime)s %(levelname)s %(name)s: %(message)s"

    @default("logging_config")
    def _logging_config(self) -> dict[str, Any]:
        # What our modules log goes where the application's own lines go.
        return {"loggers": {"mig_spawner": {"level": self.log_level, "handlers": ["console"]}}}

    def initialize(self, argv: list[str] | None = None) -> None:
        """Read arguments and file. Exits with 1 and one sentence on stderr if they make no sense."""
        try:
            self._check_words(sys.argv[1:] if argv is None else argv)
            self.parse_command_line(argv)
            if self.extra_args:
                raise InvalidRequest(f"{self.extra_args[0]!r} is no argument of the agent. See --help.")
            if self.config_file:
                self._load_file(Path(self.config_file))
        except (TraitError, MigSpawnerError) as error:
            self._refuse(error)

    def start(self) -> None:
        """Run until SIGTERM or SIGINT. Exits with 1 and one sentence on stderr if it was told something that makes no sense.

        A driver that is missing is no reason to end: a node may get its driver later, and the allocator hears of it meanwhile.
        """
        try:
            token = self._token()
            self._check()
            driver, layout = self._make_driver(), self._layout()
        except MigSpawnerError as error:
            self._refuse(error)
        asyncio.run(self._serve(driver, token, layout))

    async def _serve(self, driver: Driver, token: str, layout: NamedLayout | None) -> None:
        thread, board = DriverThread(driver), Board()
        server = self._serve_metrics(board)
        try:
            # The loop has its own pauses: it looks at the GPUs before it asks again.
            async with AllocatorClient(self.allocator_url, token, patience=ONCE) as client:
                loop = AgentLoop(
                    self.node,
                    thread,
                    client,
                    dynamic=self.mode == "dynamic",
                    simulated=self.driver == "fake",
                    report_interval_s=self.report_interval,
                    layout=layout,
                    board=board,
                    owners=self._owners,
                )
                conversation = asyncio.ensure_future(loop.run())
                for number in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(number, conversation.cancel)
                self.log.info("Agent of node %s, %s mode, allocator %s", self.node, self.mode, self.allocator_url)
                await asyncio.wait([conversation])
                if not conversation.cancelled():
                    conversation.result()
        finally:
            await thread.close()
            if server is not None:
                server.close()
        self.log.info("Agent of node %s ended", self.node)

    def _make_driver(self) -> Driver:
        if self.driver == "nvml":
            try:
                from mig_spawner.agent.driver.nvml import NVMLDriver
            except ImportError as error:
                raise InvalidRequest(
                    "The NVML binding is not installed. Run: pip install 'mig-spawner[agent]'."
                ) from error
            return NVMLDriver()
        # Not before they are wanted: an agent of real GPUs has no use for them, and little memory.
        from mig_spawner.agent.driver.fake import FakeDriver
        from mig_spawner.testing.gpu import SimulatedNode

        node = SimulatedNode(
            self.node, parse_gpus(self.gpus), state_file=Path(self.state_file) if self.state_file else None
        )
        if self.static_layout:
            _cut_all(node, self.static_layout)
        return FakeDriver(node)

    def _owners(self) -> list[str]:
        if self.ignore_owners or self.driver == "fake":
            return []
        return owners(programs(Path(self.proc)), dynamic=self.mode == "dynamic")

    def _serve_metrics(self, board: Board) -> MetricsServer | None:
        if not self.metrics_bind:
            return None
        from mig_spawner.agent.metrics import MetricsServer

        host, _, port = self.metrics_bind.rpartition(":")
        try:
            server = MetricsServer(host.strip("[]"), int(port), self.node, board)
        except OSError as error:
            self._refuse(InvalidRequest(f"Cannot listen on {self.metrics_bind}: {error.strerror}."))
        self.log.info("Metrics on port %d", server.port)
        return server

    def _layout(self) -> NamedLayout | None:
        if not self.layout_file:
            return None
        from mig_spawner.agent.layout_file import layout_for

        return layout_for(Path(self.layout_file), self.node)

    def _check(self) -> None:
        if not _is_http(self.allocator_url):
            raise InvalidRequest("Say where the allocator is: --allocator-url=http://…")
        if not 0 < len(self.node) <= _MAX_NODE_NAME:
            raise InvalidRequest(f"A node has a name of 1 to {_MAX_NODE_NAME} characters: --node=…")
        if not 0.1 <= self.report_interval <= 300:
            raise InvalidRequest(f"--report-interval is 0.1 to 300 seconds, not {self.report_interval:g}.")
        if self.driver == "nvml" and (self.gpus or self.state_file):
            raise InvalidRequest("--gpu and --state-file describe simulated GPUs: add --driver=fake.")
        if self.driver == "fake" and not self.gpus:
            raise InvalidRequest("Say which GPUs to simulate, for example --gpu a100-80gb:2.")
        port = self.metrics_bind.rpartition(":")[2]
        if self.metrics_bind and not (
            ":" in self.metrics_bind and port.isascii() and port.isdecimal() and int(port) < 65536
        ):
            raise InvalidRequest(f"--metrics-bind is host:port, for example 127.0.0.1:9454, not {self.metrics_bind!r}.")
        if self.layout_file and self.mode != "static":
            raise InvalidRequest(
                "--layout-file needs --mode=static: a dynamic agent is told by the allocator what to make."
            )
        if self.static_layout and (self.driver, self.mode) != ("fake", "static"):
            raise InvalidRequest(
                "--static-layout needs --driver=fake and --mode=static; real GPUs are cut by their admin."
            )

    def _token(self) -> str:
        if self.token_file:
            try:
                token = Path(self.token_file).read_text("utf-8").strip()
            except (OSError, ValueError) as error:
                raise InvalidRequest(
                    f"The token cannot be read from {self.token_file} ({type(error).__name__})."
                ) from error
        else:
            token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token or not token.isascii() or not token.isprintable():
            where = self.token_file or f"${TOKEN_VARIABLE}"
            raise InvalidRequest(f"There is no usable token in {where}. The allocator knows this node by it.")
        return token

    def _check_words(self, argv: list[str]) -> None:
        """traitlets only warns of an argument it does not know; a mistyped --mode must not go unheard."""
        known = {"help", "help-all", "version", *self.aliases, *self.flags}
        for word in argv:
            name = word.split("=", 1)[0]
            if name.startswith("--") and (
                name[2:] in known or name[2:].removeprefix("AgentApp.") in self.traits(config=True)
            ):
                continue
            if name.startswith("--"):
                raise InvalidRequest(f"{name} is no argument of the agent. See --help-all.")

    def _load_file(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidRequest(f"There is no configuration file {path}.")
        self.load_config_file(path.name, path=str(path.parent))

    def _refuse(self, error: Exception) -> NoReturn:
        print(f"mig-spawner agent: {error}", file=sys.stderr)
        raise SystemExit(1)


def parse_gpus(words: list[str]) -> list[str]:
    """`["a100-80gb:2", "a30-24gb"]` as one model per GPU. Raises `InvalidRequest`."""
    models: list[str] = []
    for word in words:
        model, _, count = word.partition(":")
        if count and not (count.isascii() and count.isdecimal() and 1 <= int(count) <= _MAX_GPUS):
            raise InvalidRequest(f"Write --gpu model:count with a count of 1 to {_MAX_GPUS}, not {word!r}.")
        models += [model] * int(count or 1)
    return models


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _cut_all(node: SimulatedNode, layout: str) -> None:
    names = [ProfileName.parse(word) for word in layout.split(",") if word.strip()]
    for board in node.snapshot().boards:
        if not board.instances:
            node.cut(board.gpu_uuid, names)
