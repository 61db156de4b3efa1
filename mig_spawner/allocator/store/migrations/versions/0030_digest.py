"""A report has a digest, so that one that did not change need not be read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0020"


def upgrade() -> None:
    op.add_column('node', sa.Column('digest', sa.String(length=64), nullable=True))
