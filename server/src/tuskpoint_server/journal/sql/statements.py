"""SQL statements: written once, compiled at their first use, and run through the driver.

SQLAlchemy's own execution costs several times the time that SQLite needs for a keyed lookup.
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
"""The empty text as a literal: partial indexes are used only if the query has the same literal."""

IN_LIST = 500
"""Values of one `IN (...)`; databases bound their number."""

LISTED: BindParameter[object] = bindparam("listed", expanding=True)
"""Operand of `column.in_(LISTED)`; the items of `Statement.run_listed` replace it."""

_PARAMETERS = 4000
"""Most parameters of one statement; PostgreSQL accepts 65,535."""

_ROW = re.compile(r"VALUES (\([^()]+\))")
_PARAMETER = re.compile(r"\$(\d+)")

_LISTED = "IN (__[POSTCOMPILE_listed])"
_DIALECTS: dict[str, Dialect] = {
    "sqlite": sqlite.dialect(),
    # This dialect names the type of each parameter; only the text of the statement is used.
    "postgresql": asyncpg.dialect(),  # type: ignore[no-untyped-call]
}


SqlRow = tuple[Any, ...]
"""A row of an answer: the values of a statement's columns, in their order, from the driver.

Types start where a row becomes a named tuple or a dataclass.
"""


class Answer(Protocol):
    """The result of a statement: a cursor of SQLite, or an answer of PostgreSQL."""

    @property
    def rowcount(self) -> int:
        """Number of changed rows."""

    def fetchone(self) -> SqlRow | None:
        """Return the next row, or `None` after the last one."""

    def fetchall(self) -> list[SqlRow]:
        """Return the rows that were not fetched yet."""

    def fetchmany(self, size: int) -> list[SqlRow]:
        """Return the next `size` rows."""

    def close(self) -> None:
        """Drop the rows."""


class SealedItem(NamedTuple):
    """A sealed item of a row, and the items of the row that give its place."""

    at: int
    label: bytes
    place: tuple[int, ...]  # positions of the tenant and the columns; -1: the row lacks the column


class Text(NamedTuple):
    """A statement, compiled for one kind of database."""

    sql: str
    names: tuple[str, ...]  # names of the parameters, in their order
    defaults: Mapping[str, object]
    listing: dict[int, str]  # texts by the number of items, or of rows
    row: str  # part of the text that is repeated for each row; empty: one row per statement
    # names of the values that callers pass: the parameters, and values that only seal
    given: tuple[str, ...]
    width: int  # number of columns that callers get of a row
    sealed: tuple[SealedItem, ...]  # parameters for sealed columns
    opened: tuple[SealedItem, ...]  # sealed columns in the rows that it returns

    @property
    def is_open(self) -> bool:
        """Whether the statement uses no sealed columns."""
        return not self.sealed and not self.opened


class Statement:
    """One statement with named parameters.

    Args:
        expression: The statement.
        postgresql: The statement for PostgreSQL, if it differs.
        distinct: Whether no two rows of a `run_rows` have the same key. Otherwise PostgreSQL gets
            the rows of an upsert one by one: one statement updates no row twice.
        beside: Names of values that callers pass after the parameters: they are not sent, and give
            the place to which a sealed column is bound.
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
        """Execute the statement; PostgreSQL reports a failure when the answer is read."""
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
        """Send the statement at once; yield its rows where `LISTED` is each of the items.

        One `IN` has a run of items, which is filled up to the next power of two, so that few texts
        are prepared.
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
        """Execute the statement once for each row of parameters."""
        self.run_rows(connection, self._given(connection), self._items(connection, rows))

    def count_many(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Do as `run_many`, and return the number of changed rows."""
        answers = self._run_rows(connection, self._given(connection), self._items(connection, rows))
        return sum(int(answer.rowcount) for answer in answers)

    def run_rows(
        self, connection: Connection, names: tuple[str, ...], rows: Sequence[Sequence[object]]
    ) -> None:
        """Execute the statement once for each row, whose items are in the order of `names`.

        In PostgreSQL one statement has as many rows of `VALUES (...)` as are left, rounded down to
        a power of two, so that few texts are prepared.
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
        """Return the statement, compiled for a database, and the `Seal` for its rows."""
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
            # parameters are not numbered yet
            names = (*(name for name in names if name != "listed"), "listed")
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
    """Return a query with the places of its sealed columns, if these have to be opened."""
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
    """Return a parameter's place, from the other parameters of the statement."""
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
    """Return the parameters of rows, with sealed values for sealed columns."""
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
    # The attribute, not the property `driver_connection`: no driver here wraps another driver.
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
    """Return the text for a run of items, and the run, filled up with its last item."""
    count = min(1 << (len(items) - 1).bit_length(), IN_LIST)
    listing = text.listing.get(count)
    if listing is None:
        marks = f"IN ({', '.join('?' * count)})"
        listing = text.listing[count] = text.sql.replace(_LISTED, marks)
    return listing, items + items[-1:] * (count - len(items))


