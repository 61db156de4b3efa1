"""The verbs that lease, against a running allocator."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from mig_spawner.cli import VERBS, main
from mig_spawner.domain.lease import PodFate
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import LeaseDocument, LeaseList
from tests.allocator.rig import SERVICE_TOKEN, Rig, until
from tests.cli.conftest import Start, Type


async def test_what_is_free_is_a_table_for_people_and_a_document_for_programs(rig: Rig, typed: Type) -> None:
    node = await rig.node()
    node.simulated = True
    await node.report()
    table = await typed("availability")
    assert table.code == 0
    row = next(line for line in table.out.splitlines() if line.startswith("1g.10gb "))
    assert row.split()[:5] == ["1g.10gb", "7", "7", "10", "12%"]
    assert "1 node; 0 waiting." in table.out
    assert "simulated" in table.out
    document = Availability.model_validate((await typed("availability", "--json")).json)
    assert document.offers == (await rig.hub.availability()).offers


async def test_a_lease_from_the_first_word_to_the_last(rig: Rig, typed: Type) -> None:
    node = await rig.node()
    asked = await typed("acquire", "--profile", "mig-1g.10gb", "--json")
    lease = LeaseDocument.model_validate(asked.json)
    assert (lease.holder.user_id, lease.holder.user_name, lease.holder.server_name) == ("name:alice", "alice", "cli")
    again = await typed("acquire", "--profile", "1g.10gb", "--json")
    assert again.json["lease_id"] == lease.lease_id
    await node.turn()
    ready = await typed("wait", lease.lease_id)
    assert (ready.code, "MIG-" in ready.out, "ready" in ready.out) == (0, True, True)
    assert (await typed("renew", lease.lease_id, "--json")).json["state"] == "active"
    assert (await typed("extend", lease.lease_id, "2h")).code == 3, "it has no end"
    listed = await typed("leases")
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == [lease.lease_id]
    assert "alice/cli" in listed.out
    given_back = await typed("release", lease.lease_id, "--pod", "none", "--json")
    assert given_back.json["state"] == "releasing"
    await node.turn(2)
    assert LeaseList.model_validate((await typed("leases", "--json")).json).leases == ()


async def test_a_lease_is_kept_for_longer(rig: Rig, typed: Type) -> None:
    await rig.node()
    lease = LeaseDocument.model_validate((await typed("acquire", "--whole", "--duration", "1h", "--json")).json)
    longer = LeaseDocument.model_validate((await typed("extend", lease.lease_id, "90m", "--json")).json).placement
    assert longer is not None
    assert longer.expires_at == longer.granted_at + timedelta(minutes=90)
    assert (await typed("extend", lease.lease_id, "500d")).code == 2
    assert "expires" in (await typed("extend", lease.lease_id, "2h")).out


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--whole"], "a whole GPU"),
        (["--memory", "12"], "at least 12 GB"),
        (["--profile", "3g.40gb", "--duration", "4h"], "3g.40gb"),
        (["--profile", "3g.20gb", "--or", "12", "--or", "whole", "--priority", "3"], "3g.20gb"),
    ],
    ids=" ".join,
)
async def test_the_ways_of_asking(rig: Rig, typed: Type, words: list[str], asked: str) -> None:
    await rig.node()
    lease = LeaseDocument.model_validate((await typed("acquire", *words, "--json")).json)
    assert lease.asked == asked
    placement = lease.placement
    assert placement is not None
    limit = None if placement.expires_at is None else (placement.expires_at - placement.granted_at).total_seconds()
    assert limit == (4 * 3600 if "--duration" in words else None)


async def test_a_service_leases_for_others(rig: Rig, typed: Type) -> None:
    await rig.node()
    asked = await typed("acquire", "--whole", "--user-id", "17", "--server", "lab", "--json")
    assert asked.json["holder"] == {"user_id": "17", "server_name": "lab", "user_name": ""}
    assert (await typed("leases", "--user-id", "17", "--server", "lab")).out.count("\n") == 2
    assert (await typed("leases", "--user-id", "18")).out.count("\n") == 1


async def test_an_admin_forces(rig: Rig, typed: Type) -> None:
    await rig.node()
    lease = await rig.active("1")
    await rig.release(lease, PodFate.UNKNOWN)
    forced = await typed("release", lease.lease_id, "--force", "--json")
    assert (forced.json["state"], forced.json["reason"]) == ("closed", "forced")


async def test_waiting_tells_how_it_goes_in_plain_lines(rig: Rig, start: Start) -> None:
    node = await rig.node()
    first = await rig.active("1", "7g.80gb")
    program = await start("acquire", "--profile", "7g.80gb", "--wait", "--json")
    queued = await _of(rig, "name:alice")
    assert program.process.stderr is not None
    line = (await asyncio.wait_for(program.process.stderr.readline(), 60)).decode()
    assert line == "Waits for 7g.80gb: number 1 of 1 in the queue.\n"
    await rig.release(first)
    await node.turn(3)
    ended = await program.end()
    assert (ended.code, ended.json["state"], ended.json["lease_id"]) == (0, "ready", queued.lease_id)
    assert "\x1b" not in ended.err


async def _of(rig: Rig, user_id: str) -> LeaseDocument:
    """The lease of a holder, once it has one."""

    async def found() -> tuple[LeaseDocument, ...]:
        return (await rig.hub.leases(user_id=user_id)).leases

    return (await until(found, 60))[0]


async def test_who_stops_waiting_keeps_the_place(rig: Rig, start: Start) -> None:
    await rig.node()
    await rig.active("1", "7g.80gb")
    program = await start("acquire", "--profile", "7g.80gb", "--wait")
    lease = await _of(rig, "name:alice")
    assert program.process.stderr is not None
    await program.process.stderr.readline()
    program.process.send_signal(signal.SIGINT)
    assert (await program.end()).code == 1
    assert (await rig.state(lease)).state == "queued"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["renew", "nothing"], 3, "There is no such lease."),
        (["acquire", "--profile", "9g.99gb"], 3, "9g.99gb"),
        (["acquire", "--profile", "large"], 2, "large"),
        (["acquire"], 2, "one of --profile, --memory, --whole and --device"),
        (["acquire", "--whole", "--memory", "5"], 2, "one of --profile, --memory, --whole and --device"),
        (["acquire", "--whole", "--or", "large"], 2, "large"),
        (["acquire", "--whole", "--wait-budget", "-3"], 2, "no span of time"),
        (["acquire", "--whole", "--wait-budget", "400d"], 2, "wait_budget"),
        (["acquire", "--whole", "--server", "x\x1b[31m"], 2, "control character"),
        (["availability", "--url", "ftp://x"], 2, "Say where the allocator is"),
        (["availability", "--url", "http://127.0.0.1:1/"], 4, "does not answer"),
        (["nonsense"], 2, "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value)[:12],
)
async def test_how_a_verb_fails(rig: Rig, typed: Type, words: list[str], code: int, says: str) -> None:
    await rig.node()
    ended = await typed(*words)
    assert (ended.code, ended.out) == (code, "")
    assert says in " ".join(ended.err.split())
    assert "\x1b" not in ended.err


async def test_a_lease_that_is_over_is_not_waited_for_and_one_that_waits_for_so_long(rig: Rig, typed: Type) -> None:
    await rig.node()
    await rig.active("1", "7g.80gb")
    over = await typed("acquire", "--profile", "7g.80gb", "--wait-budget", "0", "--wait")
    assert (over.code, "has ended" in over.err) == (6, True)
    lease = await rig.acquire("2", "7g.80gb")
    late = await typed("wait", lease.lease_id, "--for", "0.1s")
    assert (late.code, "keeps its place" in late.err) == (5, True)


async def test_the_token_comes_from_a_file_or_the_environment_and_is_never_shown(
    rig: Rig, typed: Type, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SERVICE_TOKEN}\n", encoding="utf-8")
    nowhere = {"MIG_ALLOCATOR_TOKEN": "", "JUPYTERHUB_API_TOKEN": ""}
    assert (await typed("availability", "--token-file", str(file), **nowhere)).code == 0
    assert (await typed("availability", **nowhere | {"MIG_ALLOCATOR_TOKEN_FILE": str(file)})).code == 0
    assert (await typed("availability", **nowhere | {"JUPYTERHUB_API_TOKEN": SERVICE_TOKEN})).code == 0
    missing = await typed("availability", **nowhere)
    assert (missing.code, "There is no token in $MIG_ALLOCATOR_TOKEN" in missing.err) == (2, True)
    wrong = await typed("availability", **nowhere | {"MIG_ALLOCATOR_TOKEN": "wrong-secret"})
    assert (wrong.code, "wrong-secret" in wrong.err) == (3, False)
    strange = await typed("availability", **nowhere | {"MIG_ALLOCATOR_TOKEN": "two\r\nlines"})
    assert (strange.code, "lines" in strange.err) == (2, False)


async def test_names_from_elsewhere_cannot_steer_the_terminal(rig: Rig, typed: Type) -> None:
    await rig.node()
    await rig.acquire("[red]x[/red]\u00ad", server=":smile:")
    listed = await typed("leases")
    assert "name-[red]x[/red]?/:smile:" in listed.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    command = main.get_command(main.make_context("mig-spawner", [], resilient_parsing=True), verb)
    assert command is not None
    assert command.name == verb
    assert command.help
    for parameter in command.params:
        described = parameter.to_info_dict()
        assert parameter.param_type_name == "argument" or described["help"], parameter.name


def test_it_does_not_import_what_it_does_not_need() -> None:
    """An agent's image has no web framework, and `--version` waits for nothing."""
    code = "import sys, json; from mig_spawner.cli import main; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert {"httpx", "pydantic", "rich", "tornado", "sqlalchemy"}.isdisjoint(json.loads(out.stdout))
