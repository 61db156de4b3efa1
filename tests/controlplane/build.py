"""Builds the control plane with `go build`, once: under a lock, with progress, and whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.testing.controlplane.program import ProgramsMissing, complete, missing
from mig_spawner.testing.controlplane.tether import tethered
from tests.controlplane.pin import BUILD_FLAGS, MODULES, Go, Module

Say = Callable[[str], None]

EVERY_S: Final = 10.0
"""A line of progress at least this often."""
TAIL_LINES: Final = 20


class ModulesUnavailable(ProgramsMissing):
    """The Go modules cannot be downloaded: the proxy is not reachable or refuses them."""


@contextlib.contextmanager
def locked(target: Path, say: Say, *, every_s: float = EVERY_S) -> Iterator[None]:
    """One builder of `target` at a time, across processes; a builder that dies gives way to the next."""
    target.parent.mkdir(parents=True, exist_ok=True)
    began = told = time.monotonic()
    with (target.parent / f"{target.name}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                if told == began or now - told >= every_s:
                    say(f"another process builds the control plane, waiting for it: {now - began:.0f} s")
                    told = now
                time.sleep(0.1)
        yield


@contextlib.contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """A folder beside `target` for everything that is made on the way; nothing of it stays, nor of one that was killed."""
    folder = target.parent / f"{target.name}.partial"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "tmp").mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(target: Path, go: Go, environ: Mapping[str, str], say: Say, *, every_s: float = EVERY_S) -> None:
    """Have the four programs in `target`; if another process was quicker, that is all the better.

    Raises:
        ModulesUnavailable: when Go cannot download what is needed.
        ProgramsMissing: when it does not compile.
    """
    with locked(target, say, every_s=every_s):
        if complete(target):
            return
        began = time.monotonic()
        say(f"building Kubernetes' control plane with {go.version} into {target}: some 6 minutes on two cores, once")
        with scratch(target) as folder:
            for module in MODULES:
                _build_module(module, folder, Run(folder, _environment(folder, environ), say, every_s), go)
            finish(folder, target)
        say(f"built in {time.monotonic() - began:.0f} s")


def finish(folder: Path, target: Path) -> None:
    """Put the programs into their place, all in one step.

    Raises:
        ProgramsMissing: when some are missing.
    """
    if lacking := missing(folder / "bin"):
        raise ProgramsMissing(f"The build ended without {', '.join(lacking)}: see the lines above.")
    shutil.rmtree(target, ignore_errors=True)
    (folder / "bin").rename(target)


@dataclass(frozen=True)
class Run:
    """Runs one step of a build in a scratch folder."""

    scratch: Path
    environ: Mapping[str, str]
    say: Say
    every_s: float = EVERY_S

    def __call__(self, argv: Sequence[str | Path], cwd: Path, progress: Callable[[int], str]) -> tuple[bool, str]:
        """Run to the end, telling `progress(lines so far)` and the time. Returns whether it went well, and its output.

        Whatever ends this process ends the step, too.
        """
        log, began = self.scratch / "log", time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                tethered(argv),
                cwd=cwd,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self.every_s)
                text = log.read_text(errors="replace")
                self.say(f"{progress(text.count(chr(10)))}, {time.monotonic() - began:.0f} s")
                if process.returncode is not None:
                    return process.returncode == 0, text
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _build_module(module: Module, folder: Path, run: Run, go: Go) -> None:
    name = f"{module.folder.name} {module.version}"
    packages = list(module.packages.values())
    went_well, listed = run(
        [go.command, "list", "-deps", "-f", "{{.ImportPath}}", *packages],
        module.folder,
        lambda _: f"{name}: fetching its modules",
    )
    if not went_well:
        raise ModulesUnavailable(f"Go could not fetch the modules of {name}. It said:\n{tail(listed)}")
    total = sum(1 for line in listed.splitlines() if not line.startswith("go: "))
    target = folder / "bin" / next(iter(module.packages)) if len(packages) == 1 else f"{folder / 'bin'}{os.sep}"
    went_well, told = run(
        [go.command, "build", *BUILD_FLAGS, "-ldflags", module.linker_flags, "-o", target, *packages],
        module.folder,
        lambda lines: f"{name}: {min(lines, total)} of {total} packages compiled",
    )
    if not went_well:
        raise ProgramsMissing(f"Go could not build {name}. It said:\n{tail(told)}")


def _environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's, so that its module proxy and module cache are used, but nothing in it that changes what comes out."""
    return {
        **{name: value for name, value in environ.items() if name not in ("GOOS", "GOARCH", "GOEXPERIMENT")},
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOCACHE": str(folder / "gocache"),
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTMPDIR": str(folder / "tmp"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def tail(text: str) -> str:
    """The last lines."""
    return "\n".join(text.rstrip().splitlines()[-TAIL_LINES:])
