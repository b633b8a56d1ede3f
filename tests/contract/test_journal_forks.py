"""Forks: a new thread that begins with a checkpoint, whole and on its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.contract.conftest import Clock
from tests.contract.eviction_house import House, open_house
from tests.contract.journal_drafts import TENANT, channel, data_of, draft, key, refused, write
from tests.contract.lineage_kit import chain, history, members, save, seen, told, under
from tuskpoint_server.archive.building import ENVELOPE
from tuskpoint_server.domain.errors import Reason
from tuskpoint_server.domain.evicted import lacks_values
from tuskpoint_server.domain.lineage import EventKind
from tuskpoint_server.domain.model import (
    Durability,
    PruneStrategy,
    Reference,
    Removed,
    Source,
    Thread,
    ThreadState,
    View,
)
from tuskpoint_server.domain.model import Lineage as Origins
from tuskpoint_server.journal.event_log import EventLog
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.schema import checkpoints

INTERRUPT = "__interrupt__"


@pytest.fixture
def lineage(journal: SqlJournal) -> Lineage:
    return Lineage(journal)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as opened:
        yield opened


async def thread(journal: SqlJournal, thread_id: str) -> Thread:
    detail = await journal.thread(TENANT, thread_id)
    assert detail is not None
    return detail.thread


async def interrupted(journal: SqlJournal, *, agent_id: str = "") -> None:
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


async def test_a_fork_is_what_the_closure_holds(journal: SqlJournal, lineage: Lineage) -> None:
    await interrupted(journal, agent_id="planner")
    before = await seen(journal)
    saved = await lineage.fork(TENANT, key("03"), "fork", "")
    assert (saved.key, saved.revision, saved.incarnation) == (key("03", "fork"), 1, 1)
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


async def test_the_latest_is_forked_if_none_is_named(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"), draft("03", "01"), draft("02", "01"))
    assert (await lineage.fork(TENANT, key(""), "fork", "")).key == key("03", "fork")


async def test_only_one_checkpoint_of_a_line_is_forked(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await save(journal, draft("01"), draft("02", "01"), draft("03", "02"))
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert list(await seen(journal, "fork")) == [("", "02")]
    assert (await seen(journal, "fork"))["", "02"].parent_id == "01"


async def test_a_name_is_made_up(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"))
    saved = await lineage.fork(TENANT, key("01"), "", "r")
    assert saved.key.checkpoint_id == "01"
    assert len(saved.key.thread_id) == 32
    assert await lineage.fork(TENANT, key("01"), "", "r") == saved
    assert (await thread(journal, saved.key.thread_id)).head_id == "01"


async def test_delta_channels_are_rebuilt_as_in_the_source(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    await lineage.fork(TENANT, key("04"), "fork", "")
    expected = (b"seed 02", (("task of log", b"w02"), ("task of log", b"w03")))
    assert await history(journal, key("04", "fork")) == expected
    assert list(await seen(journal, "fork")) == [("", "04")]
    detail = await journal.thread(TENANT, "fork")
    assert detail is not None
    assert (detail.checkpoint_count, detail.heads) == (1, {"": "04"})


async def test_forks_of_forks(journal: SqlJournal, lineage: Lineage) -> None:
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


async def test_hidden_ancestors_are_forked_too(journal: SqlJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02", "03", "04"], seeds=["02"])
    before = await history(journal, key("04"))
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await lineage.fork(TENANT, key("04"), "fork", "")
    assert await history(journal, key("04", "fork")) == before
    await refused(lineage.fork(TENANT, key("03", "fork"), "v", ""), Reason.CHECKPOINT_NOT_FOUND)
    # It is pruned, and its delta chain cut, like any other thread.
    await chain(journal, ["05"], parent_id="04", thread_id="fork", seeds=["05"])
    removed = await journal.prune_thread(TENANT, "fork", PruneStrategy.KEEP_LATEST)
    assert removed == Removed(deleted=1, hidden=0)
    assert await history(journal, key("05", "fork")) == (None, ())


async def test_a_checkpoint_of_a_subgraph_is_forked(journal: SqlJournal, lineage: Lineage) -> None:
    await interrupted(journal)
    saved = await lineage.fork(TENANT, key("04", "t", "node:b"), "fork", "")
    assert saved.key == key("04", "fork", "node:b")
    assert list(await seen(journal, "fork")) == [("node:b", "04")]
    assert (await thread(journal, "fork")).head_id == ""


# --- apart from its source -----------------------------------------------------------------


async def test_neither_sees_what_happens_to_the_other(
    journal: SqlJournal, lineage: Lineage
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
    await journal.prune_thread(TENANT, "fork", PruneStrategy.KEEP_LATEST)
    assert await seen(journal) == source


async def test_a_fork_goes_on(journal: SqlJournal, lineage: Lineage) -> None:
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


async def test_a_fork_is_whole_without_its_source(journal: SqlJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02", "03"], seeds=["01"])
    await lineage.fork(TENANT, key("03"), "fork", "")
    fork, log = await seen(journal, "fork"), await history(journal, key("03"))
    assert await journal.delete_thread(TENANT, "t") == Removed(3)
    swept = await journal.sweep(content_grace_s=-1, early_write_ttl_s=-1)
    assert swept.contents == 0, "hidden ancestors are copied whole"
    assert await seen(journal, "fork") == fork
    assert await history(journal, key("03", "fork")) == log


async def test_forking_with_the_source_deleted_by_run(
    journal: SqlJournal, lineage: Lineage
) -> None:
    await chain(journal, ["01", "02"], seeds=["01"], metadata={"run_id": "one"})
    await lineage.fork(TENANT, key("02"), "fork", "")
    assert await journal.delete_runs(TENANT, ["one"]) == Removed(deleted=3)
    assert await seen(journal, "fork") == await seen(journal) == {}


# --- names and retries ---------------------------------------------------------------------


async def test_a_fork_needs_a_source_and_a_free_name(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"), draft("01", thread_id="full"), draft("01", thread_id="gone"))
    await journal.delete_thread(TENANT, "gone")
    await refused(lineage.fork(TENANT, key("01"), "full", ""), Reason.THREAD_EXISTS)
    await refused(lineage.fork(TENANT, key("01"), "t", ""), Reason.THREAD_EXISTS)
    for absent in (key("02"), key("01", "gone"), key("", "gone"), key("", "t", "inner")):
        refusal = await refused(
            lineage.fork(TENANT, absent, "new", ""), Reason.CHECKPOINT_NOT_FOUND
        )
        assert refusal.metadata["thread_id"] == absent.thread_id
    assert await journal.thread(TENANT, "new") is None


async def test_a_deleted_name_begins_anew(journal: SqlJournal, lineage: Lineage) -> None:
    await chain(journal, ["01", "02"], seeds=["01"])
    await save(journal, draft("09", thread_id="name", agent_id="old"))
    await journal.save_writes(TENANT, key("09", "name"), [write("__error__", b"x", idx=-1)])
    await journal.delete_thread(TENANT, "name")
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


async def test_a_name_with_early_writes_begins_anew(journal: SqlJournal, lineage: Lineage) -> None:
    await save(journal, draft("01"))
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    saved = await lineage.fork(TENANT, key("01"), "name", "")
    assert saved.incarnation == 2
    assert (await seen(journal, "name"))["", "01"].writes == ()


async def test_every_change_of_a_fork_is_told(journal: SqlJournal, lineage: Lineage) -> None:
    await interrupted(journal)
    await journal.save_writes(TENANT, key("01", "name"), [write("x", b"stray")])
    await lineage.fork(TENANT, key("03"), "name", "")
    await journal.delete_thread(TENANT, "name")
    await lineage.fork(TENANT, key("03"), "name", "")
    forked = [(EventKind.CHECKPOINT_SAVED, one) for one in ("03", "02", "04")]
    deleted = (EventKind.THREAD_DELETED, "")
    happened = [(EventKind.WRITES_SAVED, "01"), deleted, *forked, deleted, *forked]
    assert await told(journal, "name") == [(number, *one) for number, one in enumerate(happened, 1)]
    assert (await thread(journal, "name")).seq == len(happened)


async def test_a_retried_fork_gets_the_first_answer(
    journal: SqlJournal, lineage: Lineage, clock: Clock
) -> None:
    await save(journal, draft("01"))
    saved = await lineage.fork(TENANT, key(""), "fork", "r")
    await save(journal, draft("02", "01"))
    assert replace(await lineage.fork(TENANT, key(""), "fork", "r"), stored_bytes=0) == saved
    assert list(await seen(journal, "fork")) == [("", "01")]
    for other in (
        lineage.fork(TENANT, key(""), "elsewhere", "r"),
        lineage.fork(TENANT, key("01"), "fork", "r"),
        lineage.fork(TENANT, key("", "t", "inner"), "fork", "r"),
    ):
        refusal = await refused(other, Reason.REQUEST_ID_REUSED)
        assert refusal.metadata == {"request_id": "r"}
    await refused(journal.copy_thread(TENANT, "t", "copy", "r"), Reason.REQUEST_ID_REUSED)
    clock.advance(24 * 3600 + 1)
    await journal.sweep(content_grace_s=1e6, early_write_ttl_s=1e6)
    await refused(lineage.fork(TENANT, key(""), "fork", "r"), Reason.THREAD_EXISTS)
    assert (await lineage.fork(TENANT, key(""), "elsewhere", "r")).key == key("02", "elsewhere")


async def test_a_refused_fork_is_not_remembered(journal: SqlJournal, lineage: Lineage) -> None:
    await refused(lineage.fork(TENANT, key("01"), "fork", "r"), Reason.CHECKPOINT_NOT_FOUND)
    await save(journal, draft("01"))
    assert (await lineage.fork(TENANT, key("01"), "fork", "r")).key == key("01", "fork")


# --- evicted and certified -----------------------------------------------------------------


async def evicted(house: House) -> None:
    """Save a delta chain whose values, but the head's, are on the blob store only."""
    await chain(house.journal, ["01", "02", "03", "04", "05"], seeds=["02"])
    given_up = await house.evict()
    assert given_up.contents > 0
    assert not await house.here("04")


