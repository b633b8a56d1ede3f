"""The rows of a journal: table by table, in the order of the keys, in runs that fit into memory.

Both kinds of database order keys in the same way, by bytes, and return the same values. So the rows
of an unfinished copy are the first rows of the table, and the hash of a table does not depend on
its database.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    Connection,
    LargeBinary,
    Select,
    Table,
    Text,
    bindparam,
    func,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from ..sql import full_text as search_text
from ..sql.schema import NUMBERS, journal_info, metadata, packs, threads
from ..sql.sealing import SealedColumn
from ..sql.statements import SqlRow, Statement, insert_rows

RUN_ROWS = 2000
RUN_BYTES = 8 * 1024 * 1024
_TEXTS = 200  # documents have up to a few KiB of text each

Row = tuple[Any, ...]
Key = tuple[Any, ...]

_LAST_NUMBER = Statement(
    text("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = :of_table"),
    text(
        "SELECT coalesce(pg_sequence_last_value("
        "pg_get_serial_sequence(:of_table, 'number')::regclass), 0)"
    ),
)
_FORGET_NUMBER = Statement(text("DELETE FROM sqlite_sequence WHERE name = :of_table"))
_NOTE_NUMBER = Statement(
    text("INSERT INTO sqlite_sequence (name, seq) VALUES (:of_table, :last)"),
    text("SELECT setval(pg_get_serial_sequence(:of_table, 'number'), :last)"),
)
_LAST_OF_THREADS = select(
    func.coalesce(func.max(threads.c.number), 0), func.coalesce(func.max(threads.c.family), 0)
)
_NOTE_OF_THREADS = Statement(text(f"SELECT setval('{NUMBERS}', :last)"))


class Rows(ABC):
    """All rows of one kind.

    Attributes:
        name: Name of the table.
    """

    name: str

    @abstractmethod
    def read(self, connection: Connection, after: Key | None) -> Sequence[Row]:
        """Return the next rows above a key, or the first rows; empty at the end."""

    @abstractmethod
    def last(self, connection: Connection) -> Key | None:
        """Return the greatest key."""

    @abstractmethod
    def key(self, row: Row) -> Key:
        """Return the key of a row."""

    @abstractmethod
    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert rows."""

    def runs(self, connection: Connection, after: Key | None = None) -> Iterator[Sequence[Row]]:
        """Yield all rows above a key, in runs."""
        while rows := self.read(connection, after):
            yield rows
            after = self.key(rows[-1])

    def digest(self, connection: Connection) -> tuple[int, bytes]:
        """Return the number of rows and the SHA-256 of all rows."""
        count, digest = 0, hashlib.sha256()
        for rows in self.runs(connection):
            count += len(rows)
            for row in rows:
                digest.update(_spell_row(row))
        return count, digest.digest()


class TableRows(Rows):
    """The rows of a table with a primary key."""

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self._names = tuple(table.columns.keys())
        self._key = [self._names.index(column.name) for column in table.primary_key]
        self._truths = [n for n, column in enumerate(table.c) if isinstance(column.type, Boolean)]
        key = tuple_(*table.primary_key)
        above = key > tuple_(*(bindparam(f"above_{n}") for n in range(len(self._key))))
        sizes, rows = select(_size(table)), select(table)
        order = list(table.primary_key)

        def statement(query: Select[object]) -> Statement:
            return Statement(query.order_by(*order).limit(bindparam("most")))

        self._first = (statement(sizes), statement(rows))
        self._next = (statement(sizes.where(above)), statement(rows.where(above)))
        self._last = Statement(
            select(*order).order_by(*(column.desc() for column in order)).limit(1)
        )
        self._insert = Statement(insert_rows(table))

    def read(self, connection: Connection, after: Key | None) -> Sequence[Row]:
        """Return the next rows: at most `RUN_BYTES`, but at least one row."""
        sizes, rows = self._first if after is None else self._next
        above = {f"above_{n}": value for n, value in enumerate(after or ())}
        total, count = 0, 0
        for [size] in sizes.run(connection, most=RUN_ROWS, **above).fetchall():
            total += size
            if count and total > RUN_BYTES:
                break
            count += 1
        return [self._row(row) for row in rows.run(connection, most=count, **above).fetchall()]

    def last(self, connection: Connection) -> Key | None:
        """Return the greatest key."""
        row = self._last.run(connection).fetchone()
        return None if row is None else tuple(row)

    def key(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[n] for n in self._key)

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert rows."""
        self._insert.run_rows(connection, self._names, rows)

    def _row(self, row: SqlRow) -> Row:
        """Return a row with real truth values, which SQLite returns as 0 and 1."""
        if not self._truths:
            return tuple(row)
        changed = list(row)
        for n in self._truths:
            changed[n] = bool(changed[n])
        return tuple(changed)


class TextRows(Rows):
    """The text of documents, which each database indexes in its own way."""

    name = search_text.TEXT.name

    def read(self, connection: Connection, after: Key | None) -> Sequence[Row]:
        """Return the next documents: number, thread, summary, body."""
        [above] = after or (0,)
        return search_text.read(connection, above, _TEXTS)

    def last(self, connection: Connection) -> Key | None:
        """Return the greatest number."""
        number = search_text.last_number(connection)
        return None if number is None else (number,)

    def key(self, row: Row) -> Key:
        """Return the number of a document."""
        return (row[0],)

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Index documents."""
        search_text.add(connection, rows)


def all_rows() -> list[Rows]:
    """Return the rows that make up a journal.

    In-flight packs are left out: their bytes are in the spool of one data directory, and a flush
    builds their content again from the other rows. The journal's facts are left out.
    """
    left_out = (journal_info, packs)
    tables = [table for table in metadata.sorted_tables if table not in left_out]
    return [*map(TableRows, tables), TextRows()]


def copy_numbers(source: Connection, target: Connection) -> None:
    """Make the target give only numbers that the source has not given."""
    if target.dialect.name == "postgresql":
        last = max(1, *source.execute(_LAST_OF_THREADS).one())
        _NOTE_OF_THREADS.run(target, last=last).close()
    for table in metadata.sorted_tables:
        counted = bool(table.dialect_options["sqlite"]["autoincrement"])
        sqlite = target.dialect.name == "sqlite"
        if table.primary_key.columns.keys() != ["number"] or (sqlite and not counted):
            continue
        rows = TableRows(table)
        [last] = _LAST_NUMBER.run(source, of_table=table.name).fetchone() or (0,)
        [greatest] = rows.last(source) or (0,)
        if sqlite:
            _FORGET_NUMBER.run(target, of_table=table.name).close()
        if max(last, greatest):
            _NOTE_NUMBER.run(target, of_table=table.name, last=max(last, greatest)).close()


def _size(table: Table) -> ColumnElement[int]:
    """Return about how many bytes of memory a row takes."""
    size: ColumnElement[int] = literal_column("200")
    for column in table.columns:
        if isinstance(column.type, LargeBinary | SealedColumn | Text):
            size = size + func.coalesce(func.length(column), 0)
    return size


def _spell_row(row: Row) -> bytes:
    """Encode a row as bytes that no other row has."""
    parts: list[bytes] = []
    for value in row:
        if isinstance(value, str):
            data = value.encode()
            parts.append(b"t%d:%b" % (len(data), data))
        elif isinstance(value, bytes):
            parts.append(b"b%d:%b" % (len(value), value))
        else:
            parts.append(f"{value};".encode())  # an integer, a truth value or None
    return b"".join(parts) + b"\n"
