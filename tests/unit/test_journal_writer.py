"""The writer commits what waits together, and keeps one request's trouble to itself."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.journal import sqlite, writer
from tuskpoint_server.journal.writer import Writer

Work = Callable[[Connection], Any]


class Commits:
    """Counts the commits of an engine, and fails them when told to."""

    def __init__(self, engine: Engine) -> None:
        self.count = 0
        self.error: Exception | None = None
        event.listen(engine, "commit", self._on_commit)

    def _on_commit(self, _connection: Connection) -> None:
        self.count += 1
        if self.error is not None:
            raise self.error


class Gate:
    """A request that holds its batch until the test lets it go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._released = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, _connection: Connection) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._released.wait(30)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = sqlite.make_engine(tmp_path / "journal.db")
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE log (entry TEXT PRIMARY KEY)")
    return engine


@pytest.fixture
def commits(engine: Engine) -> Commits:
    return Commits(engine)


@pytest.fixture
async def batches(engine: Engine) -> AsyncIterator[Writer]:
    opened = Writer(engine)
    yield opened
    await opened.close()


def add(entry: str) -> Work:
    def work(connection: Connection) -> list[str]:
        connection.exec_driver_sql("INSERT INTO log VALUES (?)", (entry,))
        return read(connection)

    return work


def read(connection: Connection) -> list[str]:
    return list(connection.exec_driver_sql("SELECT entry FROM log ORDER BY rowid").scalars())


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return read(connection)


def storage_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as if")
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error


async def together(batches: Writer, *works: Work) -> list[Any]:
    """Submit requests so that one batch takes them all; return results and errors."""
    gate = Gate()
    held = asyncio.create_task(batches.submit(gate))
    await gate.entered.wait()
    tasks = [asyncio.create_task(batches.submit(work)) for work in works]
    await asyncio.sleep(0)
    gate.release()
    await held
    return await asyncio.gather(*tasks, return_exceptions=True)


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Refusal)
    return outcome.reason


async def test_what_waits_is_committed_together(
    engine: Engine, commits: Commits, batches: Writer
) -> None:
    outcomes = await together(batches, *(add(str(n)) for n in range(20)))
    assert commits.count == 2  # the gate's and theirs
    assert outcomes == [[str(n) for n in range(m + 1)] for m in range(20)]
    assert stored(engine) == [str(n) for n in range(20)]


async def test_batches_are_bounded(
    monkeypatch: pytest.MonkeyPatch, commits: Commits, batches: Writer
) -> None:
    monkeypatch.setattr(writer, "MAX_BATCH_REQUESTS", 3)
    await together(batches, *(add(str(n)) for n in range(7)))
    assert commits.count == 1 + 3
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 10)
    gate = Gate()
    held = asyncio.create_task(batches.submit(gate))
    await gate.entered.wait()
    tasks = [asyncio.create_task(batches.submit(add(f"big {n}"), 6)) for n in range(2)]
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(held, *tasks)
    assert commits.count == 4 + 3


async def test_a_request_that_raises_is_undone_alone(engine: Engine, batches: Writer) -> None:
    def half_done(connection: Connection) -> None:
        add("half")(connection)
        raise ValueError("changed my mind")

    first, failed, last = await together(batches, add("first"), half_done, add("last"))
    assert isinstance(failed, ValueError)
    assert first == ["first"]
    assert last == ["first", "last"]
    assert stored(engine) == ["first", "last"]


async def test_a_failure_of_storage_inside_a_request_is_its_own(
    engine: Engine, batches: Writer
) -> None:
    def full(connection: Connection) -> None:
        add("half")(connection)
        raise storage_error("SQLITE_FULL")

    failed, kept = await together(batches, full, add("kept"))
    assert reason(failed) is Reason.JOURNAL_UNAVAILABLE
    assert failed.metadata["problem"].startswith("SQLITE_FULL")
    assert kept == ["kept"]
    assert stored(engine) == ["kept"]


