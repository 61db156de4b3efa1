"""From a file that was read as YAML to a declaration, with a finding for each fault.

Two dialects: ours, and that of NVIDIA's mig-parted (its api/spec/v1), bare, in a ConfigMap of mig-manager or in the values of the GPU
operator's chart. Both are as strict as mig-parted: an unknown key is a fault and not a remark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mig_spawner.domain.layout.model import Declaration, Finding, NamedLayout, Part, Pool
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidProfile

Load = Callable[[str], object]
"""Reads a text as YAML. Raises `ValueError` with a sentence."""

MAX_GPUS: Final = 64
MAX_COUNT: Final = 64
MAX_NAME: Final = 253
_MODEL: Final = re.compile(r"0x[0-9A-Fa-f]{8}(:0x[0-9A-Fa-f]{8})?", re.ASCII)
_LOOKS_LIKE: Final = re.compile(r"(\d+c\.)?\d+g\.\d+gb[-+.\w]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words of a part."""

    gpus: str
    models: str
    enabled: str
    instances: str


OURS: Final = Dialect("gpus", "models", "mig", "instances")
MIG_PARTED: Final = Dialect("devices", "device-filter", "mig-enabled", "mig-devices")


@dataclass
class Parsed:
    """What could be read of a file, and what is to say about it."""

    declaration: Declaration
    findings: list[Finding] = field(default_factory=list)

    @property
    def faulty(self) -> bool:
        return any(f.fatal for f in self.findings)


class _Fault(Exception):
    """A sentence about what is being read."""


def read(document: object, load: Load) -> Parsed:
    """A file as it was loaded from YAML. `load` reads a file within the file, as a ConfigMap has one."""
    parsed = Parsed(Declaration({}))
    try:
        document = _unwrapped(document, load)
        if "mig-configs" in document:
            _only(document, {"version", "mig-configs"})
            if document.get("version") != "v1":
                raise _Fault(f"version is {document.get('version')!r}; mig-parted knows 'v1'")
            layouts = dict(_layouts(document["mig-configs"], "mig-configs", MIG_PARTED, parsed.findings))
            parsed.declaration = Declaration(layouts)
        elif "layouts" in document:
            _only(document, {"version", "layouts", "nodes", "pools"})
            if document.get("version", 1) != 1:
                raise _Fault(f"version is {document['version']!r}; this program knows 1")
            layouts = dict(_layouts(document["layouts"], "layouts", OURS, parsed.findings))
            parsed.declaration = Declaration(
                layouts,
                _nodes(document.get("nodes"), layouts, parsed.findings),
                _pools(document.get("pools"), layouts, parsed.findings),
            )
        else:
            raise _Fault(_headless(document))
    except _Fault as fault:
        parsed.findings.append(Finding("", f"{fault}."))
    return parsed


def _unwrapped(document: object, load: Load) -> Mapping[str, Any]:
    """The innermost file: of a ConfigMap, or of the values of a chart that makes one."""
    if not isinstance(document, dict):
        raise _Fault("The file holds no mapping; it begins with 'version:' and 'layouts:', or with 'mig-configs:'")
    holder: object = document
    if "migManager" in document:
        manager = document["migManager"]
        holder = manager.get("config") if isinstance(manager, dict) else None
        if not isinstance(holder, dict) or "data" not in holder:
            raise _Fault("migManager has no config with data, so there is no layout in these values")
    elif document.get("kind") not in (None, "ConfigMap"):
        raise _Fault(f"It is a {document['kind']!r}; only a ConfigMap holds layouts")
    elif document.get("kind") is None:
        return document
    data = holder.get("data") if isinstance(holder, dict) else None
    text = data.get("config.yaml") if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise _Fault("Its data has no text under the key 'config.yaml', where mig-manager looks for it")
    try:
        inner = load(text)
    except ValueError as error:
        raise _Fault(f"The text under config.yaml is no YAML: {error}") from error
    if not isinstance(inner, dict):
        raise _Fault("The text under config.yaml holds no mapping")
    return inner


def _headless(document: Mapping[str, Any]) -> str:
    parts = [v for v in document.values() if isinstance(v, list)]
    words = {key for part in parts for entry in part if isinstance(entry, dict) for key in entry}
    if "devices" in words or "mig-enabled" in words:
        return (
            "It looks like a part of a mig-parted file: put 'version: v1' and 'mig-configs:' before it, and the rest two columns "
            "further in"
        )
    return "It has neither 'layouts' (ours) nor 'mig-configs' (mig-parted)"


def _only(document: Mapping[str, Any], known: set[str]) -> None:
    for key in document:
        if key not in known:
            raise _Fault(f"{key!r} is no key here; there are {', '.join(sorted(known))}")


def _layouts(found: object, key: str, dialect: Dialect, findings: list[Finding]) -> Iterator[tuple[str, NamedLayout]]:
    if not isinstance(found, dict) or not found:
        raise _Fault(f"{key!r} holds no layouts by name")
    for name, entries in found.items():
        where = str(name)[:MAX_NAME]
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
            findings.append(Finding(where, "A layout has a name of 1 to 253 characters."))
            continue
        if entries is None:
            findings.append(Finding(where, "It says nothing, so every GPU stays as it is.", fatal=False))
            entries = []
        if not isinstance(entries, list):
            findings.append(
                Finding(where, f"It is a list of parts, each with {dialect.gpus!r}; this is {_kind(entries)}.")
            )
            continue
        parts = []
        for number, entry in enumerate(entries, 1):
            try:
                parts.append(_part(entry, dialect, f"{where}, part {number}", findings))
            except _Fault as fault:
                findings.append(Finding(f"{where}, part {number}", f"{fault}."))
        if len(parts) == len(entries):
            yield name, NamedLayout(name, tuple(parts))


