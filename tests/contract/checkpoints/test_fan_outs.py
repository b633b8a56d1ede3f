"""The rows that a write reads do not depend on the number of writes in its checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.contract.checkpoints.kit import load
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, opened, thread_of
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.threads import NO_TASK, PruneStrategy, ThreadState
from tuskpoint_server.journal.database import pending_writes
from tuskpoint_server.journal.database.thread_cache import ThreadCache
from tuskpoint_server.journal.database.thread_rows import ThreadCacheEntry, ThreadRow
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import writes
from tuskpoint_server.journal.sql.statements import Answer, Statement

EARLY, LATE = 100, 400
"""Numbers of writes in a checkpoint between which further writes are measured."""


class Counted:
    """An answer that counts the fetched rows."""

    def __init__(self, answer: Answer, reads: Reads) -> None:
        self._answer = answer
        self._reads = reads
        self.close = answer.close

    @property
    def rowcount(self) -> int:
        return self._answer.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._answer.fetchone()
        self._reads.rows += row is not None
        return row

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._counted(self._answer.fetchall())

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        return self._counted(self._answer.fetchmany(size))

    def _counted(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self._reads.rows += len(rows)
        return rows


class Reads:
    """Count of statements and of fetched rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements = self.rows = 0
        run = Statement.run

        def counted(statement: Statement, connection: Connection, **values: object) -> Answer:
            self.statements += 1
            return Counted(run(statement, connection, **values), self)

        monkeypatch.setattr(Statement, "run", counted)

    async def of(self, call: Awaitable[object]) -> tuple[int, int]:
        """Await a call; return its numbers of statements and rows."""
        self.statements = self.rows = 0
        await call
        return self.statements, self.rows


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture
async def servers(
    tmp_path: Path, clock: Clock, database: str
) -> AsyncIterator[Callable[[int], Journal]]:
    """Yield a function from a number to a server; two servers on PostgreSQL take turns."""
    async with AsyncExitStack() as stack:
        count = 2 if database == "postgresql" else 1
        journals = [await stack.enter_async_context(opened(tmp_path, clock)) for _ in range(count)]
        yield lambda number: journals[number % count]


async def _task(journal: Journal, number: int, channel: str = "said") -> None:
    """Save the write of a task of the fan-out."""
    idx = {"__interrupt__": -3, "__resume__": -4}.get(channel, 0)
    sent = write(channel, b"%d" % number, task=f"task {number}", idx=idx)
    await journal.save_writes(TENANT, key("c1"), [sent])


@pytest.mark.parametrize("channel", ["said", "__interrupt__"])
async def test_a_late_write_reads_as_much_as_an_early_one(
    journal: Journal, reads: Reads, channel: str
) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    counts = [await reads.of(_task(journal, number, channel)) for number in range(LATE)]
    assert max(counts[1:]) == counts[1]


async def test_an_answer_reads_no_questions(journal: Journal, reads: Reads) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    for number in range(LATE):
        await _task(journal, number, "__interrupt__")
    counts = [await reads.of(_task(journal, number, "__resume__")) for number in range(LATE - 1)]
    assert max(counts) == counts[0]
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    common = write("__resume__", b"all", task=NO_TASK, idx=-4)
    await journal.save_writes(TENANT, key("c1"), [common])
    assert (await thread_of(journal)).state is ThreadState.IDLE


async def test_writes_that_wait_for_their_checkpoint_are_read_once(
    journal: Journal, reads: Reads
) -> None:
    counts = [await reads.of(_task(journal, number)) for number in range(LATE)]
    assert max(counts[1:]) == counts[1]
    saved = await journal.save_checkpoint(TENANT, draft("c1"))
    assert saved.seq == LATE + 1


async def test_checkpoints_of_subgraphs_do_not_push_the_writes_out(
    journal: Journal, reads: Reads
) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    counts = []
    for number in range(LATE):
        counts.append(await reads.of(_task(journal, number)))
        if number > EARLY:
            for of_task in range(10):
                nested = draft("c2", ns=f"say:{number}-{of_task}", writes=[write("x", b"1")])
                await journal.save_checkpoint(TENANT, nested)
    assert counts[-1] == counts[EARLY + 2]  # the server reads the checkpoint again, not its writes


async def test_servers_in_turn_read_what_the_other_one_stored(
    servers: Callable[[int], Journal], reads: Reads
) -> None:
    await servers(0).save_checkpoint(TENANT, draft("c1"))
    counts = [await reads.of(_task(servers(number), number)) for number in range(LATE)]
    assert max(counts[EARLY:]) == max(counts[4:EARLY])
    again = write("said", b"another", task="task 3")
    repeated = await servers(1).save_writes(TENANT, key("c1"), [again])
    assert repeated.seq == 5  # the first write wins: it is stored already


