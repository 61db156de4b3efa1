"""GPU models: `boards.json` read into typed values, gaps filled where that is honest.

The file keeps what public sources say, with `null` where they say nothing. A simulation needs every number, so the
loader fills gaps from a sibling GPU by the rules written in the file under `inference`, and says `inferred` in
`confidence` wherever it did. Placements are never made up: a model without them is listed and refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from mig_spawner.domain.gpu import GPU, Engines, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

Row = Mapping[str, Any]

INFERRED: Final = "inferred"
_MIB_PER_GB: Final = 1024
_PROFILE_MEMORY_SHARE: Final = 0.975
_MEMORY_STEP_MIB: Final = 64


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A profile of a GPU model.

    Attributes:
        profile: as a driver would report it.
        max_instances: most instances of it on an empty GPU, as published.
        nvml_profile_value: the number that *asks* NVML about it; `profile.profile_id` creates.
        confidence: per field group how sure the number is: high, medium, low, inferred.
        sources: names of entries in the file's `sources`.
    """

    profile: Profile
    max_instances: int
    nvml_profile_value: int
    confidence: Mapping[str, str]
    sources: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU model.

    Attributes:
        key: ours, `a100-80gb`.
        product: what the driver calls it.
        ampere: enabling MIG mode resets the GPU, and the mode survives a reboot; newer ones do neither.
        refusal: why it cannot be simulated, a sentence; empty if it can.
        memory_mib: total memory, from the GB of its name.
        pci_device_id: device and vendor as in mig-parted's device filter; empty if unknown.
    """

    key: str
    aliases: tuple[str, ...]
    title: str
    product: str
    ampere: bool
    memory_mib: int
    multiprocessors: int
    profiles: tuple[ModelProfile, ...]
    inferred: frozenset[str] = frozenset()
    refusal: str = ""
    note: str = ""
    pci_device_id: str = ""

    def gpu(self, gpu_uuid: str) -> GPU:
        """A GPU of this model."""
        profiles = tuple(p.profile for p in self.profiles)
        return GPU(gpu_uuid, self.product, self.memory_mib, self.multiprocessors, profiles)


def list_models() -> tuple[Model, ...]:
    """All models of the file, those that cannot be simulated too (they have a `refusal`)."""
    return tuple(_models().values())


def find_model(name: str) -> Model:
    """The model with this key or alias.

    Raises:
        InvalidRequest: no such model, or one whose placements nobody has published.
    """
    wanted = name.strip().lower()
    model = next((m for m in _models().values() if wanted == m.key or wanted in m.aliases), None)
    if model is None:
        raise InvalidRequest(f"{name!r} is no GPU model that can be simulated. Choose one of: {_choices()}.")
    if model.refusal:
        raise InvalidRequest(f"{model.refusal} Choose one of: {_choices()}.")
    return model


def _choices() -> str:
    return ", ".join(m.key for m in _models().values() if not m.refusal)


@cache
def _models() -> Mapping[str, Model]:
    document = json.loads(files("mig_spawner.testing.gpu").joinpath("boards.json").read_text("utf-8"))
    rows = {row["key"]: row for row in document["boards"]}
    models: dict[str, Model] = {}

    def load(key: str) -> Model:
        if key not in models:
            row = rows[key]
            models[key] = _model(row, load(row["sibling"]) if row["sibling"] else None)
        return models[key]

    return MappingProxyType({key: load(key) for key in rows})


def _model(row: Row, sibling: Model | None) -> Model:
    known = all(p["placements"] is not None and p["profile_id"] is not None for p in row["profiles"])
    multiprocessors = row["multiprocessors"]
    inferred = {"memory"}
    if multiprocessors is None and sibling is not None:
        multiprocessors = sibling.multiprocessors
        inferred.add("multiprocessors")
    model = Model(
        key=row["key"],
        aliases=tuple(row["aliases"]),
        title=row["title"],
        product=row["product"],
        ampere=row["architecture"] == "ampere",
        memory_mib=row["memory_gb"] * _MIB_PER_GB,
        multiprocessors=multiprocessors or 0,
        profiles=(),
        inferred=frozenset(inferred),
        refusal=""
        if known
        else f"No public source says where instances may sit on a {row['title']}, so it cannot be simulated.",
        note=row["note"],
        pci_device_id=row["pci"][0]["device_filter"] if row["pci"] else "",
    )
    if not known:
        return model
    return replace(model, profiles=tuple(_profile(p, model, sibling) for p in row["profiles"]))


def _profile(row: Row, model: Model, sibling: Model | None) -> ModelProfile:
    name = ProfileName.parse(row["name"])
    twin = None
    if sibling is not None:
        twin = next((p.profile for p in sibling.profiles if p.profile.profile_id == row["profile_id"]), None)
    confidence = dict(row["confidence"])
    memory_mib = row["memory_mib"]
    if memory_mib is None:
        memory_mib = _down_to(name.memory_gb * _MIB_PER_GB * _PROFILE_MEMORY_SHARE, _MEMORY_STEP_MIB)
        confidence["memory"] = INFERRED
    multiprocessors = row["multiprocessors"]
    if multiprocessors is None:
        if twin is None or sibling is None:
            raise ValueError(f"boards.json: {model.key} {name} has no SMs and no sibling to take them from")
        multiprocessors = _down_to(twin.multiprocessors * model.multiprocessors / sibling.multiprocessors, 2)
        confidence["multiprocessors"] = INFERRED
    counts = dict(row["engines"])
    for engine in [e for e, count in counts.items() if count is None]:
        if twin is None:
            raise ValueError(
                f"boards.json: {model.key} {name} has no {engine} engines and no sibling to take them from"
            )
        counts[engine] = getattr(twin.engines, engine)
        confidence["engines"] = INFERRED
    return ModelProfile(
        profile=Profile(
            name=name,
            profile_id=row["profile_id"],
            size=row["placements"]["size"],
            starts=tuple(row["placements"]["starts"]),
            compute_slices=row["compute_slices"],
            memory_mib=memory_mib,
            multiprocessors=multiprocessors,
            engines=Engines(**counts),
        ),
        max_instances=row["max_instances"],
        nvml_profile_value=row["nvml_profile_value"],
        confidence=MappingProxyType(confidence),
        sources=tuple(row["sources"]),
        note=row.get("note", ""),
    )


def _down_to(value: float, step: int) -> int:
    return int(value // step) * step
