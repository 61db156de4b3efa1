"""How long the allocator waits for nodes, devices, pods and people, and how many may wait for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from traitlets import Float, HasTraits, Integer


class WaitTraits(HasTraits):
    """Times, in seconds."""

    node_silent_after = Float(
        60,
        help="Seconds without a report after which nothing more is granted on a node. Agents report every few seconds.",
    ).tag(config=True)

    ready_timeout = Float(
        600, help="Seconds that a ready slice waits for its server. Longer than the slowest image pull on your nodes."
    ).tag(config=True)

    make_timeout = Float(
        120, help="Seconds for an agent to make a device; then another GPU is tried. A slow driver needs 10 to 20."
    ).tag(config=True)

    settle_after = Float(
        40,
        help="""Seconds in which a pod that nobody has seen may still appear after its server was stopped.

        At least the hub's k8s_api_request_retry_timeout (30) and a margin: a slice is not given on before.
        """,
    ).tag(config=True)

    heartbeat_timeout = Float(
        300, help="Seconds without a heartbeat after which a lease without pod and process is released."
    ).tag(config=True)

    queue_limit = Integer(1000, help="How many may wait at once; more are told to try later.").tag(config=True)

    starvation_after = Float(
        1800,
        help="""Seconds in the queue after which a request that nothing becomes free for has a GPU earmarked; 0 for never.

        Nothing new is placed on that GPU, so that it becomes free as a whole, at the price of slices that lie idle meanwhile. Shorter
        where many ask for large slices, longer where those can wait.
        """,
    ).tag(config=True)

    claim_window = Float(
        600,
        help="""Seconds in which somebody who left the queue to come back has to claim a slice that is ready; then it passes on.

        Starts of servers claim at once. Longer where people cannot be reached quickly; the slice lies idle for as long.
        """,
    ).tag(config=True)

    def wait_settings(self) -> dict[str, Any]:
        """What of this a transaction goes by, as arguments of `Setting`."""
        return {
            "node_silent_after": timedelta(seconds=self.node_silent_after),
            "ready_timeout": timedelta(seconds=self.ready_timeout),
            "make_timeout": timedelta(seconds=self.make_timeout),
            "settle_after": timedelta(seconds=self.settle_after),
            "heartbeat_timeout": timedelta(seconds=self.heartbeat_timeout),
            "queue_limit": self.queue_limit,
            "starvation_after": timedelta(seconds=self.starvation_after) if self.starvation_after > 0 else None,
            "claim_window": timedelta(seconds=self.claim_window),
        }
