"""A lease knows whether its node picks the device, and whether it is known which one that was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0050"


def upgrade() -> None:
    op.add_column("lease", sa.Column("pick", sa.String(length=8), nullable=False, server_default="ledger"))
