"""Form, waiting room and the allocator's pages behind a proxy: below a path other than `/`, and with subdomains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from tests.browser.look import violations
from tests.spawner.screen.conftest import Seats
from tests.spawner.screen.town import Town, town_in

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]


@pytest.fixture(scope="module")
def with_subdomains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town_in(tmp_path_factory.mktemp("domains"), domains=True) as town:
        yield town


@pytest.fixture(params=["below_a_path", "with_subdomains"])
def town(request: pytest.FixtureRequest) -> Town:
    found: Town = request.getfixturevalue(request.param)
    return found


async def test_from_the_form_through_the_waiting_room_to_the_pages_and_back(town: Town, seats: Seats) -> None:
    await seats.hold("small")
    ada = await seats.take()
    page = ada.page
    await ada.form()
    await expect(page.get_by_text("Counts are live.")).to_be_visible()
    await expect(page.locator(".mig-summary")).to_have_text("Your server starts without a GPU.")
    await page.get_by_label("All slices", exact=True).check()
    await ada.submit()
    await expect(page.locator("#progress-message")).to_contain_text("position 1")
    assert page.url.startswith(f"{town.hub}/hub/spawn-pending/")

    # The OAuth round trip, and an act on a page that it leads to.
    await page.goto(f"{town.pages}/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My slices")
    await expect(page.locator(".who")).to_contain_text(ada.person.name)
    assert page.url == f"{town.pages}/"
    assert await violations(page) == []
    await page.get_by_role("link", name="Leave the line").click()
    await page.get_by_role("button", name="Leave the line").click()
    await expect(page.get_by_role("status")).to_contain_text("given back")
    await page.get_by_role("link", name="JupyterHub").click()
    await page.wait_for_url(f"{town.hub}/hub/**")
    await seats.desk.until(ada.person.stopped, "who has left the line is not started")
