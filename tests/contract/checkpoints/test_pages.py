"""Listings, replays and lists of threads return complete pages, and name certified blobs."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.kit.drafts import TENANT, data_of, draft, key, write, written
from tests.kit.journal import (
    Clock,
    Journal,
    insert_gap,
    insert_segment,
    row_of,
    save,
    thread_of,
)
from tuskpoint_server.core.model import BlobLocation, CheckpointEntry, CheckpointQuery, View
from tuskpoint_server.core.threads import SNAPSHOTS, PruneStrategy, ThreadState
from tuskpoint_server.features.checkpoints.listed_threads import MAX_HEADS, ThreadQuery
from tuskpoint_server.features.lineage.first_answers import request
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.values import listing
from tuskpoint_server.journal.values.listing import ListPosition

Place = tuple[str, str, str]


async def listed(
    journal: Journal,
    query: CheckpointQuery,
    *,
    max_count: int = 1000,
    max_bytes: int = 10**9,
    view: View = View.ENTRY,
) -> list[Place]:
    """Return (ID, thread, namespace) of all pages."""
    places: list[Place] = []
    position: ListPosition | None = None
    while True:
        page = await journal.read_page(
            TENANT, query, view, position, max_count=max_count, max_bytes=max_bytes
        )
        assert len(page.checkpoints) <= max_count
        for checkpoint in page.checkpoints:
            k = checkpoint.entry.key
            places.append((k.checkpoint_id, k.thread_id, k.checkpoint_ns))
        if page.next is None:
            return places
        position = page.next


@pytest.fixture
async def several(journal: Journal) -> Journal:
    for thread_id, ns, checkpoint_id in itertools.product("tu", ("", "inner"), "abc"):
        await save(
            journal,
            draft(
                checkpoint_id,
                "",
                {"x": checkpoint_id.encode()},
                thread_id=thread_id,
                ns=ns,
                metadata={"step": ord(checkpoint_id) - ord("a"), "source": ns or None},
                label="named" if checkpoint_id == "b" else "",
            ),
        )
    return journal


ORDERED = [(c, t, n) for c, t, n in itertools.product("cba", "tu", ("", "inner"))]


@pytest.mark.parametrize("max_count", [1, 2, 5, 12, 1000])
async def test_pages_together_are_the_listing(several: Journal, max_count: int) -> None:
    assert await listed(several, CheckpointQuery(), max_count=max_count) == ORDERED


async def test_scanning_in_stretches_changes_nothing(
    several: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCANNED_PER_PAGE", 2)
    query = CheckpointQuery(filter={"step": 0})
    first = await several.read_page(TENANT, query, View.ENTRY, None, max_count=9, max_bytes=10**9)
    assert first.checkpoints == ()
    assert first.next is not None
    assert await listed(several, query) == ORDERED[8:]
    assert await listed(several, CheckpointQuery()) == ORDERED


@pytest.mark.parametrize(
    ("query", "keep"),
    [
        (CheckpointQuery(thread_id="u"), lambda p: p[1] == "u"),
        (CheckpointQuery(checkpoint_ns=""), lambda p: p[2] == ""),
        (CheckpointQuery(checkpoint_ns="inner"), lambda p: p[2] == "inner"),
        (CheckpointQuery(checkpoint_id="b"), lambda p: p[0] == "b"),
        (CheckpointQuery(before="c"), lambda p: p[0] < "c"),
        (CheckpointQuery(label="named"), lambda p: p[0] == "b"),
        (CheckpointQuery(filter={"step": 1}), lambda p: p[0] == "b"),
        (
            CheckpointQuery(filter={"step": 1.0, "source": "inner"}),
            lambda p: p[::2] == ("b", "inner"),
        ),
        (CheckpointQuery(filter={"source": None}), lambda p: p[2] == ""),
        (CheckpointQuery(filter={"missing": None}), lambda p: False),
        (CheckpointQuery(thread_id=""), lambda p: False),
        (CheckpointQuery("t", "", before="c", label="named"), lambda p: p == ("b", "t", "")),
    ],
)
async def test_each_question_narrows_the_listing(
    several: Journal, query: CheckpointQuery, keep: Callable[[Place], bool]
) -> None:
    expected = [place for place in ORDERED if keep(place)]
    assert await listed(several, query) == expected
    assert await listed(several, query, max_count=1) == expected


async def test_a_page_ends_when_its_bytes_are_spent(journal: Journal) -> None:
    for n in range(4):
        await save(journal, draft(str(n), "", {"x": bytes([n]) * 1000}))

    async def page_sizes(max_bytes: int) -> list[int]:
        sizes, position = [], None
        while True:
            page = await journal.read_page(
                TENANT, CheckpointQuery(), View.FULL, position, max_count=9, max_bytes=max_bytes
            )
            sizes.append(len(page.checkpoints))
            if page.next is None:
                return sizes
            position = page.next

    assert await page_sizes(1) == [1, 1, 1, 1]
    assert await page_sizes(1500) == [2, 2]
    assert await page_sizes(10**6) == [4]


async def test_views_of_a_listing(journal: Journal) -> None:
    await save(journal, draft("a", "", {"x": b"1"}, writes=(write("x", b"w"),)))
    for view in (View.FULL, View.JSON):
        page = await journal.read_page(
            TENANT, CheckpointQuery(), view, None, max_count=9, max_bytes=99
        )
        assert data_of(page.checkpoints[0]) == {"x": b"1"}
        assert written(page.checkpoints[0]) == [("", "task", 0, "x", b"w")]
    page = await journal.read_page(
        TENANT, CheckpointQuery(), View.ENTRY, None, max_count=9, max_bytes=99
    )
    assert page.checkpoints[0].state is None
    assert page.checkpoints[0].writes == ()


async def test_internal_threads_are_not_listed(several: Journal) -> None:
    hidden = SNAPSHOTS + "0"
    await save(several, draft("d", thread_id=hidden, label="named"))
    assert await listed(several, CheckpointQuery()) == ORDERED
    assert len(await listed(several, CheckpointQuery(label="named"))) == 4
    assert await listed(several, CheckpointQuery(thread_id=hidden)) == [("d", hidden, "")]
    threads = await several.list_threads(TENANT, ThreadQuery(), "", 9)
    assert [thread.thread_id for thread in threads] == ["t", "u"]


async def test_nothing_of_another_tenant_is_listed(several: Journal) -> None:
    await several.save_checkpoint("another", draft("d", label="named"))
    assert await listed(several, CheckpointQuery()) == ORDERED
    for query in (
        CheckpointQuery(),
        CheckpointQuery(thread_id="t"),
        CheckpointQuery(label="named"),
    ):
        page = await several.read_page(
            "another", query, View.FULL, None, max_count=9, max_bytes=10**9
        )
        assert [checkpoint.entry.key for checkpoint in page.checkpoints] == [key("d")]


# --- replay --------------------------------------------------------------------------------


async def replayed(
    journal: Journal, query: CheckpointQuery, *, max_count: int = 1000, max_bytes: int = 10**9
) -> list[tuple[str, str, bytes]]:
    """Return (ID, namespace, data) of all pages."""
    rows: list[tuple[str, str, bytes]] = []
    position: ListPosition | None = None
    while True:
        page = await journal.read_page(
            TENANT, query, View.FULL, position, max_count=max_count, max_bytes=max_bytes
        )
        rows += (
            (
                checkpoint.entry.key.checkpoint_id,
                checkpoint.entry.key.checkpoint_ns,
                data_of(checkpoint)["x"],
            )
            for checkpoint in page.checkpoints
        )
        if page.next is None:
            return rows
        position = page.next


@pytest.mark.parametrize("max_count", [1, 2, 1000])
@pytest.mark.parametrize("max_bytes", [1, 10**9])
async def test_a_replay_goes_from_the_least_id_to_the_greatest(
    several: Journal, max_count: int, max_bytes: int
) -> None:
    whole = [(c, ns, c.encode()) for c, ns in itertools.product("abc", ("", "inner"))]
    for query, expected in (
        (CheckpointQuery("t"), whole),
        (CheckpointQuery("t", ""), whole[::2]),
        (CheckpointQuery("t", "inner"), whole[1::2]),
        (CheckpointQuery("t", first="b"), whole[2:]),
        (CheckpointQuery("t", last="b"), whole[:4]),
        (CheckpointQuery("t", first="aa", last="bb"), whole[2:4]),
        (CheckpointQuery("never was"), []),
    ):
        query = replace(query, replayed=True)
        rows = await replayed(several, query, max_count=max_count, max_bytes=max_bytes)
        assert rows == expected


# --- threads -------------------------------------------------------------------------------


async def test_threads_are_listed_by_id_in_pages(journal: Journal) -> None:
    for n, name in enumerate("dbca"):
        await save(
            journal,
            draft(
                "1",
                thread_id=name,
                agent_id="even" if n % 2 == 0 else "odd",
                label="named" if name in "ab" else "",
                writes=(write("__error__", b"x", idx=-1),) if name == "c" else (),
            ),
        )

    async def names(query: ThreadQuery, after: str = "", limit: int = 9) -> str:
        threads = await journal.list_threads(TENANT, query, after, limit)
        return "".join(thread.thread_id for thread in threads)

    assert await names(ThreadQuery()) == "abcd"
    assert await names(ThreadQuery(), limit=2) == "ab"
    assert await names(ThreadQuery(), after="b") == "cd"
    assert await names(ThreadQuery(agent_id="even")) == "cd"
    assert await names(ThreadQuery(label="named")) == "ab"
    assert await names(ThreadQuery(state=ThreadState.FAILED)) == "c"
    assert await names(ThreadQuery(state=ThreadState.IDLE, agent_id="odd", label="named")) == "ab"
    assert await journal.list_threads("another tenant", ThreadQuery(), "", 9) == []


@pytest.mark.parametrize("size", [1, 2, 3, 9])
async def test_threads_are_listed_by_their_last_change_in_pages(
    journal: Journal, clock: Clock, size: int
) -> None:
    begun = clock.now_us
    for second, names in enumerate(("fb", "e", "dac")):
        clock.now_us = begun + second * 1_000_000
        await save(journal, *(draft("1", thread_id=name) for name in names))

    async def listed(since: int | None = None, until: int | None = None) -> str:
        since_us, until_us = (
            None if second is None else begun + second * 1_000_000 for second in (since, until)
        )
        query = ThreadQuery(since_us=since_us, until_us=until_us, latest_first=True)
        threads = await journal.list_threads(TENANT, query, (), size)
        for _ in range(6):
            if threads:
                place = (threads[-1].updated_us, threads[-1].thread_id)
                threads += await journal.list_threads(TENANT, query, place, size)
        return "".join(thread.thread_id for thread in threads)

    assert await listed() == "acdebf"
    assert await listed(since=1) == "acde"
    assert await listed(until=1) == "bf"
    assert await listed(since=1, until=2) == "e"
    assert await listed(since=3) == await listed(until=0) == ""


async def test_a_thread_that_changes_between_pages_may_be_missed(
    journal: Journal, clock: Clock
) -> None:
    for name in "abcd":
        clock.advance(1)
        await save(journal, draft("1", thread_id=name))
    latest = ThreadQuery(latest_first=True)
    first = await journal.list_threads(TENANT, latest, (), 2)
    clock.advance(1)
    await save(journal, draft("2", thread_id="d"), draft("2", thread_id="a"))
    place = (first[-1].updated_us, first[-1].thread_id)
    rest = await journal.list_threads(TENANT, latest, place, 2)
    assert [thread.thread_id for thread in (*first, *rest)] == ["d", "c", "b"]


async def test_every_change_makes_its_thread_the_latest(
    journal: Journal, lineage: LineageRows, removal: RemovalRows, clock: Clock
) -> None:
    handoff_request = request(TENANT, "", "CreateHandoff")
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: journal.save_checkpoint(TENANT, draft("2", "1")),
        lambda: journal.save_writes(TENANT, key("2"), [write("x", b"1")]),
        lambda: journal.set_label(TENANT, key("1"), "good"),
        lambda: removal.set_retention(TENANT, "t", 60),
        lambda: removal.set_searchable(TENANT, "t", False),
        lambda: journal.handoffs.keep_handoff(
            handoff_request, key("2"), BlobLocation(bytes(32), 1, "blob"), None, b"", content_seq=2
        ),
        lambda: removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST),
        lambda: lineage.rollback(TENANT, key("2"), "", None, {}),
    ]
    await save(journal, draft("1"))
    for change in changes:
        clock.advance(1)
        await save(journal, draft("1", thread_id="other"))
        clock.advance(1)
        await change()
        threads = await journal.list_threads(TENANT, ThreadQuery(latest_first=True), (), 9)
        assert [thread.thread_id for thread in threads] == ["t", "other"]
        assert threads[0].updated_us == clock.now_us == (await thread_of(journal)).updated_us


async def test_a_thread_names_its_heads_up_to_a_bound(journal: Journal) -> None:
    namespaces = [f"n{number:04}" for number in range(MAX_HEADS + 1)]
    await asyncio.gather(*(journal.save_checkpoint(TENANT, draft("a", ns=ns)) for ns in namespaces))
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.heads == dict.fromkeys(namespaces[:MAX_HEADS], "a")
    assert detail.thread.checkpoint_count == MAX_HEADS + 1


# --- certified checkpoints -----------------------------------------------------------------


async def certify(journal: Journal, name: str, first: int, last: int) -> BlobLocation:
    """Record a segment for a range of the log of thread `t`; return its location."""
    location = BlobLocation(name.encode().ljust(32, b"\0"), 7, "blob", name)

    def record(batch: UnitOfWork) -> None:
        log = batch.find(TENANT, "t")
        assert log is not None
        log.row.certified_seq = last
        batch.store(log)
        insert_segment(
            batch.connection,
            log.row.number,
            location.sha256,
            size=location.size,
            identifier=location.identifier,
            incarnation=1,
            first_seq=first,
            last_seq=last,
        )

    await journal.database.transact(record)
    return location


async def entries(journal: Journal) -> dict[str, CheckpointEntry]:
    """Return the entries of the root namespace, which must be equal in all kinds of reads."""
    page = await journal.read_page(
        TENANT, CheckpointQuery(), View.ENTRY, None, max_count=99, max_bytes=10**9
    )
    full = await journal.read_page(
        TENANT, CheckpointQuery(), View.FULL, None, max_count=99, max_bytes=10**9
    )
    page_entries = [checkpoint.entry for checkpoint in page.checkpoints]
    assert [checkpoint.entry for checkpoint in full.checkpoints] == page_entries
    for entry in page_entries:
        for view in (View.ENTRY, View.FULL):
            loaded = await journal.load(TENANT, entry.key, view)
            assert loaded is not None
            assert loaded.entry == entry
    return {entry.key.checkpoint_id: entry for entry in page_entries}


async def certification(journal: Journal) -> dict[str, tuple[bool, tuple[BlobLocation, ...]]]:
    """Return whether each checkpoint is certified, and its locations."""
    return {
        name: (entry.certified, entry.segments) for name, entry in (await entries(journal)).items()
    }


async def test_certified_checkpoints_name_their_blobs(journal: Journal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"), draft("d", "c"))
    assert await certification(journal) == dict.fromkeys("abcd", (False, ()))
    first = await certify(journal, "one", 1, 2)
    second = await certify(journal, "two", 3, 3)
    await journal.save_writes(TENANT, key("a"), [write("x", b"late")])
    assert await certification(journal) == {
        "a": (False, (first,)),
        "b": (True, (first,)),
        "c": (True, (second,)),
        "d": (False, ()),
    }
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.checkpoint_count, detail.uncertified_count) == (4, 2)
    third = await certify(journal, "three", 4, 5)
    assert await certification(journal) == {
        "a": (True, (first, third)),
        "b": (True, (first,)),
        "c": (True, (second,)),
        "d": (True, (third,)),
    }
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.uncertified_count == 0
    await save(journal, draft("b", "a", {"x": b"anew"}))
    assert (await certification(journal))["b"] == (False, ())


async def test_a_gap_is_not_certified(journal: Journal) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    segment = await certify(journal, "one", 1, 2)
    number = (await row_of(journal)).number
    await journal.database.transact(lambda batch: insert_gap(batch.connection, number, "a"))
    assert await certification(journal) == {"a": (False, ()), "b": (True, (segment,))}


async def test_the_journal_reports_its_size(journal: Journal) -> None:
    before = await journal.database.size_bytes()
    await save(journal, draft("a", "", {"x": random.Random(0).randbytes(1_000_000)}))
    assert await journal.database.size_bytes() >= before + 1_000_000
    assert await journal.database.used_bytes() >= 1_000_000
