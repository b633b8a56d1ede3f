"""SQL that is written once, compiled at its first use, and run through the driver.

SQLAlchemy's own execution costs several times what SQLite takes for a keyed lookup.
Results are the driver's tuples; SQLite returns truth values as 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import (
    Connection,
    FromClause,
    Table,
    and_,
    bindparam,
    literal_column,
    or_,
    update,
    values,
)
from sqlalchemy import column as sql_column
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.elements import BindParameter, ClauseElement, ColumnElement

from ...domain.reserved import RESERVED
from .sealing import Seal, Sealed, seal_of

_T = TypeVar("_T")

EMPTY: ColumnElement[str] = literal_column("''")
"""The empty text, spelled out: partial indexes are used only where the query says so too."""

IN_LIST = 500
"""Values that one `IN (...)` names; databases bound their number."""

LISTED: BindParameter[Any] = bindparam("listed", expanding=True)
"""What `column.in_(LISTED)` compares with; `Statement.run_listed` says what it is."""

_PARAMETERS = 4000
"""Parameters of one statement, at most; PostgreSQL takes 65,535."""

_ROW = re.compile(r"VALUES (\([^()]+\))")
_PARAMETER = re.compile(r"\$(\d+)")

_LISTED = "IN (__[POSTCOMPILE_listed])"
_DIALECTS: dict[str, Dialect] = {
    "sqlite": sqlite.dialect(),
    # It names the type of each parameter, of which nothing but its text is sent.
    "postgresql": asyncpg.dialect(),  # type: ignore[no-untyped-call]
}


class Answer(Protocol):
    """What a statement returned: a cursor of SQLite, or an answer of PostgreSQL."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:
        """Return the next row, or `None` after the last one."""

    def fetchall(self) -> list[Any]:
        """Return the rows that were not fetched yet."""

    def fetchmany(self, size: int) -> list[Any]:
        """Return so many of them."""

    def close(self) -> None:
        """Let go of the rows."""


class Text(NamedTuple):
    """A statement as one kind of database takes it."""

    sql: str
    names: tuple[str, ...]  # of its parameters, in their order
    defaults: Mapping[str, object]
    listing: dict[int, str]  # the text by the number of items, or of rows
    row: str  # what is repeated for more rows; empty if it takes one
    sealed: tuple[int, ...]  # places of parameters that go to sealed columns
    opened: tuple[int, ...]  # places of sealed columns in the rows that it returns


