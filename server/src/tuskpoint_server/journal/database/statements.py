"""SQL that is written once, compiled at its first use, and run through the driver.

SQLAlchemy's own execution costs several times what SQLite takes for a keyed lookup.
Results are the driver's tuples; truth values come back as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, FromClause, Table, and_, bindparam, literal_column, or_
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.elements import BindParameter, ClauseElement, ColumnElement

from ...domain.snapshots import THREADS, THREADS_END

_T = TypeVar("_T")

EMPTY: ColumnElement[str] = literal_column("''")
"""The empty text, spelled out: partial indexes are used only where the query says so too."""

IN_LIST = 500
"""Values that one `IN (...)` names; databases bound their number."""

LISTED: BindParameter[Any] = bindparam("listed", expanding=True)
"""What `column.in_(LISTED)` compares with; `Statement.run_listed` says what it is."""

_LISTED = "__[POSTCOMPILE_listed]"


class Statement:
    """One statement with named parameters."""

    __slots__ = ("_defaults", "_expression", "_listing", "_names", "_text")

    def __init__(self, expression: ClauseElement) -> None:
        self._expression = expression
        self._text = ""
        self._listing: dict[int, str] = {}  # its text by the number of items
        self._names: tuple[str, ...] = ()
        self._defaults: dict[str, object] = {}

    def run(self, connection: Connection, **values: object) -> DBAPICursor:
        """Execute it and return the driver's cursor."""
        text = self._text or self._compile()
        if self._defaults:
            values = {**self._defaults, **values}
        cursor = connection.connection.cursor()
        cursor.execute(text, [values[name] for name in self._names])
        return cursor

    def run_listed(
        self, connection: Connection, items: Iterable[object], **values: object
    ) -> Iterator[tuple[Any, ...]]:
        """Yield its rows where `LISTED` is each of the items, in runs that one `IN` takes.

        A run is filled up to the next power of two, so that few texts are prepared.
        """
        text = self._text or self._compile()
        place = self._names.index("listed")
        values = {**self._defaults, **values, "listed": None}
        known = [values[name] for name in self._names]
        for some in in_lists(dict.fromkeys(items)):
            count = min(1 << (len(some) - 1).bit_length(), IN_LIST)
            filled = some + some[-1:] * (count - len(some))
            listing = self._listing.get(count)
            if listing is None:
                marks = ", ".join("?" * count)
                listing = self._listing[count] = text.replace(_LISTED, marks)
            cursor = connection.connection.cursor()
            cursor.execute(listing, [*known[:place], *filled, *known[place + 1 :]])
            yield from cursor.fetchall()

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Execute it once for each row of parameters; return how many rows it changed."""
        self._text or self._compile()
        known = [{**self._defaults, **row} for row in rows] if self._defaults else rows
        items = [[row[name] for name in self._names] for row in known]
        return self.run_rows(connection, self._names, items)

    def run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> int:
        """Execute it once for each row, whose items stand in the order of `names`."""
        self._text or self._compile()
        if self._names != names:
            return self.run_many(connection, [dict(zip(names, row, strict=True)) for row in rows])
        if not rows:
            return 0
        cursor = connection.connection.cursor()
        cursor.executemany(self._text, rows)
        changed = cursor.rowcount
        cursor.close()
        return int(changed)

    def _compile(self) -> str:
        compiled: Any = self._expression.compile(dialect=sqlite.dialect())
        self._names = tuple(compiled.positiontup or ())
        self._defaults = {
            name: bind.effective_value for name, bind in compiled.binds.items() if not bind.required
        }
        self._text = str(compiled)
        return self._text


def inserting(table: Table, names: Iterable[str] = ()) -> sqlite.Insert:
    """Return the insert of rows, with a parameter for each column; `names`: of these alone."""
    names = tuple(names) or [column.name for column in table.columns]
    return sqlite.insert(table).values({name: bindparam(name) for name in names})


def putting(
    table: Table,
    key: Sequence[str],
    replaced: Iterable[str] = (),
    names: Iterable[str] = (),
    where: ColumnElement[bool] | None = None,
) -> sqlite.Insert:
    """Return the insert of rows that replaces columns of those with the same key.

    `key`: columns of a unique index; `replaced`: all others if empty; `names`: all if empty;
    `where`: which rows are replaced, all if `None`.
    """
    names = tuple(names) or [column.name for column in table.columns]
    statement = inserting(table, names)
    replaced = tuple(replaced) or [name for name in names if name not in key]
    new = {name: statement.excluded[name] for name in replaced}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new, where=where)


def of_thread(table: Table) -> ColumnElement[bool]:
    """Match the rows of a thread; parameter `of_thread`, its number."""
    return table.c.thread == bindparam("of_thread")


def of_namespace(table: Table) -> ColumnElement[bool]:
    """Match the rows of a namespace; parameters as `of_thread`, and `of_ns`."""
    return and_(of_thread(table), table.c.checkpoint_ns == bindparam("of_ns"))


def of_checkpoint(table: Table) -> ColumnElement[bool]:
    """Match the rows of a checkpoint; parameters as `of_namespace`, and `of_id`."""
    return and_(of_namespace(table), table.c.checkpoint_id == bindparam("of_id"))


def same_checkpoint(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    """Match the rows of two tables that are of the same checkpoint."""
    key = ("thread", "checkpoint_ns", "checkpoint_id")
    return and_(*(one.c[name] == other.c[name] for name in key))


def of_users(table: Table) -> ColumnElement[bool]:
    """Match threads that users name: those of the server's own are out of sight."""
    return or_(table.c.thread_id < THREADS, table.c.thread_id >= THREADS_END)


def parameters_of(thread: int, checkpoint_ns: str, checkpoint_id: str) -> dict[str, object]:
    """Return the parameters of `of_checkpoint`, and so of the wider ones, for a checkpoint."""
    return {"of_thread": thread, "of_ns": checkpoint_ns, "of_id": checkpoint_id}


def in_lists(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield items in runs short enough for an `IN (...)`."""
    iterator = iter(items)
    while some := tuple(islice(iterator, IN_LIST)):
        yield some
