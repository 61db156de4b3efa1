"""Nodes say what their devices use, and leases remember the most memory that theirs used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column('lease', sa.Column('peak_memory_mib', sa.Integer(), nullable=True))
    op.add_column('node', sa.Column('usage', sa.Text(), nullable=True))
