"""What a test asks of a page in a browser."""

from __future__ import annotations

from typing import Any, NamedTuple

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page


class Fault(NamedTuple):
    """Something that axe finds wrong: by which rule, and where."""

    rule: str
    selector: str


async def violations(page: Page) -> list[str]:
    """What axe finds wrong on a page, of any level, in a line each."""
    return [
        f"{v['id']} ({v['impact']}): {v['help']} at {[node['html'][:150] for node in v['nodes'][:3]]}"
        for v in await _found(page)
    ]


async def faults(page: Page) -> set[Fault]:
    """The same, to compare."""
    return {Fault(v["id"], " ".join(map(str, node["target"]))) for v in await _found(page) for node in v["nodes"]}


async def _found(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await Axe().run(page)).response["violations"]
    return found
