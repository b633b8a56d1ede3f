"""A copy of a journal has every row, whatever the rows contain and in either database."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from tests.kit.databases import place
from tests.kit.drafts import TENANT, draft, key
from tests.kit.journal import Journal, rows_of, save
from tuskpoint_server.core.model import View
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.moving import copying, rows
from tuskpoint_server.journal.moving.copying import JournalCopy, UnequalError
from tuskpoint_server.journal.sql import full_text
from tuskpoint_server.journal.sql.backend import Backend
from tuskpoint_server.journal.sql.journal_metadata import backend_of, prepare, read_facts
from tuskpoint_server.journal.sql.schema import (
    checkpoints,
    contents,
    metadata,
    packs,
    threads,
    vectors,
)
from tuskpoint_server.journal.sql.sealing import SealedColumn
from tuskpoint_server.journal.sql.statements import Statement, insert_rows

# Words that rules other than the order of code points sort differently.
_WORDS = (
    "",
    " ",
    "A",
    "Z",
    "a",
    "ab",
    "a b",
    "z",
    "~",
    "é",
    "e\u0301",
    "\uffff",
    "\U0001f600",
    "1",
)
_ROWS = 30


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each table have several runs."""
    monkeypatch.setattr(rows, "RUN_ROWS", 7)
    monkeypatch.setattr(rows, "RUN_BYTES", 4000)
    monkeypatch.setattr(rows, "_TEXTS", 7)


def odd(column: Column[Any], chance: random.Random) -> object:
    """Return a value that a column allows."""
    if column.nullable and chance.random() < 0.3:
        return None
    if isinstance(column.type, Boolean):
        return chance.random() < 0.5
    if isinstance(column.type, LargeBinary | SealedColumn):
        return chance.choice([b"", b"\0", b"\xff", chance.randbytes(chance.randrange(900))])
    if isinstance(column.type, Text):
        return "".join(chance.choices(_WORDS, k=3))
    small = type(column.type) is Integer
    return chance.choice([0, 1, -1, 2**31 - 1 if small else 2**63 - 1, chance.randrange(1 << 30)])


def odd_rows(table: Table, chance: random.Random) -> list[dict[str, object]]:
    """Return rows with distinct keys."""
    unique = [[column.name for column in index.columns] for index in table.indexes if index.unique]
    unique.append([column.name for column in table.primary_key])
    seen: set[tuple[object, ...]] = set()
    distinct_rows = []
    for number in range(_ROWS):
        row = {column.name: odd(column, chance) for column in table.columns}
        if table.primary_key.columns.keys() == ["number"]:
            row["number"] = 3 * number + 1
        keys = {(n, *(row[name] for name in names)) for n, names in enumerate(unique)}
        if not keys & seen:
            seen |= keys
            distinct_rows.append(row)
    return distinct_rows


def fill(backend: Backend) -> None:
    """Fill all tables of a new journal."""
    chance = random.Random(1)
    prepare(backend, None)
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        for table in metadata.sorted_tables:
            Statement(insert_rows(table)).run_many(connection, odd_rows(table, chance))
        documents = [(n, n % 3, chance.choice(_WORDS), f"{n} words") for n in range(1, _ROWS)]
        full_text.add(connection, documents)


def no_progress(_table: str, _rows: int) -> None:
    """Ignore the progress."""


def copy(source: Backend, target: Backend, progress: copying.Progress = no_progress) -> JournalCopy:
    return copying.copy(source, target, progress)


def read(backend: Backend, work: Callable[[Connection], Any]) -> Any:
    with backend.engine.connect() as connection, backend.transaction(connection):
        return work(connection)


def change(backend: Backend, work: Callable[[Connection], object]) -> None:
    with backend.engine.connect() as connection, backend.transaction(connection, writes=True):
        work(connection)


