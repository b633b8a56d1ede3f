"""The journal on SQLite: its layout, its durability settings, and a disk that is full."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, create_mock_engine, event, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

from tests.contract import search_kit
from tests.contract.journal_drafts import TENANT, data_of, digest, draft, key, write
from tuskpoint_server import journal as journal_room
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import View
from tuskpoint_server.domain.search import Metric, SearchScope
from tuskpoint_server.domain.vectors import pack
from tuskpoint_server.journal import (
    archive_collect,
    archive_status,
    closures,
    descent,
    reads,
    saves,
    schema,
    sqlite,
    sweeping,
)
from tuskpoint_server.journal.finding import FindRows
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.migrations import upgrade
from tuskpoint_server.journal.statements import Statement
from tuskpoint_server.recall.vectors import VectorIndex


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqlJournal]:
    opened = await SqlJournal.open(tmp_path / "journal.db")
    yield opened
    await opened.close()


# --- layout --------------------------------------------------------------------------------


async def test_migrations_make_what_the_schema_says(journal: SqlJournal, tmp_path: Path) -> None:
    def differences(connection: Connection) -> list[object]:
        of_full_text = full_text_tables(connection)

        def is_neutral(name: str | None, kind: str, _parents: object) -> bool:
            return kind != "table" or name not in of_full_text

        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": is_neutral}
        )
        return list(compare_metadata(context, schema.metadata))

    assert await journal.query(full_text_tables) == {
        "search_text",
        *(f"search_text_{part}" for part in ("config", "data", "docsize", "idx")),
    }
    assert await journal.query(differences) == []
    plain = sqlite.make_engine(tmp_path / "plain.db")
    with plain.connect() as connection:
        schema.metadata.create_all(connection)
        by_schema = layout(connection)
        connection.rollback()
    by_migration = await journal.query(layout)
    assert by_migration == by_schema


def full_text_tables(connection: Connection) -> set[str]:
    """Return the table of the full text and those that it is made of: SQLite's own."""
    tables = connection.execute(text("PRAGMA table_list")).all()
    return {table.name for table in tables if table.type in ("virtual", "shadow")}


def layout(connection: Connection) -> dict[str, object]:
    """Describe the tables by what SQLite itself says of them."""
    described: dict[str, object] = {}
    others = {"alembic_version", *full_text_tables(connection)}
    for name in sorted(inspect(connection).get_table_names()):
        if name in others:
            continue
        columns = connection.execute(text(f'PRAGMA table_xinfo("{name}")')).all()
        listed = connection.execute(text(f'PRAGMA table_list("{name}")')).one()
        indexes = connection.execute(
            text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = :name"),
            {"name": name},
        ).all()
        described[name] = (
            [tuple(column) for column in columns],
            tuple(listed[3:]),
            sorted((index.name, normal(index.sql)) for index in indexes),
        )
    return described


def normal(sql: str | None) -> str:
    return " ".join((sql or "").split())


@pytest.mark.parametrize("table", schema.metadata.sorted_tables, ids=lambda table: table.name)
def test_every_table_has_a_postgresql_form(table: Table) -> None:
    dialect = create_mock_engine("postgresql://", lambda *_: None).dialect
    made = str(CreateTable(table).compile(dialect=dialect))
    for column in table.columns:
        if column.type is schema.Name:
            assert f'{column.name} TEXT COLLATE "C"' in made
    for index in table.indexes:
        assert str(CreateIndex(index).compile(dialect=dialect))


def test_every_statement_has_a_postgresql_form() -> None:
    dialect = create_mock_engine("postgresql://", lambda *_: None).dialect
    names = [found.name for found in pkgutil.iter_modules(journal_room.__path__)]
    statements = [
        statement
        for name in names
        for statement in vars(importlib.import_module(f"{journal_room.__name__}.{name}")).values()
        if isinstance(statement, Statement)
    ]
    assert len(statements) > 40
    for statement in statements:
        text_of = statement._compile(dialect).text
        assert "?" not in text_of


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first = await SqlJournal.open(path)
    await first.save_checkpoint(TENANT, draft("a"))
    before = await first.query(layout)
    await first.close()
    await first.close()
    second = await SqlJournal.open(path)
    assert await second.query(layout) == before
    assert second.journal_id == first.journal_id
    await second.close()


