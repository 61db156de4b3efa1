"""A Go that pretends, and the real control plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mig_spawner.testing.controlplane.program import PROGRAMS
from tests.controlplane.corner import corner
from tests.controlplane.fixture import control_plane

__all__ = ["control_plane", "corner"]

# Tells its version, lists three packages, and "builds" by writing what it was asked for. FAKE_GO names what goes wrong, a
# build waits until the file FAKE_GO_GATE is there (if set), and what it was asked to do goes to FAKE_GO_LOG.
_GO = """#!/bin/bash
case "$1" in
env) echo "${FAKE_GO_VERSION-go1.26.8}" ;;
list)
  [ "$FAKE_GO" != no-modules ] || { echo "go: no module proxy answers"; exit 1; }
  echo "go: downloading one v1.0.0"; echo one; echo two; echo three ;;
build)
  echo "$$ GOFLAGS=$GOFLAGS GOCACHE=$GOCACHE $*" >> "$FAKE_GO_LOG"
  [ "$FAKE_GO" != no-compile ] || { echo "one/one.go:1: syntax error"; exit 1; }
  while [ -n "$FAKE_GO_GATE" ] && [ ! -e "$FAKE_GO_GATE" ]; do sleep 0.02; done
  mkdir -p "$GOCACHE"; touch "$GOCACHE/object"; echo one; echo two
  while [ "$1" != -o ]; do shift; done
  target=$2; shift 2
  [ "$FAKE_GO" != no-scheduler ] || set -- "${@:1:2}"
  for package; do
    file=$target; [ -d "$target" ] && file=$target${package##*/}
    echo "#!/bin/true" > "$file"; chmod +x "$file"
  done ;;
esac
"""


@dataclass
class Machine:
    """A machine of which everything that matters here is known: its PATH, its cache, and a Go that pretends."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def go(self) -> Path:
        return self.home / "bin" / "go"

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "mig-spawner" / "controlplane"

    @property
    def builds(self) -> list[str]:
        """The builds that Go was asked for, as `{pid} {environment} {arguments}`."""
        log = Path(self.environ["FAKE_GO_LOG"])
        return log.read_text().splitlines() if log.exists() else []

    def left(self) -> list[str]:
        """What is in the cache, locks aside."""
        return sorted(path.name for path in self.cache.glob("*") if path.suffix != ".lock")

    def programs(self, folder: Path, *names: str) -> Path:
        """Put programs into a folder; all four, if none is named."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or PROGRAMS:
            (folder / name).write_text("#!/bin/true\n")
            (folder / name).chmod(0o755)
        return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "home")
    made.go.parent.mkdir(parents=True)
    made.go.write_text(_GO)
    made.go.chmod(0o755)
    made.environ = {
        "PATH": f"{made.go.parent}:/usr/bin:/bin",
        "HOME": str(made.home),
        "FAKE_GO_LOG": str(tmp_path / "builds"),
    }
    # Whoever runs these tests may well have a Go in one of the places that are looked at besides PATH.
    monkeypatch.setattr("tests.controlplane.pin.MORE_PLACES", ())
    return made
