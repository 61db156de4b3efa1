"""A lease has a priority and alternatives, may ask for a device by name, and says which of its choices was granted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("lease", sa.Column("request_device", sa.String(length=255), nullable=True))
    op.add_column("lease", sa.Column("alternatives", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("lease", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("lease", sa.Column("choice_number", sa.Integer(), nullable=True))