async def test_an_evicted_closure_names_its_envelopes(house: House) -> None:
    await evicted(house)
    found = await Lineage(house.journal).closure(TENANT, key("04"))
    assert members(found) == [("", "02", True), ("", "03", True), ("", "04", False)]
    assert found is not None
    for one in found.members:
        assert lacks_values(one.checkpoint)
        assert one.checkpoint.entry.envelopes


async def test_a_fork_of_what_was_evicted_loads_from_its_envelopes(house: House) -> None:
    await evicted(house)
    await Lineage(house.journal).fork(TENANT, key("04"), "fork", "")
    assert not await house.here("04", "fork")
    for source in (Source.ANY, Source.BLOB):
        if source is Source.BLOB:
            await house.flush()
        fork = await house.load("04", "fork", source)
        original = await house.load("04", "t", source)
        assert (fork.state, fork.writes) == (original.state, original.writes)
        assert data_of(fork) == {"x": b"04"}
    (log,) = await house.service.delta_history(TENANT, key("04", "fork"), ["log"])
    assert log.seed is not None
    assert log.seed.value is not None
    assert log.seed.value.data == b"seed 02"
    assert [one.value.data for one in log.writes] == [b"w02", b"w03"]


async def test_a_fork_is_certified_without_storing_anything_twice(house: House) -> None:
    await evicted(house)
    puts = len(house.kit.blobs.puts)
    await Lineage(house.journal).fork(TENANT, key("04"), "fork", "")
    await house.flush()
    entry = await house.kit.entry("04", "fork")
    assert entry.certified_revision == entry.revision == 1
    assert entry.envelopes == (await house.kit.entry("04")).envelopes
    stored = [one for members in house.kit.blobs.puts[puts:] for one in members]
    assert stored
    assert ENVELOPE not in {one.kind for one in stored}
    manifest = await house.kit.manifest("fork")
    assert {name: one.hidden for name, one in manifest.items()} == {
        "02": True,
        "03": True,
        "04": False,
    }


