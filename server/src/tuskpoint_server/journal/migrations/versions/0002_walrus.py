"""What a blob store that expires needs: lifetimes, eviction, retention, recovery."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

EVICTED = "null: evicted, only in envelopes"


def upgrade() -> None:
    """Add the columns and tables."""
    _create_blobs()
    _create_envelope_parts()
    _create_metadata_members()
    _alter_checkpoints()
    _alter_contents()
    _alter_writes()
    _alter_threads()
    op.execute(
        "INSERT INTO journal_info (name, value) SELECT 'blob_backend', 'directory' "
        "WHERE EXISTS (SELECT 1 FROM placements)"
    )
    op.create_index("placements_by_blob", "placements", ["tenant", "blob_id"])
    op.create_index("envelopes_by_sha256", "envelopes", ["tenant", "sha256"])
    op.add_column(
        "manifests",
        sa.Column(
            "next_generation",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="of the next segment if it begins a new one, above `generation`; else 0",
        ),
    )
    op.add_column(
        "packs",
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            server_default=sa.text("'FINAL'"),
            comment="journal.archive_plan.PackKind",
        ),
    )


def _create_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("blob_id", sa.Text(), nullable=False),
        sa.Column(
            "object_id", sa.Text(), nullable=False, comment="what its owner renews; empty: none"
        ),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False, comment="content sent"),
        sa.Column("billed_bytes", sa.BigInteger(), nullable=False, comment="over all puts"),
        sa.Column(
            "cost",
            sa.BigInteger(),
            nullable=False,
            comment="over all puts, in the smallest coin",
        ),
        sa.Column("epoch", sa.BigInteger(), nullable=True, comment="of the store at the last put"),
        sa.Column(
            "end_epoch", sa.BigInteger(), nullable=True, comment="gone when it starts; null: never"
        ),
        sa.Column("stored_us", sa.BigInteger(), nullable=False, comment="time of the last put"),
        sa.Column(
            "expire_us", sa.BigInteger(), nullable=True, comment="not gone before; null: never"
        ),
        sa.PrimaryKeyConstraint("tenant", "blob_id"),
        comment="Blobs that puts made: how long they last and what they cost.",
    )
    op.create_index("blobs_by_expiry", "blobs", ["tenant", "expire_us"])


def _create_envelope_parts() -> None:
    op.create_table(
        "envelope_parts",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column(
            "envelope", sa.LargeBinary(), nullable=False, comment="SHA-256 of the list of parts"
        ),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "envelope", "sha256"),
        comment="Parts of envelopes that are larger than one member may be.",
    )
    op.create_index("envelope_parts_by_part", "envelope_parts", ["tenant", "sha256", "envelope"])


def _create_metadata_members() -> None:
    op.create_table(
        "metadata_members",
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("thread_id", NAME, nullable=False, comment="of a segment; empty: of the catalog"),
        sa.Column("incarnation", sa.BigInteger(), nullable=False, comment="of a segment; else 0"),
        sa.Column("run", sa.BigInteger(), nullable=False, comment="of a catalog's member; else 0"),
        sa.PrimaryKeyConstraint("tenant", "sha256", "thread_id", "incarnation", "run"),
        comment="Stored segments and members of the catalog that are still needed.",
    )
    op.create_index(
        "metadata_members_by_thread",
        "metadata_members",
        ["tenant", "thread_id", "incarnation", "run", "sha256"],
    )


def _alter_checkpoints() -> None:
    op.add_column(
        "checkpoints",
        sa.Column(
            "evicted_revision",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="at which it last gave its values up; 0: it has them all",
        ),
    )
    gives_up = sa.text("certified_revision = revision AND evicted_revision < revision")
    op.create_index(
        "checkpoints_evictable",
        "checkpoints",
        ["created_us"],
        sqlite_where=gives_up,
        postgresql_where=gives_up,
    )


def _alter_contents() -> None:
    with op.batch_alter_table("contents") as batch:
        batch.alter_column("data", existing_type=sa.LargeBinary(), nullable=True, comment=EVICTED)
        batch.add_column(_size())
    op.execute("UPDATE contents SET size = length(data)")
    _index_evicted("contents")


def _alter_writes() -> None:
    with op.batch_alter_table("writes") as batch:
        batch.alter_column("data", existing_type=sa.LargeBinary(), nullable=True, comment=EVICTED)
        batch.add_column(_size())
    op.execute("UPDATE writes SET size = length(data)")
    _index_evicted("writes")


def _size() -> sa.Column[int]:
    return sa.Column(
        "size", sa.BigInteger(), nullable=False, server_default=sa.text("0"), comment="of the data"
    )


def _index_evicted(table: str) -> None:
    op.create_index(
        f"{table}_evicted",
        table,
        ["tenant", "size"],
        sqlite_where=sa.text("data IS NULL"),
        postgresql_where=sa.text("data IS NULL"),
    )


def _alter_threads() -> None:
    op.add_column(
        "threads",
        sa.Column(
            "retention_s",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="seconds without a change after which it is deleted; 0: never",
        ),
    )
    op.add_column(
        "threads",
        sa.Column(
            "untold",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="agent or retention changed since the catalog was told",
        ),
    )
    op.create_index(
        "threads_untold",
        "threads",
        ["tenant"],
        sqlite_where=sa.text("untold"),
        postgresql_where=sa.text("untold"),
    )
    op.create_index(
        "threads_with_retention",
        "threads",
        ["updated_us"],
        sqlite_where=sa.text("retention_s > 0"),
        postgresql_where=sa.text("retention_s > 0"),
    )
