"""From a declaration to what a file says, ready to be written as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mig_spawner.domain.layout.model import Declaration, Finding, NamedLayout, Part
from mig_spawner.domain.layout.reader import MIG_PARTED, OURS, Dialect


def to_ours(declaration: Declaration) -> dict[str, Any]:
    """A declaration in our words. Nothing is lost."""
    document: dict[str, Any] = {
        "version": 1,
        "layouts": {name: [_part(p, OURS) for p in layout.parts] for name, layout in declaration.layouts.items()},
    }
    if declaration.nodes:
        document["nodes"] = dict(declaration.nodes)
    if declaration.pools:
        document["pools"] = {p.name: {"nodes": list(p.nodes), "layout": p.layout} for p in declaration.pools}
    return document


def to_mig_parted(declaration: Declaration) -> tuple[dict[str, Any], list[Finding]]:
    """A declaration as a mig-parted file, and what of it that format cannot say."""
    lost = [
        Finding(
            f"{name}, part {number}", "mig-parted chooses the places itself; those declared here are lost.", fatal=False
        )
        for name, layout in declaration.layouts.items()
        for number, part in enumerate(layout.parts, 1)
        if part.starts
    ]
    if declaration.nodes or declaration.pools:
        sentence = "mig-parted knows no nodes: label each with nvidia.com/mig.config=<layout>."
        lost.append(Finding("nodes and pools", sentence, fatal=False))
    configs = {name: [_part(p, MIG_PARTED) for p in layout.parts] for name, layout in declaration.layouts.items()}
    return {"version": "v1", "mig-configs": configs}, lost


def to_config_map(name: str, text: str) -> dict[str, Any]:
    """The ConfigMap in which mig-manager looks for a mig-parted file."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.yaml": text}}


def current(gpus: Sequence[tuple[bool, Iterable[tuple[str, int]]]], name: str = "current") -> NamedLayout:
    """A layout that says what is there: for each GPU in turn its MIG mode, and profile and start of each instance."""
    parts: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for index, (enabled, instances) in enumerate(gpus):
        parts.setdefault((enabled, tuple(sorted(instances))), []).append(index)
    return NamedLayout(
        name,
        tuple(
            Part(
                tuple(indices),
                (),
                enabled,
                {p: sum(q == p for q, _ in places) for p, _ in places},
                {p: tuple(s for q, s in places if q == p) for p, _ in places},
            )
            for (enabled, places), indices in parts.items()
        ),
    )


def _part(part: Part, dialect: Dialect) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if part.models:
        said[dialect.models] = list(part.models)
    said[dialect.gpus] = "all" if part.gpus is None else list(part.gpus)
    said[dialect.enabled] = part.enabled
    if part.enabled and dialect is OURS and part.starts:
        said[dialect.instances] = [f"{name}@{start}" for name, starts in part.starts.items() for start in starts]
    elif part.enabled:
        said[dialect.instances] = dict(part.counts)
    return said
