"""The journal's first layout."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_catalogs()
    _create_checkpoints()
    _create_content_references()
    _create_contents()
    _create_envelopes()
    _create_journal_info()
    _create_manifests()
    _create_packs()
    _create_placements()
    _create_requests()
    _create_retractions()
    _create_threads()
    _create_tombstones()
    _create_writes()


def _create_catalogs() -> None:
    op.create_table(
        "catalogs",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False, comment="number of flushes"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("runs", sa.LargeBinary(), nullable=False, comment="JSON: domain.catalog.Runs"),
        sa.Column("certified_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
        comment="Newest certified catalog of each tenant.",
    )


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("parent_id", NAME, nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False, comment="domain.state.encode_state"),
        sa.Column("metadata", sa.LargeBinary(), nullable=False, comment="JSON, as sent"),
        sa.Column("run_id", NAME, nullable=False),
        sa.Column("root_id", NAME, nullable=False, comment='metadata.parents[""]'),
        sa.Column("delta_channels", sa.LargeBinary(), nullable=False, comment="JSON list of names"),
        sa.Column("label", NAME, nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("forked_from", NAME, nullable=False),
        sa.Column("rolled_back_from", NAME, nullable=False),
        sa.Column("adopted_from", NAME, nullable=False),
        sa.Column(
            "hidden",
            sa.Boolean(),
            nullable=False,
            comment="deleted for readers; delta channels of a descendant still need it",
        ),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column(
            "content_revision", sa.BigInteger(), nullable=False, comment="state last replaced at"
        ),
        sa.Column("label_revision", sa.BigInteger(), nullable=False, comment="label last set at"),
        sa.Column(
            "packed_revision", sa.BigInteger(), nullable=False, comment="in a spooled pack; 0: none"
        ),
        sa.Column("certified_revision", sa.BigInteger(), nullable=False, comment="0: none"),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column(
            "dirty_us",
            sa.BigInteger(),
            nullable=True,
            comment="time of the oldest change that is not certified; null: none",
        ),
        sa.Column("dirty_bytes", sa.BigInteger(), nullable=False, comment="content that waits"),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "checkpoint_ns", "checkpoint_id"),
    )
    op.create_index("checkpoints_by_id", "checkpoints", ["tenant", "checkpoint_id"])
    op.create_index(
        "checkpoints_by_label",
        "checkpoints",
        ["tenant", "label"],
        sqlite_where=sa.text("label != ''"),
        postgresql_where=sa.text("label != ''"),
    )
    op.create_index(
        "checkpoints_by_run",
        "checkpoints",
        ["tenant", "run_id"],
        sqlite_where=sa.text("run_id != ''"),
        postgresql_where=sa.text("run_id != ''"),
    )
    op.create_index(
        "checkpoints_by_thread", "checkpoints", ["tenant", "thread_id", "checkpoint_id"]
    )
    op.create_index(
        "checkpoints_dirty",
        "checkpoints",
        ["tenant", "dirty_us"],
        sqlite_where=sa.text("dirty_us IS NOT NULL"),
        postgresql_where=sa.text("dirty_us IS NOT NULL"),
    )


def _create_content_references() -> None:
    op.create_table(
        "content_references",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", "thread_id", "checkpoint_ns", "checkpoint_id"),
        comment="Which checkpoints need which contents; a content without any is swept.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "references_by_checkpoint",
        "content_references",
        ["tenant", "thread_id", "checkpoint_ns", "checkpoint_id"],
    )


def _create_contents() -> None:
    op.create_table(
        "contents",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column(
            "digest", sa.LargeBinary(), nullable=False, comment="domain.digests.value_digest"
        ),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest"),
        comment="Values of channels, once per tenant however many checkpoints have them.",
    )


def _create_envelopes() -> None:
    op.create_table(
        "envelopes",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False, comment="0: full; above: addenda"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column(
            "revision", sa.BigInteger(), nullable=False, comment="held by it and those before"
        ),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "checkpoint_ns", "checkpoint_id", "ordinal"),
        comment="Certified envelopes of each checkpoint.",
    )


def _create_journal_info() -> None:
    op.create_table(
        "journal_info",
        sa.Column("name", NAME, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        comment="Facts about this journal, such as its identity.",
    )


def _create_manifests() -> None:
    op.create_table(
        "manifests",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("segment", sa.BigInteger(), nullable=False, comment="number of the open segment"),
        sa.Column("records", sa.BigInteger(), nullable=False, comment="in the whole chain"),
        sa.Column("open_segment", sa.LargeBinary(), nullable=False, comment="its bytes, as stored"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False, comment="of the open segment"),
        sa.Column(
            "run", sa.BigInteger(), nullable=False, comment="catalog run that lists this head"
        ),
        sa.Column("ended", sa.Boolean(), nullable=False, comment="the incarnation was deleted"),
        sa.Column("certified_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "incarnation"),
        comment="Certified head of each thread's manifest.",
    )
    op.create_index("manifests_by_run", "manifests", ["tenant", "run"])


def _create_packs() -> None:
    op.create_table(
        "packs",
        sa.Column("pack_id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("state", sa.Text(), nullable=False, comment="journal.archive_plan.PackState"),
        sa.Column(
            "spool", sa.Text(), nullable=False, comment="name of the file with its exact bytes"
        ),
        sa.Column(
            "plan", sa.LargeBinary(), nullable=False, comment="JSON: what certification records"
        ),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pack_id"),
        sqlite_autoincrement=True,
        comment="Packs on their way; a certified pack's row is removed.",
    )
    op.create_index("packs_by_tenant", "packs", ["tenant", "pack_id"])


def _create_placements() -> None:
    op.create_table(
        "placements",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("blob_id", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "sha256"),
        comment="Where stored bytes lie.",
    )


def _create_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("request_id", NAME, nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column(
            "fingerprint", sa.LargeBinary(), nullable=False, comment="SHA-256 of the request"
        ),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "request_id"),
        comment="First answers of calls that are not upserts.",
    )
    op.create_index("requests_by_time", "requests", ["created_us"])


def _create_retractions() -> None:
    op.create_table(
        "retractions",
        sa.Column("number", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
        comment="Deletions that manifests have yet to tell.",
    )
    op.create_index("retractions_by_tenant", "retractions", ["tenant", "number"])


def _create_threads() -> None:
    op.create_table(
        "threads",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column(
            "seq", sa.BigInteger(), nullable=False, comment="of the last change; never reset"
        ),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column(
            "deleted_through",
            NAME,
            nullable=False,
            comment="greatest checkpoint ID of any ended incarnation; older IDs never come back",
        ),
        sa.Column("agent_id", NAME, nullable=False),
        sa.Column("state", sa.Integer(), nullable=False, comment="domain.ThreadState"),
        sa.Column("head_id", NAME, nullable=False, comment="latest of the root namespace"),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "thread_id"),
    )
    op.create_index("threads_by_agent", "threads", ["tenant", "agent_id", "thread_id"])
    op.create_index("threads_by_state", "threads", ["tenant", "state", "thread_id"])


def _create_tombstones() -> None:
    op.create_table(
        "tombstones",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "thread_id", "incarnation"),
        comment="Ended incarnations that the catalog has yet to tell.",
    )


def _create_writes() -> None:
    op.create_table(
        "writes",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("thread_id", NAME, nullable=False),
        sa.Column("checkpoint_ns", NAME, nullable=False),
        sa.Column("checkpoint_id", NAME, nullable=False),
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("task_path", NAME, nullable=False),
        sa.Column("channel", NAME, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column(
            "revision",
            sa.BigInteger(),
            nullable=False,
            comment="of the checkpoint when this was last written; 0: no checkpoint yet",
        ),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"
        ),
    )
    op.create_index(
        "writes_early",
        "writes",
        ["created_us"],
        sqlite_where=sa.text("revision = 0"),
        postgresql_where=sa.text("revision = 0"),
    )
