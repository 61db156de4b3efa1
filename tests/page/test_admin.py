"""What admins see: leases, queue, nodes with their layout, menu and audit."""

from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from mig_spawner.wire.lease import ChoiceDocument
from tests.page.site import Site, furnish, site

ADMIN = [
    "admin/map",
    "admin/leases",
    "admin/queue",
    "admin/nodes",
    "admin/nodes/n1",
    "admin/menu",
    "admin/usage",
    "admin/audit",
]


async def _page(site: Site, path: str, who: str = "root") -> BeautifulSoup:
    async with site.http(who) as http:
        answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return BeautifulSoup(answer.text, "html.parser")


def _rows(page: BeautifulSoup) -> list[list[str]]:
    return [[cell.get_text(" ", strip=True) for cell in row.select("th, td")] for row in page.select("tbody tr")]


@pytest.mark.parametrize("path", ADMIN)
async def test_they_are_for_admins(site: Site, path: str) -> None:
    await furnish(site)
    for who, status in (("root", 200), ("ann", 403), ("", 302)):
        async with site.http(who) as http:
            assert (await http.get(path)).status_code == status, who


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["ann", "bob/train", "ann/other", "bob", "dora", "fay/<b>x</b>"]),
        ("text=BOB", ["bob/train", "bob"]),
        ("text=GPU-n1-1", ["bob/train"]),
        ("state=queued", ["fay/<b>x</b>"]),
        ("state=active&text=n1", ["ann", "bob/train"]),
        ("text=%25", []),
    ],
)
async def test_leases_are_searched(site: Site, query: str, found: list[str]) -> None:
    await furnish(site)
    assert [row[0] for row in _rows(await _page(site, f"admin/leases?{query}"))] == found


async def test_many_leases_come_in_pages(site: Site) -> None:
    for n in range(60):
        await site.own(f"p{n}", accelerator_partition_type="1g.10gb")
    first = await _page(site, "admin/leases?state=queued")
    link = first.select_one(".pages a[rel=next]")
    assert link is not None
    second = await _page(site, f"admin/leases{link['href']}")
    assert [row[0] for row in _rows(first) + _rows(second)] == [f"p{n}" for n in range(60)]
    assert second.select_one(".pages a[rel=next]") is None


async def test_the_queue_says_the_order_and_why(site: Site) -> None:
    await furnish(site)
    either = (ChoiceDocument(whole=True),)
    await site.own("gus", accelerator_partition_type="7g.80gb", alternatives=either)
    rows = _rows(await _page(site, "admin/queue"))
    assert [row[:3] for row in rows] == [["1", "fay/<b>x</b>", "7g.80gb"], ["2", "gus", "7g.80gb, or else a whole GPU"]]
    assert all(row[4].startswith(("between 20", "at the latest about 20", "cannot be told: ")) for row in rows)
    assert [row[5] for row in rows] == ["Nothing is free that would do."] * 2


async def test_a_long_queue_comes_in_pages(site: Site) -> None:
    for n in range(60):
        await site.own(f"p{n}", accelerator_partition_type="1g.10gb")
    first = await _page(site, "admin/queue")
    link = first.select_one(".pages a[rel=next]")
    assert link is not None
    second = await _page(site, f"admin/queue{link['href']}")
    rows = _rows(first) + _rows(second)
    assert [row[:2] for row in rows] == [[str(n + 1), f"p{n}"] for n in range(60)]
    async with site.http("root") as http:
        assert (await http.get("admin/queue?after=nobody")).status_code == 400


async def test_who_waits_reads_when_it_may_start(site: Site) -> None:
    leases = await furnish(site)
    about = (await _page(site, f"leases/{leases['queued'].lease_id}")).select_one("dl")
    assert about is not None
    assert "Expected start" in about.get_text()


async def test_a_node_shows_what_should_be_beside_what_is(site: Site) -> None:
    leases = await furnish(site)
    rows = {(row[0], row[1]): row[2:] for row in _rows(await _page(site, "admin/nodes/n1"))}
    placed = leases["active"].placement
    assert placed is not None
    where = (placed.gpu_uuid, f"{placed.start} to {placed.start + placed.size - 1}")
    assert rows[where] == ["2g.20gb, for ann", "2g.20gb, 0 processes", "as intended"]
    assert rows["GPU-n1-1", "all"] == ["uncut, for bob/train", "uncut", "as intended"]
    foreign = _rows(await _page(site, "admin/nodes/n2"))
    assert {row[4] for row in foreign} == {"not ours, left alone"}


