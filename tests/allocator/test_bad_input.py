"""Hostile bodies, queries and paths: a clear sentence, a 4xx, no lease left, and the next try works."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.problem import MEDIA_TYPE, Problem
from tests.allocator.rig import Rig, gpu_document

HOLDER = {"user_id": "1"}

BAD_LEASES: list[tuple[str, bytes | str | object, int, str]] = [
    ("empty", b"", 400, "JSON"),
    ("not JSON", b"profile=1g.10gb", 400, "JSON"),
    ("not UTF-8", b'{"holder": {"user_id": "\xff\xfe"}}', 400, "JSON"),
    ("null", None, 400, "object"),
    ("a list", [1, 2], 400, "object"),
    ("a text", "1g.10gb", 400, "object"),
    ("a number", 7, 400, "object"),
    ("nested", b"[" * 20_000, 400, "JSON"),
    ("no holder", {}, 400, "holder"),
    ("holder null", {"holder": None}, 400, "holder"),
    ("holder list", {"holder": []}, 400, "holder"),
    ("no user id", {"holder": {"user_id": ""}}, 400, "holder.user_id"),
    ("number as user id", {"holder": {"user_id": 7}}, 400, "holder.user_id"),
    ("long user id", {"holder": {"user_id": "x" * 256}}, 400, "holder.user_id"),
    ("10k names", {"holder": {"user_id": "1", "user_name": "n" * 10_000}}, 400, "holder.user_name"),
    ("control character", {"holder": {"user_id": "a\x00b"}}, 400, "control character"),
    (
        "turned writing",
        {"holder": {"user_id": "1", "user_name": "a\u202eb"}},
        400,
        "holder.user_name: it has a control",
    ),
    ("unknown key", {"holder": HOLDER, "profile": "1g.10gb"}, 400, "profile"),
    ("unknown profile", {"holder": HOLDER, "accelerator_partition_type": "huge"}, 400, "is no MIG profile"),
    ("html profile", {"holder": HOLDER, "accelerator_partition_type": "<script>"}, 400, "is no MIG profile"),
    ("part of a slice", {"holder": HOLDER, "accelerator_partition_type": "1c.3g.40gb"}, 400, "cannot be leased"),
    ("profile list", {"holder": HOLDER, "accelerator_partition_type": ["1g.10gb"]}, 400, "accelerator_partition_type"),
    ("profile object", {"holder": HOLDER, "accelerator_partition_type": {"a": 1}}, 400, "accelerator_partition_type"),
    ("profile number", {"holder": HOLDER, "accelerator_partition_type": 1}, 400, "accelerator_partition_type"),
    ("empty profile", {"holder": HOLDER, "accelerator_partition_type": ""}, 400, "accelerator_partition_type"),
    (
        "nobody's profile",
        {"holder": HOLDER, "accelerator_partition_type": "9g.99gb"},
        422,
        "No GPU here offers 9g.99gb",
    ),
    ("memory text", {"holder": HOLDER, "min_memory": "12"}, 400, "min_memory"),
    ("memory true", {"holder": HOLDER, "min_memory": True}, 400, "min_memory"),
    ("memory zero", {"holder": HOLDER, "min_memory": 0}, 400, "min_memory"),
    ("memory negative", {"holder": HOLDER, "min_memory": -1}, 400, "min_memory"),
    ("memory NaN", b'{"holder": {"user_id": "1"}, "min_memory": NaN}', 400, "min_memory"),
    ("memory infinite", b'{"holder": {"user_id": "1"}, "min_memory": 1e999}', 400, "min_memory"),
    ("both", {"holder": HOLDER, "min_memory": 1, "accelerator_partition_type": "1g.10gb"}, 400, "in one way only"),
    ("wait forever back", {"holder": HOLDER, "wait_budget": -1}, 400, "wait_budget"),
    ("wait NaN", b'{"holder": {"user_id": "1"}, "wait_budget": NaN}', 400, "wait_budget"),
    ("duration zero", {"holder": HOLDER, "duration": 0}, 400, "duration"),
    ("huge", b'{"holder": "' + b"x" * (3 * 1024 * 1024) + b'"}', 413, "larger than 512 KiB"),
]


@pytest.mark.parametrize(("body", "status", "says"), [b[1:] for b in BAD_LEASES], ids=[b[0] for b in BAD_LEASES])
async def test_a_bad_lease_request_is_refused(rig: Rig, body: object, status: int, says: str) -> None:
    await rig.node()
    async with rig.http() as http:
        answer = await http.post("/api/v1/leases", content=_bytes(body))
        problem = _problem(answer)
        assert (problem.status, answer.status_code) == (status, status)
        assert says in problem.detail
        assert len(problem.detail) < 800
    assert (await rig.hub.leases()).leases == ()
    assert (await rig.acquire("1")).state == "granted"


@pytest.mark.parametrize(
    "name", ["Ünï ☃ 漢字", "👩\u200d💻", "x" * 200, "<b>&\"'", "../..", "%2e%2f", "' OR 1=1 --", " spaces "]
)
async def test_odd_names_are_names(rig: Rig, name: str) -> None:
    await rig.node()
    lease = await rig.acquire(name, server=name)
    assert (lease.holder.user_id, lease.holder.server_name) == (name, name)
    found = (await rig.hub.leases(user_id=name, server_name=name)).leases
    assert [one.lease_id for one in found] == [lease.lease_id]


@pytest.mark.parametrize("wait", ["x", "-1", "nan", "1e", "[1]"])
async def test_a_bad_wait_is_refused(rig: Rig, wait: str) -> None:
    async with rig.http() as http:
        body = rig.request("1").model_dump_json()
        problem = _problem(await http.post("/api/v1/leases", params={"wait": wait}, content=body))
        assert problem.detail.startswith("wait:")
    assert (await rig.hub.leases()).leases == ()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nope", 404),
        ("GET", "/nope", 404),
        ("GET", "/api/v1/leases/%00", 404),
        ("GET", "/api/v1/leases/%ff", 400),
        ("GET", "/api/v1/leases/" + "x" * 5000, 404),
        ("DELETE", "/api/v1/leases", 405),
        ("PUT", "/api/v1/leases/x", 405),
        ("GET", "/api/v1/tickets", 405),
        ("POST", "/api/v1/availability", 405),
        ("HEAD", "/api/v1/leases", 405),
        ("BREW", "/api/v1/leases", 405),
        ("POST", "/api/v1/leases/release", 400),
    ],
)
async def test_paths_and_verbs_that_do_not_exist(rig: Rig, method: str, path: str, status: int) -> None:
    async with rig.http() as http:
        answer = await http.request(method, path, content=b"{}" if method == "POST" else b"")
        assert answer.status_code == status
        if method != "HEAD":
            assert _problem(answer).status == status


async def test_outside_the_prefix_there_is_nothing(rig: Rig) -> None:
    root = rig.app.url.removesuffix("/services/mig/")
    async with rig.http() as http:
        assert _problem(await http.get(f"{root}/api/v1/leases")).status == 404


@pytest.mark.parametrize(
    "body", [{"reason": "because"}, {"pod": "dead"}, {"reason": None}, [], None, {"pod_name": "x" * 5000}]
)
async def test_a_bad_release_ends_nothing(rig: Rig, body: object) -> None:
    await rig.node()
    lease = await rig.acquire("1")
    async with rig.http() as http:
        problem = _problem(await http.post(f"/api/v1/leases/{lease.lease_id}/release", content=_bytes(body)))
        assert problem.status == 400
    assert (await rig.state(lease)).state == "granted"


def _report(**changes: Any) -> dict[str, Any]:
    gpu = gpu_document(find_model("a100-80gb").gpu("GPU-x")).model_dump(mode="json")
    report = {"agent_version": "1", "boot_id": "b", "gpus": [gpu]}
    return report | changes


def _with_gpu(**changes: Any) -> dict[str, Any]:
    report = _report()
    report["gpus"][0].update(changes)
    return report


def _instance(start: int, size: int, profile_id: int = 19) -> dict[str, Any]:
    return {
        "gpu_instance_id": start,
        "profile_id": profile_id,
        "profile": None,
        "start": start,
        "size": size,
        "mig_uuid": None,
        "processes": 0,
    }


BAD_REPORTS: list[tuple[str, object, int, str]] = [
    ("empty", {}, 400, "agent_version"),
    ("null", None, 400, "object"),
    ("overlap", _with_gpu(instances=[_instance(0, 4), _instance(3, 1)]), 400, "overlap"),
    ("outside the grid", _with_gpu(instances=[_instance(7, 2)]), 400, "does not fit the grid of 8"),
    ("far outside", _with_gpu(instances=[_instance(70, 2)]), 400, "start"),
    ("one GPU twice", _report(gpus=_report()["gpus"] * 2), 400, "reported twice"),
    (
        "bad profile",
        _with_gpu(profiles=[_report()["gpus"][0]["profiles"][0] | {"name": "big"}]),
        400,
        "is no MIG profile",
    ),
    ("no starts", _with_gpu(profiles=[_report()["gpus"][0]["profiles"][0] | {"starts": []}]), 400, "starts"),
    ("negative memory", _with_gpu(memory_mib=-1), 400, "memory_mib"),
    ("memory as text", _with_gpu(memory_mib="81920"), 400, "memory_mib"),
    ("unknown health", _with_gpu(health="fine"), 400, "health"),
    ("unknown key", _report(extra=1), 400, "extra"),
    ("huge", _report(boot_id="x" * (1024 * 1024 + 1)), 413, "larger than 1024 KiB"),
]


@pytest.mark.parametrize(("body", "status", "says"), [b[1:] for b in BAD_REPORTS], ids=[b[0] for b in BAD_REPORTS])
async def test_a_report_is_whole_or_refused(rig: Rig, body: object, status: int, says: str) -> None:
    await rig.node()
    before = await rig.hub.availability()
    async with rig.http(rig.tokens["n1"]) as http:
        problem = _problem(await http.put("/api/v1/nodes/n1", content=_bytes(body)))
        assert (problem.status, says in problem.detail) == (status, True), problem.detail
    after = await rig.hub.availability()
    assert after.model_copy(update={"as_of": before.as_of}) == before


async def test_a_large_honest_report_is_taken(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb",) * 64)
    assert len(node.document().model_dump_json()) > 64 * 1024
    assert (await rig.hub.availability()).offer(None).total == 64  # type: ignore[union-attr]


@pytest.mark.parametrize("known", ["x", "queued", "queued:-1", "lost:0", "ready:0\n"])
async def test_a_bad_position_is_refused(rig: Rig, known: str) -> None:
    await rig.node()
    lease = await rig.acquire("1")
    async with rig.http() as http:
        problem = _problem(await http.get(f"/api/v1/leases/{lease.lease_id}", params={"known": known, "wait": "30"}))
        assert problem.detail.startswith("known:")


@pytest.mark.parametrize("known", ["x", "-1", "1.5", "9" * 30, "²"])
async def test_a_bad_generation_is_refused(rig: Rig, known: str) -> None:
    await rig.node()
    async with rig.http(rig.tokens["n1"]) as http:
        problem = _problem(await http.get("/api/v1/nodes/n1/desired", params={"known": known}))
        assert problem.detail.startswith("known:")


def _bytes(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _problem(answer: Any) -> Problem:
    """The problem document of an answer; there must be one, and it must be fit for people."""
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    problem = Problem.model_validate_json(answer.content)
    assert problem.detail
    assert "Traceback" not in answer.text
    assert "pydantic" not in answer.text
    return problem
