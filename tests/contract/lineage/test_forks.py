"""A fork is a new thread that starts with a checkpoint, complete and independent."""

from __future__ import annotations

import sqlite3

import pytest

from tests.contract.lineage.kit import chain, history, logged, seen, under
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, row_of, rows_of, save, thread_of
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import CheckpointKey, CheckpointQuery, Lineage, View
from tuskpoint_server.core.threads import EventKind, PruneStrategy, ThreadState
from tuskpoint_server.features.lineage.lineage import LineageRows, fork
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import contents

INTERRUPT = "__interrupt__"


async def interrupted(journal: Journal, *, agent_id: str = "") -> None:
    """Save a thread that waits in a subgraph call, beside a stateful subgraph."""
    await save(
        journal,
        draft("01", "", {"x": b"1"}, agent_id=agent_id),
        draft("02", ns="keeper", metadata=under("01")),
        draft(
            "03",
            "01",
            {"x": b"2"},
            label="asks",
            summary="It asks.",
            metadata={"step": 3, "source": "loop"},
            writes=(write("x", b"done", task="a"), write(INTERRUPT, b"?", task="b", idx=-3)),
        ),
        draft("04", ns="node:b", metadata=under("03"), writes=(write(INTERRUPT, b"?", idx=-3),)),
    )


