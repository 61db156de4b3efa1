"""Finds the four programs of a Kubernetes control plane, or builds them: `python tests/controlplane/assets.py` prints where.

In this order:

1. the folder that `KUBEBUILDER_ASSETS` names;
2. the cache outside the tree, `$XDG_CACHE_HOME/mig-spawner/controlplane` (or under `~/.cache`), by the pins and the Go version;
3. built with `go build` into that cache;
4. where Go modules cannot be downloaded, on Debian: an old Kubernetes (1.20) from Debian's source package, by `debian.sh`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

if not __package__:  # run as a script: the root of the checkout is not on the path then
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mig_spawner.testing.controlplane.program import ProgramsMissing, cache_folder, complete, named_folder
from tests.controlplane.build import ModulesUnavailable, Run, Say, build, finish, locked, scratch, tail
from tests.controlplane.pin import HERE, KUBERNETES, Go, digest, find_go

DEBIAN_SH: Final = HERE / "debian.sh"


def in_ci(environ: Mapping[str, str]) -> bool:
    """Whether tests must not be skipped."""
    return environ.get("CI", "").lower() in ("true", "1")


def locate(environ: Mapping[str, str]) -> Path | None:
    """The folder with the programs, if it is there already.

    Raises:
        ProgramsMissing: when `KUBEBUILDER_ASSETS` names a folder that lacks some.
    """
    if (named := named_folder(environ)) is not None:
        return named
    try:
        wanted = [_built(environ, find_go(environ))]
    except ProgramsMissing:  # then what any Go has built from the same pins is as good
        wanted = sorted(cache_folder(environ).glob(f"{_name()}-go*"), reverse=True)
    return next(filter(complete, [*wanted, _from_debian(environ)]), None)


def provide(environ: Mapping[str, str], say: Say | None = None) -> Path:
    """The folder with the programs, built if need be; `say` gets lines of progress (default: to standard error).

    Raises:
        ProgramsMissing: when they can neither be found nor built; the message says what to do.
    """
    tell = say if say is not None else _print
    if (found := locate(environ)) is not None:
        return found
    go = find_go(environ)
    target = _built(environ, go)
    try:
        build(target, go, environ, tell)
    except ModulesUnavailable as error:
        return _build_from_debian(environ, tell, error)
    return target


def main() -> int:
    """Print the folder; progress and errors go to standard error."""
    try:
        print(provide(os.environ))
    except ProgramsMissing as error:
        _print(str(error))
        return 1
    except KeyboardInterrupt:  # whatever was being built is gone by now
        _print("interrupted; nothing was kept")
        return 130
    return 0


def _build_from_debian(environ: Mapping[str, str], say: Say, reason: ModulesUnavailable) -> Path:
    """The last resort. Without `resource.k8s.io`, so what tests dynamic resource allocation fails on it, and says so."""
    if shutil.which("apt-get", path=environ.get("PATH")) is None:
        raise ProgramsMissing(
            f"{reason}\nLet Go reach a module proxy (see `go help goproxy`), or name a folder in KUBEBUILDER_ASSETS."
        ) from reason
    target = _from_debian(environ)
    with locked(target, say):
        if not complete(target):
            say(f"{reason}\nGo modules are out of reach: building Kubernetes 1.20 from Debian's source package instead")
            with scratch(target) as folder:
                went_well, told = Run(folder, environ, say)(
                    ["/bin/bash", DEBIAN_SH, folder / "debian", folder / "bin"],
                    HERE,
                    lambda lines: f"Kubernetes 1.20 from Debian: {lines} lines told",
                )
                if not went_well:
                    raise ProgramsMissing(f"{reason}\nNor did {DEBIAN_SH.name} succeed. It said:\n{tail(told)}")
                finish(folder, target)
    return target


def _name() -> str:
    return f"{KUBERNETES.version}-{digest()}"


def _built(environ: Mapping[str, str], go: Go) -> Path:
    return cache_folder(environ) / f"{_name()}-{go.version}"


def _from_debian(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ) / f"debian-{hashlib.sha256(DEBIAN_SH.read_bytes()).hexdigest()[:12]}"


def _print(line: str) -> None:
    print(f"controlplane: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
