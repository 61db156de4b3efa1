"""Compiling the imitation of `libnvidia-ml.so.1`: one shared library per driver version, with the symbols that driver has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "library"
SONAME: Final = "libnvidia-ml.so.1"
NEWEST: Final = 580
"""The driver that is imitated unless a test says otherwise."""

_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path, driver: int = NEWEST) -> Path:
    """The folder for `LD_LIBRARY_PATH`, with the library of such a driver in it. Built once per folder and driver.

    Args:
        driver: major version. MIG begins with 450, names of profiles with 530, profiles by id with 580.
    """
    target = folder / str(driver)
    library = target / SONAME
    if not library.exists():
        target.mkdir(parents=True, exist_ok=True)
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        command = [
            str(compiler()), *_FLAGS, f"-DDRIVER={driver}", f"-Wl,-soname,{SONAME}", "-o", str(library), *sources,
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"the library does not compile without a warning:\n{result.stderr}"
    return target
