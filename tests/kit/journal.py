"""A journal with all its packages, opened as the server opens it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select, update

from tests.kit.databases import ask, place, place_of_new_journal
from tests.kit.drafts import TENANT
from tuskpoint_server.config.composition import row_key
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.threads import Thread
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.features.effects.effect_rows import EffectRows
from tuskpoint_server.features.history.changes import Events
from tuskpoint_server.features.inbox.offer_rows import OfferRows
from tuskpoint_server.features.items.item_rows import ItemRows
from tuskpoint_server.features.leases.leases import Leases
from tuskpoint_server.features.lineage.handoff_rows import HandoffRows
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.journal_keys import OpenKey, in_the_clear
from tuskpoint_server.journal.database.thread_rows import ThreadRow, find_thread
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.rebinding import bind_rows
from tuskpoint_server.journal.sql.journal_metadata import BOUND
from tuskpoint_server.journal.sql.schema import gaps, journal_info, members, threads
from tuskpoint_server.journal.sql.statements import Statement
from tuskpoint_server.journal.values.integrity import check_some
from tuskpoint_server.search.finding import FindRows
from tuskpoint_server.search.index import IndexRows
from tuskpoint_server.search.memories import MemoryRows

P = ParamSpec("P")
T = TypeVar("T")


async def made(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call when this coroutine is awaited."""
    return await call(*args, **kwargs)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)


class Journal(CheckpointRows):
    """Checkpoints of a database, and its other packages.

    Attributes:
        added: Bytes of new content of each commit.
        is_edited: Whether the test changed rows itself, which turns the check at the end off.
    """

    is_edited = False

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.events = Events(database)
        self.removal = RemovalRows(database)
        self.lineage = LineageRows(database)
        self.snapshots = SnapshotRows(database)
        self.leases = Leases(database)
        self.items = ItemRows(database)
        self.effects = EffectRows(database)
        self.handoffs = HandoffRows(database)
        self.offers = OfferRows(database)
        self.index = IndexRows(database)
        self.finding = FindRows(database)
        self.memories = MemoryRows(database)
        self.added: list[int] = []
        database.added.append(lambda _tenant, _count, size: self.added.append(size))


async def save(journal: Journal, *drafts: IncomingCheckpoint) -> None:
    """Save checkpoints, in order."""
    for draft in drafts:
        await journal.save_checkpoint(TENANT, draft)


async def thread_of(journal: Journal, thread_id: str = "t") -> Thread:
    """Return a thread that must exist."""
    detail = await journal.thread(TENANT, thread_id)
    assert detail is not None
    return detail.thread


async def row_of(journal: Journal, thread_id: str = "t") -> ThreadRow:
    """Return the row of a thread that exists or was deleted."""
    row = await journal.database.query(
        lambda connection: find_thread(connection, TENANT, thread_id)
    )
    assert row is not None
    return row


