"""The wheel as somebody installs it: built without a network, and rendering the form from what is inside it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import importlib.metadata, json, pathlib, sys
import mig_spawner
from mig_spawner.spawner.form import form_view, render_form
from mig_spawner.spawner.templates import template_folder
from mig_spawner.wire.menu import Menu
[entry] = importlib.metadata.entry_points(group="jupyterhub.spawners", name="mig")
html = render_form(form_view(Menu.parse([{"display_name": "<i>No GPU</i>", "none": True}]), None))
print(json.dumps({
    "package": mig_spawner.__file__,
    "templates": str(template_folder()),
    "spawner": entry.load().__name__,
    "html": html,
    "script": (pathlib.Path(mig_spawner.__file__).parent / "allocator/static/live.js").is_file(),
}))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_an_installed_wheel_renders_the_form(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    site = next((environment / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # What it depends on comes from where these tests run; the checkout itself must not, so no editable install does,
    # and no PYTHONPATH: pytest-xdist sets one.
    others = {p for p in sys.path if p.endswith("site-packages")}
    run = [str(python), "-I", "-c", f"import sys; sys.path += {sorted(others)!r}\n{SCRIPT}"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert Path(seen["package"]).is_relative_to(site)
    assert Path(seen["templates"]).is_relative_to(site)
    assert seen["spawner"] == "MIGSpawner"
    assert "&lt;i&gt;No GPU&lt;/i&gt;" in seen["html"]
    assert seen["script"]


@pytest.mark.slow
def test_the_wheel_has_what_it_needs_and_nothing_of_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("py.typed", "templates/spawner/form.html", "templates/spawner/choice.html"):
        assert f"mig_spawner/{name}" in names
    assert not [n for n in names if n.startswith(("tests/", "docs/", "templates/")) or "__pycache__" in n]
