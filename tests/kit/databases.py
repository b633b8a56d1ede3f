"""The databases of the tests of the journal: SQLite files, and schemas of PostgreSQL."""

from __future__ import annotations

import atexit
import itertools
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import Connection

from bench.running.postgres import LeftOutError, newest_binaries, running_postgres
from tests.kit.kept_connections import kept_connections
from tuskpoint_server.journal.sql.journal_metadata import BOUND, GENERATION, JOURNAL_ID, OWN
from tuskpoint_server.journal.sql.schema import journal_info, metadata

_postgres: str | None = None
# Schema of each journal path, and the paths whose schemas may have tables.
_schemas: dict[Path, str] = {}
_with_tables: set[Path] = set()

_TABLES = [table.name for table in metadata.sorted_tables if table is not journal_info]
_EMPTY = "; ".join(
    (
        *(f"DELETE FROM {name}" for name in (*_TABLES, "search_text")),
        f"DELETE FROM journal_info WHERE name NOT IN {(*OWN, BOUND)}",
        f"UPDATE journal_info SET value = md5(random()::text) WHERE name = '{JOURNAL_ID}'",
        f"UPDATE journal_info SET value = '1' WHERE name = '{GENERATION}'",
        "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)"
        " FROM pg_sequences WHERE schemaname = current_schema()",
    )
)


def run_on_each(metafunc: pytest.Metafunc) -> None:
    """Run a test on SQLite and, where the machine has it, on PostgreSQL.

    A test that is marked `sqlite` or `postgresql` runs on that database alone, and is skipped
    where the database is missing.
    """
    if metafunc.definition.get_closest_marker("sqlite") is not None:
        return
    kinds = ["sqlite", "postgresql"]
    if metafunc.definition.get_closest_marker("postgresql") is not None:
        kinds.remove("sqlite")
    try:
        newest_binaries()
    except LeftOutError:
        kinds.remove("postgresql")
    metafunc.parametrize("database", kinds, indirect=True, scope="module")


def examples(database: str, count: int) -> int:
    """Return the number of examples for a model of the journal: `TUSKPOINT_EXAMPLES` if set.

    On PostgreSQL the number is a quarter of `count`. SQLite needs a fifth of the time to find
    wrong rules, and few examples are enough for the differences of PostgreSQL.
    """
    chosen = count if database == "sqlite" else count // 4
    return int(os.environ.get("TUSKPOINT_EXAMPLES", chosen))


@contextmanager
def in_postgres(dsn: str) -> Iterator[None]:
    """Create the journals that are opened inside the context on a PostgreSQL server."""
    global _postgres
    _postgres = dsn
    try:
        with kept_connections():
            yield
    finally:
        _postgres = None


@cache
def postgres() -> str:
    """Return the DSN of a PostgreSQL server that runs until the process ends.

    Commits are not fsynced: no test that uses this server kills it.

    Raises:
        LeftOutError: The machine has no PostgreSQL.
    """
    running = ExitStack()
    atexit.register(running.close)
    return running.enter_context(
        running_postgres(
            *("fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off")
        )
    )


def place(path: Path) -> Path | str:
    """Return the address of the journal of a path: the path itself, or a schema for this path."""
    if _postgres is None:
        return path
    schema = _schemas.setdefault(path, f"journal_{len(_schemas)}")
    return _url_of(schema, f"CREATE SCHEMA IF NOT EXISTS {schema}")


def place_of_new_journal(path: Path) -> Path | str:
    """Return the address of a new journal of a path; its tables may exist, and are empty.

    Creating tables takes longer than most tests do. So the schema of a finished test is used again,
    if there is one: pytest removes the directory of a test that passed.
    """
    if _postgres is None or path in _schemas:
        return place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    over = next((path for path in _with_tables if not path.parent.exists()), None)
    _with_tables.add(path)
    if over is None:
        return place(path)
    _with_tables.remove(over)
    schema = _schemas[path] = _schemas[over]
    return _url_of(schema, _EMPTY)


def _url_of(schema: str, statements: str) -> str:
    """Run statements in a schema, and return its URL."""
    assert _postgres is not None
    _administrator(_postgres).execute(f"SET search_path = {schema}; {statements}".encode())
    return f"{url_of(_postgres)}&options=-csearch_path%3D{schema}"


@cache
def _administrator(dsn: str) -> psycopg.Connection[tuple[object, ...]]:
    """Return a connection that stays open: a new connection would read the catalogs again."""
    connection = psycopg.connect(dsn, autocommit=True)
    atexit.register(connection.close)
    return connection


def url_of(dsn: str) -> str:
    """Return the DSN of a server on a Unix socket as a URL with parameters."""
    known = psycopg.conninfo.conninfo_to_dict(dsn)
    user, name, host = (quote(str(known[part]), safe="") for part in ("user", "dbname", "host"))
    return f"postgresql://{user}@/{name}?host={host}"


def journal_of(data_dir: Path) -> str:
    """Return the setting `journal` of a server with this data directory."""
    there = place(data_dir)
    return there if isinstance(there, str) else ""


def rows_of_server(data_dir: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the journal of a server with this data directory."""
    url = journal_of(data_dir)
    if url:
        with psycopg.connect(url) as connection:
            return connection.execute(query.encode()).fetchall()
    with closing(sqlite3.connect(data_dir / "journal.db")) as file:
        return file.execute(query).fetchall()


def ask(connection: Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of an SQL query, with a question mark for each value."""
    if connection.dialect.name == "postgresql":
        numbers = itertools.count(1)
        statement = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
    return list(connection.connection.cursor().execute(statement, values).fetchall())
