"""`python -m tests.postgres`: a PostgreSQL to try things on, until Ctrl-C. Prints a `database_url`."""

from __future__ import annotations

import contextlib
import signal
import sys

from tests.postgres.server import PostgresMissing, Server

try:
    with Server(durable="--durable" in sys.argv[1:]) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.url(server.database()), flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
except PostgresMissing as missing:
    sys.exit(str(missing))
