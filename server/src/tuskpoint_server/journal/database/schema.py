"""Tables of the journal, for every database it runs on.

A thread's row says how far its log has come: `seq` is its only clock, and the watermarks
say up to which number the log is certified and indexed. Rows below a thread refer to it by
number, and values to a family of threads by number, so that a tenant's name stands only
where something is looked up by it. Identifiers compare by code point: SQLite does so by
itself, PostgreSQL is told to (`COLLATE "C"`). Times are microseconds since the Unix epoch.
"""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    event,
    literal_column,
    or_,
)
from sqlalchemy.sql.elements import ColumnElement

from .statements import EMPTY

metadata = MetaData()

Name = Text().with_variant(Text(collation="C"), "postgresql")
"""Type of identifiers."""

RowNumber = BigInteger().with_variant(Integer, "sqlite")
"""Type of numbers that the database assigns; only INTEGER does so on SQLite."""


def _partial(name: str, *columns: Column[object], where: ColumnElement[bool]) -> Index:
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


# --- threads and their logs --------------------------------------------------------------

journal_info = Table(
    "journal_info",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", Text, nullable=False),
    comment="Facts about this journal: its identity, generation, and where its blobs are.",
)

threads = Table(
    "threads",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("thread_id", Name, nullable=False),
    Column("family", BigInteger, nullable=False, comment="threads that share values"),
    Column("incarnation", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="number of the last change"),
    Column("certified_seq", BigInteger, nullable=False, comment="changes up to here are stored"),
    Column("indexed_seq", BigInteger, nullable=False, comment="search knows changes up to here"),
    Column("dirty_since_us", BigInteger, nullable=True, comment="oldest change to be stored"),
    Column("dirty_bytes", BigInteger, nullable=False, comment="content to be stored"),
    Column("unindexed_since_us", BigInteger, nullable=True, comment="oldest change to be indexed"),
    Column("settings_seq", BigInteger, nullable=False, comment="last change of agent or setting"),
    Column("begun_seq", BigInteger, nullable=False, comment="before the incarnation's first"),
    Column("compacted_seq", BigInteger, nullable=False, comment="changes up to here are swept"),
    Column("deleted", Boolean, nullable=False, comment="the incarnation has ended"),
    Column("deleted_through", Name, nullable=False, comment="greatest ID ever deleted with it"),
    Column("agent_id", Name, nullable=False),
    Column("state", Integer, nullable=False, comment="domain.model.ThreadState"),
    Column("head_id", Name, nullable=False, comment="latest root checkpoint; empty: none"),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("retention_s", BigInteger, nullable=False, comment="0: kept for ever"),
    Column("expire_us", BigInteger, nullable=True, comment="deleted then; null: never"),
    Column("unsearchable", Boolean, nullable=False),
    Column("added_bytes", BigInteger, nullable=False, comment="content saved in all"),
    Column("removed_bytes", BigInteger, nullable=False, comment="of those, by removed ones"),
    Column("checkpoint_count", BigInteger, nullable=False, comment="checkpoints that are here"),
    Column("removed_count", BigInteger, nullable=False, comment="removed since the last marking"),
    Index("threads_by_name", "tenant", "thread_id", unique=True),
    Index("threads_by_family", "family"),
    Index("threads_by_agent", "tenant", "agent_id", "thread_id"),
    sqlite_autoincrement=True,
    comment="A thread's log: how long it is, and how far it is certified and indexed.",
)
_partial(
    "threads_dirty",
    threads.c.tenant,
    threads.c.dirty_since_us,
    where=threads.c.dirty_since_us.is_not(None),
)
_partial(
    "threads_unindexed",
    threads.c.unindexed_since_us,
    where=threads.c.unindexed_since_us.is_not(None),
)
_partial("threads_expiring", threads.c.expire_us, where=threads.c.expire_us.is_not(None))
_partial(
    "threads_waiting",
    threads.c.tenant,
    threads.c.state,
    threads.c.thread_id,
    where=threads.c.state > literal_column("1"),
)

