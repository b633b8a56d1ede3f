"""Text is split into words in the same way as SQLite's full text splits it."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuskpoint_server.core.search import MAX_WORDS, Words, analyse

ANY_TEXT = st.text(max_size=4096)
WRITTEN = st.text(
    st.one_of(
        st.sampled_from("abcxyzßéøåЖд漢字λπω0123 \t\n-_./:'\"“”«»!?#"),
        st.characters(max_codepoint=0x24F, categories=("L", "N", "P", "Z")),
    ),
    max_size=200,
)


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    """A full text with the journal's tokenizer."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE held USING fts5("
            "body, tokenize='porter unicode61 remove_diacritics 2')"
        )
        yield connection
    connection.close()


def finds(database: sqlite3.Connection, text: str, sought: str) -> bool:
    """Return whether full text finds a quoted string in a text."""
    database.execute("DELETE FROM held")
    database.execute("INSERT INTO held (body) VALUES (?)", (text,))
    cursor = database.execute("SELECT 1 FROM held WHERE held MATCH ?", (f'"{sought}"',))
    return cursor.fetchone() is not None


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("When did the Writer start?", ("writer", "start")),
        ("writer WRITER Writer", ("writer",)),
        ("didn't Ada's plan work", ("ada", "plan", "work")),
        ("and/or, well-known", ("well", "known")),
        ("step 42 of 100", ("step", "42", "100")),
        ("naïve Straße Ελλάδα", ("naïve", "straße", "ελλάδα")),
        ("हिन्दी में", ("हिन्दी", "में")),
        ("--- ... /// \u0301", ()),
        ("", ()),
    ],
)
def test_words_are_distinct_and_without_stopwords(text: str, words: tuple[str, ...]) -> None:
    assert analyse(text) == Words(words=words)


@pytest.mark.parametrize(("text", "words"), [("What was it?", ("what", "was", "it"))])
def test_stopwords_stay_where_nothing_else_is(text: str, words: tuple[str, ...]) -> None:
    assert analyse(text) == Words(words=words)


def test_stopwords_go_where_something_else_is() -> None:
    assert analyse('what was "it"') == Words(phrases=("it",))
    assert analyse("what was PAY-7") == Words(identifiers=("pay-7",))


# --- phrases ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"connection reset by peer"', Words(phrases=("connection reset by peer",))),
        ("who said “The End”?", Words(words=("said",), phrases=("the end",))),
        ("„so nicht“ «d'accord»", Words(phrases=("so nicht", "d accord"))),
        ('"PAY-1234" twice "pay 1234"', Words(words=("twice",), phrases=("pay 1234",))),
        ('a 5" disk', Words(words=("5", "disk"))),
        ('"one" two"', Words(words=("two",), phrases=("one",))),
        ('"" nothing "?!"', Words(words=("nothing",))),
        ("'one' word", Words(words=("one", "word"))),
    ],
)
def test_text_in_double_quotes_is_a_phrase(text: str, expected: Words) -> None:
    assert analyse(text) == expected


# --- identifiers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("PAY-1234", "pay 1234"),
        ("v1.2.3", "v1 2 3"),
        ("thread_42", "thread 42"),
        ("k8s", "k8s"),
        ("1f0c7d2a-91b3-6e44-8000-5e1a2b3c4d5e", "1f0c7d2a 91b3 6e44 8000 5e1a2b3c4d5e"),
        ("2026-11-22", "2026 11 22"),
        ("10.0.0.12", "10 0 0 12"),
        ("20261122", "20261122"),
        ("reports/q3.pdf", "reports q3 pdf"),
    ],
)
def test_an_identifier_is_kept_whole(text: str, phrase: str) -> None:
    words = analyse(f"what about ({text})?")
    assert words == Words(identifiers=(text.lower(),))
    assert words.asks_exactly
    assert words.required() == Words(phrases=(phrase,))


@pytest.mark.parametrize("text", ["plan", "plan-b", "24/7", "3.14", "one two"])
def test_ordinary_words_are_no_identifiers(text: str) -> None:
    words = analyse(text)
    assert not words.identifiers
    assert not words.asks_exactly
    assert words.required() == words


def test_required_keeps_words_and_phrases() -> None:
    query = analyse('refund "card declined" PAY-7 "pay 7"')
    assert query.required() == Words(words=("refund",), phrases=("card declined", "pay 7"))
    assert query.required().required() == query.required()


# --- any text --------------------------------------------------------------------------------


@given(ANY_TEXT)
@example('"' * 4096)
@example("-" * 4096)
@example("a-" * 2048)
@example("1" * 4096)
@example("\u0301" * 4096)
@example("İ" * 4096)
@example("\0\ud800")
def test_any_text_is_taken_apart(text: str) -> None:
    query = analyse(text)
    every = (*query.words, *query.phrases, *query.identifiers)
    assert query.empty == (not every)
    assert query.empty == (not any(map(str.isalnum, text)))
    assert max(map(len, (query.words, query.phrases, query.identifiers))) <= MAX_WORDS
    for term in (*query.words, *query.required().phrases):
        assert term == " ".join(term.split())
        assert all(c.isalnum() or c == " " or unicodedata.category(c)[0] == "M" for c in term)
    for kind in (query.words, query.phrases, query.identifiers):
        assert len(set(kind)) == len(kind)


def test_a_long_query_is_cut() -> None:
    query = analyse(" ".join(f"{'x' * n} x{n} “y{n}”" for n in range(1, 200)))
    assert [len(kind) for kind in (query.words, query.identifiers, query.phrases)] == [
        MAX_WORDS
    ] * 3
    assert query.words[0] == "x"


@given(WRITTEN)
@example("Straße λόγος ΛΌΓΟΣ İstanbul ẞ Ǆ")
@example("PAY-1234 “to be” or not_2_be")
def test_full_text_finds_the_words_of_a_query(database: sqlite3.Connection, text: str) -> None:
    """A search with a text finds this text: splitting loses no word."""
    query = analyse(text).required()
    for sought in (*query.words, *query.phrases):
        assert finds(database, text, sought), sought