def _part(entry: object, dialect: Dialect, where: str, findings: list[Finding]) -> Part:
    if not isinstance(entry, dict):
        raise _Fault(f"It is {_kind(entry)}, not a mapping with {dialect.gpus!r}")
    _only(entry, {dialect.gpus, dialect.models, dialect.enabled, dialect.instances})
    for key in (dialect.gpus, dialect.enabled):
        if key not in entry:
            raise _Fault(f"{key!r} is missing")
    enabled, instances = entry[dialect.enabled], entry.get(dialect.instances)
    if not isinstance(enabled, bool):
        raise _Fault(f"{dialect.enabled!r} is true or false, not {enabled!r}")
    if enabled and instances is None:
        raise _Fault(f"MIG mode is to be on, so {dialect.instances!r} must say what to make; {{}} for nothing")
    if not enabled and instances:
        raise _Fault(f"MIG mode is to be off, so there can be no {dialect.instances!r}")
    counts, starts = _instances(instances or {}, dialect)
    _remark_names(counts, where, findings)
    return Part(
        gpus=_gpus(entry[dialect.gpus], dialect.gpus),
        models=_models(entry.get(dialect.models), dialect.models),
        enabled=enabled,
        counts=counts,
        starts=starts,
    )


def _gpus(found: object, key: str) -> tuple[int, ...] | None:
    if found == "all":
        return None
    if isinstance(found, int) and not isinstance(found, bool):
        raise _Fault(f"{key!r} is 'all' or a list of indices, not the bare number {found}: write [{found}]")
    if not isinstance(found, list) or not found:
        raise _Fault(f"{key!r} is 'all' or a list of indices, not {_kind(found)}")
    for index in found:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < MAX_GPUS:
            raise _Fault(f"{index!r} is no index of a GPU: they count from 0 to {MAX_GPUS - 1}")
    if len(set(found)) != len(found):
        raise _Fault(f"{key!r} names a GPU twice")
    return tuple(found)


def _models(found: object, key: str) -> tuple[str, ...]:
    words = [] if found is None else found if isinstance(found, list) else [found]
    for word in words:
        if not isinstance(word, str) or _MODEL.fullmatch(word) is None:
            raise _Fault(f"{word!r} under {key!r} is no PCI device id such as 0x20B210DE")
    return tuple(words)


def _instances(found: object, dialect: Dialect) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    if dialect is OURS and isinstance(found, list):
        return _placed(found)
    if not isinstance(found, dict):
        raise _Fault(f"{dialect.instances!r} says how many of each profile, such as {{1g.10gb: 7}}, not {_kind(found)}")
    for name, count in found.items():
        if not isinstance(name, str) or not 0 < len(name) <= 64:
            raise _Fault(f"{name!r} is no name of a profile")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_COUNT:
            raise _Fault(f"{name} is wanted {count!r} times; write a number from 1 to {MAX_COUNT}")
    return dict(found), {}


def _placed(found: list[object]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    starts: dict[str, list[int]] = {}
    for word in found:
        name, at, start = word.partition("@") if isinstance(word, str) else ("", "", "")
        if not at or not name or len(name) > 64 or not (start.isascii() and start.isdecimal() and len(start) <= 2):
            raise _Fault(f"{word!r} is no profile with its first memory slice, such as 3g.40gb@4")
        starts.setdefault(name, []).append(int(start))
    return {n: len(s) for n, s in starts.items()}, {n: tuple(s) for n, s in starts.items()}


def _remark_names(counts: Mapping[str, int], where: str, findings: list[Finding]) -> None:
    for name in counts:
        try:
            ProfileName.parse(name)
        except InvalidProfile as error:
            if re.match(r"\d+c\.", name) and _LOOKS_LIKE.fullmatch(name):
                raise _Fault(str(error).rstrip(".")) from error
            sentence = f"{name!r} is no profile that this program knows; it is kept as it stands."
            findings.append(Finding(where, sentence, fatal=False))


def _nodes(found: object, layouts: Mapping[str, NamedLayout], findings: list[Finding]) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _Fault("'nodes' gives each node by its name a layout")
    nodes = {}
    for node, layout in found.items():
        if not isinstance(node, str) or not isinstance(layout, str) or layout not in layouts:
            findings.append(Finding(f"nodes, {node}", f"There is no layout {layout!r} in this file."))
        else:
            nodes[node] = layout
    return nodes


def _pools(found: object, layouts: Mapping[str, NamedLayout], findings: list[Finding]) -> tuple[Pool, ...]:
    if found is None:
        return ()
    if not isinstance(found, dict):
        raise _Fault("'pools' has pools by name, each with 'nodes' and 'layout'")
    pools = []
    for name, pool in found.items():
        try:
            if not isinstance(pool, dict):
                raise _Fault(f"It is {_kind(pool)}, not a mapping with 'nodes' and 'layout'")
            _only(pool, {"nodes", "layout"})
            nodes, layout = pool.get("nodes"), pool.get("layout")
            if not isinstance(nodes, list) or not nodes or not all(isinstance(n, str) for n in nodes):
                raise _Fault("'nodes' is a list of names or patterns such as gpu-a-*")
            if not isinstance(layout, str) or layout not in layouts:
                raise _Fault(f"There is no layout {layout!r} in this file")
            pools.append(Pool(str(name), tuple(nodes), layout))
        except _Fault as fault:
            findings.append(Finding(f"pools, {name}", f"{fault}."))
    return tuple(pools)


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    names = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "a truth value",
    }
    return names.get(type(value), type(value).__name__)
