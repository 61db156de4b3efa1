"""Who may do what. The hub here is a small server that answers who somebody is, as a hub does; `test_hub` has a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiohttp import web
from jupyterhub.httpclient import JupyterHubHTTPClient
from tornado.web import Application, create_signed_value

from mig_spawner.allocator.auth import TICKET_LIFE_S, Tickets
from mig_spawner.allocator.event import stream
from mig_spawner.allocator.handlers.base import Handler
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest, LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import SERVICE_TOKEN, Rig

ACCESS = "access:services!service=mig"
PEOPLE = {
    "token-reader": ("reader", [ACCESS, "custom:mig:read"]),
    "token-ann": ("ann", [ACCESS, "custom:mig:reserve!user=ann"]),
    "token-bob": ("bob", [ACCESS, "custom:mig:reserve"]),
    "token-admin": ("root", [ACCESS, "custom:mig:admin"]),
    "token-nobody": ("nobody", [ACCESS]),
    "token-outsider": ("outsider", ["custom:mig:admin"]),
    "token-impostor": ("impostor", [ACCESS, "custom:mig:reserve!user=ann"]),
}
GROUPS = {"ann": ["lab"]}


class SmallHub:
    """Answers `GET /hub/api/user`."""

    def __init__(self) -> None:
        self.fails = False
        self.asked = 0
        self.url = ""

    async def user(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.fails:
            return web.Response(status=503)
        token = request.headers["Authorization"].partition(" ")[2]
        if token not in PEOPLE:
            return web.json_response({"status": 403, "message": "Forbidden"}, status=403)
        name, scopes = PEOPLE[token]
        return web.json_response(
            {"name": name, "kind": "user", "admin": False, "groups": GROUPS.get(name, []), "scopes": scopes}
        )


@pytest.fixture
async def hub() -> AsyncIterator[SmallHub]:
    hub = SmallHub()
    app = web.Application()
    app.router.add_get("/hub/api/user", hub.user)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hub/api"
    yield hub
    await JupyterHubHTTPClient.loop_instance().close()
    await runner.cleanup()


@pytest.fixture
async def rig(make_rig: MakeRig, hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    monkeypatch.setattr(stream, "LIFE_S", 0)
    return await make_rig(hub_api_url=hub.url)


CALLERS = (
    *("service", "agent", "other-agent", "ticket", "reader", "ann", "bob"),
    *("admin", "nobody", "outsider", "impostor", "unknown", "nothing"),
)
_EVERYBODY = "200 200 200 200 200 200 200 200 200 200 200 200 200"
_READERS = "200 403 403 403 200 200 200 200 403 403 403 401 401"
_ADMINS = "200 403 403 403 403 403 403 200 403 403 403 401 401"
_ITS_AGENT = "403 200 403 403 403 403 403 403 403 403 403 401 401"

_PAGE = "200 403 403 403 200 200 200 200 403 403 403 302 302"
_ADMIN_PAGE = "200 403 403 403 403 403 403 200 403 403 403 302 302"
_NO_FORM = "415 415 415 415 415 415 415 415 415 415 415 415 415"
"""JSON is no form of a page, whoever sends it; `tests/page` sends forms."""

# One row for each verb of each route, the columns are the callers. The lease is ann's, granted.
TABLE = {
    ("GET", "/services/mig/"): _PAGE,
    ("GET", "/services/mig/history"): _PAGE,
    ("GET", "/services/mig/leases/{lease}"): "200 403 403 403 404 200 404 200 403 403 403 302 302",
    ("GET", "/services/mig/leases/{lease}/extend"): "200 403 403 403 403 200 404 200 403 403 403 302 302",
    ("POST", "/services/mig/leases/{lease}/extend"): _NO_FORM,
    ("GET", "/services/mig/leases/{lease}/release"): "200 403 403 403 403 200 404 200 403 403 403 302 302",
    ("POST", "/services/mig/leases/{lease}/release"): _NO_FORM,
    ("GET", "/services/mig/admin/map"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/leases"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/leases/{lease}/end"): _ADMIN_PAGE,
    ("POST", "/services/mig/admin/leases/{lease}/end"): _NO_FORM,
    ("GET", "/services/mig/admin/queue"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/nodes"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/nodes/n1"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/nodes/n1/cordon"): _ADMIN_PAGE,
    ("POST", "/services/mig/admin/nodes/n1/cordon"): _NO_FORM,
    ("GET", "/services/mig/admin/nodes/n1/uncordon"): _ADMIN_PAGE,
    ("POST", "/services/mig/admin/nodes/n1/uncordon"): _NO_FORM,
    ("GET", "/services/mig/admin/nodes/n1/drain"): _ADMIN_PAGE,
    ("POST", "/services/mig/admin/nodes/n1/drain"): _NO_FORM,
    ("GET", "/services/mig/admin/layouts"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/layouts/none/approve"): _ADMIN_PAGE.replace("200", "404"),
    ("POST", "/services/mig/admin/layouts/none/approve"): _NO_FORM,
    ("GET", "/services/mig/admin/layouts/none/reject"): _ADMIN_PAGE.replace("200", "404"),
    ("POST", "/services/mig/admin/layouts/none/reject"): _NO_FORM,
    ("GET", "/services/mig/admin/menu"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/quotas"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/usage"): _ADMIN_PAGE,
    ("GET", "/services/mig/admin/audit"): _ADMIN_PAGE,
    ("GET", "/services/mig/static/live.js"): _EVERYBODY,
    ("HEAD", "/services/mig/static/live.js"): _EVERYBODY,
    ("GET", "/services/mig/oauth_callback"): "400 400 400 400 400 400 400 400 400 400 400 400 400",
    ("GET", "/services/mig/healthz"): _EVERYBODY,
    ("GET", "/services/mig/readyz"): _EVERYBODY,
    ("GET", "/services/mig/metrics"): _EVERYBODY,
    ("GET", "/healthz"): _EVERYBODY,
    ("GET", "/readyz"): _EVERYBODY,
    ("GET", "/metrics"): _EVERYBODY,
    ("GET", "openapi.json"): _EVERYBODY,
    ("GET", "availability"): "200 403 403 200 200 200 200 200 403 403 403 401 401",
    ("OPTIONS", "availability"): "204 204 204 204 204 204 204 204 204 204 204 204 204",
    ("POST", "tickets"): "200 403 403 403 403 403 403 403 403 403 403 401 401",
    ("GET", "menu"): _READERS,
    ("GET", "menu?user=ann&group=staff"): _ADMINS,
    ("GET", "events"): _READERS,
    ("GET", "quotas"): _READERS,
    ("GET", "quotas?user=ann"): _ADMINS,
    ("GET", "usage"): _READERS,
    ("GET", "usage?user=ann"): _ADMINS,
    ("GET", "usage.csv"): _ADMINS,
    ("GET", "leases"): _READERS,
    ("POST", "leases"): "200 403 403 403 403 403 403 403 403 403 403 401 401",
    ("POST", "leases/release?user_id=name:ann&server_name=y"): "200 403 403 403 403 200 403 200 403 403 403 401 401",
    ("GET", "leases/{lease}"): "200 403 403 403 404 200 404 200 403 403 403 401 401",
    ("PATCH", "leases/{lease}"): "200 403 403 403 403 200 404 200 403 403 403 401 401",
    ("GET", "leases/{lease}/explain"): "200 403 403 403 404 200 404 200 403 403 403 401 401",
    ("POST", "leases/{lease}/claim"): "200 403 403 403 403 200 404 200 403 403 403 401 401",
    ("GET", "queue"): _READERS,
    ("POST", "leases/{lease}/renew"): "409 403 403 403 403 409 404 409 403 403 403 401 401",
    ("POST", "leases/{lease}/extend"): "409 403 403 403 403 409 404 409 403 403 403 401 401",
    ("POST", "leases/{lease}/device"): "409 403 403 403 403 403 403 403 403 403 403 401 401",
    ("POST", "leases/{lease}/release"): "200 403 403 403 403 200 404 200 403 403 403 401 401",
    ("GET", "nodes"): _ADMINS,
    ("PUT", "nodes/n1"): _ITS_AGENT,
    ("GET", "nodes/n1/desired"): _ITS_AGENT,
    ("POST", "nodes/n1/cordon"): _ADMINS,
    ("POST", "nodes/n1/uncordon"): _ADMINS,
    ("GET", "reshapes"): _ADMINS,
    ("GET", "reshapes/none"): _ADMINS.replace("200", "404"),
    ("POST", "reshapes/none/approve"): _ADMINS.replace("200", "404"),
    ("POST", "reshapes/none/reject"): _ADMINS.replace("200", "404"),
    ("GET", "webhooks"): _ADMINS,
    ("POST", "webhooks"): _ADMINS.replace("200", "403"),
    ("DELETE", "webhooks/none"): _ADMINS.replace("200", "404"),
    ("GET", "webhooks/none/deliveries"): _ADMINS.replace("200", "404"),
    ("POST", "webhooks/none/deliveries/1/redeliver"): _ADMINS.replace("200", "404"),
    ("POST", "nodes/n1/drain"): _ADMINS,
    ("DELETE", "nodes/n1"): "409 403 403 403 403 403 403 409 403 403 403 401 401",
}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "webhooks"): {"url": "https://not.allowed.example.org/"},
    ("POST", "tickets"): {"user_name": "ann"},
    ("POST", "leases/{lease}/extend"): {"duration": 60},
    ("POST", "leases/{lease}/device"): {"device_uuid": "MIG-1"},
    ("POST", "leases"): {"holder": {"user_id": "7"}, "accelerator_partition_type": "1g.10gb"},
}


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/services/mig/api/v1/{path}"


async def _token(rig: Rig, caller: str) -> str:
    tokens = {
        "service": SERVICE_TOKEN,
        "agent": rig.tokens["n1"],
        "other-agent": rig.tokens["n2"],
        "unknown": "token-unknown",
        "nothing": "",
    }
    if caller == "ticket":
        return (await rig.hub.ticket("ann")).ticket
    return tokens.get(caller, f"token-{caller}")


@pytest.mark.parametrize("caller", CALLERS)
async def test_who_may_do_what(rig: Rig, caller: str) -> None:
    node = await rig.node()
    lease = await rig.client("token-ann").acquire(_own("ann", "x"))
    column = CALLERS.index(caller)
    got = {}
    async with rig.http(await _token(rig, caller)) as http:
        for method, path in TABLE:
            report = (method, path) == ("PUT", "nodes/n1")
            body = node.document().model_dump_json() if report else json.dumps(BODIES.get((method, path), {}))
            url = httpx.URL(rig.app.url).join(_path(path).format(lease=lease.lease_id))
            answer = await http.request(method, url, content=body)
            got[method, path] = answer.status_code
            assert ("WWW-Authenticate" in answer.headers) == (answer.status_code == 401)
    assert got == {verb: int(row.split()[column]) for verb, row in TABLE.items()}


async def test_the_table_has_every_route(rig: Rig) -> None:
    """Whoever adds a route says above who may call it."""
    web = rig.app._server.request_callback
    assert isinstance(web, Application)
    rules: list[Any] = web.wildcard_router.rules
    routes = [(rule.matcher.regex, rule.target.verbs()) for rule in rules if issubclass(rule.target, Handler)]
    served = {(pattern.pattern, verb.upper()) for pattern, verbs in routes for verb in verbs}
    covered = set()
    for method, path in TABLE:
        plain = _path(path).partition("?")[0].format(lease="x")
        covered.add((next(pattern.pattern for pattern, _ in routes if pattern.fullmatch(plain)), method))
    assert served - covered == set()
    assert covered - served == set()


def _own(name: str, server: str = "") -> Any:
    holder = HolderDocument(user_id=f"name:{name}", server_name=server)
    return LeaseRequest(holder=holder, accelerator_partition_type="1g.10gb")


async def test_a_person_leases_for_themselves_and_sees_their_own(rig: Rig) -> None:
    node = await rig.node()
    ann, bob, admin = (rig.client(f"token-{name}") for name in ("ann", "bob", "admin"))
    lease = await ann.acquire(_own("ann"))
    assert lease.holder.user_name == "ann"
    await bob.acquire(_own("bob"))
    with pytest.raises(AllocatorRefused, match="name:ann") as caught:
        await ann.acquire(_own("bob"))
    assert caught.value.code == "forbidden"
    assert [one.holder.user_name for one in (await ann.leases()).leases] == ["ann"]
    assert [one.holder.user_name for one in (await ann.leases(user_id="name:bob")).leases] == []
    assert len((await admin.leases()).leases) == 2
    await node.turn()
    assert (await ann.renew(lease.lease_id)).state is LeaseState.ACTIVE
    assert [row.who for row in rig.audit(lease)] == ["user ann", "user ann", "agent n1", "user ann"]


async def test_what_a_person_says_of_a_pod_is_not_taken_for_known(rig: Rig) -> None:
    node = await rig.node()
    ann = rig.client("token-ann")
    lease = await ann.acquire(_own("ann"))
    with pytest.raises(AllocatorRefused, match="Only an admin"):
        await ann.release(lease.lease_id, LeaseRelease.model_validate({"reason": "forced", "pod": "gone"}))
    await ann.release(lease.lease_id, LeaseRelease.model_validate({"pod": "gone"}))
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.RELEASING


async def test_a_person_sees_their_own_use_and_what_is_left_to_them(make_rig: MakeRig, rig: Rig, hub: SmallHub) -> None:
    limited = await make_rig("quotas.sqlite", hub_api_url=hub.url, menu={"quotas": [{"per": "person", "slices": 1}]})
    await limited.node()
    for name in ("ann", "bob"):
        await limited.client(f"token-{name}").acquire(_own(name))
    limited.clock.move(60)
    async with limited.http("token-ann") as http:
        assert [row["key"] for row in (await http.get("/api/v1/usage")).json()["rows"]] == ["ann"]
        [quota] = (await http.get("/api/v1/quotas")).json()["quotas"]
    assert (quota["subject"], quota["used"], quota["left"]) == ("ann", 1, 0)
    with pytest.raises(AllocatorRefused, match="1 of 1 slice"):
        await limited.client("token-ann").acquire(_own("ann", "another"))
    async with limited.http("token-admin") as http:
        assert {row["key"] for row in (await http.get("/api/v1/usage")).json()["rows"]} == {"ann", "bob"}
        text = (await http.get("/api/v1/usage.csv?by=profile")).text
    assert text.splitlines()[1].startswith("1g.10gb,2,2,")


async def test_groups_of_a_person_are_those_that_the_hub_says(
    make_rig: MakeRig, hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    menu = [{"id": "small", "display_name": "Small", "profile": "1g.10gb", "groups": ["lab"]}]
    rig = await make_rig(hub_api_url=hub.url, menu=menu)
    await rig.node()
    lying = _own("bob").model_copy(update={"groups": ("lab",)})
    with pytest.raises(AllocatorRefused) as caught:
        await rig.client("token-bob").acquire(lying)
    assert caught.value.code == "not-offered"
    assert (await rig.client("token-ann").acquire(_own("ann"))).choice == "small"
    async with rig.http("token-bob") as http:
        [entry] = (await http.get("/api/v1/menu")).json()["entries"]
    assert (entry["allowed"], entry["groups"]) == (False, [])


async def test_a_hub_that_is_down_stops_people_only(rig: Rig, hub: SmallHub) -> None:
    hub.fails = True
    await rig.node()
    assert (await rig.acquire("1")).state is LeaseState.GRANTED
    async with rig.http("token-ann") as http:
        answer = await http.get("/api/v1/leases")
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    hub.fails = False
    assert (await rig.client("token-ann").leases()).leases == ()


async def test_services_and_agents_never_bother_the_hub(rig: Rig, hub: SmallHub) -> None:
    await rig.node()
    await rig.acquire("1")
    async with rig.http("mig-ticket.forged.ticket") as http:
        assert (await http.get("/api/v1/availability")).status_code == 401
    assert hub.asked == 0


async def test_a_ticket_is_for_availability_and_its_time_only() -> None:
    now = 1000.0
    tickets = Tickets(b"k" * 32, lambda: now)
    ticket = tickets.issue("ann").ticket
    assert tickets.user_name(ticket) == "ann"
    payload, _, signature = ticket.rpartition(".")
    for forged in (
        payload,
        f"{payload}.",
        f"{payload}x.{signature}",
        f"{payload}.{signature}x",
        "",
        "mig-ticket.",
        "ä",
    ):
        assert tickets.user_name(forged) is None
    assert Tickets(b"x" * 32, lambda: now).user_name(ticket) is None
    now += TICKET_LIFE_S
    assert tickets.user_name(ticket) is None


async def test_no_token_is_shown(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with rig.http("token-secret-of-somebody") as http:
        await http.get("/api/v1/leases")
        await http.get("/api/v1/leases", headers={"Authorization": "Bearer " + SERVICE_TOKEN})
        await http.put("/api/v1/nodes/n1", headers={"Authorization": "Bearer " + rig.tokens["n1"]})
    shown = caplog.text + repr(rig.app) + repr(rig.hub) + repr(rig.app.desk)
    for secret in ("token-secret-of-somebody", SERVICE_TOKEN, *rig.tokens.values()):
        assert secret not in shown


async def test_a_cookie_alone_changes_nothing(rig: Rig, hub: SmallHub) -> None:
    """A browser sends cookies for anybody's page: without the XSRF token of ours they count for nothing."""
    cookie = _login(rig, "token-ann")
    async with rig.http("") as http:
        assert (await http.get("/api/v1/leases", headers={"Cookie": cookie})).status_code == 200
        body = _own("ann").model_dump_json()
        assert (await http.post("/api/v1/leases", headers={"Cookie": cookie}, content=body)).status_code == 401
    assert (await rig.hub.leases()).leases == ()