async def test_a_node_shows_what_is_still_to_be_made_and_destroyed(site: Site) -> None:
    node = await site.rig.node()
    lease = await site.own("zoe", accelerator_partition_type="3g.40gb")
    [row] = _rows(await _page(site, "admin/nodes/n1"))
    assert row[2:] == ["3g.40gb, for zoe", "\N{EN DASH}", "still to be made"]
    await node.turn()
    await site.rig.release(await site.rig.state(lease))
    await node.report()
    [row] = _rows(await _page(site, "admin/nodes/n1"))
    assert row[2:] == ["nothing", "3g.40gb, 0 processes", "to be destroyed"]


async def test_the_list_of_nodes_says_what_is_wrong(site: Site) -> None:
    await furnish(site)
    rows = {row[0]: row for row in _rows(await _page(site, "admin/nodes"))}
    assert rows["n1"][1] == "grants"
    assert "GPU-n2-1 is bad" in rows["n2"][6]


async def test_the_menu_as_anybody_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "service-token-for-tests")
    menu = {
        "currency": "credits",
        "contact": "gpu-help@example.org",
        "entries": [
            {"display_name": "Small", "profile": "1g.10gb", "price": 0.5, "default": True},
            {"display_name": "Big", "profile": "3g.40gb", "groups": ["research"], "from": "2026-05-01"},
        ],
    }
    async with site(tmp_path, menu=menu) as running:
        plain = await _page(running, "admin/menu")
        assert [row[-1] for row in _rows(plain)] == ["everybody", "research"]
        assert "gpu-help@example.org" in plain.get_text()
        someone = _rows(await _page(running, "admin/menu?user=ann"))
        assert someone[1][2].startswith("no: ")
        member = _rows(await _page(running, "admin/menu?groups=lab,+research&day=2026-06-01"))
        assert [row[2] for row in member] == ["yes", "yes"]
        early = _rows(await _page(running, "admin/menu?groups=research&day=2026-04-30"))
        assert early[1][2].startswith("no: ")


async def test_what_a_changed_file_changed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "service-token-for-tests")
    file = tmp_path / "menu.yaml"
    file.write_text("- {display_name: Small, profile: 1g.10gb}")
    async with site(tmp_path, menu_file=str(file)) as running:
        assert "Changed" not in (await _page(running, "admin/menu")).get_text()
        file.write_text(
            "- {display_name: Small, profile: 1g.10gb, price: 2}\n- {display_name: <b>Big</b>, profile: 3g.40gb}"
        )
        await running.rig.tick()
        page = await _page(running, "admin/menu")
        assert [item.text for item in page.select(".changes li")] == [
            "small: price nothing became 2.0",
            "b-big-b is new (3g.40gb)",
        ]
        file.write_text("- {display_name: Small, profil: 1g.10gb}")
        await running.rig.tick()
        broken = await _page(running, "admin/menu")
    assert "The menu from before holds on" in broken.get_text(" ")
    assert len(_rows(broken)) == 2


async def test_the_audit_is_newest_first_and_searched(site: Site) -> None:
    leases = await furnish(site)
    rows = _rows(await _page(site, "admin/audit"))
    assert len(rows) >= 10
    assert rows[-1][4].startswith("ann asks for")
    found = _rows(await _page(site, f"admin/audit?text={leases['whole'].lease_id}"))
    assert {row[2] for row in found} == {f"lease {leases['whole'].lease_id}"}


async def test_usage_is_added_up_and_leads_to_a_spreadsheet(site: Site) -> None:
    await furnish(site)
    page = await _page(site, "admin/usage?days=7")
    rows = {row[0]: row[2:] for row in _rows(page)}
    assert rows["ann"][1] == "2", "two of hers are open"
    link = page.select_one("a[href*='usage.csv']")
    assert link is not None
    async with site.http("root") as http:
        answer = await http.get(str(link["href"]).removeprefix("/services/mig/"))
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert "ann" in answer.text


async def test_quotas_say_what_is_left_to_admins_and_to_whom_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "service-token-for-tests")
    menu = {"entries": [{"display_name": "Small", "profile": "1g.10gb"}], "quotas": [{"per": "person", "slices": 2}]}
    async with site(tmp_path, menu=menu) as running:
        await running.rig.node()
        await running.own("ann", accelerator_partition_type="1g.10gb")
        for page in (await _page(running, "admin/quotas?user=ann"), await _page(running, "", "ann")):
            assert "1 of 2" in page.get_text(" ") or "1 slice" in page.get_text(" "), page.get_text(" ")
        assert "no quotas" not in (await _page(running, "admin/quotas")).get_text(" ")
