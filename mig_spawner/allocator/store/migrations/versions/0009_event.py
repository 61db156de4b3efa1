"""Events are kept for a while, for those who watch and were away."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        'event',
        sa.Column('number', sa.Integer(), nullable=False),
        sa.Column('at', sa.DateTime(), nullable=False),
        sa.Column('kind', sa.String(length=16), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.Column('lease', sa.Text(), nullable=False),
        sa.Column('warns_of', sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint('number', name=op.f('pk_event')),
        sqlite_autoincrement=True,
    )
    op.create_index('ix_event_at', 'event', ['at'])
    op.create_index('uq_event_warning', 'event', ['warns_of', 'lease_id'], unique=True)
    op.add_column('meta', sa.Column('events_dropped', sa.Integer(), nullable=False, server_default="0"))
