"""Where the four programs of a control plane are: the folder that `KUBEBUILDER_ASSETS` names, then the cache outside the tree.

The cache is `$XDG_CACHE_HOME/mig-spawner/controlplane` (or under `~/.cache`); `make controlplane` builds into it, one folder per
version of Kubernetes and of what built it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mig_spawner.errors import DemoFailed

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
HOW: Final = (
    "needs a Kubernetes control plane: `make controlplane` builds one (once, some 6 minutes, with Go), "
    f"or KUBEBUILDER_ASSETS names a folder with {', '.join(PROGRAMS)}"
)
"""The way to get them, as the end of a sentence."""
_BUILT: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)-.*")


class ProgramsMissing(DemoFailed):
    """The four programs cannot be had. The message says what to do."""


def find_programs(environ: Mapping[str, str]) -> Path:
    """The folder with the programs: the named one, else the newest in the cache.

    Raises:
        ProgramsMissing: there is none, or the named one lacks some.
    """
    if (named := named_folder(environ)) is not None:
        return named
    if (built := newest_built(cache_folder(environ))) is not None:
        return built
    raise ProgramsMissing(f"A real Kubernetes {HOW}.")


def named_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder that `KUBEBUILDER_ASSETS` names, if it names one.

    Raises:
        ProgramsMissing: it lacks some.
    """
    named = environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return None
    folder = Path(named).expanduser().absolute()
    if lacking := missing(folder):
        raise ProgramsMissing(
            f"KUBEBUILDER_ASSETS={named} has no {', '.join(lacking)}: add what is missing, or unset it to have them built."
        )
    return folder


def newest_built(cache: Path) -> Path | None:
    """The newest Kubernetes in the cache, by version and then by the time of its build; what is not whole does not count."""
    found = [(match, path) for path in cache.glob("v*") if (match := _BUILT.fullmatch(path.name)) and complete(path)]
    if not found:
        return None
    return max(found, key=lambda one: (*map(int, one[0].groups()), one[1].stat().st_mtime))[1]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where builds are kept."""
    base = environ.get("XDG_CACHE_HOME") or ""
    # As the XDG specification says, a relative path there is as good as none.
    root = Path(base) if Path(base).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return root / "mig-spawner" / "controlplane"


def complete(folder: Path) -> bool:
    """Whether all four programs are there."""
    return not missing(folder)


def missing(folder: Path) -> list[str]:
    """The programs that a folder lacks."""
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK) or not (folder / name).is_file()]
