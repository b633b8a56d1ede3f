"""Storing a batch: documents, their full text, the watermarks, and what others are owed.

Every statement is executed once for the whole batch. A checkpoint that is saved again keeps
its number, and so its document its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, column, delete, select, table, text

from ...domain.search import MemoryState, Words, memory_text, one_line, pointer_of
from ..checkpoints import vectors as vector_rows
from ..database.overlay import Batch
from ..database.schema import changes, checkpoints, documents, memories, vectors
from ..database.statements import EMPTY, LISTED, Statement, inserting, putting
from .following import ITS_DOCUMENT, ITS_VECTOR, Advance, C, D, Stretch, V
from .searched_values import Due

# the text of documents; `rowid` is the number of a document
TEXT = table("search_text", column("rowid"), column("summary"), column("body"))
_TEXT_COLUMNS = ("number", "scope", "summary", "body")
_ADD_TEXT = Statement(
    text(
        "INSERT INTO search_text (rowid, scope, summary, body) "
        "VALUES (:number, :scope, :summary, :body)"
    )
)
_REMOVE_TEXT = Statement(text("DELETE FROM search_text WHERE rowid = :number"))
# Number and BM25, above 0, of what an `expression` matches, best first.
# Ordered by `rank` and nothing else, FTS5 sorts the matches by itself, each scored once.
RANKED = Statement(
    text(
        "SELECT rowid, -rank FROM search_text "
        "WHERE search_text MATCH :expression AND rank MATCH :weights ORDER BY rank"
    )
)
# What a word counts by where it stands: a summary was written to be found.
WEIGHTS = "bm25(0.0, 4.0, 1.0)"
# characters that are embedded of a body without a summary; a vector of more means less
EMBEDDED_BODY = 1000
_STANDING = Statement(
    select(C.number, C.seq, D.planned, TEXT.c.summary, TEXT.c.body, V.number, V.embedder)
    .select_from(
        checkpoints.outerjoin(documents, ITS_DOCUMENT)
        .outerjoin(TEXT, TEXT.c.rowid == D.number)
        .outerjoin(vectors, ITS_VECTOR)
    )
    .where(C.number.in_(LISTED))
)
_ANY_BY_CALLER = Statement(select(V.number).where(V.embedder == EMPTY).limit(1))
_copies = checkpoints.alias("copies")
_copy = _copies.c
_ITS_ORIGIN = and_(
    C.tenant == _copy.tenant,
    C.checkpoint_id == _copy.checkpoint_id,
    C.checkpoint_ns == _copy.checkpoint_ns,
    C.state == _copy.state,
    C.number != _copy.number,
)
_BY_CALLER = Statement(
    select(_copy.number, _copy.tenant, _copy.thread, _copy.checkpoint_ns, _copy.checkpoint_id)
    .add_columns(V.vector)
    .select_from(
        _copies.join(checkpoints, _ITS_ORIGIN).join(vectors, and_(ITS_VECTOR, V.embedder == EMPTY))
    )
    .where(_copy.number.in_(LISTED))
)
_COLUMNS = tuple(column.name for column in documents.columns)

_PUT = Statement(putting(documents, ("number",)))
DROP_VECTOR = Statement(delete(vectors).where(V.number == bindparam("of_number")))
_REMEMBER = Statement(
    inserting(
        memories, [one.name for one in memories.columns if one.name != "number"]
    ).on_conflict_do_nothing(index_elements=["tenant", "pointer", "digest"])
)
_FIRST_ABOVE = Statement(
    select(changes.c.created_us)
    .where(changes.c.thread == bindparam("of_thread"), changes.c.seq > bindparam("above"))
    .order_by(changes.c.seq)
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Document:
    """What is indexed of a checkpoint."""

    due: Due  # the checkpoint it was made for
    body: str = ""  # searchable text of the state
    planned: bool = False  # the body is a plan in words, not JSON
    truncated: bool = False  # the state holds more text than the body

    @property
    def pointer(self) -> bytes:
        """The pointer of the checkpoint."""
        due = self.due
        return pointer_of(due.tenant, due.key.checkpoint_ns, due.key.checkpoint_id)

    @property
    def embedded(self) -> str:
        """What of it is embedded."""
        return embedded_text(self.due.summary, self.body, planned=self.planned)


class _Before(NamedTuple):  # what stands of a checkpoint that is to get a document
    seq: int
    planned: bool | None
    summary: str | None
    body: str | None
    vector: int | None
    embedder: str | None


_Planned = tuple[Document, _Before]


def embedded_text(summary: str, body: str, *, planned: bool) -> str:
    """Return what of a document is embedded: its words; JSON only if there are no others."""
    said = summary.strip()
    if planned:
        return f"{said}\n{body}".strip()
    return said or body[:EMBEDDED_BODY].strip()


def store(batch: Batch, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
    """Store documents and move the watermarks of their threads; return how many were stored.

    A checkpoint that changed since it was read, or went, is left as it is: a later change
    says so. So is one of a thread that search may not find any more.
    """
    open_threads = {advance.thread for advance in stretch.advances if _advance(batch, advance)}
    connection = batch.connection
    rows = _STANDING.run_listed(connection, (one.due.number for one in made))
    standing = {row[0]: _Before(*row[1:]) for row in rows}
    planned = [
        (one, before)
        for one in made
        if one.due.thread in open_threads
        and (before := standing.get(one.due.number)) is not None
        and before.seq == one.due.seq
    ]
    if planned:
        has_vector = _with_vector(connection, planned)
        _put(connection, planned, has_vector)
        if remember:
            _remember(connection, [one for one, _ in planned], batch.now_us)
    return len(planned)


def _advance(batch: Batch, advance: Advance) -> bool:
    """Move the watermark of a thread; tell whether search may still find its checkpoints."""
    log = batch.find(advance.tenant, advance.thread_id)
    if log is None or log.row.indexed_seq != advance.before:
        return False
    row, through = log.row, advance.through
    if through > row.indexed_seq:
        above = {"of_thread": row.number, "above": through}
        first = (
            _FIRST_ABOVE.run(batch.connection, **above).fetchone() if row.seq > through else None
        )
        row.indexed_seq, row.unindexed_since_us = through, first[0] if first is not None else None
        batch.store(log)
    return not (row.deleted or row.unsearchable)


def _with_vector(connection: Connection, planned: Sequence[_Planned]) -> set[int]:
    """Bring the vectors up to date; return the numbers of the checkpoints that have one.

    What an embedder made of another text goes. A checkpoint without a vector gets the one that
    a caller sent with its origin: no caller mints the same ID in two threads for the same state
    unless it means the same.
    """
    outdated = {
        before.vector
        for one, before in planned
        if before.embedder not in (None, vector_rows.CALLER)
        and one.embedded
        != embedded_text(before.summary or "", before.body or "", planned=bool(before.planned))
    }
    DROP_VECTOR.run_many(connection, [{"of_number": number} for number in outdated])
    has = {one.due.number for one, before in planned if before.vector not in (None, *outdated)}
    without = [one.due.number for one, _ in planned if one.due.number not in has]
    if without and _ANY_BY_CALLER.run(connection).fetchone() is not None:
        has |= _inherit(connection, without)
    return has


def _inherit(connection: Connection, numbers: Sequence[int]) -> set[int]:
    sizes: dict[str, int] = {}
    rows: dict[int, tuple[object, ...]] = {}
    for number, tenant, *place, vector in _BY_CALLER.run_listed(connection, numbers):
        if tenant not in sizes:
            sizes[tenant] = vector_rows.size_bytes(connection, tenant)
        # While an embedder is adopted, some of another dimension are still there.
        if sizes[tenant] in (0, len(vector)):
            rows[number] = (tenant, *place, vector_rows.CALLER, vector)
    vector_rows.add(connection, list(rows.values()))
    return set(rows)


def _put(connection: Connection, planned: Sequence[_Planned], has_vector: set[int]) -> None:
    rows = []
    for one, _ in planned:
        due = one.due
        owed = bool(one.embedded) and due.number not in has_vector
        place = (due.number, due.tenant, due.thread, due.seq)
        rows.append((*place, one.planned, one.truncated, one.pointer, owed))
    _PUT.run_rows(connection, _COLUMNS, rows)
    gone, added = [], []
    for one, before in planned:
        due = one.due
        if (before.summary, before.body) != (due.summary, one.body):
            added.append((due.number, due.thread, due.summary, one.body))
            gone += [due.number] if before.body is not None else []
    remove_text(connection, gone)
    add_text(connection, added)


def _remember(connection: Connection, made: Sequence[Document], now_us: int) -> None:
    rows = []
    for one in made:
        if not one_line(one.due.summary):
            continue
        pointer = one.pointer
        said = memory_text(one.due.summary, pointer)
        digest = hashlib.sha256(said.encode()).digest()
        rows.append(
            {"tenant": one.due.tenant, "pointer": pointer, "text": said, "digest": digest}
            | {"state": int(MemoryState.WAITING), "due_us": now_us, "created_us": now_us}
            | {"unsure": False, "attempts": 0, "job_id": "", "blob_id": ""}
        )
    _REMEMBER.run_many(connection, rows)


def scope_word(thread: int) -> str:
    """Return the word of a thread; it ends in a digit, so that the stemmer leaves it whole."""
    return f"t{thread}"


def expression(words: Words, scope: str = "") -> str:
    """Return what a search matches; empty if it looks for nothing.

    Every phrase must occur. If there are none, some word or identifier must; else they only
    raise the rank. All text is quoted: none of it is syntax.
    """
    phrases = [_quoted(phrase) for phrase in words.phrases]
    others = [_quoted(word) for word in (*words.words, *words.identifiers)]
    if phrases and others:
        # True wherever the phrases are: what else of it occurs counts for the rank.
        phrases.append(f"({' OR '.join((phrases[0], *others))})")
    wanted = " AND ".join(phrases) or " OR ".join(others)
    if not wanted:
        return ""
    within = f"scope : {_quoted(scope)} AND " if scope else ""
    return f"{within}{{summary body}} : ({wanted})"


def _quoted(word: str) -> str:
    doubled = word.replace('"', '""')
    return f'"{doubled}"'


def add_text(connection: Connection, said: Sequence[tuple[int, int, str, str]]) -> None:
    """Index documents: of each its number, its thread's, summary and body."""
    rows = [(number, scope_word(thread), *parts) for number, thread, *parts in said]
    _ADD_TEXT.run_rows(connection, _TEXT_COLUMNS, rows)


def remove_text(connection: Connection, numbers: Sequence[int]) -> None:
    """Remove documents from the index."""
    _REMOVE_TEXT.run_many(connection, [{"number": number} for number in numbers])
