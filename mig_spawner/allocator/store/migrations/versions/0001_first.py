"""The first schema: leases, holds, what is left of leases, nodes, pods, audit."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Generations start at the seconds since 2025, see `Transaction.next_generation`.
SECONDS = {
    "sqlite": "CAST(strftime('%s', 'now') AS INTEGER) - 1735689600",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) AS INTEGER) - 1735689600",
}


def upgrade() -> None:
    op.create_table(
        'lease',
        sa.Column('number', sa.Integer(), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.Column('user_id', sa.String(length=255), nullable=False),
        sa.Column('server_name', sa.String(length=255), nullable=False),
        sa.Column('user_name', sa.String(length=255), nullable=False),
        sa.Column('state', sa.String(length=16), nullable=False),
        sa.Column('open', sa.Boolean(), nullable=False),
        sa.Column('request_profile', sa.String(length=64), nullable=True),
        sa.Column('request_memory_gb', sa.Float(), nullable=True),
        sa.Column('queued_at', sa.DateTime(), nullable=False),
        sa.Column('wait_until', sa.DateTime(), nullable=True),
        sa.Column('duration_s', sa.Float(), nullable=True),
        sa.Column('avoid', sa.Text(), nullable=False),
        sa.Column('node', sa.String(length=255), nullable=True),
        sa.Column('gpu_uuid', sa.String(length=255), nullable=True),
        sa.Column('start', sa.Integer(), nullable=True),
        sa.Column('size', sa.Integer(), nullable=True),
        sa.Column('profile', sa.String(length=64), nullable=True),
        sa.Column('profile_id', sa.Integer(), nullable=True),
        sa.Column('model', sa.String(length=255), nullable=True),
        sa.Column('memory_mib', sa.Integer(), nullable=True),
        sa.Column('multiprocessors', sa.Integer(), nullable=True),
        sa.Column('share', sa.Float(), nullable=True),
        sa.Column('cut', sa.Boolean(), nullable=True),
        sa.Column('generation', sa.Integer(), nullable=True),
        sa.Column('granted_at', sa.DateTime(), nullable=True),
        sa.Column('expires_at', sa.DateTime(), nullable=True),
        sa.Column('device_uuid', sa.String(length=255), nullable=True),
        sa.Column('ready_at', sa.DateTime(), nullable=True),
        sa.Column('active_at', sa.DateTime(), nullable=True),
        sa.Column('seen_at', sa.DateTime(), nullable=True),
        sa.Column('reason', sa.String(length=16), nullable=True),
        sa.Column('releasing_at', sa.DateTime(), nullable=True),
        sa.Column('pod_fate', sa.String(length=16), nullable=True),
        sa.Column('closed_at', sa.DateTime(), nullable=True),
        sa.Column('gpu_seconds', sa.Float(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('queued', 'closed')) OR gpu_uuid IS NOT NULL", name=op.f('ck_lease_placed_when_granted')
        ),
        sa.CheckConstraint("open = (state <> 'closed')", name=op.f('ck_lease_open_until_closed')),
        sa.PrimaryKeyConstraint('number', name=op.f('pk_lease')),
        sa.UniqueConstraint('lease_id', name=op.f('uq_lease_lease_id')),
        sqlite_autoincrement=True,
    )
    op.create_index('ix_lease_state', 'lease', ['state', 'number'], unique=False)
    op.create_index(
        'uq_lease_open_holder',
        'lease',
        ['user_id', 'server_name'],
        unique=True,
        sqlite_where=sa.text('open'),
        postgresql_where=sa.text('open'),
    )
    op.create_table(
        'meta',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('installation_id', sa.String(length=64), nullable=False),
        sa.Column('secret', sa.LargeBinary(), nullable=False),
        sa.Column('generation', sa.Integer(), nullable=False),
        sa.Column('revision', sa.Integer(), nullable=False),
        sa.Column('pods_listed_at', sa.DateTime(), nullable=True),
        sa.CheckConstraint('id = 1', name=op.f('ck_meta_one_row')),
        sa.PrimaryKeyConstraint('id', name=op.f('pk_meta')),
    )
    op.create_table(
        'node',
        sa.Column('name', sa.String(length=255), nullable=False),
        sa.Column('report', sa.Text(), nullable=True),
        sa.Column('reported_at', sa.DateTime(), nullable=True),
        sa.Column('desired', sa.Text(), nullable=False),
        sa.Column('cordoned', sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint('name', name=op.f('pk_node')),
    )
    op.create_table(
        'pod',
        sa.Column('uid', sa.String(length=255), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.Column('namespace', sa.String(length=255), nullable=False),
        sa.Column('name', sa.String(length=255), nullable=False),
        sa.Column('phase', sa.String(length=32), nullable=False),
        sa.Column('device_uuid', sa.String(length=255), nullable=True),
        sa.Column('since', sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint('uid', name=op.f('pk_pod')),
    )
    op.create_index(op.f('ix_pod_lease_id'), 'pod', ['lease_id'], unique=False)
    op.create_table(
        'audit',
        sa.Column('number', sa.Integer(), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.Column('at', sa.DateTime(), nullable=False),
        sa.Column('who', sa.String(length=300), nullable=False),
        sa.Column('before', sa.String(length=16), nullable=True),
        sa.Column('after', sa.String(length=16), nullable=False),
        sa.Column('why', sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(['lease_id'], ['lease.lease_id'], name=op.f('fk_audit_lease_id')),
        sa.PrimaryKeyConstraint('number', name=op.f('pk_audit')),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f('ix_audit_lease_id'), 'audit', ['lease_id'], unique=False)
    op.create_table(
        'gpu',
        sa.Column('gpu_uuid', sa.String(length=255), nullable=False),
        sa.Column('node', sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(['node'], ['node.name'], name=op.f('fk_gpu_node')),
        sa.PrimaryKeyConstraint('gpu_uuid', name=op.f('pk_gpu')),
    )
    op.create_table(
        'hold',
        sa.Column('gpu_uuid', sa.String(length=255), nullable=False),
        sa.Column('memory_slice', sa.Integer(), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(['lease_id'], ['lease.lease_id'], name=op.f('fk_hold_lease_id')),
        sa.PrimaryKeyConstraint('gpu_uuid', 'memory_slice', name=op.f('pk_hold')),
    )
    op.create_table(
        'remnant',
        sa.Column('gpu_uuid', sa.String(length=255), nullable=False),
        sa.Column('start', sa.Integer(), nullable=False),
        sa.Column('size', sa.Integer(), nullable=False),
        sa.Column('profile_id', sa.Integer(), nullable=False),
        sa.Column('node', sa.String(length=255), nullable=False),
        sa.Column('lease_id', sa.String(length=63), nullable=False),
        sa.Column('generation', sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(['lease_id'], ['lease.lease_id'], name=op.f('fk_remnant_lease_id')),
        sa.PrimaryKeyConstraint('gpu_uuid', 'start', name=op.f('pk_remnant')),
    )
    meta = sa.table(
        "meta",
        sa.column("id", sa.Integer),
        sa.column("installation_id", sa.String),
        sa.column("secret", sa.LargeBinary),
        sa.column("generation", sa.Integer),
        sa.column("revision", sa.Integer),
    )
    op.execute(
        meta.insert().values(
            id=1,
            installation_id=secrets.token_hex(8),
            secret=secrets.token_bytes(32),
            generation=sa.literal_column(SECONDS[op.get_context().dialect.name]),
            revision=0,
        )
    )
