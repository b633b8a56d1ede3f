"""The full text of documents: all that is FTS5's own (https://www.sqlite.org/fts5.html)."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from sqlalchemy import Connection, column, table, text

from ...domain.search import Words
from ..database.statements import Statement

# the text of documents; `rowid` is the number of a document
TEXT = table("search_text", column("rowid"), column("summary"), column("body"))
_AT_ONCE = 256
_COLUMNS = ("number", "scope", "summary", "body")
_ADD = Statement(
    text(
        "INSERT INTO search_text (rowid, scope, summary, body) "
        "VALUES (:number, :scope, :summary, :body)"
    )
)
_REMOVE = Statement(text("DELETE FROM search_text WHERE rowid = :number"))
# Ordered by `rank` and nothing else, FTS5 sorts the matches by itself, each scored once.
_RANKED = Statement(
    text(
        "SELECT rowid, -rank FROM search_text "
        "WHERE search_text MATCH :expression AND rank MATCH :weights ORDER BY rank"
    )
)
# What a word counts by where it stands: a summary was written to be found.
_WEIGHTS = "bm25(0.0, 4.0, 1.0)"


def scope_word(thread: int) -> str:
    """Return the word that stands for a thread, by its number.

    It ends in a digit, so that the stemmer, which cuts endings of letters, leaves it whole.
    """
    return f"t{thread}"


def expression(words: Words, scope: str = "") -> str:
    """Return what a search matches; empty if it looks for nothing.

    Every phrase must occur. If there are none, some word or identifier must; else they only
    raise the rank. All text is quoted: none of it is syntax
    (https://www.sqlite.org/fts5.html#fts5_strings).
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


def add(connection: Connection, documents: Sequence[tuple[int, int, str, str]]) -> None:
    """Index documents: of each its number, its thread's, summary and body."""
    rows = [(number, scope_word(thread), *said) for number, thread, *said in documents]
    _ADD.run_rows(connection, _COLUMNS, rows)


def remove(connection: Connection, numbers: Sequence[int]) -> None:
    """Remove documents from the index."""
    _REMOVE.run_many(connection, [{"number": number} for number in numbers])


def ranked(connection: Connection, matching: str) -> Generator[tuple[int, float], None, None]:
    """Yield what an `expression` matches, best first: number and BM25, above 0."""
    rows = _RANKED.run(connection, expression=matching, weights=_WEIGHTS)
    try:
        while some := rows.fetchmany(_AT_ONCE):
            yield from some
    finally:
        rows.close()
