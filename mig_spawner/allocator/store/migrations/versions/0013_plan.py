"""Placement goes by plans, which are made in the background from what people ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mig_spawner.allocator.store.tables import Moment

revision = "0013"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        'plan',
        sa.Column('number', sa.Integer(), autoincrement=False, nullable=False),
        sa.Column('made_at', Moment(), nullable=False),
        sa.Column('arrivals', sa.Integer(), nullable=False),
        sa.Column('document', sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint('number', name=op.f('pk_plan')),
    )
