"""A checkpoint that was just saved is loaded from memory, and equals the database's checkpoint."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.drafts import TENANT, Reference, channel, draft, key, write
from tests.kit.heads import check_heads, in_database, in_memory, small
from tests.kit.journal import Clock, Journal, opened, save, unbind
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import HeldValue, View
from tuskpoint_server.core.state import RawCheckpoint
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.database import heads, writer
from tuskpoint_server.journal.database.heads import HEAD_BYTES
from tuskpoint_server.journal.rebinding import bind_rows
from tuskpoint_server.journal.sql.statements import SqlRow, Statement

PLACES = [("t", ""), ("t", "inner")]
PACKED = b"a value that is stored compressed " * 100


async def head_of(journal: Journal, checkpoint_id: str = "") -> RawCheckpoint | None:
    return await in_memory(journal.database, TENANT, key(checkpoint_id, "t"))


async def kept(journal: Journal) -> list[str]:
    """Return the IDs of the heads in memory, which must equal the heads in the database."""
    head_keys = await check_heads(journal.database, TENANT, PLACES)
    return [head_key.checkpoint_id for head_key in head_keys]


@pytest.fixture(autouse=True)
def still(journal: Journal) -> None:
    """Keep heads from growing too old while a slow machine runs a test."""
    journal.database.heads.now_s = lambda: 0.0


async def test_a_save_its_writes_and_its_label_are_in_memory(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"), channel("y", PACKED))))
    assert await kept(journal) == ["a"]
    inherited = (channel("x", b"2", 2), channel("y", Reference.INHERIT))
    await save(journal, draft("b", "a", inherited))
    assert await kept(journal) == ["b"]
    drafts = [write("x", b"3", task="n"), write("x", PACKED + b"4", task="m")]
    await journal.save_writes(TENANT, key("b", "t"), drafts)
    assert await kept(journal) == ["b"]
    await journal.set_label(TENANT, key("", "t"), "named")
    assert await kept(journal) == ["b"]
    head = await head_of(journal)
    assert head is not None
    assert head.entry.label == "named"
    assert [write.value.data for write in head.writes] == [PACKED + b"4", b"3"]
    assert await head_of(journal, "a") is None


async def test_it_goes_with_a_commit_of_anything_else(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    await journal.database.transact(lambda _: None)
    assert await head_of(journal) is None
    await save(journal, draft("b", "a", (channel("x", Reference.INHERIT),)))
    assert await head_of(journal) is None  # no call has read the value since
    loaded = await small(journal, TENANT, key("", "t"))
    assert loaded == await in_database(journal.database, TENANT, key("b", "t"))
    assert await head_of(journal) == loaded


async def test_it_goes_after_a_second(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    journal.database.heads.now_s = lambda: 1.0
    assert await kept(journal) == ["a"]
    journal.database.heads.now_s = lambda: 1.1
    assert await kept(journal) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda journal: journal.removal.delete_thread(TENANT, "t"),
        lambda journal: journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST),
        lambda journal: journal.lineage.copy_thread(TENANT, "t", "copy", ""),
    ],
    ids=["delete", "prune", "copy"],
)
async def test_removing_and_copying_leave_nothing(
    journal: Journal, change: Callable[[Journal], Awaitable[object]]
) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)), draft("b", "a"))
    await change(journal)
    assert await head_of(journal) is None
    copied = await in_database(journal.database, TENANT, key("", "copy"))
    assert await in_memory(journal.database, TENANT, key("", "copy")) in (None, copied)


async def test_what_is_not_the_latest_is_not_kept(journal: Journal) -> None:
    await save(journal, draft("b", "", (channel("x", b"1"),)))
    await save(journal, draft("a", "", (channel("x", b"2"),)))
    assert await kept(journal) == []
    await save(journal, draft("a", "", (channel("x", b"3"),), ns="inner"))
    assert await kept(journal) == ["a"]


async def test_what_is_large_is_not_kept(journal: Journal) -> None:
    half = random.Random(7).randbytes(HEAD_BYTES // 2)
    await save(journal, draft("a", "", (channel("x", half),)))
    assert await kept(journal) == ["a"]
    await save(journal, draft("b", "a", (channel("x", half), channel("y", half[::-1]))))
    assert await kept(journal) == []
    assert await small(journal, TENANT, key("", "t")) is None


async def test_what_is_large_is_loaded_from_memory_by_who_holds_it(journal: Journal) -> None:
    large = random.Random(8).randbytes(HEAD_BYTES)
    await save(journal, draft("a", "", (channel("x", large), channel("y", b"1"))))
    await journal.save_writes(TENANT, key("a", "t"), [write("x", large, task="n")])
    in_whole = await journal.load(TENANT, key("", "t"), View.FULL)
    assert in_whole is not None
    held = frozenset([in_whole.writes[0].digest])
    head = await in_memory(journal.database, TENANT, key("", "t"), held)
    assert head is not None
    assert (len(head.values), head.writes[0].value) == (1, HeldValue(len(large)))
    assert head.entry == in_whole.entry
    assert await small(journal, TENANT, key("a", "t"), held) == head
    journal.database.heads.clear()
    stored = await journal.load(TENANT, key("", "t"), View.FULL, held)
    assert stored is not None
    assert stored.writes == head.writes
    assert await head_of(journal) is None


async def test_loads_alone_leave_nothing_in_memory(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    await journal.database.transact(lambda _: None)
    for _ in range(3):
        loaded = await small(journal, TENANT, key("", "t"))
        assert loaded is not None
    kept = journal.database.heads
    assert (kept._heads, kept._values, kept._size) == ({}, {}, 0)


async def test_memory_is_bounded_while_nothing_but_saves_is_committed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_ALL_BYTES", bound := 50_000)
    sizes = []
    for number in range(100):
        value = (channel("x", b"%d" % number * 100),) if number % 2 else ()
        await save(journal, draft(f"{number:03}", "", value, thread_id=f"t{number}"))
        sizes.append(journal.database.heads._size)
    assert max(sizes) <= bound
    assert sum(after < before for before, after in pairwise(sizes)) > 1
    assert len(journal.database.heads._heads) < 50
    places = [(f"t{number}", "") for number in range(100)]
    assert await check_heads(journal.database, TENANT, places)


async def test_what_the_database_shows_is_not_older_in_memory(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a commit and its answer, loads do not return the state before the commit."""
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    committed, seen = threading.Event(), threading.Event()

    def pause(name: str) -> None:
        if name == "journal.after_commit":
            committed.set()
            assert seen.wait(60)

    monkeypatch.setattr(writer, "failpoint", pause)
    saving = journal.save_writes(TENANT, key("a", "t"), [write("x", b"2")])
    assert await asyncio.to_thread(committed.wait, 60)
    stored = await in_database(journal.database, TENANT, key("", "t"))
    loaded = await small(journal, TENANT, key("", "t"))
    seen.set()
    assert stored == loaded
    assert stored is not None
    assert stored.entry.seq == (await saving).seq
    assert await kept(journal) == ["a"]


