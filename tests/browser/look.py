"""What a test asks of a page in a browser."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page


async def violations(page: Page, within: str | None = None) -> list[str]:
    """What axe finds wrong on a page, or in the part of it that is ours, of any level, in a line each."""
    found = await Axe().run(page, context=within)
    return [
        f"{v['id']} ({v['impact']}): {v['help']} at {[node['html'][:150] for node in v['nodes'][:3]]}"
        for v in found.response["violations"]
    ]
