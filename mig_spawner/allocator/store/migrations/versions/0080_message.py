"""A lease keeps what whoever ended it says to its holder."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0015"


def upgrade() -> None:
    op.add_column('lease', sa.Column('message', sa.Text(), nullable=True))