async def test_a_fork_holds_the_closure(journal: Journal, lineage: LineageRows) -> None:
    await interrupted(journal, agent_id="planner")
    before = await seen(journal)
    saved = await lineage.fork(TENANT, key("03"), "fork", "")
    assert (saved.key, saved.seq, saved.incarnation) == (key("03", "fork"), 3, 1)
    fork_states = await seen(journal, "fork")
    places = [("", "03"), ("keeper", "02"), ("node:b", "04")]
    assert fork_states == {place: before[place] for place in places}
    made = await thread_of(journal, "fork")
    assert (made.agent_id, made.state, made.head_id) == ("planner", ThreadState.INTERRUPTED, "03")
    assert made.seq == saved.seq == 3
    loaded = await journal.load(TENANT, key("03", "fork"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.lineage == Lineage(forked_from="t:03")
    subgraph = await journal.load(TENANT, key("04", "fork", "node:b"), View.ENTRY)
    assert subgraph is not None
    assert subgraph.entry.lineage == Lineage()
    assert await seen(journal) == before
    assert (await thread_of(journal, "t")).seq == 4


async def test_the_latest_is_forked_if_none_is_named(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("03", "01"), draft("02", "01"))
    assert (await lineage.fork(TENANT, key(""), "fork", "")).key == key("03", "fork")


async def test_a_name_is_made_up(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"))
    saved = await lineage.fork(TENANT, key("01"), "", "r")
    assert saved.key.checkpoint_id == "01"
    assert len(saved.key.thread_id) == 32
    assert (await lineage.fork(TENANT, key("01"), "", "r")).key == saved.key
    assert (await thread_of(journal, saved.key.thread_id)).head_id == "01"


async def test_values_handed_over_by_removed_ancestors_are_forked(
    journal: Journal, lineage: LineageRows
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    before = await history(journal, key("04"))
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await lineage.fork(TENANT, key("04"), "fork", "")
    assert await history(journal, key("04", "fork")) == before
    await refused(lineage.fork(TENANT, key("03", "fork"), "v", ""), Reason.CHECKPOINT_NOT_FOUND)
    # The fork is pruned like any other thread, and its delta channel is stored again.
    await chain(journal, ["05"], parent_id="04", thread_id="fork", seeds=["05"])
    removed = await journal.removal.prune_thread(TENANT, "fork", PruneStrategy.KEEP_LATEST)
    assert removed == 1


async def test_a_checkpoint_of_a_subgraph_is_forked(journal: Journal, lineage: LineageRows) -> None:
    await interrupted(journal)
    saved = await lineage.fork(TENANT, key("04", "t", "node:b"), "fork", "")
    assert saved.key == key("04", "fork", "node:b")
    assert list(await seen(journal, "fork")) == [("node:b", "04")]
    assert (await thread_of(journal, "fork")).head_id == ""


async def test_a_fork_needs_a_source_and_a_free_name(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"), draft("01", thread_id="full"), draft("01", thread_id="gone"))
    await journal.removal.delete_thread(TENANT, "gone")
    await refused(lineage.fork(TENANT, key("01"), "full", ""), Reason.THREAD_EXISTS)
    await refused(lineage.fork(TENANT, key("01"), "t", ""), Reason.THREAD_EXISTS)
    for absent in (key("02"), key("01", "gone"), key("", "gone"), key("", "t", "inner")):
        refusal = await refused(
            lineage.fork(TENANT, absent, "new", ""), Reason.CHECKPOINT_NOT_FOUND
        )
        assert refusal.metadata["thread_id"] == absent.thread_id
    assert await journal.thread(TENANT, "new") is None


async def test_a_deleted_name_begins_anew(journal: Journal, lineage: LineageRows) -> None:
    await chain(journal, ["01", "02"], seeds=["01"])
    await save(journal, draft("09", thread_id="name", agent_id="old"))
    await journal.save_writes(TENANT, key("09", "name"), [write("__error__", b"x", idx=-1)])
    await journal.removal.delete_thread(TENANT, "name")
    await journal.save_writes(TENANT, key("0a", "name"), [write("x", b"early")])
    saved = await lineage.fork(TENANT, key("02"), "name", "")
    assert saved.incarnation == 2
    made = await thread_of(journal, "name")
    assert (made.incarnation, made.agent_id, made.state) == (2, "", ThreadState.IDLE)
    # The ID may be below the ID of the ended incarnation's last checkpoint.
    await journal.save_writes(TENANT, key("02", "name"), [write("x", b"w")])
    await save(
        journal,
        draft("03", "02", thread_id="name"),
        draft("04", ns="a:b", metadata=under("02"), thread_id="name"),
        draft("0a", "03", thread_id="name"),
    )
    assert (await seen(journal, "name"))["", "0a"].writes == ()


async def test_a_name_with_early_writes_begins_anew(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"))
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    saved = await lineage.fork(TENANT, key("01"), "name", "")
    assert saved.incarnation == 2
    assert (await seen(journal, "name"))["", "01"].writes == ()


async def test_every_change_of_a_fork_is_logged(journal: Journal, lineage: LineageRows) -> None:
    await interrupted(journal)
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    await lineage.fork(TENANT, key("03"), "name", "")
    await journal.removal.delete_thread(TENANT, "name")
    await lineage.fork(TENANT, key("03"), "name", "")
    forked = [(EventKind.CHECKPOINT_SAVED, checkpoint_id) for checkpoint_id in ("03", "02", "04")]
    deleted = (EventKind.THREAD_DELETED, "")
    happened = [(EventKind.WRITES_SAVED, "01"), deleted, *forked, deleted, *forked]
    assert await logged(journal, "name") == [
        (number, *event) for number, event in enumerate(happened, 1)
    ]
    assert (await thread_of(journal, "name")).seq == len(happened)


async def test_a_retried_fork_gets_the_first_answer(
    journal: Journal, lineage: LineageRows, clock: Clock
) -> None:
    await save(journal, draft("01"))
    saved = await lineage.fork(TENANT, key(""), "fork", "r")
    await save(journal, draft("02", "01"))
    again = await lineage.fork(TENANT, key(""), "fork", "r")
    assert again == saved
    assert list(await seen(journal, "fork")) == [("", "01")]
    for other in (
        lineage.fork(TENANT, key(""), "elsewhere", "r"),
        lineage.fork(TENANT, key("01"), "fork", "r"),
        lineage.fork(TENANT, key("", "t", "inner"), "fork", "r"),
    ):
        refusal = await refused(other, Reason.REQUEST_ID_REUSED)
        assert refusal.metadata == {"request_id": "r"}
    await refused(journal.lineage.copy_thread(TENANT, "t", "copy", "r"), Reason.REQUEST_ID_REUSED)
    clock.advance(24 * 3600 + 1)
    await journal.removal.sweep(early_write_ttl_s=1e6)
    await refused(lineage.fork(TENANT, key(""), "fork", "r"), Reason.THREAD_EXISTS)
    assert (await lineage.fork(TENANT, key(""), "elsewhere", "r")).key == key("02", "elsewhere")


async def test_a_refused_fork_is_not_remembered(journal: Journal, lineage: LineageRows) -> None:
    await refused(lineage.fork(TENANT, key("01"), "fork", "r"), Reason.CHECKPOINT_NOT_FOUND)
    await save(journal, draft("01"))
    assert (await lineage.fork(TENANT, key("01"), "fork", "r")).key == key("01", "fork")


async def test_a_copy_is_all_of_a_thread(journal: Journal, lineage: LineageRows) -> None:
    await interrupted(journal, agent_id="planner")
    await chain(journal, ["05", "06", "07"], parent_id="03", seeds=["05"])
    await journal.save_writes(TENANT, key("09"), [write("x", b"early")])
    before, times = await seen(journal), await created(journal, "t")
    assert await lineage.copy_thread(TENANT, "t", "copy", "r") == 7
    assert await seen(journal, "copy") == before
    assert await created(journal, "copy") == times
    assert await history(journal, key("07", "copy")) == await history(journal, key("07"))
    made = await thread_of(journal, "copy")
    assert (made.agent_id, made.head_id, made.seq) == ("planner", "07", 8)
    assert [checkpoint_id for *_, checkpoint_id in await logged(journal, "copy")] == [
        "01", "02", "03", "04", "05", "06", "07", "09"
    ]  # fmt: skip
    await save(journal, draft("09", "07", thread_id="copy"))
    [claimed] = (await seen(journal, "copy"))["", "09"].writes
    assert claimed.value.data == b"early"
    assert await lineage.copy_thread(TENANT, "t", "copy", "r") == 7
    for source, target in (("t", "copy"), ("t", "t")):
        await refused(lineage.copy_thread(TENANT, source, target, ""), Reason.THREAD_EXISTS)
    await refused(lineage.copy_thread(TENANT, "none", "new", ""), Reason.THREAD_NOT_FOUND)


async def created(journal: Journal, thread_id: str) -> list[int]:
    query = CheckpointQuery(thread_id, replayed=True)
    page = await journal.read_page(TENANT, query, View.ENTRY, None, max_count=100, max_bytes=10**6)
    return [checkpoint.entry.created_us for checkpoint in page.checkpoints]


async def test_a_long_thread_is_copied(journal: Journal, lineage: LineageRows) -> None:
    ids = [f"{n:04}" for n in range(1100)]
    await save(
        journal,
        *(
            draft(checkpoint_id, ids[n - 1] if n else "", {"x": checkpoint_id.encode()})
            for n, checkpoint_id in enumerate(ids)
        ),
    )
    assert await lineage.copy_thread(TENANT, "t", "copy", "") == len(ids)
    assert await seen(journal, "copy") == await seen(journal)
    assert (await thread_of(journal, "copy")).seq == len(ids)


async def test_values_are_stored_once(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, *(draft(f"0{n}", "", {"x": b"%d" % n}) for n in range(5)))
    before = await rows_of(journal, contents, "family", "digest")
    await lineage.fork(TENANT, key("04"), "fork", "")
    await lineage.copy_thread(TENANT, "fork", "copy", "")
    assert await rows_of(journal, contents, "family", "digest") == before
    assert {(await row_of(journal, thread_id)).family for thread_id in ("t", "fork", "copy")} == {
        before[0][0]
    }


@pytest.mark.sqlite
async def test_a_fork_takes_few_statements_per_checkpoint(
    journal: Journal, lineage: LineageRows
) -> None:
    """A batch writes a table with one statement; its reads grow by few statements per member."""
    counts = []
    for calls in (10, 20):
        name = f"t{calls}"
        await chain(journal, [f"{n:02}" for n in range(40)], thread_id=name, seeds=["30"])
        for n in range(calls):
            await save(journal, draft("50", ns=f"n:{n}", thread_id=name, metadata=under("39")))
        counts.append(await reads_of_a_fork(journal, key("39", name)))
    each = (counts[1] - counts[0]) / 10
    assert each <= 3
    assert counts[0] - 10 * each <= 30


async def reads_of_a_fork(journal: Journal, source: CheckpointKey) -> int:
    """Fork a checkpoint; return the number of reads."""
    statements: list[str] = []

    def work(batch: UnitOfWork) -> None:
        connection = batch.connection.connection.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(statements.append)
        fork(batch, TENANT, source, f"fork of {source}", {})
        batch.write_out()
        connection.set_trace_callback(None)

    await journal.database.transact(work)
    return sum(statement.startswith("SELECT") for statement in statements)