class Statement:
    """One statement with named parameters.

    Args:
        expression: The statement.
        postgresql: The statement for PostgreSQL, where it is another one.
        distinct: No two rows of a `run_rows` have the same key. PostgreSQL takes the rows of an
            upsert one by one otherwise: one statement updates no row twice.
    """

    __slots__ = ("_distinct", "_expressions", "_texts")

    def __init__(
        self,
        expression: ClauseElement,
        postgresql: ClauseElement | None = None,
        *,
        distinct: bool = False,
    ) -> None:
        self._distinct = distinct
        other = expression if postgresql is None else postgresql
        self._expressions = {"sqlite": expression, "postgresql": other}
        self._texts: dict[str, Text] = {}

    def run(self, connection: Connection, **values: object) -> Answer:
        """Execute it; PostgreSQL says whether it failed once the answer is asked for."""
        text = self.compiled(connection)
        if text.defaults:
            values = {**text.defaults, **values}
        parameters = [values[name] for name in text.names]
        seal = seal_of(connection) if text.sealed or text.opened else None
        if seal is not None:
            [parameters] = _sealed(seal, text, [parameters])
        answer: Answer = driver_of(connection).execute(text.sql, parameters)
        return answer if seal is None else _OpenedAnswer(answer, seal, text.opened)

    def run_listed(
        self, connection: Connection, items: Iterable[object], **values: object
    ) -> Iterator[tuple[Any, ...]]:
        """Send it at once; yield its rows where `LISTED` is each of the items.

        One `IN` takes a run of them, which is filled up to the next power of two, so that few
        texts are prepared.
        """
        text = self.compiled(connection)
        place = text.names.index("listed")
        values = {**text.defaults, **values, "listed": None}
        known = [values[name] for name in text.names]
        execute = driver_of(connection).execute
        answers: list[Answer] = []
        for some in in_lists(dict.fromkeys(items)):
            if not text.listing:
                known[place] = list(some)
                answers.append(execute(text.sql, known))
            else:
                sql, filled = _listing(text, some)
                answers.append(execute(sql, [*known[:place], *filled, *known[place + 1 :]]))
        rows = (row for answer in answers for row in answer.fetchall())
        seal = seal_of(connection) if text.opened else None
        return rows if seal is None else (_opened(seal, text.opened, row) for row in rows)

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute it once for each row of parameters."""
        self.run_rows(connection, self.compiled(connection).names, self._items(connection, rows))

    def count_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Do as `run_many`, and return how many rows it changed."""
        names = self.compiled(connection).names
        answers = self._run_rows(connection, names, self._items(connection, rows))
        return sum(int(answer.rowcount) for answer in answers)

    def run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> None:
        """Execute it once for each row, whose items stand in the order of `names`.

        PostgreSQL takes as many rows of `VALUES (...)` in one statement as are left, down to a
        power of two, so that few texts are prepared.
        """
        self._run_rows(connection, names, rows)

    def _items(
        self, connection: Connection, rows: Sequence[Mapping[str, object]]
    ) -> list[list[object]]:
        text = self.compiled(connection)
        known = [{**text.defaults, **row} for row in rows] if text.defaults else rows
        return [[row[name] for name in text.names] for row in known]

    def _run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> list[Answer]:
        text = self.compiled(connection)
        if text.names != names:
            rows = self._items(connection, [dict(zip(names, row, strict=True)) for row in rows])
        if not rows:
            return []
        if text.sealed and (seal := seal_of(connection)) is not None:
            rows = _sealed(seal, text, rows)
        if connection.dialect.name == "postgresql":
            return _send_rows(driver_of(connection), text, rows)
        return [driver_of(connection).executemany(text.sql, rows)]

    def compiled(self, connection: Connection) -> Text:
        """Return the statement as the database of a connection takes it."""
        kind = connection.dialect.name
        return self._texts.get(kind) or self._compile(kind)

    def _compile(self, kind: str) -> Text:
        compiled: Any = self._expressions[kind].compile(dialect=_DIALECTS[kind])
        defaults = {
            name: bind.effective_value for name, bind in compiled.binds.items() if not bind.required
        }
        sql, names, listing = str(compiled), tuple(compiled.positiontup or ()), {}
        if _LISTED in sql and kind == "postgresql":
            names = (*(name for name in names if name != "listed"), "listed")  # not numbered yet
            sql = sql.replace(_LISTED, f"= ANY (${len(names)})")
        elif _LISTED in sql:
            listing = {0: sql}
        row = _ROW.search(sql) if self._distinct or "DO UPDATE" not in sql else None
        takes_more = row is not None and len(_PARAMETER.findall(row[1])) == len(names)
        types = {name: bind.type for name, bind in compiled.binds.items()}
        sealed = [n for n, name in enumerate(names) if isinstance(types[name], Sealed)]
        columns = getattr(self._expressions[kind], "exported_columns", ())
        opened = [n for n, column in enumerate(columns) if isinstance(column.type, Sealed)]
        repeated = row[1] if row and takes_more else ""
        text = Text(sql, names, defaults, listing, repeated, tuple(sealed), tuple(opened))
        self._texts[kind] = text
        return text


class _OpenedAnswer:
    """An answer whose rows have sealed columns."""

    def __init__(self, answer: Answer, seal: Seal, places: tuple[int, ...]) -> None:
        self._answer = answer
        self._seal = seal
        self._places = places
        self.close = answer.close

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    def fetchone(self) -> Any:
        row = self._answer.fetchone()
        return None if row is None else _opened(self._seal, self._places, row)

    def fetchall(self) -> list[Any]:
        return [_opened(self._seal, self._places, row) for row in self._answer.fetchall()]

    def fetchmany(self, size: int) -> list[Any]:
        return [_opened(self._seal, self._places, row) for row in self._answer.fetchmany(size)]


def _opened(seal: Seal, places: tuple[int, ...], row: Sequence[Any]) -> tuple[Any, ...]:
    changed = list(row)
    for place in places:
        if changed[place] is not None:
            changed[place] = seal.open(changed[place])
    return tuple(changed)


