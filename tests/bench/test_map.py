"""What a page of the admin's map costs the server, by the number of GPUs: a page of the largest fleet should cost no second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mig_spawner.allocator.page.fleet import MapQuery
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.service import Desk
from mig_spawner.allocator.setting import Setting
from tests.page.fleet import big_ledger_in

QUERIES = {
    "first": MapQuery(),
    "later": MapQuery(after="node-000"),
    "free": MapQuery(show="free"),
    "holder": MapQuery(holder="nobody"),
    "model": MapQuery(model="a30"),
}


@pytest.mark.parametrize("gpus", [128, 10_240])
@pytest.mark.parametrize("query", QUERIES)
def test_page(benchmark: Any, query: str, gpus: int, tmp_path: Path) -> None:
    store = big_ledger_in(tmp_path, gpus)
    service = PageService(Desk(store, Setting(), lambda _: None))
    view = benchmark.pedantic(service.map, (QUERIES[query],), rounds=5, warmup_rounds=1)
    store.close()
    assert view.sums.gpus == gpus
