"""Erases the remains of deleted threads in the journal, before garbage collection does."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import bindparam, select

from ...journal.database.database import Database
from ...journal.removal import deletion, garbage_collection
from ...journal.sql import full_text
from ...journal.sql.schema import threads
from ...journal.sql.statements import LISTED, Statement
from ...search.index import IndexRows

_FAMILIES = Statement(
    select(threads.c.family)
    .where(threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id.in_(LISTED))
    .distinct()
)


class Erasure:
    """Removes the remains of deleted threads. Every call can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def families(self, tenant: str, thread_ids: Collection[str]) -> list[int]:
        """Return the families of threads, deleted threads included, for a later `purge`."""
        return await self._database.query(
            lambda connection: [
                row[0] for row in _FAMILIES.run_listed(connection, thread_ids, of_tenant=tenant)
            ]
        )

    async def inboxes(self, tenant: str, thread_ids: Collection[str]) -> set[str]:
        """Return the threads of the server with offers of threads' hand-offs."""
        return await self._database.query(
            lambda connection: {
                inbox
                for thread_id in thread_ids
                for inbox in deletion.offers_of(connection, tenant, thread_id)
            }
        )

    async def purge(self, families: Collection[int]) -> None:
        """Remove the values that no thread of some families needs, and their parts in search.

        Values that a fork or copy needs stay. Garbage collection would remove the same values, but
        later, and only when they are a large part of the journal.
        """
        for family in families:
            await garbage_collection.remove_unneeded(self._database, family)
        await IndexRows(self._database).sweep()
        has_more = await self._database.transact(
            lambda batch: full_text.merge(batch.connection, begins=True)
        )
        while has_more:
            has_more = await self._database.transact(
                lambda batch: full_text.merge(batch.connection, begins=False)
            )

    async def empty_log(self) -> bool:
        """Remove deleted content from the database's log; `False`: the log drops it later."""
        return await self._database.scrub()

    async def may_keep_removed(self) -> bool:
        """Return whether free pages of the file may have content that earlier builds removed."""
        return await self._database.may_keep_removed()

    @property
    def is_shared(self) -> bool:
        """Whether the journal is in a database that other servers may use."""
        return self._database.is_shared