async def test_a_layout_from_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await SqlJournal.open(path)).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    with pytest.raises(RuntimeError, match="does not know"):
        await SqlJournal.open(path)


async def test_two_journals_have_two_identities(tmp_path: Path) -> None:
    one = await SqlJournal.open(tmp_path / "one.db")
    other = await SqlJournal.open(tmp_path / "other.db")
    assert one.journal_id != other.journal_id
    assert one.backend == "sqlite"
    await one.close()
    await other.close()


# --- durability ----------------------------------------------------------------------------


async def test_commits_are_fsynced(journal: SqlJournal) -> None:
    def settings(connection: Connection) -> tuple[object, object]:
        return (
            connection.exec_driver_sql("PRAGMA journal_mode").scalar_one(),
            connection.exec_driver_sql("PRAGMA synchronous").scalar_one(),
        )

    assert await journal.transact(settings) == ("wal", 2)
    assert await journal.query(settings) == ("wal", 2)


@pytest.mark.parametrize("weakened", ["PRAGMA synchronous = NORMAL", "PRAGMA synchronous = OFF"])
def test_weaker_settings_are_noticed(tmp_path: Path, weakened: str) -> None:
    engine = sqlite.make_engine(tmp_path / "journal.db")
    with engine.connect() as connection:
        sqlite.check_durability(connection)
        connection.rollback()
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(weakened)
        with pytest.raises(RuntimeError, match="synchronous"):
            sqlite.check_durability(connection)


def test_without_a_log_the_journal_does_not_start() -> None:
    engine = sqlite.make_engine(Path(":memory:"))
    with engine.connect() as connection, pytest.raises(RuntimeError, match="journal_mode=memory"):
        sqlite.check_durability(connection)


# --- failures of storage -------------------------------------------------------------------


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(Refusal) as caught:
        await SqlJournal.open(path)
    assert caught.value.reason is Reason.JOURNAL_UNAVAILABLE


