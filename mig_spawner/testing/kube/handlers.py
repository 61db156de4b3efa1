"""HTTP for the registry: identify, authorise, parse, call, encode. Decides nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml
from aiohttp import web

from mig_spawner.testing.kube import errors, resources
from mig_spawner.testing.kube.access import Access, Attempt, KubeUser
from mig_spawner.testing.kube.audit import AuditLog
from mig_spawner.testing.kube.deletion import DeleteOptions
from mig_spawner.testing.kube.discovery import discover
from mig_spawner.testing.kube.errors import StatusError
from mig_spawner.testing.kube.events import to_core, to_new
from mig_spawner.testing.kube.patches import APPLY_PATCH, PATCH_TYPES
from mig_spawner.testing.kube.paths import Target, parse_bool, parse_path
from mig_spawner.testing.kube.registry import Registry
from mig_spawner.testing.kube.resources import EVENTS, EVENTS_V1, Manifest, Resource
from mig_spawner.testing.kube.selectors import parse_selectors
from mig_spawner.testing.kube.tables import as_table, wants_table
from mig_spawner.testing.kube.watching import list_objects, watch_objects

_log = logging.getLogger(__name__)

_SHOWN_WHEN_DELETED = {
    *(resources.PODS, resources.SERVICES, resources.CLAIMS, resources.NAMESPACES, resources.VOLUMES),
    *(resources.SERVICE_ACCOUNTS, resources.QUOTAS, resources.STORAGE_CLASSES, resources.DEVICE_CLASSES),
    *(resources.RESOURCE_CLAIMS, resources.RESOURCE_CLAIM_TEMPLATES, resources.RESOURCE_SLICES),
}
"""Their deletion is answered with what was deleted; that of all others with a `Status`."""
_BODY_LIMIT_BYTES = 3 * 1024 * 1024


def build_app(registry: Registry, access: Access, audit: AuditLog) -> web.Application:
    """The API as an aiohttp application."""
    handlers = _Handlers(registry, access, audit)
    app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
    app.router.add_route("*", "/{path:.*}", handlers.answer)
    return app


class _Handlers:
    def __init__(self, registry: Registry, access: Access, audit: AuditLog) -> None:
        self._registry = registry
        self._access = access
        self._audit = audit

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            if self._registry.knobs.api_down:
                raise errors.unavailable("the knob `api_down` is turned")
            return await self._serve(request)
        except StatusError as error:
            return web.json_response(error.status, status=error.code)
        except errors.NoSuchPage:
            return web.Response(text="404 page not found\n", status=404)
        except Exception as error:
            _log.exception("%s %s", request.method, request.path)
            failure = errors.internal(f"{type(error).__name__}: {error}")
            return web.json_response(failure.status, status=failure.code)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        user = self._access.identify(request.headers.get("Authorization"))
        found = discover(request.path) if request.method == "GET" else None
        if isinstance(found, str):
            return web.Response(text=found)
        if found is not None:
            return web.json_response(found)
        target = parse_path(request.method, request.path, request.query)
        if target.resource == resources.ACCESS_REVIEWS:
            return web.json_response(self._review(user, await _read_json(request)), status=201)
        self._access.require(user, _attempt(target))
        match target.verb:
            case "list":
                return _respond(request, target.resource, self._list(target, request.query))
            case "watch":
                return await self._watch(request, target)
            case "get":
                stored = self._registry.objects.get(_stored_as(target.resource), target.namespace, target.name)
                return _respond(request, target.resource, _shown(target.resource, stored))
            case "create":
                return await self._create(request, target, user)
            case "update" | "patch":
                return await self._change(request, target)
            case _:
                return await self._delete(request, target)

    def _list(self, target: Target, query: Mapping[str, str]) -> Manifest:
        if target.resource != EVENTS_V1:
            return list_objects(self._registry.objects, target.resource, target.namespace, query)
        page = list_objects(self._registry.objects, EVENTS, target.namespace, query)
        items = [to_new(event) for event in page["items"]]
        for item in items:
            del item["apiVersion"]
        return {**page, "apiVersion": EVENTS_V1.api_version, "items": items}

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        stored = _stored_as(target.resource)
        events = watch_objects(
            self._registry.objects,
            stored,
            target.namespace,
            target.name,
            request.query,
            is_over=lambda: self._registry.knobs.api_down or request.transport is None,
        )
        table = wants_table(request.headers.get("Accept", ""))
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        async with contextlib.aclosing(events):
            # What is wrong with the request shows at the first event, before the answer has begun.
            first = asyncio.ensure_future(anext(events, None))
            await asyncio.sleep(0)
            if first.done() and (failure := first.exception()):
                raise failure
            await response.prepare(request)
            with contextlib.suppress(ConnectionResetError):
                event = await first
                while event is not None:
                    shown = event["object"]
                    if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                        shown = _shown(target.resource, shown)
                        shown = as_table(target.resource, [shown]) if table else shown
                    await response.write(json.dumps({"type": event["type"], "object": shown}).encode() + b"\n")
                    event = await anext(events, None)
        return response

    async def _create(self, request: web.Request, target: Target, user: KubeUser) -> web.Response:
        given = await _read_json(request)
        dry_run = _is_dry_run(request.query, "CreateOptions")
        if target.subresource == "binding":
            self._registry.bind(target.namespace, target.name, given, dry_run=dry_run)
            return web.json_response(errors.done(), status=201)
        if target.subresource == "eviction":
            self._registry.evict(target.namespace, target.name, given, dry_run=dry_run)
            return web.json_response(errors.done(), status=201)
        if target.name:
            raise errors.method_not_allowed()
        if target.resource == EVENTS_V1 and isinstance(given, dict):
            given = to_core(given)
        created = await self._create_maybe_late(target, given, dry_run)
        if not dry_run:
            self._audit.created(user, target.resource, target.namespace, given)
        return web.json_response(_shown(target.resource, created), status=201)

    async def _create_maybe_late(self, target: Target, given: Any, dry_run: bool) -> Manifest:
        """Creates an object, in the way that the knobs say if it is a pod."""
        registry, knobs = self._registry, self._registry.knobs
        resource = _stored_as(target.resource)
        delay = 0.0
        if resource == resources.PODS and isinstance(given, dict) and isinstance(given.get("metadata"), dict):
            if knobs.create_refused is not None:
                raise errors.forbidden(resource, given["metadata"].get("name", ""), knobs.create_refused)
            delay = knobs.delays(given)
        if knobs.create_persists_first:
            created = registry.create(resource, target.namespace, given, dry_run=dry_run)
            await asyncio.sleep(delay)
            return created
        await asyncio.sleep(delay)
        return registry.create(resource, target.namespace, given, dry_run=dry_run)

    async def _change(self, request: web.Request, target: Target) -> web.Response:
        dry_run = _is_dry_run(request.query, "UpdateOptions" if target.verb == "update" else "PatchOptions")
        resource, created = _stored_as(target.resource), False
        if target.verb == "update":
            given = await _read_json(request)
            if target.resource == EVENTS_V1 and isinstance(given, dict):
                given = to_core(given)
            changed = self._registry.update(
                resource, target.namespace, target.name, given, subresource=target.subresource, dry_run=dry_run
            )
        else:
            if request.content_type not in PATCH_TYPES:
                raise errors.unsupported_media_type()
            patch = await (_read_yaml(request) if request.content_type == APPLY_PATCH else _read_json(request))
            if target.resource == EVENTS_V1 and isinstance(patch, dict):
                patch = to_core(patch)
            changed, created = self._registry.patch(
                resource,
                target.namespace,
                target.name,
                request.content_type,
                patch,
                manager=request.query.get("fieldManager", ""),
                force=parse_bool(request.query.get("force")),
                subresource=target.subresource,
                dry_run=dry_run,
            )
        return web.json_response(_shown(target.resource, changed), status=201 if created else 200)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        body = await _read_json(request) if request.can_read_body else None
        options = DeleteOptions.parse(body, dict(request.query), dry_run=_is_dry_run(request.query, "DeleteOptions"))
        resource = _stored_as(target.resource)
        if target.verb == "delete":
            last = self._registry.delete(resource, target.namespace, target.name, options)
            is_gone = self._registry.objects.find(resource, target.namespace, target.name) is None
            if is_gone and resource not in _SHOWN_WHEN_DELETED:
                metadata = last["metadata"]
                return web.json_response(errors.deleted(target.resource, metadata["name"], metadata["uid"]))
            return web.json_response(_shown(target.resource, last))
        query = request.query
        selects = parse_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        page = self._list(target, query)
        for obj in self._registry.objects.all(resource, target.namespace):
            if selects(obj):
                self._registry.delete(resource, target.namespace, obj["metadata"]["name"], options)
        return web.json_response(page)

    def _review(self, user: KubeUser, review: Any) -> Manifest:
        asked = ((review.get("spec") or {}) if isinstance(review, dict) else {}).get("resourceAttributes")
        if not isinstance(asked, dict):
            rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            cause = errors.Cause.invalid("spec.resourceAttributes", None, rule)
            nameless = replace(resources.ACCESS_REVIEWS, kind="")  # as the real server calls it
            raise errors.invalid(nameless, "", [cause])
        plural, subresource = asked.get("resource", ""), asked.get("subresource")
        attempt = Attempt(
            asked.get("verb", ""),
            asked.get("group", ""),
            f"{plural}/{subresource}" if subresource else plural,
            asked.get("namespace", ""),
            asked.get("name", ""),
        )
        kind = {"kind": resources.ACCESS_REVIEWS.kind, "apiVersion": resources.ACCESS_REVIEWS.api_version}
        return {**kind, "metadata": {}, **review, "status": {"allowed": self._access.allows(user, attempt)}}


def _attempt(target: Target) -> Attempt:
    resource = target.resource
    named = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    return Attempt(target.verb, resource.group, named, target.namespace, target.name)


def _stored_as(resource: Resource) -> Resource:
    return EVENTS if resource == EVENTS_V1 else resource


def _shown(resource: Resource, obj: Manifest) -> Manifest:
    return to_new(obj) if resource == EVENTS_V1 else obj


def _respond(request: web.Request, resource: Resource, answer: Manifest) -> web.Response:
    if wants_table(request.headers.get("Accept", "")):
        items = answer.get("items", [answer])
        table = as_table(resource, items)
        if "items" in answer:
            table["metadata"] = answer["metadata"]
        return web.json_response(table)
    return web.json_response(answer)


def _is_dry_run(query: Mapping[str, str], options: str) -> bool:
    given = query.get("dryRun", "")
    if given not in {"", "All"}:
        raise errors.invalid_options(options, errors.Cause.unsupported("dryRun", [given], ["All"]))
    return given == "All"


async def _read_json(request: web.Request) -> Any:
    if "protobuf" in request.content_type or "cbor" in request.content_type:
        raise errors.unsupported_media_type()
    try:
        return json.loads(await request.read())
    except ValueError as error:
        raise errors.bad_request(f"the body of the request is not JSON: {error}") from error


async def _read_yaml(request: web.Request) -> Any:
    try:
        return yaml.safe_load(await request.read())
    except yaml.YAMLError as error:
        raise errors.bad_request(f"the body of the request is not YAML: {error}") from error
