"""A journal of the layout before lineage opens, and everything is made of what it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

import tuskpoint_server.journal.migrations.upgrade as migrations
from tests.contract.journal_drafts import TENANT, data_of, draft, key, write
from tests.contract.lineage_kit import chain, history, under
from tests.contract.search_kit import drain, findable, indexed, look
from tests.integration.archive_kit import Clock
from tuskpoint_server.domain.lineage import Descent, EventKind, Snapshot
from tuskpoint_server.domain.model import View
from tuskpoint_server.journal import sqlite
from tuskpoint_server.journal.event_log import EventLog
from tuskpoint_server.journal.indexing import IndexRows
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_api import EventsCompacted, SnapshotDraft
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots

BEFORE = "0002"
HISTORY = (b"seed 01", (("task of log", b"w01"), ("task of log", b"w02")))


async def write_older(path: Path) -> None:
    """Write a journal in the layout before lineage."""
    newest = path.with_name("newest.db")
    journal = await SqlJournal.open(newest, clock_us=Clock())
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await chain(journal, ["04"], ns="keeper", metadata=under("01"))
    await chain(journal, ["05"], parent_id="04", ns="keeper", metadata=under("03"))
    await journal.save_checkpoint(TENANT, draft("01", thread_id="gone"))
    await journal.delete_thread(TENANT, "gone")
    await journal.save_writes(TENANT, key("01", "waits"), [write("x", b"early")])
    await journal.close()
    _make_empty(path)
    with closing(sqlite3.connect(path)) as older:
        older.execute("ATTACH ? AS newest", (str(newest),))
        tables = older.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        for (name,) in tables.fetchall():
            if name in ("alembic_version", "sqlite_sequence"):
                continue
            columns = [row[1] for row in older.execute(f"PRAGMA main.table_info({name})")]
            listed = ", ".join(columns)
            older.execute(f"INSERT INTO main.{name} ({listed}) SELECT {listed} FROM newest.{name}")
        older.commit()


def _make_empty(path: Path) -> None:
    engine = sqlite.make_engine(path)
    with engine.connect() as connection, connection.begin():
        config = Config()
        folder = Path(migrations.__file__).parent
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, BEFORE)
    engine.dispose()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqlJournal]:
    await write_older(tmp_path / "journal.db")
    clock = Clock()
    clock.now_us += 1_000_000
    opened = await SqlJournal.open(tmp_path / "journal.db", clock_us=clock)
    yield opened
    await opened.close()


async def test_the_older_layout_knows_no_events(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await write_older(path)
    with closing(sqlite3.connect(path)) as older:
        tables = {row[0] for row in older.execute("SELECT name FROM sqlite_master")}
        columns = {row[1] for row in older.execute("PRAGMA table_info(threads)")}
        assert older.execute("SELECT count(*) FROM checkpoints").fetchone() == (5,)
    assert "threads" in tables
    assert not tables & {"events", "search_documents", "search_text"}
    assert "compacted_seq" not in columns


async def test_of_what_happened_before_there_are_no_events(
    journal: SqlJournal, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        rows = database.execute("SELECT thread_id, seq, compacted_seq FROM threads").fetchall()
        assert database.execute("SELECT count(*) FROM events").fetchone() == (0,)
    assert {name for name, _, _ in rows} == {"t", "gone", "waits"}
    assert all(seq == compacted > 0 for _, seq, compacted in rows)
    log = EventLog(journal)
    extent = await log.extent(TENANT, "t")
    assert extent is not None
    with pytest.raises(EventsCompacted):
        await log.events(TENANT, "t", 0, 10)
    saved = await journal.save_checkpoint(TENANT, draft("06", "03"))
    assert saved.seq == extent.seq + 1
    [event] = await log.events(TENANT, "t", extent.seq, 10)
    assert (event.kind, event.seq) == (EventKind.CHECKPOINT_SAVED, saved.seq)


async def test_what_was_acknowledged_is_there(journal: SqlJournal) -> None:
    for one in ("01", "02", "03"):
        loaded = await journal.load(TENANT, key(one), View.FULL)
        assert data_of(loaded)["x"] == one.encode()
    assert await history(journal, key("03")) == HISTORY
    assert await journal.load(TENANT, key("01", "gone"), View.FULL) is None
    await journal.save_checkpoint(TENANT, draft("01", thread_id="waits"))
    loaded = await journal.load(TENANT, key("01", "waits"), View.FULL)
    assert loaded is not None
    assert [one.value.data for one in loaded.writes] == [b"early"]


async def test_everything_is_made_of_it(journal: SqlJournal) -> None:
    lineage, snapshots = Lineage(journal), Snapshots(journal)
    await lineage.fork(TENANT, key("03"), "fork", "")
    assert await history(journal, key("03", "fork")) == HISTORY
    closure = await lineage.closure(TENANT, key("03"))
    assert closure is not None
    await lineage.adopt(TENANT, closure, "hash", "gone", "adopter", "")
    assert await history(journal, key("03", "gone")) == HISTORY
    snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t", "fork")), "")
    rolled = await lineage.rollback(TENANT, key("02"), "", "03", {})
    assert data_of(await journal.load(TENANT, rolled.key, View.FULL))["x"] == b"02"
    assert data_of(await journal.load(TENANT, key("", "t", "keeper"), View.FULL))["x"] == b"04"
    tree = await lineage.lineage(TENANT, "t", 100)
    assert tree is not None
    assert [one.descent for one in tree.descendants] == [
        Descent.ROLLBACK,
        Descent.ROLLBACK,
        Descent.FORK,
        Descent.ADOPTION,
    ]
    await check_restoring(journal, snapshot)


async def check_restoring(journal: SqlJournal, snapshot: Snapshot) -> None:
    """Restore a snapshot both ways, and delete it."""
    snapshots = Snapshots(journal)
    for back in (False, True):
        restored = await snapshots.restore_snapshot(
            TENANT, snapshot.snapshot_id, rollback=back, request_id="", supplied={}
        )
        for one in restored:
            assert data_of(await journal.load(TENANT, one.key, View.FULL))["x"] == b"03"
            assert await history(journal, one.key) == HISTORY
    assert await snapshots.delete_snapshot(TENANT, snapshot.snapshot_id)


async def test_what_was_saved_before_there_was_search_is_found(
    journal: SqlJournal, tmp_path: Path
) -> None:
    index = IndexRows(journal)
    due = await index.due(100)
    assert sorted(str(one.key) for one in due) == ["t:01", "t:02", "t:03", "t:04", "t:05"]
    assert all(one.shown for one in due)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        times = database.execute("SELECT created_us - unindexed_us FROM checkpoints").fetchall()
    assert times == [(0,)] * 5
    assert await drain(journal, body=lambda one: f"checkpoint {one.key.checkpoint_id}") == 5
    assert await index.due(100) == []
    assert await indexed(journal) == await findable(journal)
    assert await look(journal, "checkpoint 02", limit=1) == [key("02")]
