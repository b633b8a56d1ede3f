"""Tables of the journal.

A thread's row says how far its log has come: `seq` is its only clock, and the watermarks
say up to which number the log is certified and indexed. Rows below a thread refer to it by
number, and values to a family of threads by number, so that a tenant's name stands only
where something is looked up by it. Identifiers compare by code point. Times are
microseconds since the Unix epoch.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    event,
    literal_column,
    or_,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from .sealing import SealedColumn, bind_to_place
from .statements import EMPTY

metadata = MetaData()

_TYPES: dict[str, TypeEngine[Any]] = {
    "text": Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"),
    "blob": LargeBinary(),
    "sealed": SealedColumn(),
    "int": BigInteger(),
    "small": Integer(),
    "bool": Boolean(),
}
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def _table(name: str, columns: str, *indexes: Index, **options: Any) -> Table:
    """Return a table whose columns are named with their types, separated by commas.

    A question mark: it may be null. An exclamation mark: it belongs to the primary key. A
    column `number` without a type is the number that the database gives to a row.
    """
    table_columns: list[Column[object]] = []
    for column in columns.split(","):
        column_name, _, kind = column.strip().partition(" ")
        if not kind:
            table_columns.append(Column(column_name, _NUMBER, primary_key=True))
        elif kind.endswith("!"):
            table_columns.append(
                Column(column_name, _TYPES[kind[:-1]], primary_key=True, autoincrement=False)
            )
        else:
            optional = kind.endswith("?")
            table_columns.append(Column(column_name, _TYPES[kind.rstrip("?")], nullable=optional))
    return Table(name, metadata, *table_columns, *indexes, **options)


def _partial_index(name: str, *columns: Column[object], where: ColumnElement[bool]) -> Index:
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


NUMBERS, NUMBERS_AT_ONCE = "thread_numbers", 1000
"""A sequence where there is one: each server takes numbers of threads and families from it."""
Sequence(NUMBERS, increment=NUMBERS_AT_ONCE, metadata=metadata)

# Facts about this journal: its identity, generation, and where its blobs are.
journal_info = _table("journal_info", "name text!, value text")

# Who does the duties that one server at a time has, and until when by the database's clock; 0: it
# was released. `settings`: those of this server that all need, as JSON. Only where several servers
# share the journal.
leases = _table("leases", "name text!, owner text, fence int, until_us int, settings text")

# A thread's log: `seq` is the number of its last change, up to `certified_seq` all is stored, up
# to `indexed_seq` search knows all; what waits for either does so since the `..._since_us`, as
# `dirty_bytes` of content. `settings_seq` is the last change of agent or setting. The incarnation
# begins after `begun_seq`; changes up to `compacted_seq` are swept. `deleted`: it has ended, and
# `deleted_through` is the greatest ID that was ever deleted so. `head_id`: the latest root
# checkpoint. `added_bytes`: content saved in all, `removed_bytes` of those by removed
# checkpoints, of which there are `removed_count` since the last marking. `taken`: how often values
# of its family were removed or evicted; caches of the family end then. `binding`: what
# `binding.Binder.thread` returns; null until a journal of layout 1 is bound.
threads = _table(
    "threads",
    "number, tenant text, thread_id text, family int, incarnation int, seq int, "
    "certified_seq int, indexed_seq int, dirty_since_us int?, dirty_bytes int, "
    "unindexed_since_us int?, settings_seq int, begun_seq int, compacted_seq int, "
    "deleted bool, deleted_through text, agent_id text, state small, head_id text, "
    "created_us int, updated_us int, retention_s int, expire_us int?, unsearchable bool, "
    "added_bytes int, removed_bytes int, checkpoint_count int, removed_count int, taken int, "
    "binding blob?",
    Index("threads_by_name", "tenant", "thread_id", unique=True),
    Index("threads_by_family", "family"),
    Index("threads_by_agent", "tenant", "agent_id", "thread_id"),
    sqlite_autoincrement=True,
)
_dirty, _unindexed = threads.c.dirty_since_us, threads.c.unindexed_since_us
_partial_index("threads_dirty", threads.c.tenant, _dirty, where=_dirty.is_not(None))
_partial_index("threads_unindexed", _unindexed, where=_unindexed.is_not(None))
_partial_index("threads_expiring", threads.c.expire_us, where=threads.c.expire_us.is_not(None))
_partial_index(
    "threads_waiting",
    threads.c.tenant,
    threads.c.state,
    threads.c.thread_id,
    where=threads.c.state > literal_column("1"),
)

# The log: one row for each number of a thread. `kind` is a domain.threads.EventKind; without an
# ID no checkpoint is concerned; `deleted` counts checkpoints.
changes = _table(
    "changes",
    "thread int!, seq int!, incarnation int, kind small, checkpoint_ns text, "
    "checkpoint_id text, deleted int, created_us int, mac blob?",
    sqlite_with_rowid=False,
)

# Removals that are not certified yet; without an ID of the whole incarnation.
removed = _table(
    "removed",
    "thread int!, seq int!, checkpoint_ns text!, checkpoint_id text!, incarnation int",
    sqlite_with_rowid=False,
)

# Channels name their values by digest. `seq` is the change that made the row as it is, `state` is
# domain.state.encode_state's, `metadata` JSON as it was sent, `root_id` of a subgraph the root it
# ran under, `delta_channels` a JSON list of names, `delta_base` a tuskpoint.v1.DeltaBase. `held`:
# segments that hold it besides those of its range (checkpoints.located). `created_us` is of the
# first save.
checkpoints = _table(
    "checkpoints",
    "number, tenant text, thread int, checkpoint_ns text, checkpoint_id text, seq int, "
    "parent_id text, state blob, metadata blob, run_id text, root_id text, "
    "delta_channels blob, delta_base blob?, label text, summary text, forked_from text, "
    "rolled_back_from text, adopted_from text, created_us int, held blob?, mac blob?",
    Index("checkpoints_by_key", "thread", "checkpoint_ns", "checkpoint_id", unique=True),
    Index("checkpoints_by_id", "tenant", "checkpoint_id"),
    sqlite_autoincrement=True,
)
for _name, _of, _given in (
    ("checkpoints_by_label", "tenant", "label"),
    ("checkpoints_by_run", "tenant", "run_id"),
    ("checkpoints_by_root", "thread", "root_id"),
    ("checkpoints_forked_from", "tenant", "forked_from"),
    ("checkpoints_adopted_from", "tenant", "adopted_from"),
):
    _column = checkpoints.c[_given]
    _partial_index(_name, checkpoints.c[_of], _column, where=_column != EMPTY)
DESCENDED = or_(
    checkpoints.c.forked_from != EMPTY,
    checkpoints.c.rolled_back_from != EMPTY,
    checkpoints.c.adopted_from != EMPTY,
)
"""The checkpoint came from one that is not its parent."""
_partial_index("checkpoints_descended", checkpoints.c.thread, where=DESCENDED)

# Items of stores, beside the checkpoints that they are (domain.items): when each was made and put
# last, and when it ends, `ttl_us` after it was put or read; 0 and null: never. `more`: so many
# checkpoints beside its own hold further texts by which search knows it.
items = _table(
    "items",
    "thread int!, checkpoint_id text!, created_us int, updated_us int, ttl_us int, "
    "expire_us int?, more small",
    sqlite_with_rowid=False,
)
_partial_index("items_expiring", items.c.expire_us, where=items.c.expire_us.is_not(None))

# Pending writes, with their values. `early_us`: it came then, before its checkpoint. `data` is
# null where it was evicted, and last, as it may be long; `size` is of the value, whole.
writes = _table(
    "writes",
    "number, thread int, checkpoint_ns text, checkpoint_id text, task_id text, idx small, "
    "task_path text, channel text, type text, digest blob, size int, encoding small, "
    "seq int, early_us int?, mac blob?, data sealed?",
    Index(
        "writes_by_key", "thread", "checkpoint_ns", "checkpoint_id", "task_id", "idx", unique=True
    ),
)
_partial_index("writes_early", writes.c.thread, where=writes.c.early_us.is_not(None))
_partial_index("writes_evicted", writes.c.thread, where=writes.c.data.is_(None))

# Values of channels, once per family of threads. Of a patch: the digest of its keyframe, how many
# patches are on it before this one, and their bytes with this one. `thread` and `seq`: whose
# change brought it. `segment`: what holds an evicted one.
contents = _table(
    "contents",
    "number, family int, digest blob, type text, size int, encoding small, keyframe blob?, "
    "patches small, patch_bytes int, thread int, seq int, segment blob?, data sealed?",
    Index("contents_by_digest", "family", "digest", unique=True),
)
_keyframe = contents.c.keyframe
_partial_index("contents_by_keyframe", contents.c.family, _keyframe, where=_keyframe.is_not(None))
_partial_index("contents_evicted", contents.c.family, where=contents.c.data.is_(None))
_partial_index("contents_held", contents.c.segment, where=contents.c.segment.is_not(None))

# First answers of calls that are not upserts; `fingerprint` is the SHA-256 of the request.
requests = _table(
    "requests",
    "tenant text!, request_id text!, method text, fingerprint blob, answer sealed, created_us int",
    Index("requests_by_time", "created_us"),
)

# Stored bytes that something needs, of a domain.formats.stored_json.Kind. `key`: opens sealed
# ones. `parts`: hashes of its parts, joined. Of a segment: `needs`, the members that it names,
# joined; whose log and which range it holds, if any; `digests`, 16 bytes of each value in it,
# sorted, and which of them are patches on another member's.
members = _table(
    "members",
    "tenant text!, sha256 blob!, kind text, size int, blob_id text, identifier text, key sealed?, "
    "parts blob?, needs blob?, thread int?, incarnation int?, first_seq int?, last_seq int?, "
    "digests blob?, patched blob?",
    Index("members_by_blob", "tenant", "blob_id"),
)
_partial_index(
    "segments_by_thread", members.c.thread, members.c.last_seq, where=members.c.thread.is_not(None)
)

# Which threads need which segments.
uses = _table(
    "uses",
    "tenant text!, segment blob!, thread int!",
    Index("uses_by_thread", "thread"),
    sqlite_with_rowid=False,
)

# What is at or below a watermark and cannot be read from the blob store: changes up to `seq`,
# because a member was lost, or (without one) it is not stored yet. A flush that began before
# forgets gaps by number, so none is used twice. The name in the database is that of layout 1.
gaps = _table(
    "holes",
    "number, tenant text, thread int, checkpoint_ns text, checkpoint_id text, seq int, "
    "segment blob?, reason text, size int, retry_us int",
    Index("holes_by_thread", "thread"),
    Index("holes_by_tenant", "tenant", "retry_us"),
    sqlite_autoincrement=True,
)

# Blobs that puts made: what its owner renews, what was sent, billed and paid over all puts, the
# store's epoch at the last put, the epoch at whose start it is gone and the time before which it
# is not (null: never).
blobs = _table(
    "blobs",
    "tenant text!, blob_id text!, object_id text, size_bytes int, billed_bytes int, "
    "cost int, epoch int?, end_epoch int?, stored_us int, expire_us int?",
    Index("blobs_by_expiry", "tenant", "expire_us"),
)

# Newest certified catalog of each tenant. `root`: its key as the key provider wrapped it.
catalogs = _table(
    "catalogs",
    "tenant text!, generation int, number int, sha256 blob, content sealed, root blob?, "
    "certified_us int",
)

# Packs on their way: the file with their exact bytes, and as JSON what certification records.
packs = _table(
    "packs",
    "number, tenant text, spool text, plan sealed, created_us int",
    Index("packs_by_tenant", "tenant", "number"),
    sqlite_autoincrement=True,
)

# What the other servers of a shared journal ask of the leader, and what it says. `asked` counts
# what they wait for, `all_asked` the requests to certify everything, of which the leader tried the
# first `all_tried`; `outcome` is that of the last try, as `flush_requests` has it. `trouble` is the
# leader's last error, empty since the last success, and `failing` counts renewals that fail.
flush_requests = _table(
    "flush_requests",
    "tenant text!, asked int, all_asked int, all_tried int, outcome text, trouble text, "
    "trouble_us int?, failing int",
)

# Bundles that were handed off; their blobs are kept as long as the thread lives. `seq` is the
# change that records it, `content_seq` that of the thread as it was read.
handoffs = _table(
    "handoffs",
    "tenant text!, sha256 blob!, thread int!, checkpoint_ns text, checkpoint_id text, "
    "seq int, content_seq int, created_us int",
    Index("handoffs_by_thread", "thread"),
)

# Checkpoints that are indexed, under their number, which full text has too. `planned`: the body
# is a plan, not JSON; `unembedded`: the embedder owes it a vector.
documents = _table(
    "search_documents",
    "number, tenant text, thread int, seq int, planned bool, truncated bool, pointer blob, "
    "unembedded bool",
    Index("search_documents_by_pointer", "tenant", "pointer"),
)
UNEMBEDDED: ColumnElement[bool] = literal_column("search_documents.unembedded")
"""A document is owed a vector, spelled as in the index: `unembedded = 1` would not use it."""
_partial_index("search_documents_unembedded", documents.c.number, where=documents.c.unembedded)
_partial_index("search_documents_truncated", documents.c.tenant, where=documents.c.truncated)
# The text of documents under their numbers, as `search.text` uses it.
_TEXT_OF = {
    "sqlite": (
        "CREATE VIRTUAL TABLE search_text USING fts5("
        "scope, summary, body, tokenize='porter unicode61 remove_diacritics 2')",
    ),
    "postgresql": (
        "CREATE TABLE search_text (rowid BIGINT PRIMARY KEY, scope TEXT NOT NULL,"
        " summary TEXT NOT NULL, body TEXT NOT NULL, words TSVECTOR NOT NULL)",
        "CREATE INDEX search_text_words ON search_text USING gin (words)",
        "CREATE TEXT SEARCH DICTIONARY tuskpoint_stems (TEMPLATE = snowball, LANGUAGE = english)",
        "CREATE TEXT SEARCH CONFIGURATION tuskpoint (COPY = simple)",
        "ALTER TEXT SEARCH CONFIGURATION tuskpoint"
        " ALTER MAPPING FOR asciiword, word WITH tuskpoint_stems",
    ),
}
DROP_TEXT = {
    "sqlite": ("DROP TABLE search_text",),
    "postgresql": (
        f"DROP SEQUENCE {NUMBERS}",
        "DROP TABLE search_text",
        "DROP TEXT SEARCH CONFIGURATION tuskpoint",
        "DROP TEXT SEARCH DICTIONARY tuskpoint_stems",
    ),
}
"""What removes the text of documents, by dialect."""
for _dialect, _statements in _TEXT_OF.items():
    for _statement in _statements:
        event.listen(
            documents,
            "after_create",
            DDL(_statement).execute_if(dialect=_dialect),  # type: ignore[no-untyped-call]
        )

# Vectors of checkpoints; without an embedder the caller's. Scans go on above a number, so none
# is used twice.
vectors = _table(
    "search_vectors",
    "number, tenant text, thread int, checkpoint_ns text, checkpoint_id text, embedder text, "
    "vector blob",
    Index("search_vectors_by_checkpoint", "thread", "checkpoint_ns", "checkpoint_id", unique=True),
    Index("search_vectors_by_tenant", "tenant"),
    sqlite_autoincrement=True,
)

# Summaries for MemWal, in a domain.search.MemoryState. `unsure`: it may have been stored
# already; `attempts` failed; the next step is at `due_us`.
memories = _table(
    "search_memories",
    "number, tenant text, pointer blob, text text, digest blob, state small, unsure bool, "
    "attempts small, due_us int, job_id text, blob_id text, created_us int",
    Index("search_memories_by_pointer", "tenant", "pointer", "digest", unique=True),
    Index("search_memories_by_state", "state", "due_us", "tenant"),
    sqlite_autoincrement=True,
)
UNSURE: ColumnElement[bool] = literal_column("unsure")
"""A memory is unsure, spelled as in the index: `unsure = 1` would not use it."""
_partial_index("search_memories_unsure", memories.c.due_us, where=UNSURE)


# To which places sealed bytes are bound. A digest says which value it is, so a write needs no more.
# All threads of a family have one tenant.
_OF_FAMILY: ColumnElement[str] = literal_column(
    "(SELECT owner.tenant FROM threads AS owner WHERE owner.family = contents.family LIMIT 1)"
)
_OF_THREAD: ColumnElement[str] = literal_column(
    "(SELECT owner.tenant FROM threads AS owner WHERE owner.number = writes.thread)"
)
bind_to_place(contents, _OF_FAMILY, "family", "digest")
bind_to_place(writes, _OF_THREAD, "thread", "digest")
bind_to_place(requests, requests.c.tenant, "request_id", "method", "fingerprint")
bind_to_place(members, members.c.tenant, "sha256")
bind_to_place(catalogs, catalogs.c.tenant, "generation", "number", "sha256")
bind_to_place(packs, packs.c.tenant, "spool")
SEALED = (contents, writes, requests, members, catalogs, packs)
"""Tables with a sealed column."""
