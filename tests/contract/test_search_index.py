"""The index follows the journal: whatever is saved is due, and what is due gets its document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, func, select, update

from tests.contract.conftest import JOURNALS, Clock
from tests.contract.journal_drafts import TENANT, by_digest, draft, key, refused
from tests.contract.search_kit import (
    ONE,
    drain,
    findable,
    indexed,
    look,
    make_searchable,
    rows_of,
    save,
    vectors_of,
)
from tests.contract.test_journal_properties import World
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.memories import MemoryState, pointer_of
from tuskpoint_server.domain.model import PruneStrategy, Value, View
from tuskpoint_server.journal.due import MAX_VALUES, MAX_VALUES_BYTES
from tuskpoint_server.journal.indexing import IndexRows
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_api import SnapshotDraft
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.schema import contents, documents, memories, vectors
from tuskpoint_server.journal.search_api import Document, Due
from tuskpoint_server.journal.snapshots import Snapshots


async def due_keys(journal: SqlJournal) -> list[tuple[str, bool]]:
    """Return what is due: the name of each checkpoint, and whether it is shown."""
    return [(str(one.key), one.shown) for one in await IndexRows(journal).due(1000)]


async def check_text(journal: SqlJournal) -> None:
    """Check that the full text says exactly what the documents say."""
    await journal.transact(
        lambda connection: connection.exec_driver_sql(
            "INSERT INTO search_text (search_text, rank) VALUES ('integrity-check', 1)"
        )
    )


async def count(journal: SqlJournal) -> dict[str, int]:
    def work(connection: Connection) -> dict[str, int]:
        return {
            table.name.removeprefix("search_"): connection.execute(
                select(func.count()).select_from(table)
            ).scalar_one()
            for table in (documents, vectors, memories)
        }

    return await journal.query(work)


# --- what is due ---------------------------------------------------------------------------


async def test_what_was_saved_is_due_the_oldest_first(journal: SqlJournal, clock: Clock) -> None:
    for one in ("02", "01", "03"):
        clock.advance(1)
        await save(journal, one, f"about {one}")
    index = IndexRows(journal)
    assert await due_keys(journal) == [("t:02", True), ("t:01", True), ("t:03", True)]
    assert [one.key.checkpoint_id for one in await index.due(2)] == ["02", "01"]
    assert [one.summary for one in await index.due(1)] == ["about 02"]
    assert await index.due_before(TENANT, clock.now_us) == 2
    assert await index.due_before(TENANT, clock.now_us + 1) == 3
    assert await index.due_before("another", clock.now_us + 1) == 0
    assert await index.due_now(TENANT) == (3, clock.now_us + 1)
    assert await index.due_now("another") == (0, 0)


async def test_what_was_journaled_before_the_clock_was_set_back_is_due_now(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, "01", "before")
    journaled_us = clock.now_us
    clock.advance(-60)
    await save(journal, "02", "after")
    assert await IndexRows(journal).due_now(TENANT) == (2, journaled_us + 1)


async def test_a_save_that_fails_leaves_nothing_due(journal: SqlJournal) -> None:
    missing = draft("01", "", (by_digest("x", b"never sent"),))
    await refused(journal.save_checkpoint(TENANT, missing), Reason.VALUES_MISSING)
    assert await due_keys(journal) == []


async def test_what_changes_is_due_again_and_nothing_else(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, "01", "first", data=b"a")
    await save(journal, "02", "second", data=b"a")
    assert await drain(journal) == 2
    clock.advance(1)
    await save(journal, "01", "first", data=b"a")
    await journal.set_label(TENANT, key("01"), "named")
    assert await due_keys(journal) == []
    await save(journal, "01", "first", data=b"b")
    await save(journal, "02", "changed", data=b"a")
    assert sorted(await due_keys(journal)) == [("t:01", True), ("t:02", True)]


async def test_the_plan_comes_first_then_what_changed(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"same", "z": b"old"}))
    channels = {"a": b"same", "b": b"added", "current_plan": b"same plan", "z": b"new"}
    await journal.save_checkpoint(TENANT, draft("02", "01", channels))
    await journal.save_checkpoint(TENANT, draft("03", "02", {**channels, "a": b"next"}))
    due = {one.key.checkpoint_id: one.channels for one in await IndexRows(journal).due(10)}
    assert due["01"] == (("a", Value("msgpack", b"same")), ("z", Value("msgpack", b"old")))
    assert [name for name, _ in due["02"]] == ["current_plan", "b", "z", "a"]
    assert [name for name, _ in due["03"]] == ["current_plan", "a", "b", "z"]


async def test_values_are_read_whole_and_up_to_a_bound(journal: SqlJournal) -> None:
    small, half, large = b"s", b"h" * (MAX_VALUES_BYTES // 2), b"l" * (MAX_VALUES_BYTES + 1)
    channels = {"a": large, "b": half, "c": half + b"!", "d": half[:-1], "e": small, "f": small}
    await journal.save_checkpoint(TENANT, draft("01", "", channels))
    [due] = await IndexRows(journal).due(10)
    assert [name for name, _ in due.channels] == ["b", "d", "e"]
    many = {f"{number:04d}": b"%d" % number for number in range(MAX_VALUES + 1)}
    await journal.save_checkpoint(TENANT, draft("02", "", many))
    assert len((await IndexRows(journal).due(10))[1].channels) == MAX_VALUES


async def test_channels_of_langgraphs_own_take_no_room(journal: SqlJournal) -> None:
    large = b"l" * (MAX_VALUES_BYTES // 2 + 1)
    internal = {"__pregel_tasks": large, "__start__": large + b"!", "branch:to:a": large + b"?"}
    told = {"__root__": b"root", "answer": large + b"."}
    await journal.save_checkpoint(TENANT, draft("01", "", {**internal, **told}))
    [due] = await IndexRows(journal).due(10)
    assert [name for name, _ in due.channels] == ["__root__", "answer"]
    many = {f"branch:to:{number}": b"%d" % number for number in range(MAX_VALUES)}
    await journal.save_checkpoint(TENANT, draft("02", "", {**many, "x": b"told"}))
    due = (await IndexRows(journal).due(10))[1]
    assert due.channels == (("x", Value("msgpack", b"told")),)


async def test_values_that_were_evicted_are_left_out(journal: SqlJournal) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"gone", "b": b"here"}))
    await journal.transact(
        lambda connection: connection.execute(
            update(contents).where(contents.c.data == b"gone").values(data=None)
        )
    )
    [due] = await IndexRows(journal).due(10)
    assert due.channels == (("b", Value("msgpack", b"here")),)


# --- nothing is missed ---------------------------------------------------------------------


async def test_copies_are_due_in_the_transaction_that_makes_them(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, "01", "saved one")
    await save(journal, "02", "saved two")
    await drain(journal)
    clock.advance(1)
    lineage, snapshots = Lineage(journal), Snapshots(journal)
    await lineage.fork(TENANT, key("01"), "fork", "")
    await journal.copy_thread(TENANT, "t", "copy", "")
    closure = await lineage.closure(TENANT, key("02"))
    assert closure is not None
    await lineage.adopt(TENANT, closure, "ab" * 32, "adopter", "", "")
    assert await due_keys(journal) == [
        ("fork:01", True),
        ("copy:01", True),
        ("copy:02", True),
        ("adopter:02", True),
    ]
    await drain(journal)
    rolled = await lineage.rollback(TENANT, key("01"), "", None, {})
    assert await due_keys(journal) == [(str(rolled.key), True)]
    snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    assert {shown for name, shown in await due_keys(journal) if name.startswith("$")} == {False}
    [restored] = await snapshots.restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=False, request_id="", supplied={}
    )
    assert (str(restored.key), True) in await due_keys(journal)
    await drain(journal)
    assert await indexed(journal) == await findable(journal)
    assert await due_keys(journal) == []


async def test_what_was_due_before_a_crash_is_due_after_it(tmp_path: Path) -> None:
    clock = Clock()
    journal = await JOURNALS["sqlite"](tmp_path, clock)
    await save(journal, "01", "saved one")
    index = IndexRows(journal)
    made = [Document(one) for one in await index.due(10)]
    await journal.close()  # before the documents were stored
    again = await JOURNALS["sqlite"](tmp_path, clock)
    assert await due_keys(again) == [("t:01", True)]
    assert await look(again, "saved") == []
    assert await IndexRows(again).store(made, remember=False) == 1
    assert await IndexRows(again).store(made, remember=False) == 0
    await again.close()
    last = await JOURNALS["sqlite"](tmp_path, clock)
    assert await look(last, "saved") == [key("01")]
    assert await due_keys(last) == []
    await last.close()


async def _change(what: str, journal: SqlJournal, thread_id: str) -> None:
    """Make a change to a thread, if it is one that can be made."""
    lineage, snapshots = Lineage(journal), Snapshots(journal)
    other = thread_id[:-1] + ("b" if thread_id.endswith("a") else "a")
    if what == "delete":
        await journal.delete_thread(TENANT, thread_id)
    elif what == "prune":
        await journal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
    elif what in ("hide", "show"):
        await make_searchable(journal, thread_id, what == "show")
    elif what == "copy":
        await journal.copy_thread(TENANT, thread_id, other, "")
    elif what == "fork":
        await lineage.fork(TENANT, key("", thread_id), other, "")
    elif what == "roll back":
        await lineage.rollback(TENANT, key("", thread_id), "", None, {})
    elif what == "adopt":
        closure = await lineage.closure(TENANT, key("", thread_id))
        if closure is not None:
            await lineage.adopt(TENANT, closure, "ab" * 32, other, "", "")
    elif what in ("restore", "restore back"):
        snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft((thread_id,)), "")
        await snapshots.restore_snapshot(
            TENANT,
            snapshot.snapshot_id,
            rollback=what == "restore back",
            request_id="",
            supplied={},
        )
    elif what == "sweep":
        await IndexRows(journal).sweep()
    else:
        number, _, text = what.partition(" ")
        channels = {"log": b"seed"} if number == "01" else {}
        parent = "01" if number != "01" else ""
        made = draft(number, parent, channels, thread_id=thread_id, delta=("log",))
        await journal.save_checkpoint(TENANT, replace(made, summary=f"saved {text}"))


CHANGES = (
    *(f"{number} {text}" for number in ("01", "02", "03") for text in ("this", "that")),
    *("delete", "prune", "hide", "show", "copy", "fork", "roll back", "adopt"),
    *("restore", "restore back", "sweep", "drain", "take", "store"),
)


@pytest.fixture(scope="module", params=JOURNALS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    opened = World(request.param)
    yield opened
    opened.close()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from("ab")), max_size=12))
def test_after_any_changes_the_documents_are_those_that_may_be_found(
    world: World, steps: list[tuple[str, str]]
) -> None:
    prefix = world.next_prefix()

    async def run(journal: SqlJournal) -> None:
        index, taken = IndexRows(journal), list[Due]()
        await _change("01 this", journal, prefix + "a")
        for what, thread in steps:
            world.clock.advance(0.001)
            if what == "drain":
                await drain(journal)
            elif what == "take":
                taken = await index.due(5)
            elif what == "store":  # perhaps long after they were taken
                await index.store([Document(one) for one in taken], remember=True)
            else:
                try:
                    await _change(what, journal, prefix + thread)
                except Refusal:
                    continue
        await drain(journal)
        may_be_found = await findable(journal)
        assert await indexed(journal) >= may_be_found
        said = await rows_of(journal, documents, "tenant", "thread_id", "checkpoint_id", "summary")
        for tenant, thread_id, checkpoint_id, summary in said:
            if (tenant, thread_id, "", checkpoint_id) in may_be_found:
                entry = await journal.load(
                    TENANT, key(str(checkpoint_id), str(thread_id)), View.ENTRY
                )
                assert entry is not None
                assert entry.entry.summary == summary
        await index.sweep()
        assert await indexed(journal) == may_be_found
        assert await due_keys(journal) == []
        await check_text(journal)

    world.run(run(world.journal))


# --- storing -------------------------------------------------------------------------------


async def test_a_document_of_earlier_content_is_not_stored(
    journal: SqlJournal, clock: Clock
) -> None:
    index = IndexRows(journal)
    await save(journal, "01", "saved before")
    [due] = await index.due(10)
    clock.advance(1)
    await save(journal, "01", "saved after")
    assert await index.store([Document(due)], remember=True) == 0
    assert await count(journal) == {"documents": 0, "vectors": 0, "memories": 0}
    assert await due_keys(journal) == [("t:01", True)]


async def _save_again(journal: SqlJournal) -> None:
    await save(journal, "01", "saved after", data=b"after")


async def _prune_and_save_again(journal: SqlJournal) -> None:
    await save(journal, "02", "the latest")
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await _save_again(journal)


async def _delete_and_save_again(journal: SqlJournal) -> None:
    await journal.delete_thread(TENANT, "t")
    await _save_again(journal)


@pytest.mark.parametrize(
    "change",
    [_save_again, _prune_and_save_again, _delete_and_save_again],
    ids=lambda it: it.__name__,
)
@pytest.mark.parametrize("seconds", [0, -60])
async def test_a_clock_that_stands_or_goes_back_leaves_no_earlier_document(
    journal: SqlJournal,
    clock: Clock,
    seconds: float,
    change: Callable[[SqlJournal], Coroutine[None, None, None]],
) -> None:
    index = IndexRows(journal)
    await save(journal, "01", "saved before", data=b"before")
    made = [Document(one, "before") for one in await index.due(10)]
    clock.advance(seconds)
    await change(journal)
    assert await index.store(made, remember=True) == 0
    await drain(journal)
    assert await look(journal, "before") == []
    assert await look(journal, '"saved after"') == [key("01")]


async def test_a_later_document_takes_the_place_of_an_earlier_one(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, "01", "saved apples")
    await drain(journal, body=lambda due: "orchard")
    [(before,)] = await rows_of(journal, documents, "number")
    clock.advance(1)
    await save(journal, "01", "saved pears")
    await drain(journal, body=lambda due: "garden")
    assert await look(journal, "apples") == await look(journal, "orchard") == []
    assert await look(journal, "pears") == await look(journal, "garden") == [key("01")]
    [(after,)] = await rows_of(journal, documents, "number")
    assert after != before
    await check_text(journal)


async def test_what_went_or_was_hidden_meanwhile_gets_no_document(
    journal: SqlJournal, clock: Clock
) -> None:
    index = IndexRows(journal)
    await save(journal, "01", "saved", thread_id="deleted")
    await save(journal, "01", "saved", thread_id="silent")
    made = [Document(one) for one in await index.due(10)]
    await journal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    assert await index.store(made, remember=True) == 0
    assert await due_keys(journal) == [("silent:01", False)]
    unshown = [Document(one) for one in await index.due(10)]
    await make_searchable(journal, "silent", True)  # at the same time, by the clock
    await index.store(unshown, remember=True)
    assert await due_keys(journal) == [("silent:01", True)]
    await drain(journal)
    assert await indexed(journal) == {(TENANT, "silent", "", "01")}


async def test_a_thread_that_is_not_searchable_is_crossed_off(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, "01", "saved one")
    await drain(journal)
    await make_searchable(journal, "t", False)
    clock.advance(1)
    await save(journal, "02", "saved two")
    await save(journal, "01", "saved anew")
    assert await drain(journal) == 0
    assert await due_keys(journal) == []
    assert await indexed(journal) == set()
    clock.advance(1)
    await make_searchable(journal, "t", True)
    assert await drain(journal) == 2
    assert sorted(await look(journal, "saved"), key=str) == [key("01"), key("02")]


# --- sweeping ------------------------------------------------------------------------------


async def test_a_sweep_removes_what_may_not_be_found_and_nothing_else(
    journal: SqlJournal, clock: Clock
) -> None:
    index = IndexRows(journal)
    for name in ("kept", "deleted", "silent"):
        await save(journal, "01", f"saved {name}", thread_id=name, vector=ONE)
        await save(journal, f"02-{name}", f"saved {name}", thread_id=name, vector=ONE)
    await save(journal, "03", "due, not indexed yet", thread_id="kept", vector=ONE)
    due = [Document(one) for one in await index.due(10) if one.key.checkpoint_id != "03"]
    assert await index.store(due, remember=True) == 6
    assert await index.sweep() == 0
    await journal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    assert await count(journal) == {"documents": 6, "vectors": 5, "memories": 6}
    # Of both threads documents and memories; vectors went with the checkpoints.
    assert await index.sweep() == 2 * (2 + 1) + 2
    assert await count(journal) == {"documents": 2, "vectors": 3, "memories": 4}
    assert await indexed(journal) == {(TENANT, "kept", "", one) for one in ("01", "02-kept")}
    assert set(await vectors_of(journal)) == {"kept:01", "kept:02-kept", "kept:03"}
    assert await index.sweep() == 0
    await check_text(journal)


async def test_a_sweep_leaves_memories_that_are_under_way(journal: SqlJournal) -> None:
    for state in MemoryState:
        await save(journal, f"0{int(state)}", f"saved {state}", thread_id="gone")
    await drain(journal, remember=True)

    def set_states(connection: Connection) -> None:
        for state in MemoryState:
            pointer = pointer_of(TENANT, "", f"0{int(state)}")
            connection.execute(
                update(memories).where(memories.c.pointer == pointer).values(state=int(state))
            )

    await journal.transact(set_states)
    await journal.delete_thread(TENANT, "gone")
    await IndexRows(journal).sweep()
    left = {state for (state,) in await rows_of(journal, memories, "state")}
    assert left == {MemoryState.SENDING, MemoryState.SENT}


async def test_a_sweep_takes_any_number_of_turns(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuskpoint_server.journal.indexing.DROPPED_AT_ONCE", 2)
    for number in range(5):
        await save(journal, f"0{number}", "saved", thread_id="gone")
    await save(journal, "01", "saved")
    await drain(journal)
    await journal.delete_thread(TENANT, "gone")
    assert await IndexRows(journal).sweep() == 5
    assert await indexed(journal) == {(TENANT, "t", "", "01")}
