"""Binds sealed values to their places: values that servers of layouts 1 and 2 sealed.

Rows are sealed again in place, several in each transaction, so a server that is killed meanwhile
continues with the rows that are left. Servers of layout 2 may use a shared journal meanwhile, and
cannot open values that are bound to their places: so all servers seal in the former format until no
server of layout 2 is connected. Then all servers seal by place, PostgreSQL refuses other formats,
and once no value in the former format is left, all other bytes count as damage.

A value that does not open stays as it is, behind the prefix of the new format: it never opens
again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Table, and_, bindparam, func, literal, select, tuple_, update

from ..core.limits import MIB
from ..core.values import UnopenedBytes
from .database.database import Connection, Database
from .database.unit_of_work import UnitOfWork
from .failpoints import failpoint
from .sql.journal_metadata import SEALING, read_finished, set_sealing
from .sql.schema import SEALED
from .sql.sealing import BY_PLACE, BY_VALUE, MOVING, PREFIX, place_of
from .sql.statements import SqlRow, Statement

ROWS_AT_ONCE, BYTES_AT_ONCE = 500, 8 * MIB  # bounds of one transaction, which has at least one row
_LAYOUT = 3
_REPORT_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResealingProgress:
    """The result: numbers of rows that were sealed again, and of rows that did not open."""

    rows: int = 0
    damaged: int = 0
    is_complete: bool = True


class _Rows:
    """The rows of a table whose sealed column is in the former format, in the order of its key."""

    def __init__(self, table: Table) -> None:
        column, place = place_of(table)
        self.table, self.column = table.name, column.name
        key = list(table.primary_key)
        self._names = [part.name for part in key]
        former = and_(
            column.is_not(None),
            func.substr(column, 1, len(PREFIX)) != literal(PREFIX),
            # a value without a tenant: no thread needs it, and garbage collection will remove it
            place.tenant.is_not(None),
        )
        after = tuple_(*key) > tuple_(
            *(bindparam(f"after_{part.name}", type_=part.type) for part in key)
        )
        through = tuple_(*key) <= tuple_(
            *(bindparam(f"through_{part.name}", type_=part.type) for part in key)
        )
        sizes = select(func.length(column), *key).where(former).order_by(*key)
        sizes = sizes.limit(bindparam("max_rows"))
        place_columns = [table.c[name] for name in place.names]
        rows = (
            select(column, *key, place.tenant, *place_columns)
            .where(former, through)
            .with_for_update()
        )
        self._sizes = (Statement(sizes), Statement(sizes.where(after)))
        self._rows = (Statement(rows), Statement(rows.where(after)))
        self._count = Statement(select(func.count()).select_from(table).where(former))
        new = update(table).where(*(part == bindparam(f"of_{part.name}") for part in key))
        self._given = (f"new_{column.name}", *(f"of_{name}" for name in self._names))
        place_parameters = tuple(
            name for name in place.parameters if f"of_{name}" not in self._given
        )
        self._beside = place_parameters
        new_value = bindparam(self._given[0], type_=column.type)
        self._seal = Statement(new.values({column.name: new_value}), beside=place_parameters)
        self._places = ("tenant", *place.names)

    def count(self, connection: Connection) -> int:
        """Return the number of rows in the former format."""
        return int(self._count.run(connection).fetchall()[0][0])

    def next(self, connection: Connection, after: SqlRow) -> SqlRow:
        """Return the key of the last row of the next run; empty at the end."""
        size, last = 0, tuple[object, ...]()
        parameters = dict(zip((f"after_{name}" for name in self._names), after, strict=False))
        sizes = self._sizes[bool(after)].run(connection, **parameters, max_rows=ROWS_AT_ONCE)
        for length, *key in sizes.fetchall():
            size += length
            if last and size > BYTES_AT_ONCE:
                break
            last = tuple(key)
        return last

    def seal(self, connection: Connection, after: SqlRow, through: SqlRow) -> tuple[int, int]:
        """Seal a run of rows again; return their number, and the number that did not open."""
        parameters = dict(zip((f"after_{name}" for name in self._names), after, strict=False))
        parameters |= zip((f"through_{name}" for name in self._names), through, strict=True)
        width = 1 + len(self._names)
        rows, damaged = [], 0
        for row in self._rows[bool(after)].run(connection, **parameters).fetchall():
            place = dict(zip(self._places, row[width:], strict=True))
            damaged += isinstance(row[0], UnopenedBytes)
            rows.append((*row[:width], *(place[name] for name in self._beside)))
        self._seal.run_rows(connection, (*self._given, *self._beside), rows)
        return len(rows), damaged


_ROWS = tuple(map(_Rows, SEALED))


async def reseal(database: Database) -> ResealingProgress:
    """Bind all sealed values to their places, unless servers of layout 2 use the journal.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    seal = database.seal
    if seal is None or seal.is_complete:
        return ResealingProgress()
    state = await database.write_past_batches(partial(_begin, database))
    if state == BY_PLACE:  # another server has sealed all rows
        return _complete(database, ResealingProgress())
    if state == BY_VALUE:  # older servers are connected
        return ResealingProgress(is_complete=False)
    failpoint("journal.before_resealing")
    first = await _pass(database)
    for rows in _ROWS:
        refuse = partial(database.refuse_unplaced, table=rows.table, column=rows.column)
        await database.write_past_batches(refuse)
    failpoint("journal.before_resealed")
    last = await _pass(database)  # late rows of a server of layout 2 that was cut off
    await database.write_past_batches(partial(_set, database, BY_PLACE))
    total = ResealingProgress(first.rows + last.rows, first.damaged + last.damaged)
    return _complete(database, total)


def _complete(database: Database, total: ResealingProgress) -> ResealingProgress:
    """Count all values that are not bound to their places as damaged, in this server."""
    if database.seal is not None:
        database.seal.state = BY_PLACE
        database.note_seal()
    return total


def _begin(database: Database, connection: Connection) -> str:
    """Make all servers seal by place, unless a connected server cannot open such values."""
    state = read_finished(connection).get(SEALING, BY_PLACE)
    if state == BY_VALUE and not database.has_older_servers(connection, _LAYOUT):
        _set(database, MOVING, connection)
        return MOVING
    return state


def _set(database: Database, state: str, connection: Connection) -> None:
    database.lock_facts(connection)
    set_sealing(connection, state)


async def _pass(database: Database) -> ResealingProgress:
    """Seal again all rows in the former format."""
    count = await database.query(lambda connection: sum(rows.count(connection) for rows in _ROWS))
    if count:
        _log.warning("sealing %d values again; a start continues this if it is interrupted", count)
    sealed, damaged, reported = 0, 0, time.monotonic()
    for rows in _ROWS:
        after: SqlRow = ()
        while through := await database.query(partial(rows.next, after=after)):
            row_count, damaged_count = await database.transact(
                partial(_seal_run, rows, after, through)
            )
            failpoint("journal.after_resealing_some")
            after = through
            sealed, damaged = sealed + row_count, damaged + damaged_count
            if time.monotonic() > reported + _REPORT_S:
                reported = time.monotonic()
                _log.info("sealed %d of %d values again", sealed, count)
    if damaged:
        _log.error(
            "%d sealed values of the journal do not open: they were changed, or are not sealed",
            damaged,
        )
    return ResealingProgress(sealed, damaged)


def _seal_run(rows: _Rows, after: SqlRow, through: SqlRow, batch: UnitOfWork) -> tuple[int, int]:
    return rows.seal(batch.connection, after, through)