changes = Table(
    "changes",
    metadata,
    Column("thread", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("kind", Integer, nullable=False, comment="domain.lineage.EventKind"),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False, comment="empty: no checkpoint is concerned"),
    Column("deleted", BigInteger, nullable=False, comment="how many checkpoints were"),
    Column("created_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    comment="The log: one row for each number of a thread.",
)

removed = Table(
    "removed",
    metadata,
    Column("thread", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("checkpoint_ns", Name, primary_key=True),
    Column("checkpoint_id", Name, primary_key=True, comment="empty: the whole incarnation"),
    Column("incarnation", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    comment="Removals that are not certified yet.",
)

# --- checkpoints -------------------------------------------------------------------------

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("thread", BigInteger, nullable=False),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="change that made this row as it is"),
    Column("parent_id", Name, nullable=False, comment="empty at the root"),
    Column("state", LargeBinary, nullable=False, comment="domain.state.encode_state"),
    Column("metadata", LargeBinary, nullable=False, comment="JSON as it was sent"),
    Column("run_id", Name, nullable=False),
    Column("root_id", Name, nullable=False, comment="of a subgraph: the root it ran under"),
    Column("delta_channels", LargeBinary, nullable=False, comment="JSON list of names"),
    Column("delta_base", LargeBinary, nullable=True, comment="tuskpoint.v1.DeltaBase"),
    Column("label", Name, nullable=False),
    Column("summary", Text, nullable=False),
    Column("forked_from", Name, nullable=False),
    Column("rolled_back_from", Name, nullable=False),
    Column("adopted_from", Name, nullable=False),
    Column("created_us", BigInteger, nullable=False, comment="of the first save"),
    Column(
        "held",
        LargeBinary,
        nullable=True,
        comment="segments that hold it besides those of its range (journal.archiving.held)",
    ),
    Index("checkpoints_by_key", "thread", "checkpoint_ns", "checkpoint_id", unique=True),
    Index("checkpoints_by_id", "tenant", "checkpoint_id"),
    sqlite_autoincrement=True,
    comment="Checkpoints; channels name their values by digest.",
)
_partial(
    "checkpoints_by_label",
    checkpoints.c.tenant,
    checkpoints.c.label,
    where=checkpoints.c.label != EMPTY,
)
_partial(
    "checkpoints_by_run",
    checkpoints.c.tenant,
    checkpoints.c.run_id,
    where=checkpoints.c.run_id != EMPTY,
)
_partial(
    "checkpoints_by_root",
    checkpoints.c.thread,
    checkpoints.c.root_id,
    where=checkpoints.c.root_id != EMPTY,
)
for _origin in ("forked_from", "adopted_from"):
    _partial(
        f"checkpoints_{_origin}",
        checkpoints.c.tenant,
        checkpoints.c[_origin],
        where=checkpoints.c[_origin] != EMPTY,
    )
DESCENDED = or_(
    checkpoints.c.forked_from != EMPTY,
    checkpoints.c.rolled_back_from != EMPTY,
    checkpoints.c.adopted_from != EMPTY,
)
"""The checkpoint came from one that is not its parent."""
_partial("checkpoints_descended", checkpoints.c.thread, where=DESCENDED)

writes = Table(
    "writes",
    metadata,
    Column("number", RowNumber, primary_key=True),
    Column("thread", BigInteger, nullable=False),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("task_id", Name, nullable=False),
    Column("idx", Integer, nullable=False),
    Column("task_path", Name, nullable=False),
    Column("channel", Name, nullable=False),
    Column("type", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False, comment="of the value, whole"),
    Column("encoding", Integer, nullable=False, comment="domain.values.Encoding"),
    Column("seq", BigInteger, nullable=False, comment="change that made this row as it is"),
    Column("early_us", BigInteger, nullable=True, comment="came then, before its checkpoint"),
    Column("data", LargeBinary, nullable=True, comment="null: evicted; last, as it may be long"),
    Index(
        "writes_by_key",
        "thread",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        unique=True,
    ),
    comment="Pending writes, with their values.",
)
_partial("writes_early", writes.c.thread, where=writes.c.early_us.is_not(None))
_partial("writes_evicted", writes.c.thread, where=writes.c.data.is_(None))

contents = Table(
    "contents",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("family", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False, comment="domain.values.value_digest"),
    Column("type", Text, nullable=False),
    Column("size", BigInteger, nullable=False, comment="of the value, whole"),
    Column("encoding", Integer, nullable=False, comment="domain.values.Encoding"),
    Column("keyframe", LargeBinary, nullable=True, comment="digest that a patch is based on"),
    Column("patches", Integer, nullable=False, comment="on the keyframe before this one"),
    Column("patch_bytes", BigInteger, nullable=False, comment="of them, with this one"),
    Column("thread", BigInteger, nullable=False, comment="whose change brought it"),
    Column("seq", BigInteger, nullable=False, comment="that change"),
    Column("segment", LargeBinary, nullable=True, comment="of an evicted one: what holds it"),
    Column("data", LargeBinary, nullable=True, comment="null: evicted; last, as it may be long"),
    Index("contents_by_digest", "family", "digest", unique=True),
    sqlite_autoincrement=True,  # a pass spares rows above a number: none is used twice
    comment="Values of channels, once per family of threads.",
)
_partial("contents_evicted", contents.c.family, where=contents.c.data.is_(None))
_partial("contents_held", contents.c.segment, where=contents.c.segment.is_not(None))

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

# --- what is stored, and where -----------------------------------------------------------

members = Table(
    "members",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False, comment="domain.formats.stored_json.Kind"),
    Column("size", BigInteger, nullable=False),
    Column("blob_id", Text, nullable=False),
    Column("identifier", Text, nullable=False),
    Column("parts", LargeBinary, nullable=True, comment="hashes of its parts, joined"),
    Column("needs", LargeBinary, nullable=True, comment="of a segment: members it names, joined"),
    Column("thread", BigInteger, nullable=True, comment="of a segment: whose log it holds"),
    Column("incarnation", BigInteger, nullable=True),
    Column("first_seq", BigInteger, nullable=True, comment="of the range that it holds, if any"),
    Column("last_seq", BigInteger, nullable=True),
    Column("digests", LargeBinary, nullable=True, comment="values in it, 16 bytes of each, sorted"),
    Column("patched", LargeBinary, nullable=True, comment="of these, patches on another member's"),
    Index("members_by_blob", "tenant", "blob_id"),
    comment="Stored bytes that something needs: segments, parts, runs, catalogs, hand-offs.",
)
_partial(
    "segments_by_thread", members.c.thread, members.c.last_seq, where=members.c.thread.is_not(None)
)