def content(backend: Backend) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows that a copy must have."""
    every = rows.all_rows()
    rows_by_table = read(
        backend,
        lambda connection: {
            table.name: [row for run in table.runs(connection) for row in run] for table in every
        },
    )
    assert isinstance(rows_by_table, dict)
    return rows_by_table


@pytest.fixture
def source(tmp_path: Path) -> Backend:
    """A journal in SQLite with odd rows in every table."""
    made = backend_of(tmp_path / "source.db")
    fill(made)
    return made


@pytest.fixture
def target(tmp_path: Path, database: str) -> Backend:
    """An empty database of the tested kind."""
    return backend_of(place(tmp_path / "target.db"))


def test_a_copy_of_a_copy_is_equal_to_the_journal(
    tmp_path: Path, source: Backend, target: Backend
) -> None:
    back = backend_of(tmp_path / "back.db")
    there, again = copy(source, target), copy(target, back)
    assert there.tables == again.tables
    assert {table.name: table.rows for table in there.tables} == {
        name: len(table_rows) for name, table_rows in content(source).items()
    }
    assert min(table.rows for table in there.tables) > 10
    assert content(source) == content(target) == content(back)
    before, after = read(source, read_facts), read(back, read_facts)
    assert before["journal_id"] == after["journal_id"]
    assert int(after["generation"]) == int(before["generation"]) + 2
    assert {name for name in before if before[name] != after[name]} == {"generation"}


@pytest.mark.postgresql
def test_databases_that_end_idle_transactions_are_copied(
    tmp_path: Path, source: Backend, target: Backend
) -> None:
    """A copy reads one database in a transaction while it is busy with the other."""
    hasty = str(place(tmp_path / "hasty.db")) + "%20-cidle_in_transaction_session_timeout%3D1"
    there = copy(source, backend_of(hasty))
    assert copy(backend_of(hasty), target).tables == there.tables


def test_packs_on_their_way_are_left_out(source: Backend, target: Backend) -> None:
    count = select(func.count()).select_from(packs)
    assert copy(source, target).packs == read(
        source, lambda connection: connection.execute(count).scalar_one()
    )
    assert read(target, lambda connection: connection.execute(count).scalar_one()) == 0


@pytest.mark.parametrize("table", [checkpoints, vectors], ids=str)
def test_a_copy_gives_no_number_twice(source: Backend, target: Backend, table: Table) -> None:
    newest = select(table).order_by(table.c.number.desc()).limit(1)
    row = read(source, lambda connection: dict(connection.execute(newest).mappings().one()))
    greatest = row.pop("number")
    change(
        source,
        lambda connection: connection.execute(delete(table).where(table.c.number == greatest)),
    )
    copy(source, target)
    new = insert(table).values(row).returning(table.c.number)
    numbers: list[int] = []
    change(target, lambda connection: numbers.append(connection.execute(new).scalar_one()))
    assert numbers[0] > greatest


class InterruptedCopy(Exception):
    """Ends a copy as if the process had been killed."""


def interrupt(source: Backend, target: Backend) -> dict[str, int]:
    """Start a copy and end it in the middle of a table; return the copied rows per table."""
    copied: dict[str, int] = {}

    def end(table: str, done: int) -> None:
        copied[table] = done
        if table == "contents" and done > 10:
            raise InterruptedCopy

    with pytest.raises(InterruptedCopy):
        copy(source, target, end)
    return copied


def test_an_interrupted_copy_goes_on_where_it_stopped(source: Backend, target: Backend) -> None:
    before = interrupt(source, target)
    assert len(before) > 2
    with pytest.raises(RuntimeError, match="was not filled to the end"):
        prepare(target, None)
    after: dict[str, int] = {}
    done = copy(source, target, after.__setitem__)
    assert not done.anew
    total = {table.name: table.rows for table in done.tables}
    assert 0 < before["contents"] < total["contents"]
    assert {name: before.get(name, 0) + after.get(name, 0) for name in total} == total
    assert content(target) == content(source)


@pytest.mark.parametrize("changed", [{"size": 5}, {"number": 1000}], ids=str)
def test_a_source_that_changed_after_an_interruption_is_copied_anew(
    source: Backend, target: Backend, changed: dict[str, int]
) -> None:
    """A row of the source may even collide with a row that was copied before."""
    copied = interrupt(source, target)
    assert "changes" in copied
    first = update(contents).where(contents.c.number == 1).values(changed)
    change(source, lambda connection: connection.execute(first))
    assert copy(source, target).anew
    assert content(target) == content(source)


def test_a_copy_that_differs_is_not_finished(
    source: Backend, target: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = rows.TableRows.write

    def damage(self: rows.TableRows, connection: Connection, batch: Sequence[rows.Row]) -> None:
        write(self, connection, batch[1:] if self.name == "uses" else batch)

    monkeypatch.setattr(rows.TableRows, "write", damage)
    with pytest.raises(UnequalError, match="table uses of the copy differs"):
        copy(source, target)
    with pytest.raises(RuntimeError, match="was not filled to the end"):
        prepare(target, None)


def occupy(target: Backend, kind: str) -> None:
    if kind == "another journal":
        prepare(target, None)
    elif kind == "a recovery":
        prepare(target, 2)
    else:
        change(
            target, lambda connection: connection.exec_driver_sql("CREATE TABLE notes (text TEXT)")
        )


@pytest.mark.parametrize("kind", ["another journal", "a recovery", "another program's tables"])
def test_a_target_with_anything_else_is_refused(
    source: Backend, target: Backend, kind: str
) -> None:
    occupy(target, kind)
    with pytest.raises(RuntimeError, match="the target cannot be used: it is"):
        copy(source, target)


@pytest.mark.parametrize("kind", ["", "a recovery", "another program's tables"])
def test_a_source_that_is_no_complete_journal_is_refused(
    tmp_path: Path, target: Backend, kind: str
) -> None:
    if kind:
        occupy(target, kind)
    with pytest.raises(RuntimeError, match="the source cannot be used: "):
        copy(target, backend_of(tmp_path / "empty.db"))


async def test_a_journal_goes_on_in_its_copy(tmp_path: Path, target: Backend) -> None:
    """New threads and families get numbers that were never used."""
    source = await Database.open(tmp_path / "journal.db")
    journal = Journal(source)
    await save(journal, draft("a", channels={"x": b"x"}), draft("b", "a"))
    await save(journal, *(draft("1", channels={"x": b"x"}, thread_id=f"{n}") for n in range(5)))
    rows_before = await rows_of(journal, threads, "number", "family")
    await source.close()
    copy(backend_of(tmp_path / "journal.db"), target)
    numbers: list[int] = []
    change(target, lambda connection: numbers.append(next(target.numbers(connection))))
    assert numbers[0] > max(number for row in rows_before for number in row)
    opened = await Database.open(place(tmp_path / "target.db"))
    try:
        moved = Journal(opened)
        await save(moved, draft("c", "b", {"x": b"y"}), draft("1", thread_id="new"))
        for name, thread in (("a", "t"), ("b", "t"), ("c", "t"), ("1", "new"), ("1", "0")):
            assert await moved.load(TENANT, key(name, thread), View.FULL) is not None
    finally:
        await opened.close()
