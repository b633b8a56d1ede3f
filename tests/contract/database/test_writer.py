"""The writer commits what waits together, and keeps one change's trouble to itself."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import Engine, event

from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    data_of,
    draft,
    key,
    refused,
    value,
    write,
    written,
)
from tests.kit.journal import Clock, Journal, made, open_database, opened
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import Saved, View
from tuskpoint_server.domain.threads import EventKind
from tuskpoint_server.journal.checkpoints.sent import SentCheckpoint
from tuskpoint_server.journal.database import sqlite, writer
from tuskpoint_server.journal.database.overlay import Batch
from tuskpoint_server.journal.removal.removal import Removal

Call = Coroutine[Any, Any, Any]


class Gate:
    """A change that holds its batch until the test lets it go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self._released = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, _batch: Batch) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._released.wait(30)

    def release(self) -> None:
        self._released.set()


async def together(journal: Journal, *calls: Call) -> list[Any]:
    """Make calls so that one batch takes their changes; return results and errors."""
    gate = Gate()
    held = journal.database.change(gate)
    await gate.entered.wait()
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    gate.release()
    await held
    return await asyncio.gather(*tasks, return_exceptions=True)


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


def storage_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as if")
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error


def save(journal: Journal, *args: Any, **more: Any) -> Coroutine[Any, Any, Saved]:
    return made(journal.save_checkpoint, TENANT, draft(*args, **more))


async def change(journal: Journal, work: Callable[[Batch], Any], size_bytes: int = 0) -> Any:
    return await journal.database.change(work, size_bytes)


async def everything(journal: Journal) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables."""

    def read(connection: Any) -> dict[str, list[tuple[Any, ...]]]:
        cursor = connection.connection.cursor()
        names = cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: cursor.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in names}

    return await journal.database.query(read)


@contextmanager
def failing(moment: str, error: Exception) -> Iterator[None]:
    """Let transactions fail when they begin or are committed."""

    def fail(*_args: object, **_more: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite, moment, fail)
        yield


# --- what the writer does on the driver ----------------------------------------------------


class Driver:
    """What the writer's thread asks of the database, a statement with many rows as one."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.commits = 0

    def note(self, statement: str) -> None:
        if threading.current_thread().name == "journal-writer":
            self.statements.append(statement)


@pytest.fixture
def driver() -> Iterator[Driver]:
    noted = Driver()

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *args: Any) -> Self:
            noted.note(sql)
            super().execute(sql, *args)
            return self

        def executemany(self, sql: str, rows: Any, /) -> Self:
            noted.note(sql)
            super().executemany(sql, rows)
            return self

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def commit(self) -> None:
            noted.note("COMMIT")
            noted.commits += threading.current_thread().name == "journal-writer"
            super().commit()

    def connect(_dialect: object, _record: object, _args: object, more: dict[str, Any]) -> None:
        more["factory"] = Connection

    event.listen(Engine, "do_connect", connect)
    yield noted
    event.remove(Engine, "do_connect", connect)


@pytest.fixture
async def counted(
    tmp_path: Path, clock: Clock, driver: Driver
) -> AsyncIterator[tuple[Journal, Driver]]:
    (tmp_path / "counted").mkdir()
    async with opened(tmp_path / "counted", clock) as journal:
        yield journal, driver


def step(number: int, thread_id: str) -> SentCheckpoint:
    """Return a step of an agent: some channels change, one stays, and it carries a write."""
    return draft(
        f"{number:04}",
        f"{number - 1:04}" if number else "",
        (
            channel("messages", b"%04d" % number * 1500, number),
            channel("counter", b"%d" % number, number),
            channel("system", Reference.INHERIT if number else b"be kind", 1),
        ),
        thread_id=thread_id,
        writes=(write("messages", b"w%d" % number),),
    )


@pytest.mark.parametrize("remembered", [True, False])
async def test_a_lone_save_takes_few_statements(
    counted: tuple[Journal, Driver], remembered: bool
) -> None:
    journal, driver = counted
    for number in range(3):
        if not remembered:
            await journal.database.transact(lambda batch: batch.logs.clear())
        driver.statements.clear()
        await journal.save_checkpoint(TENANT, step(number, "t"))
    count = len(driver.statements)
    assert 0 < count <= (8 if remembered else 12), driver.statements


