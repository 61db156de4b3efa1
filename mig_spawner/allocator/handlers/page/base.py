"""What every page does: know who is there, read a query or a form once, render, and tell errors as a page.

A form that changes something is a POST with the XSRF token of the hub's library in its body: a cookie alone counts for nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, sentence
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.problem import ProblemCode

M = TypeVar("M", bound=BaseModel)

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
MAX_FORM: Final = 16 * 1024
MAX_FIELDS: Final = 50
_FORM: Final = "application/x-www-form-urlencoded"
_NOT_OURS: Final = ("_xsrf", "token", "did")


class Did(StrEnum):
    """What was just done, as the page that follows tells it."""

    RELEASED = "released"
    EXTENDED = "extended"
    ENDED = "ended"
    CORDONED = "cordoned"
    UNCORDONED = "uncordoned"
    DRAINED = "drained"
    APPROVED = "approved"
    REJECTED = "rejected"

    @property
    def sentence(self) -> str:
        return _DONE[self]


_DONE: Final = {
    Did.RELEASED: "The slice was given back. It is free for others once its pod is gone.",
    Did.EXTENDED: "The slice may be kept for longer. Its new end is below.",
    Did.ENDED: "The lease was ended. Its slice is given on when its pod is gone and its device idle.",
    Did.CORDONED: "The node is cordoned: nothing more is granted on it.",
    Did.UNCORDONED: "Slices of the node are granted again.",
    Did.APPROVED: "It was approved. Nothing is granted on that GPU until its agent has cut it.",
    Did.REJECTED: "It is not to be, or no longer. What is in use stays until it is given back.",
    Did.DRAINED: "The node is cordoned and its leases end. It is empty when the pods are gone.",
}


class PageHandler(Handler):
    """The base of all pages. Subclasses write `page`.

    Attributes:
        for_admins: only whoever has `custom:mig:admin` may see it.
    """

    for_admins: ClassVar[bool] = False
    max_body = MAX_FORM

    async def get(self, *names: str) -> None:
        if await self._enter():
            await self.page(*names)

    async def page(self, *names: str) -> None:
        """Answer with the page."""
        raise NotImplementedError

    def get_current_user(self) -> Any:
        """Who is there, as the hub's library asks when it sets the XSRF cookie: known by then, so nobody is asked again."""
        return getattr(self, "_cached_hub_user", None)

    async def _enter(self) -> bool:
        """Whether somebody is there who may be; sends away who has to log in."""
        if self.context.auth.hub is None:
            raise refusal(
                ProblemCode.UNAUTHENTICATED, "This allocator has no token of its own at a hub: nobody can log in."
            )
        if not "".join(self.path_args).isprintable():
            raise refusal(ProblemCode.NOT_FOUND, "Nothing here has a name with a control character.")
        self.caller = await self.context.auth.principal(self)
        if self.caller is None:
            if self.request.method != "GET":
                raise refusal(
                    ProblemCode.UNAUTHENTICATED,
                    "You are not logged in any more, or the page with this form is too old. Open it again.",
                )
            self.redirect(self.get_login_url())
            return False
        wanted = (Role.SERVICE, Role.ADMIN) if self.for_admins else (Role.SERVICE, Role.READ)
        if not self.caller.may(*wanted):
            raise refusal(
                ProblemCode.FORBIDDEN, f"{self.caller.who} may not see this. An admin can grant {wanted[1].value}."
            )
        return True

    def asked(self, document: type[M]) -> M:
        """The query as a document; what is empty counts as not given."""
        given = self.request.query_arguments
        values = {name: self.decode_argument(texts[-1], name) for name, texts in given.items() if name not in _NOT_OURS}
        return _validated(document, {name: text for name, text in values.items() if text.strip()})

    async def show(self, template: str, **values: Any) -> None:
        """Answer with a template."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Referrer-Policy", "same-origin")
        given = self.get_query_argument("did", "")
        text = self.context.templates.get_template(template).render(
            prefix=self.context.prefix,
            path=self.request.path.removeprefix(self.context.prefix),
            who=self._shown_name,
            admin=self.caller is not None and self.caller.sees_all,
            hub=self._hub_url,
            xsrf=self.xsrf_token.decode() if self.caller is not None else "",
            did=Did(given).sentence if given in set(Did) else "",
            **values,
        )
        await self.finish(text)

    @property
    def _shown_name(self) -> str:
        return "" if self.caller is None else self.caller.person or self.caller.who

    @property
    def _hub_url(self) -> str:
        hub = self.context.auth.hub
        return "" if hub is None else f"{hub.hub_host}{hub.hub_prefix}home"

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A page for a browser, a problem document for everybody else."""
        if "text/html" not in self.request.headers.get("Accept", ""):
            super().write_error(status_code, **kwargs)
            return
        problem = self._problem(status_code, kwargs.get("exc_info", (None, None, None))[1])
        self.context.metrics.count_refusal(problem.code.value)
        self.set_status(problem.status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", POLICY)
        template = self.context.templates.get_template("error.html")
        text = template.render(
            prefix=self.context.prefix,
            path=self.request.path.removeprefix(self.context.prefix),
            who=self._shown_name,
            admin=self.caller is not None and self.caller.sees_all,
            hub=self._hub_url,
            did="",
            problem=problem,
        )
        self.finish(text)  # type: ignore[unused-awaitable]


class Question(PageHandler):
    """A page that asks before it does something: `page` says the effect, and its form, sent back, is `act`."""

    async def post(self, *names: str) -> None:
        self._read_form()
        if await self._enter():
            await self.act(*names)

    async def act(self, *names: str) -> None:
        """Do what was asked."""
        raise NotImplementedError

    def _read_form(self) -> None:
        if self._received > self.max_body:
            raise self._too_large()
        declared = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if declared != _FORM:
            raise refusal(ProblemCode.UNSUPPORTED_MEDIA_TYPE, f"A form of this page is sent as {_FORM}.")
        try:
            text = self._body.decode("utf-8")
            fields = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError as error:
            raise refusal(ProblemCode.INVALID, "The form cannot be read. Open the page again.") from error
        self._fields = dict(fields)
        # Where the hub's library looks for it. It compares with the cookie when it is asked who calls.
        self.request.arguments["_xsrf"] = [self._fields.pop("_xsrf", "").encode()]

    def form(self, document: type[M]) -> M:
        """The form as a document."""
        return _validated(document, self._fields)

    def done(self, path: str, did: Did) -> None:
        """Go on to a page that tells what was done. Loading that again does nothing."""
        self.redirect(f"{self.context.prefix}{path}?did={did}", status=303)


def _validated(document: type[M], values: dict[str, str]) -> M:
    try:
        return document.model_validate(values)
    except ValidationError as error:
        raise refusal(ProblemCode.INVALID, sentence(error)) from error
