"""How often somebody may ask."""

from __future__ import annotations

import pytest

from mig_spawner.allocator import rate as module
from mig_spawner.allocator.rate import Rate
from tests.allocator.conftest import MakeRig


class Seconds:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_by_and_by() -> None:
    clock = Seconds()
    rate = Rate(6, clock)
    assert [rate.wait_for("ann") for _ in range(6)] == [0.0] * 6
    assert rate.wait_for("ann") == pytest.approx(10)
    assert rate.wait_for("bob") == 0
    clock.now += 9.9
    assert rate.wait_for("ann") == pytest.approx(0.1)
    clock.now += 0.2
    assert rate.wait_for("ann") == 0
    clock.now += 3600
    assert [rate.wait_for("ann") for _ in range(7)][5:] == [0.0, pytest.approx(10)]


def test_no_limit() -> None:
    rate = Rate(0)
    assert not any(rate.wait_for("ann") for _ in range(1000))


def test_it_remembers_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    rate = Rate(1, Seconds())
    assert [rate.wait_for(name) for name in ("a", "b", "c")] == [0, 0, 0]
    assert rate.wait_for("a") == 0
    assert rate.wait_for("c") > 0


async def test_who_asks_too_often_is_told_how_long_to_wait(make_rig: MakeRig) -> None:
    rig = await make_rig(acquire_limit=2)
    await rig.node()
    async with rig.http() as http:
        answers = [await http.post("api/v1/leases", content=rig.request("1").model_dump_json()) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["code"] == "rate-limited"
        assert 1 <= int(answers[2].headers["Retry-After"]) <= 30
        other = await http.post("api/v1/leases", content=rig.request("2").model_dump_json())
        assert other.status_code == 200