def _sealed(seal: Seal, text: Text, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    changed = list(map(list, rows))
    for row in changed:
        for place in text.sealed:
            if row[place] is not None:
                row[place] = seal.seal(row[place])
    return changed


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection."""
    return connection.connection.driver_connection


def _send_rows(driver: Any, text: Text, rows: Sequence[Sequence[object]]) -> list[Answer]:
    if not text.row:
        return [driver.execute(text.sql, row) for row in rows]
    answers, at = [], 0
    most = max(1, _PARAMETERS // len(text.names))
    while at < len(rows):
        count = 1 << (min(len(rows) - at, most).bit_length() - 1)
        sql = text.listing.get(count)
        if sql is None:
            many = ", ".join(_renumbered(text.row, k * len(text.names)) for k in range(count))
            sql = text.listing[count] = text.sql.replace(text.row, many)
        flat = [item for row in rows[at : at + count] for item in row]
        answers.append(driver.execute(sql, flat))
        at += count
    return answers


def _renumbered(row: str, offset: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + offset}", row)


def _listing(text: Text, some: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """Return the text for a run of items, and the run filled up with its last one."""
    count = min(1 << (len(some) - 1).bit_length(), IN_LIST)
    listing = text.listing.get(count)
    if listing is None:
        marks = f"IN ({', '.join('?' * count)})"
        listing = text.listing[count] = text.sql.replace(_LISTED, marks)
    return listing, some + some[-1:] * (count - len(some))


def inserting(table: Table, names: Iterable[str] = ()) -> postgresql.Insert:
    """Return the insert of rows, with a parameter for each column; `names`: of these alone.

    What PostgreSQL's does on a conflict, SQLite's does too.
    """
    names = tuple(names) or [column.name for column in table.columns]
    return postgresql.insert(table).inline().values({name: bindparam(name) for name in names})


def putting(
    table: Table,
    key: Sequence[str],
    replaced: Iterable[str] = (),
    names: Iterable[str] = (),
    where: ColumnElement[bool] | None = None,
) -> postgresql.Insert:
    """Return the insert of rows that replaces columns of those with the same key.

    `key`: columns of a unique index; `replaced`: all others if empty; `names`: all if empty;
    `where`: which rows are replaced, all if `None`.
    """
    names = tuple(names) or [column.name for column in table.columns]
    statement = inserting(table, names)
    replaced = tuple(replaced) or [name for name in names if name not in key]
    new = {name: statement.excluded[name] for name in replaced}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new, where=where)


def updating(table: Table, key: str, names: Iterable[str]) -> Statement:
    """Return the update of columns of rows, found by the parameter `of_` and the name of a column.

    PostgreSQL takes all rows in one statement.
    """
    names = tuple(names)
    sent = [*names, f"of_{key}"]
    types = [table.c[name].type for name in (*names, key)]
    columns = [sql_column(name, kind) for name, kind in zip(sent, types, strict=True)]
    row = tuple(bindparam(name, type_=kind) for name, kind in zip(sent, types, strict=True))
    new = values(*columns, name="new").data([row])
    one = update(table).where(table.c[key] == bindparam(sent[-1]))
    many = update(table).where(table.c[key] == new.c[sent[-1]])
    return Statement(
        one.values({name: bindparam(name) for name in names}),
        postgresql=many.values({name: new.c[name] for name in names}),
        distinct=True,
    )


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
    return outside_reserved(table.c.thread_id)


def outside_reserved(name: ColumnElement[str]) -> ColumnElement[bool]:
    """Match names of threads that the server does not use itself."""
    return and_(*(or_(name < first, name >= past) for first, past in RESERVED))


def parameters_of(thread: int, checkpoint_ns: str, checkpoint_id: str) -> dict[str, object]:
    """Return the parameters of `of_checkpoint`, and so of the wider ones, for a checkpoint."""
    return {"of_thread": thread, "of_ns": checkpoint_ns, "of_id": checkpoint_id}


def in_lists(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield items in runs short enough for an `IN (...)`."""
    iterator = iter(items)
    while some := tuple(islice(iterator, IN_LIST)):
        yield some
