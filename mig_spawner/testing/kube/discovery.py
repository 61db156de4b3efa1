"""What the API tells about itself: versions, groups and resources, enough for `kubectl get` and `kubectl api-resources`."""

from __future__ import annotations

from mig_spawner.testing.kube.resources import ACCESS_REVIEWS, GROUPS, RESOURCES, STANDARD_VERBS, Manifest, Resource

VERSION = {
    "major": "1",
    "minor": "30",
    "gitVersion": "v1.30.0+embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "python",
    "platform": "any",
}


def discover(path: str) -> Manifest | str | None:
    """The answer to a discovery or health path; `None` for every other path."""
    match path.strip("/").split("/"):
        case ["healthz" | "readyz" | "livez", *_]:
            return "ok"
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in sorted(GROUPS)]}
        case ["apis", group] if group in GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["api", "v1"]:
            return _resource_list("", "v1")
        case ["apis", group, version] if any((known.group, known.version) == (group, version) for known in RESOURCES):
            return _resource_list(group, version)
        case _:
            return None


def _group(name: str) -> Manifest:
    versions = sorted({resource.version for resource in RESOURCES if resource.group == name})
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version: str) -> Manifest:
    served = [resource for resource in RESOURCES if (resource.group, resource.version) == (group, version)]
    entries = [entry for resource in served for entry in _entries(resource)]
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}


def _entries(resource: Resource) -> list[Manifest]:
    verbs = ["create"] if resource == ACCESS_REVIEWS else list(STANDARD_VERBS)
    own = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    }
    if resource.short_names:
        own["shortNames"] = list(resource.short_names)
    below = [
        {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": {"binding": "Binding", "eviction": "Eviction"}.get(subresource, resource.kind),
            "verbs": ["create"] if subresource in {"binding", "eviction"} else ["get", "patch", "update"],
        }
        for subresource in sorted(resource.subresources)
    ]
    return [own, *below]
