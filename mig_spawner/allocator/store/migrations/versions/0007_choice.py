"""Leases know what was chosen from the menu, and in which groups whoever chose it was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0005"


def upgrade() -> None:
    op.add_column('lease', sa.Column('groups', sa.Text(), nullable=False, server_default="[]"))
    op.add_column('lease', sa.Column('choice', sa.String(length=63), nullable=False, server_default=""))