async def test_a_defect_is_not_taken_for_a_failure_of_storage(batches: Writer) -> None:
    await batches.submit(add("once"))
    wrong, twice = await together(
        batches, lambda connection: connection.exec_driver_sql("SELECT nonsense"), add("once")
    )
    assert not isinstance(wrong, Refusal)
    assert not isinstance(twice, Refusal)


@pytest.mark.parametrize("raises", [True, False])
async def test_a_lost_transaction_fails_the_whole_batch(
    engine: Engine, batches: Writer, raises: bool
) -> None:
    def lose(connection: Connection) -> None:
        connection.exec_driver_sql("ROLLBACK")
        if raises:
            raise storage_error("SQLITE_IOERR")

    outcomes = await together(batches, add("before"), lose, add("after"))
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 3
    assert stored(engine) == []
    assert await batches.submit(add("again")) == ["again"]


@pytest.mark.parametrize("moment", ["begin", "commit"])
async def test_a_failed_transaction_fails_all_and_nothing_stays(
    engine: Engine, batches: Writer, moment: str
) -> None:
    broken = True

    def fail(_connection: Connection) -> None:
        if broken:
            raise storage_error("SQLITE_IOERR")

    gate = Gate()
    held = asyncio.create_task(batches.submit(gate))
    await gate.entered.wait()
    tasks = [asyncio.create_task(batches.submit(add(str(n)))) for n in range(3)]
    await asyncio.sleep(0)
    if moment == "commit":  # the gate's own commit fails with the others
        event.listen(engine, "commit", fail)
        tasks.append(held)
    else:
        event.listen(engine, "begin", fail)
    gate.release()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(held, return_exceptions=True)
    assert {reason(outcome) for outcome in outcomes} == {Reason.JOURNAL_UNAVAILABLE}
    broken = False
    assert stored(engine) == []
    assert await batches.submit(add("again")) == ["again"]


async def test_a_caller_that_goes_away_interrupts_nothing(engine: Engine, batches: Writer) -> None:
    gate = Gate()

    def slow(connection: Connection) -> None:
        add("running")(connection)
        gate(connection)

    running = asyncio.create_task(batches.submit(slow))
    await gate.entered.wait()
    waiting = asyncio.create_task(batches.submit(add("waiting")))
    refused = asyncio.create_task(batches.submit(lambda c: c.exec_driver_sql("nonsense")))
    await asyncio.sleep(0)
    for task in (running, waiting, refused):
        task.cancel()
    outcomes = await asyncio.gather(running, waiting, refused, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    gate.release()
    await batches.submit(lambda _connection: None)
    assert stored(engine) == ["running", "waiting"]


async def test_closing_finishes_what_is_queued(engine: Engine) -> None:
    closing = Writer(engine)
    gate = Gate()
    held = asyncio.create_task(closing.submit(gate))
    await gate.entered.wait()
    tasks = [asyncio.create_task(closing.submit(add(str(n)))) for n in range(3)]
    await asyncio.sleep(0)
    end = asyncio.create_task(closing.close())
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as late:
        await closing.submit(add("late"))
    gate.release()
    await asyncio.gather(held, end, *tasks)
    assert reason(late.value) is Reason.JOURNAL_UNAVAILABLE
    assert stored(engine) == ["0", "1", "2"]


async def test_nobody_waits_for_a_writer_that_was_stopped(engine: Engine) -> None:
    stopped = Writer(engine)
    gate = Gate()
    held = asyncio.create_task(stopped.submit(gate))
    await gate.entered.wait()
    queued = asyncio.create_task(stopped.submit(add("queued")))
    await asyncio.sleep(0)
    stopped._task.cancel()
    outcomes = await asyncio.gather(held, queued, return_exceptions=True)
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 2
    gate.release()
    await stopped.close()
    assert stored(engine) == []
