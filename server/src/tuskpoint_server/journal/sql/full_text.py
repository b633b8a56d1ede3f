"""Full text of documents: FTS5 in SQLite, `tsvector` in PostgreSQL, the same words in both.

Words are runs of letters and digits, in lower case, without accents, found by their stems
(https://www.sqlite.org/fts5.html, https://www.postgresql.org/docs/current/textsearch.html).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import sqlalchemy as sa

from ...core.search import Words
from .statements import Statement

TEXT = sa.table("search_text", sa.column("rowid"), sa.column("summary"), sa.column("body"))
"""The text of documents; `rowid` is the number of a document."""

# A `tsvector` has at most 1 MiB; this many characters of all-different words stay below that.
_INDEXED_CHARACTERS = 400_000

_ADD = Statement(
    sa.text(
        "INSERT INTO search_text (rowid, scope, summary, body) "
        "VALUES (:number, :scope, :summary, :body)"
    ),
    sa.text(
        "INSERT INTO search_text (rowid, scope, summary, body, words) "
        "VALUES (:number, :scope, :summary, :body,"
        " setweight(to_tsvector('tuskpoint', :summary_words), 'A')"
        " || to_tsvector('tuskpoint', :body_words))"
    ),
)
_READ = Statement(
    sa.text(
        "SELECT rowid, scope, summary, body FROM search_text WHERE rowid > :above"
        " ORDER BY rowid LIMIT :most"
    )
)
_LAST = Statement(sa.text("SELECT rowid FROM search_text ORDER BY rowid DESC LIMIT 1"))
_REMOVE = Statement(sa.text("DELETE FROM search_text WHERE rowid = :number"))
# One step of a merge of the whole FTS5 index: a negative number of pages starts a merge.
_MERGE = Statement(
    sa.text("INSERT INTO search_text (search_text, rank) VALUES ('merge', :pages)"),
)
_CHANGED = Statement(sa.text("SELECT total_changes()"))
_MERGED_PAGES = 64  # pages that one step writes: about 10 ms
# Number and rank, above 0, of the matches of an `expression`, best first. The weight of a word
# depends on its place: summaries are written to be found. With `ORDER BY rank` alone, FTS5 sorts
# the matches by itself, and scores each match once.
_RANKED = Statement(
    sa.text(
        "SELECT rowid, -rank FROM search_text "
        "WHERE search_text MATCH :expression AND rank MATCH 'bm25(0.0, 4.0, 1.0)' ORDER BY rank"
    ),
    sa.text(
        "SELECT rowid, ts_rank('{0.25, 0.25, 0.25, 1.0}', words, any_of, 1) AS score"
        " FROM search_text, to_tsquery('tuskpoint', :expression) AS asked,"
        " to_tsquery('tuskpoint', :any_of) AS any_of"
        " WHERE words @@ asked AND (:scope = '' OR scope = :scope) ORDER BY score DESC, rowid"
    ),
)


def add(connection: sa.Connection, texts: Iterable[tuple[int, int, str, str]]) -> None:
    """Index documents, each with its number, its thread's number, summary and body."""
    names: tuple[str, ...] = ("number", "scope", "summary", "body")
    rows: list[tuple[object, ...]]
    rows = [(number, scope_word(thread), *parts) for number, thread, *parts in texts]
    if connection.dialect.name == "postgresql":
        names = (*names, "summary_words", "body_words")
        rows = [(*row, _plain_text(str(row[2])), _plain_text(str(row[3]))) for row in rows]
    _ADD.run_rows(connection, names, rows)


def read(connection: sa.Connection, above: int, most: int) -> list[tuple[int, int, str, str]]:
    """Return the next documents above a number, in the form that `add` accepts."""
    rows = _READ.run(connection, above=above, most=most).fetchall()
    return [(number, int(scope[1:]), *parts) for number, scope, *parts in rows]


def last_number(connection: sa.Connection) -> int | None:
    """Return the greatest number of a document."""
    row = _LAST.run(connection).fetchone()
    return None if row is None else int(row[0])


def remove(connection: sa.Connection, numbers: Sequence[tuple[int]]) -> None:
    """Remove the text of documents."""
    _REMOVE.run_rows(connection, ("number",), numbers)


def merge(connection: sa.Connection, *, begins: bool) -> bool:
    """Run a step of the merge that drops removed documents; return whether another step is due.

    Until the merge, FTS5 only marks the documents as removed. PostgreSQL has no such marks.
    """
    if connection.dialect.name == "postgresql":
        return False
    [(before,)] = _CHANGED.run(connection).fetchall()
    _MERGE.run(connection, pages=-_MERGED_PAGES if begins else _MERGED_PAGES)
    [(after,)] = _CHANGED.run(connection).fetchall()
    # One counted change is the command itself (https://www.sqlite.org/fts5.html#the_merge_command).
    return int(after) - int(before) > 1


@contextmanager
def rank_documents(
    connection: sa.Connection, words: Words, thread: int | None
) -> Iterator[Iterator[tuple[int, float]]]:
    """Yield number and score, above 0, of the documents that match the words, best first.

    Every phrase must occur. Without phrases, a word or identifier must occur; with phrases, words
    and identifiers only raise the rank. `thread`: restricts the search to this thread.
    """
    scope = "" if thread is None else scope_word(thread)
    if connection.dialect.name == "postgresql":
        values = {"expression": _tsquery(words), "scope": scope, "any_of": _tsquery(_any_of(words))}
    else:
        values = {"expression": _match(words, scope)}
    if not values["expression"]:
        yield iter(())
        return
    # Closed before the transaction ends: unread rows would keep the transaction open.
    with closing(_RANKED.run(connection, **values)) as rows:
        yield iter(rows.fetchone, None)


def scope_word(thread: int) -> str:
    """Return the word of a thread; a final digit keeps the stemmer from changing the word."""
    return f"t{thread}"


def _match(words: Words, scope: str) -> str:
    """Return the FTS5 expression, with all text quoted; empty without words."""
    expression = _combine(words, _quote, " AND ", " OR ")
    if not expression:
        return ""
    in_scope = f"scope : {_quote(scope)} AND " if scope else ""
    return f"{in_scope}{{summary body}} : ({expression})"


def _tsquery(words: Words) -> str:
    """Return the expression for `to_tsquery`, which has only letters, digits and operators."""
    return _combine(words, lambda text: " <-> ".join(_plain_text(text).split()), " & ", " | ")


def _combine(words: Words, spelled: Callable[[str], str], both: str, either: str) -> str:
    phrases = [f"({phrase})" for phrase in map(spelled, words.phrases) if phrase]
    terms = [f"({term})" for term in map(spelled, (*words.words, *words.identifiers)) if term]
    if phrases and terms:
        # True for all documents with the phrases: the other terms only count for the rank.
        phrases.append(f"({either.join((phrases[0], *terms))})")
    return both.join(phrases) or either.join(terms)


def _any_of(words: Words) -> Words:
    """Return words that match if one of the given terms matches, to rank by all terms."""
    return Words((*words.phrases, *words.words), (), words.identifiers)


def _quote(word: str) -> str:
    doubled = word.replace('"', '""')
    return f'"{doubled}"'


def _plain_text(text: str) -> str:
    """Return the words of a text, separated by single spaces."""
    decomposed = unicodedata.normalize("NFKD", text[:_INDEXED_CHARACTERS].lower())
    chars = (
        char if char.isalnum() else " " for char in decomposed if not unicodedata.combining(char)
    )
    return " ".join("".join(chars).split())
