"""Forks: a new thread that begins with a checkpoint, whole and on its own."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from sqlalchemy import Table, insert, select

from tests.contract.lineage.kit import (
    LineageJournal,
    certify,
    chain,
    evict,
    history,
    logged,
    row_of,
    save,
    seen,
    sha,
    under,
)
from tests.kit.drafts import TENANT, Reference, channel, data_of, digest, draft, key, refused, write
from tests.kit.journal import Clock
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.model import CheckpointKey, CheckpointQuery, View
from tuskpoint_server.domain.model import Lineage as Origins
from tuskpoint_server.domain.state import evicted_digests
from tuskpoint_server.domain.threads import EventKind, PruneStrategy, Thread, ThreadState
from tuskpoint_server.journal.checkpoints.located import decode_held
from tuskpoint_server.journal.database.overlay import Batch
from tuskpoint_server.journal.database.schema import checkpoints, contents, holes, uses
from tuskpoint_server.journal.lineage.copies import ValuesEvicted
from tuskpoint_server.journal.lineage.lineage import Lineage, fork

INTERRUPT = "__interrupt__"


async def thread(journal: LineageJournal, thread_id: str) -> Thread:
    detail = await journal.thread(TENANT, thread_id)
    assert detail is not None
    return detail.thread


async def interrupted(journal: LineageJournal, *, agent_id: str = "") -> None:
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


# --- what a fork has -----------------------------------------------------------------------


async def test_a_fork_is_what_the_closure_holds(journal: LineageJournal, lineage: Lineage) -> None:
    await interrupted(journal, agent_id="planner")
    before = await seen(journal)
    saved = await lineage.fork(TENANT, key("03"), "fork", "")
    assert (saved.key, saved.seq, saved.incarnation) == (key("03", "fork"), 3, 1)
    found = await seen(journal, "fork")
    places = [("", "03"), ("keeper", "02"), ("node:b", "04")]
    assert found == {place: before[place] for place in places}
    made = await thread(journal, "fork")
    assert (made.agent_id, made.state, made.head_id) == ("planner", ThreadState.INTERRUPTED, "03")
    assert made.seq == saved.seq == 3
    loaded = await journal.load(TENANT, key("03", "fork"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.lineage == Origins(forked_from="t:03")
    subgraph = await journal.load(TENANT, key("04", "fork", "node:b"), View.ENTRY)
    assert subgraph is not None
    assert subgraph.entry.lineage == Origins()
    assert await seen(journal) == before
    assert (await thread(journal, "t")).seq == 4


async def test_the_latest_is_forked_if_none_is_named(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"), draft("03", "01"), draft("02", "01"))
    assert (await lineage.fork(TENANT, key(""), "fork", "")).key == key("03", "fork")


async def test_only_one_checkpoint_of_a_line_is_forked(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"), draft("02", "01"), draft("03", "02"))
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert list(await seen(journal, "fork")) == [("", "02")]
    assert (await seen(journal, "fork"))["", "02"].parent_id == "01"


async def test_a_name_is_made_up(journal: LineageJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"))
    saved = await lineage.fork(TENANT, key("01"), "", "r")
    assert saved.key.checkpoint_id == "01"
    assert len(saved.key.thread_id) == 32
    assert (await lineage.fork(TENANT, key("01"), "", "r")).key == saved.key
    assert (await thread(journal, saved.key.thread_id)).head_id == "01"


async def test_delta_channels_are_rebuilt_as_in_the_source(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    await lineage.fork(TENANT, key("04"), "fork", "")
    expected = (b"seed 02", (("task of log", b"w02"), ("task of log", b"w03")))
    assert await history(journal, key("04", "fork")) == expected
    assert list(await seen(journal, "fork")) == [("", "04")]
    detail = await journal.thread(TENANT, "fork")
    assert detail is not None
    assert (detail.checkpoint_count, detail.heads) == (1, {"": "04"})


async def test_forks_of_forks(journal: LineageJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02", "04"], seeds=["01"])
    await chain(journal, ["03"], ns="keeper", seeds=["03"], metadata=under("01"))
    for source, target in (("t", "u"), ("u", "v"), ("v", "w")):
        await lineage.fork(TENANT, key("04", source), target, "")
    assert await seen(journal, "w") == await seen(journal, "u")
    assert set(await seen(journal, "w")) == {("", "04"), ("keeper", "03")}
    assert await history(journal, key("04", "w")) == await history(journal, key("04"))
    loaded = await journal.load(TENANT, key("04", "w"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.lineage == Origins(forked_from="v:04")


async def test_what_removed_ancestors_held_is_forked_too(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    before = await history(journal, key("04"))
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await lineage.fork(TENANT, key("04"), "fork", "")
    assert await history(journal, key("04", "fork")) == before
    await refused(lineage.fork(TENANT, key("03", "fork"), "v", ""), Reason.CHECKPOINT_NOT_FOUND)
    # It is pruned like any other thread, and its delta channel stored anew.
    await chain(journal, ["05"], parent_id="04", thread_id="fork", seeds=["05"])
    removed = await journal.removal.prune_thread(TENANT, "fork", PruneStrategy.KEEP_LATEST)
    assert removed == 1


async def test_a_checkpoint_of_a_subgraph_is_forked(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await interrupted(journal)
    saved = await lineage.fork(TENANT, key("04", "t", "node:b"), "fork", "")
    assert saved.key == key("04", "fork", "node:b")
    assert list(await seen(journal, "fork")) == [("node:b", "04")]
    assert (await thread(journal, "fork")).head_id == ""


# --- apart from its source -----------------------------------------------------------------


async def test_neither_sees_what_happens_to_the_other(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await lineage.fork(TENANT, key("02"), "fork", "")
    fork, source = await seen(journal, "fork"), await seen(journal)
    log = await history(journal, key("02", "fork"))
    await journal.save_writes(TENANT, key("02"), [write("log", b"late")])
    await journal.save_writes(TENANT, key("01"), [write("log", b"late")])
    await journal.set_label(TENANT, key("02"), "of the source")
    await save(journal, draft("01", "", {"log": b"changed"}, delta=("log",)))
    assert await seen(journal, "fork") == fork
    assert await history(journal, key("02", "fork")) == log
    source = await seen(journal)
    await journal.save_writes(TENANT, key("02", "fork"), [write("log", b"mine")])
    await save(journal, draft("04", "02", {"x": b"mine"}, thread_id="fork", delta=("log",)))
    await journal.removal.prune_thread(TENANT, "fork", PruneStrategy.KEEP_LATEST)
    assert await seen(journal) == source


async def test_a_fork_goes_on(journal: LineageJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02"], seeds=["01"])
    await lineage.fork(TENANT, key("02"), "fork", "")
    await save(
        journal,
        draft(
            "03",
            "02",
            (channel("x", Reference.INHERIT),),
            thread_id="fork",
            delta=("log",),
            expected_head="02",
        ),
        draft("04", ns="node:a", thread_id="fork", metadata=under("02")),
    )
    assert data_of(await journal.load(TENANT, key("03", "fork"), View.FULL)) == {"x": b"02"}
    log = (("task of log", b"w01"), ("task of log", b"w02"))
    assert await history(journal, key("03", "fork")) == (b"seed 01", log)


async def test_a_fork_is_whole_without_its_source(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await lineage.fork(TENANT, key("03"), "fork", "")
    fork, log = await seen(journal, "fork"), await history(journal, key("03"))
    assert await journal.removal.delete_thread(TENANT, "t") == 3
    await journal.removal.sweep(early_write_ttl_s=-1)
    assert await seen(journal, "fork") == fork
    assert await history(journal, key("03", "fork")) == log


async def test_forking_with_the_source_deleted_by_run(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02"], seeds=["01"], metadata={"run_id": "one"})
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert await journal.removal.delete_runs(TENANT, ["one"]) == 3
    assert await seen(journal, "fork") == await seen(journal) == {}


# --- names and retries ---------------------------------------------------------------------


async def test_a_fork_needs_a_source_and_a_free_name(
    journal: LineageJournal, lineage: Lineage
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


async def test_a_deleted_name_begins_anew(journal: LineageJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02"], seeds=["01"])
    await save(journal, draft("09", thread_id="name", agent_id="old"))
    await journal.save_writes(TENANT, key("09", "name"), [write("__error__", b"x", idx=-1)])
    await journal.removal.delete_thread(TENANT, "name")
    await journal.save_writes(TENANT, key("0a", "name"), [write("x", b"early")])
    saved = await lineage.fork(TENANT, key("02"), "name", "")
    assert saved.incarnation == 2
    made = await thread(journal, "name")
    assert (made.incarnation, made.agent_id, made.state) == (2, "", ThreadState.IDLE)
    # Though its ID is below that of the ended incarnation's last checkpoint.
    await journal.save_writes(TENANT, key("02", "name"), [write("x", b"w")])
    await save(
        journal,
        draft("03", "02", thread_id="name"),
        draft("04", ns="a:b", metadata=under("02"), thread_id="name"),
        draft("0a", "03", thread_id="name"),
    )
    assert (await seen(journal, "name"))["", "0a"].writes == ()


async def test_a_name_with_early_writes_begins_anew(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"))
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    saved = await lineage.fork(TENANT, key("01"), "name", "")
    assert saved.incarnation == 2
    assert (await seen(journal, "name"))["", "01"].writes == ()


async def test_every_change_of_a_fork_is_logged(journal: LineageJournal, lineage: Lineage) -> None:
    await interrupted(journal)
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    await lineage.fork(TENANT, key("03"), "name", "")
    await journal.removal.delete_thread(TENANT, "name")
    await lineage.fork(TENANT, key("03"), "name", "")
    forked = [(EventKind.CHECKPOINT_SAVED, one) for one in ("03", "02", "04")]
    deleted = (EventKind.THREAD_DELETED, "")
    happened = [(EventKind.WRITES_SAVED, "01"), deleted, *forked, deleted, *forked]
    assert await logged(journal, "name") == [
        (number, *one) for number, one in enumerate(happened, 1)
    ]
    assert (await thread(journal, "name")).seq == len(happened)


async def test_a_retried_fork_gets_the_first_answer(
    journal: LineageJournal, lineage: Lineage, clock: Clock
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


async def test_a_refused_fork_is_not_remembered(journal: LineageJournal, lineage: Lineage) -> None:
    await refused(lineage.fork(TENANT, key("01"), "fork", "r"), Reason.CHECKPOINT_NOT_FOUND)
    await save(journal, draft("01"))
    assert (await lineage.fork(TENANT, key("01"), "fork", "r")).key == key("01", "fork")


# --- copies --------------------------------------------------------------------------------


async def test_a_copy_is_all_of_a_thread(journal: LineageJournal, lineage: Lineage) -> None:
    await interrupted(journal, agent_id="planner")
    await chain(journal, ["05", "06", "07"], parent_id="03", seeds=["05"])
    await journal.save_writes(TENANT, key("09"), [write("x", b"early")])
    before, times = await seen(journal), await created(journal, "t")
    assert await lineage.copy_thread(TENANT, "t", "copy", "r") == 7
    assert await seen(journal, "copy") == before
    assert await created(journal, "copy") == times
    assert await history(journal, key("07", "copy")) == await history(journal, key("07"))
    made = await thread(journal, "copy")
    assert (made.agent_id, made.head_id, made.seq) == ("planner", "07", 8)
    assert [one for *_, one in await logged(journal, "copy")] == [
        "01", "02", "03", "04", "05", "06", "07", "09"
    ]  # fmt: skip
    await save(journal, draft("09", "07", thread_id="copy"))
    [claimed] = (await seen(journal, "copy"))["", "09"].writes
    assert claimed.value.data == b"early"
    assert await lineage.copy_thread(TENANT, "t", "copy", "r") == 7
    for source, target in (("t", "copy"), ("t", "t")):
        await refused(lineage.copy_thread(TENANT, source, target, ""), Reason.THREAD_EXISTS)
    await refused(lineage.copy_thread(TENANT, "none", "new", ""), Reason.THREAD_NOT_FOUND)


async def created(journal: LineageJournal, thread_id: str) -> list[int]:
    query = CheckpointQuery(thread_id, replayed=True)
    page = await journal.read_page(TENANT, query, View.ENTRY, None, max_count=100, max_bytes=10**6)
    return [one.entry.created_us for one in page.checkpoints]


async def test_a_long_thread_is_copied(journal: LineageJournal, lineage: Lineage) -> None:
    ids = [f"{n:04}" for n in range(1100)]
    await save(
        journal,
        *(draft(one, ids[n - 1] if n else "", {"x": one.encode()}) for n, one in enumerate(ids)),
    )
    assert await lineage.copy_thread(TENANT, "t", "copy", "") == len(ids)
    assert await seen(journal, "copy") == await seen(journal)
    assert (await thread(journal, "copy")).seq == len(ids)


# --- values --------------------------------------------------------------------------------


async def rows_of(journal: LineageJournal, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    found = await journal.database.query(
        lambda connection: connection.execute(select(*(table.c[name] for name in columns))).all()
    )
    return [tuple(row) for row in found]


async def test_values_are_stored_once(journal: LineageJournal, lineage: Lineage) -> None:
    await save(journal, *(draft(f"0{n}", "", {"x": b"%d" % n}) for n in range(5)))
    before = await rows_of(journal, contents, "family", "digest")
    await lineage.fork(TENANT, key("04"), "fork", "")
    await lineage.copy_thread(TENANT, "fork", "copy", "")
    assert await rows_of(journal, contents, "family", "digest") == before
    assert {(await row_of(journal, one)).family for one in ("t", "fork", "copy")} == {before[0][0]}


async def test_a_fork_takes_few_statements_per_checkpoint(
    journal: LineageJournal, lineage: Lineage
) -> None:
    """What a batch writes of a table is one statement; what it reads grows by few per member."""
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


async def reads_of_a_fork(journal: LineageJournal, source: CheckpointKey) -> int:
    """Fork a checkpoint; return how many times that read."""
    statements: list[str] = []

    def work(batch: Batch) -> None:
        connection = batch.connection.connection.driver_connection
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(statements.append)
        fork(batch, TENANT, source, f"fork of {source}", {})
        batch.write_out()
        connection.set_trace_callback(None)

    await journal.database.transact(work)
    return sum(one.startswith("SELECT") for one in statements)


# --- what is certified ---------------------------------------------------------------------


async def held(journal: LineageJournal, thread_id: str) -> dict[str, tuple[int, list[bytes]]]:
    """Return for each checkpoint of a thread that is held by segments its number and these."""
    number = (await row_of(journal, thread_id)).number
    rows = await rows_of(journal, checkpoints, "thread", "checkpoint_id", "held")
    found = {row[1]: decode_held(row[2]) for row in rows if row[0] == number and row[2]}
    return {one: (found[one].seq, list(found[one].segments)) for one in found}


async def used(journal: LineageJournal, thread_id: str) -> set[bytes]:
    number = (await row_of(journal, thread_id)).number
    rows = await rows_of(journal, uses, "thread", "segment")
    return {segment for thread, segment in rows if thread == number}


async def test_a_copy_of_what_is_certified_is_held_by_the_same_segments(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01", "", {"x": b"1"}), draft("02", "01", {"x": b"2"}))
    first = await certify(journal, needs=["a member"])
    await journal.save_writes(TENANT, key("02"), [write("x", b"late")])
    second = await certify(journal)
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert await held(journal, "fork") == {"02": (1, [first, second])}
    assert await used(journal, "fork") == {first, second, sha("a member")}
    row = await row_of(journal, "fork")
    assert (row.dirty_bytes, row.dirty_since_us is not None) == (0, True)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await held(journal, "copy") == {"01": (1, [first]), "02": (2, [first, second])}


async def test_what_is_not_certified_is_stored_with_its_copy(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01", "", {"x": b"1"}))
    await lineage.fork(TENANT, key("01"), "of nothing certified", "")
    await certify(journal)
    await journal.save_writes(TENANT, key("01"), [write("x", b"late")])
    await lineage.fork(TENANT, key("01"), "with a late write", "")
    for target in ("of nothing certified", "with a late write"):
        assert await held(journal, target) == {}
        assert await used(journal, target) == set()
        assert (await row_of(journal, target)).dirty_bytes > 0


async def test_a_copy_is_not_held_by_what_was_lost(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"), draft("02", "01"))
    lost = await certify(journal)
    await save(journal, draft("03", "02"), draft("04", "03"))
    kept = await certify(journal)
    await hole(journal, "04", None)
    await hole(journal, "", lost)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await held(journal, "copy") == {"03": (3, [kept])}


async def hole(journal: LineageJournal, checkpoint_id: str, segment: bytes | None) -> None:
    number = (await row_of(journal)).number

    def work(batch: Batch) -> None:
        batch.connection.execute(
            insert(holes).values(
                tenant=TENANT,
                thread=number,
                checkpoint_ns="",
                checkpoint_id=checkpoint_id,
                seq=1,
                segment=segment,
                reason="",
                size=0,
                retry_us=0,
            )
        )

    await journal.database.transact(work)


async def test_a_copy_of_a_copy_is_held_before_it_is_certified(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01", writes=(write("x", b"w"),)))
    segment = await certify(journal)
    await lineage.fork(TENANT, key("01"), "u", "")
    await lineage.fork(TENANT, key("01", "u"), "v", "")
    assert await held(journal, "v") == {"01": (1, [segment])}
    await journal.save_writes(TENANT, key("01", "v"), [write("x", b"late", task="late")])
    await journal.set_label(TENANT, key("01", "v"), "label")
    await lineage.fork(TENANT, key("01", "v"), "w", "")
    assert await held(journal, "w") == {}


async def test_what_gets_another_delta_base_is_stored_with_its_copy(
    journal: LineageJournal, lineage: Lineage
) -> None:
    """A segment holds the base that its checkpoint had; ancestors are not in the fork."""
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    segment = await certify(journal)
    for checkpoint_id in ("01", "03"):
        await lineage.fork(TENANT, key(checkpoint_id), f"of {checkpoint_id}", "")
    assert await held(journal, "of 01") == {"01": (1, [segment])}
    assert await held(journal, "of 03") == {}
    again = await certify(journal, "of 03")
    await lineage.fork(TENANT, key("03", "of 03"), "again", "")
    assert await held(journal, "again") == {"03": (1, [again])}


# --- what was evicted ----------------------------------------------------------------------


async def test_a_held_copy_needs_nothing_that_was_evicted(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(
        journal,
        draft("01", "", {"x": b"old"}, writes=(write("x", b"w"),)),
        draft("02", "01", {"x": b"new"}),
    )
    segment = await certify(journal)
    await evict(journal, segment, b"old", b"w")
    await lineage.fork(TENANT, key("01"), "fork", "")
    loaded = await journal.load(TENANT, key("01", "fork"), View.FULL)
    assert loaded is not None
    assert evicted_digests(loaded)
    assert [place.sha256 for place in loaded.sources] == [segment]


async def test_a_copy_that_has_to_be_stored_asks_for_what_was_evicted(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["01"])
    segment = await certify(journal)
    gone = await evict(journal, segment, b"seed 01", b"w02", b"03", b"v03")
    with pytest.raises(ValuesEvicted) as caught:
        await lineage.fork(TENANT, key("03"), "fork", "r")
    assert caught.value.digests == gone.keys()
    assert [one.sha256 for one in caught.value.places] == [segment]
    assert await journal.thread(TENANT, "fork") is None
    some = {name: one for name, one in gone.items() if one.data != b"w02"}
    with pytest.raises(ValuesEvicted) as caught:
        await lineage.fork(TENANT, key("03"), "fork", "r", some)
    assert caught.value.digests == {digest(b"w02")}
    assert [one.sha256 for one in caught.value.places] == [segment]
    await lineage.fork(TENANT, key("03"), "fork", "r", gone)
    assert data_of(await journal.load(TENANT, key("03", "fork"), View.FULL)) == {"x": b"03"}
    assert [one.value.data for one in (await seen(journal, "fork"))["", "03"].writes] == [
        b"w03",
        b"v03",
    ]
    log = (("task of log", b"w01"), ("task of log", b"w02"))
    assert await history(journal, key("03", "fork")) == (b"seed 01", log)


async def test_a_fork_outlives_its_evicted_source(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    gone = await evict(journal, await certify(journal), b"seed 01", b"w01")
    await lineage.fork(TENANT, key("02"), "fork", "", gone)
    await journal.removal.delete_thread(TENANT, "t")
    await journal.removal.sweep(early_write_ttl_s=-1)
    assert await history(journal, key("02", "fork")) == (b"seed 01", (("task of log", b"w01"),))


async def test_evicted_writes_are_found_before_their_checkpoint_is_certified_again(
    journal: LineageJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01", writes=(write("x", b"w"),)), draft("02", "01"))
    first = await certify(journal)
    await journal.save_writes(TENANT, key("01"), [write("x", b"late", task="late")])
    second = await certify(journal)
    await evict(journal, first, b"w", b"late")
    await lineage.fork(TENANT, key("01"), "fork", "")
    await journal.set_label(TENANT, key("01"), "changed since")
    await journal.set_label(TENANT, key("01", "fork"), "changed since")
    for thread_id in ("t", "fork"):
        loaded = await journal.load(TENANT, key("01", thread_id), View.FULL)
        assert loaded is not None
        assert evicted_digests(loaded)
        assert {place.sha256 for place in loaded.sources} == {first, second}
