"""How the embedded API says no: each refusal is a `Status` object with a code, a reason and a message.

    StatusError
      raised by the function named after the refusal: `not_found`, `conflict`, `invalid`, ...

The words follow the real API server, since people search for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mig_spawner.testing.kube.resources import Manifest, Resource


@dataclass(frozen=True)
class Cause:
    """One fault of an object: where it is and what is wrong there."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        return cls(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))

    @classmethod
    def invalid(cls, field: str, value: object, detail: str) -> Cause:
        shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")

    @classmethod
    def immutable(cls, field: str, value: object) -> Cause:
        return cls.invalid(field, value, "field is immutable")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        return cls(field, "FieldValueForbidden", f"Forbidden: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: str) -> Cause:
        return cls(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')

    @classmethod
    def not_found(cls, field: str, value: str) -> Cause:
        return cls(field, "FieldValueNotFound", f'Not found: "{value}"')

    @classmethod
    def unsupported(cls, field: str, value: object, known: Sequence[str]) -> Cause:
        choices = ", ".join(f'"{choice}"' for choice in known)
        shown = json.dumps(value)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {choices}")


class StatusError(Exception):
    """A request that is refused. `status` is the body of the answer, `code` its HTTP status."""

    def __init__(self, code: int, reason: str, message: str, details: Manifest | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def status(self) -> Manifest:
        body: Manifest = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        body |= {"status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = {key: value for key, value in self.details.items() if value}
        return {**body, "code": self.code}


class NoSuchPage(Exception):
    """A path outside of all API groups: the real server answers 404 with plain text, as any web server."""


def deleted(resource: Resource, name: str, uid: str) -> Manifest:
    """The `Status` that answers a deletion that went well."""
    details = {"name": name, "kind": resource.plural, "uid": uid}
    if resource.group:
        details["group"] = resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def done() -> Manifest:
    """The `Status` that answers a binding or an eviction that went well."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _details(resource: Resource, name: str) -> Manifest:
    return {"name": name, "group": resource.group, "kind": resource.plural}


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, message: str) -> StatusError:
    return StatusError(
        403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {message}', _details(resource, name)
    )


def not_found(resource: Resource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(resource: Resource, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, message: str, *, about: str = "") -> StatusError:
    """`about` is said instead of the resource's name, where the real server has another word."""
    full = f'Operation cannot be fulfilled on {about or resource.qualified} "{name}": {message}'
    details = _details(resource, name) | ({"kind": about} if about else {})
    return StatusError(409, "Conflict", full, details)


def modified(resource: Resource, name: str) -> StatusError:
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def gone(requested: int, oldest: int) -> StatusError:
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def unsupported_media_type() -> StatusError:
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object was understood, and breaks the rules in one or more fields."""
    parts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = parts[0] if len(parts) == 1 else "[" + ", ".join(parts) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {
        "name": name,
        "group": resource.group,
        "kind": resource.kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes],
    }
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def invalid_options(kind: str, cause: Cause) -> StatusError:
    """422: the parameters of a request, such as `ListOptions`, break a rule."""
    told = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [told]}
    return StatusError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}', details)


def rejected_patch() -> StatusError:
    """422: a JSON patch does not fit the object."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unexpected(message: str) -> StatusError:
    """500 without a reason: what the real server never expected to be asked."""
    return StatusError(500, "", message)


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)


def version_too_large(requested: int, current: int) -> StatusError:
    return StatusError(504, "Timeout", f"Too large resource version: {requested}, current: {current}")
