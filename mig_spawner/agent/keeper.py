"""Keeping the GPUs of a running agent as their admins want them: as declared in a file, and as an approved proposal changes that.

What is decided and how it is done stands in `layout`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.layout import Change, Place, apply, changes, changes_to, seats
from mig_spawner.domain.layout import Intent, NamedLayout, intend
from mig_spawner.wire.node import CUT_ANEW, DesiredLayout, DesiredPlace, GPUDocument, Health, StepFailure

log = logging.getLogger(__name__)


class Keeper:
    """Looks at the GPUs of a node, and makes what is missing of their layout: at the start, after each boot, and when told.

    Of its own accord it destroys nothing but half-made instances in its own places. The allocator may have idle partitions cut anew: it
    names those that go. A GPU that does not look as declared is reported as draining, so that nobody gets a slice of a node that is
    still being set up.

    `failures` says of the last look what could not be cut anew.
    """

    def __init__(self, driver: Driver, observer: Observer, layout: NamedLayout | None = None) -> None:
        """`layout`: what the file declares; without one only what the allocator wants is done."""
        self._driver = driver
        self._observer = observer
        self._layout = layout
        self._name = "" if layout is None else layout.name
        self._said: dict[str, str] = {}
        self._wanted: dict[str, DesiredLayout] = {}
        self._in_vain: dict[str, tuple[DesiredLayout, str]] = {}
        self.failures: tuple[StepFailure, ...] = ()

    def want(self, layouts: Sequence[DesiredLayout]) -> None:
        """From the next look on these GPUs are to be cut so, and the others as declared."""
        self._wanted = {layout.gpu_uuid: layout for layout in layouts}
        kept = self._in_vain.items()
        self._in_vain = {uuid: vain for uuid, vain in kept if self._wanted.get(uuid) == vain[0]}

    def observe(self) -> tuple[GPUDocument, ...]:
        """See `Observer.observe`."""
        gpus = self._observer.observe()
        if self._layout is None and not self._wanted:
            self.failures = ()
            return tuple(_reshapable(gpu, declared=False) for gpu in gpus)
        declared, impossible = self._declared(gpus)
        found = self._planned(gpus, declared)
        if any(change.steps for change in found.values()):
            for change in found.values():
                self._make(change, declared)
            gpus = self._observer.observe()
            found = self._planned(gpus, declared)
        self.failures = tuple(self._failures(found))
        reasons = {uuid: c.refusal or _still(c) for uuid, c in found.items() if not c.in_force and uuid in declared}
        self._tell(reasons, impossible)
        return tuple(
            _drained(_reshapable(gpu, declared=gpu.gpu_uuid in declared), self._name, reasons.get(gpu.gpu_uuid, ""))
            for gpu in gpus
        )

    def _declared(self, gpus: Sequence[GPUDocument]) -> tuple[dict[str, Intent], list[str]]:
        if self._layout is None:
            return {}, []
        intents, findings = intend(self._layout, seats(gpus))
        return {intent.gpu_uuid: intent for intent in intents}, [str(f) for f in findings if f.fatal]

    def _planned(self, gpus: Sequence[GPUDocument], declared: Mapping[str, Intent]) -> dict[str, Change]:
        """What leads each GPU that anybody has said something of to what is wanted."""
        found = {}
        for gpu in gpus:
            uuid, wanted = gpu.gpu_uuid, self._wanted.get(gpu.gpu_uuid)
            intent = declared.get(uuid)
            if wanted is not None:
                found[uuid] = changes_to(gpu, _otherwise(gpu, intent, wanted), goes=_places(wanted.remove))
            elif intent is not None:
                found[uuid] = changes(gpu, intent, replace=False)
        return found

    def _make(self, change: Change, declared: Mapping[str, Intent]) -> None:
        uuid = change.gpu_uuid
        if not change.steps or uuid in self._in_vain:
            return
        wanted = self._wanted.get(uuid)
        confirm = str if wanted is None else lambda: self._confirm(uuid, declared)
        outcome = apply(self._driver, self._observer, [change], confirm=confirm)
        if outcome.failure:
            log.warning("GPU %s does not get its layout: %s", uuid, " ".join([outcome.failure, *outcome.left]))
            if wanted is not None:
                # To destroy and make again in a circle helps nobody: it is told, and tried again when something else is wanted.
                self._in_vain[uuid] = wanted, " ".join([outcome.failure, *outcome.left])

    def _confirm(self, gpu_uuid: str, declared: Mapping[str, Intent]) -> str:
        change = self._planned(self._observer.observe(), declared).get(gpu_uuid)
        if change is None:
            return "The GPU does not answer any more."
        return "" if change.in_force else change.refusal or _still(change)

    def _failures(self, found: Mapping[str, Change]) -> list[StepFailure]:
        reasons = {uuid: "This node has no such GPU." for uuid in self._wanted if uuid not in found}
        reasons |= {uuid: change.refusal for uuid, change in found.items() if change.refusal and uuid in self._wanted}
        reasons |= {uuid: why for uuid, (_, why) in self._in_vain.items() if uuid in found and not found[uuid].in_force}
        return [
            StepFailure(gpu_uuid=uuid, step=CUT_ANEW, reason=reason[:2000]) for uuid, reason in sorted(reasons.items())
        ]

    def _tell(self, reasons: Mapping[str, str], impossible: Sequence[str]) -> None:
        said = {**reasons, **{f"layout {self._name}": sentence for sentence in impossible}}
        for who, sentence in said.items():
            if self._said.get(who) != sentence:
                log.warning("%s: layout %s is not in force: %s", who, self._name, sentence)
        self._said = said


def _otherwise(gpu: GPUDocument, declared: Intent | None, wanted: DesiredLayout) -> set[Place]:
    """How a GPU is to look: as declared, else as it is, without what is to go and with what is to come."""
    places = {(i.profile_id, i.start, i.size) for i in gpu.instances}
    if declared is not None:
        places = {(p.profile_id, start, p.size) for p, start in declared.places}
    return places - _places(wanted.remove) | _places(wanted.make)


def _places(places: Sequence[DesiredPlace]) -> set[Place]:
    return {(place.profile_id, place.start, place.size) for place in places}


def _still(change: Change) -> str:
    return f"Still to do: {'; '.join(map(str, change.steps))}."


def _reshapable(gpu: GPUDocument, *, declared: bool) -> GPUDocument:
    """Whether its idle partitions can be cut anew: where we cut in any case, and where we make a layout that is declared."""
    able = (gpu.dynamic or declared) and gpu.mig_enabled is True and gpu.health is Health.OK
    return gpu.model_copy(update={"reshapable": True}) if able else gpu


def _drained(gpu: GPUDocument, layout: str, reason: str) -> GPUDocument:
    if not reason or gpu.health is not Health.OK:
        return gpu
    sentence = f"Its layout {layout} is not in force. {reason}"
    return gpu.model_copy(update={"health": Health.DRAINING, "health_reason": sentence[:2000]})
