"""Pruning removes superseded checkpoints and runs, and keeps what other checkpoints need."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, update

from tests.contract.removal.rows import certify_all, chain, history, ids, logged, rows
from tests.kit.drafts import (
    TENANT,
    Reference,
    channel,
    data_of,
    digest,
    draft,
    key,
    refused,
    write,
    written,
)
from tests.kit.journal import Journal, insert_gap, insert_segment, row_of, save, thread_of
from tuskpoint_server.core.delta_bases import decode_delta_base
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import EVICTED, View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import (
    checkpoints,
    contents,
    gaps,
    removed,
    vectors,
    writes,
)
from tuskpoint_server.journal.values.segment_refs import ForeignSegments, encode_held

INHERIT = Reference.INHERIT
KEEP_LATEST = PruneStrategy.KEEP_LATEST


async def keep_latest(removal: RemovalRows) -> int:
    return await removal.prune_thread(TENANT, "t", KEEP_LATEST)


# --- removed checkpoints -------------------------------------------------------------------


async def test_pruning_keeps_the_latest_of_each_namespace(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"1"}, label="old"),
        draft("b", "a", {"x": INHERIT}, writes=(write("x", b"w"),)),
        draft("c", ns="inner"),
        draft("d", "c", ns="inner"),
    )
    await journal.save_writes(TENANT, key("z"), [write("x", b"early")])
    assert await keep_latest(removal) == 2
    assert await ids(journal) == [("", "b"), ("inner", "d")]
    kept = await journal.load(TENANT, key("b"), View.FULL)
    assert data_of(kept) == {"x": b"1"}
    assert len(written(kept)) == 1
    assert await journal.list_threads(TENANT, ThreadQuery(label="old"), "", 9) == []
    assert await keep_latest(removal) == 0
    await save(journal, draft("z", "b"))
    assert len(written(await journal.load(TENANT, key("z"), View.FULL))) == 1
    assert (await thread_of(journal)).incarnation == 1


async def test_finished_subgraph_calls_go_with_their_root(
    journal: Journal, removal: RemovalRows
) -> None:
    def under(root: str) -> dict[str, object]:
        return {"parents": {"": root}}

    await save(
        journal,
        draft("b"),
        draft("c", ns="node:finished", metadata=under("b")),
        draft("d", "b"),
        draft("e", ns="node:running", metadata=under("d")),
        draft("f", ns="stateful", metadata=under("b")),
        draft("g", ns="node:unknown", metadata=under("elsewhere")),
        draft("h", ns="node:plain"),
    )
    await keep_latest(removal)
    assert await ids(journal) == [
        ("", "d"),
        ("node:plain", "h"),
        ("node:running", "e"),
        ("node:unknown", "g"),
        ("stateful", "f"),
    ]


async def test_removed_checkpoints_are_gone(journal: Journal, removal: RemovalRows) -> None:
    await save(journal, draft("a", writes=(write("x", b"w"),)), draft("b", "a"))
    number = (await row_of(journal)).number

    def add(batch: UnitOfWork) -> None:
        for checkpoint_id in "ab":
            place = {"thread": number, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
            batch.connection.execute(
                insert(vectors).values(tenant=TENANT, embedder="", vector=b"v", **place)
            )
            for segment in (None, b"s"):
                insert_gap(batch.connection, number, checkpoint_id, segment)

    await journal.database.transact(add)
    await keep_latest(removal)
    assert await journal.load(TENANT, key("a"), View.FULL) is None
    assert await rows(journal, writes, "checkpoint_id") == []
    assert await rows(journal, vectors, "checkpoint_id") == [("b",)]
    # A removal does not change the fact that a stored segment is lost.
    gap_rows = await rows(journal, gaps, "checkpoint_id", "segment")
    assert gap_rows == [("a", b"s"), ("b", None), ("b", b"s")]
    await refused(journal.set_label(TENANT, key("a"), "l"), Reason.CHECKPOINT_NOT_FOUND)
    refusal = journal.save_checkpoint(TENANT, draft("c", "a", (channel("x", INHERIT),)))
    await refused(refusal, Reason.VALUES_MISSING)


async def test_each_removed_checkpoint_is_left_to_be_stored(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"), draft("a", ns="inner"))
    await certify_all(journal)
    before = await row_of(journal)
    await keep_latest(removal)
    assert await rows(journal, removed, "seq", "checkpoint_ns", "checkpoint_id", "incarnation") == [
        (5, "", "a", 1),
        (5, "", "b", 1),
    ]
    assert (await logged(journal))[-1] == ("CHECKPOINTS_DELETED", "", 2)
    row = await row_of(journal)
    assert row.dirty_since_us is not None
    assert (row.checkpoint_count, row.removed_count) == (2, 2)
    assert row.removed_bytes == before.added_bytes // 2


async def test_a_checkpoint_saved_again_under_a_removed_id_is_new(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a", "", {"x": b"1"}, label="l"), draft("b", "a"))
    await keep_latest(removal)
    await save(journal, draft("a", "", {"y": b"2"}))
    again = await journal.load(TENANT, key("a"), View.FULL)
    assert data_of(again) == {"y": b"2"}
    assert again is not None
    assert again.entry.label == ""
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.checkpoint_count, detail.thread.head_id) == (2, "b")


# --- values that delta channels keep -------------------------------------------------------


async def test_getting_a_base_is_a_change_before_the_removal(
    journal: Journal, removal: RemovalRows
) -> None:
    await chain(journal, seed_at=2, length=6)
    await certify_all(journal)
    await keep_latest(removal)
    assert (await logged(journal))[6:] == [
        ("CHECKPOINT_SAVED", "05", 0),
        ("CHECKPOINTS_DELETED", "", 5),
    ]
    assert await rows(journal, checkpoints, "checkpoint_id", "seq") == [("05", 7)]
    row = await row_of(journal)
    assert row.dirty_bytes > 0
    assert row.unindexed_since_us is not None
    kept = await rows(journal, contents, "digest", "seq")
    assert {
        seq for value_digest, seq in kept if value_digest in map(digest, (b"2", b"3", b"4"))
    } == {7}


async def test_a_checkpoint_without_need_of_the_others_does_not_change(
    journal: Journal, removal: RemovalRows
) -> None:
    await chain(journal, seed_at=2, length=3)
    await save(journal, draft("03", "02"), draft("03", ns="inner", delta=("log",)))
    await keep_latest(removal)
    assert [kind for kind, _, _ in (await logged(journal))[5:]] == ["CHECKPOINTS_DELETED"]
    assert {base for (base,) in await rows(journal, checkpoints, "delta_base")} == {None}


async def test_a_base_is_kept_when_its_checkpoint_is_saved_again(
    journal: Journal, removal: RemovalRows
) -> None:
    await chain(journal, seed_at=2, length=6)
    await keep_latest(removal)
    await save(journal, draft("05", "04", {"other": b"new"}, delta=("log",)))
    await journal.set_label(TENANT, key("05"), "l")
    assert await history(journal) == (b"seed", [b"2", b"3", b"4"])


async def test_a_base_goes_when_its_checkpoint_follows_another(
    journal: Journal, removal: RemovalRows
) -> None:
    await chain(journal, seed_at=2, length=6)
    await keep_latest(removal)
    await save(
        journal,
        draft("01", writes=(write("log", b"another"),)),
        draft("05", "01", delta=("log",)),
    )
    assert await history(journal, "05") == (None, [b"another"])


async def test_evicted_writes_are_handed_over_by_their_segment(
    journal: Journal, removal: RemovalRows
) -> None:
    await chain(journal, seed_at=0, length=4)
    number = (await row_of(journal)).number

    def evict(batch: UnitOfWork) -> None:
        for name, first, last in ((b"1", 1, 2), (b"2", 3, 4), (b"3", None, None)):
            insert_segment(
                batch.connection,
                number,
                name * 32,
                identifier=name.decode(),
                first_seq=first,
                last_seq=last,
            )
        held = encode_held(ForeignSegments(1, (b"3" * 32,)))
        of_first = checkpoints.c.checkpoint_id == "00"
        batch.connection.execute(update(checkpoints).where(of_first).values(held=held))
        batch.connection.execute(update(writes).values(data=None))
        batch.logs.clear()

    await certify_all(journal)
    await journal.database.transact(evict)
    await keep_latest(removal)
    segment_of = dict(await rows(journal, contents, "digest", "segment"))
    assert [segment_of[digest(b"%d" % n)] for n in range(3)] == [
        b"3" * 32,
        b"1" * 32,
        b"2" * 32,
    ]
    (channel_history,) = await journal.delta_history(TENANT, key("03"), ["log"])
    assert [write.value is EVICTED for write in channel_history.writes] == [True] * 3
    assert {place.sha256 for place in channel_history.sources} == {
        b"%d" % n * 32 for n in (1, 2, 3)
    }


async def test_a_value_that_is_here_brings_an_evicted_one_back(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"twice"}, writes=(write("log", b"twice"),)),
        draft("b", "a", delta=("log",)),
    )
    await journal.database.transact(
        lambda batch: batch.connection.execute(update(contents).values(data=None, segment=b"s"))
    )
    await keep_latest(removal)
    assert await history(journal) == (None, [b"twice"])
    assert await rows(journal, contents, "seq", "segment") == [(3, None)]


# --- runs ----------------------------------------------------------------------------------


async def test_runs_are_deleted_over_all_threads(journal: Journal, removal: RemovalRows) -> None:
    await save(
        journal,
        draft("a", metadata={"run_id": "one"}),
        draft("b", "a", metadata={"run_id": "two"}, writes=(write("__error__", b"x", idx=-1),)),
        draft("c", ns="inner", metadata={"run_id": "two"}),
        draft("a", thread_id="u", metadata={"run_id": "two"}),
        draft("a", thread_id="v", metadata={"run_id": ""}),
    )
    assert await removal.delete_runs(TENANT, []) == 0
    assert await removal.delete_runs(TENANT, ["", "unknown"]) == 0
    assert await removal.delete_runs("another tenant", ["two"]) == 0
    assert await removal.delete_runs(TENANT, ["two", "two"]) == 3
    assert await ids(journal) == [("", "a")]
    assert await ids(journal, "u") == []
    assert await ids(journal, "v") == [("", "a")]
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.head_id, detail.thread.state.name) == ("a", "IDLE")
    assert (await thread_of(journal, "u")).incarnation == 1


async def test_the_remaining_head_decides_the_state_of_the_thread(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(
        journal,
        draft("a", writes=(write("__interrupt__", b"?", idx=-3),)),
        draft("b", "a", metadata={"run_id": "r"}),
    )
    await removal.delete_runs(TENANT, ["r"])
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.head_id, detail.thread.state.name) == ("a", "INTERRUPTED")
    await save(journal, draft("c", "a", expected_head="a"))


async def test_a_base_grows_by_a_channel_that_it_did_not_have(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(
        journal,
        draft("a", writes=(write("log", b"1"),)),
        draft("b", "a", delta=("log", "more")),
    )
    await keep_latest(removal)
    await save(journal, draft("a", writes=(write("log", b"late"), write("more", b"2", idx=1))))
    await keep_latest(removal)
    assert await history(journal, "b") == (None, [b"1"])
    assert await history(journal, "b", name="more") == (None, [b"2"])


async def test_a_path_goes_on_where_another_checkpoint_stays(
    journal: Journal, removal: RemovalRows
) -> None:
    """Of the consecutive writes of several runs, each base contains only its own stretch."""
    for n in range(12):
        await save(
            journal,
            draft(
                f"{n:02}",
                f"{n - 1:02}" if n else "",
                # Not all checkpoints that stay declare the channel.
                delta=("log",) if n in (5, 11) else (),
                metadata={"run_id": "gone" if n % 3 else "kept"},
                writes=(write("log", b"%d" % n),),
            ),
        )
    before = {place: await history(journal, place) for place in ("05", "11")}
    assert before["11"] == (None, [b"%d" % n for n in range(11)])
    await save(journal, draft("12", "11", delta=("log",), metadata={"run_id": "kept"}))
    assert await removal.delete_runs(TENANT, ["gone"]) == 8
    assert await history(journal, "12") == (None, [b"%d" % n for n in range(12)])
    bases = await rows(journal, checkpoints, "checkpoint_id", "delta_base")
    sizes = {
        place: [
            (channel.ancestor_id, len(channel.writes)) for channel in decode_delta_base(base, "")
        ]
        for place, base in bases
        if base
    }
    assert sizes == {"03": [("00", 2)], "06": [("03", 2)], "09": [("06", 2)], "12": [("09", 2)]}
    await journal.save_writes(TENANT, key("06"), [write("log", b"late", idx=1)])
    expected = [b"%d" % n for n in range(12)]
    expected.insert(7, b"late")
    assert await history(journal, "12") == (None, expected)
    await keep_latest(removal)
    assert await history(journal, "12") == (None, expected)


# --- rows changed behind the server's back -------------------------------------------------


@pytest.mark.parametrize(
    "changed", [{"mac": bytes(16)}, {"task_path": "another"}], ids=["mac", "content"]
)
async def test_the_damage_of_a_write_goes_with_the_write(
    journal: Journal, removal: RemovalRows, changed: dict[str, object]
) -> None:
    """The check at the end of the journal finds all rows of the thread as they should be."""
    written_twice = (write("x", b"1"), write("x", b"2", idx=1))
    await save(journal, draft("a", "", {"x": b"1"}, writes=written_twice), draft("b", "a"))

    def change(batch: UnitOfWork) -> None:
        batch.connection.execute(
            update(writes).where(writes.c.checkpoint_id == "a").values(**changed)
        )
        batch.logs.clear()

    await journal.database.transact(change)
    assert await keep_latest(removal) == 1
    assert await journal.load(TENANT, key("b"), View.FULL) is not None
