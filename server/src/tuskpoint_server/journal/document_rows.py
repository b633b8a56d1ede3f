"""Documents of checkpoints: stored with their full text, and what MemWal is to be told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, null, select, update

from ..domain.memories import MemoryState, memory_text, one_line, pointer_of
from . import document_vectors, full_text
from .document_vectors import embedded_text
from .due import content_of
from .findable import FINDABLE, ITS_THREAD
from .full_text import Text
from .schema import checkpoints, documents, memories, threads
from .search_api import Document, Due
from .statements import Statement, all_columns, of_checkpoint, parameters_of

_STANDING = Statement(
    select(FINDABLE.label("findable"), checkpoints.c.summary, checkpoints.c.state)
    .select_from(checkpoints.outerjoin(threads, ITS_THREAD))
    .where(of_checkpoint(checkpoints), checkpoints.c.unindexed_us.is_not(None))
)
_CROSS_OFF = Statement(
    update(checkpoints).where(of_checkpoint(checkpoints)).values(unindexed_us=null())
)
_STORED = Statement(
    select(
        documents.c.number,
        documents.c.scope,
        documents.c.summary,
        documents.c.body,
        documents.c.planned,
    ).where(of_checkpoint(documents))
)
_BY_NUMBER = documents.c.number == bindparam("of_number")
_DELETE = Statement(delete(documents).where(_BY_NUMBER))
_DOCUMENT = {name: one for name, one in all_columns(documents).items() if name != "number"}
_INSERT = Statement(insert(documents).values(_DOCUMENT).returning(documents.c.number))
_MEMORY = {name: one for name, one in all_columns(memories).items() if name != "number"}
_REMEMBER = Statement(
    lambda insert_into: (
        insert_into(memories)
        .values(_MEMORY)
        .on_conflict_do_nothing(index_elements=["tenant", "pointer", "digest"])
    )
)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A document that stands."""

    number: int
    content: Text
    planned: bool

    @property
    def embedded(self) -> str:
        """What a vector of it was made of."""
        return embedded_text(self.content.summary, self.content.body, planned=self.planned)


def store(connection: Connection, made: Iterable[Document], now_us: int, *, remember: bool) -> int:
    """Store documents and cross their checkpoints off; see `search_api.Indexing.store`."""
    return sum(_store(connection, document, now_us, remember) for document in made)


def remove(connection: Connection, number: int, content: Text) -> None:
    """Remove a document with its full text."""
    full_text.remove(connection, number, content)
    _DELETE.run(connection, of_number=number)


def _store(connection: Connection, document: Document, now_us: int, remember: bool) -> bool:
    due = document.due
    of = parameters_of(due.tenant, due.key)
    row = _STANDING.run(connection, **of).fetchone()
    # What changed since it was read is due still, or gone.
    if row is None or bool(row[0]) is not due.shown or content_of(*row[1:]) != due.content:
        return False
    _CROSS_OFF.run(connection, **of)
    before = _stored(connection, due)
    if not due.shown:
        if before is not None:
            remove(connection, before.number, before.content)
        return False
    _replace(connection, document, before, state=row[2])
    if remember and one_line(due.summary):
        _remember(connection, due, now_us)
    return True


def _stored(connection: Connection, due: Due) -> _Stored | None:
    row = _STORED.run(connection, **parameters_of(due.tenant, due.key)).fetchone()
    return None if row is None else _Stored(row[0], Text(*row[1:4]), bool(row[4]))


def _replace(
    connection: Connection, document: Document, before: _Stored | None, state: bytes
) -> None:
    """Store a document, in the place of one that says something else."""
    due = document.due
    key = due.key
    content = Text(full_text.scope_word(due.tenant, key.thread_id), due.summary, document.body)
    embedded = embedded_text(due.summary, document.body, planned=document.planned)
    if before is None or before.embedded != embedded:
        document_vectors.drop_made(connection, due.tenant, key)
    has_vector = document_vectors.ensure(connection, due.tenant, key, state)
    unembedded = bool(embedded) and not has_vector
    if before is not None:
        if (before.content, before.planned) == (content, document.planned):
            document_vectors.set_owed(connection, before.number, owed=unembedded)
            return
        remove(connection, before.number, before.content)
    [(number,)] = _INSERT.run(
        connection,
        tenant=due.tenant,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        scope=content.scope,
        summary=content.summary,
        body=content.body,
        planned=document.planned,
        pointer=_pointer(due),
        unembedded=unembedded,
    ).fetchall()
    full_text.add(connection, number, content)


def _remember(connection: Connection, due: Due, now_us: int) -> None:
    """Note what MemWal is to be told; copies of a checkpoint are one memory."""
    pointer = _pointer(due)
    told = memory_text(due.summary, pointer)
    _REMEMBER.run(
        connection,
        tenant=due.tenant,
        pointer=pointer,
        text=told,
        digest=hashlib.sha256(told.encode()).digest(),
        state=int(MemoryState.WAITING),
        unsure=False,
        attempts=0,
        due_us=now_us,
        job_id="",
        blob_id="",
        created_us=now_us,
    )


def _pointer(due: Due) -> bytes:
    return pointer_of(due.tenant, due.key.checkpoint_ns, due.key.checkpoint_id)