async def test_a_commit_that_fails_leaves_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))

    def fail(name: str) -> None:
        if name == "journal.before_commit":
            raise OSError("the disk is gone")

    monkeypatch.setattr(writer, "failpoint", fail)
    with pytest.raises(Refusal):
        await journal.save_writes(TENANT, key("a", "t"), [write("x", b"2")])
    monkeypatch.undo()
    head = await head_of(journal)
    assert head is None or not head.writes
    await journal.save_writes(TENANT, key("a", "t"), [write("x", b"3")])
    assert await kept(journal) == ["a"]


@pytest.mark.postgresql  # no other server changes a journal in SQLite
@pytest.mark.parametrize(
    "change",
    [
        lambda other: save(other, draft("b", "a", (channel("x", b"2"),))),
        lambda other: save(other, draft("a", "", (channel("x", b"2"),))),
        lambda other: save(other, draft("0", "", agent_id="another")),
        lambda other: other.save_writes(TENANT, key("a", "t"), [write("x", b"2")]),
        lambda other: other.set_label(TENANT, key("a", "t"), "named"),
        lambda other: other.removal.delete_thread(TENANT, "t"),
    ],
    ids=["save", "replace", "agent", "writes", "label", "delete"],
)
async def test_what_another_server_changes_is_read(
    journal: Journal, tmp_path: Path, clock: Clock, change: Callable[[Journal], Awaitable[object]]
) -> None:
    async with opened(tmp_path, clock) as other:
        await save(journal, draft("a", "", (channel("x", b"1"),)))
        assert await kept(journal) == ["a"]
        await change(other)
        stored = await in_database(other.database, TENANT, key("", "t"))
        assert await small(journal, TENANT, key("", "t")) == stored
        assert not journal.database.heads.has((TENANT, "t"))


