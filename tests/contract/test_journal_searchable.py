"""Whether search finds a thread, and the vectors that saves bring."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.contract.conftest import JOURNALS, Clock
from tests.contract.journal_drafts import TENANT, by_digest, draft, key, refused, write
from tests.contract.lineage_kit import chain
from tuskpoint_server.domain import vectors as packed
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.lineage import EventKind, Snapshot
from tuskpoint_server.domain.model import (
    CheckpointDraft,
    PruneStrategy,
    Reference,
    Removed,
    Saved,
    Thread,
    Value,
)
from tuskpoint_server.domain.snapshots import MEMBERS, Member, decode, encode
from tuskpoint_server.journal.api import ThreadQuery
from tuskpoint_server.journal.archive_plan import (
    PackPlan,
    PlannedFacts,
    decode_plan,
    encode_plan,
)
from tuskpoint_server.journal.event_log import EventLog
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_api import SnapshotDraft
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.schema import checkpoints, threads, vectors
from tuskpoint_server.journal.snapshots import Snapshots

SAVED, SEARCHABLE = EventKind.CHECKPOINT_SAVED, EventKind.SEARCHABLE_SET
ENDED = EventKind.THREAD_DELETED
NORTH, EAST = packed.pack([0, 1]), packed.pack([1, 0])
LISTING = ThreadQuery()


def searching(
    one: CheckpointDraft, *, vector: bytes = b"", searchable: bool | None = None
) -> CheckpointDraft:
    """Return a save that says something about search."""
    return replace(one, vector=vector, searchable=searchable)


async def save(journal: SqlJournal, one: CheckpointDraft, **search: object) -> Saved:
    return await journal.save_checkpoint(TENANT, searching(one, **search))  # type: ignore[arg-type]


async def thread(journal: SqlJournal, thread_id: str = "t") -> Thread:
    detail = await journal.thread(TENANT, thread_id)
    assert detail is not None
    return detail.thread


async def unsearchable(journal: SqlJournal, thread_id: str = "t") -> bool:
    return (await thread(journal, thread_id)).unsearchable


async def told(journal: SqlJournal, thread_id: str = "t") -> list[tuple[int, EventKind]]:
    """Return number and kind of each event of a thread."""
    found = await EventLog(journal).events(TENANT, thread_id, 0, 1000)
    return [(one.seq, one.kind) for one in found]


async def stored(journal: SqlJournal) -> dict[tuple[str, str], bytes]:
    """Return the vectors by thread and checkpoint."""
    named = select(vectors.c.thread_id, vectors.c.checkpoint_id, vectors.c.vector)
    rows = await journal.query(lambda connection: connection.execute(named).all())
    assert len(rows) == len({row[:2] for row in rows})
    return {(row.thread_id, row.checkpoint_id): row.vector for row in rows}


async def untold(journal: SqlJournal) -> bool:
    row = await journal.query(lambda connection: connection.execute(select(threads.c.untold)).one())
    return bool(row.untold)


async def due(journal: SqlJournal) -> dict[str, int | None]:
    """Return since when each checkpoint of the thread is to be indexed."""
    named = select(checkpoints.c.checkpoint_id, checkpoints.c.unindexed_us)
    rows = await journal.query(
        lambda connection: connection.execute(named.where(checkpoints.c.thread_id == "t")).all()
    )
    return {row.checkpoint_id: row.unindexed_us for row in rows}


async def all_indexed(journal: SqlJournal) -> None:
    await journal.transact(
        lambda connection: connection.execute(checkpoints.update().values(unindexed_us=None))
    )


# --- the setting ---------------------------------------------------------------------------


async def test_a_thread_is_searchable_unless_it_is_told_not_to(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, draft("1"))
    assert not await unsearchable(journal)
    clock.advance(5)
    await journal.set_searchable(TENANT, "t", False)
    found = await thread(journal)
    assert (found.unsearchable, found.seq, found.updated_us) == (True, 2, clock.now_us)
    assert [one.unsearchable for one in await journal.list_threads(TENANT, LISTING, "", 9)] == [
        True
    ]
    await journal.set_searchable(TENANT, "t", True)
    assert not await unsearchable(journal)
    assert await told(journal) == [(1, SAVED), (2, SEARCHABLE), (3, SEARCHABLE)]


async def test_to_set_what_is_set_changes_nothing(journal: SqlJournal, clock: Clock) -> None:
    await save(journal, draft("1"))
    before = await thread(journal)
    clock.advance(5)
    await journal.set_searchable(TENANT, "t", True)
    assert await thread(journal) == before
    assert not await untold(journal)
    await journal.set_searchable(TENANT, "t", False)
    before = await thread(journal)
    await journal.set_searchable(TENANT, "t", False)
    assert await thread(journal) == before
    assert await untold(journal)


async def test_only_threads_that_exist_have_it(journal: SqlJournal) -> None:
    await refused(journal.set_searchable(TENANT, "t", False), Reason.THREAD_NOT_FOUND)
    await save(journal, draft("1"))
    await refused(journal.set_searchable("other", "t", False), Reason.THREAD_NOT_FOUND)
    await journal.delete_thread(TENANT, "t")
    await refused(journal.set_searchable(TENANT, "t", False), Reason.THREAD_NOT_FOUND)


async def test_writes_that_wait_make_a_thread_that_has_it(journal: SqlJournal) -> None:
    await journal.save_writes(TENANT, key("1"), [write("x", b"early")])
    await journal.set_searchable(TENANT, "t", False)
    await save(journal, draft("1"))
    assert await unsearchable(journal)


async def test_it_ends_with_the_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("1"), searchable=False)
    await journal.delete_thread(TENANT, "t")
    await save(journal, draft("2"))
    assert not await unsearchable(journal)
    await journal.delete_thread(TENANT, "t")
    await save(journal, draft("3"), searchable=False)
    assert (await thread(journal)).incarnation == 3
    assert await unsearchable(journal)
    assert [kind for _, kind in await told(journal)][-3:] == [ENDED, SEARCHABLE, SAVED]


async def test_what_was_left_out_is_indexed_once_it_is_searchable(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, draft("1"), searchable=False)
    await save(journal, draft("2", "1"))
    await all_indexed(journal)  # that is, crossed off
    clock.advance(5)
    await journal.set_searchable(TENANT, "t", False)
    assert await due(journal) == {"1": None, "2": None}
    await journal.set_searchable(TENANT, "t", True)
    assert await due(journal) == {"1": clock.now_us, "2": clock.now_us}


# --- with a save ---------------------------------------------------------------------------


async def test_a_save_sets_it_before_its_checkpoint_is_there(journal: SqlJournal) -> None:
    first = await save(journal, draft("1"), searchable=False)
    assert first.seq == 2
    assert await unsearchable(journal)
    await save(journal, draft("2", "1"))
    assert await unsearchable(journal), "a save that does not say leaves it"
    await save(journal, draft("3", "2"), searchable=False)
    last = await save(journal, draft("4", "3"), searchable=True)
    assert (last.seq, (await thread(journal)).seq) == (6, 6)
    assert not await unsearchable(journal)
    assert await told(journal) == [
        (1, SEARCHABLE),
        (2, SAVED),
        (3, SAVED),
        (4, SAVED),
        (5, SEARCHABLE),
        (6, SAVED),
    ]
    assert (await thread(journal)).head_id == "4"


async def test_an_identical_save_sets_it_and_is_no_change_of_the_checkpoint(
    journal: SqlJournal,
) -> None:
    first = await save(journal, draft("1", agent_id="planner"))
    assert not first.untold
    again = await save(journal, draft("1"), searchable=False)
    assert again == replace(first, stored_bytes=0, untold=True)
    assert await unsearchable(journal)
    assert await told(journal) == [(1, SAVED), (2, SEARCHABLE)]
    once_more = await save(journal, draft("1"), searchable=False)
    assert once_more == again, "the catalog has yet to be told"
    assert await told(journal) == [(1, SAVED), (2, SEARCHABLE)]
    assert (await thread(journal)).agent_id == "planner"


async def test_an_identical_save_passes_wherever_the_head_is(journal: SqlJournal) -> None:
    await save(journal, draft("1"))
    await save(journal, draft("2", "1"))
    await save(journal, draft("1", expected_head=""), vector=NORTH, searchable=True)
    assert await stored(journal) == {("t", "1"): NORTH}
    await save(journal, draft("1", expected_head=""), searchable=False)
    assert await unsearchable(journal)


async def test_a_minted_checkpoint_has_both(journal: SqlJournal) -> None:
    saved = await save(journal, draft(""), vector=NORTH, searchable=True)
    assert await stored(journal) == {("t", saved.key.checkpoint_id): NORTH}
    other = await save(journal, draft("", thread_id="u"), searchable=False)
    assert other.key.checkpoint_id
    assert await unsearchable(journal, "u")


REFUSED = {
    "head": (draft("2", "1", expected_head="0"), Reason.HEAD_MOVED),
    "values": (draft("2", "1", (by_digest("x", b"never sent"),)), Reason.VALUES_MISSING),
    "deleted": (draft("2", "0", thread_id="gone"), Reason.THREAD_DELETED),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_refused_save_leaves_nothing(journal: SqlJournal, why: str) -> None:
    one, reason = REFUSED[why]
    await save(journal, draft("1"))
    await save(journal, draft("0", thread_id="gone"))
    await journal.delete_thread(TENANT, "gone")
    before = await thread(journal), await told(journal), await told(journal, "gone")
    await refused(save(journal, one, vector=NORTH, searchable=False), reason)
    assert (await thread(journal), await told(journal), await told(journal, "gone")) == before
    assert await stored(journal) == {}
    assert not await untold_of(journal, "t")


async def untold_of(journal: SqlJournal, thread_id: str) -> bool:
    named = select(threads.c.untold).where(threads.c.thread_id == thread_id)
    return bool((await journal.query(lambda connection: connection.execute(named).one())).untold)


async def test_a_vector_of_another_dimension_refuses_the_whole_save(journal: SqlJournal) -> None:
    await save(journal, draft("1"), vector=NORTH)
    before = await thread(journal), await told(journal)
    refusal = await refused(
        save(journal, draft("2", "1"), vector=packed.pack([1, 2, 3]), searchable=True),
        Reason.INVALID_FIELD,
    )
    assert [one.field for one in refusal.violations] == ["vector"]
    assert "2 components" in str(refusal)
    assert (await thread(journal), await told(journal)) == before
    assert await stored(journal) == {("t", "1"): NORTH}
    assert (await journal.save_checkpoint("other", searching(draft("1"), vector=b"\0\0\0?"))).seq


# --- vectors -------------------------------------------------------------------------------


async def test_a_vector_alone_is_no_change_of_the_checkpoint(
    journal: SqlJournal, clock: Clock
) -> None:
    first = await save(journal, draft("1", channels={"x": b"1"}))
    before = await thread(journal), await told(journal)
    clock.advance(5)
    again = await save(journal, draft("1", channels={"x": b"1"}), vector=NORTH)
    assert again == replace(first, stored_bytes=0)
    assert await stored(journal) == {("t", "1"): NORTH}
    await save(journal, draft("1", channels={"x": b"1"}), vector=EAST)
    assert await stored(journal) == {("t", "1"): EAST}
    assert (await thread(journal), await told(journal)) == before


async def test_a_save_without_a_vector_leaves_the_one_before(journal: SqlJournal) -> None:
    await save(journal, draft("1"), vector=NORTH)
    await save(journal, draft("1", channels={"x": b"anew"}))
    await save(journal, draft("2", "1"))
    assert await stored(journal) == {("t", "1"): NORTH}


async def test_the_only_vector_may_be_replaced_by_one_of_another_dimension(
    journal: SqlJournal,
) -> None:
    await save(journal, draft("1"), vector=NORTH)
    longer = packed.pack([1, 2, 3])
    await save(journal, draft("1"), vector=longer)
    assert await stored(journal) == {("t", "1"): longer}


async def test_a_thread_that_is_not_searchable_keeps_no_vectors(journal: SqlJournal) -> None:
    await save(journal, draft("1"), vector=NORTH, searchable=False)
    await save(journal, draft("2", "1"), vector=NORTH)
    assert await stored(journal) == {}
    await save(journal, draft("3", "2"), vector=EAST, searchable=True)
    assert await stored(journal) == {("t", "3"): EAST}


async def test_vectors_go_with_what_they_stand_for(journal: SqlJournal) -> None:
    """What is saved under the same ID again has not sent one."""
    for number in range(1, 4):
        one = draft(str(number), str(number - 1) if number > 1 else "")
        await save(journal, replace(one, metadata=draft("", metadata={"run_id": "r"}).metadata))
        await save(
            journal,
            replace(one, metadata=draft("", metadata={"run_id": "r"}).metadata),
            vector=NORTH,
        )
    await save(journal, draft("1", thread_id="u"), vector=EAST)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert await stored(journal) == {("t", "3"): NORTH, ("u", "1"): EAST}
    await journal.delete_runs(TENANT, ["r"])
    assert await stored(journal) == {("u", "1"): EAST}
    await journal.delete_thread(TENANT, "u")
    await save(journal, draft("1", thread_id="u"))
    assert await stored(journal) == {}


async def test_a_hidden_checkpoint_keeps_no_vector(journal: SqlJournal) -> None:
    await chain(journal, ["1", "2"], seeds=["1"])
    await save(journal, draft("3", "2", {"x": b"3"}, delta=("log",)), vector=NORTH)
    await save(journal, draft("4", "3", {"x": b"4"}, delta=("log",)), vector=EAST)
    removed = await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    assert removed == Removed(deleted=0, hidden=3)
    assert await stored(journal) == {("t", "4"): EAST}
    again = draft("3", "2", {"x": Reference.INHERIT}, delta=("log",))
    await save(journal, again)
    assert await stored(journal) == {("t", "4"): EAST}
    await save(journal, again, vector=NORTH)
    assert await stored(journal) == {("t", "4"): EAST, ("t", "3"): NORTH}


# --- threads that come from others ---------------------------------------------------------


@pytest.mark.parametrize("off", [True, False])
async def test_a_fork_and_a_copy_are_as_searchable_as_their_origin(
    journal: SqlJournal, off: bool
) -> None:
    await save(journal, draft("1"), searchable=not off)
    await Lineage(journal).fork(TENANT, key("1"), "fork", "")
    await journal.copy_thread(TENANT, "t", "copy", "")
    await Lineage(journal).fork(TENANT, key("1", "fork"), "fork of the fork", "")
    for thread_id in ("fork", "copy", "fork of the fork"):
        assert await unsearchable(journal, thread_id) is off
        assert SEARCHABLE not in [kind for _, kind in await told(journal, thread_id)]
    await journal.set_searchable(TENANT, "fork", off)
    assert await unsearchable(journal, "fork") is not off
    assert await unsearchable(journal) is off


async def test_what_begins_anew_takes_the_setting_of_its_origin(journal: SqlJournal) -> None:
    """Its own ended with the incarnation."""
    await save(journal, draft("1"), searchable=False)
    for thread_id, setting in (("fork", True), ("copy", True)):
        await save(journal, draft("1", thread_id=thread_id), searchable=setting)
        await journal.delete_thread(TENANT, thread_id)
    await Lineage(journal).fork(TENANT, key("1"), "fork", "")
    await journal.copy_thread(TENANT, "t", "copy", "")
    assert await unsearchable(journal, "fork")
    assert await unsearchable(journal, "copy")


async def test_a_rollback_leaves_the_setting(journal: SqlJournal) -> None:
    await save(journal, draft("01"), searchable=False)
    await save(journal, draft("02", "01"))
    await Lineage(journal).rollback(TENANT, key("01"), "", None, {})
    assert await unsearchable(journal)


async def test_what_a_snapshot_restores_is_not_searchable_if_its_thread_was_not(
    journal: SqlJournal,
) -> None:
    snapshots = Snapshots(journal)
    for thread_id in ("off", "on", "off later"):
        await save(journal, draft("1", thread_id=thread_id), searchable=thread_id != "off")
    taken = await snapshots.create_snapshot(TENANT, SnapshotDraft(("off", "on", "off later")), "")
    await journal.delete_thread(TENANT, "off")
    await save(journal, draft("2", thread_id="off"))
    await journal.set_searchable(TENANT, "off later", False)
    made = await snapshots.restore_snapshot(
        TENANT, taken.snapshot_id, rollback=False, request_id="", supplied={}
    )
    settings = [await unsearchable(journal, one.key.thread_id) for one in made]
    assert settings == [True, False, True]


# --- what an earlier server wrote ----------------------------------------------------------


def test_a_plan_of_an_earlier_server_says_nothing_of_it() -> None:
    plan = PackPlan(1, facts=(PlannedFacts("t", 1, "planner", 60, unsearchable=True),))
    assert decode_plan(encode_plan(plan)) == plan
    content = json.loads(encode_plan(plan))
    content["facts"] = [["t", 1, "planner", 60]]
    earlier = PlannedFacts("t", 1, "planner", 60, unsearchable=False)
    assert decode_plan(json.dumps(content).encode()).facts == (earlier,)


def test_a_snapshot_of_an_earlier_server_says_nothing_of_it() -> None:
    snapshot = Snapshot("s", "", "", "", b"{}", (key("1"),), 1)
    member = Member(key("1"), "planner", unsearchable=True)
    record = encode(snapshot, [member])
    values = dict(record.values)
    assert decode("s", 1, record.metadata, values) == (snapshot, (member,))
    [one] = json.loads(values[MEMBERS].data)
    del one["unsearchable"]
    values[MEMBERS] = Value("json", json.dumps([one]).encode())
    earlier = Member(key("1"), "planner", unsearchable=False)
    assert decode("s", 1, record.metadata, values) == (snapshot, (earlier,))


# --- adoptions -----------------------------------------------------------------------------


@pytest.fixture(params=JOURNALS)
async def elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[SqlJournal]:
    """Another journal."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    opened = await JOURNALS[request.param](directory, clock)
    yield opened
    await opened.close()


async def test_an_adoption_elsewhere_is_searchable_and_one_here_is_as_its_origin(
    journal: SqlJournal, elsewhere: SqlJournal
) -> None:
    await save(journal, draft("1"), searchable=False)
    closure = await Lineage(journal).closure(TENANT, key("1"))
    assert closure is not None
    for other in (journal, elsewhere):
        await Lineage(other).adopt(TENANT, closure, "ab" * 32, "mine", "writer", "")
    assert await unsearchable(journal, "mine")
    assert not await unsearchable(elsewhere, "mine")
    # A thread of the same name is another thread.
    await save(elsewhere, draft("7"), searchable=False)
    await Lineage(elsewhere).adopt(TENANT, closure, "ab" * 32, "ours", "writer", "")
    assert not await unsearchable(elsewhere, "ours")
