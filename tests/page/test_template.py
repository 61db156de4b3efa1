"""Templates of an admin's own for the allocator's pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from traitlets import TraitError

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.allocator.handlers.page.base import POLICY
from tests.allocator.rig import SERVICE_TOKEN
from tests.page.site import furnish, site


async def test_an_admin_extends_every_page_and_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    own = tmp_path / "own"
    own.mkdir()
    (own / "base.html").write_text(
        '{% extends "templates/base.html" %}{% block footer %}<footer>Help: room 3, {{ who }}</footer>{% endblock %}'
    )
    (own / "slices.html").write_text(
        '{% extends "templates/slices.html" %}{% block main %}<p>Be kind.</p>{{ super() }}{% endblock %}'
    )
    async with site(tmp_path, template_paths=[str(own)]) as running:
        await furnish(running)
        async with running.http("ann") as http:
            mine, ended = await http.get(""), await http.get("history")
        async with running.http("root") as http:
            missing = await http.get("leases/none")
    assert "<p>Be kind.</p>" in mine.text
    assert "2g.20gb" in mine.text
    assert "Be kind" not in ended.text
    for page, who in ((mine, "ann"), (ended, "ann"), (missing, "root")):
        assert f"<footer>Help: room 3, {who}</footer>" in page.text
        assert page.headers["Content-Security-Policy"] == POLICY


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraitError, match="There is no folder"):
        AllocatorApp(template_paths=[str(tmp_path / "none")])
