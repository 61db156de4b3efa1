"""Replicas take turns at what one of them does for all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        'turn',
        sa.Column('task', sa.String(length=64), nullable=False),
        sa.Column('taken_at', sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint('task', name=op.f('pk_turn')),
    )
