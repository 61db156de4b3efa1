"""What every handler does: know the caller, read a body once, answer errors as problem documents.

Who may call stands above each verb, by `@allow`; it is enforced before the body is read. A verb without it is open to all.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from http.client import responses
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

from jupyterhub.services.auth import HubOAuthenticated
from pydantic import BaseModel, ValidationError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from mig_spawner.allocator.auth import Principal, Role
from mig_spawner.allocator.handlers.context import Context
from mig_spawner.allocator.openapi.parameter import WAIT, Parameter
from mig_spawner.allocator.refusal import STATUS, TITLE, refusal
from mig_spawner.errors import AllocatorRefused, InvalidRequest, InvalidTransition, StoreError
from mig_spawner.wire.problem import MEDIA_TYPE, Problem, ProblemCode

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
D = TypeVar("D")
V = TypeVar("V", bound=Callable[..., Any])

MAX_BODY: Final = 64 * 1024
DRAINED: Final = 64 * 1024 * 1024
"""Too large a body is read to its end all the same, so that the answer arrives; beyond this it is not."""

_BY_STATUS: Final = {status: code for code, status in reversed(STATUS.items())}
"""The first code of each status: what Tornado itself says of a request."""


def allow(*roles: Role) -> Callable[[V], V]:
    """Who may call a verb: whoever has one of these roles."""

    def mark(verb: V) -> V:
        verb.allowed = roles  # type: ignore[attr-defined]
        return verb

    return mark


def query(*parameters: Parameter[Any]) -> Callable[[V], V]:
    """What the query of a verb may hold; a verb with `@allow` refuses anything else."""

    def mark(verb: V) -> V:
        verb.query = parameters  # type: ignore[attr-defined]
        return verb

    return mark


@stream_request_body
class Handler(HubOAuthenticated, RequestHandler):  # type: ignore[misc]  # jupyterhub has no types
    """The base of all handlers.

    Attributes:
        caller: who calls; None for nobody that is known. Only then may a verb without `@allow` be running.
        max_body: bytes of a body; more is refused.
    """

    max_body: ClassVar[int] = MAX_BODY
    caller: Principal | None = None

    def initialize(self, context: Context) -> None:
        self.context = context
        context.traffic.begin()
        self.hub_auth = context.auth.hub
        self.request_id = secrets.token_hex(6)
        self._body = bytearray()
        self._received = 0
        self._query: dict[Parameter[Any], Any] = {}

    @classmethod
    def verbs(cls) -> tuple[str, ...]:
        """The verbs that this handler has, in lower case."""
        known = [method.lower() for method in RequestHandler.SUPPORTED_METHODS]
        return tuple(v for v in known if getattr(cls, v) is not getattr(RequestHandler, v))

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    async def prepare(self) -> None:
        name = (self.request.method or "").lower()
        if name not in self.verbs():
            raise HTTPError(405)
        verb = getattr(self, name)
        roles: tuple[Role, ...] | None = getattr(verb, "allowed", None)
        if roles is not None:
            self.caller = await self.context.auth.principal(self)
            self._authorise(roles)
            if not "".join(self.path_args).isprintable():
                raise refusal(ProblemCode.NOT_FOUND, "Nothing here has a name with a control character.")
            self._query = self._parsed_query(getattr(verb, "query", ()))
        if int(self.request.headers.get("Content-Length", 0)) > DRAINED:
            raise self._too_large()

    def _authorise(self, roles: tuple[Role, ...]) -> None:
        if self.caller is None:
            raise refusal(ProblemCode.UNAUTHENTICATED, "No token that is known here. Log in, or send a bearer token.")
        if not self.caller.may(*roles):
            scopes = [role.value for role in roles if role.value.startswith("custom:")]
            hint = f" An admin of the hub can grant the scope {scopes[0]}." if scopes else ""
            raise refusal(ProblemCode.FORBIDDEN, f"{self.caller.who} may not do this.{hint}")

    def _parsed_query(self, parameters: Sequence[Parameter[Any]]) -> dict[Parameter[Any], Any]:
        by_name = {parameter.name: parameter for parameter in parameters}
        values: dict[Parameter[Any], Any] = {}
        for name, texts in self.request.query_arguments.items():
            if name in self._hub_arguments:
                continue
            if name not in by_name:
                known = f"it knows {', '.join(by_name)}" if by_name else "it knows none"
                raise refusal(ProblemCode.INVALID, f"The query parameter {name[:60]!r} is not known here; {known}.")
            values[by_name[name]] = by_name[name].parse([self.decode_argument(text, name) for text in texts])
        for parameter in parameters:
            if parameter.required and parameter not in values:
                raise refusal(ProblemCode.INVALID, f"{parameter.name}: the query must have it. {parameter.about}")
        return values

    @property
    def _hub_arguments(self) -> Sequence[str]:
        """What JupyterHub's authentication reads from a query, before us."""
        in_url = self.hub_auth is not None and self.hub_auth.allow_token_in_url
        return ("_xsrf", "token") if in_url else ("_xsrf",)

    def value(self, parameter: Parameter[T], default: D) -> T | D:
        """A parameter of the query, which stands in the verb's `@query`; the default if it was not given."""
        value: T | D = self._query.get(parameter, default)
        return value

    @property
    def principal(self) -> Principal:
        """Who calls, in a verb with `@allow`."""
        if self.caller is None:
            raise refusal(ProblemCode.UNAUTHENTICATED, "No token that is known here.")
        return self.caller

    def data_received(self, chunk: bytes) -> None:
        self._received += len(chunk)
        if self._received <= self.max_body:
            self._body += chunk

    def _too_large(self) -> AllocatorRefused:
        return refusal(ProblemCode.TOO_LARGE, f"The body is larger than {self.max_body // 1024} KiB.")

    def parsed(self, document: type[M]) -> M:
        """The body as a document, or a refusal that says what is wrong with it."""
        if self._received > self.max_body:
            raise self._too_large()
        declared = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if declared not in ("", "application/json"):
            raise refusal(
                ProblemCode.UNSUPPORTED_MEDIA_TYPE,
                f"The body is declared as {declared[:60]!r}. Send JSON, with Content-Type: application/json.",
            )
        try:
            return document.model_validate_json(bytes(self._body), strict=True)
        except ValidationError as error:
            raise refusal(ProblemCode.INVALID, sentence(error)) from error

    @property
    def wait_s(self) -> float:
        """How long the caller is ready to wait, seconds, at most 60."""
        return self.value(WAIT, 0.0)

    async def call(self, function: Callable[[], T]) -> T:
        """Run a use case in a thread, and wake those who wait for what it changed."""
        try:
            return await self.context.run(function)
        finally:
            self.context.changes.poke()

    def answer(self, document: BaseModel, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(document.model_dump_json(by_alias=True))  # type: ignore[unused-awaitable]

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        problem = self._problem(status_code, error)
        self.context.metrics.count_refusal(problem.code.value)
        self.set_status(problem.status)
        self.set_header("Content-Type", MEDIA_TYPE)
        if isinstance(error, AllocatorRefused) and error.retry_after_s is not None:
            self.set_header("Retry-After", str(math.ceil(error.retry_after_s)))
        if problem.code is ProblemCode.UNAUTHENTICATED:
            self.set_header("WWW-Authenticate", 'Bearer realm="mig-spawner"')
        if problem.code is ProblemCode.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(verb.upper() for verb in self.verbs()))
        self.finish(problem.model_dump_json())  # type: ignore[unused-awaitable]

    def _problem(self, status: int, error: BaseException | None) -> Problem:
        match error:
            case AllocatorRefused():
                code, detail = ProblemCode(error.code), str(error)
            case InvalidRequest():
                code, detail = ProblemCode.INVALID, str(error)
            case InvalidTransition():
                code, detail = ProblemCode.CONFLICT, str(error)
            case StoreError():
                code, detail = ProblemCode.NOT_READY, "The allocator's database cannot be used now. Try again."
            case HTTPError() if status < 500:
                code = _BY_STATUS.get(status, ProblemCode.INVALID)
                detail = _http_detail(self.request.method or "", status)
            case _:
                code = ProblemCode.INTERNAL
                detail = f"Something went wrong in the allocator. Its log has it under {self.request_id}."
        return Problem(status=STATUS[code], code=code, title=TITLE[code], detail=detail)

    def log_exception(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (AllocatorRefused, InvalidRequest, InvalidTransition)):
            log.info("%s %s: %s", self.request.method, self.request.path, error)
        elif isinstance(error, (StoreError, HTTPError)):
            log.warning("%s %s: %s", self.request.method, self.request.path, error)
        else:
            log.error("Request %s failed", self.request_id, exc_info=error)

    def on_finish(self) -> None:
        self.context.traffic.end()
        seconds = time.time() - self.request._start_time  # noqa: SLF001  # tornado's own clock of the request
        self.context.metrics.observe_request(self.request.method or "", type(self).__name__, self.get_status(), seconds)


class NotFound(Handler):
    """Every other path."""

    async def prepare(self) -> None:
        raise refusal(
            ProblemCode.NOT_FOUND, "There is no such page. The API begins at api/v1/ under the service prefix."
        )


def sentence(error: ValidationError) -> str:
    """What is wrong with a body, first fault only, in the manner of `holder.user_id: …`."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in fault["loc"])[:100]
    # The only patterns are those of `wire.base`, and they are nothing to show to people.
    unseen = fault["type"] == "string_pattern_mismatch"
    what = "it has a control character" if unseen else fault["msg"].removeprefix("Value error, ")
    more = error.error_count() - 1
    text = f"{where}: {what}" if where else what
    return text[:600] + (f" (and {more} more)" if more else "")


def _http_detail(method: str, status: int) -> str:
    match status:
        case 404:
            return "There is no such page."
        case 405:
            return f"This page does not know {method[:20]}."
        case 403:
            return "The request was not made by a page of this service (XSRF), or is not allowed."
        case _:
            return f"{responses.get(status, 'Bad request')}: the request cannot be understood."
