"""What can be done on pages: each asks once and says its effect, is written into the audit, and counts only from the page itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from bs4 import BeautifulSoup

from mig_spawner.domain.lease import PodFate
from mig_spawner.wire.lease import LeaseRelease, LeaseState
from tests.allocator.rig import SERVICE_TOKEN
from tests.page.site import Site, furnish, site


async def ask(http: httpx.AsyncClient, path: str) -> BeautifulSoup:
    """The question before something is done."""
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return BeautifulSoup(answer.text, "html.parser")


async def do(http: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    """Say yes to the question."""
    page = await ask(http, path)
    token = page.select_one("form[method=post] input[name=_xsrf]")
    assert token is not None
    return await http.post(path, data={"_xsrf": str(token["value"]), **fields})


async def told(http: httpx.AsyncClient, answer: httpx.Response) -> str:
    """The page that follows when something was done."""
    assert answer.status_code == 303
    page = await http.get(answer.url.join(answer.headers["Location"]))
    assert page.status_code == 200, page.text
    return page.text


async def test_somebody_gives_their_slice_back(site: Site) -> None:
    leases = await furnish(site)
    path = f"leases/{leases['active'].lease_id}/release"
    async with site.http("ann") as http:
        question = await ask(http, path)
        assert "Give this slice back?" in question.h1.text  # type: ignore[union-attr]
        assert "saved and stopped" in question.get_text(" ")
        assert "The slice was given back" in await told(http, await do(http, path))
    assert (await site.rig.state(leases["active"])).state is LeaseState.RELEASING
    last = site.rig.audit(leases["active"])[-1]
    assert (last.who, last.after) == ("user ann", "releasing")


async def test_somebody_keeps_a_slice_for_longer(site: Site) -> None:
    lease = (await furnish(site))["active"]
    path = f"leases/{lease.lease_id}/extend"
    async with site.http("ann") as http:
        assert f'href="/services/mig/{path}"' in (await http.get("")).text
        question = await ask(http, path)
        [first, *others] = [str(radio["value"]) for radio in question.select("input[name=duration]")]
        assert (float(first), len(others)) == (7200 + 3600, 6)
        assert "may be kept for longer" in await told(http, await do(http, path, duration=first))
    longer = (await site.rig.state(lease)).placement
    assert longer is not None
    assert longer.expires_at == longer.granted_at + timedelta(hours=3)


async def test_the_page_offers_what_the_menu_allows_and_says_why_not_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    entry = {"id": "small", "display_name": "Small", "profile": "1g.10gb", "duration": 3600, "max_duration": 9030}
    async with site(tmp_path, menu=[entry]) as running:
        await running.rig.node()
        path = f"leases/{(await running.own('ann', choice='small')).lease_id}/extend"
        async with running.http("ann") as http:
            question = await ask(http, path)
            assert [float(str(radio["value"])) for radio in question.select("input[name=duration]")] == [7200, 9000]
            answer = await do(http, path, duration="10800")
            assert (answer.status_code, "may be kept for 2 h 30 min in all" in answer.text) == (403, True)
            await told(http, await do(http, path, duration="9000"))
            question = await ask(http, path)
            assert question.select("button[type=submit]") == []
            assert "It cannot be extended." in question.get_text(" ")


async def test_somebody_leaves_the_line(site: Site) -> None:
    await site.rig.node()
    await site.own("bob", accelerator_partition_type="7g.80gb")
    waits = await site.own("ann", accelerator_partition_type="1g.10gb")
    async with site.http("ann") as http:
        path = f"leases/{waits.lease_id}/release"
        assert "lose your place" in (await ask(http, path)).get_text(" ")
        await do(http, path)
    assert (await site.rig.state(waits)).state is LeaseState.CLOSED


@pytest.mark.parametrize("who", ["bob", "eve", ""])
async def test_what_others_hold_is_out_of_reach(site: Site, who: str) -> None:
    leases = await furnish(site)
    path = f"leases/{leases['active'].lease_id}"
    async with site.http(who) as http:
        assert (await http.get(path)).status_code in (302, 403, 404)
        for at in (f"{path}/release", f"admin/{path}/end"):
            assert (await http.get(at)).status_code in (302, 403, 404)
            assert (await http.post(at, data={"_xsrf": "x"})).status_code in (401, 403, 404)
    assert (await site.rig.state(leases["active"])).state is LeaseState.ACTIVE


@pytest.mark.parametrize("token", [None, "", "forged"])
async def test_a_form_of_another_page_counts_for_nothing(site: Site, token: str | None) -> None:
    leases = await furnish(site)
    path = f"leases/{leases['active'].lease_id}/release"
    async with site.http("ann") as http:
        await ask(http, path)
        given = {} if token is None else {"_xsrf": token}
        answer = await http.post(path, data={"other": "field", **given})
    assert answer.status_code == 401
    assert "too old" in answer.text
    assert (await site.rig.state(leases["active"])).state is LeaseState.ACTIVE


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"a=" + b"x" * 20_000, "application/x-www-form-urlencoded", 413),
        (b"a=%ff", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a%d=1" % n for n in range(60)), "application/x-www-form-urlencoded", 400),
    ],
    ids=["json", "large", "no text", "many fields"],
)
async def test_a_body_that_is_no_form_is_refused(site: Site, content: bytes, kind: str, status: int) -> None:
    leases = await furnish(site)
    async with site.http("ann") as http:
        path = f"leases/{leases['active'].lease_id}/release"
        answer = await http.post(path, content=content, headers={"Content-Type": kind})
    assert answer.status_code == status


async def test_an_admin_ends_a_lease_with_a_message(site: Site) -> None:
    leases = await furnish(site)
    path = f"admin/leases/{leases['active'].lease_id}/end"
    async with site.http("root") as http:
        assert "told that an admin ended it" in (await ask(http, path)).get_text(" ")
        answer = await do(http, path, message="The <b>power</b> goes off at six.")
        assert "was ended" in await told(http, answer)
    state = await site.rig.state(leases["active"])
    assert (state.state, state.reason) == (LeaseState.RELEASING, "forced")
    said = "An admin ended it. “The &lt;b&gt;power&lt;/b&gt; goes off at six.”"
    async with site.http("ann") as http:
        for page in ("", f"leases/{leases['active'].lease_id}"):
            assert said in (await http.get(page)).text
        site.rig.clock.move(1)
        await site.rig.nodes["n1"].turn()
        assert (await site.rig.hub.release(leases["active"].lease_id, LeaseRelease(pod=PodFate.GONE))).open is False
        assert said in (await http.get("history")).text
    assert "user root" in [row.who for row in site.rig.audit(leases["active"])]


async def test_an_admin_cordons_and_uncordons_a_node(site: Site) -> None:
    await furnish(site)
    async with site.http("root") as http:
        assert "stay" in (await ask(http, "admin/nodes/n1/cordon")).get_text(" ")
        answer = await do(http, "admin/nodes/n1/cordon")
        page = BeautifulSoup(await told(http, answer), "html.parser")
        assert "cordoned" in page.h1.get_text(" ")  # type: ignore[union-attr]
        assert page.select_one("a[href$='/uncordon']") is not None
        await do(http, "admin/nodes/n1/uncordon")
        audit = (await http.get("admin/audit?text=cordon")).text
    assert "user root" in audit
    assert "uncordoned" in audit
    async with site.rig.http() as api:
        assert not any(node["cordoned"] for node in (await api.get("api/v1/nodes")).json()["nodes"])


async def test_an_admin_drains_a_node(site: Site) -> None:
    leases = await furnish(site)
    async with site.http("root") as http:
        assert "5 leases" in (await ask(http, "admin/nodes/n1/drain")).get_text(" ", strip=True)
        await do(http, "admin/nodes/n1/drain", message="New driver.")
    open_ = {lease.lease_id: lease for lease in (await site.rig.hub.leases()).leases}
    assert {lease.state for lease in open_.values()} == {LeaseState.RELEASING, LeaseState.QUEUED}
    assert open_[leases["queued"].lease_id].state is LeaseState.QUEUED
    assert open_[leases["active"].lease_id].message == "New driver."
    assert "New driver." in site.rig.audit(leases["active"])[-1].why
    async with site.rig.http() as api:
        nodes = {node["node"]: node for node in (await api.get("api/v1/nodes")).json()["nodes"]}
        assert nodes["n1"]["cordoned"]
        twice = await api.post("api/v1/nodes/n1/drain", json={"message": ""})
        unknown = await api.post("api/v1/nodes/n9/drain", json={})
    assert twice.status_code == 200
    assert unknown.status_code == 404


@pytest.mark.parametrize("path", ["admin/nodes/n9", "admin/nodes/n9/drain", "leases/none", "admin/leases/none/end"])
async def test_what_is_not_there_says_so(site: Site, path: str) -> None:
    async with site.http("root") as http:
        answer = await http.get(path)
    assert answer.status_code == 404
    assert "<h1>" in answer.text
