"""Reports that were parsed before. A report is large and changes seldom: it is read and parsed when its digest is another one.

The digest is read in each transaction, so nothing here can be out of date; one that is not here is read from the database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import getitem
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from mig_spawner.domain.gpu import GPU, Profile
from mig_spawner.wire.node import GPUDocument, NodeReport, UsageDocument

T = TypeVar("T")

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Parsed:
    digest: str
    report: NodeReport
    gpus: Mapping[str, GPU]


_known: dict[str, _Parsed] = {}
"""By the name of the node."""
_NO_GPUS: Final[Mapping[str, GPU]] = MappingProxyType({})


_reports: Final = TypeAdapter(NodeReport)
usages: Final = TypeAdapter(tuple[UsageDocument, ...])


def read(kind: TypeAdapter[T], text: str) -> T:
    """A document as it was stored. What a newer version has written into it is passed over: somebody went back to this one, or
    replicas of two versions share the ledger for a while."""
    try:
        return kind.validate_json(text)
    except ValidationError as error:
        document: Any = json.loads(text)
        unknown = [problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"]
        for *path, name in unknown:
            reduce(getitem, path, document).pop(name)
        return kind.validate_python(document)


def knows(node: str, digest: str | None) -> bool:
    """Whether `of` needs no text."""
    known = _known.get(node)
    return known is not None and known.digest == digest


def learn(node: str, text: str, report: NodeReport) -> str:
    """Keep a report that is about to be written as `text`; its digest."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    if len(_known) >= _MOST:
        _known.clear()
    _known[node] = _Parsed(digest, report, MappingProxyType({gpu.gpu_uuid: _domain(gpu) for gpu in report.gpus}))
    return digest


def _domain(document: GPUDocument) -> GPU:
    """A GPU whose profiles are one object with those of all that offer the same: there are few kinds of GPUs."""
    gpu = document.to_domain()
    return replace(gpu, profiles=_one(gpu.profiles))


@lru_cache(maxsize=256)
def _one(profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
    return profiles


def of(node: str, digest: str | None, text: str | None) -> tuple[NodeReport | None, Mapping[str, GPU]]:
    """A report and its GPUs as the domain sees them; equal digests give the same objects.

    Args:
        text: of the report; needed unless `knows` said no.
    """
    known = _known.get(node)
    if known is not None and known.digest == digest:
        return known.report, known.gpus
    if text is None:
        return None, _NO_GPUS
    report = read(_reports, text)
    learn(node, text, report)
    kept = _known[node]
    return kept.report, kept.gpus