async def rows_of(journal: Journal, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows of a table."""
    chosen = select(*(table.c[name] for name in columns))
    return await journal.database.query(
        lambda connection: [tuple(row) for row in Statement(chosen).run(connection).fetchall()]
    )


def insert_segment(connection: Connection, thread: int, sha256: bytes, **columns: object) -> None:
    """Record that a segment of a thread, by number, is in the blob store."""
    row = {
        "tenant": TENANT,
        "thread": thread,
        "sha256": sha256,
        "kind": "segment",
        "size": 1,
        "blob_id": "blob",
        "identifier": "",
        **columns,
    }
    connection.execute(insert(members).values(row))


def insert_gap(
    connection: Connection, thread: int, checkpoint_id: str, segment: bytes | None = None
) -> None:
    """Record that a checkpoint cannot be stored, or that the store has lost a segment."""
    row = {
        "tenant": TENANT,
        "thread": thread,
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id,
        "seq": 1,
        "segment": segment,
        "reason": "lost",
        "size": 1,
        "retry_us": 0,
    }
    connection.execute(insert(gaps).values(row))


async def seals(stored: str) -> tuple[bytes, str]:
    """Return the key of a sealed journal, as an `OpenKey`."""
    return bytes(range(32)), stored or "wrapped"


async def open_database(
    path: Path,
    clock: Callable[[], int],
    entropy: Callable[[], int] = lambda: 0x1234567890,
    open_key: OpenKey | None = None,
) -> Database:
    key: OpenKey = in_the_clear
    if (path.parent / "signing.key").exists():  # a server created the journal
        key = partial(row_key, Config(data_dir=path.parent), None)
    where = place_of_new_journal(path)
    return await Database.open(
        where, clock_us=clock, entropy=entropy, open_key=open_key, open_row_key=key
    )


@asynccontextmanager
async def opened(
    directory: Path,
    clock: Callable[[], int],
    entropy: Callable[[], int] = lambda: 0x1234567890,
    *,
    checked: bool = True,
    open_key: OpenKey | None = None,
) -> AsyncIterator[Journal]:
    """Open the journal of a directory; in PostgreSQL another server may use it already.

    With `checked`, the context ends with a check that all rows are bound correctly. `open_key`
    opens the key of a sealed journal.
    """
    database = await open_database(directory / "journal.db", clock, entropy, open_key)
    try:
        journal = Journal(database)
        yield journal
        if checked and not journal.is_edited and not database._closed:
            await check_integrity(database)
    finally:
        await database.close()


async def bind_again(database: Database) -> None:
    """Bind the rows of a journal again, after a test changed some of the rows itself."""
    await unbind(database)
    assert (await bind_rows(database)).is_complete


async def unbind(database: Database) -> None:
    """Unbind the rows of a journal, as a migration of its tables leaves them."""

    def forget(batch: UnitOfWork) -> None:
        batch.connection.execute(update(threads).values(binding=None))
        batch.connection.execute(delete(journal_info).where(journal_info.c.name == BOUND))
        batch.logs.clear()

    database.binder.is_complete = False
    await database.transact(forget)


async def check_integrity(database: Database) -> None:
    """Check that every row of every thread is bound correctly, and that every value is sound."""

    def check(connection: Connection) -> None:
        for tenant, thread_id in connection.execute(select(threads.c.tenant, threads.c.thread_id)):
            at, sound = None, set[bytes]()
            while True:
                checked = check_some(connection, tenant, thread_id, at, sound)
                assert checked.problems == (), (thread_id, list(map(str, checked.problems)))
                at = checked.next
                if at is None:
                    break

    await database.query(check)


class World:
    """An event loop and a directory that all examples of a property share.

    Opening a journal takes longer than most examples, so each example uses its own threads instead.

    Attributes:
        directory: A directory that is empty at first, and removed at the end.
    """

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self._temporary.name)
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._examples = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context that is closed with the world."""
        return self.run(self._open.enter_async_context(context))

    def leave(self) -> None:
        """Close all that was opened."""
        self.run(self._open.aclose())

    def next_prefix(self) -> str:
        """Return a prefix of names that no other example uses."""
        self._examples += 1
        return f"{self._examples}-"

    def close(self) -> None:
        self.leave()
        self._runner.close()
        self._temporary.cleanup()


class JournalWorld(World):
    """A journal that all examples of a property share."""

    def __init__(
        self, entropy: Callable[[], int] = lambda: 0x1234567890, *, checked: bool = True
    ) -> None:
        super().__init__()
        self.clock = Clock()
        self._checked = checked
        self._entropy = entropy
        # Used tables have statistics, with which PostgreSQL would read many new rows slowly.
        place(self.directory / "journal.db")
        self.reopen()

    def reopen(self) -> None:
        """Open the journal, or close it and open it again."""
        self.leave()
        self.journal: Journal = self.enter(
            opened(self.directory, self.clock, self._entropy, checked=self._checked)
        )


class Ticks:
    """The seconds of a server's own clock, which a test moves as if the server had been stopped."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def expire(database: Database) -> None:
    """Let the lease expire, by the database's clock."""
    statement = "UPDATE leases SET until_us = 0 RETURNING fence"
    await database.write_past_batches(lambda connection: ask(connection, statement))
