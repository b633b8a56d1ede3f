"""An adoption turns a closure of one journal into a thread of another journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.lineage.kit import chain, history, logged, members_of, seen, under
from tests.kit.drafts import TENANT, Reference, draft, key, refused, write
from tests.kit.journal import Clock, Journal, opened, save
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats.bundles import Closure
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import CheckpointKey, Lineage, View
from tuskpoint_server.core.threads import EventKind, PruneStrategy, ThreadState
from tuskpoint_server.features.lineage.lineage import LineageRows

HASH = "ab" * 32


@pytest.fixture
async def elsewhere(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    """A second journal."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    async with opened(directory, clock) as journal:
        yield journal


async def closure_of(journal: Journal, key: CheckpointKey) -> Closure:
    closure = await journal.lineage.closure(TENANT, key)
    assert closure is not None
    return closure


async def interrupted(journal: Journal) -> None:
    """Save a thread with delta channels that waits in a subgraph call."""
    frame = checkpoint_pb2.CheckpointState(schema_version=4, delta_channels=["log"])
    await chain(journal, ["01", "02"], seeds=["01"])
    await save(
        journal,
        draft("03", ns="keeper", channels={"k": b"kept"}, metadata=under("01")),
        draft(
            "04",
            "02",
            {"x": b"4"},
            frame=frame.SerializeToString(),
            delta=("log",),
            label="asks",
            summary="It asks.",
            metadata={"step": 3, "run_id": "r"},
            writes=(write("x", b"done", task="a"), write("__interrupt__", b"?", idx=-3)),
        ),
    )
    await chain(journal, ["05"], ns="node:b", metadata=under("04"))


async def adopt(
    lineage: LineageRows, closure: Closure, target: str = "mine", request_id: str = ""
) -> CheckpointKey:
    saved = await lineage.adopt(TENANT, closure, HASH, target, "writer", request_id)
    assert (saved.seq, saved.incarnation) == (len(closure.segment.checkpoints), 1)
    return saved.key


async def test_an_adopted_thread_loads_the_same(
    journal: Journal, elsewhere: Journal, lineage: LineageRows
) -> None:
    await interrupted(elsewhere)
    assert await adopt(lineage, await closure_of(elsewhere, key("04"))) == key("04", "mine")
    source, adopted = await seen(elsewhere), await seen(journal, "mine")
    assert adopted == {
        place: source[place] for place in [("", "04"), ("keeper", "03"), ("node:b", "05")]
    }
    assert await history(journal, key("04", "mine")) == await history(elsewhere, key("04"))
    detail = await journal.thread(TENANT, "mine")
    assert detail is not None
    assert detail.thread.state is ThreadState.INTERRUPTED
    assert (detail.thread.agent_id, detail.thread.head_id) == ("writer", "04")
    assert (detail.thread.checkpoint_count, detail.thread.seq) == (3, 3)
    loaded = await journal.load(TENANT, key("04", "mine"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.lineage == Lineage(adopted_from="t:04")
    subgraph = await journal.load(TENANT, key("05", "mine", "node:b"), View.ENTRY)
    assert subgraph is not None
    assert subgraph.entry.lineage == Lineage()


async def test_an_adopted_thread_goes_on(
    journal: Journal, elsewhere: Journal, lineage: LineageRows
) -> None:
    await interrupted(elsewhere)
    await adopt(lineage, await closure_of(elsewhere, key("04")))
    await chain(journal, ["06"], parent_id="04", thread_id="mine")
    assert (await history(journal, key("06", "mine")))[0] == b"seed 01"
    await journal.removal.delete_runs(TENANT, ["r"])
    assert set(await seen(journal, "mine")) == {("", "06"), ("keeper", "03"), ("node:b", "05")}
    await save(journal, draft("07", "06", {"log": b"whole"}, thread_id="mine", delta=("log",)))
    await journal.removal.prune_thread(TENANT, "mine", PruneStrategy.KEEP_LATEST)
    assert set(await seen(journal, "mine")) == {("", "07"), ("keeper", "03"), ("node:b", "05")}
    assert await journal.removal.delete_thread(TENANT, "mine") == 3


async def test_an_adopted_thread_is_handed_on(
    journal: Journal, elsewhere: Journal, lineage: LineageRows
) -> None:
    await interrupted(elsewhere)
    first = await closure_of(elsewhere, key("04"))
    await adopt(lineage, first)
    second = await closure_of(journal, key("04", "mine"))
    assert members_of(second) == members_of(first)
    await adopt(elsewhere.lineage, second, "back")
    assert await seen(elsewhere, "back") == await seen(journal, "mine")
    assert await history(elsewhere, key("04", "back")) == await history(elsewhere, key("04"))
    await lineage.fork(TENANT, key("04", "mine"), "fork", "")
    assert await seen(journal, "fork") == await seen(journal, "mine")


async def test_channels_without_a_value_stay_so(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01", "", {"x": Reference.EMPTY, "y": b""}))
    await adopt(lineage, await closure_of(journal, key("01")))
    assert await seen(journal, "mine") == await seen(journal)


async def test_adopting_takes_a_free_name(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("01"), draft("01", thread_id="full"), draft("01", thread_id="gone"))
    await journal.removal.delete_thread(TENANT, "gone")
    await journal.save_writes(TENANT, key("01", "early"), [write("x", b"stray")])
    closure = await closure_of(journal, key("01"))
    for thread_id in ("full", "t"):
        call = lineage.adopt(TENANT, closure, HASH, thread_id, "", "")
        await refused(call, Reason.THREAD_EXISTS)
        await refused(
            lineage.adopted(TENANT, key("01"), HASH, thread_id, "", ""), Reason.THREAD_EXISTS
        )
    for target in ("gone", "early"):
        assert await lineage.adopted(TENANT, key("01"), HASH, target, "", "") is None
        saved = await lineage.adopt(TENANT, closure, HASH, target, "", "")
        assert saved.incarnation == 2
        assert (await seen(journal, target))["", "01"].writes == ()
    kinds = [kind for _, kind, _ in await logged(journal, "early")]
    assert kinds == [
        EventKind.WRITES_SAVED,
        EventKind.THREAD_DELETED,
        EventKind.CHECKPOINT_SAVED,
    ]
    assert [number for number, *_ in await logged(journal, "early")] == [1, 2, 3]
    named = await lineage.adopt(TENANT, closure, HASH, "", "", "")
    assert len(named.key.thread_id) == 32


async def test_a_retried_adoption_gets_the_first_answer(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("01"))
    closure = await closure_of(journal, key("01"))
    assert await lineage.adopted(TENANT, key("01"), HASH, "mine", "writer", "r") is None
    await adopt(lineage, closure, "mine", "r")
    await save(journal, draft("02", "01", thread_id="mine"))
    again = await lineage.adopted(TENANT, key("01"), HASH, "mine", "writer", "r")
    assert again is not None
    assert again.key == await adopt(lineage, closure, "mine", "r") == key("01", "mine")
    assert len(await seen(journal, "mine")) == 2
    for other in (
        lineage.adopted(TENANT, key("01"), "cd" * 32, "mine", "writer", "r"),
        lineage.adopted(TENANT, key("01"), HASH, "other", "writer", "r"),
        lineage.adopted(TENANT, key("01"), HASH, "mine", "reader", "r"),
        lineage.adopted(TENANT, key("02"), HASH, "mine", "writer", "r"),
        lineage.adopt(TENANT, closure, HASH, "other", "", "r"),
        lineage.fork(TENANT, key("01"), "mine", "r"),
    ):
        await refused(other, Reason.REQUEST_ID_REUSED)
