"""The index follows the log: what changes is due, and the watermark moves with its document."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, func, select, update

from tests.contract.search.kit import (
    ONE,
    Rooms,
    World,
    drain,
    due,
    due_keys,
    findable,
    found,
    indexed,
    look,
    make_searchable,
    open_rooms,
    rows_of,
    save,
    vectors_of,
    watermarks,
)
from tests.kit.drafts import TENANT, by_digest, draft, key, refused, value, write
from tests.kit.journal import Clock
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.limits import KIB
from tuskpoint_server.domain.model import Value
from tuskpoint_server.domain.search import MemoryState, pointer_of
from tuskpoint_server.domain.snapshots import THREADS
from tuskpoint_server.domain.threads import PruneStrategy
from tuskpoint_server.journal.database.overlay import Batch
from tuskpoint_server.journal.database.schema import (
    changes,
    checkpoints,
    contents,
    documents,
    memories,
    threads,
    vectors,
)
from tuskpoint_server.journal.lineage.snapshots import SnapshotDraft
from tuskpoint_server.journal.search.following import Backlog, Stretch
from tuskpoint_server.journal.search.searched_values import MAX_VALUES, MAX_VALUES_BYTES, Document


async def check_text(journal: Rooms) -> None:
    """Check that the full text is sound, and has the text of all documents and no other."""
    await journal.database.transact(
        lambda batch: batch.connection.exec_driver_sql(
            "INSERT INTO search_text (search_text) VALUES ('integrity-check')"
        )
    )
    numbers = {number for (number,) in await rows_of(journal, documents, "number")}
    assert set(await summaries(journal)) == numbers


async def summaries(journal: Rooms) -> dict[object, object]:
    """Return what the full text has as summaries, by number."""
    return await journal.database.query(
        lambda connection: dict(
            connection.exec_driver_sql("SELECT rowid, summary FROM search_text").all()
        )
    )


async def count(journal: Rooms) -> dict[str, int]:
    def work(connection: Connection) -> dict[str, int]:
        return {
            table.name.removeprefix("search_"): connection.execute(
                select(func.count()).select_from(table)
            ).scalar_one()
            for table in (documents, vectors, memories)
        }

    return await journal.database.query(work)


# --- what is due ---------------------------------------------------------------------------


async def test_what_was_saved_is_due_the_oldest_thread_first(journal: Rooms, clock: Clock) -> None:
    for thread_id, one in (("b", "02"), ("a", "01"), ("b", "03")):
        clock.advance(1)
        await save(journal, one, f"about {one}", thread_id=thread_id)
    assert await due_keys(journal) == ["b:02", "b:03", "a:01"]
    assert [one.summary for one in await due(journal)] == ["about 02", "about 03", "about 01"]
    assert await due_keys(journal) == await due_keys(journal)
    assert [str(one.key) for one in await due(journal, 1)] == ["b:02"]
    [backlog] = await journal.index.backlog()
    assert backlog == Backlog(TENANT, 3, clock.now_us - 2_000_000)
    numbers = {row[0]: row[1] for row in await rows_of(journal, threads, "number", "thread_id")}
    now = await journal.index.now(TENANT)
    assert {numbers[number]: seq for number, seq in now.items()} == {"a": 1, "b": 2}
    assert await journal.index.now("another") == {}


async def test_a_save_that_fails_leaves_nothing_due(journal: Rooms) -> None:
    missing = draft("01", "", (by_digest("x", b"never sent"),))
    await refused(journal.save_checkpoint(TENANT, missing), Reason.VALUES_MISSING)
    assert await due_keys(journal) == []


async def test_what_changes_is_due_again_and_nothing_else(journal: Rooms, clock: Clock) -> None:
    await save(journal, "01", "first", data=b"a")
    await save(journal, "02", "second", data=b"a")
    assert await drain(journal) == 2
    clock.advance(1)
    await save(journal, "01", "first", data=b"a")
    assert await due_keys(journal) == []
    await save(journal, "01", "first", data=b"b")
    await save(journal, "02", "changed", data=b"a")
    await save(journal, "02", "changed again", data=b"a")
    assert await due_keys(journal) == ["t:01", "t:02"]
    assert await drain(journal) == 2
    assert await look(journal, "again") == [key("02")]


async def test_a_label_leaves_a_checkpoint_findable(journal: Rooms) -> None:
    await save(journal, "01", "first", data=b"a")
    await drain(journal)
    await journal.set_label(TENANT, key("01"), "named")
    assert await drain(journal) == 1
    assert await look(journal, "first") == [key("01")]
    await check_text(journal)


async def test_writes_move_the_watermark_and_make_no_document(journal: Rooms) -> None:
    await save(journal, "01", "first")
    await drain(journal)
    await journal.save_writes(TENANT, key("01"), [write("a", b"late")])
    await journal.save_writes(TENANT, key("02"), [write("a", b"early")])
    assert await due_keys(journal) == []
    assert await drain(journal) == 0
    assert (await watermarks(journal))["t"] == (3, 3, None)


async def test_changes_that_search_need_not_know_are_passed_at_once(journal: Rooms) -> None:
    await save(journal, "01", "first")
    await drain(journal)
    await journal.removal.set_retention(TENANT, "t", 3600)
    await journal.save_writes(TENANT, key("02"), [write("a", b"early")])
    assert (await watermarks(journal))["t"] == (3, 3, None)


async def test_the_watermark_moves_with_the_documents(journal: Rooms, clock: Clock) -> None:
    for number in range(1, 4):
        await save(journal, f"0{number}", "saved")
    stretch = await journal.index.take(2)
    began_us = clock.now_us
    clock.advance(1)
    await save(journal, "04", "saved")
    assert await journal.index.store(stretch, stretch.due, remember=False) == 2
    assert (await watermarks(journal))["t"] == (2, 4, began_us)
    assert await due_keys(journal) == ["t:03", "t:04"]
    stretch = await journal.index.take(1)
    await journal.index.store(stretch, stretch.due, remember=False)
    assert (await watermarks(journal))["t"] == (3, 4, clock.now_us)
    await drain(journal)
    assert (await watermarks(journal))["t"] == (4, 4, None)
    assert await journal.index.backlog() == []


async def test_the_plan_comes_first_then_what_is_new(journal: Rooms) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"same", "z": b"old"}))
    channels = {"a": b"same", "b": b"added", "current_plan": b"same plan", "z": b"new"}
    await journal.save_checkpoint(TENANT, draft("02", "01", channels))
    await journal.save_checkpoint(TENANT, draft("03", "02", {**channels, "a": b"next"}))
    by_id = {one.key.checkpoint_id: one.channels for one in await due(journal)}
    assert by_id["01"] == (("a", Value("msgpack", b"same")), ("z", Value("msgpack", b"old")))
    assert [name for name, _ in by_id["02"]] == ["current_plan", "b", "z"]
    assert [name for name, _ in by_id["03"]] == ["current_plan", "a"]


async def test_of_a_value_that_grew_only_what_is_new_is_indexed(journal: Rooms) -> None:
    for number in range(1, 40):
        said = [f"message{at} " + "word " * 100 for at in range(number)]
        before = f"{number - 1:02d}" if number > 1 else ""
        made = draft(f"{number:02d}", before, {"log": as_json(said), "note": as_json("noted")})
        await journal.save_checkpoint(TENANT, made)
    by_id = {one.key.checkpoint_id: dict(one.channels) for one in await due(journal)}
    assert sorted(by_id["01"]) == ["log", "note"]
    assert list(by_id["39"]) == ["log"]
    assert json.loads(by_id["39"]["log"].data)[0].startswith("message38 ")
    await drain(journal)
    for at in (0, 7, 38):
        assert await look(journal, f"message{at}") == [key(f"{at + 1:02d}")]
    assert await look(journal, "noted") == [key("01")]
    assert (await journal.finding.standing(TENANT)).truncated == 0


async def test_what_removed_checkpoints_said_is_found_where_it_is_still_held(
    journal: Rooms,
) -> None:
    log = ["walrus"]
    await journal.save_checkpoint(TENANT, draft("01", "", {"log": as_json(log)}))
    for number, word in enumerate(("seal", "otter"), 2):
        log.append(word)
        made = draft(f"0{number}", f"0{number - 1}", {"log": as_json(log)})
        await journal.save_checkpoint(TENANT, made)
    await drain(journal)
    assert await look(journal, "walrus") == [key("01")]
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await drain(journal)
    for word in log:
        assert await look(journal, word) == [key("03")]


async def test_channels_of_langgraphs_own_take_no_room(journal: Rooms) -> None:
    large = b"l" * (MAX_VALUES_BYTES // 2 + 1)
    internal = {"__pregel_tasks": large, "__start__": large + b"!", "branch:to:a": large + b"?"}
    by_id = {"__root__": b"root", "answer": large + b"."}
    await journal.save_checkpoint(TENANT, draft("01", "", {**internal, **by_id}))
    [one] = await due(journal)
    assert [name for name, _ in one.channels] == ["__root__", "answer"]
    assert not one.truncated
    many = {f"branch:to:{number}": b"%d" % number for number in range(MAX_VALUES)}
    await journal.save_checkpoint(TENANT, draft("02", "", {**many, "x": b"told"}))
    one = (await due(journal))[1]
    assert one.channels == (("x", Value("msgpack", b"told")),)


async def test_values_that_were_evicted_are_left_out(journal: Rooms) -> None:
    await journal.save_checkpoint(TENANT, draft("01", "", {"a": b"gone", "b": b"here"}))
    await journal.database.transact(
        lambda batch: batch.connection.execute(
            update(contents)
            .where(contents.c.size == 4, contents.c.data == b"gone")
            .values(data=None)
        )
    )
    [one] = await due(journal)
    assert [name for name, _ in one.channels] in (["b"], ["a", "b"])


# --- long values ---------------------------------------------------------------------------


def as_json(thing: object) -> Value:
    return Value("json", json.dumps(thing).encode())


def data_of_json(one: object) -> str:
    return " ".join(value.data.decode() for _, value in one.channels)  # type: ignore[attr-defined]


async def test_a_value_of_more_than_32_kib_is_found_by_its_latest_part(journal: Rooms) -> None:
    messages = [f"message {number} {'word ' * 20}" for number in range(1000)]
    long = {"messages": as_json([*messages, "the last of them all"])}
    assert len(long["messages"].data) > 32 * KIB
    await journal.save_checkpoint(TENANT, draft("01", "", long, summary="long"))
    await journal.save_checkpoint(TENANT, draft("02", "", {"a": as_json("short")}, summary="short"))
    first, second = await due(journal)
    assert (first.truncated, second.truncated) == (True, False)
    assert 16 * KIB < len(first.channels[0][1].data) <= MAX_VALUES_BYTES
    await drain(journal, body=data_of_json)
    [result] = await found(journal, '"the last of them all"')
    assert (result.key, result.truncated) == (key("01"), True)
    assert await look(journal, '"message 999"') == [key("01")]
    assert await look(journal, '"message 1"') == []
    [other] = await found(journal, "short")
    assert not other.truncated
    assert (await journal.finding.standing(TENANT)).truncated == 1
    await save(journal, "01", "long no more")
    await drain(journal)
    assert (await journal.finding.standing(TENANT)).truncated == 0


async def test_a_long_channel_leaves_room_for_the_others(journal: Rooms) -> None:
    large = as_json(["word"] * 50_000)
    channels = {"a": large, "b": as_json(["other"] * 50_000), "c": as_json("small")}
    await journal.save_checkpoint(TENANT, draft("01", "", channels))
    [one] = await due(journal)
    by_id = dict(one.channels)
    assert by_id["c"] == as_json("small")
    assert sum(len(value.data) for value in by_id.values()) <= MAX_VALUES_BYTES
    assert min(len(by_id["a"].data), len(by_id["b"].data)) > MAX_VALUES_BYTES // 3
    assert one.truncated


async def test_no_more_channels_are_read_than_a_bound(journal: Rooms) -> None:
    many = {f"{number:04d}": b"%d" % number for number in range(MAX_VALUES + 1)}
    await journal.save_checkpoint(TENANT, draft("01", "", many))
    [one] = await due(journal)
    assert len(one.channels) == MAX_VALUES
    assert one.truncated


# --- delta channels ------------------------------------------------------------------------


async def test_of_a_delta_channel_the_new_writes_are_indexed(journal: Rooms) -> None:
    seed, step = value(b"\x91\xa4seed"), b"\x91\xa4step"
    await journal.save_checkpoint(TENANT, draft("01", "", {"log": seed}, delta=("log",)))
    await journal.save_writes(TENANT, key("01"), [write("log", step)])
    await journal.save_checkpoint(TENANT, draft("02", "01", {}, delta=("log",)))
    await journal.save_writes(TENANT, key("02"), [write("log", b"\x91\xa4next")])
    await journal.save_checkpoint(TENANT, draft("03", "02", {}, delta=("log",)))
    by_id = {one.key.checkpoint_id: one for one in await due(journal)}
    assert dict(by_id["01"].channels) == {"log": seed}
    assert by_id["02"].channels[0][1].data.endswith(b"\x00\x00\x01\x91\xa4step")
    assert by_id["03"].channels[0][1].data.endswith(b"\x00\x00\x01\x91\xa4next")
    assert not any(one.truncated for one in by_id.values())
    await drain(journal)
    assert await look(journal, "step") == [key("02")]
    assert await look(journal, "next") == [key("03")]
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await drain(journal)
    assert [await look(journal, word) for word in ("seed", "step", "next")] == [[key("03")]] * 3


# --- nothing is missed ---------------------------------------------------------------------


async def test_copies_are_due_in_the_transaction_that_makes_them(
    journal: Rooms, clock: Clock
) -> None:
    await save(journal, "01", "saved one")
    await save(journal, "02", "saved two")
    await drain(journal)
    clock.advance(1)
    lineage, snapshots = journal.lineage, journal.snapshots
    await lineage.fork(TENANT, key("01"), "fork", "")
    clock.advance(1)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    clock.advance(1)
    closure = await lineage.closure(TENANT, key("02"))
    assert closure is not None
    await lineage.adopt(TENANT, closure, "ab" * 32, "adopter", "", "")
    assert await due_keys(journal) == ["fork:01", "copy:01", "copy:02", "adopter:02"]
    await drain(journal)
    rolled = await lineage.rollback(TENANT, key("01"), "", None)
    assert await due_keys(journal) == [str(rolled.key)]
    snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    assert not any(name.startswith("$") for name in await due_keys(journal))
    [restored] = await snapshots.restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=False, request_id=""
    )
    assert str(restored.key) in await due_keys(journal)
    await drain(journal)
    assert await indexed(journal) == await findable(journal)
    assert await due_keys(journal) == []
    assert all(
        since is None
        for thread_id, (_, _, since) in (await watermarks(journal)).items()
        if not thread_id.startswith(THREADS)
    )


async def test_what_was_due_before_a_crash_is_due_after_it(tmp_path: Path) -> None:
    clock = Clock()
    journal = await open_rooms(tmp_path, clock)
    await save(journal, "01", "saved one")
    stretch = await journal.index.take(10)
    made = list(stretch.due)
    await journal.database.close()  # before the documents were stored
    again = await open_rooms(tmp_path, clock)
    assert await due_keys(again) == ["t:01"]
    assert await look(again, "saved") == []
    assert await again.index.store(stretch, made, remember=False) == 1
    assert await again.index.store(stretch, made, remember=False) == 0
    await again.database.close()
    last = await open_rooms(tmp_path, clock)
    assert await look(last, "saved") == [key("01")]
    assert await due_keys(last) == []
    await last.database.close()


async def test_a_thread_whose_log_was_swept_is_gone_through_by_key(journal: Rooms) -> None:
    """A server without search sweeps changes that no index has followed."""
    for number in range(10):
        await save(journal, f"0{number}", "saved", thread_id="long")
    await save(journal, "01", "saved", thread_id="short")

    def sweep(batch: Batch) -> None:
        batch.connection.execute(changes.delete().where(changes.c.seq <= 8))
        batch.connection.execute(update(threads).values(compacted_seq=8))
        batch.logs.clear()

    await journal.database.transact(sweep)
    assert [one.checkpoints for one in await journal.index.backlog()] == [11]
    stretch = await journal.index.take(4)
    await journal.index.store(stretch, stretch.due, remember=False)
    await save(journal, "11", "saved meanwhile", thread_id="long")
    await save(journal, "00", "saved anew", thread_id="long")
    await drain(journal, limit=4)
    assert await indexed(journal) == await findable(journal)
    assert await look(journal, "anew") == [key("00", "long")]
    assert len(await look(journal, "saved", limit=100)) == 12
    assert {(low, since) for low, _, since in (await watermarks(journal)).values()} == {
        (12, None),
        (1, None),
    }


async def test_a_walk_that_a_restart_ends_begins_again(
    tmp_path: Path,
) -> None:
    clock = Clock()
    journal = await open_rooms(tmp_path, clock)
    for number in range(6):
        await save(journal, f"0{number}", "saved")
    await make_searchable(journal, "t", False)
    await drain(journal)
    await make_searchable(journal, "t", True)
    stretch = await journal.index.take(2)
    assert 0 < len(stretch.due) < 6
    await journal.index.store(stretch, stretch.due, remember=False)
    await journal.database.close()
    again = await open_rooms(tmp_path, clock)
    assert await drain(again) == 6
    assert len(await look(again, "saved")) == 6
    await again.database.close()


async def test_a_walk_keeps_no_other_thread_waiting(journal: Rooms, clock: Clock) -> None:
    for number in range(20):
        await save(journal, f"{number:02d}", "saved", thread_id="walked")
    await make_searchable(journal, "walked", False)
    await drain(journal)
    await make_searchable(journal, "walked", True)
    clock.advance(1)
    await save(journal, "01", "saved", thread_id="other")
    stretch = await journal.index.take(4)
    assert "other:01" in [str(one.key) for one in stretch.due]
    assert len(stretch.due) <= 8


async def _change(what: str, journal: Rooms, thread_id: str) -> None:
    """Make a change to a thread, if it is one that can be made."""
    lineage, snapshots = journal.lineage, journal.snapshots
    other = thread_id[:-1] + ("b" if thread_id.endswith("a") else "a")
    if what == "delete":
        await journal.removal.delete_thread(TENANT, thread_id)
    elif what == "prune":
        await journal.removal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
    elif what in ("hide", "show"):
        await make_searchable(journal, thread_id, what == "show")
    elif what == "copy":
        await journal.lineage.copy_thread(TENANT, thread_id, other, "")
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
        await journal.index.sweep()
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


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    opened = World()
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

    async def run(journal: Rooms) -> None:
        index, taken = journal.index, Stretch()
        await _change("01 this", journal, prefix + "a")
        for what, thread in steps:
            world.clock.advance(0.001)
            if what == "drain":
                await drain(journal)
            elif what == "take":
                taken = await index.take(5)
            elif what == "store":  # perhaps long after they were taken
                await index.store(taken, taken.due, remember=True)
            else:
                try:
                    await _change(what, journal, prefix + thread)
                except Refusal:
                    continue
        await drain(journal)
        may_be_found = await findable(journal)
        assert await indexed(journal) >= may_be_found
        await index.sweep()
        assert await indexed(journal) == may_be_found
        said = await summaries(journal)
        for number, summary in await rows_of(journal, checkpoints, "number", "summary"):
            assert said.get(number, summary) == summary
        assert await due_keys(journal) == []
        await check_text(journal)

    world.run(run(world.journal))


# --- storing -------------------------------------------------------------------------------


async def take(journal: Rooms, body: str = "") -> tuple[Stretch, list[Document]]:
    """Return what is due with a document for each."""
    stretch = await journal.index.take(100)
    return stretch, [replace(one, body=body) for one in stretch.due]


async def test_a_document_of_earlier_content_is_not_stored(journal: Rooms, clock: Clock) -> None:
    await save(journal, "01", "saved before")
    stretch, made = await take(journal)
    clock.advance(1)
    await save(journal, "01", "saved after")
    assert await journal.index.store(stretch, made, remember=True) == 0
    assert await count(journal) == {"documents": 0, "vectors": 0, "memories": 0}
    assert await due_keys(journal) == ["t:01"]


async def _save_again(journal: Rooms) -> None:
    await save(journal, "01", "saved after", data=b"after")


async def _prune_and_save_again(journal: Rooms) -> None:
    await save(journal, "02", "the latest")
    await journal.removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await _save_again(journal)


async def _delete_and_save_again(journal: Rooms) -> None:
    await journal.removal.delete_thread(TENANT, "t")
    await _save_again(journal)


@pytest.mark.parametrize(
    "change",
    [_save_again, _prune_and_save_again, _delete_and_save_again],
    ids=lambda it: it.__name__,
)
@pytest.mark.parametrize("seconds", [0, -60])
async def test_a_clock_that_stands_or_goes_back_leaves_no_earlier_document(
    journal: Rooms,
    clock: Clock,
    seconds: float,
    change: Callable[[Rooms], Coroutine[None, None, None]],
) -> None:
    await save(journal, "01", "saved before", data=b"before")
    stretch, made = await take(journal, "before")
    clock.advance(seconds)
    await change(journal)
    assert await journal.index.store(stretch, made, remember=True) == 0
    await drain(journal)
    assert await look(journal, "before") == []
    assert await look(journal, '"saved after"') == [key("01")]


async def test_a_later_document_takes_the_place_of_an_earlier_one(
    journal: Rooms, clock: Clock
) -> None:
    await save(journal, "01", "saved apples")
    await drain(journal, body=lambda one: "orchard")
    before = await rows_of(journal, documents, "number")
    clock.advance(1)
    await save(journal, "01", "saved pears")
    await drain(journal, body=lambda one: "garden")
    assert await look(journal, "apples") == await look(journal, "orchard") == []
    assert await look(journal, "pears") == await look(journal, "garden") == [key("01")]
    assert await rows_of(journal, documents, "number") == before
    assert before == await rows_of(journal, checkpoints, "number")
    await check_text(journal)


async def test_what_went_or_was_switched_off_meanwhile_gets_no_document(journal: Rooms) -> None:
    await save(journal, "01", "saved", thread_id="deleted")
    await save(journal, "01", "saved", thread_id="silent")
    stretch, made = await take(journal)
    await journal.removal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    assert await journal.index.store(stretch, made, remember=True) == 0
    assert await due_keys(journal) == []
    await make_searchable(journal, "silent", True)
    assert await due_keys(journal) == ["silent:01"]
    await drain(journal)
    assert await indexed(journal) == {(TENANT, "silent", "", "01")}


async def test_a_thread_that_is_not_searchable_is_passed_over(journal: Rooms, clock: Clock) -> None:
    await save(journal, "01", "saved one")
    await drain(journal)
    await make_searchable(journal, "t", False)
    clock.advance(1)
    await save(journal, "02", "saved two")
    await save(journal, "01", "saved anew")
    assert await drain(journal) == 0
    assert await due_keys(journal) == []
    assert await journal.index.now(TENANT) == {}
    assert (await watermarks(journal))["t"][0] == (await watermarks(journal))["t"][1]
    clock.advance(1)
    await make_searchable(journal, "t", True)
    assert [one.checkpoints for one in await journal.index.backlog()] == [2]
    assert await drain(journal) == 2
    assert sorted(await look(journal, "saved"), key=str) == [key("01"), key("02")]


# --- sweeping ------------------------------------------------------------------------------


async def test_a_sweep_removes_what_may_not_be_found_and_nothing_else(
    journal: Rooms, clock: Clock
) -> None:
    index = journal.index
    for name in ("kept", "deleted", "silent"):
        await save(journal, "01", f"saved {name}", thread_id=name, vector=ONE)
        await save(journal, f"02-{name}", f"saved {name}", thread_id=name, vector=ONE)
    await save(journal, "03", "due, not indexed yet", thread_id="kept", vector=ONE)
    stretch = await index.take(10)
    made = [one for one in stretch.due if one.key.checkpoint_id != "03"]
    assert await index.store(stretch, made, remember=True) == 6
    assert await index.sweep() == 0
    await journal.removal.delete_thread(TENANT, "deleted")
    await make_searchable(journal, "silent", False)
    assert await count(journal) == {"documents": 6, "vectors": 5, "memories": 6}
    # Of both threads documents and memories; vectors went with the checkpoints.
    assert await index.sweep() == 2 * (2 + 1) + 2
    assert await count(journal) == {"documents": 2, "vectors": 3, "memories": 4}
    assert await indexed(journal) == {(TENANT, "kept", "", one) for one in ("01", "02-kept")}
    assert set(await vectors_of(journal)) == {"kept:01", "kept:02-kept", "kept:03"}
    assert await index.sweep() == 0
    await check_text(journal)


async def test_a_sweep_leaves_memories_that_are_under_way(journal: Rooms) -> None:
    await save(journal, "00", "being sent", thread_id="gone")
    for state in MemoryState:
        await save(journal, f"0{int(state)}", f"saved {state}", thread_id="gone")
    await drain(journal, remember=True)

    def set_states(batch: Batch) -> None:
        for state in MemoryState:
            pointer = pointer_of(TENANT, "", f"0{int(state)}")
            batch.connection.execute(
                update(memories).where(memories.c.pointer == pointer).values(state=int(state))
            )
        begun = memories.c.pointer == pointer_of(TENANT, "", "00")
        batch.connection.execute(update(memories).where(begun).values(unsure=True))

    await journal.database.transact(set_states)
    await journal.removal.delete_thread(TENANT, "gone")
    await journal.index.sweep()
    left = set(await rows_of(journal, memories, "state", "unsure"))
    assert left == {(MemoryState.WAITING, True), (MemoryState.SENT, False)}


async def test_a_sweep_takes_any_number_of_turns(
    journal: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuskpoint_server.journal.search.index.DROPPED_AT_ONCE", 2)
    for number in range(5):
        await save(journal, f"0{number}", "saved", thread_id="gone")
    await save(journal, "01", "saved")
    await drain(journal)
    await journal.removal.delete_thread(TENANT, "gone")
    assert await journal.index.sweep() == 5
    assert await indexed(journal) == {(TENANT, "t", "", "01")}
