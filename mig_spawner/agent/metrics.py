"""What Prometheus and the kubelet see of an agent: `/metrics` and `/healthz`. A figure that is not known is absent, never 0."""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.registry import Collector

from mig_spawner.agent.board import Board
from mig_spawner.wire.node import GPUDocument, Health, UsageDocument

log = logging.getLogger(__name__)

STUCK_AFTER_S: Final = 300.0
"""An agent that has not looked at its GPUs for so long hangs; a slow driver needs ten seconds for a call."""
_REQUEST_TIMEOUT_S: Final = 10
_MIB: Final = 1024 * 1024


class AgentCollector(Collector):
    """The series of one node, read when somebody asks. Labels `UUID` and `GPU_I_ID` are those of NVIDIA's dcgm-exporter."""

    def __init__(self, node: str, board: Board) -> None:
        self._node = node
        self._board = board

    def collect(self) -> Iterator[Metric]:
        sight = self._board.sight
        yield _one("mig_agent_driver_up", "Whether the driver answers.", float(sight.driver))
        yield _one("mig_agent_look_age_seconds", "Time since the agent looked at its GPUs.", self._board.looked_s)
        yield _one("mig_agent_answer_age_seconds", "Time since the allocator answered.", self._board.answered_s)
        yield self._health(sight.gpus)
        profiles = {(g.gpu_uuid, i.mig_uuid): i.profile or "" for g in sight.gpus for i in g.instances}
        info = GaugeMetricFamily(
            "mig_device_info",
            "A device by its names.",
            labels=["node", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "mig_uuid"],
        )
        for u in sight.usage:
            profile = profiles.get((u.gpu_uuid, u.device_uuid), "")
            mig_uuid = "" if u.gpu_instance_id is None else u.device_uuid
            info.add_metric([*self._labels(u), profile, mig_uuid], 1)
        yield info
        for name, about, value in _SERIES:
            yield self._series(name, about, sight.usage, value)

    def _labels(self, usage: UsageDocument) -> list[str]:
        number = "" if usage.gpu_instance_id is None else str(usage.gpu_instance_id)
        return [self._node, usage.gpu_uuid, number]

    def _series(
        self, name: str, about: str, usages: Iterable[UsageDocument], value: Callable[[UsageDocument], float | None]
    ) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node", "UUID", "GPU_I_ID"])
        for usage in usages:
            figure = value(usage)
            if figure is not None:
                family.add_metric(self._labels(usage), figure)
        return family

    def _health(self, gpus: Iterable[GPUDocument]) -> Metric:
        family = GaugeMetricFamily(
            "mig_gpu_health_state", "1 for the state it is in.", labels=["node", "UUID", "state"]
        )
        for gpu in gpus:
            for state in Health:
                family.add_metric([self._node, gpu.gpu_uuid, state.value], float(gpu.health is state))
        return family


def _bytes(mib: int | None) -> float | None:
    return None if mib is None else float(mib) * _MIB


_SERIES: Final[tuple[tuple[str, str, Callable[[UsageDocument], float | None]], ...]] = (
    ("mig_device_memory_used_bytes", "Memory in use.", lambda u: _bytes(u.memory_used_mib)),
    ("mig_device_memory_total_bytes", "Memory of the device.", lambda u: _bytes(u.memory_total_mib)),
    (
        "mig_device_memory_peak_bytes",
        "Most memory seen in use since the device came.",
        lambda u: _bytes(u.memory_peak_mib),
    ),
    ("mig_device_process_count", "Processes on the device.", lambda u: u.processes),
    ("mig_device_sm_active_ratio", "SMs with work, of all.", lambda u: u.sm),
    ("mig_device_tensor_active_ratio", "Time with tensor cores at work.", lambda u: u.tensor),
    ("mig_device_dram_active_ratio", "Memory bandwidth in use, of all.", lambda u: u.dram),
)


def _one(name: str, about: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, about)
    if value is not None:
        family.add_metric([], value)
    return family


# -- the server --------------------------------------------------------------------------------------------------------


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        log.debug(format, *args)


class MetricsServer:
    """Serves one node's `/metrics` and `/healthz` from threads of its own, read only.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, node: str, board: Board) -> None:
        registry = CollectorRegistry()
        registry.register(AgentCollector(node, board))
        self._board = board
        self._metrics: Callable[..., list[bytes]] = make_wsgi_app(registry)
        self._server = make_server(host, port, self._answer, server_class=_Server, handler_class=_Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _plain(start, "405 Method Not Allowed", "Only GET is understood here.")
        if path == "/metrics":
            return self._metrics(environ, start)
        if path != "/healthz":
            return _plain(start, "404 Not Found", "There are /metrics and /healthz.")
        if self._board.looked_s > STUCK_AFTER_S:
            return _plain(start, "503 Service Unavailable", "The agent hangs in a call of the driver.")
        return _plain(start, "200 OK", self._board.sight.problem or "ok")


def _plain(start: Callable[..., Any], status: str, text: str) -> list[bytes]:
    body = f"{text}\n".encode()
    start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]
