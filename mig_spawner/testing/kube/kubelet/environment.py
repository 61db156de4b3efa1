"""The environment of a pod's process: from the pod's `env` and `envFrom` to plain strings, as a container gets them."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest

_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z0-9]+)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class ConfigProblem(Exception):
    """The environment cannot be built now: something it names is missing, or is not served here."""


@dataclass(frozen=True)
class Sources:
    """What environments are made from: the pod as it runs, its node's room, and the objects it names."""

    pod: Manifest
    """With `spec.nodeName` and `status.podIP` filled in."""
    allocatable: Mapping[str, str]
    secrets: Mapping[str, Manifest | None] = field(default_factory=dict, repr=False)
    config_maps: Mapping[str, Manifest | None] = field(default_factory=dict, repr=False)


def named_objects(container: Manifest) -> tuple[set[str], set[str]]:
    """The names of the secrets and of the config maps that the environment of a container is made from."""
    secrets: set[str] = set()
    config_maps: set[str] = set()
    for variable in container.get("env") or []:
        origin = variable.get("valueFrom") or {}
        secrets |= {origin[key]["name"] for key in ("secretKeyRef",) if origin.get(key)}
        config_maps |= {origin[key]["name"] for key in ("configMapKeyRef",) if origin.get(key)}
    for source in container.get("envFrom") or []:
        secrets |= {source[key]["name"] for key in ("secretRef",) if source.get(key)}
        config_maps |= {source[key]["name"] for key in ("configMapRef",) if source.get(key)}
    return secrets, config_maps


def build_environment(container: Manifest, sources: Sources, base: Mapping[str, str]) -> dict[str, str]:
    """`base`, then `envFrom`, then `env` in order; later wins, and `$(NAME)` sees what came before it.

    Raises `ConfigProblem` for what is missing and not optional.
    """
    environment = dict(base)
    for source in container.get("envFrom") or []:
        environment |= dict(_all_of(source, sources))
    for variable in container.get("env") or []:
        value: str | None
        if variable.get("valueFrom"):
            value = _value_from(variable["valueFrom"], container, sources)
        else:
            value = expand(str(variable.get("value") or ""), environment)
        if value is not None:
            environment[variable["name"]] = value
    return environment


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, `$$` a dollar sign; an unknown name stays as it is written."""

    def replace(match: re.Match[str]) -> str:
        name: str | None = match.group(1)
        return "$" if name is None else environment.get(name, match.group(0))

    return _REFERENCE.sub(replace, text)


def with_host(url: str, host: str) -> str:
    """The URL on another host; port and path stay."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=host + port))


def _all_of(source: Manifest, sources: Sources) -> Iterator[tuple[str, str]]:
    prefix = source.get("prefix") or ""
    if reference := source.get("secretRef"):
        held, kind = sources.secrets.get(reference["name"]), "secret"
        values = {key: _decode(value) for key, value in ((held or {}).get("data") or {}).items()}
    else:
        reference = source.get("configMapRef") or {}
        held, kind = sources.config_maps.get(reference.get("name", "")), "configmap"
        values = dict((held or {}).get("data") or {})
    if held is None and not reference.get("optional"):
        raise ConfigProblem(f'{kind} "{reference.get("name")}" not found')
    for key, value in values.items():
        yield prefix + key, value


def _value_from(origin: Manifest, container: Manifest, sources: Sources) -> str | None:
    if reference := origin.get("fieldRef"):
        return _field(reference["fieldPath"], sources.pod)
    if reference := origin.get("resourceFieldRef"):
        return _amount(reference, container, sources)
    if reference := origin.get("secretKeyRef"):
        value = _key_of(reference, sources.secrets, "Secret", sources)
        return None if value is None else _decode(value)
    if reference := origin.get("configMapKeyRef"):
        return _key_of(reference, sources.config_maps, "ConfigMap", sources)
    raise ConfigProblem(f"environment source {sorted(origin)} is not known")


def _key_of(reference: Manifest, held: Mapping[str, Manifest | None], kind: str, sources: Sources) -> str | None:
    name, key = reference["name"], reference["key"]
    obj = held.get(name)
    value = ((obj or {}).get("data") or {}).get(key)
    if value is not None:
        return str(value)
    if reference.get("optional"):
        return None
    if obj is None:
        raise ConfigProblem(f'{kind.lower()} "{name}" not found')
    raise ConfigProblem(f"couldn't find key {key} in {kind} {sources.pod['metadata']['namespace']}/{name}")


def _decode(value: str) -> str:
    return base64.b64decode(value).decode(errors="replace")


def _field(path: str, pod: Manifest) -> str:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    if match := _SUBSCRIPT.fullmatch(path):
        kind, key = match.groups()
        return str((metadata.get(kind) or {}).get(key, ""))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": status.get("hostIP", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
    }
    if path not in known:
        raise ConfigProblem(f"field {path!r} cannot be given to the environment")
    return str(known[path])


def _amount(reference: Manifest, container: Manifest, sources: Sources) -> str:
    """A limit or request in its base unit (bytes, cores), rounded up. Without a limit the node's room is meant."""
    kind, _, name = str(reference["resource"]).partition(".")
    given = ((container.get("resources") or {}).get(kind) or {}).get(name)
    if given is None:
        given = sources.allocatable.get(name, "0") if kind == "limits" else "0"
    divisor = parse_quantity(reference.get("divisor") or "1") or 1
    return str(math.ceil(parse_quantity(given) / divisor))
