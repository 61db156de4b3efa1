"""The documentation cannot drift: what the code has, a page names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from mig_spawner.allocator.handlers import API
from mig_spawner.allocator.metrics import Metrics
from mig_spawner.cli.outcome import Outcome
from mig_spawner.domain.lease import EndReason
from mig_spawner.wire.problem import ProblemCode

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "cli.md"])
def test_a_page_from_the_code_is_what_the_code_says(name: str) -> None:
    page = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert page == generator().PAGES[name](), "run `make docs`"


def test_the_page_on_the_command_line_names_every_exit_code() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [outcome for outcome in Outcome if f"| {outcome.value} |" not in page] == []


def test_every_setting_says_what_it_is_for() -> None:
    module = generator()
    poor = [
        f"{cls.__name__}.{n}" for cls, _ in module.PARTS for n, t in module.own_traits(cls).items() if len(t.help) < 20
    ]
    assert poor == []


@pytest.mark.parametrize("word", [*ProblemCode, *EndReason], ids=str)
def test_the_api_page_names_every_code_and_reason(word: str) -> None:
    assert f"| `{word}` |" in (DOCS / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path, _ in API])
def test_the_api_page_names_every_route(path: str) -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert re.search(rf"api/v1/{re.escape(path)}[`?]", page)


def test_the_page_on_metrics_names_every_metric() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    names = {family.name for family in Metrics().registry.collect()}
    assert {name for name in names if f"`{name}" not in page} == set()


@pytest.mark.parametrize("page", [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []
