"""A real PostgreSQL for tests: a server of our own in a temporary folder, reached by its unix socket alone.

    with Server() as server:
        url = server.database()

Its programs are Debian's (`apt install postgresql`; the cluster which that package makes is not needed, nor touched), or those on
PATH. PostgreSQL refuses to run as root, so root starts it as `postgres`, or else as `nobody`. It ends with whoever started it, even
when that is killed with -9.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg

HOW: Final = "needs PostgreSQL: `apt install postgresql` (nothing of it has to run), or put initdb and postgres on PATH"
"""The way to get it, as the end of a sentence."""
USER: Final = "mig"
START_S: Final = 60
STOP_S: Final = 20

_QUICK: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
_COMMON: Final = {"max_connections": "200", "shared_buffers": "32MB", "listen_addresses": "", "autovacuum": "off"}


class PostgresMissing(Exception):
    """Its programs cannot be had, or do not run. The message says what to do."""


def find_programs() -> Path:
    """The folder with `initdb` and `postgres`, the newest of Debian's first.

    Raises:
        PostgresMissing: there is none.
    """
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _version(path.parent.name))
    on_path = shutil.which("postgres")
    folders = [*reversed(debian), *([Path(on_path).resolve().parent] if on_path else [])]
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    raise PostgresMissing(f"This test {HOW}.")


def _version(text: str) -> int:
    return int(text) if text.isdecimal() else 0


class Server:
    """A PostgreSQL that only this machine's user can reach.

    Args:
        durable: commits wait for the disk, as in earnest. Tests that do not measure need not: nobody pulls the plug.

    Attributes:
        folder: its data, its socket and its log, removed at the end.
    """

    def __init__(self, *, durable: bool = False, programs: Path | None = None) -> None:
        self._programs = programs or find_programs()
        self._settings = _COMMON | ({} if durable else _QUICK)
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="mig-postgres-"))
        try:
            if os.geteuid() == 0:
                account = _account()
                os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._run("initdb", "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    def url(self, database: str = "postgres") -> str:
        """As SQLAlchemy writes it."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def conninfo(self, database: str = "postgres") -> str:
        """As libpq writes it."""
        return f"host={self.folder} user={USER} dbname={database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection of a test's own, which commits each statement."""
        return psycopg.connect(self.conninfo(database), autocommit=True)

    def database(self, *, like: str = "template1") -> str:
        """A new database, as a copy of another one that nobody is connected to; its name."""
        name = f"{like}_{next(self._numbers)}" if like != "template1" else f"ledger_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}"'.encode())
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        with self.connect() as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        settings = [word for key, value in self._settings.items() for word in ("-c", f"{key}={value}")]
        argv = [*self._as_user(), str(self._programs / "postgres"), "-D", "data", "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                self.connect().close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PostgresMissing(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks off what runs, SIGQUIT is as if the machine lost power. No harm if it does not run."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_S)

    def _run(self, program: str, *arguments: str) -> None:
        argv = [*self._as_user(), str(self._programs / program), *arguments]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PostgresMissing(f"{program} failed: {done.stderr.strip()[-2000:]}")

    @staticmethod
    def _as_user() -> Sequence[str]:
        """What comes before a program, so that it runs as somebody else than root and ends with us."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if os.geteuid() == 0:
                raise PostgresMissing("PostgreSQL does not run as root, and there is no setpriv (of util-linux) here.")
            return ()
        if os.geteuid() != 0:
            return (setpriv, "--pdeathsig=QUIT")
        account = _account()
        ids = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
        return (setpriv, *ids, "--pdeathsig=QUIT")


def _account() -> pwd.struct_passwd:
    """Who runs it when root asks for it."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresMissing("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` here.")
