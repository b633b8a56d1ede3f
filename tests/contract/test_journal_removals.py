"""Deleting, pruning and copying threads, and what may come after."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from tests.contract.conftest import Clock
from tests.contract.journal_drafts import (
    TENANT,
    channel,
    data_of,
    draft,
    key,
    refused,
    write,
    written,
)
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.model import (
    CheckpointDraft,
    CheckpointQuery,
    PruneStrategy,
    Reference,
    Removed,
    View,
)
from tuskpoint_server.journal.api import ThreadQuery
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.schema import checkpoints, retractions, tombstones

INHERIT = Reference.INHERIT


async def save(journal: SqlJournal, *drafts: CheckpointDraft) -> None:
    for one in drafts:
        await journal.save_checkpoint(TENANT, one)


async def ids(journal: SqlJournal, thread_id: str = "t") -> list[tuple[str, str]]:
    """Return (namespace, ID) of what readers see of a thread."""
    page = await journal.list_page(
        TENANT,
        CheckpointQuery(thread_id=thread_id),
        View.ENTRY,
        None,
        max_count=10_000,
        max_bytes=10**9,
    )
    keys = [checkpoint.entry.key for checkpoint in page.checkpoints]
    return sorted((k.checkpoint_ns, k.checkpoint_id) for k in keys)


async def incarnation(journal: SqlJournal, thread_id: str = "t") -> int:
    detail = await journal.thread(TENANT, thread_id)
    assert detail is not None
    return detail.thread.incarnation


# --- deletion and what follows it ----------------------------------------------------------


async def test_deletion_takes_everything_of_the_thread_only(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", ns="inner"))
    await save(journal, draft("a", "", {"x": b"1"}, thread_id="other"))
    await journal.save_writes(TENANT, key("b"), [write("x", b"1")])
    assert await journal.delete_thread(TENANT, "t") == Removed(3)
    assert await journal.thread(TENANT, "t") is None
    assert [t.thread_id for t in await journal.list_threads(TENANT, ThreadQuery(), "", 9)] == [
        "other"
    ]
    assert await ids(journal) == []
    for gone in (key("b"), key(""), key("c", "t", "inner")):
        assert await journal.load(TENANT, gone, View.FULL) is None
    assert data_of(await journal.load(TENANT, key("a", "other"), View.FULL)) == {"x": b"1"}
    assert await journal.delete_thread(TENANT, "t") == Removed()
    assert await journal.delete_thread(TENANT, "never was") == Removed()


async def test_a_deletion_is_left_to_be_told(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a", metadata={"run_id": "r"}))
    await journal.delete_runs(TENANT, ["r"])
    told = await journal.query(
        lambda connection: connection.execute(
            select(retractions.c.checkpoint_id, retractions.c.incarnation)
        ).all()
    )
    assert [tuple(row) for row in told] == [("b", 1)]
    await journal.delete_thread(TENANT, "t")
    told, buried = await journal.query(
        lambda connection: (
            connection.execute(select(retractions.c.checkpoint_id)).all(),
            connection.execute(select(tombstones.c.thread_id, tombstones.c.incarnation)).all(),
        )
    )
    assert told == []
    assert [tuple(row) for row in buried] == [("t", 1)]


async def test_a_thread_of_early_writes_is_deleted_with_them(journal: SqlJournal) -> None:
    await journal.save_writes(TENANT, key("a"), [write("x", b"1")])
    assert await journal.delete_thread(TENANT, "t") == Removed(0)
    await save(journal, draft("a"))
    assert written(await journal.load(TENANT, key("a"), View.FULL)) == []
    assert await incarnation(journal) == 2


async def test_a_root_without_parent_begins_the_next_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("b", agent_id="one"))
    await journal.save_writes(TENANT, key("b"), [write("__error__", b"x", idx=-1)])
    await journal.delete_thread(TENANT, "t")
    again = await journal.save_checkpoint(TENANT, draft("c"))
    assert (again.incarnation, again.revision) == (2, 1)
    assert again.seq == 4  # two saves and a deletion came before
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.agent_id, detail.thread.state.name) == ("", "IDLE")
    assert written(await journal.load(TENANT, key("c"), View.FULL)) == []


async def test_what_belongs_to_a_deleted_incarnation_is_refused(journal: SqlJournal) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await journal.delete_thread(TENANT, "t")
    late = [
        journal.save_checkpoint(TENANT, draft("d", "c")),
        journal.save_checkpoint(TENANT, draft("d", ns="inner", metadata={"parents": {"": "c"}})),
        journal.save_writes(TENANT, key("c"), [write("x", b"1")]),
    ]
    for call in late:
        refusal = await refused(call, Reason.THREAD_DELETED)
        assert refusal.metadata == {"thread_id": "t", "incarnation": "1"}
    assert await journal.thread(TENANT, "t") is None


async def test_writes_may_overtake_the_root_of_the_next_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await journal.delete_thread(TENANT, "t")
    early = await journal.save_writes(TENANT, key("e"), [write("x", b"1")])
    assert early.revision == 0
    assert await journal.thread(TENANT, "t") is None
    assert await journal.list_threads(TENANT, ThreadQuery(), "", 9) == []
    await refused(journal.save_checkpoint(TENANT, draft("e", "c")), Reason.THREAD_DELETED)
    await save(journal, draft("d"), draft("e", "d"))
    assert await incarnation(journal) == 2
    assert written(await journal.load(TENANT, key("e"), View.FULL)) == [("", "task", 0, "x", b"1")]


@pytest.mark.parametrize("how", ["deletion", "copy"])
async def test_writes_for_a_next_incarnation_go_with_the_thread(
    journal: SqlJournal, how: str
) -> None:
    await save(journal, draft("e", thread_id="source"))
    await journal.save_writes(TENANT, key("e", "source"), [write("x", b"source")])
    await save(journal, draft("b"))
    await journal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("e"), [write("x", b"early")])
    if how == "deletion":
        assert await journal.delete_thread(TENANT, "t") == Removed()
        await save(journal, draft("e"))
        expected = []
    else:
        assert await journal.copy_thread(TENANT, "source", "t", "") == 1
        expected = [("", "task", 0, "x", b"source")]
    assert written(await journal.load(TENANT, key("e"), View.FULL)) == expected


async def test_late_changes_do_not_join_the_next_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await journal.delete_thread(TENANT, "t")
    await save(journal, draft("e"))
    late = [
        journal.save_checkpoint(TENANT, draft("f", "c")),
        journal.save_checkpoint(TENANT, draft("f", ns="inner", metadata={"parents": {"": "c"}})),
        journal.save_writes(TENANT, key("c"), [write("x", b"1")]),
    ]
    for call in late:
        refusal = await refused(call, Reason.THREAD_DELETED)
        assert refusal.metadata["incarnation"] == "1"
    await save(
        journal,
        draft("f", "e"),
        draft("g", ns="inner", metadata={"parents": {"": "f"}}),
        draft("h", "not here yet"),
    )
    await journal.save_writes(TENANT, key("y"), [write("x", b"1")])
    assert await ids(journal) == [("", "e"), ("", "f"), ("", "h"), ("inner", "g")]


async def test_a_subgraph_may_come_first_after_a_deletion(journal: SqlJournal) -> None:
    await save(journal, draft("b"))
    await journal.delete_thread(TENANT, "t")
    await save(journal, draft("c", ns="inner", metadata={"parents": {"": "c"}}))
    assert await incarnation(journal) == 2


# --- pruning -------------------------------------------------------------------------------


async def test_pruning_keeps_the_latest_of_each_namespace(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"1"}, label="old"),
        draft("b", "a", {"x": INHERIT}, writes=(write("x", b"w"),)),
        draft("c", ns="inner"),
        draft("d", "c", ns="inner"),
    )
    await journal.save_writes(TENANT, key("z"), [write("x", b"early")])
    removed = await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert removed == Removed(2, 0)
    assert await ids(journal) == [("", "b"), ("inner", "d")]
    kept = await journal.load(TENANT, key("b"), View.FULL)
    assert data_of(kept) == {"x": b"1"}
    assert len(written(kept)) == 1
    assert await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST) == Removed()
    await save(journal, draft("z", "b"))
    assert len(written(await journal.load(TENANT, key("z"), View.FULL))) == 1
    assert await incarnation(journal) == 1


async def test_pruning_can_delete_all(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    assert await journal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL) == Removed(2)
    assert await journal.thread(TENANT, "t") is None
    for strategy in PruneStrategy:
        assert await journal.prune_thread(TENANT, "t", strategy) == Removed()
        assert await journal.prune_thread(TENANT, "never was", strategy) == Removed()


async def test_finished_subgraph_calls_go_with_their_root(journal: SqlJournal) -> None:
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
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await ids(journal) == [
        ("", "d"),
        ("node:plain", "h"),
        ("node:running", "e"),
        ("node:unknown", "g"),
        ("stateful", "f"),
    ]


async def chain(journal: SqlJournal, *, seed_at: int, length: int) -> None:
    """Save checkpoints "00", "01", ... whose delta channel is stored at one of them."""
    for n in range(length):
        channels = (channel("log", b"seed", n),) if n == seed_at else ()
        await save(
            journal,
            draft(
                f"{n:02}",
                f"{n - 1:02}" if n else "",
                (*channels, channel("other", b"%d" % n, n)),
                delta=("log",),
                label=f"label {n}",
                writes=(write("log", b"%d" % n),),
            ),
        )


async def history(journal: SqlJournal, checkpoint_id: str = "") -> tuple[bytes, list[bytes]]:
    (found,) = await journal.delta_history(TENANT, key(checkpoint_id), ["log"])
    seed = found.seed.value.data if found.seed and found.seed.value else b""
    return seed, [w.value.data for w in found.writes]


async def test_pruning_hides_what_delta_channels_need(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    before = await history(journal)
    assert before == (b"seed", [b"2", b"3", b"4"])
    removed = await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert removed == Removed(deleted=2, hidden=3)
    assert await ids(journal) == [("", "05")]
    assert await history(journal) == before
    assert await journal.load(TENANT, key("04"), View.FULL) is None
    assert await history(journal, "04") == (b"", [])
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.checkpoint_count == 1
    await refused(journal.set_label(TENANT, key("04"), "l"), Reason.CHECKPOINT_NOT_FOUND)
    assert await journal.list_threads(TENANT, ThreadQuery(label="label 4"), "", 9) == []
    assert (await journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)).contents == 2
    assert await history(journal) == before


async def test_a_hidden_checkpoint_is_never_the_latest(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("z", "", {"log": b"seed"}, metadata={"run_id": "r"}),
        draft("b", "z", delta=("log",)),
    )
    assert await journal.delete_runs(TENANT, ["r"]) == Removed(0, 1)
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.head_id, detail.heads) == ("b", {"": "b"})
    latest = await journal.load(TENANT, key(""), View.FULL)
    assert latest is not None
    assert latest.entry.key == key("b")
    assert await history(journal) == (b"seed", [])
    assert (await journal.set_label(TENANT, key(""), "l")).key == key("b")
    await save(journal, draft("c", "b", expected_head="b"))


async def test_hidden_checkpoints_go_once_nothing_needs_them(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await save(journal, draft("06", "05", (channel("log", b"whole", 6),), delta=("log",)))
    removed = await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert removed == Removed(deleted=1, hidden=0)
    await save(journal, draft("07", "04", delta=("log",)))
    assert await history(journal, "07") == (b"", [])


async def test_a_hidden_parent_still_gives_values(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await save(journal, draft("07", "04", (channel("other", INHERIT, 4),), delta=("log",)))
    assert data_of(await journal.load(TENANT, key("07"), View.FULL)) == {"other": b"4"}
    assert await history(journal, "07") == (b"seed", [b"2", b"3", b"4"])
    await refused(
        journal.save_checkpoint(TENANT, draft("08", "04", (channel("other", b"5", "5"),))),
        Reason.VERSION_TYPE_CHANGED,
    )


async def waiting(journal: SqlJournal) -> dict[str, tuple[bool, int, bool]]:
    """Whether each checkpoint is hidden, its revision, and whether it waits for a flush."""
    columns = checkpoints.c
    rows = await journal.query(
        lambda connection: connection.execute(
            select(columns.checkpoint_id, columns.hidden, columns.revision, columns.dirty_us)
        ).all()
    )
    return {row[0]: (row[1], row[2], row[3] is not None) for row in rows}


async def certify_all(journal: SqlJournal) -> None:
    """Pretend that a flush has certified everything."""
    columns = checkpoints.c
    await journal.transact(
        lambda connection: connection.execute(
            update(checkpoints).values(
                certified_revision=columns.revision, dirty_us=None, dirty_bytes=0
            )
        )
    )


async def retracted(journal: SqlJournal) -> list[str]:
    """IDs of the checkpoints whose removal is left to be told."""
    found = await journal.query(
        lambda connection: connection.execute(
            select(retractions.c.checkpoint_id).order_by(retractions.c.number)
        ).all()
    )
    return [row[0] for row in found]


async def test_what_is_hidden_is_told_and_not_retracted(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await certify_all(journal)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await retracted(journal) == ["00", "01"]
    assert await waiting(journal) == {
        "02": (True, 2, True),
        "03": (True, 2, True),
        "04": (True, 2, True),
        "05": (False, 1, False),
    }


async def test_a_hidden_checkpoint_that_was_never_stored_still_waits(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert (await waiting(journal))["03"] == (True, 2, True)


async def test_hidden_checkpoints_that_go_are_retracted(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await save(journal, draft("06", "05", {"log": b"whole"}, delta=("log",)))
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await retracted(journal) == ["00", "01", "02", "03", "04", "05"]
    assert list(await waiting(journal)) == ["06"]


async def test_late_writes_of_a_hidden_checkpoint_wait_for_a_flush(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await certify_all(journal)
    await journal.save_writes(TENANT, key("03"), [write("log", b"late", task="u")])
    assert (await waiting(journal))["03"] == (True, 3, True)


async def test_a_copy_of_what_is_hidden_waits_for_a_flush(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await certify_all(journal)
    await journal.copy_thread(TENANT, "t", "copy", "")
    await journal.delete_thread(TENANT, "t")
    assert await waiting(journal) == {f"{n:02}": (n < 5, 1, True) for n in range(2, 6)}


async def test_a_hidden_checkpoint_can_be_saved_anew(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    again = await journal.save_checkpoint(TENANT, draft("03", "02", delta=("log",)))
    assert again.revision == 3, "hiding it was a change"
    loaded = await journal.load(TENANT, key("03"), View.FULL)
    assert loaded is not None
    assert loaded.entry.label == ""
    assert await history(journal) == (b"seed", [b"2", b"3", b"4"])


async def test_late_writes_of_a_hidden_checkpoint_are_not_lost(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    outcome = await journal.save_writes(TENANT, key("03"), [write("log", b"3b", task="u")])
    assert outcome.revision == 0
    await journal.sweep(content_grace_s=1e6, early_write_ttl_s=-1)
    assert await history(journal) == (b"seed", [b"2", b"3", b"3b", b"4"])


async def test_a_loop_of_parents_ends_the_walk(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", "c", delta=("log",), writes=(write("log", b"a"),)),
        draft("b", "a", delta=("log",), writes=(write("log", b"b"),)),
        draft("c", "b", delta=("log",)),
    )
    assert await history(journal) == (b"", [b"a", b"b"])
    assert await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST) == Removed(0, 2)
    assert await history(journal) == (b"", [b"a", b"b"])


# --- runs ----------------------------------------------------------------------------------


async def test_runs_are_deleted_over_all_threads(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", metadata={"run_id": "one"}),
        draft("b", "a", metadata={"run_id": "two"}, writes=(write("__error__", b"x", idx=-1),)),
        draft("c", ns="inner", metadata={"run_id": "two"}),
        draft("a", thread_id="u", metadata={"run_id": "two"}),
        draft("a", thread_id="v", metadata={"run_id": ""}),
    )
    assert await journal.delete_runs(TENANT, []) == Removed()
    assert await journal.delete_runs(TENANT, ["", "unknown"]) == Removed()
    assert await journal.delete_runs("another tenant", ["two"]) == Removed()
    assert await journal.delete_runs(TENANT, ["two", "two"]) == Removed(3)
    assert await ids(journal) == [("", "a")]
    assert await ids(journal, "u") == []
    assert await ids(journal, "v") == [("", "a")]
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.head_id, detail.thread.state.name) == ("a", "IDLE")
    assert await incarnation(journal, "u") == 1


async def test_runs_in_the_middle_of_a_delta_chain_are_hidden(journal: SqlJournal) -> None:
    for n, run in enumerate(["one", "two", "two", "three", "three"]):
        await save(
            journal,
            draft(
                f"{n}",
                f"{n - 1}" if n else "",
                (channel("log", b"seed"),) if n in (1, 4) else (),
                metadata={"run_id": run},
                delta=("log",),
                writes=(write("log", b"%d" % n),),
            ),
        )
    assert await history(journal, "3") == (b"seed", [b"1", b"2"])
    assert await journal.delete_runs(TENANT, ["two"]) == Removed(deleted=0, hidden=2)
    assert await history(journal, "3") == (b"seed", [b"1", b"2"])
    assert await journal.delete_runs(TENANT, ["one", "three"]) == Removed(deleted=3, hidden=0)
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert detail.checkpoint_count == 0


# --- copying -------------------------------------------------------------------------------


async def test_a_copy_is_equal_and_independent(journal: SqlJournal) -> None:
    await chain(journal, seed_at=1, length=4)
    await save(journal, draft("x", "w", {"y": b"1"}, ns="inner", agent_id="planner"))
    await journal.save_writes(TENANT, key("zz"), [write("x", b"early")])
    assert await journal.copy_thread(TENANT, "t", "copy", "") == 5
    assert await ids(journal, "copy") == await ids(journal)
    for namespace, checkpoint_id in await ids(journal):
        one = await journal.load(TENANT, key(checkpoint_id, "t", namespace), View.FULL)
        other = await journal.load(TENANT, key(checkpoint_id, "copy", namespace), View.FULL)
        assert one is not None
        assert other is not None
        assert other.state == one.state
        assert other.writes == one.writes
        assert (other.entry.parent_id, other.entry.metadata, other.entry.label) == (
            one.entry.parent_id,
            one.entry.metadata,
            one.entry.label,
        )
        assert (other.entry.revision, other.entry.certified_revision) == (1, 0)
    detail = await journal.thread(TENANT, "copy")
    assert detail is not None
    assert (detail.thread.head_id, detail.thread.agent_id) == ("03", "planner")
    await save(journal, draft("zz", "03", thread_id="copy"))
    assert len(written(await journal.load(TENANT, key("zz", "copy"), View.FULL))) == 1
    await journal.delete_thread(TENANT, "t")
    await journal.sweep(content_grace_s=-1, early_write_ttl_s=1e6)
    assert data_of(await journal.load(TENANT, key("01", "copy"), View.FULL)) == {
        "log": b"seed",
        "other": b"1",
    }


async def test_copies_come_in_the_order_of_the_source(journal: SqlJournal) -> None:
    await save(journal, draft("b"), draft("a"), draft("c"))
    await journal.copy_thread(TENANT, "t", "copy", "")
    seqs = []
    for checkpoint_id in ("b", "a", "c"):
        loaded = await journal.load(TENANT, key(checkpoint_id, "copy"), View.ENTRY)
        assert loaded is not None
        seqs.append(loaded.entry.seq)
    detail = await journal.thread(TENANT, "copy")
    assert detail is not None
    assert seqs == [1, 2, 3]
    assert detail.thread.seq == 3


async def test_hidden_ancestors_are_copied_too(journal: SqlJournal) -> None:
    await chain(journal, seed_at=2, length=6)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await journal.copy_thread(TENANT, "t", "copy", "") == 1
    (found,) = await journal.delta_history(TENANT, key("", "copy"), ["log"])
    assert found.seed is not None
    assert [w.value.data for w in found.writes] == [b"2", b"3", b"4"]


async def test_a_copy_needs_a_source_and_an_empty_target(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("a", thread_id="full"))
    await save(journal, draft("a", thread_id="deleted"))
    await journal.delete_thread(TENANT, "deleted")
    await refused(journal.copy_thread(TENANT, "t", "full", ""), Reason.THREAD_EXISTS)
    await refused(journal.copy_thread(TENANT, "t", "t", ""), Reason.THREAD_EXISTS)
    for absent in ("deleted", "never was"):
        await refused(journal.copy_thread(TENANT, absent, "new", ""), Reason.THREAD_NOT_FOUND)
    assert await journal.copy_thread(TENANT, "t", "deleted", "") == 1
    assert await incarnation(journal, "deleted") == 2
    await save(journal, draft("b", "a", thread_id="deleted"))


async def test_a_copy_ends_an_empty_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("a"))
    await journal.save_writes(TENANT, key("a", "copy"), [write("x", b"stray")])
    assert await journal.copy_thread(TENANT, "t", "copy", "") == 1
    assert await incarnation(journal, "copy") == 2
    assert written(await journal.load(TENANT, key("a", "copy"), View.FULL)) == []


async def test_a_retried_copy_gets_the_first_answer(journal: SqlJournal, clock: Clock) -> None:
    await save(journal, draft("a"))
    assert await journal.copy_thread(TENANT, "t", "copy", "r") == 1
    await save(journal, draft("b", "a"))
    assert await journal.copy_thread(TENANT, "t", "copy", "r") == 1
    assert await ids(journal, "copy") == [("", "a")]
    refusal = await refused(
        journal.copy_thread(TENANT, "t", "elsewhere", "r"), Reason.REQUEST_ID_REUSED
    )
    assert refusal.metadata == {"request_id": "r"}
    clock.advance(24 * 3600 + 1)
    assert (await journal.sweep(content_grace_s=1e6, early_write_ttl_s=1e6)).requests == 1
    assert await journal.copy_thread(TENANT, "t", "elsewhere", "r") == 2
