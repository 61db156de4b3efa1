"""The OpenAPI document: valid, complete, and true of a running allocator whatever is thrown at it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from mig_spawner.allocator.event import stream
from mig_spawner.allocator.handlers import API
from mig_spawner.allocator.openapi import parameter
from mig_spawner.wire.problem import MEDIA_TYPE, ProblemCode
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import SERVICE_TOKEN, Rig

SEED: Final = 20_260_301
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
DOCUMENT: Final = "/api/v1/openapi.json"
CONFIG: Final = """
[checks.positive_data_acceptance]
# 422: a request may be well-formed and yet never be served by these GPUs.
expected-statuses = ["2xx", 304, 401, 403, 404, 409, 422, 429]
[phases.coverage]
# Verbs that a path does not have are tried above.
unexpected-methods = []
"""
NO_REPORTS: Final = ("--exclude-operation-id", "reportNode")
"""A report has more cases than all else together, and who is no agent hears 403 to each: the agent's run has them."""


async def _document(rig: Rig) -> dict[str, Any]:
    async with rig.http("") as http:
        answer = await http.get(DOCUMENT)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
        document: dict[str, Any] = answer.json()
        return document


async def test_it_is_valid_openapi(rig: Rig) -> None:
    document = await _document(rig)
    assert document["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document).validate()


async def test_it_needs_no_token_and_may_be_kept(rig: Rig) -> None:
    async with rig.http("") as http:
        first = await http.get(DOCUMENT)
        assert first.headers["Cache-Control"] == "public, max-age=300"
        assert first.headers["Access-Control-Allow-Origin"] == "*"
        again = await http.get(DOCUMENT, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", [path for path, _ in API])
async def test_a_path_has_the_verbs_that_it_answers_and_no_others(rig: Rig, path: str) -> None:
    item = (await _document(rig))["paths"][f"/{path}"]
    documented = {verb.upper() for verb in item if verb != "parameters"}
    answered = set()
    async with rig.http("") as http:
        for method in METHODS:
            answer = await http.request(method, "/api/v1/" + re.sub(r"\{\w+\}", "x", path))
            if answer.status_code == 405:
                assert set(answer.headers["Allow"].split(", ")) == documented
            else:
                answered.add(method)
    assert answered == documented


async def test_it_has_the_routes_and_nothing_more(rig: Rig) -> None:
    assert set((await _document(rig))["paths"]) == {f"/{path}" for path, _ in API}


@pytest.mark.parametrize(
    ("path", "verb", "security"),
    [
        ("openapi.json", "get", []),
        ("availability", "get", [{"service": []}, {"ticket": []}, {"hub": ["custom:mig:read"]}]),
        ("leases", "post", [{"service": []}, {"hub": ["custom:mig:reserve"]}]),
        ("nodes/{node}", "put", [{"agent": []}]),
        ("nodes/{node}/cordon", "post", [{"service": []}, {"hub": ["custom:mig:admin"]}]),
    ],
)
async def test_it_says_who_may_call(rig: Rig, path: str, verb: str, security: list[object]) -> None:
    assert (await _document(rig))["paths"][f"/{path}"][verb]["security"] == security


async def test_every_code_is_in_it(rig: Rig) -> None:
    responses = (await _document(rig))["components"]["responses"]
    assert set(responses) == set(ProblemCode)
    assert all(list(response["content"]) == [MEDIA_TYPE] for response in responses.values())


async def test_its_addresses_lead_here(rig: Rig, make_rig: MakeRig) -> None:
    assert (await _document(rig))["servers"] == [{"url": "/services/mig/api/v1"}]
    root = await make_rig("other.sqlite", bind_url="http://127.0.0.1:0/")
    assert (await _document(root))["servers"] == [{"url": "/api/v1"}]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("userid=7", "'userid' is not known here; it knows user_id, server_name, limit, cursor"),
        ("user_id=7&user_id=8", "user_id: give it once"),
        ("user_id=a%00b", "user_id: 0 to 255 characters"),
        ("user_id=a%0a", "user_id: 0 to 255 characters"),
        ("server_name=" + "x" * 256, "server_name: 0 to 255 characters"),
        ("user_id=%ff", "cannot be understood"),
        ("limit=0", "limit: a whole number from 1 to 1000"),
        ("cursor=abc", "cursor: what `next` of the answer before said"),
    ],
)
async def test_a_query_is_refused_rather_than_guessed(rig: Rig, query: str, says: str) -> None:
    async with rig.http() as http:
        answer = await http.get(f"/api/v1/leases?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert says in answer.json()["detail"]


async def test_who_is_nobody_hears_nothing_of_queries(rig: Rig) -> None:
    async with rig.http("") as http:
        assert (await http.get("/api/v1/leases?userid=7")).status_code == 401


@pytest.mark.parametrize(
    "declared", ["text/plain", "application/x-www-form-urlencoded", "application/xml; charset=utf-8"]
)
async def test_a_body_that_is_declared_as_something_else_is_refused(rig: Rig, declared: str) -> None:
    await rig.node()
    body = rig.request("1").model_dump_json()
    async with rig.http() as http:
        answer = await http.post("/api/v1/leases", content=body, headers={"Content-Type": declared})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
        assert (await rig.hub.leases()).leases == ()
        kind = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert (await http.post("/api/v1/leases", content=body, headers=kind)).status_code == 200


class Fuzzer:
    """Runs schemathesis, as a program beside the allocator, with a fixed seed."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder

    async def run(self, token: str, *arguments: str, existing: dict[str, str] | None = None) -> None:
        """Fail unless every answer was documented and none was a server error.

        Args:
            existing: path parameters to use instead of made-up ones.
        """
        lines = [f'"path.{name}" = {json.dumps(value)}' for name, value in (existing or {}).items()]
        config = self.folder / "schemathesis.toml"
        config.write_text("\n".join([CONFIG, "[parameters]", *lines]), encoding="utf-8")
        header = ["-H", f"Authorization: Bearer {token}"] if token else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)),
            *("run", f"{self.rig.app.url}api/v1/openapi.json", "--no-color", "--no-shrink", "--warnings", "off"),
            *("--seed", str(SEED), "--generation-database", "none", "--continue-on-failure", *header, *arguments),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode()
        print(text)  # with its seed, for whoever looks into a failure
        assert process.returncode == 0, text[text.find("= FAILURES") :]
        made = re.search(r"(\d+) generated, (\d+) passed", text)
        assert made is not None
        assert made[1] == made[2]
        assert int(made[1]) > 50

    async def succeeded(self) -> set[tuple[str, str]]:
        """Verbs and handlers that have answered with success."""
        async with self.rig.http("") as http:
            text = (await http.get("/metrics")).text
        found = re.findall(r'_seconds_count\{method="(\w+)",route="(\w+)",status="2xx"\}', text)
        return {(method, route) for method, route in found}


@pytest.fixture
async def fuzzer(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fuzzer:
    """For an allocator with two nodes, a ready lease and one that waits, on which long polls are short."""
    monkeypatch.setattr(parameter, "MAX_WAIT_S", 0.005)
    monkeypatch.setattr(stream, "LIFE_S", 0.005)
    await rig.node()
    await rig.node("n2")
    await rig.ready("a")
    folder = tmp_path / "schemathesis"
    folder.mkdir()
    return Fuzzer(rig, folder)


async def test_a_service_finds_no_undocumented_answer(fuzzer: Fuzzer) -> None:
    await fuzzer.run(SERVICE_TOKEN, *NO_REPORTS, "--phases", "coverage,fuzzing,stateful", "--max-examples", "8")
    assert {
        ("GET", "Leases"),
        ("POST", "Leases"),
        ("GET", "Nodes"),
        ("POST", "TicketHandler"),
    } <= await fuzzer.succeeded()


async def test_a_service_finds_none_about_leases_and_nodes_that_exist(fuzzer: Fuzzer) -> None:
    lease = await fuzzer.rig.ready("b")
    paths = ("--include-path-regex", r"^/(leases|nodes)/\{", "--phases", "coverage,fuzzing")
    await fuzzer.run(
        SERVICE_TOKEN, *paths, *NO_REPORTS, "--max-examples", "8", existing={"id": lease.lease_id, "node": "n1"}
    )
    wanted = {("GET", "Lease"), ("POST", "Release"), ("POST", "Cordon"), ("POST", "Uncordon")}
    assert wanted <= await fuzzer.succeeded()


async def test_an_agent_finds_none(fuzzer: Fuzzer) -> None:
    paths = ("--include-path-regex", "^/nodes", "--phases", "coverage,fuzzing")
    # What a report must agree with itself on, such as that no two instances overlap, no schema can say.
    checks = ("--exclude-checks", "positive_data_acceptance")
    await fuzzer.run(fuzzer.rig.tokens["n1"], *paths, *checks, "--max-examples", "10", existing={"node": "n1"})
    assert {("PUT", "Node"), ("GET", "Desired")} <= await fuzzer.succeeded()


async def test_a_ticket_finds_none(fuzzer: Fuzzer) -> None:
    ticket = await fuzzer.rig.hub.ticket("alice")
    await fuzzer.run(ticket.ticket, "--phases", "coverage", "--include-path-regex", "^/(availability|leases|tickets)")
    assert ("GET", "Availability") in await fuzzer.succeeded()


async def test_nobody_finds_none(fuzzer: Fuzzer) -> None:
    await fuzzer.run("", *NO_REPORTS, "--phases", "coverage")
    assert ("GET", "OpenAPI") in await fuzzer.succeeded()