async def test_a_full_disk_refuses_whole_saves_and_recovers(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
    pages = await journal.query(
        lambda connection: connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    )
    limit = pages + 20

    def restrict(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {limit}")

    event.listen(journal._engine, "begin", restrict)
    large = draft("b", "a", {"x": b"x" * 1_000_000}, writes=(write("x", b"w"),))
    with pytest.raises(Refusal) as caught:
        await journal.save_checkpoint(TENANT, large)
    assert caught.value.reason is Reason.JOURNAL_UNAVAILABLE
    assert "SQLITE_FULL" in caught.value.metadata["problem"]
    assert await journal.load(TENANT, key("b"), View.FULL) is None
    small = await journal.save_checkpoint(TENANT, draft("c", "a", {"x": b"2"}))
    assert small.seq == 2
    event.remove(journal._engine, "begin", restrict)
    limit = 1_000_000
    event.listen(journal._engine, "begin", restrict)
    await journal.save_checkpoint(TENANT, large)
    loaded = await journal.load(TENANT, key("b"), View.FULL)
    assert data_of(loaded) == {"x": b"x" * 1_000_000}
    assert len(loaded.writes) == 1 if loaded else False
    check = await journal.query(
        lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalar_one()
    )
    assert check == "ok"


async def test_neighbours_of_a_save_that_does_not_fit_are_stored(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    pages = await journal.query(
        lambda connection: connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    )
    event.listen(
        journal._engine,
        "begin",
        lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 30}"),
    )
    outcomes = await asyncio.gather(
        journal.save_checkpoint(TENANT, draft("b", "", {"x": b"small"})),
        journal.save_checkpoint(TENANT, draft("c", "", {"x": b"x" * 1_000_000})),
        journal.save_checkpoint(TENANT, draft("d", "", {"x": b"small too"})),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], Refusal)
    for checkpoint_id, outcome in zip("bcd", outcomes, strict=True):
        found = await journal.load(TENANT, key(checkpoint_id), View.FULL)
        assert (found is not None) == (not isinstance(outcome, Refusal))


async def test_a_lock_that_is_held_elsewhere_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "journal.db"
    journal = await SqlJournal.open(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Refusal) as caught:
        await journal.save_checkpoint(TENANT, draft("a"))
    assert "SQLITE_BUSY" in caught.value.metadata["problem"]
    holder.execute("ROLLBACK")
    holder.close()
    assert (await journal.save_checkpoint(TENANT, draft("a"))).revision == 1
    await journal.close()


async def test_a_content_that_came_into_use_meanwhile_is_not_swept(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("a", "", {"x": b"used"}))
    found = [(TENANT, digest(b"used"))]
    dropped = await journal.transact(
        lambda connection: sweeping.drop_contents(connection, found, before_us=2**62)
    )
    assert dropped == 0
    assert data_of(await journal.load(TENANT, key("a"), View.FULL)) == {"x": b"used"}


# --- reading beside the writer -------------------------------------------------------------


async def test_a_query_sees_one_moment(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("a"))
    loop = asyncio.get_running_loop()

    def count_twice(connection: Connection) -> tuple[int, int]:
        statement = text("SELECT count(*) FROM checkpoints")
        first = connection.execute(statement).scalar_one()
        saved = journal.save_checkpoint(TENANT, draft("b"))
        asyncio.run_coroutine_threadsafe(saved, loop).result(30)
        return first, connection.execute(statement).scalar_one()

    assert await journal.query(count_twice) == (1, 1)
    assert await journal.load(TENANT, key("b"), View.ENTRY) is not None


async def test_a_query_that_raises_leaves_its_connection_fit(journal: SqlJournal) -> None:
    def fail(connection: Connection) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM checkpoints")
        raise ValueError("no")

    for _ in range(10):
        with pytest.raises(ValueError, match="no"):
            await journal.query(fail)
    await journal.save_checkpoint(TENANT, draft("a"))
    for _ in range(10):
        assert await journal.load(TENANT, key("a"), View.ENTRY) is not None


async def test_after_closing_nothing_is_answered(tmp_path: Path) -> None:
    journal = await SqlJournal.open(tmp_path / "journal.db")
    await journal.close()
    for call in (journal.save_checkpoint(TENANT, draft("a")), journal.thread(TENANT, "t")):
        with pytest.raises(Refusal) as caught:
            await call
        assert caught.value.reason is Reason.JOURNAL_UNAVAILABLE


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM checkpoints WHERE tenant = ? AND label = ? AND label != ''",
        "SELECT * FROM checkpoints WHERE tenant = ? AND run_id = ? AND run_id != ''",
        "SELECT * FROM checkpoints WHERE tenant = ? AND dirty_us IS NOT NULL AND dirty_us > ?",
        "SELECT * FROM content_references WHERE tenant = ? AND digest = ?",
        "SELECT * FROM checkpoints WHERE tenant = ? AND thread_id = ? "
        "ORDER BY checkpoint_id DESC LIMIT 10",
    ],
)
async def test_indexes_serve_the_lookups(journal: SqlJournal, query: str) -> None:
    plan = await journal.query(
        lambda connection: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", ("", "")).all()
    )
    assert all("SEARCH" in row[3] for row in plan), plan


async def test_a_damaged_full_text_keeps_words_from_being_found_and_nothing_else(
    journal: SqlJournal,
) -> None:
    for number in range(9):
        await search_kit.save(journal, f"0{number}", "saved", vector=(1.0, number))
    await search_kit.drain(journal)
    await journal.transact(
        lambda connection: connection.exec_driver_sql(
            "UPDATE search_text_data SET block = x'00' WHERE id > 1000"
        )
    )
    with pytest.raises(Refusal) as caught:
        await search_kit.look(journal, "saved")
    assert caught.value.reason is Reason.JOURNAL_UNAVAILABLE
    await search_kit.save(journal, "09", "saved", vector=(1.0, 9.0))
    index = VectorIndex(FindRows(journal), 1 << 20)
    found = await index.nearest(TENANT, pack((1.0, 9.0)), Metric.COSINE, SearchScope(), 1)
    await index.close()
    assert [one.key for one in found] == [key("09")]
    await search_kit.drain(journal)
    await journal.transact(
        lambda connection: connection.exec_driver_sql(
            "INSERT INTO search_text (search_text) VALUES ('rebuild')"
        )
    )
    assert len(await search_kit.look(journal, "saved", limit=100)) == 10


