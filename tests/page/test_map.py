"""The map as an admin asks for it: filters, pages, who may see it, and what it reads of a large fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest
from bs4 import BeautifulSoup

from mig_spawner.allocator.page import fleet as fleet_page
from mig_spawner.allocator.page.fleet import MapQuery
from mig_spawner.allocator.page.picture import GPUPicture, picture
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.service import Desk
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.store.transaction import SQLTransaction
from mig_spawner.domain.fleet import GPUState
from tests.page.fleet import big_ledger_in
from tests.page.site import Site, furnish

NEVER = "\N{EN DASH}"


@pytest.fixture(scope="module")
def big_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLStore]:
    store = big_ledger_in(tmp_path_factory.mktemp("big"))
    yield store
    store.close()


async def _page(site: Site, path: str, who: str = "root") -> BeautifulSoup:
    async with site.http(who) as http:
        answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return BeautifulSoup(answer.text, "html.parser")


def _gpus(page: BeautifulSoup) -> list[str]:
    return [figure.select_one("code").text for figure in page.select("figure.gpu")]  # type: ignore[union-attr]


async def test_the_table_says_what_the_pictures_show(site: Site) -> None:
    await furnish(site)
    page = await _page(site, "admin/map")
    rows = [[cell.get_text(" ", strip=True) for cell in row.select("td, th")] for row in page.select("tbody tr")]
    drawn = [group["class"] for group in page.select("svg.grid g.piece")]
    assert len(rows) == len(drawn)
    assert ["n1", "GPU-n1-1", "0 to 7", "whole GPU", "in use", "bob/train", NEVER] in rows
    assert ["n2", "GPU-n2-0", "0", "1g.6gb", "partition, idle", NEVER, NEVER] in rows
    assert any(row[3:6] == ["2g.20gb", "in use", "ann"] and row[6].endswith("UTC") for row in rows)
    assert any(row[4] == "being released" and row[5] == "bob" for row in rows)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["GPU-n1-0", "GPU-n1-1", "GPU-n1-2", "GPU-n2-0", "GPU-n2-1"]),
        ("node=N2", ["GPU-n2-0", "GPU-n2-1"]),
        ("model=h100", ["GPU-n1-2"]),
        ("holder=bob", ["GPU-n1-0", "GPU-n1-1"]),
        ("holder=ann&node=n2", []),
        ("show=trouble", ["GPU-n2-1"]),
        ("show=free", ["GPU-n1-0", "GPU-n1-2", "GPU-n2-0"]),
        ("show=used&node=n1", ["GPU-n1-0", "GPU-n1-1", "GPU-n1-2"]),
        ("after=n1", ["GPU-n2-0", "GPU-n2-1"]),
        ("node=%3Cscript%3E", []),
    ],
)
async def test_filters(site: Site, query: str, found: list[str]) -> None:
    await furnish(site)
    page = await _page(site, f"admin/map?{query}")
    assert _gpus(page) == found
    assert page.select("script:not([src])") == []


@pytest.mark.parametrize("query", ["show=everything", "node=a%00b", "sort=node", "node=" + "x" * 300])
async def test_a_query_that_makes_no_sense_is_refused_on_a_page(site: Site, query: str) -> None:
    async with site.http() as http:
        answer = await http.get(f"admin/map?{query}")
    assert answer.status_code == 400
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "<h1>" in answer.text


@pytest.mark.parametrize(("who", "status"), [("root", 200), ("ann", 403), ("eve", 403), ("", 302)])
async def test_the_map_is_for_admins(site: Site, who: str, status: int) -> None:
    async with site.http(who) as http:
        assert (await http.get("admin/map")).status_code == status


def test_a_page_reads_no_node_anew_and_draws_what_it_shows(
    big_ledger: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = PageService(Desk(big_ledger, Setting(), lambda _: None))
    service.map(MapQuery())
    nodes, read = SQLTransaction.nodes, list[object]()
    drawn: list[GPUState] = []

    def counted(tx: SQLTransaction, names: Collection[str] | None = None) -> list[NodeRecord]:
        read.append(names)
        return nodes(tx, names)

    def counted_picture(state: GPUState, *rest: Any) -> GPUPicture:
        drawn.append(state)
        return picture(state, *rest)

    monkeypatch.setattr(SQLTransaction, "nodes", counted)
    monkeypatch.setattr(fleet_page, "picture", counted_picture)
    for given, gpus in (
        ({}, 64),
        ({"after": "node-100"}, 64),
        ({"node": "7", "show": "free"}, 64),
        ({"holder": "nobody"}, 0),
    ):
        drawn.clear()
        view = service.map(MapQuery.model_validate(given))
        assert view.sums.gpus == 10_240
        assert len(view.gpus) == gpus == len(drawn)
    assert read == []


def test_a_search_that_takes_long_stops_and_goes_on_from_there(
    big_ledger: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_page, "SEARCH_S", 0.0)
    view = PageService(Desk(big_ledger, Setting(), lambda _: None)).map(MapQuery(model="a30"))
    assert (view.gpus, view.after, view.complete) == ((), "node-000", False)
