"""SQL that is written once, compiled once per database, and run through the driver.

SQLAlchemy's own execution costs several times what SQLite takes for a keyed lookup, so
the calls that every save makes go from compiled text straight to the driver's cursor.
Results are the driver's tuples; truth values come back as 0 and 1 on SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Dialect,
    Table,
    and_,
    bindparam,
    literal_column,
    or_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.sql.elements import ClauseElement, ColumnElement

from ...domain.snapshots import THREADS, THREADS_END

_T = TypeVar("_T")

Insert = sqlite.Insert | postgresql.Insert
InsertInto = Callable[[Table], Insert]
EMPTY: ColumnElement[str] = literal_column("''")
"""The empty text, spelled out: partial indexes are used only where the query says so too."""

Expression = ClauseElement


def insert_into(dialect: str) -> InsertInto:
    """Return the `insert` of a database that knows `ON CONFLICT`.

    Args:
        dialect: SQLAlchemy's name of the database.
    """
    return postgresql.insert if dialect == "postgresql" else sqlite.insert


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Text for one database; `positions` is `None` where it takes parameters by name."""

    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, object]

    def parameters(self, values: Mapping[str, object]) -> Any:
        known = {**self.defaults, **values} if self.defaults else values
        if self.positions is None:
            return known
        return [known[name] for name in self.positions]


class Statement:
    """One statement with named parameters."""

    __slots__ = ("_compiled", "_expression")

    def __init__(self, expression: Expression | Callable[[InsertInto], Expression]) -> None:
        self._expression = expression
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, **values: object) -> DBAPICursor:
        """Execute it and return the driver's cursor."""
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.execute(compiled.text, compiled.parameters(values))
        return cursor

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Execute it once for each row of parameters; return how many rows it changed."""
        if not rows:
            return 0
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.executemany(compiled.text, [compiled.parameters(row) for row in rows])
        changed = cursor.rowcount
        cursor.close()
        return int(changed)

    def run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> None:
        """Execute it once for each row, whose items stand in the order of `names`."""
        compiled = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        if compiled.positions != names:
            self.run_many(connection, [dict(zip(names, row, strict=True)) for row in rows])
            return
        cursor = connection.connection.cursor()
        cursor.executemany(compiled.text, rows)
        cursor.close()

    def _compile(self, dialect: Dialect) -> _Compiled:
        expression = self._expression
        if not isinstance(expression, ClauseElement):
            expression = expression(insert_into(dialect.name))
        compiled = expression.compile(dialect=dialect)
        positions = getattr(compiled, "positiontup", None)
        prepared = _Compiled(
            text=str(compiled),
            positions=tuple(positions) if dialect.positional and positions is not None else None,
            defaults={
                name: bind.effective_value
                for name, bind in getattr(compiled, "binds", {}).items()
                if not bind.required
            },
        )
        self._compiled[dialect.name] = prepared
        return prepared


def all_columns(table: Table) -> dict[str, Any]:
    """Return a parameter for each column, under the column's name, for an insert."""
    return {column.name: bindparam(column.name) for column in table.columns}


def of_thread(table: Table) -> ColumnElement[bool]:
    """Match the rows of a thread; parameter `of_thread`, its number."""
    return table.c.thread == bindparam("of_thread")


def of_namespace(table: Table) -> ColumnElement[bool]:
    """Match the rows of a namespace; parameters as `of_thread`, and `of_ns`."""
    return and_(of_thread(table), table.c.checkpoint_ns == bindparam("of_ns"))


def of_checkpoint(table: Table) -> ColumnElement[bool]:
    """Match the rows of a checkpoint; parameters as `of_namespace`, and `of_id`."""
    return and_(of_namespace(table), table.c.checkpoint_id == bindparam("of_id"))


def of_users(table: Table) -> ColumnElement[bool]:
    """Match threads that users name: those of the server's own are out of sight."""
    return or_(table.c.thread_id < THREADS, table.c.thread_id >= THREADS_END)


def parameters_of(thread: int, checkpoint_ns: str, checkpoint_id: str) -> dict[str, object]:
    """Return the parameters of `of_checkpoint`, and so of the wider ones, for a checkpoint."""
    return {"of_thread": thread, "of_ns": checkpoint_ns, "of_id": checkpoint_id}


IN_LIST = 500
"""Values that one `IN (...)` names; databases bound their number."""


def in_lists(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield items in runs short enough for an `IN (...)`."""
    iterator = iter(items)
    while some := tuple(islice(iterator, IN_LIST)):
        yield some