@pytest.mark.postgresql  # no other server changes a journal in SQLite
async def test_one_statement_shows_which_of_many_heads_are_current(
    journal: Journal, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(20)]
    for name in names:
        await save(journal, draft("a", "", (channel("x", name.encode()),), thread_id=name))
    listed: list[set[object]] = []
    listed_rows = journal.database.listed_rows

    async def counted(
        statement: Statement, items: Iterable[object], **values: object
    ) -> list[SqlRow]:
        listed.append(set(items))
        return await listed_rows(statement, items, **values)

    monkeypatch.setattr(journal.database, "listed_rows", counted)
    async with opened(tmp_path, clock) as other:
        await other.set_label(TENANT, key("a", "t7"), "named")
        loads = (journal.load_batched(TENANT, key("", name)) for name in names)
        for name, loaded in zip(names, await asyncio.gather(*loads), strict=True):
            assert loaded is not None
            assert loaded == await in_database(other.database, TENANT, key("a", name))
            assert loaded.entry.label == ("named" if name == "t7" else "")
    assert set().union(*listed) == set(names)
    assert len(listed) <= 2


@pytest.mark.postgresql  # SQLite has one server, which binds all rows before it serves
async def test_rows_that_are_not_all_bound_prove_nothing(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    await unbind(journal.database)
    await save(journal, draft("b", "", (channel("x", b"2"),)))
    assert await kept(journal) == []
    assert (await bind_rows(journal.database)).is_complete
    await save(journal, draft("c", "", (channel("x", b"3"),)))
    assert await kept(journal) == ["c"]


@pytest.mark.postgresql  # SQLite reads in the event loop
async def test_a_load_that_comes_while_the_others_end_is_answered(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load does not wait for a reader that has looked for requests for the last time."""
    gate, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def query(_: object) -> list[None]:
        waiting.release()
        await gate.wait()
        return [None]

    monkeypatch.setattr(journal.database, "query", query)
    loads = [
        asyncio.create_task(journal.load_batched(tenant, key("a"))) for tenant in ("one", "other")
    ]
    for _ in loads:
        await waiting.acquire()
    gate.set()
    last = asyncio.create_task(journal.load_batched(TENANT, key("a")))
    async with asyncio.timeout(60):
        assert await asyncio.gather(*loads, last) == [None, None, None]


@pytest.mark.postgresql  # no other server changes a journal in SQLite
async def test_writes_of_another_server_are_not_left_out(
    journal: Journal, tmp_path: Path, clock: Clock
) -> None:
    """A label is set without a read of the writes of its checkpoint."""
    async with opened(tmp_path, clock) as other:
        await save(journal, draft("a", "", (channel("x", b"1"),)))
        await other.save_writes(TENANT, key("a", "t"), [write("x", b"2")])
        await journal.set_label(TENANT, key("a", "t"), "named")
        loaded = await small(journal, TENANT, key("", "t"))
        assert loaded == await in_database(other.database, TENANT, key("", "t"))
        assert loaded is not None
        assert [write.value.data for write in loaded.writes] == [b"2"]