async def test_threads_with_untold_facts_are_found_by_their_index(journal: SqlJournal) -> None:
    def plans(connection: Connection) -> list[str]:
        asked: list[tuple[str, Any]] = []

        def note(_c: object, _u: object, statement: str, parameters: Any, *_: object) -> None:
            asked.append((statement, parameters))

        event.listen(connection.engine, "before_cursor_execute", note)
        archive_collect._untold(connection, TENANT, 5)
        archive_status.backlog(connection, TENANT)
        archive_status.oldest_waiting_us(connection, TENANT)
        archive_status.waiting_tenants(connection)
        event.remove(connection.engine, "before_cursor_execute", note)
        return [
            row[3]
            for statement, parameters in asked
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    found = await journal.query(plans)
    steps = [step for step in found if step.split()[1] == "threads"]
    assert len(steps) == 4
    assert [step for step in steps if "threads_untold" not in step] == []


async def test_work_of_a_fork_does_not_grow_with_the_thread(journal: SqlJournal) -> None:
    """Nor that of a rollback, nor of asking for lineage, which snapshots and others share."""

    async def steps(first: int, last: int) -> None:
        for n in range(first, last):
            root = f"{n:06}"
            ran = {"parents": {"": root}}
            await journal.save_checkpoint(TENANT, draft(root, f"{n - 1:06}" if n else ""))
            await journal.save_checkpoint(TENANT, draft(f"{root}a", ns="keeper", metadata=ran))
            call = draft(f"{root}b", ns=f"node:{n}", metadata=ran)
            await journal.save_checkpoint(TENANT, call)

    async def ticks(number: int) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        def work(connection: Connection) -> None:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.set_progress_handler(tick, 10)
            head = key(f"{number:06}")
            assert len(closures.parts(connection, TENANT, head)) == 4
            assert closures.stateful_namespaces(connection, TENANT, "t") == ["keeper"]
            assert descent.tree(connection, TENANT, "t", 10) is not None
            driver.set_progress_handler(None, 0)

        await journal.transact(work)
        return count

    await steps(0, 100)
    early = await ticks(99)
    await steps(100, 500)
    assert await ticks(499) <= 1.2 * early


async def test_work_per_save_does_not_grow_with_the_thread(journal: SqlJournal) -> None:
    """Counted in SQLite's own instructions, so that the machine's mood does not matter."""

    async def ticks(first: int, last: int) -> int:
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        def work(connection: Connection) -> None:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.set_progress_handler(tick, 10)
            for n in range(first, last):
                parent = f"{n - 1:06}" if n else ""
                step = draft(f"{n:06}", parent, {"x": b"%d" % n}, expected_head=parent)
                saves.save_checkpoint(connection, TENANT, step, n, n)
                saves.save_writes(connection, TENANT, step.key, [write("x", b"w")], n)
                reads.load(connection, TENANT, key(""), View.FULL)
            driver.set_progress_handler(None, 0)

        await journal.transact(work)
        return count

    early = await ticks(0, 50)
    await ticks(50, 1000)
    late = await ticks(1000, 1050)
    assert late <= 1.2 * early


async def test_log_stays_bounded_while_somebody_always_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LONG_LOG_BYTES", 1 << 20)
    # SQLite's own way of keeping it short needs a moment without readers.
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "PRAGMA wal_autocheckpoint = 0"))
    journal = await SqlJournal.open(tmp_path / "journal.db")
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            assert await journal.load(TENANT, key("0"), View.FULL) is not None

    await journal.save_checkpoint(TENANT, draft("0", "", {"x": bytes(1 << 20)}))
    readers = [asyncio.create_task(read()) for _ in range(8)]
    for number in range(1, 65):
        content = number.to_bytes(1, "big") * (1 << 18)
        await journal.save_checkpoint(TENANT, draft(f"{number}", "", {"x": content}))
    done.set()
    await asyncio.gather(*readers)
    assert sqlite.log_bytes(tmp_path / "journal.db") < 1 << 22
    await journal.close()


def test_the_newest_layout_is_that_of_the_last_step() -> None:
    config = Config()
    folder = Path(upgrade.__file__).parent
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    steps = ScriptDirectory.from_config(config)
    assert steps.get_current_head() == upgrade.NEWEST
