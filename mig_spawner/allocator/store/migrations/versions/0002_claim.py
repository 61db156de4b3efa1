"""Pods say what they know of their lease, so that a lost ledger can be rebuilt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column('pod', sa.Column('claim', sa.Text(), nullable=True))
    op.add_column('pod', sa.Column('trouble', sa.Text(), nullable=False, server_default=""))
