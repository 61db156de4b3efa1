"""Webhooks, and every event's way to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        'webhook',
        sa.Column('webhook_id', sa.String(length=63), nullable=False),
        sa.Column('url', sa.Text(), nullable=False),
        sa.Column('kinds', sa.String(length=255), nullable=False),
        sa.Column('description', sa.String(length=255), nullable=False),
        sa.Column('created_at', sa.DateTime(), nullable=False),
        sa.Column('created_by', sa.String(length=300), nullable=False),
        sa.PrimaryKeyConstraint('webhook_id', name=op.f('pk_webhook')),
    )
    op.create_table(
        'delivery',
        sa.Column('number', sa.Integer(), nullable=False),
        sa.Column('webhook_id', sa.String(length=63), nullable=False),
        sa.Column('event_number', sa.Integer(), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('attempts', sa.Integer(), nullable=False),
        sa.Column('next_at', sa.DateTime(), nullable=False),
        sa.Column('status', sa.Integer(), nullable=True),
        sa.Column('error', sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(['webhook_id'], ['webhook.webhook_id'], name=op.f('fk_delivery_webhook_id')),
        sa.ForeignKeyConstraint(['event_number'], ['event.number'], name=op.f('fk_delivery_event_number')),
        sa.PrimaryKeyConstraint('number', name=op.f('pk_delivery')),
        sqlite_autoincrement=True,
    )
    op.create_index('uq_delivery_event_number', 'delivery', ['event_number', 'webhook_id'], unique=True)
    op.create_index('ix_delivery_state', 'delivery', ['state', 'next_at'])
    op.create_index('ix_delivery_webhook_id', 'delivery', ['webhook_id', 'number'])
