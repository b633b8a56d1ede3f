"""What lineage needs: events, hand-offs, and ways to find what came from what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns, tables and indexes.

    Of what happened before there are no events: a watch of an older thread from its
    beginning is told so.
    """
    _alter_threads()
    _create_events()
    _create_handoffs()
    _create_indexes()


def _create_indexes() -> None:
    descended = "forked_from != '' OR rolled_back_from != '' OR adopted_from != ''"
    for name, columns, where in (
        ("checkpoints_by_root", ["tenant", "thread_id", "root_id"], "root_id != ''"),
        ("checkpoints_forked_from", ["tenant", "forked_from"], "forked_from != ''"),
        ("checkpoints_adopted_from", ["tenant", "adopted_from"], "adopted_from != ''"),
        ("checkpoints_descended", ["tenant", "thread_id"], descended),
    ):
        told = sa.text(where)
        op.create_index(name, "checkpoints", columns, sqlite_where=told, postgresql_where=told)


def _alter_threads() -> None:
    comments = {
        "begun_seq": "sequence before the first change of this incarnation",
        "compacted_seq": "events up to here are gone",
    }
    for name, comment in comments.items():
        op.add_column(
            "threads",
            sa.Column(
                name,
                sa.BigInteger(),
                nullable=False,
                server_default=sa.text("0"),
                comment=comment,
            ),
        )
    op.execute("UPDATE threads SET compacted_seq = seq")


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False, comment="domain.lineage.EventKind"),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column(
            "checkpoint_id", NAME, nullable=False, comment="empty: no checkpoint is concerned"
        ),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("deleted", sa.BigInteger(), nullable=False, comment="how many checkpoints were"),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "seq"),
        comment="What happened on each thread, one row for each number of its sequence.",
        sqlite_with_rowid=False,
    )
    op.create_index("events_by_time", "events", ["created_us"])


def _create_handoffs() -> None:
    op.create_table(
        "handoffs",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False, comment="of the bundle, as stored"),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "sha256", "thread_id"),
        comment="Bundles that were handed off; their blobs are kept as long as the thread lives.",
    )
    op.create_index("handoffs_by_thread", "handoffs", ["tenant", "thread_id", "sha256"])
