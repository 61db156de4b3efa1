"""Each commit says what it has written, so that whoever keeps a view of the ledger reads that again and nothing else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0070"


def upgrade() -> None:
    op.create_table(
        "change",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stamp", sa.String(32), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_change"),
        sqlite_autoincrement=True,
    )
