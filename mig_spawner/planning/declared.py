"""From cuts of a fleet to layouts that an admin declares, and back; how a file says them is the business of `domain.layout`.

A layout is of one node, a plan of a whole fleet: it is spread over nodes that have so many GPUs of one model each, and nodes that
are cut alike share a layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.layout import Declaration, Finding, NamedLayout, Part, Seat, intend
from mig_spawner.planning.fleet import Cut
from mig_spawner.testing.gpu import list_models

PER_NODE: Final = 8
"""GPUs of a node, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A plan as layouts.

    Attributes:
        notes: a line for each layout: how many nodes, with which GPUs, are to have it.
    """

    declaration: Declaration
    notes: tuple[str, ...]


def declare(cuts: Sequence[tuple[GPU, Cut]], *, per_node: int = PER_NODE, name: str = "planned") -> Declared:
    """One layout for each kind of node: `planned`, or `planned-1`, `planned-2` where there are several.

    Args:
        cuts: each GPU, and how it is to be cut; an empty cut leaves it whole, out of MIG mode.
    """
    kinds: Counter[tuple[str, tuple[Cut, ...]]] = Counter()
    of = {gpu.gpu_uuid: tuple(sorted(cut)) for gpu, cut in cuts}
    for node in _nodes([gpu for gpu, _ in cuts], per_node):
        kinds[node[0].model, tuple(of[gpu.gpu_uuid] for gpu in node)] += 1
    layouts, notes = {}, []
    for number, ((model, node_cuts), nodes) in enumerate(kinds.items(), start=1):
        own = name if len(kinds) == 1 else f"{name}-{number}"
        layouts[own] = NamedLayout(own, tuple(_parts(node_cuts)))
        notes.append(f"{own}: {nodes} node{'s' if nodes > 1 else ''} with {len(node_cuts)} x {model}")
    return Declared(Declaration(layouts), tuple(notes))


def _parts(cuts: Sequence[Cut]) -> Iterator[Part]:
    alike: dict[Cut, list[int]] = {}
    for index, cut in enumerate(cuts):
        alike.setdefault(cut, []).append(index)
    for cut, indices in alike.items():
        yield Part(tuple(indices), (), bool(cut), {str(profile): count for profile, count in Counter(cut).items()})


def cuts_of(layout: NamedLayout, gpus: Sequence[GPU], *, per_node: int = PER_NODE) -> tuple[list[Cut], list[Finding]]:
    """How these GPUs are cut if every node has this layout, and what of it cannot be had.

    A GPU that a layout does not speak of, or that cannot be cut as it says, is left whole.
    """
    cuts: dict[str, Cut] = {}
    findings: list[Finding] = []
    ids = {model.product: model.pci_device_id for model in list_models()}
    for node in _nodes(gpus, per_node):
        seats = [Seat(index, gpu, ids.get(gpu.model) or None) for index, gpu in enumerate(node)]
        intents, found = intend(layout, seats)
        cuts |= {i.gpu_uuid: tuple(profile.name for profile, _ in i.places) for i in intents}
        findings += found
    return [cuts.get(gpu.gpu_uuid, ()) for gpu in gpus], list(dict.fromkeys(findings))


def _nodes(gpus: Sequence[GPU], per_node: int) -> Iterator[list[GPU]]:
    models: dict[str, list[GPU]] = {}
    for gpu in gpus:
        models.setdefault(gpu.model, []).append(gpu)
    for own in models.values():
        for begin in range(0, len(own), per_node):
            yield own[begin : begin + per_node]
