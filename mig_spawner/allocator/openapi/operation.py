"""What each verb of the API does, what it takes and gives, and why it may say no. Who may call stands at the handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from mig_spawner.allocator.document import NodeDocument, NodeList
from mig_spawner.wire.availability import Availability, Ticket, TicketRequest
from mig_spawner.wire.lease import LeaseDocument, LeaseExtension, LeaseList, LeaseRelease, LeaseRequest
from mig_spawner.wire.menu.seen import SeenMenu
from mig_spawner.wire.node import DesiredNode, NodeDrain, NodeReport
from mig_spawner.wire.pick import DevicePick
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.queue import ExplainDocument, LeaseChange, QueueDocument
from mig_spawner.wire.quota import QuotaList, Usage
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeList, ReshapeRejection
from mig_spawner.wire.webhook import DeliveryDocument, DeliveryList, WebhookCreated, WebhookList, WebhookRequest


@dataclass(frozen=True)
class Operation:
    """One verb of one path.

    Attributes:
        name: its `operationId`, for those who make clients of the document.
        about: one sentence.
        answer: the document of success; None for JSON that has no document of ours, or for no body where `status` says so.
        body: the document it takes; None for no body.
        problems: codes beyond those that every verb may answer with.
        status: of success.
        streams: success is a stream of server-sent events.
        media_type: of success.
    """

    name: str
    about: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    problems: tuple[ProblemCode, ...] = ()
    status: int = 200
    streams: bool = False
    media_type: str = "application/json"


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("openapi.json", "get"): Operation("getOpenAPI", "This document.", None),
    ("availability", "get"): Operation("getAvailability", "What is free now.", Availability),
    ("availability", "options"): Operation(
        "preflightAvailability", "Tells a browser that pages of every origin may read availability.", None, status=204
    ),
    ("events", "get"): Operation(
        "watchEvents",
        "What happens to leases (to a person: its own), and what is free, as server-sent events for as long as the caller listens. "
        "`data` is JSON; `event` is queued, granted, ready, active, expiring, ended, closed, availability or gap.",
        None,
        problems=(ProblemCode.TOO_MANY_STREAMS,),
        streams=True,
    ),
    ("tickets", "post"): Operation(
        "issueTicket",
        "A short-lived ticket with which one person's browser may read availability.",
        Ticket,
        TicketRequest,
    ),
    ("menu", "get"): Operation(
        "getMenu", "What the caller may have, and what not and why. Empty where this allocator has no menu.", SeenMenu
    ),
    ("quotas", "get"): Operation("getQuotas", "What is left of the quotas that hold for the caller.", QuotaList),
    ("usage", "get"): Operation("getUsage", "Who used how much. A person sees their own.", Usage),
    ("usage.csv", "get"): Operation(
        "getUsageCSV", "The same for spreadsheets, of everybody.", None, media_type="text/csv"
    ),
    ("leases", "get"): Operation("listLeases", "Open leases, oldest first. A person sees its own.", LeaseList),
    ("leases", "post"): Operation(
        "acquireLease",
        "Acquire: the holder's lease, a new one or the one it already has. Both accelerator fields left out ask for a whole GPU.",
        LeaseDocument,
        LeaseRequest,
        (
            ProblemCode.CONFLICT,
            ProblemCode.IMPOSSIBLE,
            ProblemCode.NOT_OFFERED,
            ProblemCode.NOT_ON_MENU,
            ProblemCode.QUEUE_FULL,
            ProblemCode.QUOTA,
            ProblemCode.RATE_LIMITED,
        ),
    ),
    ("leases/release", "post"): Operation(
        "releaseHolder",
        "Give back whatever open lease a holder has. The list is empty when it has none.",
        LeaseList,
        LeaseRelease,
    ),
    ("leases/{id}", "get"): Operation("getLease", "One lease. Somebody else's is not found.", LeaseDocument),
    ("leases/{id}", "patch"): Operation(
        "changeLease",
        "Change what a lease waits for; it keeps its time of arrival. What is left out stays.",
        LeaseDocument,
        LeaseChange,
        (ProblemCode.CONFLICT, ProblemCode.IMPOSSIBLE, ProblemCode.NOT_ON_MENU, ProblemCode.NOT_OFFERED),
    ),
    ("leases/{id}/explain", "get"): Operation(
        "explainLease", "Why a lease is where it is, or why it waits.", ExplainDocument
    ),
    ("leases/{id}/claim", "post"): Operation(
        "claimLease",
        "Its holder is back: what is ready for it does not pass on to the next.",
        LeaseDocument,
        problems=(ProblemCode.CONFLICT,),
    ),
    ("leases/{id}/renew", "post"): Operation(
        "renewLease",
        "Confirm a ready lease, which makes it active; the heartbeat of an active one.",
        LeaseDocument,
        problems=(ProblemCode.CONFLICT,),
    ),
    ("leases/{id}/extend", "post"): Operation(
        "extendLease",
        "Keep a lease for longer, as far as menu and quotas allow. Doing it twice does no harm.",
        LeaseDocument,
        LeaseExtension,
        (ProblemCode.CONFLICT, ProblemCode.NOT_ON_MENU, ProblemCode.NOT_OFFERED, ProblemCode.QUOTA),
    ),
    ("leases/{id}/device", "post"): Operation(
        "learnDevice",
        "Where the node picks the device: the one that it gave to the pod of a lease. Doing it twice does no harm.",
        LeaseDocument,
        DevicePick,
        (ProblemCode.CONFLICT,),
    ),
    ("leases/{id}/release", "post"): Operation(
        "releaseLease", "Give a lease back. Doing it twice does no harm.", LeaseDocument, LeaseRelease
    ),
    ("queue", "get"): Operation(
        "getQueue", "Who waits, next first, and why. Names are for oneself and for admins.", QueueDocument
    ),
    ("nodes", "get"): Operation("listNodes", "Nodes by name.", NodeList),
    ("nodes/{node}", "put"): Operation(
        "reportNode",
        "An agent's report of its node; the answer is what the node should look like.",
        DesiredNode,
        NodeReport,
        (ProblemCode.CONFLICT,),
    ),
    ("nodes/{node}", "delete"): Operation(
        "forgetNode",
        "Forget a node that is gone for good: it is silent, and nothing of ours is on it.",
        None,
        problems=(ProblemCode.CONFLICT,),
        status=204,
    ),
    ("nodes/{node}/desired", "get"): Operation("getDesired", "What the node should look like.", DesiredNode),
    ("nodes/{node}/cordon", "post"): Operation(
        "cordonNode", "Grant nothing more on a node. What runs there is left alone.", NodeDocument
    ),
    ("nodes/{node}/uncordon", "post"): Operation("uncordonNode", "Grant on a node again.", NodeDocument),
    ("nodes/{node}/drain", "post"): Operation(
        "drainNode", "Grant nothing more on a node, and end every lease on it.", NodeDocument, NodeDrain
    ),
    ("reshapes", "get"): Operation("listReshapes", "Proposals to cut idle partitions anew.", ReshapeList),
    ("reshapes/{reshape}", "get"): Operation(
        "getReshape",
        "One proposal: the GPU before and after, and what that would do for those who wait.",
        ReshapeDocument,
    ),
    ("reshapes/{reshape}/approve", "post"): Operation(
        "approveReshape",
        "Say yes: it is applied now or at its time, if what it would cut is idle then.",
        ReshapeDocument,
        ReshapeApproval,
        (ProblemCode.CONFLICT,),
    ),
    ("reshapes/{reshape}/reject", "post"): Operation(
        "rejectReshape",
        "Say no to a proposal, or take back one that holds, as soon as nobody uses what it made.",
        ReshapeDocument,
        ReshapeRejection,
        (ProblemCode.CONFLICT,),
    ),
    ("webhooks", "get"): Operation("listWebhooks", "All webhooks, oldest first.", WebhookList),
    ("webhooks", "post"): Operation(
        "createWebhook",
        "Have events sent to an address, which must be at an origin that the allocator's configuration allows. The secret that signs "
        "them is in this answer and in no other.",
        WebhookCreated,
        WebhookRequest,
        (ProblemCode.CONFLICT,),
        status=201,
    ),
    ("webhooks/{webhook}", "delete"): Operation(
        "deleteWebhook", "End a webhook. What was on its way is not delivered.", None, status=204
    ),
    ("webhooks/{webhook}/deliveries", "get"): Operation(
        "listDeliveries",
        "What is on its way to a webhook, what arrived and what was given up; newest first.",
        DeliveryList,
    ),
    ("webhooks/{webhook}/deliveries/{number}/redeliver", "post"): Operation(
        "redeliver", "Begin a delivery anew, whatever became of it.", DeliveryDocument
    ),
}

PATH_PARAMETERS: Final[Mapping[str, str]] = {
    "id": "The lease's `lease_id`.",
    "number": "The number of the delivery.",
    "webhook": "The webhook's `webhook_id`.",
    "reshape": "The proposal's `reshape_id`.",
    "node": "The name of the node, as its agent reports it.",
}

FROM_A_LEASE: Final = (
    "getLease",
    "explainLease",
    "changeLease",
    "claimLease",
    "renewLease",
    "extendLease",
    "releaseLease",
)
"""What can be done with the lease that an acquire answers with."""
