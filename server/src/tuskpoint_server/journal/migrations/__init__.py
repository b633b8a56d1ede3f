"""Migrations, which bring the tables of a journal from one layout to the next.

A layout has a number. A server migrates an older journal when it starts, one number after another,
each in one transaction that also records the reached number; so a server that is killed meanwhile
continues where it stopped. Each migration only adds tables and columns that servers of the previous
layout can ignore: with several servers, older servers continue while the first new server migrates.
A change that would break old servers is switched on once the last old server has stopped.

This package must not read or write rows: the part of the journal that owns the data moves the data,
after the tables exist.
"""

from .m0002_bound_rows import BOUND_ROWS
from .m0003_sealed_places import SEALED_PLACES
from .m0004_leases_and_webhooks import LEASES_AND_WEBHOOKS
from .migration import FIRST, Migration

__all__ = ["FIRST", "LATEST", "MIGRATIONS", "Migration", "after"]

MIGRATIONS: tuple[Migration, ...] = (BOUND_ROWS, SEALED_PLACES, LEASES_AND_WEBHOOKS)
"""All migrations, in the order of their application."""

LATEST = MIGRATIONS[-1].number
"""Layout of the tables that this server works with."""


def migrations_after(layout: int) -> tuple[Migration, ...]:
    """Return the migrations that a journal of a layout lacks."""
    return tuple(migration for migration in MIGRATIONS if migration.number > layout)
