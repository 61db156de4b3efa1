"""The server for tests: it runs whoever starts it, keeps to itself, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres import fixture
from tests.postgres.server import PostgresMissing, Server, find_programs

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.postgres


def test_databases_are_copies_and_apart(postgres: Server) -> None:
    one = postgres.database()
    with postgres.connect(one) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (7)")
    two, empty = postgres.database(like=one), postgres.database()
    with postgres.connect(two) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [(7,)]
    with postgres.connect(empty) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT a FROM t")
    for name in (one, two, empty):
        postgres.drop(name)


def test_it_listens_on_no_port_and_runs_as_nobody_who_matters(postgres: Server) -> None:
    with postgres.connect() as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


def test_it_keeps_its_data_over_a_restart_tells_what_hinders_it_and_is_gone_at_the_end() -> None:
    with fixture.server_or_skip() as server:
        name = server.database()
        with server.connect(name) as connection:
            connection.execute("CREATE TABLE t (a int)")
        server.stop(signal.SIGQUIT)
        server.start()
        with server.connect(name) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
        folder, pid = server.folder, server.pid
        server.stop()
        (folder / "data" / "postgresql.conf").write_text("nonsense = yes\n")
        with pytest.raises(PostgresMissing, match="nonsense"):
            server.start()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_it_ends_with_whoever_started_it(postgres: Server) -> None:
    """Even with kill -9. The fixture is asked for so that this is skipped where there is no PostgreSQL."""
    argv = [sys.executable, "-m", "tests.postgres"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        url = starter.stdout.readline()
        folder = Path(url.strip().partition("host=")[2])
        pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        starter.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_without_programs_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PostgresMissing, match="apt install postgresql"):
        find_programs()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(PostgresMissing):
        fixture.server_or_skip()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="apt install postgresql"):
        fixture.server_or_skip()
