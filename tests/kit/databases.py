"""The databases that tests of the journal run on: files of SQLite, and schemas of PostgreSQL."""

from __future__ import annotations

import atexit
import hashlib
import itertools
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

_postgres: str | None = None


def run_on_each(metafunc: pytest.Metafunc) -> None:
    """Run a test on SQLite and, where the machine has it, on PostgreSQL.

    It runs on one alone if it is marked `sqlite` or `postgresql`; where that one is missing, it
    is skipped.
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


@contextmanager
def in_postgres(dsn: str) -> Iterator[None]:
    """Put the journals that are opened inside of the context into a PostgreSQL server."""
    global _postgres
    _postgres = dsn
    try:
        yield
    finally:
        _postgres = None


@cache
def postgres() -> str:
    """Return the DSN of a PostgreSQL server that runs until the process ends.

    What it commits is not fsynced: no test of these kills the server.

    Raises:
        LeftOutError: The machine has none.
    """
    running = ExitStack()
    atexit.register(running.close)
    return running.enter_context(
        running_postgres("fsync=off", "full_page_writes=off", "synchronous_commit=off")
    )


def place(path: Path) -> Path | str:
    """Return where the journal of a path is: the path itself, or a schema of its own."""
    if _postgres is None:
        return path
    schema = "t" + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    with psycopg.connect(_postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    return f"{url_of(_postgres)}&options=-csearch_path%3D{schema}"


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
    """Return the rows of a query of the journal of a server with this data directory."""
    url = journal_of(data_dir)
    if url:
        with psycopg.connect(url) as connection:
            return connection.execute(query.encode()).fetchall()
    with closing(sqlite3.connect(data_dir / "journal.db")) as file:
        return file.execute(query).fetchall()


def ask(connection: Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query in SQL, a question mark for each value."""
    if connection.dialect.name == "postgresql":
        numbers = itertools.count(1)
        statement = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
    return list(connection.connection.cursor().execute(statement, values).fetchall())
