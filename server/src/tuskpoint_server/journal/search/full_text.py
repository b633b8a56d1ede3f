"""The full text of documents: all that is FTS5's own (https://www.sqlite.org/fts5.html).

The table `search_text` has what `search_documents` has, under the same numbers, without
holding the text again. So a row can only be removed by whoever still knows its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from ...domain.search_words import Words
from ..database.statements import Statement

SUMMARY_WEIGHT, BODY_WEIGHT = 4.0, 1.0
"""What a word counts by where it stands: a summary was written to be found."""

_SCOPE_BYTES = 16
_AT_ONCE = 256
_COLUMNS = ("number", "scope", "summary", "body")

_ADD = Statement(
    text(
        "INSERT INTO search_text (rowid, scope, summary, body) "
        "VALUES (:number, :scope, :summary, :body)"
    )
)
_REMOVE = Statement(
    text(
        "INSERT INTO search_text (search_text, rowid, scope, summary, body) "
        "VALUES ('delete', :number, :scope, :summary, :body)"
    )
)
# Ordered by `rank` and nothing else, FTS5 sorts the matches by itself, each scored once.
_RANKED = Statement(
    text(
        "SELECT rowid, -rank FROM search_text "
        "WHERE search_text MATCH :expression AND rank MATCH :weights ORDER BY rank"
    )
)
_WEIGHTS = f"bm25(0.0, {SUMMARY_WEIGHT}, {BODY_WEIGHT})"


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a document.

    Attributes:
        scope: What `scope_word` says.
        summary: The summary.
        body: Searchable text of the state.
    """

    scope: str
    summary: str
    body: str


def scope_word(tenant: str, thread_id: str) -> str:
    """Return the word that stands for a thread.

    It ends in a digit, so that the stemmer, which cuts endings of letters, leaves it whole.
    """
    named = f"{len(tenant)}:{tenant}{thread_id}".encode()
    return f"t{hashlib.sha256(named).digest()[:_SCOPE_BYTES].hex()}0"


def expression(words: Words, scope: str = "") -> str:
    """Return what a search matches; empty if it looks for nothing.

    Every phrase must occur. If there are none, some word or identifier must; else they only
    raise the rank. All text is quoted: none of it is syntax
    (https://www.sqlite.org/fts5.html#fts5_strings).

    Args:
        words: What is looked for.
        scope: Only in the thread that this word stands for, if not empty.
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


def add(connection: Connection, documents: Sequence[tuple[int, Text]]) -> None:
    """Index documents, each with its number."""
    _ADD.run_rows(connection, _COLUMNS, _rows(documents))


def remove(connection: Connection, documents: Sequence[tuple[int, Text]]) -> None:
    """Remove documents from the index.

    Args:
        connection: In a write transaction.
        documents: Number and exactly the text that was added of each.
    """
    _REMOVE.run_rows(connection, _COLUMNS, _rows(documents))


def _rows(documents: Sequence[tuple[int, Text]]) -> list[tuple[object, ...]]:
    return [(number, one.scope, one.summary, one.body) for number, one in documents]


def ranked(connection: Connection, matching: str) -> Generator[tuple[int, float], None, None]:
    """Yield the documents that match, best first: number and BM25, above 0.

    Args:
        connection: In a transaction.
        matching: What `expression` returned; not empty.
    """
    rows = _RANKED.run(connection, expression=matching, weights=_WEIGHTS)
    try:
        while some := rows.fetchmany(_AT_ONCE):
            yield from some
    finally:
        rows.close()