uses = Table(
    "uses",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("segment", LargeBinary, primary_key=True),
    Column("thread", BigInteger, primary_key=True, autoincrement=False),
    Index("uses_by_thread", "thread"),
    sqlite_with_rowid=False,
    comment="Which threads need which segments.",
)

holes = Table(
    "holes",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("thread", BigInteger, nullable=False),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="greatest change that is not stored"),
    Column("segment", LargeBinary, nullable=True, comment="lost member; null: not stored yet"),
    Column("reason", Text, nullable=False),
    Column("size", BigInteger, nullable=False, comment="of the content in it"),
    Column("retry_us", BigInteger, nullable=False),
    Index("holes_by_thread", "thread"),
    Index("holes_by_tenant", "tenant", "retry_us"),
    comment="What is at or below a watermark and cannot be read from the blob store.",
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

catalogs = Table(
    "catalogs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False, comment="of catalogs in the generation"),
    Column("sha256", LargeBinary, nullable=False),
    Column("content", LargeBinary, nullable=False, comment="JSON: domain.formats.catalogs"),
    Column("certified_us", BigInteger, nullable=False),
    comment="Newest certified catalog of each tenant.",
)

packs = Table(
    "packs",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("spool", Text, nullable=False, comment="name of the file with its exact bytes"),
    Column("plan", LargeBinary, nullable=False, comment="JSON: what certification records"),
    Column("created_us", BigInteger, nullable=False),
    Index("packs_by_tenant", "tenant", "number"),
    sqlite_autoincrement=True,
    comment="Packs on their way; a certified pack's row is removed.",
)

handoffs = Table(
    "handoffs",
    metadata,
    Column("tenant", Name, primary_key=True),
    Column("sha256", LargeBinary, primary_key=True, comment="of the bundle, as stored"),
    Column("thread", BigInteger, primary_key=True, autoincrement=False),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="change that records it"),
    Column("content_seq", BigInteger, nullable=False, comment="of the thread, as it was read"),
    Column("created_us", BigInteger, nullable=False),
    Index("handoffs_by_thread", "thread"),
    comment="Bundles that were handed off; their blobs are kept as long as the thread lives.",
)

# --- what search finds -------------------------------------------------------------------

documents = Table(
    "search_documents",
    metadata,
    Column("number", RowNumber, primary_key=True, comment="of the checkpoint, and in full text"),
    Column("tenant", Name, nullable=False),
    Column("thread", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False, comment="of the checkpoint that it says"),
    Column("planned", Boolean, nullable=False, comment="the body is a plan, not JSON"),
    Column("truncated", Boolean, nullable=False, comment="of what is new only a part is indexed"),
    Column("pointer", LargeBinary, nullable=False, comment="domain.search.pointer_of"),
    Column("unembedded", Boolean, nullable=False, comment="the embedder owes it a vector"),
    Index("search_documents_by_pointer", "tenant", "pointer"),
    comment="Checkpoints that are indexed; full text has their text under the same numbers.",
)
_partial("search_documents_unembedded", documents.c.number, where=documents.c.unembedded)
_partial("search_documents_truncated", documents.c.tenant, where=documents.c.truncated)
# The text of documents, found by the stems of its words, without accents
# (https://www.sqlite.org/fts5.html).
event.listen(
    documents,
    "after_create",
    DDL(  # type: ignore[no-untyped-call]
        "CREATE VIRTUAL TABLE search_text USING fts5("
        "scope, summary, body, tokenize='porter unicode61 remove_diacritics 2')"
    ).execute_if(dialect="sqlite"),
)

vectors = Table(
    "search_vectors",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("thread", BigInteger, nullable=False),
    Column("checkpoint_ns", Name, nullable=False),
    Column("checkpoint_id", Name, nullable=False),
    Column("embedder", Text, nullable=False, comment="who made it; empty: the caller"),
    Column("vector", LargeBinary, nullable=False, comment="domain.search.pack_vector"),
    Index("search_vectors_by_checkpoint", "thread", "checkpoint_ns", "checkpoint_id", unique=True),
    Index("search_vectors_by_tenant", "tenant"),
    sqlite_autoincrement=True,  # scans go on above a number: none is used twice
    comment="Vectors of checkpoints.",
)

memories = Table(
    "search_memories",
    metadata,
    Column("number", RowNumber, primary_key=True, autoincrement=True),
    Column("tenant", Name, nullable=False),
    Column("pointer", LargeBinary, nullable=False, comment="domain.search.pointer_of"),
    Column("text", Text, nullable=False, comment="what MemWal remembers"),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 of the text"),
    Column("state", Integer, nullable=False, comment="domain.search.MemoryState"),
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
_partial("search_memories_unsure", memories.c.due_us, where=UNSURE)
