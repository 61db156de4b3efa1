"""The generation of what a node should look like stands beside it, so that it can be read without the whole."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0007"


def upgrade() -> None:
    op.add_column('node', sa.Column('generation', sa.Integer(), nullable=False, server_default="0"))
    node = sa.table("node", sa.column("name"), sa.column("desired"), sa.column("generation"))
    connection = op.get_bind()
    for name, desired in connection.execute(sa.select(node.c.name, node.c.desired)).all():
        generation = json.loads(desired)["generation"]
        connection.execute(sa.update(node).where(node.c.name == name).values(generation=generation))
