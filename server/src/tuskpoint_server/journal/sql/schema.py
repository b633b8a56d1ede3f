"""Tables of the journal.

A thread's row records the progress of its log: `seq` is its only clock, and the watermarks are the
numbers up to which the log is certified and indexed. Rows below a thread refer to the thread by
number, and values to a family of threads by number, so that a tenant's name is stored only in rows
that are looked up by it. Identifiers compare by code point. Times are microseconds since the Unix
epoch.
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
    """Return a table whose columns are given as names with types, separated by commas.

    A question mark: the column may be null. An exclamation mark: the column belongs to the primary
    key. A column `number` without a type is the number that the database gives to a row.
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
"""Sequence that gives servers numbers of threads and families, if the database has sequences."""
Sequence(NUMBERS, increment=NUMBERS_AT_ONCE, metadata=metadata)

# Facts about this journal, such as its ID, its generation and the place of its blobs.
journal_info = _table("journal_info", "name text!, value text")

# The server that has the leader's lease, and its expiry by the database's clock; 0: released.
# `settings`: settings of the leader that all servers need, as JSON. Only in shared journals.
leases = _table("leases", "name text!, owner text, fence int, until_us int, settings text")

# A thread's log. `seq`: number of its last change; changes up to `certified_seq` are stored,
# changes up to `indexed_seq` are indexed. `..._since_us`: time since which a change waits for
# storing or indexing; `dirty_bytes`: content that waits for storing. `settings_seq`: last change of
# the agent or a setting. `begun_seq`: the incarnation starts after this number; changes up to
# `compacted_seq` are removed. `deleted`: the incarnation has ended; `deleted_through`: greatest ID
# that any deletion of the thread removed. `head_id`: the latest root checkpoint. `added_bytes`: all
# saved content; `removed_bytes`: its part in removed checkpoints; `removed_count`: checkpoints
# removed since the last garbage collection. `taken`: number of times that values of the family were
# removed or evicted; each time invalidates caches of the family. `binding`: result of
# `binding.Binder.thread`; null until a journal of layout 1 is bound. `lease`: the thread's last
# lease, as `core.leases` encodes it, and the time at which the lease ends; null if there is none.
threads = _table(
    "threads",
    "number, tenant text, thread_id text, family int, incarnation int, seq int, "
    "certified_seq int, indexed_seq int, dirty_since_us int?, dirty_bytes int, "
    "unindexed_since_us int?, settings_seq int, begun_seq int, compacted_seq int, "
    "deleted bool, deleted_through text, agent_id text, state small, head_id text, "
    "created_us int, updated_us int, retention_s int, expire_us int?, unsearchable bool, "
    "added_bytes int, removed_bytes int, checkpoint_count int, removed_count int, taken int, "
    "binding blob?, lease text?, lease_until_us int?",
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

# The log: one row for each number of a thread. `kind`: a domain.threads.EventKind. Without an ID,
# the change concerns no checkpoint. `deleted`: number of deleted checkpoints.
changes = _table(
    "changes",
    "thread int!, seq int!, incarnation int, kind small, checkpoint_ns text, "
    "checkpoint_id text, deleted int, created_us int, mac blob?",
    sqlite_with_rowid=False,
)

# Removals that are not certified yet; without an ID, the removal of the whole incarnation.
removed = _table(
    "removed",
    "thread int!, seq int!, checkpoint_ns text!, checkpoint_id text!, incarnation int",
    sqlite_with_rowid=False,
)

# Channels name their values by digest. `seq`: the last change of the row. `state`: result of
# domain.state.encode_state. `metadata`: JSON as the caller sent it. `root_id`: root checkpoint
# under which a subgraph ran. `delta_channels`: JSON list of names. `delta_base`: a
# tuskpoint.v1.DeltaBase. `held`: segments with the checkpoint, besides the segments of its range
# (`values.segment_refs`). `created_us`: time of the first save.
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
"""The checkpoint came from a checkpoint that is not its parent."""
_partial_index("checkpoints_descended", checkpoints.c.thread, where=DESCENDED)

# Items of stores, beside their checkpoints (domain.items): times of the first and the last put, and
# the expiry, `ttl_us` after the last put or read; 0 and null: never. `more`: number of checkpoints,
# beside the item's own, with further texts for search.
items = _table(
    "items",
    "thread int!, checkpoint_id text!, created_us int, updated_us int, ttl_us int, "
    "expire_us int?, more small",
    sqlite_with_rowid=False,
)
_partial_index("items_expiring", items.c.expire_us, where=items.c.expire_us.is_not(None))

# Pending writes, with their values. `early_us`: arrival time of a write that came before its
# checkpoint. `data`: null if evicted, and the last column, because it may be long. `size`: bytes of
# the whole value.
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

# Values of channels, once per family of threads. For a patch: the digest of its keyframe, the
# number of patches on the keyframe before this patch, and the bytes of the patches, including this
# one. `thread` and `seq`: the change that brought the value. `segment`: segment with an evicted
# value.
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

# First answers of calls that are not upserts; `fingerprint`: SHA-256 of the request.
requests = _table(
    "requests",
    "tenant text!, request_id text!, method text, fingerprint blob, answer sealed, created_us int",
    Index("requests_by_time", "created_us"),
)

# Stored bytes that are still needed, of a domain.formats.stored_json.Kind. `key`: opens sealed
# bytes. `parts`: joined hashes of the parts. For a segment: `needs`, the joined hashes of members
# that it names; thread and range of its log, if any; `digests`, 16 bytes of each value in it,
# sorted, and marks of the values that are patches on another member's values.
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

# Segments that each thread needs.
uses = _table(
    "uses",
    "tenant text!, segment blob!, thread int!",
    Index("uses_by_thread", "thread"),
    sqlite_with_rowid=False,
)

# Gaps: content at or below a watermark that cannot be read from the blob store. With a `segment`:
# changes up to `seq` were lost with the segment; without: the content is not stored yet. A flush
# removes the gaps that it has read by number, so no number is used twice. The table has its name
# from layout 1.
gaps = _table(
    "holes",
    "number, tenant text, thread int, checkpoint_ns text, checkpoint_id text, seq int, "
    "segment blob?, reason text, size int, retry_us int",
    Index("holes_by_thread", "thread"),
    Index("holes_by_tenant", "tenant", "retry_us"),
    sqlite_autoincrement=True,
)

# Blobs of puts: parameters of renewals, totals of sent, billed and paid amounts over all puts, the
# store's epoch at the last put, the epoch at whose start the blob ends, and the time before which
# it does not end (null: never).
blobs = _table(
    "blobs",
    "tenant text!, blob_id text!, object_id text, size_bytes int, billed_bytes int, "
    "cost int, epoch int?, end_epoch int?, stored_us int, expire_us int?",
    Index("blobs_by_expiry", "tenant", "expire_us"),
)

# Newest certified catalog of each tenant. `root`: its key, wrapped by the key provider.
catalogs = _table(
    "catalogs",
    "tenant text!, generation int, number int, sha256 blob, content sealed, root blob?, "
    "certified_us int",
)

# In-flight packs: the file with the exact bytes, and the record of the certification as JSON.
packs = _table(
    "packs",
    "number, tenant text, spool text, plan sealed, created_us int",
    Index("packs_by_tenant", "tenant", "number"),
    sqlite_autoincrement=True,
)

# Requests of the other servers of a shared journal to the leader, and the leader's reports.
# `asked`: number of requests. `all_asked`: number of requests to certify everything; `all_tried`:
# number of these requests that the leader has tried; `outcome`: result of the last try, as
# `flush_requests` encodes it. `trouble`: the leader's last error, empty after a success; `failing`:
# number of failing renewals.
flush_requests = _table(
    "flush_requests",
    "tenant text!, asked int, all_asked int, all_tried int, outcome text, trouble text, "
    "trouble_us int?, failing int",
)

# Handed-off bundles; their blobs are kept as long as the thread lives. `seq`: the change that
# records the hand-off; `content_seq`: the thread's number when its content was read.
handoffs = _table(
    "handoffs",
    "tenant text!, sha256 blob!, thread int!, checkpoint_ns text, checkpoint_id text, "
    "seq int, content_seq int, created_us int",
    Index("handoffs_by_thread", "thread"),
)

# Events that webhooks have not accepted. `webhook`: its name in the file of webhooks; `event`: a
# core.webhooks.WebhookEvent; `seq`: the change that made the event; `due_us`: earliest time of the
# next attempt; `attempts`: failed ones; `error`: problem of the last one, for people.
deliveries = _table(
    "webhook_deliveries",
    "number, tenant text, webhook text, thread int, event small, seq int, checkpoint_ns text, "
    "checkpoint_id text, created_us int, due_us int, attempts small, parked bool, error text",
    Index("webhook_deliveries_by_thread", "thread", "webhook", "number"),
    Index("webhook_deliveries_by_webhook", "webhook", "parked", "number"),
    sqlite_autoincrement=True,
)

# Indexed checkpoints, under the number that full text also uses. `planned`: the body is a plan, not
# JSON; `unembedded`: the embedder still has to compute the vector.
documents = _table(
    "search_documents",
    "number, tenant text, thread int, seq int, planned bool, truncated bool, pointer blob, "
    "unembedded bool",
    Index("search_documents_by_pointer", "tenant", "pointer"),
)
UNEMBEDDED: ColumnElement[bool] = literal_column("search_documents.unembedded")
"""A document lacks its vector; spelled as in the index, which `unembedded = 1` would not use."""
_partial_index("search_documents_unembedded", documents.c.number, where=documents.c.unembedded)
_partial_index("search_documents_truncated", documents.c.tenant, where=documents.c.truncated)
# The text of documents under their numbers, for `search.text`.
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
"""Statements that remove the text of documents, by dialect."""
for _dialect, _statements in _TEXT_OF.items():
    for _statement in _statements:
        event.listen(
            documents,
            "after_create",
            DDL(_statement).execute_if(dialect=_dialect),  # type: ignore[no-untyped-call]
        )

# Vectors of checkpoints, from the embedder or the caller. Scans continue above a number, so no
# number is used twice.
vectors = _table(
    "search_vectors",
    "number, tenant text, thread int, checkpoint_ns text, checkpoint_id text, embedder text, "
    "vector blob",
    Index("search_vectors_by_checkpoint", "thread", "checkpoint_ns", "checkpoint_id", unique=True),
    Index("search_vectors_by_tenant", "tenant"),
    sqlite_autoincrement=True,
)

# Summaries for MemWal, in a domain.search.MemoryState. `unsure`: the summary may have been stored
# already; `attempts`: failed attempts; `due_us`: time of the next step.
memories = _table(
    "search_memories",
    "number, tenant text, pointer blob, text text, digest blob, state small, unsure bool, "
    "attempts small, due_us int, job_id text, blob_id text, created_us int",
    Index("search_memories_by_pointer", "tenant", "pointer", "digest", unique=True),
    Index("search_memories_by_state", "state", "due_us", "tenant"),
    sqlite_autoincrement=True,
)
UNSURE: ColumnElement[bool] = literal_column("unsure")
"""A memory is unsure; spelled as in the index, which `unsure = 1` would not use."""
_partial_index("search_memories_unsure", memories.c.due_us, where=UNSURE)


# Places to which sealed bytes are bound. A digest identifies the value, so a write needs no further
# columns. All threads of a family have one tenant.
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
