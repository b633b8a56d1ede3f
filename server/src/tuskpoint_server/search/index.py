"""Write access to the search index, for its one owner, in short turns of the writer.

A batch stores documents, their full text, the watermarks, and the vectors and memories that are
owed. Every statement is executed once for the whole batch. A checkpoint that is saved again keeps
its number, and so its document keeps its place.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.elements import ColumnElement

from ..core.errors import Refusal
from ..core.items import keeps_items
from ..core.search import COMPONENT_BYTES, MemoryState, memory_text, one_line
from ..journal.database.database import Database
from ..journal.database.thread_rows import first_above
from ..journal.database.unit_of_work import UnitOfWork
from ..journal.sql import full_text
from ..journal.sql.full_text import TEXT
from ..journal.sql.schema import UNEMBEDDED, checkpoints, documents, memories, threads, vectors
from ..journal.sql.statements import EMPTY, LISTED, SqlRow, Statement, insert_rows, put_rows
from ..journal.values import vectors as vector_rows
from . import change_feed
from .change_feed import ITS_DOCUMENT, ITS_THREAD, ITS_VECTOR, C, D, M, V
from .searched_values import Document, embedded_text

# rows that one write transaction removes; removing a document takes as long as adding it
DROPPED_AT_ONCE = 100
SKIPPED_S = 600.0  # seconds after which a damaged thread is tried again

_log = logging.getLogger(__name__)

_ITS_TEXT = TEXT.c.rowid == D.number
_STANDING = Statement(
    sa.select(C.number, C.seq, D.planned, TEXT.c.summary, TEXT.c.body, V.number, V.embedder)
    .select_from(
        checkpoints.outerjoin(documents, ITS_DOCUMENT)
        .outerjoin(TEXT, _ITS_TEXT)
        .outerjoin(vectors, ITS_VECTOR)
    )
    .where(C.number.in_(LISTED))
)
_NOTHING: tuple[object, ...] = (None,) * 6
_copies = checkpoints.alias("copies")
_copy = _copies.c
_ITS_ORIGIN = sa.and_(
    C.tenant == _copy.tenant,
    C.checkpoint_id == _copy.checkpoint_id,
    C.checkpoint_ns == _copy.checkpoint_ns,
    C.number != _copy.number,
    C.state == _copy.state,
)
_BY_CALLER = Statement(
    sa.select(_copy.number, _copy.tenant, _copy.thread, _copy.checkpoint_ns, _copy.checkpoint_id)
    .add_columns(V.embedder, V.vector)
    .select_from(
        _copies.join(checkpoints, _ITS_ORIGIN).join(
            vectors, sa.and_(ITS_VECTOR, V.embedder == EMPTY)
        )
    )
    .where(_copy.number.in_(LISTED))
)
_COLUMNS = tuple(column.name for column in documents.columns)
_PUT = Statement(put_rows(documents, ("number",)))
_DROP_VECTOR = Statement(sa.delete(vectors).where(V.number == sa.bindparam("of_number")))
_REMEMBER = Statement(
    insert_rows(
        memories, [column.name for column in memories.columns if column.name != "number"]
    ).on_conflict_do_nothing(index_elements=["tenant", "pointer", "digest"])
)
_SAID = (D.number, TEXT.c.summary, TEXT.c.body, D.planned)
_DOCUMENTS = sa.select(
    *_SAID, C.tenant, C.thread, C.checkpoint_ns, C.checkpoint_id, V.number
).select_from(
    documents.outerjoin(TEXT, _ITS_TEXT)
    .join(checkpoints, ITS_DOCUMENT)
    .join(threads, ITS_THREAD)
    .outerjoin(vectors, ITS_VECTOR)
)
_UNEMBEDDED = Statement(
    sa.select(D.number, D.seq)
    .select_from(documents.join(checkpoints, ITS_DOCUMENT).join(threads, ITS_THREAD))
    .where(UNEMBEDDED, change_feed.INDEXABLE)
    .order_by(D.number)
    .limit(sa.bindparam("max_rows"))
)
_STILL_OWED = Statement(_DOCUMENTS.where(D.number.in_(LISTED), UNEMBEDDED, change_feed.INDEXABLE))
_EMBEDDED = Statement(_DOCUMENTS.where(V.number.in_(LISTED)))
_SET_OWED = Statement(
    sa.update(documents)
    .where(D.number == sa.bindparam("of_number"))
    .values(unembedded=sa.bindparam("owed"))
)
_UNFIT = Statement(
    sa.select(V.number)
    .where(
        sa.or_(
            sa.and_(V.embedder != EMPTY, V.embedder != sa.bindparam("of_embedder")),
            sa.func.length(V.vector) != sa.bindparam("of_length"),
        )
    )
    .order_by(V.number)
)
_HAS_DOCUMENT = sa.exists().where(D.tenant == M.tenant, D.pointer == M.pointer)
# Memories come after the documents that they need. A memory that is being sent stays: the sending
# task records its outcome.
_LOST: dict[sa.Table, ColumnElement[bool]] = {
    documents: ~change_feed.DOCUMENT_BELONGS,
    vectors: ~change_feed.VECTOR_BELONGS,
    memories: sa.and_(M.unsure.is_(False), M.state != int(MemoryState.SENT), ~_HAS_DOCUMENT),
}
_FIND_AND_DROP = {
    table: (
        Statement(sa.select(table.c.number).where(is_lost).order_by(table.c.number)),
        Statement(
            sa.delete(table).where(table.c.number.in_(LISTED), is_lost).returning(table.c.number)
        ),
    )
    for table, is_lost in _LOST.items()
}


class UnembeddedDocument(NamedTuple):
    """Document without a vector; `text` is the text to embed.

    `seq` is the change of the checkpoint from which the document was built.
    """

    number: int
    seq: int
    text: str

    @property
    def place(self) -> tuple[int, int]:
        """Number and `seq`; a rebuilt document has another `seq`."""
        return self.number, self.seq


class _DamagedThread(NamedTuple):
    """Thread whose row is damaged, and which is therefore not indexed.

    `seq` is the thread's last change, `tried_us` the time of the last attempt.
    """

    seq: int
    damage: Refusal
    tried_us: int


class IndexRows:
    """Write access to the index of a journal. Every call may raise `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # The position of a walk is only in memory: after a restart the walk starts again, and
        # changes nothing where it was before.
        self._walk: change_feed.Walk | None = None
        self._damaged: dict[int, _DamagedThread] = {}  # damaged threads by number

    async def take(self, limit: int) -> change_feed.Stretch:
        """Return the next changes, of all tenants, that the index has to follow, oldest first.

        A damaged thread is skipped until it has another change or is due for another attempt.
        """
        walk, since_us = self._walk, self._database.now_us() - SKIPPED_S * 1e6
        skipped = {
            number: thread.seq
            for number, thread in self._damaged.items()
            if thread.tried_us > since_us
        }
        return await self._database.query(
            lambda connection: change_feed.stretch(connection, limit, walk, skipped)
        )

    async def store(
        self, stretch: change_feed.Stretch, made: Sequence[Document], *, remember: bool
    ) -> int:
        """Store documents and move their threads' watermarks; return the number of stored ones.

        A checkpoint that was changed or deleted after it was read is left as it is, because a later
        change covers it. The same holds for checkpoints of threads that are no longer searchable,
        or are damaged.
        """
        stored, damaged = await self._database.transact(
            lambda batch: _store(batch, stretch, made, remember=remember),
            size_bytes=sum(len(document.summary) + len(document.body) for document in made),
            keeps_heads=True,
        )
        for advance in stretch.advances:
            self._note(advance, damaged.get(advance.thread))
        if (walk := stretch.walk) is not None:
            self._walk = None if walk.after is None or walk.thread in damaged else walk
        return stored

    def _note(self, advance: change_feed.Advance, damage: Refusal | None) -> None:
        """Note whether a thread is damaged, and log a new damage."""
        before = self._damaged.pop(advance.thread, None)
        if damage is not None:
            if before is None or str(before.damage) != str(damage):
                _log.error("not indexed: %s", damage)
            now_us = self._database.now_us()
            self._damaged[advance.thread] = _DamagedThread(advance.seq, damage, now_us)

    def is_damaged(self, thread: int, seq: int) -> bool:
        """Return whether a thread is not indexed up to a change because it is damaged."""
        return thread in self._damaged and self._damaged[thread].seq == seq

    async def damaged(self, tenant: str) -> list[Refusal]:
        """Return the damages of a tenant's threads that the index lags behind, in order."""
        behind = await self.now(tenant) if self._damaged else {}
        return [
            self._damaged[thread].damage
            for thread, seq in sorted(behind.items())
            if self.is_damaged(thread, seq)
        ]

    async def now(self, tenant: str) -> dict[int, int]:
        """Return a tenant's threads that the index lags behind, with their last change."""
        return dict(await self._database.rows(change_feed.NOW, of_tenant=tenant))

    async def reached(self, wanted: Mapping[int, int]) -> bool:
        """Return whether the index has reached a given change of each thread, by thread number."""
        return await self._database.query(partial(change_feed.has_reached, wanted=wanted))

    def forget(self) -> None:
        """Forget the walk and the damaged threads: another server maintains the index."""
        self._walk = None
        self._damaged.clear()

    async def backlog(self) -> list[change_feed.IndexBacklog]:
        """Return the unindexed checkpoints by tenant; leave out tenants without any."""
        return await self._database.query(change_feed.backlog)

    async def unembedded(
        self, limit: int, but: Collection[tuple[int, int]] = ()
    ) -> list[UnembeddedDocument]:
        """Return documents without a vector, oldest first; `but` has `place`s to leave out."""

        def work(connection: sa.Connection) -> list[UnembeddedDocument]:
            owed = _UNEMBEDDED.run(connection, max_rows=limit + len(but)).fetchall()
            seqs: dict[int, int] = dict([row for row in owed if row not in but][:limit])
            rows = sorted(_STILL_OWED.run_listed(connection, seqs))
            return [UnembeddedDocument(row[0], seqs[row[0]], _embedded_text(row)) for row in rows]

        return await self._database.query(work)

    async def embed(self, embedder: str, made: Sequence[tuple[UnembeddedDocument, bytes]]) -> None:
        """Store vectors, all of one dimension, for documents with the same text and no vector."""
        await self._database.transact(
            lambda batch: _embed(batch.connection, embedder, made),
            size_bytes=sum(len(vector) for _, vector in made),
        )

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Drop vectors of another embedder or dimension; return the number of dropped vectors.

        Their text is embedded again. From then on, only vectors of the embedder's dimension are
        stored.
        """
        await self._database.transact(
            lambda batch: vector_rows.note_embedder(batch.connection, embedder, dimension)
        )
        unfit = {"of_embedder": embedder, "of_length": dimension * COMPONENT_BYTES}
        return await self._in_turns(await self._database.rows(_UNFIT, **unfit), _drop_vectors)

    async def forget_embedder(self) -> None:
        """Record that there is no embedder: vectors stay, and new ones may have any dimension."""
        if await self._database.query(vector_rows.noted_dimension):
            await self._database.transact(
                lambda batch: vector_rows.forget_embedder(batch.connection)
            )

    async def sweep(self) -> int:
        """Remove rows whose checkpoint search may not find; return the number of removed rows."""
        count = 0
        for table, (find, drop) in _FIND_AND_DROP.items():
            # Rows are searched outside the writer, and checked again when they are removed.
            rows = await self._database.rows(find)
            count += await self._in_turns(rows, partial(_drop_lost, table, drop))
        return count

    async def _in_turns(
        self, rows: Sequence[Sequence[int]], drop: Callable[[sa.Connection, Sequence[int]], int]
    ) -> int:
        """Remove rows by number in short turns of the writer; return the number of removed rows."""
        count = 0
        for start in range(0, len(rows), DROPPED_AT_ONCE):
            numbers = [number for (number,) in rows[start : start + DROPPED_AT_ONCE]]
            count += await self._database.transact(
                lambda batch, numbers=numbers: drop(batch.connection, numbers)  # type: ignore[misc]
            )
        return count


def _store(
    batch: UnitOfWork,
    stretch: change_feed.Stretch,
    candidates: Sequence[Document],
    *,
    remember: bool,
) -> tuple[int, dict[int, Refusal]]:
    """Store documents and move their threads' watermarks; return the number of stored ones.

    Damaged threads stay as they are, and are returned too: number to damage.

    Vectors that an embedder computed from an older text are dropped. A checkpoint without a vector
    gets the vector that a caller sent with the checkpoint's origin: a caller that creates the same
    ID in two threads for the same state means the same checkpoint.
    """
    batch.lock((advance.tenant, advance.thread_id) for advance in stretch.advances)
    damaged: dict[int, Refusal] = {}
    open_threads = {
        advance.thread for advance in stretch.advances if _advance(batch, advance, damaged)
    }
    connection = batch.connection
    rows = _STANDING.run_listed(connection, (document.number for document in candidates))
    rows_by_number = {row[0]: row[1:] for row in rows}
    stored_documents: list[Document] = []
    vectorless: list[int] = []  # numbers of checkpoints without a vector
    outdated: list[tuple[int]] = []  # numbers of outdated vectors
    old_texts: list[tuple[int]] = []
    texts: list[tuple[int, int, str, str]] = []
    for document in candidates:
        seq, planned, summary, body, vector, embedder = rows_by_number.get(
            document.number, _NOTHING
        )
        if seq != document.seq or document.thread not in open_threads:
            continue
        stored_documents.append(document)
        if (summary, body) != (document.summary, document.body):
            texts.append((document.number, document.thread, document.summary, document.body))
            old_texts += [(document.number,)] if body is not None else []
        if vector is None:
            vectorless.append(document.number)
        elif embedder != vector_rows.CALLER and document.embedded != embedded_text(
            summary or "", body or "", planned=bool(planned)
        ):
            outdated.append((vector,))
            vectorless.append(document.number)
    _DROP_VECTOR.run_rows(connection, ("of_number",), outdated)
    items = {
        document.number for document in stored_documents if keeps_items(document.key.thread_id)
    }
    lacking = set(vectorless) - _inherit(
        connection, [number for number in vectorless if number not in items]
    )
    put = []
    for document in stored_documents:
        owed = document.number in lacking and bool(document.embedded)
        place = (document.number, document.tenant, document.thread, document.seq)
        put.append((*place, document.planned, document.truncated, document.pointer, owed))
    _PUT.run_rows(connection, _COLUMNS, put)
    full_text.remove(connection, old_texts)
    full_text.add(connection, texts)
    if remember:
        _remember(
            connection,
            [document for document in stored_documents if document.number not in items],
            batch.now_us,
        )
    return len(stored_documents), damaged


def _advance(batch: UnitOfWork, advance: change_feed.Advance, damaged: dict[int, Refusal]) -> bool:
    """Move the watermark of a thread; return whether search may still find its checkpoints.

    A damaged thread is added to `damaged`.
    """
    log = batch.find_any(advance.tenant, advance.thread_id)
    if log is not None and log.damage is not None:
        damaged[advance.thread] = log.damage
        return False
    if log is None or log.row.indexed_seq != advance.before:
        return False
    row = log.row
    if advance.through > row.indexed_seq:
        row.indexed_seq = advance.through
        row.unindexed_since_us = first_above(batch.connection, row, advance.through)
        batch.store(log)
    return not (row.deleted or row.unsearchable)


def _inherit(connection: sa.Connection, numbers: Sequence[int]) -> set[int]:
    """Give checkpoints the vectors of their origins; return the numbers of those checkpoints."""
    origin_rows = list(_BY_CALLER.run_listed(connection, numbers))
    # While an embedder is being adopted, some vectors still have another dimension.
    size = vector_rows.noted_dimension(connection) * COMPONENT_BYTES if origin_rows else 0
    rows = {row[0]: row[1:] for row in origin_rows if size in (0, len(row[-1]))}
    vector_rows.add(connection, list(rows.values()))
    return set(rows)


def _remember(connection: sa.Connection, stored_documents: Sequence[Document], now_us: int) -> None:
    rows = []
    for document in stored_documents:
        if not one_line(document.summary):
            continue
        pointer = document.pointer
        text = memory_text(document.summary, pointer)
        digest = hashlib.sha256(text.encode()).digest()
        rows.append(
            {"tenant": document.tenant, "pointer": pointer, "text": text, "digest": digest}
            | {"state": int(MemoryState.WAITING), "due_us": now_us, "created_us": now_us}
            | {"unsure": False, "attempts": 0, "job_id": "", "blob_id": ""}
        )
    _REMEMBER.run_many(connection, rows)


def _drop_lost(
    table: sa.Table, drop: Statement, connection: sa.Connection, numbers: Sequence[int]
) -> int:
    rows = list(drop.run_listed(connection, numbers))
    if table is documents:
        full_text.remove(connection, rows)
    return len(rows)


def _drop_vectors(connection: sa.Connection, numbers: Sequence[int]) -> int:
    """Drop vectors, and mark their documents as owed a vector; return the number of vectors."""
    owed = [row[0] for row in _EMBEDDED.run_listed(connection, numbers) if _embedded_text(row)]
    _set_owed(connection, owed, owed=True)
    return _DROP_VECTOR.count_many(connection, [{"of_number": number} for number in numbers])


def _set_owed(connection: sa.Connection, numbers: Sequence[int], *, owed: bool) -> None:
    _SET_OWED.run_many(connection, [{"of_number": number, "owed": owed} for number in numbers])


def _embedded_text(row: SqlRow) -> str:
    """Return the text of a document to embed, from a row that starts with `_SAID`."""
    return embedded_text(row[1], row[2], planned=bool(row[3]))


def _embed(
    connection: sa.Connection, embedder: str, pairs: Sequence[tuple[UnembeddedDocument, bytes]]
) -> None:
    by_number = {document.number: (document.text, vector) for document, vector in pairs}
    rows: list[tuple[object, ...]] = []
    settled: list[int] = []
    sizes: set[tuple[str, int]] = set()
    for row in _STILL_OWED.run_listed(connection, by_number):
        embedded, vector = by_number[row[0]]
        if embedded != _embedded_text(row):
            continue
        settled.append(row[0])
        tenant, *place, has = row[4:]
        # A caller's vector may have arrived meanwhile, and takes precedence.
        if has is None:
            rows.append((tenant, *place, embedder, vector))
            sizes.add((tenant, len(vector)))
    for tenant, size in sizes:
        vector_rows.check(connection, tenant, size)
    vector_rows.add(connection, rows)
    _set_owed(connection, settled, owed=False)
