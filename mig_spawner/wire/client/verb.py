"""What can be asked of an allocator, one flow each. What a verb means stands at the methods of `AllocatorClient`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from mig_spawner.wire.availability import Availability, Ticket, TicketRequest
from mig_spawner.wire.client.flow import Call, Flow, Peer, ask
from mig_spawner.wire.lease import LeaseDocument, LeaseExtension, LeaseList, LeaseRelease, LeaseRequest
from mig_spawner.wire.menu.seen import SeenMenu
from mig_spawner.wire.node import DesiredNode, NodeReport
from mig_spawner.wire.pick import DevicePick
from mig_spawner.wire.queue import ExplainDocument, LeaseChange, QueueDocument, QueueEntry
from mig_spawner.wire.quota import QuotaList, Usage, UsageKey
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeList, ReshapeRejection


def availability(peer: Peer, without: str | None = None) -> Flow[Availability]:
    query = {} if without is None else {"without": without}
    return ask(peer, Call(Availability.model_validate_json, "GET", "availability", query=query))


def menu(peer: Peer, user: str | None, groups: Sequence[str]) -> Flow[SeenMenu]:
    query: dict[str, str | Sequence[str]] = {} if user is None else {"user": user, "group": groups}
    return ask(peer, Call(SeenMenu.model_validate_json, "GET", "menu", query=query))


def quotas(peer: Peer, user: str | None, groups: Sequence[str]) -> Flow[QuotaList]:
    query: dict[str, str | Sequence[str]] = {} if user is None else {"user": user, "group": groups}
    return ask(peer, Call(QuotaList.model_validate_json, "GET", "quotas", query=query))


def usage(peer: Peer, by: UsageKey, window_s: int, user: str | None) -> Flow[Usage]:
    query = {"by": by.value, "window": str(window_s), **({} if user is None else {"user": user})}
    return ask(peer, Call(Usage.model_validate_json, "GET", "usage", query=query))


def ticket(peer: Peer, user_name: str) -> Flow[Ticket]:
    return ask(peer, Call(Ticket.model_validate_json, "POST", "tickets", TicketRequest(user_name=user_name)))


def acquire(peer: Peer, request: LeaseRequest, wait_s: float) -> Flow[LeaseDocument]:
    # To ask again is harmless: the holder has one lease, however often it asks.
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", "leases", request, wait_s=wait_s))


def lease(peer: Peer, lease_id: str, wait_s: float, known: LeaseDocument | None) -> Flow[LeaseDocument]:
    query = {} if known is None else {"known": f"{known.state}:{known.position or 0}"}
    return ask(
        peer, Call(LeaseDocument.model_validate_json, "GET", f"leases/{_part(lease_id)}", query=query, wait_s=wait_s)
    )


def leases(peer: Peer, user_id: str | None, server_name: str | None) -> Flow[LeaseList]:
    query = {k: v for k, v in {"user_id": user_id, "server_name": server_name}.items() if v is not None}
    found: list[LeaseDocument] = []
    while True:
        page = yield from ask(peer, Call(LeaseList.model_validate_json, "GET", "leases", query=query))
        found += page.leases
        if page.next is None or not page.leases:
            return LeaseList(leases=tuple(found))
        query = {**query, "cursor": page.next}


def change(peer: Peer, lease_id: str, wanted: LeaseChange) -> Flow[LeaseDocument]:
    return ask(peer, Call(LeaseDocument.model_validate_json, "PATCH", f"leases/{_part(lease_id)}", wanted))


def claim(peer: Peer, lease_id: str) -> Flow[LeaseDocument]:
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", f"leases/{_part(lease_id)}/claim"))


def explain(peer: Peer, lease_id: str) -> Flow[ExplainDocument]:
    return ask(peer, Call(ExplainDocument.model_validate_json, "GET", f"leases/{_part(lease_id)}/explain"))


def queue(peer: Peer) -> Flow[QueueDocument]:
    entries: list[QueueEntry] = []
    query: dict[str, str] = {}
    while True:
        page = yield from ask(peer, Call(QueueDocument.model_validate_json, "GET", "queue", query=query))
        entries += page.entries
        if page.next is None or not page.entries:
            return page.model_copy(update={"entries": tuple(entries), "next": None})
        query = {"cursor": page.next}


def renew(peer: Peer, lease_id: str) -> Flow[LeaseDocument]:
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", f"leases/{_part(lease_id)}/renew"))


def extend(peer: Peer, lease_id: str, how: LeaseExtension) -> Flow[LeaseDocument]:
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", f"leases/{_part(lease_id)}/extend", how))


def learn_device(peer: Peer, lease_id: str, device_uuid: str) -> Flow[LeaseDocument]:
    pick = DevicePick(device_uuid=device_uuid)
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", f"leases/{_part(lease_id)}/device", pick))


def release(peer: Peer, lease_id: str, how: LeaseRelease) -> Flow[LeaseDocument]:
    return ask(peer, Call(LeaseDocument.model_validate_json, "POST", f"leases/{_part(lease_id)}/release", how))


def release_holder(peer: Peer, user_id: str, server_name: str, how: LeaseRelease) -> Flow[LeaseList]:
    query = {"user_id": user_id, "server_name": server_name}
    # Not repeatable when it may have been done: the holder may have asked anew meanwhile, and would lose that lease.
    return ask(peer, Call(LeaseList.model_validate_json, "POST", "leases/release", how, query, repeatable=False))


def report(peer: Peer, node: str, observed: NodeReport) -> Flow[DesiredNode]:
    return ask(peer, Call(DesiredNode.model_validate_json, "PUT", f"nodes/{_part(node)}", observed))


def desired(peer: Peer, node: str, known: int, wait_s: float) -> Flow[DesiredNode]:
    query = {"known": str(known)}
    return ask(
        peer, Call(DesiredNode.model_validate_json, "GET", f"nodes/{_part(node)}/desired", query=query, wait_s=wait_s)
    )


def reshapes(peer: Peer) -> Flow[ReshapeList]:
    return ask(peer, Call(ReshapeList.model_validate_json, "GET", "reshapes"))


def reshape(peer: Peer, reshape_id: str) -> Flow[ReshapeDocument]:
    return ask(peer, Call(ReshapeDocument.model_validate_json, "GET", f"reshapes/{_part(reshape_id)}"))


def approve(peer: Peer, reshape_id: str, how: ReshapeApproval) -> Flow[ReshapeDocument]:
    path = f"reshapes/{_part(reshape_id)}/approve"
    return ask(peer, Call(ReshapeDocument.model_validate_json, "POST", path, how, repeatable=False))


def reject(peer: Peer, reshape_id: str, how: ReshapeRejection) -> Flow[ReshapeDocument]:
    path = f"reshapes/{_part(reshape_id)}/reject"
    return ask(peer, Call(ReshapeDocument.model_validate_json, "POST", path, how, repeatable=False))


def _part(text: str) -> str:
    return quote(text, safe="")
