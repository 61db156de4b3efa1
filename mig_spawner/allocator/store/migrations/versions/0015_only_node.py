"""A lease may be wanted on one node alone, by a program that runs there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0006"


def upgrade() -> None:
    op.add_column('lease', sa.Column('only_node', sa.String(length=255), nullable=True))
    op.create_index(
        'ix_lease_only_node',
        'lease',
        ['only_node'],
        sqlite_where=sa.text('only_node IS NOT NULL'),
        postgresql_where=sa.text('only_node IS NOT NULL'),
    )
