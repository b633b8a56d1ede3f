"""Clocks of leases, and leases that have run out."""

from __future__ import annotations

from tests.kit.databases import ask
from tuskpoint_server.journal.database.database import Database


class Ticks:
    """The seconds of a server's own clock, which a test moves: the server may have been stopped."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def expire(database: Database) -> None:
    """Let the time of the lease be over, by the database's clock."""
    statement = "UPDATE leases SET until_us = 0 RETURNING fence"
    await database.write_past_batches(lambda connection: ask(connection, statement))
