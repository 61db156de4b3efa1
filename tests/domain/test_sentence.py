"""Words in sentences for people."""

from __future__ import annotations

import pytest

from mig_spawner.domain.sentence import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 leases"), (1, "1 lease"), (2, "2 leases"), (12_000, "12,000 leases")]
)
def test_one_is_singular_and_everything_else_plural(number: int, said: str) -> None:
    assert counted(number, "lease") == said
