"""The log of creations, and the real server's verdict on what stands in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mig_spawner.testing.controlplane.run import ControlPlane
from mig_spawner.testing.kube import EmbeddedKube, KubeUser
from mig_spawner.testing.kube.audit import created
from tests.kube.referee import Referee

POD = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "notebook", "image": "demo/notebook:1"}]}}


@pytest.fixture
def judge(control_plane: ControlPlane, referee: Referee | None) -> Referee:
    """The referee, which is there wherever a control plane is."""
    assert referee is not None
    return referee


async def make(kube: EmbeddedKube, pod: dict[str, Any], *, query: str = "") -> int:
    url = f"{kube.url}/api/v1/namespaces/default/pods{query}"
    headers = {"Authorization": "Bearer token"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=pod, headers=headers) as answer,
    ):
        return answer.status


async def test_what_was_created_is_logged_as_it_was_sent(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "audit.log"
    users = {"token": KubeUser("ada", ("system:masters",))}
    async with EmbeddedKube(audit_log=log, tokens=users) as kube:
        assert await make(kube, POD) == 201
        assert await make(kube, POD) == 409
        assert await make(kube, {**POD, "metadata": {"name": "two"}}, query="?dryRun=All") == 201
    assert list(created(log, "pods")) == [POD]
    assert list(created(log, "secrets")) == []
    assert '"username": "ada"' in log.read_text()


async def test_without_a_path_nothing_is_logged(tmp_path: Path) -> None:
    async with EmbeddedKube() as kube:
        assert await make(kube, POD) == 201
    assert list(tmp_path.iterdir()) == []
    assert list(created(tmp_path / "none.log", "pods")) == []


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({}, None, id="valid"),
        pytest.param({"nodeSelektor": {}}, 'unknown field "spec.nodeSelektor"', id="misspelt"),
        pytest.param({"restartPolicy": "Perhaps"}, "restartPolicy: Unsupported value", id="value"),
        pytest.param({"hostname": 7}, "cannot unmarshal number", id="type"),
        pytest.param(
            {"runtimeClassName": "nvidia", "serviceAccountName": "nobody"}, None, id="other cluster's objects"
        ),
    ],
)
async def test_the_referee_tells_what_a_cluster_would(spec: dict[str, Any], said: str | None, judge: Referee) -> None:
    faults = judge.faults({**POD, "spec": {**POD["spec"], **spec}})  # type: ignore[dict-item]
    assert bool(faults) is (said is not None), faults
    assert said is None or said in faults[0]


@pytest.mark.controlplane
async def test_a_pod_is_judged_once_and_a_bad_one_is_named(tmp_path: Path, judge: Referee) -> None:
    log = tmp_path / "audit.log"
    async with EmbeddedKube(audit_log=log) as kube:
        assert await make(kube, {**POD, "spec": {**POD["spec"], "tolerashuns": []}}) == 201  # type: ignore[dict-item]
    with pytest.raises(AssertionError, match=r"the pod one is not valid.*tolerashuns"):
        judge.judge(log)
    judge.judge(log)
