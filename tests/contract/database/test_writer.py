"""The writer commits waiting changes together, and keeps one change's failure to itself."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import Engine, event

from tests.contract.database.kit import Gate, bad_statement, change, half_done, save, together
from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    draft,
    key,
    refused,
    write,
)
from tests.kit.journal import Clock, Journal, made, open_database, opened
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import SaveOutcome, View
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.journal.database import writer
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork


class Driver:
    """Statements of the writer's thread; a statement with many rows counts once."""

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


def step(number: int, thread_id: str) -> IncomingCheckpoint:
    """Return a step of an agent: some channels change, one stays, and the step has a write."""
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


@pytest.mark.sqlite
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


@pytest.mark.sqlite
async def test_late_writes_take_few_statements(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    await journal.save_checkpoint(TENANT, step(0, "t"))
    driver.statements.clear()
    await journal.save_writes(TENANT, key("0000"), [write("x", b"1", idx=n) for n in range(1, 9)])
    assert 0 < len(driver.statements) <= 6, driver.statements


@pytest.mark.sqlite
async def test_a_batch_of_saves_takes_few_statements(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    names = [f"t{number}" for number in range(32)]
    for number in range(2):
        await asyncio.gather(
            *(journal.save_checkpoint(TENANT, step(number, name)) for name in names)
        )

    def began(_batch: UnitOfWork) -> None:
        driver.statements.clear()
        driver.commits = 0

    outcomes = await together(
        journal,
        change(journal, began),
        *(made(journal.save_checkpoint, TENANT, step(2, name)) for name in names),
    )
    assert all(isinstance(outcome, SaveOutcome) for outcome in outcomes[1:])
    assert driver.commits == 1
    # The batch starts with a BEGIN before its first change.
    assert 0 < len(driver.statements) + 1 <= 12, driver.statements


@pytest.mark.sqlite
async def test_queued_changes_are_committed_together(counted: tuple[Journal, Driver]) -> None:
    journal, driver = counted
    driver.commits = 0
    outcomes = await together(journal, *(save(journal, f"{n:02}") for n in range(20)))
    assert driver.commits == 2  # the gate's commit, and the commit of the saves
    assert [outcome.seq for outcome in outcomes] == list(range(1, 21))


@pytest.mark.sqlite
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
    await gate.entered.wait()  # the writer has started with both changes
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
        await asyncio.sleep(0)  # a thread is still compressing the content
        outcomes[2].cancel()
    done = await asyncio.gather(*outcomes, return_exceptions=True)
    left = [outcome for outcome in done if not isinstance(outcome, asyncio.CancelledError)]
    assert [outcome.seq for outcome in left if isinstance(outcome, SaveOutcome)] == list(
        range(1, len(left) + 1)
    )
    assert len(left) == (4 if cancelled else 5)


async def test_a_commit_reports_the_bytes_it_added(journal: Journal) -> None:
    added: list[tuple[str, int, int]] = []
    journal.database.added.append(lambda *change: added.append(change))
    calls = [save(journal, f"{n}", thread_id=f"t{n}", frame=b"") for n in range(3)]
    await together(
        journal,
        *calls,
        made(journal.save_checkpoint, "other", draft("a", metadata={"of": "other"})),
        made(journal.database.transact, half_done),
        save(journal, "z", expected_head="y"),
    )
    # These checkpoints have only metadata.
    assert sorted(added) == [(TENANT, 3, 3 * len("{}")), ("other", 1, len('{"of": "other"}'))]
    await save(journal, "0", thread_id="t0", frame=b"")  # the repeated save changes nothing
    assert len(added) == 2


async def test_closing_finishes_queued_changes(tmp_path: Path, clock: Clock) -> None:
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
        assert (detail.thread.head_id, detail.thread.checkpoint_count) == ("2", 3)


@pytest.mark.sqlite
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
        (
            [
                "CREATE TABLE journal_info (name TEXT, value TEXT)",
                "INSERT INTO journal_info VALUES ('layout', '2')",
            ],
            "from before the first that can be migrated: rebuild it from its blobs with `recover`",
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
