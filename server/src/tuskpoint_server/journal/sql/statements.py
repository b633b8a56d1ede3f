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
    Insert,
    Select,
    Table,
    Update,
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

from ...core.threads import RESERVED
from .sealing import Seal, SealedColumn, place_of, seal_of

_T = TypeVar("_T")

EMPTY: ColumnElement[str] = literal_column("''")
"""The empty text, spelled out: partial indexes are used only where the query says so too."""

IN_LIST = 500
"""Values that one `IN (...)` names; databases bound their number."""

LISTED: BindParameter[object] = bindparam("listed", expanding=True)
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


SqlRow = tuple[Any, ...]
"""A row of an answer: what the driver returns for the columns of a statement, in their order.

Types begin where a row becomes a named tuple or a dataclass.
"""


class Answer(Protocol):
    """What a statement returned: a cursor of SQLite, or an answer of PostgreSQL."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> SqlRow | None:
        """Return the next row, or `None` after the last one."""

    def fetchall(self) -> list[SqlRow]:
        """Return the rows that were not fetched yet."""

    def fetchmany(self, size: int) -> list[SqlRow]:
        """Return so many of them."""

    def close(self) -> None:
        """Let go of the rows."""


class SealedItem(NamedTuple):
    """A sealed item of a row, and where the row says what place the item is bound to."""

    at: int
    label: bytes
    place: tuple[int, ...]  # of the tenant and the columns; -1: the row does not say it


class Text(NamedTuple):
    """A statement as one kind of database takes it."""

    sql: str
    names: tuple[str, ...]  # of its parameters, in their order
    defaults: Mapping[str, object]
    listing: dict[int, str]  # the text by the number of items, or of rows
    row: str  # what is repeated for more rows; empty if it takes one
    given: tuple[str, ...]  # names of what callers pass: the parameters, and what only seals
    width: int  # columns that callers get of a row
    sealed: tuple[SealedItem, ...]  # parameters that go to sealed columns
    opened: tuple[SealedItem, ...]  # sealed columns in the rows that it returns

    @property
    def is_open(self) -> bool:
        """Whether it does not concern sealed columns."""
        return not self.sealed and not self.opened


class Statement:
    """One statement with named parameters.

    Args:
        expression: The statement.
        postgresql: The statement for PostgreSQL, where it is another one.
        distinct: No two rows of a `run_rows` have the same key. PostgreSQL takes the rows of an
            upsert one by one otherwise: one statement updates no row twice.
        beside: Names of what callers pass after the parameters: it is not sent, and says to which
            place a sealed column is bound.
    """

    __slots__ = ("_beside", "_distinct", "_expressions", "_texts")

    def __init__(
        self,
        expression: ClauseElement,
        postgresql: ClauseElement | None = None,
        *,
        distinct: bool = False,
        beside: tuple[str, ...] = (),
    ) -> None:
        self._distinct = distinct
        self._beside = beside
        for_postgresql = expression if postgresql is None else postgresql
        self._expressions = {"sqlite": expression, "postgresql": for_postgresql}
        self._texts: dict[tuple[str, bool], Text] = {}

    def run(self, connection: Connection, **values: object) -> Answer:
        """Execute it; PostgreSQL says whether it failed once the answer is asked for."""
        text, seal = self.compiled(connection)
        if text.defaults:
            values = {**text.defaults, **values}
        parameters = [values[name] for name in (text.names if seal is None else text.given)]
        if seal is not None:
            [parameters] = _seal_rows(seal, text, [parameters])
        answer: Answer = driver_of(connection).execute(text.sql, parameters)
        return answer if seal is None else _OpenedAnswer(answer, seal, text)

    def run_listed(
        self, connection: Connection, items: Iterable[object], **values: object
    ) -> Iterator[SqlRow]:
        """Send it at once; yield its rows where `LISTED` is each of the items.

        One `IN` takes a run of them, which is filled up to the next power of two, so that few
        texts are prepared.
        """
        text, seal = self.compiled(connection)
        place = text.names.index("listed")
        values = {**text.defaults, **values, "listed": None}
        parameters = [values[name] for name in text.names]
        execute = driver_of(connection).execute
        answers: list[Answer] = []
        for chunk in in_lists(dict.fromkeys(items)):
            if not text.listing:
                parameters[place] = list(chunk)
                answers.append(execute(text.sql, parameters))
            else:
                sql, filled = _fill_list(text, chunk)
                answers.append(
                    execute(sql, [*parameters[:place], *filled, *parameters[place + 1 :]])
                )
        rows = (row for answer in answers for row in answer.fetchall())
        return rows if seal is None else (_open_row(seal, text, row) for row in rows)

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute it once for each row of parameters."""
        self.run_rows(connection, self._given(connection), self._items(connection, rows))

    def count_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Do as `run_many`, and return how many rows it changed."""
        answers = self._run_rows(connection, self._given(connection), self._items(connection, rows))
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
        text, _ = self.compiled(connection)
        full_rows = [{**text.defaults, **row} for row in rows] if text.defaults else rows
        return [[row[name] for name in text.given] for row in full_rows]

    def _given(self, connection: Connection) -> tuple[str, ...]:
        return self.compiled(connection)[0].given

    def _run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> list[Answer]:
        text, seal = self.compiled(connection)
        if text.given != names:
            rows = self._items(connection, [dict(zip(names, row, strict=True)) for row in rows])
        if not rows:
            return []
        if seal is not None:
            rows = _seal_rows(seal, text, rows)
        elif self._beside:
            rows = [row[: len(text.names)] for row in rows]
        if connection.dialect.name == "postgresql":
            return _send_rows(driver_of(connection), text, rows)
        return [driver_of(connection).executemany(text.sql, rows)]

    def compiled(self, connection: Connection) -> tuple[Text, Seal | None]:
        """Return the statement as a database takes it, and what seals and opens its rows."""
        kind = connection.dialect.name
        text = self._texts.get((kind, False)) or self._compile(kind)
        if text.is_open or (seal := seal_of(connection)) is None:
            return text, None
        return self._texts.get((kind, True)) or self._compile(kind, is_sealed=True), seal

    def _compile(self, kind: str, *, is_sealed: bool = False) -> Text:
        expression, opened = self._expressions[kind], list[SealedItem]()
        width = len(getattr(expression, "exported_columns", ()))
        if isinstance(expression, Select):
            expression, opened = _with_places(expression, is_sealed=is_sealed)
        compiled: Any = expression.compile(dialect=_DIALECTS[kind])
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
        parameter_names = (*names, *self._beside)
        sealed = tuple(
            _parameter(expression, n, parameter_names)
            for n, name in enumerate(names)
            if isinstance(types[name], SealedColumn)
        )
        repeated = row[1] if row and takes_more else ""
        text = Text(
            sql, names, defaults, listing, repeated, parameter_names, width, sealed, tuple(opened)
        )
        self._texts[kind, is_sealed] = text
        return text


def _with_places(
    statement: Select[object], *, is_sealed: bool
) -> tuple[Select[object], list[SealedItem]]:
    """Return a query with the places of the sealed columns in it, if these are to be opened."""
    opened: list[SealedItem] = []
    width = len(statement.selected_columns)
    for at, column in enumerate(list(statement.selected_columns)):
        if isinstance(column.type, SealedColumn):
            table_column, place = place_of(column)
            opened.append(
                SealedItem(at, place.label, tuple(range(width, width + len(place.names) + 1)))
            )
            if is_sealed:
                of_row = [table_column.table.c[name] for name in place.names]
                statement = statement.add_columns(place.tenant, *of_row)
                width += len(of_row) + 1
    return statement, opened


def _parameter(statement: ClauseElement, at: int, parameter_names: Sequence[str]) -> SealedItem:
    """Return where a statement says to which place a parameter is bound."""
    if not isinstance(statement, Insert | Update) or not isinstance(statement.table, Table):
        raise TypeError("only an insert or an update of a table seals")
    _, place = place_of(statement.table)
    index_by_name = {name: n for n, name in reversed(list(enumerate(parameter_names)))}
    indexes = (
        index_by_name.get(name, index_by_name.get(f"of_{name}", -1)) for name in place.parameters
    )
    return SealedItem(at, place.label, tuple(indexes))


class _OpenedAnswer:
    """An answer whose rows have sealed columns."""

    def __init__(self, answer: Answer, seal: Seal, text: Text) -> None:
        self._answer = answer
        self._seal = seal
        self._text = text
        self.close = answer.close

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    def fetchone(self) -> SqlRow | None:
        row = self._answer.fetchone()
        return None if row is None else _open_row(self._seal, self._text, row)

    def fetchall(self) -> list[SqlRow]:
        return [_open_row(self._seal, self._text, row) for row in self._answer.fetchall()]

    def fetchmany(self, size: int) -> list[SqlRow]:
        return [_open_row(self._seal, self._text, row) for row in self._answer.fetchmany(size)]


def _open_row(seal: Seal, text: Text, row: SqlRow) -> SqlRow:
    changed = list(row[: text.width])
    for at, label, place in text.opened:
        if changed[at] is not None:
            changed[at] = seal.open(label, [row[n] for n in place], changed[at])
    return tuple(changed)


def _seal_rows(seal: Seal, text: Text, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the parameters of rows, in which what goes to sealed columns is sealed."""
    parameter_rows = [list(row[: len(text.names)]) for row in rows]
    for parameters, row in zip(parameter_rows, rows, strict=True):
        for at, label, place in text.sealed:
            if parameters[at] is not None:
                if -1 in place:
                    raise TypeError(f"{text.sql!r} does not say to which place a value is bound")
                parameters[at] = seal.seal(label, [row[n] for n in place], parameters[at])
    return parameter_rows


