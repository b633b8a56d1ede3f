"""What search needs: an index of text, vectors, and what MemWal is to be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add columns, tables and the full text; what was saved before will be indexed."""
    _alter_threads()
    _alter_checkpoints()
    _create_documents()
    _create_vectors()
    _create_memories()
    if op.get_bind().dialect.name == "sqlite":
        _create_full_text()


def _alter_threads() -> None:
    op.add_column(
        "threads",
        sa.Column(
            "unsearchable",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="search does not find its checkpoints",
        ),
    )


def _alter_checkpoints() -> None:
    op.add_column(
        "checkpoints",
        sa.Column(
            "unindexed_us",
            sa.BigInteger(),
            nullable=True,
            comment="time of the content that the search index lacks; null: it has it",
        ),
    )
    op.execute("UPDATE checkpoints SET unindexed_us = created_us")
    told = sa.text("unindexed_us IS NOT NULL")
    op.create_index(
        "checkpoints_unindexed",
        "checkpoints",
        ["unindexed_us"],
        sqlite_where=told,
        postgresql_where=told,
    )


def _checkpoint_key() -> list[sa.Column[str]]:
    return [
        sa.Column(name, NAME, nullable=False)
        for name in ("tenant", "thread_id", "checkpoint_ns", "checkpoint_id")
    ]


def _create_documents() -> None:
    op.create_table(
        "search_documents",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        *_checkpoint_key(),
        sa.Column("scope", sa.Text(), nullable=False, comment="word that stands for the thread"),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="searchable text of the state"),
        sa.Column("planned", sa.Boolean(), nullable=False, comment="the body is a plan, not JSON"),
        sa.Column(
            "pointer", sa.LargeBinary(), nullable=False, comment="domain.memories.pointer_of"
        ),
        sa.Column(
            "unembedded", sa.Boolean(), nullable=False, comment="the embedder owes it a vector"
        ),
        comment="What is indexed of each checkpoint; full text has it under the same number.",
        sqlite_autoincrement=True,
    )
    op.create_index(
        "search_documents_by_checkpoint",
        "search_documents",
        ["tenant", "thread_id", "checkpoint_ns", "checkpoint_id"],
        unique=True,
    )
    op.create_index("search_documents_by_pointer", "search_documents", ["tenant", "pointer"])
    told = sa.text("unembedded")
    op.create_index(
        "search_documents_unembedded",
        "search_documents",
        ["number"],
        sqlite_where=told,
        postgresql_where=told,
    )


def _create_vectors() -> None:
    op.create_table(
        "search_vectors",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        *_checkpoint_key(),
        sa.Column("embedder", sa.Text(), nullable=False, comment="who made it; empty: the caller"),
        sa.Column("vector", sa.LargeBinary(), nullable=False, comment="domain.vectors.pack"),
        comment="Vectors of checkpoints.",
        sqlite_autoincrement=True,
    )
    op.create_index(
        "search_vectors_by_checkpoint",
        "search_vectors",
        ["tenant", "checkpoint_id", "checkpoint_ns", "thread_id"],
        unique=True,
    )
    op.create_index("search_vectors_by_thread", "search_vectors", ["tenant", "thread_id", "number"])


def _create_memories() -> None:
    op.create_table(
        "search_memories",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column(
            "pointer", sa.LargeBinary(), nullable=False, comment="domain.memories.pointer_of"
        ),
        sa.Column("text", sa.Text(), nullable=False, comment="what MemWal is told"),
        sa.Column("digest", sa.LargeBinary(), nullable=False, comment="SHA-256 of the text"),
        sa.Column("state", sa.Integer(), nullable=False, comment="domain.memories.MemoryState"),
        sa.Column(
            "unsure", sa.Boolean(), nullable=False, comment="it may have been stored already"
        ),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="that failed"),
        sa.Column("due_us", sa.BigInteger(), nullable=False, comment="time of the next step"),
        sa.Column("job_id", sa.Text(), nullable=False, comment="MemWal's; empty: none"),
        sa.Column(
            "blob_id", sa.Text(), nullable=False, comment="where MemWal stored it; empty: unknown"
        ),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        comment="Summaries for MemWal and how far they got.",
        sqlite_autoincrement=True,
    )
    op.create_index(
        "search_memories_by_pointer",
        "search_memories",
        ["tenant", "pointer", "digest"],
        unique=True,
    )
    op.create_index("search_memories_by_state", "search_memories", ["state", "due_us", "tenant"])
    unsure = sa.text("unsure")
    op.create_index(
        "search_memories_unsure",
        "search_memories",
        ["due_us"],
        sqlite_where=unsure,
        postgresql_where=unsure,
    )


def _create_full_text() -> None:
    """Create the full text over `search_documents`, whose text it does not hold again.

    Words are found by their stems, without accents
    (https://www.sqlite.org/fts5.html#external_content_tables, #porter_tokenizer).
    """
    op.execute(
        "CREATE VIRTUAL TABLE search_text USING fts5("
        "scope, summary, body, content='search_documents', content_rowid='number', "
        "tokenize='porter unicode61 remove_diacritics 2')"
    )
