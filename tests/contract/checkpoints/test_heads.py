"""A checkpoint that was just saved is loaded from memory, and is what the database has of it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tests.kit.drafts import TENANT, Reference, channel, draft, key, write
from tests.kit.heads import check_heads, in_database
from tests.kit.journal import Journal, save
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import HeldValue, View
from tuskpoint_server.core.state import RawCheckpoint
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.journal.database import heads, writer
from tuskpoint_server.journal.database.heads import HEAD_BYTES
from tuskpoint_server.journal.values.load_head import load_head

PLACES = [("t", ""), ("t", "inner")]
PACKED = b"a value that is stored compressed " * 100


def head_of(journal: Journal, checkpoint_id: str = "", ns: str = "") -> RawCheckpoint | None:
    return load_head(journal.database.heads, TENANT, key(checkpoint_id, "t", ns))


async def kept(journal: Journal) -> list[str]:
    """Return the IDs of what is in memory, which must be what the database has."""
    head_keys = await check_heads(journal.database, TENANT, PLACES)
    return [head_key.checkpoint_id for head_key in head_keys]


@pytest.fixture(autouse=True)
def still(journal: Journal) -> None:
    """Let no head grow too old while a slow machine runs a test."""
    journal.database.heads.now_s = lambda: 0.0


async def test_only_what_no_other_server_changes_is_in_memory(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    assert (head_of(journal) is None) == journal.database.is_shared


@pytest.mark.sqlite  # a shared journal has nothing in memory
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
    head = head_of(journal)
    assert head is not None
    assert head.entry.label == "named"
    assert [write.value.data for write in head.writes] == [PACKED + b"4", b"3"]
    assert head_of(journal, "a") is None


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_it_goes_with_a_commit_of_anything_else(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    await journal.database.transact(lambda _: None)
    assert head_of(journal) is None
    await save(journal, draft("b", "a", (channel("x", Reference.INHERIT),)))
    assert head_of(journal) is None  # nobody has brought the value since
    [loaded] = journal.load_inline(TENANT, [key("", "t")])
    assert loaded == await in_database(journal.database, TENANT, key("b", "t"))
    assert head_of(journal) == loaded


@pytest.mark.sqlite  # a shared journal has nothing in memory
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
    assert head_of(journal) is None
    copied = await in_database(journal.database, TENANT, key("", "copy"))
    assert load_head(journal.database.heads, TENANT, key("", "copy")) in (None, copied)


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_what_is_not_the_latest_is_not_kept(journal: Journal) -> None:
    await save(journal, draft("b", "", (channel("x", b"1"),)))
    await save(journal, draft("a", "", (channel("x", b"2"),)))
    assert await kept(journal) == []
    await save(journal, draft("a", "", (channel("x", b"3"),), ns="inner"))
    assert await kept(journal) == ["a"]


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_what_is_large_is_not_kept(journal: Journal) -> None:
    half = random.Random(7).randbytes(HEAD_BYTES // 2)
    await save(journal, draft("a", "", (channel("x", half),)))
    assert await kept(journal) == ["a"]
    await save(journal, draft("b", "a", (channel("x", half), channel("y", half[::-1]))))
    assert await kept(journal) == []
    assert journal.load_inline(TENANT, [key("", "t")]) == [None]


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_what_is_large_is_loaded_from_memory_by_who_holds_it(journal: Journal) -> None:
    large = random.Random(8).randbytes(HEAD_BYTES)
    await save(journal, draft("a", "", (channel("x", large), channel("y", b"1"))))
    await journal.save_writes(TENANT, key("a", "t"), [write("x", large, task="n")])
    in_whole = await journal.load(TENANT, key("", "t"), View.FULL)
    assert in_whole is not None
    held = frozenset([in_whole.writes[0].digest])
    head = load_head(journal.database.heads, TENANT, key("", "t"), held)
    assert head is not None
    assert (len(head.values), head.writes[0].value) == (1, HeldValue(len(large)))
    assert head.entry == in_whole.entry
    [read] = journal.load_inline(TENANT, [key("a", "t")], [held])
    assert read == head
    journal.database.heads.clear()
    stored = await journal.load(TENANT, key("", "t"), View.FULL, held)
    assert stored is not None
    assert stored.writes == head.writes
    assert head_of(journal) is None


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_loads_alone_leave_nothing_in_memory(journal: Journal) -> None:
    await save(journal, draft("a", "", (channel("x", b"1"),)))
    await journal.database.transact(lambda _: None)
    for _ in range(3):
        [loaded] = journal.load_inline(TENANT, [key("", "t")])
        assert loaded is not None
    kept = journal.database.heads
    assert (kept._heads, kept._values, kept._size) == ({}, {}, 0)


@pytest.mark.sqlite  # a shared journal has nothing in memory
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


@pytest.mark.sqlite  # a shared journal has nothing in memory
async def test_what_the_database_shows_is_not_older_in_memory(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a commit and its answer, loads do not answer what was before."""
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
    [loaded] = journal.load_inline(TENANT, [key("", "t")])
    seen.set()
    assert stored == loaded
    assert stored is not None
    assert stored.entry.seq == (await saving).seq
    assert await kept(journal) == ["a"]


@pytest.mark.sqlite  # a shared journal has nothing in memory
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
    head = head_of(journal)
    assert head is None or not head.writes
    await journal.save_writes(TENANT, key("a", "t"), [write("x", b"3")])
    assert await kept(journal) == ["a"]


@pytest.mark.postgresql  # SQLite reads in the event loop
async def test_a_load_that_comes_while_the_others_end_is_answered(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a reader that has looked for requests for the last time."""
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
