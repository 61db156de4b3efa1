"""Lists in pages: each item once, in order, whatever comes and goes between the pages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from mig_spawner.allocator.openapi import parameter
from tests.allocator.rig import Rig


async def _pages(http: httpx.AsyncClient, path: str, limit: int) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    query = {"limit": str(limit)}
    while True:
        answer = await http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        pages.append(answer.json())
        if pages[-1]["next"] is None:
            return pages
        query["cursor"] = pages[-1]["next"]


@pytest.mark.parametrize(("limit", "sizes"), [(2, [2, 2, 1]), (5, [5]), (4, [4, 1]), (1000, [5])])
async def test_leases_come_in_pages_oldest_first(rig: Rig, limit: int, sizes: list[int]) -> None:
    await rig.node()
    made = [(await rig.acquire(user)).lease_id for user in "edcba"]
    async with rig.http() as http:
        pages = await _pages(http, "/api/v1/leases", limit)
    assert [len(page["leases"]) for page in pages] == sizes
    assert [lease["lease_id"] for page in pages for lease in page["leases"]] == made


async def test_a_lease_that_ends_between_two_pages_hides_no_other(rig: Rig) -> None:
    await rig.node()
    made = [await rig.acquire(user, None) for user in "abcde"]
    async with rig.http() as http:
        first = (await http.get("/api/v1/leases", params={"limit": "3"})).json()
        # The very lease at which the page ended, and one before it.
        for lease in made[1:3]:
            await rig.release(lease)
        assert {(await rig.state(lease)).state for lease in made[1:3]} == {"closed"}
        late = await rig.acquire("f", None)
        second = (await http.get("/api/v1/leases", params={"cursor": first["next"]})).json()
    assert [lease["lease_id"] for lease in second["leases"]] == [made[3].lease_id, made[4].lease_id, late.lease_id]
    assert second["next"] is None


async def test_pages_are_of_what_was_chosen(rig: Rig) -> None:
    await rig.node()
    for server in ("x", "y", "z"):
        await rig.acquire("a", server=server)
        await rig.acquire("b", server=server)
    async with rig.http() as http:
        first = (await http.get("/api/v1/leases", params={"user_id": "b", "limit": "2"})).json()
        query = {"user_id": "b", "limit": "2", "cursor": first["next"]}
        second = (await http.get("/api/v1/leases", params=query)).json()
    found = [lease["holder"] for page in (first, second) for lease in page["leases"]]
    assert [(holder["user_id"], holder["server_name"]) for holder in found] == [("b", "x"), ("b", "y"), ("b", "z")]


async def test_nodes_come_in_pages_by_name(rig: Rig) -> None:
    for name in ("n3", "n1", "n2"):
        await rig.node(name)
    async with rig.http() as http:
        pages = await _pages(http, "/api/v1/nodes", 2)
    assert [[node["node"] for node in page["nodes"]] for page in pages] == [["n1", "n2"], ["n3"]]


async def test_the_client_reads_every_page(rig: Rig) -> None:
    await rig.node()
    async with rig.http() as http:
        body = [rig.request(f"u{number:04}").model_dump_json() for number in range(parameter.PAGE + 2)]
        for content in body:
            assert (await http.post("/api/v1/leases", content=content)).status_code == 200
        assert len((await http.get("/api/v1/leases")).json()["leases"]) == parameter.PAGE
    users = [lease.holder.user_id for lease in (await rig.hub.leases()).leases]
    assert users == [f"u{number:04}" for number in range(parameter.PAGE + 2)]
