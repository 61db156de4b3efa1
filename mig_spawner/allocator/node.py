"""What agents and admins may do with nodes: one transaction per use case."""

from __future__ import annotations

from dataclasses import dataclass

from mig_spawner.allocator.document import NodeDocument, NodeList, node_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.observation import end_after_boot, measure, observe
from mig_spawner.allocator.paging import page
from mig_spawner.allocator.pool import pools_of
from mig_spawner.allocator.recovery import take_up
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.reshape.advance import follow
from mig_spawner.allocator.service import Desk, settle
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import EndReason, PodFate, Releasing
from mig_spawner.domain.sentence import counted
from mig_spawner.wire.node import DesiredNode, Health, NodeReport
from mig_spawner.wire.problem import ProblemCode


@dataclass(frozen=True)
class SeenNode:
    """What a node should look like, as it was read at a revision of the ledger."""

    desired: DesiredNode
    revision: int


class NodeService:
    """Reports, desired states and cordons. Errors as in `LeaseService`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def report(self, name: str, report: NodeReport, *, who: str) -> DesiredNode:
        """Take in an inventory, move the leases it concerns, and say what the node should look like now."""
        with self._desk.writing(who) as ledger:
            before = ledger.nodes.get(name)
            report = _with_those_out_of_sight(before, _with_known_profiles(before, report))
            _refuse_foreign_gpus(ledger, name, report)
            ledger.tx.put_report(name, report)
            ledger.forget()
            if before is not None and before.report is not None and before.report.boot_id != report.boot_id:
                end_after_boot(ledger, name)
            observe(ledger, _known(ledger, name), report)
            measure(ledger, _known(ledger, name), report.usage)
            take_up(ledger)
            follow(ledger, name, report)
            settle(ledger)
            ledger.forget()
            return _known(ledger, name).desired

    def desired(self, name: str) -> SeenNode:
        with self._desk.reading(view=False) as ledger:
            node = ledger.tx.node(name)
            return SeenNode(_there(node).desired, ledger.tx.revision)

    def nodes(self, *, after: str | None = None, limit: int | None = None) -> NodeList:
        """Nodes by name: those after one, at most so many."""
        with self._desk.reading() as ledger:
            shown, more = page(ledger.nodes.values(), lambda node: node.name, after=after, limit=limit)
            documents = tuple(node_document(ledger, node) for node in shown)
            return NodeList(
                nodes=documents, pools=pools_of(ledger, ledger.fleet), next=shown[-1].name if more else None
            )

    def cordon(self, name: str, cordoned: bool, *, who: str) -> NodeDocument:
        """Grant nothing more on a node, or grant again. What runs is left alone. Doing it twice does no harm."""
        with self._desk.writing(who) as ledger:
            _put_cordoned(ledger, name, cordoned, "cordon" if cordoned else "uncordon")
            settle(ledger)
            ledger.forget()
            return node_document(ledger, _known(ledger, name))

    def drain(self, name: str, *, message: str = "", who: str) -> NodeDocument:
        """Cordon a node and end what is on it. Who waits for something there waits on. Doing it twice does no harm."""
        with self._desk.writing(who) as ledger:
            _put_cordoned(ledger, name, True, "drain")
            why = f"node {name} is drained" + (f". {message}" if message else "")
            for lease in ledger.facts.leases_of(name):
                if not isinstance(lease, Releasing):
                    ended = transition.release(lease, EndReason.FORCED, PodFate.UNKNOWN, ledger.now, message)
                    ledger.move(lease, ended, why)
            settle(ledger)
            ledger.forget()
            return node_document(ledger, _known(ledger, name))

    def forget(self, name: str, *, who: str) -> None:
        """Forget a node that is gone for good. If it ever reports again, it is a new one."""
        with self._desk.writing(who) as ledger:
            _refuse_to_forget(ledger, _known(ledger, name))
            ledger.tx.note_node(name, who=who, before="known", after="forgotten", why="forget")
            ledger.tx.drop_node(name)


def _put_cordoned(ledger: Ledger, name: str, cordoned: bool, why: str) -> None:
    """Write it down where it is a change."""
    was = _known(ledger, name).cordoned
    if was is not cordoned:
        words = {True: "cordoned", False: "uncordoned"}
        ledger.tx.put_cordoned(name, cordoned)
        ledger.tx.note_node(name, who=ledger.who, before=words[was], after=words[cordoned], why=why)
        ledger.forget()


def _known(ledger: Ledger, name: str) -> NodeRecord:
    return _there(ledger.nodes.get(name))


def _there(node: NodeRecord | None) -> NodeRecord:
    if node is None:
        raise refusal(ProblemCode.NOT_FOUND, "No such node has reported yet.")
    return node


def _with_known_profiles(before: NodeRecord | None, report: NodeReport) -> NodeReport:
    """The report with what its node told before of GPUs that cannot be read now: their profiles, and whether they can be cut.

    They belong to the GPU. An agent that has begun anew may not know them yet, and without them whoever asks for one would hear
    that no GPU here will ever have it.
    """
    if before is None or before.report is None:
        return report
    known = {gpu.gpu_uuid: gpu for gpu in before.report.gpus}
    gpus = tuple(
        known[gpu.gpu_uuid].model_copy(
            update={"health": gpu.health, "health_reason": gpu.health_reason, "processes": None, "instances": ()}
        )
        if gpu.health is Health.BAD and gpu.gpu_uuid in known and not (gpu.profiles and gpu.mig_enabled is not None)
        else gpu
        for gpu in report.gpus
    )
    return report.model_copy(update={"gpus": gpus})


def _with_those_out_of_sight(before: NodeRecord | None, report: NodeReport) -> NodeReport:
    """The report with the GPUs that its node had and does not show any more: without a boot no GPU goes away, it is only not seen.

    The driver may be missing, or a GPU was lost when an agent began that never knew it. It stays the node's, and nothing can be said
    of it. With a boot the node may have been rebuilt, and has what it shows.
    """
    if before is None or before.report is None or (before.report.boot_id != report.boot_id and report.gpus):
        return report
    why = report.problem or "Its node does not show it any more. Boot the node, or have it checked."
    unseen = {"health": Health.BAD, "health_reason": why, "processes": None, "instances": ()}
    shown = {gpu.gpu_uuid for gpu in report.gpus}
    lost = [gpu.model_copy(update=unseen) for gpu in before.report.gpus if gpu.gpu_uuid not in shown]
    return report.model_copy(update={"gpus": (*report.gpus, *lost)}) if lost else report


def _refuse_to_forget(ledger: Ledger, node: NodeRecord) -> None:
    if not ledger.is_silent(node):
        after = ledger.setting.node_silent_after.total_seconds()
        raise refusal(
            ProblemCode.CONFLICT,
            f"Node {node.name} still reports. End its agent, and try again when it has been silent for {after:.0f} s.",
        )
    held = sorted(lease.lease_id for lease in ledger.facts.leases_of(node.name))
    if held:
        raise refusal(
            ProblemCode.CONFLICT,
            f"Node {node.name} still has {counted(len(held), 'lease')}, {held[0]} for one. Release them by force, if their pods are gone.",
        )
    left = len(ledger.facts.remnants_of(node.name))
    if left:
        raise refusal(
            ProblemCode.CONFLICT,
            f"Node {node.name} has still to destroy {counted(left, 'instance')} of ended leases. Let its agent run until that is done.",
        )


def _refuse_foreign_gpus(ledger: Ledger, name: str, report: NodeReport) -> None:
    """Two nodes cannot have one GPU. Whoever reported it first keeps it, until it is silent and nothing of ours is on the GPU."""
    facts = ledger.facts
    for gpu in report.gpus:
        owner = facts.owners.get(gpu.gpu_uuid)
        if owner is None or owner == name:
            continue
        in_use = facts.leases_on(gpu.gpu_uuid) or facts.remnants_on(gpu.gpu_uuid)
        if in_use or not ledger.is_silent(ledger.nodes[owner]):
            raise refusal(
                ProblemCode.CONFLICT,
                f"GPU {gpu.gpu_uuid} is reported by node {owner} already. One of the two agents sees a GPU that is not its own, "
                f"or runs under a wrong node name.",
            )
