"""My slices: who I am, what I hold, what is free."""

from __future__ import annotations

from tests.page.site import Site, furnish


async def test_the_page_shows_who_i_am_and_what_is_free(site: Site) -> None:
    await furnish(site)
    async with site.http("ann") as http:
        mine = await http.get("")
    async with site.http("eve") as http:
        may_not = await http.get("")
    async with site.http("") as http:
        anonymous = await http.get("")
    assert mine.status_code == 200
    assert "<strong>ann</strong>" in mine.text
    assert "Simulated GPUs" in mine.text
    assert "2g.20gb" in mine.text
    assert "bob" not in mine.text, "what others hold is theirs"
    assert "default-src 'none'" in mine.headers["Content-Security-Policy"]
    assert anonymous.status_code == 302
    assert anonymous.headers["Location"].startswith("/hub/api/oauth2/authorize?client_id=service-mig")
    assert may_not.status_code == 403
    assert "custom:mig:read" in may_not.text


async def test_a_problem_is_a_page_for_a_browser_and_a_document_for_a_program(site: Site) -> None:
    async with site.http("eve") as http:
        assert "<h1>" in (await http.get("admin/map")).text
        answer = await http.get("admin/map", headers={"Accept": "application/json"})
    assert answer.json()["code"] == "forbidden"
