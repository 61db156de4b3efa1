"""A ledger that knows very many GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import gpu_document

PER_NODE: Final = 64


def big_ledger_in(folder: Path, gpus: int = 10_240) -> SQLStore:
    """An open store in a file there, with so many GPUs, 64 to a node; close it."""
    store = SQLStore(f"sqlite:///{folder}/ledger.sqlite")
    store.open()
    empty = gpu_document(find_model("a100-80gb").gpu("GPU"))
    with store.writing() as tx:
        for n in range(gpus // PER_NODE):
            here = tuple(empty.model_copy(update={"gpu_uuid": f"GPU-{n:03}-{i:02}"}) for i in range(PER_NODE))
            tx.put_report(f"node-{n:03}", NodeReport(agent_version="test", boot_id="b", gpus=here))
    return store
