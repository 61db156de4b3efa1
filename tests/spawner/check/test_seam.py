"""The check as a spawner has it: in the pod, on the progress page, and as the reason why a start failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.container import as_json
from mig_spawner.spawner.error import SpawnRefused

MakeSpawner = Callable[..., MIGSpawner]


def with_pod(spawner: MIGSpawner, state: dict[str, Any]) -> MIGSpawner:
    status = {"containerStatuses": [{"name": "notebook", "state": state}]}
    spawner.__dict__["_pod_seen"] = lambda: {"spec": {"nodeName": "gpu-a"}, "status": status}
    return spawner


@pytest.mark.parametrize(("traits", "checked"), [({"cmd": ["lab"]}, True), ({}, False)], ids=["command", "image"])
async def test_the_check_stands_before_the_command(
    make_spawner: MakeSpawner, caplog: pytest.LogCaptureFixture, traits: dict[str, Any], checked: bool
) -> None:
    for start_check in (False, True):
        spawner = make_spawner(start_check=start_check, user_options={"mig": "small"}, **traits)
        await spawner.load_user_options()
        container = as_json(await spawner.get_pod_manifest())["spec"]["containers"][0]
        args = container.get("args") or []
        assert (args[:2] == ["/bin/sh", "-c"]) is (start_check and checked)
        assert args[-1:] == traits.get("cmd", [])
        assert ("it is not checked" in caplog.text) is (start_check and not checked)


async def test_a_fault_fails_the_start_with_the_cause(make_spawner: MakeSpawner) -> None:
    ended = {"terminated": {"exitCode": 72, "message": "The server sees the device MIG-2, and leased is MIG-1."}}
    spawner = with_pod(make_spawner(start_check=True), ended)
    with pytest.raises(SpawnRefused, match="mig-check") as refused:
        await spawner._see_it_checked("http://127.0.0.1:9")
    assert "sees the device MIG-2, and leased is MIG-1" in refused.value.message
    assert with_pod(make_spawner(), ended)._unplaced() is None, "who did not ask for it is not checked"


async def test_the_check_is_over_when_the_server_listens(make_spawner: MakeSpawner) -> None:
    spawner = with_pod(make_spawner(start_check=True, http_timeout=30), {"running": {}})
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await spawner._see_it_checked(f"http://127.0.0.1:{port}/user/ada/")
    assert spawner._moves.progress.messages == ["The container runs, and its slice is being checked."]
    assert [s.id for s in spawner.mig_room().stages if s.state == "now"] == ["checked"]


async def test_a_server_that_never_listens_is_the_hubs_to_judge(make_spawner: MakeSpawner) -> None:
    spawner = with_pod(make_spawner(start_check=True, http_timeout=0), {"running": {}})
    await spawner._see_it_checked("http://127.0.0.1:9")