def driver_of(connection: Connection) -> Any:
    """Return the driver's connection."""
    # The attribute, and not the property `driver_connection`: no driver here wraps another one.
    return connection.connection.dbapi_connection


def _send_rows(driver: Any, text: Text, rows: Sequence[Sequence[object]]) -> list[Answer]:
    if not text.row:
        return [driver.execute(text.sql, row) for row in rows]
    answers, at = [], 0
    max_rows = max(1, _PARAMETERS // len(text.names))
    while at < len(rows):
        count = 1 << (min(len(rows) - at, max_rows).bit_length() - 1)
        sql = text.listing.get(count)
        if sql is None:
            row_list = ", ".join(_renumber(text.row, k * len(text.names)) for k in range(count))
            sql = text.listing[count] = text.sql.replace(text.row, row_list)
        flat = [item for row in rows[at : at + count] for item in row]
        answers.append(driver.execute(sql, flat))
        at += count
    return answers


def _renumber(row: str, offset: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + offset}", row)


def _fill_list(text: Text, items: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """Return the text for a run of items, and the run filled up with its last one."""
    count = min(1 << (len(items) - 1).bit_length(), IN_LIST)
    listing = text.listing.get(count)
    if listing is None:
        marks = f"IN ({', '.join('?' * count)})"
        listing = text.listing[count] = text.sql.replace(_LISTED, marks)
    return listing, items + items[-1:] * (count - len(items))


def insert_rows(table: Table, names: Iterable[str] = ()) -> postgresql.Insert:
    """Return the insert of rows, with a parameter for each column; `names`: of these alone.

    What PostgreSQL's does on a conflict, SQLite's does too.
    """
    names = tuple(names) or [column.name for column in table.columns]
    return postgresql.insert(table).inline().values({name: bindparam(name) for name in names})


def put_rows(
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
    statement = insert_rows(table, names)
    replaced = tuple(replaced) or [name for name in names if name not in key]
    new = {name: statement.excluded[name] for name in replaced}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new, where=where)


def update_rows(table: Table, key: str, names: Iterable[str]) -> Statement:
    """Return the update of columns of rows, found by the parameter `of_` and the name of a column.

    PostgreSQL takes all rows in one statement.
    """
    names = tuple(names)
    parameters = [*names, f"of_{key}"]
    types = [table.c[name].type for name in (*names, key)]
    columns = [sql_column(name, kind) for name, kind in zip(parameters, types, strict=True)]
    row = tuple(bindparam(name, type_=kind) for name, kind in zip(parameters, types, strict=True))
    new = values(*columns, name="new").data([row])
    update_one = update(table).where(table.c[key] == bindparam(parameters[-1]))
    update_many = update(table).where(table.c[key] == new.c[parameters[-1]])
    return Statement(
        update_one.values({name: bindparam(name) for name in names}),
        postgresql=update_many.values({name: new.c[name] for name in names}),
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
    while chunk := tuple(islice(iterator, IN_LIST)):
        yield chunk
