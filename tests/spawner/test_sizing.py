"""The rule of thumb for how much memory a model needs."""

from __future__ import annotations

import pytest

from mig_spawner.spawner.sizing import PRECISIONS, TASKS, billions_to_run


@pytest.mark.parametrize(("gb", "billions"), [(5, 1), (10, 3), (20, 7), (40, 16), (80, 32), (1, 0), (0, 0)])
def test_how_large_a_model_may_be(gb: float, billions: int) -> None:
    assert billions_to_run(gb) == billions


def test_less_precision_and_less_to_do_never_needs_more() -> None:
    for task in TASKS:
        assert len(task.gb_per_billion) == len(PRECISIONS)
        known = [gb for gb in task.gb_per_billion if gb is not None]
        assert known == sorted(known, reverse=True)
    for column in range(len(PRECISIONS)):
        down = [gb for task in TASKS if (gb := task.gb_per_billion[column]) is not None]
        assert down == sorted(down)
