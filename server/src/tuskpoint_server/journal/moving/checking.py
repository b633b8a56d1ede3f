"""Compares all values and writes of a journal with their digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, bindparam, select

from ...core.model import DamagedValue
from ..sql.journal_metadata import JOURNAL_KEY, read_finished
from ..sql.schema import contents, threads, writes
from ..sql.statements import Statement
from ..values.contents import StoredValue, compare_values, stored_value
from .rows import Row, TableRows

_NAME = Statement(select(threads.c.thread_id).where(threads.c.number == bindparam("of_number")))
_CONTENT = tuple(contents.columns.keys())
_WRITE = tuple(writes.columns.keys())


def damaged_values(connection: Connection) -> list[str]:
    """Return a line for each value that differs from its digest; none for a sealed journal.

    A sealed journal's values need its key; opening them detects changes.
    """
    return [] if JOURNAL_KEY in read_finished(connection) else list(_damage_lines(connection))


def _damage_lines(connection: Connection) -> Iterator[str]:
    for rows in TableRows(contents).runs(connection):
        yield from _of_contents(connection, rows)
    for rows in TableRows(writes).runs(connection):
        for row in rows:
            write = dict(zip(_WRITE, row, strict=True))
            stored = (
                write["digest"],
                write["type"],
                write["size"],
                write["encoding"],
                write["data"],
            )
            value = stored_value(write["thread"], *stored)
            if isinstance(value, DamagedValue):
                at = (
                    f"checkpoint '{write['checkpoint_id']}' of "
                    f"{_thread(connection, write['thread'])}"
                )
                yield _line(value, at)


def _of_contents(connection: Connection, rows: Sequence[Row]) -> Iterator[str]:
    families: dict[int, dict[bytes, StoredValue]] = {}
    brought: dict[tuple[int, bytes], int] = {}
    for row in rows:
        columns = dict(zip(_CONTENT, row, strict=True))
        stored = StoredValue(*(columns[name] for name in StoredValue._fields))
        families.setdefault(columns["family"], {})[stored.digest] = stored
        brought[columns["family"], stored.digest] = columns["thread"]
    for family, values in families.items():
        for digest, value in compare_values(connection, family, values):
            if isinstance(value, DamagedValue):
                yield _line(value, _thread(connection, brought[family, digest]))


def _thread(connection: Connection, number: int) -> str:
    row = _NAME.run(connection, of_number=number).fetchone()
    return f"thread '{row[0]}'" if row is not None else "a thread that is gone"


def _line(value: DamagedValue, at: str) -> str:
    return f"value {value.damage.digest.hex()} of {at} is damaged: {value.damage.problem}"
