"""The OpenAPI document itself."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from mig_spawner._version import __version__
from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.openapi.operation import FROM_A_LEASE, OPERATIONS, PATH_PARAMETERS, Operation
from mig_spawner.allocator.openapi.parameter import Parameter
from mig_spawner.allocator.refusal import STATUS, TITLE
from mig_spawner.wire.event import AVAILABILITY, GAP, Event, EventKind
from mig_spawner.wire.problem import MEDIA_TYPE, Problem, ProblemCode

Routes = Sequence[tuple[str, type[Any]]]
_Schemas = Mapping[tuple[Any, JsonSchemaMode], dict[str, Any]]

VERBS: Final = ("get", "put", "post", "delete", "patch", "options")

_ABOUT: Final = """\
Leases of GPU slices. Send a token as `Authorization: Bearer …`. Unknown keys of a body and unknown query parameters are refused;
unknown keys of an answer should be ignored. Every error is a problem document with a code of a closed set. A verb that a path does
not have is answered with 405, the code `method-not-allowed` and the verbs it has in `Allow`."""

_SCHEMES: Final = {
    "service": "A token of the hub or of another service, known to the allocator.",
    "agent": "The token of one node's agent.",
    "ticket": "A ticket of `POST tickets`.",
    "hub": "A token of a person at the hub, with the scope that is named, or with one that includes it "
    "(admin includes reserve, reserve includes read). A browser may send the cookie of its login at the hub instead, "
    "with `X-XSRFToken` for whatever changes something.",
}

_ALWAYS: Final = (ProblemCode.INVALID, ProblemCode.TOO_LARGE, ProblemCode.INTERNAL, ProblemCode.NOT_READY)
_GUARDED: Final = (ProblemCode.UNAUTHENTICATED, ProblemCode.FORBIDDEN)
_HEADERS: Final[dict[ProblemCode, dict[str, Any]]] = {
    ProblemCode.RATE_LIMITED: {
        "Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}}
    },
    ProblemCode.UNAUTHENTICATED: {
        "WWW-Authenticate": {"description": "How to show who you are.", "schema": {"type": "string"}}
    },
}
_ETAG: Final = {"description": "Changes with the content; for `If-None-Match`.", "schema": {"type": "string"}}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags that the caller has: the answer is 304, without content, if it is still one of them.",
    "schema": {"type": "string"},
}
_LAST_EVENT_ID: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The `id` of the last event that was seen: those after it are told first. Without it only what happens from now on.",
    "schema": {"type": "string", "pattern": r"^[0-9]{0,18}$"},
}


def openapi(routes: Routes, prefix: str) -> dict[str, Any]:
    """The document of these routes under a service prefix.

    Raises:
        KeyError: a verb has no description in `OPERATIONS`.
    """
    described = [
        (path, verb, getattr(handler, verb), OPERATIONS[path, verb])
        for path, handler in routes
        for verb in VERBS
        if verb in handler.verbs()
    ]
    references, schemas = _schemas([operation for *_, operation in described])
    paths: dict[str, dict[str, Any]] = {}
    for path, verb, method, operation in described:
        item = paths.setdefault(f"/{path}", {})
        names = re.findall(r"\{(\w+)\}", path)
        if names:
            item["parameters"] = [_path_parameter(name) for name in names]
        item[verb] = _operation(path, verb, method, operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mig-spawner allocator",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "BSD 3-Clause", "identifier": "BSD-3-Clause"},
        },
        "servers": [{"url": f"{prefix}api/v1"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {code.value: _problem(code) for code in ProblemCode},
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": about} for name, about in _SCHEMES.items()
            },
        },
    }


def _schemas(operations: Sequence[Operation]) -> tuple[_Schemas, dict[str, Any]]:
    """A reference for each document, and the schemas they refer to. What is read and what is written are two schemas."""
    taken = [(o.body, "validation") for o in operations if o.body]
    given = [(o.answer, "serialization") for o in operations if o.answer]
    given += [(event, "serialization") for o in operations if o.streams for event in get_args(Event)]
    asked: list[Any] = [*taken, *given, (Problem, "serialization")]
    references, definitions = models_json_schema(asked, ref_template="#/components/schemas/{model}")
    return references, definitions["$defs"]


def _operation(path: str, verb: str, method: Any, operation: Operation, references: _Schemas) -> dict[str, Any]:
    roles: Sequence[Role] = getattr(method, "allowed", ())
    query: Sequence[Parameter[Any]] = getattr(method, "query", ())
    parameters = [parameter.described() for parameter in query]
    result: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [path.partition("/")[0]],
        "summary": operation.about,
        "security": [_requirement(role) for role in roles],
    }
    if verb == "get":
        parameters.append(_LAST_EVENT_ID if operation.streams else _IF_NONE_MATCH)
    if parameters:
        result["parameters"] = parameters
    if operation.body is not None:
        schema = references[operation.body, "validation"]
        result["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    result["responses"] = {
        **_success(verb, operation, references),
        **_refusals(_codes(path, operation, guarded=bool(roles))),
    }
    return result


def _refusals(codes: Sequence[ProblemCode]) -> dict[str, Any]:
    """One response for each status; where several codes have the same, any of them."""
    result: dict[str, Any] = {}
    for status, group in itertools.groupby(codes, key=lambda code: STATUS[code]):
        same = list(group)
        result[str(status)] = {"$ref": f"#/components/responses/{same[0]}"} if len(same) == 1 else _any_problem(same)
    return result


def _any_problem(codes: Sequence[ProblemCode]) -> dict[str, Any]:
    headers = {name: header for code in codes for name, header in _HEADERS.get(code, {}).items()}
    schema = {"anyOf": [_problem_schema(code) for code in codes]}
    about = " Or: ".join(f"{TITLE[code]} (`{code}`)." for code in codes)
    return {"description": about, "headers": headers, "content": {MEDIA_TYPE: {"schema": schema}}}


def _requirement(role: Role) -> dict[str, list[str]]:
    return {"hub": [role.value]} if role.value.startswith("custom:") else {role.value: []}


def _success(verb: str, operation: Operation, references: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": operation.about}
    if operation.status == 204:
        return {"204": answer}
    if operation.streams:
        return {"200": {**answer, "content": {"text/event-stream": {"schema": _stream(references)}}}}
    plain = {"type": "object" if operation.media_type == "application/json" else "string"}
    schema = plain if operation.answer is None else references[operation.answer, "serialization"]
    answer["content"] = {operation.media_type: {"schema": schema}}
    result = {str(operation.status): answer}
    if verb == "get":
        answer["headers"] = {"ETag": _ETAG}
        result["304"] = {"description": "What the caller has is still so.", "headers": {"ETag": _ETAG}}
    if operation.name == "acquireLease":
        answer["links"] = {
            name: {"operationId": name, "parameters": {"id": "$response.body#/lease_id"}} for name in FROM_A_LEASE
        }
    return result


def _stream(references: _Schemas) -> dict[str, Any]:
    """One event of a stream. Its data is JSON in a text."""
    documents = [references[event, "serialization"] for event in get_args(Event)]
    content = {"contentMediaType": "application/json", "contentSchema": {"anyOf": documents}}
    return {
        "type": "object",
        "properties": {
            "event": {"enum": [*EventKind, AVAILABILITY, GAP]},
            "id": {"type": "string", "pattern": "^[0-9]+$"},
            "data": {"type": "string", **content},
        },
        "required": ["event", "data"],
    }


def _codes(path: str, operation: Operation, *, guarded: bool) -> list[ProblemCode]:
    codes = {*_ALWAYS, *operation.problems}
    if guarded:
        codes |= set(_GUARDED)
    if "{" in path:
        codes.add(ProblemCode.NOT_FOUND)
    if operation.body is not None:
        codes.add(ProblemCode.UNSUPPORTED_MEDIA_TYPE)
    return sorted(codes, key=lambda code: STATUS[code])


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": PATH_PARAMETERS[name],
        "schema": {"type": "string", "minLength": 1},
    }


def _problem(code: ProblemCode) -> dict[str, Any]:
    headers = {"headers": _HEADERS[code]} if code in _HEADERS else {}
    if code is ProblemCode.METHOD_NOT_ALLOWED:
        headers = {"headers": {"Allow": {"description": "The verbs of this path.", "schema": {"type": "string"}}}}
    return {"description": f"{TITLE[code]}.", **headers, "content": {MEDIA_TYPE: {"schema": _problem_schema(code)}}}


def _problem_schema(code: ProblemCode) -> dict[str, Any]:
    exact = {"properties": {"status": {"const": STATUS[code]}, "code": {"const": code.value}}}
    return {"allOf": [{"$ref": "#/components/schemas/Problem"}, exact]}
