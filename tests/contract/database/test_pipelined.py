"""Statements on a pipelined connection to PostgreSQL do not wait for earlier answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from enum import IntEnum
from pathlib import Path

import psycopg
import pytest

from tests.kit.databases import place
from tuskpoint_server.journal.sql.pipelined import PipelinedConnection
from tuskpoint_server.journal.sql.postgres import connect

pytestmark = pytest.mark.postgresql


class Color(IntEnum):
    RED = 3


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[PipelinedConnection]:
    with closing(connect(str(place(tmp_path)))) as opened:
        yield opened


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 0),
        ("bigint", -(2**63)),
        ("bigint", 2**63 - 1),
        ("integer", Color.RED),
        ("text", ""),
        ("text", "quoted '\"\\ {},\n \N{ELEPHANT}"),
        ("bytea", b""),
        ("bytea", bytes(range(256))),
        ("boolean", True),
        ("boolean", False),
        ("double precision", -1.5e-300),
        ("text", None),
        ("bigint[]", [1, -(2**63)]),
        ("text[]", ["", "NULL", "\\x00", "quoted '\"\\ {},\n \N{ELEPHANT}"]),
        ("bytea[]", [b"", bytes(range(256))]),
        ("text[]", []),
    ],
)
def test_a_value_comes_back_as_it_was_sent(
    connection: PipelinedConnection, kind: str, value: object
) -> None:
    for _ in range(3):  # the statement is prepared from its second run on
        answer = connection.execute(f"SELECT $1::{kind}", [value])
        assert answer.fetchall() == [(value,)]


def test_a_sum_of_whole_numbers_is_one(connection: PipelinedConnection) -> None:
    cursor = connection.execute("SELECT sum(n) FROM (VALUES (9223372036854775807), (1)) AS t (n)")
    assert repr(cursor.fetchone()) == "(9223372036854775808,)"


@pytest.mark.parametrize("value", ["a\0b", ["a\0b"]])
def test_a_text_with_a_zero_byte_is_refused(connection: PipelinedConnection, value: object) -> None:
    kind = "text[]" if isinstance(value, list) else "text"
    with pytest.raises(psycopg.DataError):
        connection.execute(f"SELECT $1::{kind}", [value]).fetchall()


def test_answers_are_read_in_any_order(connection: PipelinedConnection) -> None:
    answers = [connection.execute("SELECT generate_series(1, $1::int)", [n]) for n in range(5)]
    assert [len(answer.fetchall()) for answer in reversed(answers)] == [4, 3, 2, 1, 0]
    last = connection.execute("SELECT generate_series(1, 5)")
    assert (last.fetchone(), last.fetchmany(2), last.fetchall()) == (
        (1,),
        [(2,), (3,)],
        [(4,), (5,)],
    )
    assert (last.fetchone(), last.rowcount) == (None, 5)


def test_a_statement_that_fails_undoes_the_transaction(connection: PipelinedConnection) -> None:
    connection.execute("CREATE TABLE kept (n int PRIMARY KEY)")
    connection.execute("INSERT INTO kept VALUES (1)")
    connection.receive()
    connection.execute("BEGIN")
    insert = "INSERT INTO kept VALUES ($1)"
    after = [connection.execute(insert, [n]) for n in (2, 1, 3)][-1]
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.commit()
    with pytest.raises(psycopg.OperationalError, match="was not executed"):
        after.fetchall()
    connection.rollback()
    connection.execute("BEGIN")
    assert connection.execute(insert, [4]).rowcount == 1
    connection.commit()
    assert connection.execute("SELECT n FROM kept ORDER BY n").fetchall() == [(1,), (4,)]


def test_a_statement_that_could_not_be_prepared_is_prepared_later(
    connection: PipelinedConnection,
) -> None:
    query = "SELECT 10 / $1::int"
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(query, [0]).fetchall()
    assert [connection.execute(query, [5]).fetchone() for _ in range(3)] == [(2,)] * 3
    prepared = connection.execute(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement = $1"
    )
    with pytest.raises(psycopg.errors.ProtocolViolation):  # the statement lacks its parameter
        prepared.fetchone()
    named = "SELECT count(*) FROM pg_prepared_statements WHERE statement = $1"
    assert connection.execute(named, [query]).fetchone() != (0,)


def test_a_cursor_reads_after_the_statements_before_it(connection: PipelinedConnection) -> None:
    connection.execute("CREATE TABLE numbers AS SELECT generate_series(1, 3) AS n")
    answer = connection.execute("SELECT count(*) FROM numbers")
    assert connection.cursor().execute("SELECT sum(n) FROM numbers").fetchall() == [(6,)]
    assert answer.fetchone() == (3,)


def test_more_than_the_socket_takes_is_sent_as_there_is_room(
    connection: PipelinedConnection,
) -> None:
    """The server does not read while it works; the unsent rest must not be forgotten."""
    with socket.socket(fileno=socket.dup(connection.pgconn.socket)) as its:
        its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection.execute("CREATE TABLE large (data bytea)")
    connection.execute("BEGIN")
    connection.execute("SELECT pg_sleep(0.2)")
    data = bytes(5 << 20)
    for _ in range(3):
        connection.execute("INSERT INTO large VALUES ($1)", [data])
    connection.commit()
    rows = connection.execute("SELECT data FROM large").fetchall()
    assert rows == [(data,)] * 3


def test_answers_that_fill_the_socket_are_read_while_the_rest_is_sent(
    connection: PipelinedConnection,
) -> None:
    data = bytes(1 << 20)
    answers = [connection.execute("SELECT $1::bytea", [data]) for _ in range(20)]
    assert [answer.fetchone() for answer in answers] == [(data,)] * 20


def test_a_lost_connection_says_so(tmp_path: Path, connection: PipelinedConnection) -> None:
    [pid] = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    with closing(connect(str(place(tmp_path)))) as other:
        other.execute("SELECT pg_terminate_backend($1)", [pid]).fetchone()
    for _ in range(2):  # the first error has the server's last message
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1").fetchone()
    assert connection.closed


def test_nobody_waits_for_what_was_only_sent(connection: PipelinedConnection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT pg_advisory_lock(7)")
    connection.execute("COMMIT")
    connection.send()
    connection.execute("BEGIN")
    assert connection.execute("SELECT pg_advisory_unlock(7)").fetchone() == (True,)
    connection.commit()
