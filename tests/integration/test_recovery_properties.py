"""Whatever happened to threads: what was certified is the same after recovery."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuskpoint_server.domain.errors import Refusal
from tuskpoint_server.domain.model import CheckpointKey, PruneStrategy
from tuskpoint_server.journal.lineage_api import SnapshotDraft, SnapshotQuery
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots

from .archive_kit import TENANT, Kit, write
from .recovery_kit import draft, flush, new_kit, recovered_kit, save, seen

THREADS = ("one", "two", "three")
NAMESPACES = ("", "", "inner")
IDS = ("01", "02", "03", "04", "05", "06")
RUNS = ("r1", "r2")
CHANNELS = ("x", "log", "__interrupt__", "__error__", "__resume__")

places = st.builds(
    CheckpointKey, st.sampled_from(THREADS), st.sampled_from(NAMESPACES), st.sampled_from(IDS)
)
writes = st.builds(
    write,
    st.binary(max_size=3),
    task=st.sampled_from(("t", "u")),
    idx=st.sampled_from((-1, 0, 1)),
    channel=st.sampled_from(CHANNELS),
)

Operation = Callable[[Kit], Awaitable[object]]


@dataclass(frozen=True)
class Save:
    """Save a checkpoint; one with a delta channel mostly does not store it."""

    place: CheckpointKey
    parent_id: str
    content: bytes
    delta: bool
    stores_delta: bool
    run_id: str
    root_id: str
    label: str
    summary: str
    agent_id: str
    writes: tuple[object, ...]

    async def __call__(self, kit: Kit) -> None:
        channels = {"x": self.content}
        if self.stores_delta:
            channels["log"] = b"seed " + self.content
        place = self.place
        inner = place.checkpoint_ns and self.root_id
        made = draft(
            place.checkpoint_id,
            self.parent_id if self.parent_id < place.checkpoint_id else "",
            channels,
            thread_id=place.thread_id,
            ns=place.checkpoint_ns,
            delta=("log",) if self.delta else (),
            metadata={"run_id": self.run_id, "parents": {"": self.root_id} if inner else {}},
            writes=self.writes,  # type: ignore[arg-type]
            label=self.label,
            summary=self.summary,
            agent_id=self.agent_id,
        )
        await save(kit, made)


@dataclass(frozen=True)
class SaveWrites:
    """Save writes, early, in time or late."""

    place: CheckpointKey
    writes: tuple[object, ...]

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.save_writes(TENANT, self.place, self.writes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Label:
    """Set a label."""

    place: CheckpointKey
    label: str

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.set_label(TENANT, self.place, self.label)


@dataclass(frozen=True)
class Delete:
    """Delete a thread."""

    thread_id: str

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.delete_thread(TENANT, self.thread_id)


@dataclass(frozen=True)
class Prune:
    """Delete all but the latest checkpoints of a thread."""

    thread_id: str

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.prune_thread(TENANT, self.thread_id, PruneStrategy.KEEP_LATEST)


@dataclass(frozen=True)
class DeleteRuns:
    """Delete the checkpoints of a run."""

    run_id: str

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.delete_runs(TENANT, [self.run_id])


@dataclass(frozen=True)
class Copy:
    """Copy a thread."""

    source: str
    target: str

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.copy_thread(TENANT, self.source, self.target, "")


@dataclass(frozen=True)
class Fork:
    """Make a thread of a checkpoint, or of the latest."""

    place: CheckpointKey
    target: str

    async def __call__(self, kit: Kit) -> None:
        await Lineage(kit.journal).fork(TENANT, self.place, self.target, "")


@dataclass(frozen=True)
class RollBack:
    """Append a checkpoint with an earlier state."""

    place: CheckpointKey

    async def __call__(self, kit: Kit) -> None:
        await Lineage(kit.journal).rollback(TENANT, self.place, "", None, {})


@dataclass(frozen=True)
class Adopt:
    """Make a thread of what is needed to go on from a checkpoint."""

    place: CheckpointKey
    target: str

    async def __call__(self, kit: Kit) -> None:
        lineage = Lineage(kit.journal)
        closure = await lineage.closure(TENANT, self.place)
        if closure is not None:
            await lineage.adopt(TENANT, closure, "hash", self.target, "adopter", "")


@dataclass(frozen=True)
class TakeSnapshot:
    """Capture a thread."""

    thread_id: str

    async def __call__(self, kit: Kit) -> None:
        asked = SnapshotDraft((self.thread_id,), session_id="s")
        await Snapshots(kit.journal).create_snapshot(TENANT, asked, "")


@dataclass(frozen=True)
class Restore:
    """Restore the newest snapshot, or delete it."""

    how: str

    async def __call__(self, kit: Kit) -> None:
        snapshots = Snapshots(kit.journal)
        for one in await snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 1):
            if self.how == "delete":
                await snapshots.delete_snapshot(TENANT, one.snapshot_id)
                continue
            back = self.how == "rollback"
            await snapshots.restore_snapshot(
                TENANT, one.snapshot_id, rollback=back, request_id="", supplied={}
            )


@dataclass(frozen=True)
class Retain:
    """Set how long a thread is kept."""

    thread_id: str
    seconds: int

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.set_retention(TENANT, self.thread_id, self.seconds)


@dataclass(frozen=True)
class Expose:
    """Set whether search finds a thread."""

    thread_id: str
    searchable: bool

    async def __call__(self, kit: Kit) -> None:
        await kit.journal.set_searchable(TENANT, self.thread_id, self.searchable)


@dataclass(frozen=True)
class Flush:
    """Certify all there is."""

    async def __call__(self, kit: Kit) -> None:
        await kit.archive.certify_all(TENANT)


threads = st.sampled_from(THREADS)
saves = st.builds(
    Save,
    places,
    st.sampled_from(("", *IDS)),
    st.binary(max_size=2),
    st.booleans(),
    st.sampled_from((False, False, True)),
    st.sampled_from(RUNS),
    st.sampled_from(("", *IDS)),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("", "it went well")),
    st.sampled_from(("", "planner", "writer")),
    st.lists(writes, max_size=2).map(tuple),
)
operations = st.one_of(
    saves,
    saves,
    saves,
    st.builds(SaveWrites, places, st.lists(writes, min_size=1, max_size=3).map(tuple)),
    st.builds(Label, places, st.sampled_from(("", "a", "b"))),
    st.builds(Delete, threads),
    st.builds(Prune, threads),
    st.builds(DeleteRuns, st.sampled_from(RUNS)),
    st.builds(Copy, threads, threads),
    st.builds(Fork, places, st.sampled_from((*THREADS, "four", "five"))),
    st.builds(RollBack, places),
    st.builds(Adopt, places, st.sampled_from((*THREADS, "six", "seven"))),
    st.builds(TakeSnapshot, threads),
    st.builds(Restore, st.sampled_from(("rollback", "threads", "delete"))),
    st.builds(Retain, threads, st.sampled_from((0, 1000, 2000))),
    st.builds(Expose, threads, st.booleans()),
    st.builds(Flush),
)
histories = st.lists(st.lists(operations, min_size=1, max_size=12), min_size=1, max_size=3)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(histories)
def test_recovered_equals_certified(lives: list[list[Operation]]) -> None:
    """Each life goes on from what the one before left on the blob store."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), lives))