def insert_rows(table: Table, names: Iterable[str] = ()) -> postgresql.Insert:
    """Return the insert of rows, with a parameter for each column, or for each of `names`.

    PostgreSQL's clauses for conflicts have the same effect in SQLite.
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
    """Return the insert of rows that replaces columns of existing rows with the same key.

    `key`: columns of a unique index; `replaced`: replaced columns, all others if empty; `names`:
    inserted columns, all if empty; `where`: condition of replaced rows, all if `None`.
    """
    names = tuple(names) or [column.name for column in table.columns]
    statement = insert_rows(table, names)
    replaced = tuple(replaced) or [name for name in names if name not in key]
    new = {name: statement.excluded[name] for name in replaced}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new, where=where)


def update_rows(table: Table, key: str, names: Iterable[str]) -> Statement:
    """Return the update of columns of rows; parameter `of_` with the name `key` finds the row.

    In PostgreSQL one statement updates all rows.
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
    """Match the rows of a thread; parameter `of_thread`: the number of the thread."""
    return table.c.thread == bindparam("of_thread")


def of_namespace(table: Table) -> ColumnElement[bool]:
    """Match the rows of a namespace; parameters of `of_thread`, and `of_ns`."""
    return and_(of_thread(table), table.c.checkpoint_ns == bindparam("of_ns"))


def of_checkpoint(table: Table) -> ColumnElement[bool]:
    """Match the rows of a checkpoint; parameters of `of_namespace`, and `of_id`."""
    return and_(of_namespace(table), table.c.checkpoint_id == bindparam("of_id"))


def same_checkpoint(table: FromClause, other_table: FromClause) -> ColumnElement[bool]:
    """Match the rows of two tables that belong to the same checkpoint."""
    key = ("thread", "checkpoint_ns", "checkpoint_id")
    return and_(*(table.c[name] == other_table.c[name] for name in key))


def of_users(table: Table) -> ColumnElement[bool]:
    """Match threads that users can name, without the server's own threads."""
    return outside_reserved(table.c.thread_id)


def outside_reserved(name: ColumnElement[str]) -> ColumnElement[bool]:
    """Match names of threads that the server does not use itself."""
    return and_(*(or_(name < first, name >= past) for first, past in RESERVED))


def parameters_of(thread: int, checkpoint_ns: str, checkpoint_id: str) -> dict[str, object]:
    """Return the parameters of `of_checkpoint`, and so of `of_namespace` and `of_thread`."""
    return {"of_thread": thread, "of_ns": checkpoint_ns, "of_id": checkpoint_id}


def run_places(
    connection: Connection,
    statement: Statement,
    places: Iterable[tuple[int, str, str]],
    **values: object,
) -> Iterator[tuple[tuple[int, str, str], SqlRow]]:
    """Yield rows of checkpoints, each with the checkpoint's place: thread, namespace and ID.

    The first column of the statement is the checkpoint's ID. Reads one namespace at a time: an
    index needs all columns of the key but the ID.
    """
    ids: dict[tuple[int, str], list[str]] = {}
    for thread, checkpoint_ns, checkpoint_id in places:
        ids.setdefault((thread, checkpoint_ns), []).append(checkpoint_id)
    answers = {
        at: statement.run_listed(connection, checkpoint_ids, of_thread=at[0], of_ns=at[1], **values)
        for at, checkpoint_ids in ids.items()
    }
    for at, answer in answers.items():
        for columns in answer:
            yield (*at, columns[0]), columns[1:]


def in_lists(items: Iterable[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield items in runs short enough for an `IN (...)`."""
    iterator = iter(items)
    while chunk := tuple(islice(iterator, IN_LIST)):
        yield chunk
