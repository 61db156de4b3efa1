"""Who waits may leave and come back, and who waits too long has a GPU earmarked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("lease", sa.Column("earmark", sa.String(length=255), nullable=True))
    op.add_column("lease", sa.Column("unattended", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("lease", sa.Column("claimed_at", sa.DateTime(), nullable=True))
    op.create_index("ix_lease_line", "lease", ["state", sa.text("priority DESC"), "number"], unique=False)