async def test_a_server_that_was_away_for_long_reads_all_writes(
    servers: Callable[[int], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_writes, "_FOLLOWED_CHANGES", 5)
    await servers(0).save_checkpoint(TENANT, draft("c1"))
    for number in range(8):
        await _task(servers(0), number)
        await _task(servers(1), 100 * (number == 7) + number)
    again = [write("said", b"another", task=f"task {number}") for number in range(8)]
    for number in range(2):
        repeated = await servers(number).save_writes(TENANT, key("c1"), again)
        assert repeated.seq <= 10


async def test_a_write_that_was_edited_is_noticed_where_it_is_read(journal: Journal) -> None:
    journal.is_edited = True
    await journal.save_checkpoint(TENANT, draft("c1"))
    for number in range(3):
        await _task(journal, number)

    def edit(connection: Connection) -> None:
        connection.execute(writes.update().where(writes.c.task_id == "task 1").values(channel="y"))

    await journal.database.transact(lambda batch: edit(batch.connection))
    await _task(journal, 3)  # the remembered writes decide
    await journal.database.transact(lambda batch: batch.logs.clear())
    await refused(_task(journal, 4), Reason.JOURNAL_DAMAGED)


async def test_what_another_server_removed_is_stored_again(
    servers: Callable[[int], Journal],
) -> None:
    for checkpoint_id in ("c1", "c2"):
        await servers(0).save_checkpoint(TENANT, draft(checkpoint_id))
        await _task(servers(0), 1)
    await servers(1).removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await servers(1).save_checkpoint(TENANT, draft("c1"))
    await _task(servers(0), 1)
    assert len((await load(servers(0), key("c1"))).writes) == 1


@pytest.mark.parametrize("changes", [False, True], ids=["alone", "with a change"])
async def test_what_expired_on_another_server_is_stored_again(
    servers: Callable[[int], Journal], clock: Clock, *, changes: bool
) -> None:
    await servers(0).save_checkpoint(TENANT, draft("c0"))
    await _task(servers(0), 1)
    clock.advance(100)
    await servers(1).removal.sweep(early_write_ttl_s=60)
    if changes:
        await servers(1).set_label(TENANT, key("c0"), "label")
    await _task(servers(0), 1)
    await servers(1).save_checkpoint(TENANT, draft("c1", "c0"))
    assert len((await load(servers(1), key("c1"))).writes) == 1


async def test_a_sign_that_was_replaced_says_nothing(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    await _task(journal, 1, "__interrupt__")
    assert (await thread_of(journal)).state is ThreadState.INTERRUPTED
    other = write("__error_source_node__", b"", task="task 1", idx=-3)
    await journal.save_writes(TENANT, key("c1"), [other])
    assert (await thread_of(journal)).state is ThreadState.IDLE


async def test_names_of_signs_that_were_replaced_do_not_count(journal: Journal) -> None:
    await journal.save_checkpoint(TENANT, draft("c1"))
    path = "p" * LIMITS.max_task_path
    at_once = [
        write("__resume__", b"", task=f"{number}", idx=-4, path=path) for number in range(1000)
    ]
    for round_of in range(3):
        sent = [sign._replace(task_path=f"{round_of}{path[1:]}") for sign in at_once]
        await journal.save_writes(TENANT, key("c1"), sent)
    more = [sign._replace(task_id=f"more {sign.task_id}") for sign in at_once]
    await refused(journal.save_writes(TENANT, key("c1"), more), Reason.LIMIT_EXCEEDED)


async def test_writes_count_as_memory_once_they_are_saved(journal: Journal) -> None:
    sent = [write("said", b"", task=f"task {number}") for number in range(LATE)]
    await journal.save_checkpoint(TENANT, draft("c1", writes=sent))

    def kept(batch: UnitOfWork) -> int:
        log = batch.find(TENANT, "t")
        assert log is not None
        return log.writes.size_bytes

    assert await journal.database.transact(kept) > LATE * 500


@pytest.mark.sqlite
async def test_many_small_writes_are_not_read_in_the_event_loop(journal: Journal) -> None:
    for checkpoint_id, count in (("c1", LATE), ("c2", EARLY)):
        sent = [write("said", b"", task=f"task {number}") for number in range(count)]
        await journal.save_checkpoint(TENANT, draft(checkpoint_id, writes=sent))
    many, few = journal.load_inline(TENANT, [key("c1"), key("c2")])
    assert many is None
    assert few is not None
    assert len(few.writes) == EARLY


def test_what_is_kept_of_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_writes, "_MANY_BYTES", 200_000)
    cache = ThreadCache(limit_bytes=300_000)
    logs = []
    for name in ("a", "b", "c"):
        row = ThreadRow(1, TENANT, name, 1, created_us=1, updated_us=1)
        log = ThreadCacheEntry(row, new=False, early=False)
        cache.put(log)
        logs.append(log)
        for checkpoint in range(20):
            pending = pending_writes.PendingWrites()
            for number in range(100):
                pending.put(write("said", b"", task=f"{number}"))
            log.writes.keep(("", f"{checkpoint}"), pending)
            assert log.writes.size_bytes <= 200_000
            assert log.writes.get(("", f"{checkpoint}")) is pending
        for checkpoint in range(100):
            log.writes.keep((f"{checkpoint}", ""), pending_writes.PendingWrites())
        assert log.writes.size_bytes <= 220_000
        assert log.writes.get(("", "19")) is not None
        cache.trim()
    assert cache.get(TENANT, "a") is None
    assert cache.get(TENANT, "c") is logs[-1]
