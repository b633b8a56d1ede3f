"""Threads are deleted, and only the right changes may follow."""

from __future__ import annotations

import pytest

from tests.contract.removal.rows import FOREVER, certify_all, ids, logged, rows
from tests.kit.drafts import TENANT, data_of, draft, key, refused, write, written
from tests.kit.journal import Journal, row_of, save, thread_of
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.listed_threads import ThreadQuery
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import checkpoints, contents, removed, threads, writes


async def test_deletion_takes_everything_of_the_thread_only(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", ns="inner"))
    await save(journal, draft("a", "", {"x": b"1"}, thread_id="other"))
    await journal.save_writes(TENANT, key("b"), [write("x", b"1")])
    assert await removal.delete_thread(TENANT, "t") == 3
    assert await journal.thread(TENANT, "t") is None
    assert [t.thread_id for t in await journal.list_threads(TENANT, ThreadQuery(), "", 9)] == [
        "other"
    ]
    assert await ids(journal) == []
    for gone in (key("b"), key(""), key("c", "t", "inner")):
        assert await journal.load(TENANT, gone, View.FULL) is None
    assert await rows(journal, writes, "channel") == []
    assert data_of(await journal.load(TENANT, key("a", "other"), View.FULL)) == {"x": b"1"}
    assert await removal.delete_thread(TENANT, "t") == 0
    assert await removal.delete_thread(TENANT, "never was") == 0
    assert await removal.delete_thread("another tenant", "other") == 0


async def test_a_deletion_is_one_change_and_one_removal_to_be_stored(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a"), draft("b", "a", metadata={"run_id": "r"}))
    await certify_all(journal)
    await removal.delete_runs(TENANT, ["r"])
    columns = ("seq", "checkpoint_ns", "checkpoint_id", "incarnation")
    assert await rows(journal, removed, *columns) == [(3, "", "b", 1)]
    await removal.delete_thread(TENANT, "t")
    assert await rows(journal, removed, *columns) == [(4, "", "", 1)]
    assert (await logged(journal))[-1] == ("THREAD_DELETED", "", 1)
    row = await row_of(journal)
    assert (row.seq, row.begun_seq, row.deleted_through, row.head_id) == (4, 4, "a", "")
    assert row.dirty_since_us is not None
    assert row.dirty_bytes == 0


async def test_each_incarnation_leaves_its_own_removal(
    journal: Journal, removal: RemovalRows
) -> None:
    for checkpoint_id in "ab":
        await save(journal, draft(checkpoint_id))
        await removal.delete_thread(TENANT, "t")
    assert await rows(journal, removed, "seq", "checkpoint_id", "incarnation") == [
        (2, "", 1),
        (4, "", 2),
    ]


async def test_a_thread_of_early_writes_is_deleted_with_them(
    journal: Journal, removal: RemovalRows
) -> None:
    await journal.save_writes(TENANT, key("a"), [write("x", b"1")])
    assert await removal.delete_thread(TENANT, "t") == 0
    await save(journal, draft("a"))
    assert written(await journal.load(TENANT, key("a"), View.FULL)) == []
    assert (await thread_of(journal)).incarnation == 2


async def test_a_root_without_parent_begins_the_next_incarnation(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b", agent_id="one"))
    await journal.save_writes(TENANT, key("b"), [write("__error__", b"x", idx=-1)])
    await removal.delete_thread(TENANT, "t")
    again = await journal.save_checkpoint(TENANT, draft("c"))
    assert again.incarnation == 2
    assert again.seq == 4  # two saves and a deletion came before
    detail = await journal.thread(TENANT, "t")
    assert detail is not None
    assert (detail.thread.agent_id, detail.thread.state.name) == ("", "IDLE")
    assert detail.thread.checkpoint_count == 1
    assert written(await journal.load(TENANT, key("c"), View.FULL)) == []


async def test_changes_of_a_deleted_incarnation_are_refused(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await removal.delete_thread(TENANT, "t")
    late = [
        journal.save_checkpoint(TENANT, draft("d", "c")),
        journal.save_checkpoint(TENANT, draft("d", ns="inner", metadata={"parents": {"": "c"}})),
        journal.save_writes(TENANT, key("c"), [write("x", b"1")]),
    ]
    for call in late:
        refusal = await refused(call, Reason.THREAD_DELETED)
        assert refusal.metadata == {"thread_id": "t", "incarnation": "1"}
    assert await journal.thread(TENANT, "t") is None
    await refused(journal.set_label(TENANT, key("c"), "l"), Reason.CHECKPOINT_NOT_FOUND)
    for setting in (
        removal.set_retention(TENANT, "t", 1),
        removal.set_searchable(TENANT, "t", False),
    ):
        await refused(setting, Reason.THREAD_NOT_FOUND)


async def test_writes_may_overtake_the_root_of_the_next_incarnation(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await removal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("e"), [write("x", b"1")])
    assert await journal.thread(TENANT, "t") is None
    assert await journal.list_threads(TENANT, ThreadQuery(), "", 9) == []
    await refused(journal.save_checkpoint(TENANT, draft("e", "c")), Reason.THREAD_DELETED)
    await save(journal, draft("d"), draft("e", "d"))
    assert (await thread_of(journal)).incarnation == 2
    assert written(await journal.load(TENANT, key("e"), View.FULL)) == [("", "task", 0, "x", b"1")]


async def test_writes_for_a_next_incarnation_go_with_the_thread(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b"))
    await removal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("e"), [write("x", b"early")])
    assert await removal.delete_thread(TENANT, "t") == 0
    await save(journal, draft("e"))
    assert written(await journal.load(TENANT, key("e"), View.FULL)) == []


async def test_late_changes_do_not_join_the_next_incarnation(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b"), draft("c", "b"))
    await removal.delete_thread(TENANT, "t")
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


async def test_a_subgraph_may_come_first_after_a_deletion(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("b"))
    await removal.delete_thread(TENANT, "t")
    await save(journal, draft("c", ns="inner", metadata={"parents": {"": "c"}}))
    assert (await thread_of(journal)).incarnation == 2


async def test_pruning_can_delete_all(journal: Journal, removal: RemovalRows) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    assert await removal.prune_thread(TENANT, "t", PruneStrategy.DELETE_ALL) == 2
    assert await journal.thread(TENANT, "t") is None
    for strategy in PruneStrategy:
        assert await removal.prune_thread(TENANT, "t", strategy) == 0
        assert await removal.prune_thread(TENANT, "never was", strategy) == 0


# --- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["gone", "started again"])
async def test_values_of_a_deleted_thread_are_swept(
    journal: Journal, removal: RemovalRows, again: bool
) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"1", "y": b"2"}),
        draft("a", "", {"x": b"1"}, thread_id="other"),
    )
    await removal.delete_thread(TENANT, "t")
    if again:
        await save(journal, draft("b", "", {"x": b"3"}))
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 2
    assert len(await rows(journal, contents, "digest")) == 1 + again
    assert data_of(await journal.load(TENANT, key("a", "other"), View.FULL)) == {"x": b"1"}
    if again:
        assert data_of(await journal.load(TENANT, key("b"), View.FULL)) == {"x": b"3"}
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 0


async def test_values_that_another_thread_shares_are_kept(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a", "", {"x": b"1"}), draft("a", "", {"y": b"2"}, thread_id="u"))
    family = (await row_of(journal)).family

    def join(batch: UnitOfWork) -> None:
        for table in (contents, threads):
            batch.connection.execute(table.update().values(family=family))
        batch.logs.clear()

    await journal.database.transact(join)
    await removal.delete_thread(TENANT, "t")
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 1
    assert data_of(await journal.load(TENANT, key("a", "u"), View.FULL)) == {"y": b"2"}
    await removal.delete_thread(TENANT, "u")
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 1
    assert await rows(journal, checkpoints, "checkpoint_id") == []
