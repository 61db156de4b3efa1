"""Proposals to cut GPUs anew, and what becomes of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0080"


def upgrade() -> None:
    op.create_table(
        "reshape",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("reshape_id", sa.String(63), nullable=False),
        sa.Column("gpu_uuid", sa.String(255), nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_reshape"),
        sa.UniqueConstraint("reshape_id", name="uq_reshape_reshape_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_reshape_open",
        "reshape",
        ["gpu_uuid"],
        unique=True,
        sqlite_where=sa.text("open"),
        postgresql_where=sa.text("open"),
    )
