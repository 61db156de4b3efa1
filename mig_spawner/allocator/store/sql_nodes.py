"""Nodes and their GPUs on the tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache

from sqlalchemy import RowMapping

from mig_spawner.allocator.store import reports
from mig_spawner.allocator.store import statement as s
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.allocator.store.sql_changes import SQLChanges
from mig_spawner.wire.node import DesiredNode, NodeReport, UsageDocument


class SQLNodes(SQLChanges):
    """A part of `SQLTransaction`."""

    now: datetime

    @abstractmethod
    def next_generation(self) -> int:
        """As the port says."""

    def nodes(self, names: Collection[str] | None = None) -> list[NodeRecord]:
        rows = list(self._those(s.NODES, s.NODES_OF, names))
        unknown = [row["name"] for row in rows if not reports.knows(row["name"], row["digest"])]
        texts = {row["name"]: row["report"] for row in self._those(None, s.REPORTS, unknown)}
        return [_node(row, texts.get(row["name"])) for row in rows]

    def node(self, name: str) -> NodeRecord | None:
        row = self._connection.execute(s.NODE, {"name": name}).mappings().one_or_none()
        return None if row is None else _node(row, row["report"])

    def usage(self, node: str) -> tuple[UsageDocument, ...]:
        text = self._connection.execute(s.USAGE, {"name": node}).scalar_one_or_none()
        return () if text is None else reports.read(reports.usages, text)

    def gpu_owners(self, gpu_uuids: Collection[str] | None = None) -> dict[str, str]:
        return {row["gpu_uuid"]: row["node"] for row in self._those(s.GPUS, s.OWNERS_OF, gpu_uuids)}

    def put_report(self, name: str, report: NodeReport) -> None:
        # Apart from the rest, which changes seldom: a digest tells whether it did.
        kept, usage = report.model_copy(update={"usage": ()}), reports.usages.dump_json(report.usage).decode()
        document = kept.model_dump_json()
        digest = reports.learn(name, document, kept)
        self._wrote("nodes", name)
        change = {
            "of_node": name,
            "new_report": document,
            "new_digest": digest,
            "new_reported_at": self.now,
            "new_usage": usage,
        }
        if self._connection.execute(s.SET_REPORT, change).rowcount == 0:
            desired = DesiredNode(generation=self.next_generation())
            self._connection.execute(
                s.ADD_NODE,
                {
                    "name": name,
                    "report": document,
                    "usage": usage,
                    "digest": digest,
                    "reported_at": self.now,
                    "desired": desired.model_dump_json(),
                    "generation": desired.generation,
                    "cordoned": False,
                },
            )
        self._own(name, [gpu.gpu_uuid for gpu in report.gpus])

    def _own(self, name: str, uuids: Sequence[str]) -> None:
        owned = set(self._connection.execute(s.GPUS_OF, {"of_node": name}).scalars())
        gone, come = owned.difference(uuids), [uuid for uuid in uuids if uuid not in owned]
        if not gone and not come:
            return
        self.news = True
        self._wrote("owners", *gone, *come)
        if gone:
            self._connection.execute(s.DROP_GPU, [{"gpu_uuid": uuid} for uuid in gone])
        elsewhere = self.gpu_owners(come)
        moved = [{"of_gpu": uuid, "new_node": name} for uuid in come if uuid in elsewhere]
        new = [{"gpu_uuid": uuid, "node": name} for uuid in come if uuid not in elsewhere]
        if moved:
            self._connection.execute(s.MOVE_GPU, moved)
        if new:
            self._connection.execute(s.ADD_GPU, new)

    def put_desired(self, name: str, desired: DesiredNode) -> None:
        self.news = True
        self._wrote("nodes", name)
        change = {"of_node": name, "new_desired": desired.model_dump_json(), "new_generation": desired.generation}
        self._connection.execute(s.SET_DESIRED, change)

    def put_cordoned(self, name: str, cordoned: bool) -> None:
        self.news = True
        self._wrote("nodes", name)
        self._connection.execute(s.SET_CORDONED, {"of_node": name, "new_cordoned": cordoned})

    def drop_node(self, name: str) -> None:
        self.news = True
        self._wrote("nodes", name)
        self._wrote("owners", *self._connection.execute(s.GPUS_OF, {"of_node": name}).scalars())
        self._connection.execute(s.DROP_GPUS, {"of_node": name})
        self._connection.execute(s.DROP_NODE, {"of_node": name})


@lru_cache(maxsize=16_384)
def _desired(text: str) -> DesiredNode:
    return DesiredNode.model_validate_json(text)


def _node(row: RowMapping, text: str | None) -> NodeRecord:
    report, gpus = reports.of(row["name"], row["digest"], text)
    return NodeRecord(
        name=row["name"],
        report=report,
        gpus=gpus,
        reported_at=row["reported_at"],
        desired=_desired(row["desired"]),
        cordoned=row["cordoned"],
    )
