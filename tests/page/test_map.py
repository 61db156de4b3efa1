"""The map as an admin asks for it: filters, pages, who may see it, and how long it takes on a large fleet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from mig_spawner.allocator.page.fleet import MapQuery
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.service import Desk
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import gpu_document
from tests.page.site import Site, furnish

NEVER = "\N{EN DASH}"


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


@pytest.mark.slow
def test_ten_thousand_gpus_cost_a_page_no_more_than_a_moment(tmp_path: Path) -> None:
    store = SQLStore(f"sqlite:///{tmp_path}/ledger.sqlite")
    store.open()
    empty = gpu_document(find_model("a100-80gb").gpu("GPU"))
    with store.writing() as tx:
        for n in range(160):
            gpus = tuple(empty.model_copy(update={"gpu_uuid": f"GPU-{n:03}-{i:02}"}) for i in range(64))
            tx.put_report(f"node-{n:03}", NodeReport(agent_version="test", boot_id="b", gpus=gpus))
    service, took = PageService(Desk(store, Setting(), lambda _: None)), []
    views = []
    for given in ({}, {"after": "node-100"}, {"node": "7", "show": "free"}, {"holder": "nobody"}, {"model": "a30"}):
        began = time.perf_counter()
        views.append(service.map(MapQuery.model_validate(given)))
        took.append(time.perf_counter() - began)
    store.close()
    assert {view.sums.gpus for view in views} == {10_240}
    assert [len(view.gpus) for view in views[:4]] == [64, 64, 64, 0]
    assert views[4].after is not None
    assert not views[4].complete, "a search that takes long stops, and goes on from there"
    assert sorted(took)[2] < 1, took
