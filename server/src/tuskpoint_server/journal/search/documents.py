"""Storing a batch: documents, their full text, the watermarks, and what others are owed.

Every statement is executed once for the whole batch. A checkpoint that is saved again keeps
its number, and so its document its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, delete, select

from ...domain.memories import MemoryState, memory_text, one_line, pointer_of
from ..database.overlay import Batch
from ..database.schema import changes, checkpoints, documents, memories, vectors
from ..database.statements import EMPTY, Statement, all_columns
from . import full_text
from . import vectors as vector_rows
from .document_vectors import embedded_text
from .findable import ITS_DOCUMENT, ITS_VECTOR
from .full_text import Text
from .numbered import Numbered
from .records import Advance, Document, Stretch

_STANDING = Numbered(
    select(
        checkpoints.c.number,
        checkpoints.c.seq,
        documents.c.number,
        documents.c.scope,
        documents.c.summary,
        documents.c.body,
        documents.c.planned,
        vectors.c.number,
        vectors.c.embedder,
    ).select_from(checkpoints.outerjoin(documents, ITS_DOCUMENT).outerjoin(vectors, ITS_VECTOR)),
    checkpoints.c.number,
)
_ANY_BY_CALLER = Statement(select(vectors.c.number).where(vectors.c.embedder == EMPTY).limit(1))
_copies = checkpoints.alias("copies")
_BY_CALLER = Numbered(
    select(
        _copies.c.number,
        _copies.c.tenant,
        _copies.c.thread,
        _copies.c.checkpoint_ns,
        _copies.c.checkpoint_id,
        vectors.c.vector,
    ).select_from(
        _copies.join(
            checkpoints,
            and_(
                checkpoints.c.tenant == _copies.c.tenant,
                checkpoints.c.checkpoint_id == _copies.c.checkpoint_id,
                checkpoints.c.checkpoint_ns == _copies.c.checkpoint_ns,
                checkpoints.c.state == _copies.c.state,
                checkpoints.c.number != _copies.c.number,
            ),
        ).join(vectors, and_(ITS_VECTOR, vectors.c.embedder == EMPTY))
    ),
    _copies.c.number,
)
_COLUMNS = tuple(column.name for column in documents.columns)


def _upsert() -> Statement:
    return Statement(
        lambda insert_into: (
            statement := insert_into(documents).values(all_columns(documents))
        ).on_conflict_do_update(
            index_elements=["number"],
            set_={name: statement.excluded[name] for name in _COLUMNS if name != "number"},
        )
    )


_PUT = _upsert()
_DELETE = Statement(delete(documents).where(documents.c.number == bindparam("of_number")))
_DROP_VECTOR = Statement(delete(vectors).where(vectors.c.number == bindparam("of_number")))
_MEMORY = {name: one for name, one in all_columns(memories).items() if name != "number"}
_REMEMBER = Statement(
    lambda insert_into: (
        insert_into(memories)
        .values(_MEMORY)
        .on_conflict_do_nothing(index_elements=["tenant", "pointer", "digest"])
    )
)
_FIRST_ABOVE = Statement(
    select(changes.c.created_us)
    .where(changes.c.thread == bindparam("of_thread"), changes.c.seq > bindparam("above"))
    .order_by(changes.c.seq)
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class _Before:
    """What stands of a checkpoint that is to get a document.

    Attributes:
        seq: Change that made its row.
        document: Text and `planned` of its document, if there is one.
        vector: Number of its vector, and whether an embedder made it, if there is one.
    """

    seq: int
    document: tuple[Text, bool] | None
    vector: tuple[int, bool] | None


@dataclass(frozen=True, slots=True)
class _Planned:
    """A document that is stored, in the place of another one perhaps."""

    document: Document
    content: Text
    before: _Before

    @property
    def embedded(self) -> str:
        """What is embedded of it."""
        return embedded_text(self.content.summary, self.content.body, planned=self.document.planned)

    @property
    def is_new_text(self) -> bool:
        """Whether the full text has to be changed."""
        return self.before.document is None or self.before.document[0] != self.content

    @property
    def outdated_vector(self) -> int | None:
        """Number of a vector that an embedder made of another text."""
        if self.before.vector is None or not self.before.vector[1]:
            return None
        if self.before.document is not None:
            content, planned = self.before.document
            if self.embedded == embedded_text(content.summary, content.body, planned=planned):
                return None
        return self.before.vector[0]


def store(batch: Batch, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
    """Store the documents of a stretch and move the watermarks of its threads.

    A checkpoint that changed since it was read, or went, is left as it is: a later change
    says so. So is one of a thread that search may not find any more.

    Args:
        batch: With everything written out.
        stretch: What was read.
        made: Documents of checkpoints in it.
        remember: Also note the summaries that MemWal has to have.

    Returns:
        How many documents were stored.
    """
    open_threads = {advance.thread for advance in stretch.advances if _advance(batch, advance)}
    connection = batch.connection
    wanted = [one for one in made if one.due.thread in open_threads]
    standing = _standing(connection, [one.due.number for one in wanted])
    planned = [
        _Planned(one, _content(one), before)
        for one in wanted
        if (before := standing.get(one.due.number)) is not None and before.seq == one.due.seq
    ]
    if planned:
        _put(connection, planned, _with_vector(connection, planned))
        if remember:
            _remember(connection, planned, batch.now_us)
    return len(planned)


def remove(connection: Connection, rows: Sequence[tuple[int, Text]]) -> None:
    """Remove documents, each with the text it has, and their full text."""
    full_text.remove(connection, rows)
    _DELETE.run_many(connection, [{"of_number": number} for number, _ in rows])


# --- watermarks --------------------------------------------------------------------------


def _advance(batch: Batch, advance: Advance) -> bool:
    """Move the watermark of a thread; tell whether search may still find its checkpoints."""
    log = batch.find(advance.tenant, advance.thread_id)
    if log is None or log.row.indexed_seq != advance.before:
        return False
    row = log.row
    if advance.through > row.indexed_seq:
        row.indexed_seq = advance.through
        row.unindexed_since_us = None
        if row.seq > advance.through:
            first = _FIRST_ABOVE.run(
                batch.connection, of_thread=row.number, above=advance.through
            ).fetchone()
            row.unindexed_since_us = first[0] if first is not None else None
        batch.store(log)
    return not (row.deleted or row.unsearchable)


# --- documents ---------------------------------------------------------------------------


def _content(document: Document) -> Text:
    due = document.due
    scope = full_text.scope_word(due.tenant, due.key.thread_id)
    return Text(scope, due.summary, document.body)


def _standing(connection: Connection, numbers: Sequence[int]) -> dict[int, _Before]:
    found: dict[int, _Before] = {}
    for row in _STANDING.rows(connection, numbers):
        number, seq, document, scope, summary, body, planned, vector, embedder = row
        found[number] = _Before(
            seq,
            (Text(scope, summary, body), bool(planned)) if document is not None else None,
            (vector, embedder != vector_rows.CALLER) if vector is not None else None,
        )
    return found


def _with_vector(connection: Connection, planned: Sequence[_Planned]) -> set[int]:
    """Bring the vectors up to date; return the numbers of the checkpoints that have one.

    What an embedder made of another text goes. A checkpoint without a vector gets the one
    that a caller sent with its origin, which is one with its namespace, its ID and its
    state: no caller mints the same ID in two threads for the same state unless it means
    the same.
    """
    outdated = [number for one in planned if (number := one.outdated_vector) is not None]
    _DROP_VECTOR.run_many(connection, [{"of_number": number} for number in outdated])
    has = {
        one.document.due.number
        for one in planned
        if one.before.vector is not None and one.before.vector[0] not in outdated
    }
    without = [number for one in planned if (number := one.document.due.number) not in has]
    if without and _ANY_BY_CALLER.run(connection).fetchone() is not None:
        has |= _inherit(connection, without)
    return has


def _inherit(connection: Connection, numbers: Sequence[int]) -> set[int]:
    sizes: dict[str, int] = {}
    rows: dict[int, tuple[object, ...]] = {}
    for number, tenant, *place, vector in _BY_CALLER.rows(connection, numbers):
        if tenant not in sizes:
            sizes[tenant] = vector_rows.size_bytes(connection, tenant)
        # While an embedder is adopted, some of another dimension are still there.
        if sizes[tenant] in (0, len(vector)):
            rows[number] = (tenant, *place, vector_rows.CALLER, vector)
    vector_rows.add(connection, list(rows.values()))
    return set(rows)


def _put(connection: Connection, planned: Sequence[_Planned], has_vector: set[int]) -> None:
    full_text.remove(
        connection,
        [
            (one.document.due.number, one.before.document[0])
            for one in planned
            if one.is_new_text and one.before.document is not None
        ],
    )
    _PUT.run_rows(connection, _COLUMNS, [_row(one, has_vector) for one in planned])
    full_text.add(
        connection,
        [(one.document.due.number, one.content) for one in planned if one.is_new_text],
    )


def _row(one: _Planned, has_vector: set[int]) -> tuple[object, ...]:
    due = one.document.due
    return (
        due.number,
        due.tenant,
        due.thread,
        due.seq,
        one.content.scope,
        one.content.summary,
        one.content.body,
        one.document.planned,
        one.document.truncated,
        pointer_of(due.tenant, due.key.checkpoint_ns, due.key.checkpoint_id),
        bool(one.embedded) and due.number not in has_vector,
    )


# --- memories ----------------------------------------------------------------------------


def _remember(connection: Connection, planned: Iterable[_Planned], now_us: int) -> None:
    """Note what MemWal has to have; copies of a checkpoint are one memory."""
    rows = []
    for one in planned:
        due = one.document.due
        if not one_line(due.summary):
            continue
        pointer = pointer_of(due.tenant, due.key.checkpoint_ns, due.key.checkpoint_id)
        text = memory_text(due.summary, pointer)
        rows.append(
            {
                "tenant": due.tenant,
                "pointer": pointer,
                "text": text,
                "digest": hashlib.sha256(text.encode()).digest(),
                "state": int(MemoryState.WAITING),
                "unsure": False,
                "attempts": 0,
                "due_us": now_us,
                "job_id": "",
                "blob_id": "",
                "created_us": now_us,
            }
        )
    _REMEMBER.run_many(connection, rows)
