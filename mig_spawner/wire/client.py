"""`AllocatorClient`: the allocator's API for everybody who calls it: spawner, agent, other tools."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from mig_spawner._version import __version__
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.availability import Availability, Ticket, TicketRequest
from mig_spawner.wire.lease import LeaseDocument, LeaseList, LeaseRelease, LeaseRequest
from mig_spawner.wire.node import DesiredNode, NodeReport
from mig_spawner.wire.problem import Problem

A = TypeVar("A", bound=BaseModel)

DEFAULT_TIMEOUT_S = 5.0


class AllocatorClient:
    """Calls the allocator. Safe to share between tasks of one event loop; close it when done.

    Args:
        url: where the API lives, with the service prefix: `http://mig-allocator:8080/services/mig`.
        token: sent as a bearer token; it never appears in `repr` or errors.
        timeout_s: for one answer, on top of what a long poll waits for.
        transport: for tests.

    Every method raises `AllocatorUnavailable` when there is no usable answer, and `AllocatorRefused` when the answer is no.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            base_url=self.url + "/api/v1/",
            headers={
                "Authorization": f"Bearer {token}",
                "User-Agent": f"mig-spawner/{__version__}",
                "Accept": "application/json",
            },
            timeout=timeout_s,
            transport=transport,
            trust_env=False,
            # Reading the certificates of the system takes a tenth of a second, and nobody is asked for one on plain HTTP.
            verify=self.url.startswith("https:"),
        )

    def __repr__(self) -> str:
        return f"AllocatorClient({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def availability(self) -> Availability:
        """What is free now."""
        return await self._call(Availability, "GET", "availability")

    async def ticket(self, user_name: str) -> Ticket:
        """A ticket for one person's browser. For the hub only."""
        return await self._call(Ticket, "POST", "tickets", TicketRequest(user_name=user_name))

    async def acquire(self, request: LeaseRequest, *, wait_s: float = 0) -> LeaseDocument:
        """The holder's lease: a new one, or the one it already has.

        Args:
            wait_s: answer at once when the lease is Ready or ended, otherwise after so many seconds with the state it then has.
        """
        return await self._call(LeaseDocument, "POST", "leases", request, wait_s=wait_s)

    async def lease(self, lease_id: str, *, wait_s: float = 0, known: LeaseDocument | None = None) -> LeaseDocument:
        """Read a lease.

        Args:
            wait_s: answer as soon as state or queue position differ from `known` (or, without it, when the lease is Ready or
                ended), at the latest after so many seconds.
        """
        query = {} if known is None else {"known": f"{known.state}:{known.position or 0}"}
        return await self._call(LeaseDocument, "GET", f"leases/{quote(lease_id, safe='')}", wait_s=wait_s, query=query)

    async def leases(self, *, user_id: str | None = None, server_name: str | None = None) -> LeaseList:
        """The open leases, of all holders or of one; however many pages they take."""
        query = {k: v for k, v in {"user_id": user_id, "server_name": server_name}.items() if v is not None}
        found: list[LeaseDocument] = []
        while True:
            page = await self._call(LeaseList, "GET", "leases", query=query)
            found += page.leases
            if page.next is None or not page.leases:
                return LeaseList(leases=tuple(found))
            query["cursor"] = page.next

    async def renew(self, lease_id: str) -> LeaseDocument:
        """Confirm a Ready lease (it becomes Active), or the heartbeat of an Active one."""
        return await self._call(LeaseDocument, "POST", f"leases/{quote(lease_id, safe='')}/renew")

    async def release(self, lease_id: str, release: LeaseRelease) -> LeaseDocument:
        """Give a lease back. Doing it twice does no harm; the answer says what it still waits for."""
        return await self._call(LeaseDocument, "POST", f"leases/{quote(lease_id, safe='')}/release", release)

    async def release_holder(self, user_id: str, server_name: str, release: LeaseRelease) -> LeaseList:
        """Give back whatever open lease a holder has; for callers that do not know its id."""
        query = {"user_id": user_id, "server_name": server_name}
        return await self._call(LeaseList, "POST", "leases/release", release, query=query)

    async def report(self, node: str, report: NodeReport) -> DesiredNode:
        """Tell what a node looks like; learn what it should look like."""
        return await self._call(DesiredNode, "PUT", f"nodes/{quote(node, safe='')}", report)

    async def desired(self, node: str, *, known: int, wait_s: float) -> DesiredNode:
        """What a node should look like, as soon as its generation differs from `known`, at the latest after `wait_s` seconds."""
        return await self._call(
            DesiredNode, "GET", f"nodes/{quote(node, safe='')}/desired", wait_s=wait_s, query={"known": str(known)}
        )

    async def _call(
        self,
        answer: type[A],
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        wait_s: float = 0,
        query: dict[str, str] | None = None,
    ) -> A:
        params = dict(query or {})
        if wait_s:
            params["wait"] = f"{wait_s:g}"
        kwargs: dict[str, Any] = {}
        if body is not None:
            kwargs = {"content": body.model_dump_json(), "headers": {"Content-Type": "application/json"}}
        try:
            response = await self._http.request(method, path, params=params, timeout=self._timeout_s + wait_s, **kwargs)
        except httpx.HTTPError as error:
            raise AllocatorUnavailable(
                f"The GPU allocator at {self.url} does not answer ({type(error).__name__})."
            ) from error
        return _parsed(answer, response)


def _parsed(answer: type[A], response: httpx.Response) -> A:
    if response.status_code >= 500:
        raise AllocatorUnavailable(f"The GPU allocator answered {response.status_code}. {_detail(response)}".strip())
    if response.status_code >= 400:
        problem = _problem(response)
        if problem is None:
            raise AllocatorRefused(
                f"The GPU allocator answered {response.status_code}.", status=response.status_code, code="unknown"
            )
        raise AllocatorRefused(problem.detail, status=problem.status, code=problem.code)
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        raise AllocatorUnavailable(
            f"The answer of {response.request.url.host} is not one of a mig-spawner allocator."
        ) from error


def _problem(response: httpx.Response) -> Problem | None:
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _detail(response: httpx.Response) -> str:
    problem = _problem(response)
    return "" if problem is None else problem.detail
