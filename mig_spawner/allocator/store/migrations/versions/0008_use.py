"""What a person, or everybody, has used within some time is found by when leases closed."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0013"


def upgrade() -> None:
    op.create_index('ix_lease_closed_at', 'lease', ['closed_at'], unique=False)
    op.create_index('ix_lease_user_name', 'lease', ['user_name', 'closed_at'], unique=False)