async def test_a_fork_outlives_its_evicted_source(house: House) -> None:
    await evicted(house)
    await Lineage(house.journal).fork(TENANT, key("04"), "fork", "")
    await house.journal.delete_thread(TENANT, "t")
    await house.journal.sweep(content_grace_s=-1, early_write_ttl_s=-1)
    await house.evict()
    assert data_of(await house.load("04", "fork")) == {"x": b"04"}
    (log,) = await house.service.delta_history(TENANT, key("04", "fork"), ["log"])
    assert [one.value.data for one in log.writes] == [b"w02", b"w03"]


async def test_writes_since_the_envelope_are_certified_with_the_fork(house: House) -> None:
    await chain(house.journal, ["01", "02"], seeds=["01"])
    await house.flush()
    await house.journal.save_writes(TENANT, key("02"), [write("x", b"late")])
    saved = await Lineage(house.journal).fork(TENANT, key("02"), "fork", "")
    told_of = await EventLog(house.journal).events(TENANT, "fork", 0, 10)
    assert (saved.revision, [event.revision for event in told_of]) == (2, [2])
    await house.flush()
    stored = await house.kit.stored("02", "fork")
    assert b"late" in [one.value.data for one in stored.writes]
    assert len((await house.kit.entry("02", "fork")).envelopes) == 2


async def waiting(house: House) -> list[tuple[str, str]]:
    """Return thread and ID of what is not certified, hidden ones too."""
    rows = await house.journal.query(
        lambda connection: connection.execute(
            select(checkpoints.c.thread_id, checkpoints.c.checkpoint_id).where(
                checkpoints.c.certified_revision < checkpoints.c.revision
            )
        ).all()
    )
    return [(thread_id, checkpoint_id) for thread_id, checkpoint_id in rows]


async def test_a_certified_fork_or_rollback_is_so_with_all_that_it_needs(tmp_path: Path) -> None:
    async with open_house(tmp_path, max_pack_checkpoints=2) as house:
        await chain(house.journal, ["01", "02", "03", "04", "05", "06"], seeds=["01"])
        forked = await house.lineages.fork(TENANT, key("06"), "f", "", Durability.CERTIFIED)
        assert (forked.durability, await waiting(house)) == (Durability.CERTIFIED, [])
        for ns in ("a", "b", "c"):
            await save(house.journal, draft("07", ns=ns, metadata=under("06")))
        await save(house.journal, draft("08", "06"))
        await house.lineages.rollback(TENANT, key("05"), "", None, Durability.CERTIFIED)
        assert await waiting(house) == []
