"""A terminal in somebody's running Jupyter server, as JupyterLab shows it: a real shell, typed into over a websocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from mig_spawner.errors import DemoFailed

TIMEOUT_S: Final = 30.0


async def type_into(url: str, headers: Mapping[str, str], origin: str, command: str, *, until: str) -> str:
    """Type a command and wait until the terminal shows a text; everything it has shown.

    Args:
        url: `ws://…/user/alice/terminals/websocket/1`.
        until: must not be part of the command, since a terminal echoes what is typed.

    Raises:
        DemoFailed: no connection, or the text did not come; with what was shown instead.
    """
    shown = ""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            connect(url, additional_headers=dict(headers), origin=Origin(origin), proxy=None) as socket,
        ):
            await socket.send(json.dumps(["stdin", f"{command}\r"]))
            while until not in shown:
                kind, *words = json.loads(await socket.recv())
                if kind == "stdout":
                    shown += "".join(str(word) for word in words)
    except TimeoutError as error:
        raise DemoFailed(f"Expected the terminal to show {until!r} after `{command}`. Seen: {shown!r}.") from error
    except (WebSocketException, OSError) as error:
        raise DemoFailed(f"The terminal at {url} cannot be reached: {error}.") from error
    return shown
