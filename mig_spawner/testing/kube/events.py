"""Events have two faces, `v1` and `events.k8s.io/v1`: the same objects under other field names. Stored as `v1`."""

from __future__ import annotations

from mig_spawner.testing.kube.resources import EVENTS, EVENTS_V1, Manifest

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}


def to_core(event: Manifest) -> Manifest:
    """An `events.k8s.io/v1` event as `v1` says it."""
    renamed = {_NEW_TO_CORE.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": EVENTS.api_version}


def to_new(event: Manifest) -> Manifest:
    """A `v1` event as `events.k8s.io/v1` says it."""
    renamed = {_CORE_TO_NEW.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": EVENTS_V1.api_version}
