"""Migrations: what brings the tables of a journal from one layout to the next, in order.

A layout has a number. A server migrates an older journal when it starts, one number after another,
each in one transaction that also records the number reached; so a server that is killed meanwhile
continues where it stopped. Each migration only adds what servers of the layout before can ignore:
with several servers, those go on while the first new one migrates. What old servers would break
is switched on once the last of them has stopped.

This package must not read or write rows: data that a migration has to move is moved by the part of
the journal that owns the data, after the tables are there.
"""

from .m0002_bound_rows import BOUND_ROWS
from .m0003_sealed_places import SEALED_PLACES
from .migration import FIRST, Migration

__all__ = ["FIRST", "LATEST", "MIGRATIONS", "Migration", "after"]

MIGRATIONS: tuple[Migration, ...] = (BOUND_ROWS, SEALED_PLACES)
"""All migrations, in the order in which they are applied."""

LATEST = MIGRATIONS[-1].number
"""Layout of the tables that this server works with."""


def migrations_after(layout: int) -> tuple[Migration, ...]:
    """Return the migrations that a journal of a layout lacks."""
    return tuple(migration for migration in MIGRATIONS if migration.number > layout)