async def test_a_callback_without_a_login_is_refused(rig: Rig) -> None:
    async with rig.http("") as http:
        for query in ("", "?code=x", "?code=x&state=y", "?error=denied"):
            answer = await http.get(f"/oauth_callback{query}")
            assert answer.status_code in (400, 403)
            assert answer.json()["code"] in ("invalid", "forbidden")


def _login(rig: Rig, token: str) -> str:
    """The cookie that the OAuth dance would have set."""
    value = create_signed_value(rig.app.desk.store.secret("cookie"), "service-mig", token)
    return f"service-mig={value.decode()}"


@pytest.mark.parametrize(
    ("caller", "priority", "status"), [("ann", 0, 200), ("ann", -1, 200), ("ann", 1, 403), ("admin", 1, 200)]
)
async def test_a_person_sets_no_priority_above_that_of_everybody(
    rig: Rig, caller: str, priority: int, status: int
) -> None:
    await rig.node()
    name = PEOPLE[f"token-{caller}"][0]
    body = _own(name).model_copy(update={"priority": priority})
    async with rig.http(f"token-{caller}") as http:
        answer = await http.post("/api/v1/leases", content=body.model_dump_json())
    assert answer.status_code == status


async def test_a_person_hears_of_their_own_leases_and_an_admin_of_all(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.node()
    for name in ("ann", "bob"):
        await rig.client(f"token-{name}").acquire(_own(name))
    heard = {}
    for name in ("ann", "bob", "reader", "admin"):
        async with rig.http(f"token-{name}") as http:
            monkeypatch.setattr(stream, "LIFE_S", 0.2)
            text = (await http.get("/api/v1/events?kinds=granted", headers={"Last-Event-ID": "0"})).text
        data = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
        heard[name] = [event["lease"]["holder"]["user_name"] for event in data]
    assert heard == {"ann": ["ann"], "bob": ["bob"], "reader": [], "admin": ["ann", "bob"]}