async def test_late_writes_take_few_statements(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    await journal.save_checkpoint(TENANT, step(0, "t"))
    driver.statements.clear()
    await journal.save_writes(TENANT, key("0000"), [write("x", b"1", idx=n) for n in range(1, 9)])
    assert 0 < len(driver.statements) <= 6, driver.statements


async def test_a_batch_of_saves_takes_few_statements(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    names = [f"t{number}" for number in range(32)]
    for number in range(2):
        await asyncio.gather(
            *(journal.save_checkpoint(TENANT, step(number, name)) for name in names)
        )

    def began(_batch: Batch) -> None:
        driver.statements.clear()
        driver.commits = 0

    outcomes = await together(
        journal,
        change(journal, began),
        *(made(journal.save_checkpoint, TENANT, step(2, name)) for name in names),
    )
    assert all(isinstance(outcome, Saved) for outcome in outcomes[1:])
    assert driver.commits == 1
    # What precedes the first change of the batch is its BEGIN.
    assert 0 < len(driver.statements) + 1 <= 12, driver.statements


async def test_what_waits_is_committed_together(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    driver.commits = 0
    outcomes = await together(journal, *(save(journal, f"{n:02}") for n in range(20)))
    assert driver.commits == 2  # the gate's and theirs
    assert [outcome.seq for outcome in outcomes] == list(range(1, 21))


async def test_batches_are_bounded(
    counted: tuple[Journal, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, driver = counted
    monkeypatch.setattr(writer, "MAX_BATCH_CHANGES", 3)
    driver.commits = 0
    await together(journal, *(save(journal, f"{n:02}") for n in range(7)))
    assert driver.commits == 1 + 3
    monkeypatch.setattr(writer, "MAX_BATCH_BYTES", 10)
    driver.commits = 0
    await together(journal, *(change(journal, lambda batch: None, 6) for _ in range(2)))
    assert driver.commits == 1 + 2


# --- trouble -------------------------------------------------------------------------------


def half_done(batch: Batch) -> None:
    """Change the batch and then fail."""
    log = batch.find(TENANT, "t")
    assert log is not None
    batch.change(log, EventKind.RETENTION_SET)
    log.row.retention_s = 60
    raise ValueError("changed my mind")


def bad_row(batch: Batch) -> None:
    """Leave rows that the database refuses when they are written out."""
    log = batch.find(TENANT, "t")
    assert log is not None
    batch.change(log, EventKind.RETENTION_SET)
    log.row.retention_s = None  # type: ignore[assignment]


def bad_statement(batch: Batch) -> None:
    batch.connection.exec_driver_sql("SELECT nonsense")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("poison", [half_done, bad_row, bad_statement])
async def test_one_poisonous_change_fails_alone(
    journal: Journal, poison: Callable[[Batch], None], alone: bool
) -> None:
    await save(journal, "a", "", {"x": b"1"})

    async def poisonous() -> None:
        await (journal.database.transact if alone else journal.database.change)(poison)

    first, failed, label, last, other = await together(
        journal,
        save(journal, "b", "a", {"x": Reference.INHERIT}),
        poisonous(),
        made(journal.set_label, TENANT, key(""), "kept"),
        save(journal, "c", "b", {"x": b"3"}, expected_head="b"),
        save(journal, "a", thread_id="other"),
    )
    assert isinstance(failed, Exception)
    assert not isinstance(failed, Refusal)
    assert (first.seq, label.seq, last.seq, other.seq) == (2, 3, 4, 1)
    assert label.key == key("b")
    assert data_of(await journal.load(TENANT, key("b"), View.FULL)) == {"x": b"1"}
    assert data_of(await journal.load(TENANT, key("c"), View.FULL)) == {"x": b"3"}
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.retention_s, detail.checkpoint_count) == (0, 3)
    assert [one.seq for one in (await journal.events.after(TENANT, "t", 0, 9)).events] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("moment", ["begin", "commit"])
async def test_a_failed_transaction_fails_all_and_nothing_stays(
    journal: Journal, moment: str
) -> None:
    await save(journal, "a", "", {"x": b"1"})
    before = await everything(journal)
    gate = Gate()
    held = journal.database.change(gate)
    await gate.entered.wait()
    calls = [
        asyncio.ensure_future(call)
        for call in (
            save(journal, "b", "a", {"x": b"2"}, writes=(write("x", b"w"),)),
            save(journal, "a", thread_id="new"),
            journal.save_writes(TENANT, key("a"), [write("x", b"w")]),
            journal.set_label(TENANT, key("a"), "l"),
        )
    ]
    await asyncio.sleep(0)
    with failing(moment, storage_error("SQLITE_IOERR")):
        gate.release()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        gated = (await asyncio.gather(held, return_exceptions=True))[0]
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 4
    if moment == "commit":  # the gate's own commit fails with the others
        assert reason(gated) is Reason.JOURNAL_UNAVAILABLE
    assert await everything(journal) == before
    again = await save(journal, "b", "a", {"x": Reference.INHERIT}, expected_head="a")
    assert again.seq == 2
    loaded = await journal.load(TENANT, key("b"), View.FULL)
    assert (data_of(loaded), written(loaded)) == ({"x": b"1"}, [])
    assert await journal.thread(TENANT, "new") is None
    assert (await save(journal, "z", thread_id="new")).seq == 1


async def test_storage_that_fails_in_a_statement_fails_its_batch(journal: Journal) -> None:
    def full(_batch: Batch) -> None:
        raise storage_error("SQLITE_FULL")

    before = await everything(journal)
    outcomes = await together(
        journal, save(journal, "a"), change(journal, full), save(journal, "b")
    )
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 3
    assert outcomes[1].metadata["problem"].startswith("SQLITE_FULL")
    assert await everything(journal) == before
    assert (await save(journal, "a")).seq == 1


async def test_a_transaction_that_is_lost_fails_its_batch(journal: Journal) -> None:
    def lose(batch: Batch) -> None:
        batch.connection.exec_driver_sql("ROLLBACK")
        raise storage_error("SQLITE_IOERR")

    async def losing() -> None:
        await journal.database.transact(lose)

    outcomes = await together(journal, save(journal, "a"), losing(), save(journal, "b"))
    assert [reason(outcome) for outcome in outcomes] == [Reason.JOURNAL_UNAVAILABLE] * 3
    assert (await save(journal, "a")).seq == 1


async def test_a_refused_change_leaves_no_trace(journal: Journal) -> None:
    def refused_calls() -> list[tuple[Reason, Call]]:
        writes = (write("x", b"w"),)
        missing, moved = Reason.VALUES_MISSING, Reason.HEAD_MOVED
        return [
            (missing, save(journal, "c", "b", {"x": b"9" * 5000, "y": Reference.INHERIT})),
            (missing, save(journal, "a", "", {"y": Reference.INHERIT}, thread_id="new")),
            (moved, save(journal, "c", "b", {"x": b"9"}, expected_head="a", writes=writes)),
            (moved, save(journal, "", expected_head="z")),
            (
                Reason.VERSION_TYPE_CHANGED,
                save(journal, "c", "b", (channel("x", value(b"9"), "text"),), writes=writes),
            ),
            (Reason.THREAD_DELETED, save(journal, "b", "a", {"x": b"9"}, thread_id="gone")),
            (
                Reason.THREAD_DELETED,
                made(journal.save_writes, TENANT, key("a", "gone"), [write("x", b"9")]),
            ),
            (Reason.CHECKPOINT_NOT_FOUND, made(journal.set_label, TENANT, key("z"), "l")),
            (
                Reason.THREAD_NOT_FOUND,
                Removal(journal.database).set_retention(TENANT, "never was", 1),
            ),
        ]

    await save(journal, "a", "", {"x": b"1"})
    await save(journal, "b", "a", {"x": b"2"})
    await save(journal, "a", thread_id="gone")
    await Removal(journal.database).delete_thread(TENANT, "gone")
    before = await everything(journal)
    for expected, call in refused_calls():
        await refused(call, expected)
        assert await everything(journal) == before
    calls = refused_calls()
    outcomes = await together(journal, *(call for _, call in calls))
    assert [reason(outcome) for outcome in outcomes] == [expected for expected, _ in calls]
    assert await everything(journal) == before


async def test_a_keyframe_is_what_the_database_has(journal: Journal) -> None:
    """A value that is stored as a patch is no keyframe, though it came whole once more."""
    base = bytes(range(256)) * 24
    whole, one, two = base + b"0", base + b"1", base + b"12"
    await save(journal, "a", "", {"x": whole})
    await save(journal, "b", "a", (channel("x", one, 2),))  # a patch
    # Channel "y" knows nothing of that value: it begins a group with it.
    outcomes = await together(
        journal,
        save(journal, "c", "b", {"x": Reference.EMPTY, "y": one}),
        save(journal, "d", "c", (channel("x", Reference.EMPTY), channel("y", two, 2))),
    )
    assert [outcome.seq for outcome in outcomes] == [3, 4]
    assert data_of(await journal.load(TENANT, key("d"), View.FULL)) == {"y": two}
    assert data_of(await journal.load(TENANT, key("c"), View.FULL)) == {"y": one}


# --- beginning and end ---------------------------------------------------------------------


async def test_a_change_is_withdrawn_before_the_writer_begins_with_it(journal: Journal) -> None:
    gate = Gate()
    held = journal.database.change(gate)
    await gate.entered.wait()
    queued = [save(journal, "a"), save(journal, "b", "a"), change(journal, bad_statement)]
    going = [asyncio.ensure_future(call) for call in queued]
    await asyncio.sleep(0)
    for task in going:
        task.cancel()
    outcomes = await asyncio.gather(*going, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    gate.release()
    await held
    assert await journal.load(TENANT, key("a"), View.ENTRY) is None
    assert (await save(journal, "c")).seq == 1


async def test_a_caller_that_goes_away_interrupts_no_commit(journal: Journal) -> None:
    before, gate = Gate(), Gate()
    held = journal.database.change(before)
    await before.entered.wait()
    in_batch, going = journal.database.change(gate), journal.save_checkpoint(TENANT, draft("a"))
    before.release()
    await gate.entered.wait()  # the writer has begun with both
    going.cancel()
    gate.release()
    await asyncio.gather(held, in_batch)
    assert (await save(journal, "b", "a")).seq == 2


@pytest.mark.parametrize("cancelled", [True, False])
async def test_changes_of_a_thread_keep_their_order_behind_large_ones(
    journal: Journal, cancelled: bool
) -> None:
    large = [random.Random(n).randbytes(500_000) for n in range(2)]
    outcomes = [
        journal.save_checkpoint(TENANT, draft("a", "", {"x": large[0]})),
        journal.save_checkpoint(TENANT, draft("b", "a", {"x": Reference.INHERIT})),
        journal.save_writes(TENANT, key("b"), [write("x", large[1])]),
        journal.set_label(TENANT, key("b"), "l"),
        journal.save_checkpoint(TENANT, draft("d", "", {"x": b"small"})),
    ]
    if cancelled:
        await asyncio.sleep(0)  # its content is on its way to a thread
        outcomes[2].cancel()
    done = await asyncio.gather(*outcomes, return_exceptions=True)
    left = [one for one in done if not isinstance(one, asyncio.CancelledError)]
    assert [one.seq for one in left if isinstance(one, Saved)] == list(range(1, len(left) + 1))
    assert len(left) == (4 if cancelled else 5)


async def test_commits_say_what_they_added(journal: Journal) -> None:
    added: list[tuple[str, int, int]] = []
    journal.database.added.append(lambda *one: added.append(one))
    calls = [save(journal, f"{n}", thread_id=f"t{n}", frame=b"") for n in range(3)]
    await together(
        journal,
        *calls,
        made(journal.save_checkpoint, "other", draft("a", metadata={"of": "other"})),
        made(journal.database.transact, half_done),
        save(journal, "z", expected_head="y"),
    )
    # These have nothing but metadata.
    assert sorted(added) == [(TENANT, 3, 3 * len("{}")), ("other", 1, len('{"of": "other"}'))]
    await save(journal, "0", thread_id="t0", frame=b"")  # nothing is different
    assert len(added) == 2


async def test_closing_finishes_what_is_queued(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as journal:
        gate = Gate()
        held = journal.database.change(gate)
        await gate.entered.wait()
        tasks = [asyncio.ensure_future(save(journal, f"{n}")) for n in range(3)]
        await asyncio.sleep(0)
        closed = asyncio.ensure_future(journal.database.close())
        await asyncio.sleep(0)
        await refused(save(journal, "late"), Reason.JOURNAL_UNAVAILABLE)
        await refused(journal.thread(TENANT, "t"), Reason.JOURNAL_UNAVAILABLE)
        gate.release()
        await asyncio.gather(held, closed, *tasks)
    async with opened(tmp_path, clock) as journal:
        detail = await journal.thread(TENANT, "t")
        assert detail is not None
        assert (detail.thread.head_id, detail.checkpoint_count) == ("2", 3)


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["CREATE TABLE alembic_version (version_num TEXT)"], "first version"),
        (["CREATE TABLE notes (text TEXT)"], "another program"),
        (
            [
                "CREATE TABLE journal_info (name TEXT, value TEXT)",
                "INSERT INTO journal_info VALUES ('layout', '99')",
            ],
            "newer server",
        ),
    ],
)
async def test_a_database_of_another_layout_is_refused_in_one_line(
    tmp_path: Path, clock: Clock, statements: list[str], what: str
) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        tables = connection.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(RuntimeError, match=what) as caught:
        await open_database(path, clock)
    assert "\n" not in str(caught.value)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == tables
