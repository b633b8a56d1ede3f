"""Listing checkpoints and threads, and the history of delta channels."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import insert, update

from tests.contract.journal_drafts import TENANT, channel, data_of, draft, key, write, written
from tuskpoint_server.domain.model import (
    BlobLocation,
    CheckpointDraft,
    CheckpointQuery,
    PruneStrategy,
    Reference,
    ThreadState,
    View,
)
from tuskpoint_server.journal import deltas, pages
from tuskpoint_server.journal.api import ListPosition, ThreadQuery
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.schema import checkpoints, envelopes, placements

Place = tuple[str, str, str]


async def save(journal: SqlJournal, *drafts: CheckpointDraft) -> None:
    for one in drafts:
        await journal.save_checkpoint(TENANT, one)


async def listed(
    journal: SqlJournal,
    query: CheckpointQuery,
    *,
    max_count: int = 1000,
    max_bytes: int = 10**9,
    view: View = View.ENTRY,
) -> list[Place]:
    """Return (ID, thread, namespace) of all pages."""
    found: list[Place] = []
    position: ListPosition | None = None
    while True:
        page = await journal.list_page(
            TENANT, query, view, position, max_count=max_count, max_bytes=max_bytes
        )
        assert len(page.checkpoints) <= max_count
        for checkpoint in page.checkpoints:
            k = checkpoint.entry.key
            found.append((k.checkpoint_id, k.thread_id, k.checkpoint_ns))
        if page.next is None:
            return found
        position = page.next


@pytest.fixture
async def several(journal: SqlJournal) -> SqlJournal:
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
async def test_pages_together_are_the_listing(several: SqlJournal, max_count: int) -> None:
    assert await listed(several, CheckpointQuery(), max_count=max_count) == ORDERED


async def test_scanning_in_stretches_changes_nothing(
    several: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SCANNED_PER_PAGE", 2)
    query = CheckpointQuery(filter={"step": 0})
    first = await several.list_page(TENANT, query, View.ENTRY, None, max_count=9, max_bytes=10**9)
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
async def test_each_question_narrows_the_listing(  # type: ignore[no-untyped-def]
    several: SqlJournal, query: CheckpointQuery, keep
) -> None:
    expected = [place for place in ORDERED if keep(place)]
    assert await listed(several, query) == expected
    assert await listed(several, query, max_count=1) == expected


async def test_a_page_ends_when_its_bytes_are_spent(journal: SqlJournal) -> None:
    for n in range(4):
        await save(journal, draft(str(n), "", {"x": bytes([n]) * 1000}))

    async def page_sizes(max_bytes: int) -> list[int]:
        sizes, position = [], None
        while True:
            page = await journal.list_page(
                TENANT, CheckpointQuery(), View.FULL, position, max_count=9, max_bytes=max_bytes
            )
            sizes.append(len(page.checkpoints))
            if page.next is None:
                return sizes
            position = page.next

    assert await page_sizes(1) == [1, 1, 1, 1]
    assert await page_sizes(1500) == [2, 2]
    assert await page_sizes(10**6) == [4]


async def test_views_of_a_listing(journal: SqlJournal) -> None:
    await save(journal, draft("a", "", {"x": b"1"}, writes=(write("x", b"w"),)))
    for view in (View.FULL, View.JSON):
        page = await journal.list_page(
            TENANT, CheckpointQuery(), view, None, max_count=9, max_bytes=99
        )
        assert data_of(page.checkpoints[0]) == {"x": b"1"}
        assert written(page.checkpoints[0]) == [("", "task", 0, "x", b"w")]
    page = await journal.list_page(
        TENANT, CheckpointQuery(), View.ENTRY, None, max_count=9, max_bytes=99
    )
    assert page.checkpoints[0].state is None
    assert page.checkpoints[0].writes == ()


# --- threads -------------------------------------------------------------------------------


async def test_threads_are_listed_by_id_in_pages(journal: SqlJournal) -> None:
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
        found = await journal.list_threads(TENANT, query, after, limit)
        return "".join(thread.thread_id for thread in found)

    assert await names(ThreadQuery()) == "abcd"
    assert await names(ThreadQuery(), limit=2) == "ab"
    assert await names(ThreadQuery(), after="b") == "cd"
    assert await names(ThreadQuery(agent_id="even")) == "cd"
    assert await names(ThreadQuery(label="named")) == "ab"
    assert await names(ThreadQuery(state=ThreadState.FAILED)) == "c"
    assert await names(ThreadQuery(state=ThreadState.IDLE, agent_id="odd", label="named")) == "ab"
    assert await journal.list_threads("another tenant", ThreadQuery(), "", 9) == []


# --- what the archive recorded -------------------------------------------------------------


async def certify(journal: SqlJournal, checkpoint_id: str, *blob_ids: str, ns: str = "") -> None:
    of = {
        "tenant": TENANT,
        "thread_id": "t",
        "checkpoint_ns": ns,
        "checkpoint_id": checkpoint_id,
    }

    def record(connection) -> None:  # type: ignore[no-untyped-def]
        connection.execute(
            update(checkpoints)
            .where(*(checkpoints.c[name] == value for name, value in of.items()))
            .values(certified_revision=1, packed_revision=1, dirty_us=None, dirty_bytes=0)
        )
        for ordinal, blob_id in enumerate(blob_ids):
            sha256 = f"{ns}{checkpoint_id}{ordinal}".encode().ljust(32, b"\0")
            connection.execute(
                insert(envelopes).values(**of, ordinal=ordinal, sha256=sha256, revision=1)
            )
            connection.execute(
                insert(placements).values(
                    tenant=TENANT, sha256=sha256, size=7, blob_id=blob_id, identifier="i"
                )
            )

    await journal.transact(record)


async def test_certified_checkpoints_say_where_they_lie(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"), draft("a", ns="inner"))
    await certify(journal, "b", "blob 1", "", "blob 2")
    await certify(journal, "a")
    await certify(journal, "a", "blob 3", ns="inner")
    loaded = await journal.load(TENANT, key("b"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.certified_revision == 1
    assert loaded.entry.envelopes == (
        BlobLocation(b"b0".ljust(32, b"\0"), 7, "blob 1", "i"),
        BlobLocation(b"b2".ljust(32, b"\0"), 7, "blob 2", "i"),
    )
    found = await journal.list_certified(TENANT, "t", None, 9)
    places = [(e.key.checkpoint_ns, e.key.checkpoint_id, len(e.envelopes)) for e in found]
    assert places == [("", "a", 0), ("", "b", 2), ("inner", "a", 1)]
    for after, expected in ((("", "a"), 2), (("", "zz"), 1), (("inner", "a"), 0)):
        assert len(await journal.list_certified(TENANT, "t", after, 9)) == expected
    assert len(await journal.list_certified(TENANT, "t", None, 2)) == 2
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.checkpoint_count, detail.uncertified_count) == (4, 1)


async def test_a_change_leaves_a_certified_checkpoint_waiting(journal: SqlJournal) -> None:
    await save(journal, draft("a"))
    await certify(journal, "a", "blob")
    await journal.save_writes(TENANT, key("a"), [write("x", b"12345")])
    rows = await journal.query(
        lambda connection: connection.execute(
            checkpoints.select().with_only_columns(
                checkpoints.c.dirty_us, checkpoints.c.dirty_bytes, checkpoints.c.certified_revision
            )
        ).one()
    )
    assert rows.dirty_us is not None
    assert (rows.dirty_bytes, rows.certified_revision) == (5, 1)


async def test_a_copy_refers_to_the_blobs_that_hold_its_state(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"))
    await certify(journal, "a", "blob 1")
    await certify(journal, "b", "blob 2")
    await certify(journal, "c", "blob 3")
    await journal.set_label(TENANT, key("b"), "changed since")
    await save(journal, draft("c", "b", metadata={"another": "state"}))
    await journal.copy_thread(TENANT, "t", "copy", "")
    rows = await journal.query(
        lambda connection: connection.execute(
            envelopes.select().where(envelopes.c.thread_id == "copy")
        ).all()
    )
    assert [(row.checkpoint_id, row.ordinal, row.revision) for row in rows] == [
        ("a", 0, 1),
        ("b", 0, 1),
    ]


async def test_the_journal_tells_its_size(journal: SqlJournal) -> None:
    before = await journal.size_bytes()
    await save(journal, draft("a", "", {"x": b"x" * 1_000_000}))
    assert await journal.size_bytes() >= before + 1_000_000


# --- delta channels ------------------------------------------------------------------------


async def history(
    journal: SqlJournal, checkpoint_id: str, *names: str, ns: str = ""
) -> list[tuple[bytes | None, list[bytes]]]:
    found = await journal.delta_history(TENANT, key(checkpoint_id, "t", ns), names)
    assert tuple(one.channel for one in found) == names
    for one in found:
        assert one.seed is None or one.seed.name == one.channel
    return [
        (
            one.seed.value.data if one.seed and one.seed.value else None,
            [w.value.data for w in one.writes],
        )
        for one in found
    ]


async def test_channels_stop_at_their_own_nearest_value(journal: SqlJournal) -> None:
    for n in range(5):
        stored = {1: {"a": b"A"}, 3: {"b": b"B"}}.get(n, {})
        await save(
            journal,
            draft(
                str(n),
                str(n - 1) if n else "",
                {"a": Reference.EMPTY, "b": Reference.EMPTY, **stored},
                writes=(write("a", b"a%d" % n), write("b", b"b%d" % n, idx=1)),
            ),
        )
    assert await history(journal, "4", "a", "b", "c") == [
        (b"A", [b"a1", b"a2", b"a3"]),
        (b"B", [b"b3"]),
        (None, []),
    ]
    assert await history(journal, "", "b", "a", "b") == [
        (b"B", [b"b3"]),
        (b"A", [b"a1", b"a2", b"a3"]),
        (b"B", [b"b3"]),
    ]
    assert await history(journal, "1", "a") == [(None, [b"a0"])]
    assert await history(journal, "4") == []


async def test_only_ancestors_on_the_path_count(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"seed"}, writes=(write("x", b"a"),)),
        draft("b", "a", writes=(write("x", b"left"),)),
        draft("c", "a", writes=(write("x", b"right"),)),
        draft("d", "b"),
        draft("e", "c"),
        draft("a", ns="inner", writes=(write("x", b"inner"),)),
        draft("b", "a", ns="inner"),
    )
    assert await history(journal, "d", "x") == [(b"seed", [b"a", b"left"])]
    assert await history(journal, "e", "x") == [(b"seed", [b"a", b"right"])]
    assert await history(journal, "b", "x", ns="inner") == [(None, [b"inner"])]


async def test_unknown_targets_and_missing_parents_have_no_history(journal: SqlJournal) -> None:
    await save(journal, draft("b", "missing", writes=(write("x", b"b"),)), draft("c", "b"))
    assert await history(journal, "c", "x") == [(None, [b"b"])]
    assert await history(journal, "b", "x") == [(None, [])]
    assert await history(journal, "unknown", "x") == [(None, [])]
    assert await history(journal, "", "x", ns="unknown") == [(None, [])]


async def test_writes_of_a_step_keep_their_order(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    await journal.save_writes(
        TENANT,
        key("a"),
        [
            write("x", b"3", task="a", path="~b", idx=1),
            write("x", b"2", task="a", path="~b"),
            write("x", b"1", task="z", path="~a"),
            write("y", b"not asked", task="z", path="~a", idx=1),
        ],
    )
    assert await history(journal, "b", "x") == [(None, [b"1", b"2", b"3"])]


async def test_ids_that_rise_against_the_path_are_followed(journal: SqlJournal) -> None:
    path = ["m", "z", "a", "y", "b", "x"]
    for n, checkpoint_id in enumerate(path):
        await save(
            journal,
            draft(
                checkpoint_id,
                path[n - 1] if n else "",
                {"x": b"seed"} if n == 1 else {},
                writes=(write("x", b"%d" % n),),
            ),
        )
    assert await history(journal, "x", "x") == [(b"seed", [b"1", b"2", b"3", b"4"])]


@pytest.mark.parametrize("block", [1, 3, 16])
async def test_long_chains_are_read_in_blocks(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(deltas, "BLOCK", block)
    for n in range(40):
        await save(
            journal,
            draft(
                f"{n:03}",
                f"{n - 1:03}" if n else "",
                (channel("x", b"seed"),) if n == 5 else (),
                delta=("x",),
                writes=(write("x", b"%d" % n),),
            ),
        )
    expected = [(b"seed", [b"%d" % n for n in range(5, 39)])]
    assert await history(journal, "", "x") == expected
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await history(journal, "", "x") == expected