async def _live(folder: Path, lives: list[list[Operation]]) -> None:
    async with new_kit(folder / "0") as kit:
        await save(kit, draft("0", thread_id="zero"))
        await _go_on(folder, kit, 1, lives)


async def _go_on(folder: Path, kit: Kit, number: int, lives: list[list[Operation]]) -> None:
    for operation in lives[0] if lives else ():
        with suppress(Refusal):
            await operation(kit)
    catalog = await flush(kit)
    before = await seen(kit.journal)
    async with recovered_kit(folder / str(number), kit, catalog) as found:
        after = await seen(found.journal)
        _forget_unstored(before, after)
        for what, expected in before.items():
            assert after[what] == expected, what
        assert await flush(found) == catalog, "nothing waits"
        for thread_id in before["threads"]:
            assert await found.archive.chain_problem(TENANT, thread_id) == ""
        if lives:
            await _go_on(folder, found, number + 1, lives[1:])


def _forget_unstored(before: dict[str, object], after: dict[str, object]) -> None:
    """Of an incarnation of which nothing was ever stored no blob tells."""
    deleted = {row[0] for row in before["deleted"]}  # type: ignore[attr-defined]
    after["deleted"] = [row for row in after["deleted"] if row[0] in deleted]  # type: ignore[attr-defined]
