"""Changing what KubeSpawner made of pods and containers: models of the Kubernetes client, with plain mappings among them.

KubeSpawner hands some of its traits to the pod as they are, so every list and mapping is replaced by a new one and never written into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubernetes_asyncio.client import V1Container, V1EnvVar, V1Pod, V1ResourceRequirements

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
VOID: Final = "void"
"""The value of `NVIDIA_VISIBLE_DEVICES` that shows no GPU at all."""

_NOTEBOOK: Final = "notebook"


def notebook_of(pod: V1Pod) -> V1Container:
    """The container that the server runs in."""
    containers: list[V1Container] = pod.spec.containers
    return next((c for c in containers if c.name == _NOTEBOOK), containers[0])


def set_env(container: V1Container, values: Mapping[str, str], *, only_missing: bool = False) -> None:
    """Say these variables once each, first, so that others may refer to them as `$(NAME)`.

    `extra_container_config` may have replaced the list, and then its items are plain mappings.
    """
    present = list(container.env or [])
    if only_missing:
        names = {env_name(e) for e in present}
        values = {name: value for name, value in values.items() if name not in names}
    kept = [e for e in present if env_name(e) not in values]
    container.env = [*(V1EnvVar(name=name, value=value) for name, value in values.items()), *kept]


def drop_env(container: V1Container, name: str) -> None:
    """Say nothing of this variable."""
    container.env = [e for e in container.env or [] if env_name(e) != name]


def env_name(variable: Any) -> str:
    """The name of a variable."""
    name = variable.get("name") if isinstance(variable, Mapping) else variable.name
    return str(name)


def resources_of(container: V1Container) -> V1ResourceRequirements:
    """What a container asks for; nothing rather than None."""
    resources: Any = container.resources
    if isinstance(resources, Mapping):
        return V1ResourceRequirements(**{k: resources.get(k) for k in ("claims", "limits", "requests")})
    return resources if resources is not None else V1ResourceRequirements()


def as_json(thing: Any) -> Any:
    """A pod, or a part of one, as it is sent, whatever mixture of models and mappings it is made of."""
    if isinstance(thing, list | tuple):
        return [as_json(item) for item in thing]
    if isinstance(thing, Mapping):
        return {key: as_json(value) for key, value in thing.items()}
    names = getattr(thing, "attribute_map", None)
    if names is None:
        return thing
    values = {name: getattr(thing, attribute) for attribute, name in names.items()}
    return {name: as_json(value) for name, value in values.items() if value is not None}


def without(items: Iterable[Any] | None, attribute: str, key: str, value: str) -> list[Any]:
    """The items but those where this is the value; `attribute` is its name in a model, `key` in a mapping."""
    return [i for i in items or [] if (i.get(key) if isinstance(i, Mapping) else getattr(i, attribute)) != value]
