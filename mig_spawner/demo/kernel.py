"""A kernel in somebody's running Jupyter server, spoken to over its websocket as JupyterLab does."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from mig_spawner.errors import DemoFailed

TIMEOUT_S: Final = 60.0


class Kernel:
    """One kernel. Each `run` opens a connection of its own, so a kernel survives whatever happens between two of them.

    Args:
        name: for messages, "alice's kernel".
        url: `ws://…/user/alice/api/kernels/ID/channels`.
        headers: cookies and the like.
        origin: the page we claim to come from.
    """

    def __init__(self, name: str, url: str, headers: Mapping[str, str], origin: str) -> None:
        self.name = name
        self._url = f"{url}?session_id={uuid.uuid4().hex}"
        self._headers = dict(headers)
        self._origin = Origin(origin)

    async def run(self, code: str) -> str:
        """Run code; what it printed.

        Raises:
            DemoFailed: no connection, an exception in the code, or no end within `TIMEOUT_S`.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._run(code)
        except TimeoutError as error:
            raise DemoFailed(f"{self.name} did not answer within {TIMEOUT_S:g} s.") from error
        except (WebSocketException, OSError) as error:
            raise DemoFailed(f"{self.name} cannot be reached: {error}.") from error

    async def _run(self, code: str) -> str:
        request = _execute_request(code)
        message_id = request["header"]["msg_id"]
        printed: list[str] = []
        replied = idle = False
        async with connect(
            self._url, additional_headers=self._headers, origin=self._origin, proxy=None, max_size=1 << 24
        ) as socket:
            await socket.send(json.dumps(request))
            while not (replied and idle):
                message = json.loads(await socket.recv())
                if message.get("parent_header", {}).get("msg_id") != message_id:
                    continue
                content: dict[str, Any] = message["content"]
                match message["msg_type"]:
                    case "stream":
                        printed.append(content["text"])
                    case "error":
                        raise DemoFailed(f"{self.name} raised {content['ename']}: {content['evalue']}.")
                    case "execute_reply":
                        replied = True
                    case "status":
                        idle = content["execution_state"] == "idle"
                    case _:
                        pass  # results, displays, input echoes: not what we came for
        return "".join(printed)


def _execute_request(code: str) -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "",
        "session": uuid.uuid4().hex,
        "date": datetime.now(UTC).isoformat(),
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": True}
    return {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
