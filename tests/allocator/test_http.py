"""What the web wants: health, metrics, ETags, CORS, caches, and traits that refuse to start unsafe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from traitlets import TraitError
from traitlets.config import Config

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.allocator.metrics import Metrics
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.problem import ProblemCode
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import SERVICE_TOKEN, Rig


@pytest.mark.parametrize("place", ["", "/services/mig"])
@pytest.mark.parametrize("page", ["healthz", "readyz", "metrics"])
async def test_health_needs_no_token(rig: Rig, page: str, place: str) -> None:
    root = rig.app.url.removesuffix("/services/mig/")
    async with rig.http("") as http:
        assert (await http.get(f"{root}{place}/{page}")).status_code == 200


async def test_without_its_database_it_is_not_ready(rig: Rig) -> None:
    # In one step, since a timer that looked in between would make a new file.
    elsewhere, folder = rig.database.with_name("elsewhere"), rig.database.with_name("folder")
    elsewhere.hardlink_to(rig.database)
    folder.symlink_to(rig.database.parent)
    folder.replace(rig.database)
    rig.app.desk.store.close()  # now, so that no timer has a connection from before
    async with rig.http() as http:
        assert (await http.get("/healthz")).status_code == 200
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, ProblemCode.NOT_READY)
        assert (await http.get("/api/v1/leases")).status_code == 503
    elsewhere.replace(rig.database)
    rig.app.desk.store.close()


async def test_metrics_say_what_happens(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a", "7g.80gb")
    await rig.acquire("b")
    async with rig.http("") as http:
        await http.get("/api/v1/leases")
        await rig.release(lease)
        rig.clock.move(70)
        text = (await http.get("/metrics")).text
        for line in (
            'mig_lease_open_count{state="releasing"} 1.0',
            'mig_lease_open_count{state="queued"} 1.0',
            "mig_queue_waiting_count 1.0",
            "mig_lease_grants_total 1.0",
            "mig_node_silent_count 1.0",
            "mig_node_known_count 1.0",
            'mig_request_refusals_total{code="unauthenticated"} 1.0',
            'mig_request_duration_seconds_count{method="POST",route="Leases",status="2xx"} 2.0',
        ):
            assert line in text.splitlines()
        age = re.search(r"^mig_lease_releasing_oldest_seconds (.*)$", text, re.MULTILINE)
        assert age is not None
        assert float(age[1]) == pytest.approx(70, abs=1)
        await node.turn(3)
        text = (await http.get("/metrics")).text
        assert 'mig_lease_ends_total{reason="stopped"} 1.0' in text
        assert "mig_lease_grants_total 2.0" in text


def test_metric_names_follow_the_habit() -> None:
    for family in Metrics().registry.collect():
        assert re.fullmatch(r"mig_[a-z]+(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")


async def test_availability_has_an_etag(rig: Rig) -> None:
    await rig.node()
    async with rig.http() as http:
        first = await http.get("/api/v1/availability")
        same = await http.get("/api/v1/availability", headers={"If-None-Match": first.headers["ETag"]})
        assert (same.status_code, same.content) == (304, b"")
        await rig.acquire("1")
        changed = await http.get("/api/v1/availability", headers={"If-None-Match": first.headers["ETag"]})
        assert changed.status_code == 200
        assert changed.headers["ETag"] != first.headers["ETag"]


async def test_another_origin_may_read_availability_and_nothing_else(rig: Rig) -> None:
    headers = {"Origin": "https://hub.example"}
    async with rig.http() as http:
        preflight = await http.options("/api/v1/availability", headers=headers)
        assert preflight.status_code == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == "*"
        assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
        answer = await http.get("/api/v1/availability", headers=headers)
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer.headers
        for path in ("/api/v1/leases", "/api/v1/nodes"):
            assert "Access-Control-Allow-Origin" not in (await http.get(path, headers=headers)).headers
            assert (await http.options(path, headers=headers)).status_code == 405


async def test_static_files_are_kept(rig: Rig) -> None:
    async with rig.http("") as http:
        plain = await http.get("/static/page.css")
        versioned = await http.get("/static/page.css?v=abc")
        assert (plain.status_code, plain.headers["Content-Type"]) == (200, "text/css")
        assert plain.headers["Cache-Control"] == "public, max-age=3600"
        assert versioned.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert (await http.get("/static/../app.py")).status_code == 404
        assert (await http.get("/static/%2e%2e/app.py")).status_code in (403, 404)
        missing = await http.get("/static/nope.js")
        assert (missing.status_code, missing.json()["code"]) == (404, "not-found")


async def test_without_a_hub_nobody_can_log_in(rig: Rig) -> None:
    async with rig.http("") as http:
        answer = await http.get("/")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert (await http.get("/oauth_callback?code=x")).status_code == 404


async def test_it_works_at_the_root_as_well(make_rig: MakeRig) -> None:
    rig = await make_rig(bind_url="http://127.0.0.1:0/")
    assert rig.app.prefix == "/"
    await rig.node()
    assert (await rig.acquire("1")).state == "granted"
    async with rig.http("") as http:
        assert (await http.get("/healthz")).status_code == 200


def _app(tmp_path: Path, **traits: object) -> AllocatorApp:
    given = {"bind_url": "http://127.0.0.1:0/", "database_url": f"sqlite:///{tmp_path}/l.sqlite", **traits}
    return AllocatorApp(config=Config(AllocatorApp=given))


@pytest.mark.parametrize(
    ("traits", "says"),
    [
        ({"database_url": "mysql://x/y"}, "SQLite or PostgreSQL"),
        ({"database_url": "sqlite://"}, "survive a restart"),
        ({"database_url": "nonsense"}, "cannot be read"),
        ({"service_tokens": ["short"]}, "at least 8"),
        ({"agent_tokens": {"n1": "same-token-1", "n2": "same-token-1"}}, "used twice"),
        ({"service_tokens": ["same-token-1"], "agent_tokens": {"n1": "same-token-1"}}, "used twice"),
    ],
)
async def test_it_refuses_to_start_unsafe(tmp_path: Path, traits: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        await _app(tmp_path, **traits).open()


@pytest.mark.parametrize("text", ["{", "[]", '{"n1": 1}'])
async def test_a_bad_token_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"tokens\.json is no JSON"):
        await _app(tmp_path, agent_tokens_file=str(path)).open()


@pytest.mark.parametrize("url", ["127.0.0.1:80", "https://x/", "ftp://x"])
def test_a_bad_bind_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(TraitError, match="bind_url is like"):
        _ = _app(tmp_path, bind_url=url).bind_url


def test_the_environment_of_a_managed_service_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:9999")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/gpus/")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_NAME", "gpus")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    monkeypatch.setenv("JUPYTERHUB_API_URL", "http://127.0.0.1:8081/base/hub/api")
    monkeypatch.setenv("MIG_ALLOCATOR_AGENT_TOKENS", json.dumps({"n1": "agent-token-1"}))
    app = AllocatorApp()
    assert (app.bind_url, app.prefix) == ("http://127.0.0.1:9999/services/gpus/", "/services/gpus/")
    assert (app.service_tokens, app.agent_tokens) == ([SERVICE_TOKEN], {"n1": "agent-token-1"})
    assert (app.service_name, app.hub_api_url) == ("gpus", "http://127.0.0.1:8081/base/hub/api")


def test_every_trait_is_explained() -> None:
    for name, trait in AllocatorApp.class_own_traits(config=True).items():
        assert len(trait.help) > 40, name


async def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "allocator_config.py"
    path.write_text('c.AllocatorApp.node_silent_after = 7\nc.AllocatorApp.policy = "first-fit"\n', encoding="utf-8")
    app = AllocatorApp()
    app.initialize(["--config", str(path)])
    assert (app.node_silent_after, app.policy) == (7, "first-fit")
