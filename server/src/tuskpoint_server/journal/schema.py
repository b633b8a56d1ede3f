"""Tables of the journal, for every database it runs on.

Every row carries its tenant. Identifiers compare by code point: SQLite does so by
itself, PostgreSQL is told to (`COLLATE "C"`). Times are microseconds since the Unix
epoch. Rows of a thread belong to its current incarnation; deletion removes them and
leaves the thread's row as a tombstone.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    false,
    literal_column,
    or_,
    text,
)
from sqlalchemy.sql.elements import ColumnElement

metadata = MetaData()

Name = Text().with_variant(Text(collation="C"), "postgresql")
"""Type of identifiers."""

RowNumber = BigInteger().with_variant(Integer, "sqlite")
"""Type of numbers that the database assigns; only INTEGER does so on SQLite."""


def _checkpoint_key(*, primary: bool = True) -> list[Column[str]]:
    """Columns that name a checkpoint."""
    return [
        Column("tenant", Name, primary_key=primary, nullable=False),
        Column("thread_id", Name, primary_key=primary, nullable=False),
        Column("checkpoint_ns", Name, primary_key=primary, nullable=False),
        Column("checkpoint_id", Name, primary_key=primary, nullable=False),
    ]


# --- what was acknowledged -------------------------------------------------------------

journal_info = Table(
    "journal_info",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", Text, nullable=False),
    comment="Facts about this journal, such as its identity.",
)

threads = Table(
    "threads",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("thread_id", Name, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="of the last change; never reset"),
    Column("deleted", Boolean, nullable=False),
    Column(
        "deleted_through",
        Name,
        nullable=False,
        comment="greatest checkpoint ID of any ended incarnation; older IDs never come back",
    ),
    Column("agent_id", Name, nullable=False),
    Column("state", Integer, nullable=False, comment="domain.ThreadState"),
    Column("head_id", Name, nullable=False, comment="latest of the root namespace"),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column(
        "retention_s",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="seconds without a change after which it is deleted; 0: never",
    ),
    Column(
        "untold",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="agent or a setting changed since the catalog was told",
    ),
    Column(
        "begun_seq",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="sequence before the first change of this incarnation",
    ),
    Column(
        "compacted_seq",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="events up to here are gone",
    ),
    Column(
        "unsearchable",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="search does not find its checkpoints",
    ),
    Index("threads_by_agent", "tenant", "agent_id", "thread_id"),
    Index("threads_by_state", "tenant", "state", "thread_id"),
)
UNTOLD: ColumnElement[bool] = literal_column("threads.untold")
"""A thread has untold facts, spelled as in the index: `untold = 1` would not use it."""
Index(
    "threads_untold",
    threads.c.tenant,
    sqlite_where=threads.c.untold,
    postgresql_where=threads.c.untold,
)
Index(
    "threads_with_retention",
    threads.c.updated_us,
    sqlite_where=threads.c.retention_s > literal_column("0"),
    postgresql_where=threads.c.retention_s > literal_column("0"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    *_checkpoint_key(),
    Column("incarnation", BigInteger, nullable=False),
    Column("parent_id", Name, nullable=False),
    Column("state", LargeBinary, nullable=False, comment="domain.state.encode_state"),
    Column("metadata", LargeBinary, nullable=False, comment="JSON, as sent"),
    Column("run_id", Name, nullable=False),
    Column("root_id", Name, nullable=False, comment='metadata.parents[""]'),
    Column("delta_channels", LargeBinary, nullable=False, comment="JSON list of names"),
    Column("label", Name, nullable=False),
    Column("summary", Text, nullable=False),
    Column("forked_from", Name, nullable=False),
    Column("rolled_back_from", Name, nullable=False),
    Column("adopted_from", Name, nullable=False),
    Column(
        "hidden",
        Boolean,
        nullable=False,
        comment="deleted for readers; delta channels of a descendant still need it",
    ),
    Column("revision", BigInteger, nullable=False),
    Column("content_revision", BigInteger, nullable=False, comment="state last replaced at"),
    Column("label_revision", BigInteger, nullable=False, comment="label last set at"),
    Column("packed_revision", BigInteger, nullable=False, comment="in a spooled pack; 0: none"),
    Column("certified_revision", BigInteger, nullable=False, comment="0: none"),
    Column("seq", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column(
        "dirty_us",
        BigInteger,
        nullable=True,
        comment="time of the oldest change that is not certified; null: none",
    ),
    Column("dirty_bytes", BigInteger, nullable=False, comment="content that waits"),
    Column(
        "evicted_revision",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="at which it last gave its values up; 0: it has them all",
    ),
    Column(
        "unindexed_us",
        BigInteger,
        nullable=True,
        comment="time of the content that the search index lacks; null: it has it",
    ),
    Index("checkpoints_by_id", "tenant", "checkpoint_id"),
    Index("checkpoints_by_thread", "tenant", "thread_id", "checkpoint_id"),
)
Index(
    "checkpoints_by_run",
    checkpoints.c.tenant,
    checkpoints.c.run_id,
    sqlite_where=checkpoints.c.run_id != "",
    postgresql_where=checkpoints.c.run_id != "",
)
Index(
    "checkpoints_by_label",
    checkpoints.c.tenant,
    checkpoints.c.label,
    sqlite_where=checkpoints.c.label != "",
    postgresql_where=checkpoints.c.label != "",
)
Index(
    "checkpoints_by_root",
    checkpoints.c.tenant,
    checkpoints.c.thread_id,
    checkpoints.c.root_id,
    sqlite_where=checkpoints.c.root_id != "",
    postgresql_where=checkpoints.c.root_id != "",
)
for _origin in ("forked_from", "adopted_from"):
    Index(
        f"checkpoints_{_origin}",
        checkpoints.c.tenant,
        checkpoints.c[_origin],
        sqlite_where=checkpoints.c[_origin] != "",
        postgresql_where=checkpoints.c[_origin] != "",
    )
DESCENDED = or_(
    checkpoints.c.forked_from != literal_column("''"),
    checkpoints.c.rolled_back_from != literal_column("''"),
    checkpoints.c.adopted_from != literal_column("''"),
)
"""The checkpoint came from one that is not its parent."""
Index(
    "checkpoints_descended",
    checkpoints.c.tenant,
    checkpoints.c.thread_id,
    sqlite_where=DESCENDED,
    postgresql_where=DESCENDED,
)
Index(
    "checkpoints_dirty",
    checkpoints.c.tenant,
    checkpoints.c.dirty_us,
    sqlite_where=checkpoints.c.dirty_us.is_not(None),
    postgresql_where=checkpoints.c.dirty_us.is_not(None),
)
_GIVES_UP = (
    checkpoints.c.certified_revision == checkpoints.c.revision,
    checkpoints.c.evicted_revision < checkpoints.c.revision,
)
Index(
    "checkpoints_evictable",
    checkpoints.c.created_us,
    sqlite_where=and_(*_GIVES_UP),
    postgresql_where=and_(*_GIVES_UP),
)

Index(
    "checkpoints_unindexed",
    checkpoints.c.unindexed_us,
    sqlite_where=checkpoints.c.unindexed_us.is_not(None),
    postgresql_where=checkpoints.c.unindexed_us.is_not(None),
)

contents = Table(
    "contents",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("digest", LargeBinary, primary_key=True, comment="domain.digests.value_digest"),
    Column("type", Text, nullable=False),
    Column("data", LargeBinary, nullable=True, comment="null: evicted, only in envelopes"),
    Column("created_us", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False, server_default=text("0"), comment="of the data"),
    comment="Values of channels, once per tenant however many checkpoints have them.",
)
Index(
    "contents_evicted",
    contents.c.tenant,
    contents.c.size,
    sqlite_where=contents.c.data.is_(None),
    postgresql_where=contents.c.data.is_(None),
)

references = Table(
    "content_references",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("thread_id", Name, primary_key=True),
    Column("checkpoint_ns", Name, primary_key=True),
    Column("checkpoint_id", Name, primary_key=True),
    Index("references_by_checkpoint", "tenant", "thread_id", "checkpoint_ns", "checkpoint_id"),
    sqlite_with_rowid=False,
    comment="Which checkpoints need which contents; a content without any is swept.",
)

writes = Table(
    "writes",
    metadata,
    *_checkpoint_key(),
    Column("task_id", Name, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("task_path", Name, nullable=False),
    Column("channel", Name, nullable=False),
    Column("type", Text, nullable=False),
    Column("data", LargeBinary, nullable=True, comment="null: evicted, only in envelopes"),
    Column("digest", LargeBinary, nullable=False),
    Column(
        "revision",
        BigInteger,
        nullable=False,
        comment="of the checkpoint when this was last written; 0: no checkpoint yet",
    ),
    Column("created_us", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False, server_default=text("0"), comment="of the data"),
)
Index(
    "writes_evicted",
    writes.c.tenant,
    writes.c.size,
    sqlite_where=writes.c.data.is_(None),
    postgresql_where=writes.c.data.is_(None),
)
Index(
    "writes_early",
    writes.c.created_us,
    sqlite_where=writes.c.revision == 0,
    postgresql_where=writes.c.revision == 0,
)

requests = Table(
    "requests",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("request_id", Name, primary_key=True),
    Column("method", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False, comment="SHA-256 of the request"),
    Column("answer", LargeBinary, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("requests_by_time", "created_us"),
    comment="First answers of calls that are not upserts.",
)

events = Table(
    "events",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("thread_id", Name, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("kind", Integer, nullable=False, comment="domain.lineage.EventKind"),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False, comment="empty: no checkpoint is concerned"),
    Column("revision", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False, comment="how many checkpoints were"),
    Column("created_us", BigInteger, nullable=False),
    Index("events_by_time", "created_us"),
    sqlite_with_rowid=False,
    comment="What happened on each thread, one row for each number of its sequence.",
)

# --- what the archive did with it ------------------------------------------------------

handoffs = Table(
    "handoffs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True, comment="of the bundle, as stored"),
    Column("thread_id", Name, primary_key=True),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("handoffs_by_thread", "tenant", "thread_id", "sha256"),
    comment="Bundles that were handed off; their blobs are kept as long as the thread lives.",
)

envelopes = Table(
    "envelopes",
    metadata,
    *_checkpoint_key(),
    Column("ordinal", Integer, primary_key=True, comment="0: full; above: addenda"),
    Column("sha256", LargeBinary, nullable=False),
    Column("revision", BigInteger, nullable=False, comment="held by it and those before"),
    Index("envelopes_by_sha256", "tenant", "sha256"),
    comment="Certified envelopes of each checkpoint.",
)

placements = Table(
    "placements",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("blob_id", Text, nullable=False),
    Column("identifier", Text, nullable=False),
    Index("placements_by_blob", "tenant", "blob_id"),
    comment="Where stored bytes lie.",
)

blobs = Table(
    "blobs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("blob_id", Text, primary_key=True),
    Column("object_id", Text, nullable=False, comment="what its owner renews; empty: none"),
    Column("size_bytes", BigInteger, nullable=False, comment="content sent"),
    Column("billed_bytes", BigInteger, nullable=False, comment="over all puts"),
    Column("cost", BigInteger, nullable=False, comment="over all puts, in the smallest coin"),
    Column("epoch", BigInteger, nullable=True, comment="of the store at the last put"),
    Column("end_epoch", BigInteger, nullable=True, comment="gone when it starts; null: never"),
    Column("stored_us", BigInteger, nullable=False, comment="time of the last put"),
    Column("expire_us", BigInteger, nullable=True, comment="not gone before; null: never"),
    Index("blobs_by_expiry", "tenant", "expire_us"),
    comment="Blobs that puts made: how long they last and what they cost.",
)

envelope_parts = Table(
    "envelope_parts",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("envelope", LargeBinary, primary_key=True, comment="SHA-256 of the list of parts"),
    Column("sha256", LargeBinary, primary_key=True),
    Index("envelope_parts_by_part", "tenant", "sha256", "envelope"),
    comment="Parts of envelopes that are larger than one member may be.",
)

metadata_members = Table(
    "metadata_members",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True),
    Column("thread_id", Name, primary_key=True, comment="of a segment; empty: of the catalog"),
    Column("incarnation", BigInteger, primary_key=True, comment="of a segment; else 0"),
    Column("run", BigInteger, primary_key=True, comment="of a catalog's member; else 0"),
    Index("metadata_members_by_thread", "tenant", "thread_id", "incarnation", "run", "sha256"),
    comment="Stored segments and members of the catalog that are still needed.",
)

retractions = Table(
    "retractions",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    *_checkpoint_key(primary=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Index("retractions_by_tenant", "tenant", "number"),
    sqlite_autoincrement=True,  # a pack on its way names them: a number is never used again
    comment="Deletions that manifests have yet to tell.",
)

manifests = Table(
    "manifests",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("thread_id", Name, primary_key=True),
    Column("incarnation", BigInteger, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("segment", BigInteger, nullable=False, comment="number of the open segment"),
    Column("records", BigInteger, nullable=False, comment="in the whole chain"),
    Column("open_segment", LargeBinary, nullable=False, comment="its bytes, as stored"),
    Column("sha256", LargeBinary, nullable=False, comment="of the open segment"),
    Column("run", BigInteger, nullable=False, comment="catalog run that lists this head"),
    Column("ended", Boolean, nullable=False, comment="the incarnation was deleted"),
    Column("certified_us", BigInteger, nullable=False),
    Column(
        "next_generation",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="of the next segment if it begins a new one, above `generation`; else 0",
    ),
    Index("manifests_by_run", "tenant", "run"),
    comment="Certified head of each thread's manifest.",
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("thread_id", Name, primary_key=True),
    Column("incarnation", BigInteger, primary_key=True),
    Column("created_us", BigInteger, nullable=False),
    comment="Ended incarnations that the catalog has yet to tell.",
)

catalogs = Table(
    "catalogs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="number of flushes"),
    Column("sha256", LargeBinary, nullable=False),
    Column("runs", LargeBinary, nullable=False, comment="JSON: domain.catalog.Runs"),
    Column("certified_us", BigInteger, nullable=False),
    comment="Newest certified catalog of each tenant.",
)

packs = Table(
    "packs",
    metadata,
    Column("pack_id", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("state", Text, nullable=False, comment="journal.archive_plan.PackState"),
    Column("spool", Text, nullable=False, comment="name of the file with its exact bytes"),
    Column("plan", LargeBinary, nullable=False, comment="JSON: what certification records"),
    Column("created_us", BigInteger, nullable=False),
    Column(
        "kind",
        Text,
        nullable=False,
        server_default=text("'FINAL'"),
        comment="journal.archive_plan.PackKind",
    ),
    Index("packs_by_tenant", "tenant", "pack_id"),
    sqlite_autoincrement=True,
    comment="Packs on their way; a certified pack's row is removed.",
)

# --- what search finds -----------------------------------------------------------------

documents = Table(
    "search_documents",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    *_checkpoint_key(primary=False),
    Column("scope", Text, nullable=False, comment="word that stands for the thread"),
    Column("summary", Text, nullable=False),
    Column("body", Text, nullable=False, comment="searchable text of the state"),
    Column("planned", Boolean, nullable=False, comment="the body is a plan, not JSON"),
    Column("pointer", LargeBinary, nullable=False, comment="domain.memories.pointer_of"),
    Column("unembedded", Boolean, nullable=False, comment="the embedder owes it a vector"),
    Index(
        "search_documents_by_checkpoint",
        "tenant",
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        unique=True,
    ),
    Index("search_documents_by_pointer", "tenant", "pointer"),
    sqlite_autoincrement=True,
    comment="What is indexed of each checkpoint; full text has it under the same number.",
)
Index(
    "search_documents_unembedded",
    documents.c.number,
    sqlite_where=documents.c.unembedded,
    postgresql_where=documents.c.unembedded,
)

vectors = Table(
    "search_vectors",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    *_checkpoint_key(primary=False),
    Column("embedder", Text, nullable=False, comment="who made it; empty: the caller"),
    Column("vector", LargeBinary, nullable=False, comment="domain.vectors.pack"),
    Index(
        "search_vectors_by_checkpoint",
        "tenant",
        "checkpoint_id",
        "checkpoint_ns",
        "thread_id",
        unique=True,
    ),
    Index("search_vectors_by_thread", "tenant", "thread_id", "number"),
    sqlite_autoincrement=True,  # a number that was used is never used again: scans count on it
    comment="Vectors of checkpoints.",
)

memories = Table(
    "search_memories",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("pointer", LargeBinary, nullable=False, comment="domain.memories.pointer_of"),
    Column("text", Text, nullable=False, comment="what MemWal is told"),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 of the text"),
    Column("state", Integer, nullable=False, comment="domain.memories.MemoryState"),
    Column("unsure", Boolean, nullable=False, comment="it may have been stored already"),
    Column("attempts", Integer, nullable=False, comment="that failed"),
    Column("due_us", BigInteger, nullable=False, comment="time of the next step"),
    Column("job_id", Text, nullable=False, comment="MemWal's; empty: none"),
    Column("blob_id", Text, nullable=False, comment="where MemWal stored it; empty: unknown"),
    Column("created_us", BigInteger, nullable=False),
    Index("search_memories_by_pointer", "tenant", "pointer", "digest", unique=True),
    Index("search_memories_by_state", "state", "due_us", "tenant"),
    sqlite_autoincrement=True,
    comment="Summaries for MemWal and how far they got.",
)
UNSURE: ColumnElement[bool] = literal_column("unsure")
"""A memory is unsure, spelled as in the index: `unsure = 1` would not use it."""
Index("search_memories_unsure", memories.c.due_us, sqlite_where=UNSURE, postgresql_where=UNSURE)
