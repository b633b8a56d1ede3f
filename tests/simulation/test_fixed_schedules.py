"""Schedules that reviews of the design found, each with the bug that it would trigger.

Each schedule ends as a random schedule does: all faults end, everything becomes certified, and the
content of the newest catalog is compared with the journal.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.kit.drafts import TENANT, Content, Reference, draft, key, refused, value, write
from tests.simulation.environment.crashes import failpoints_visit
from tests.simulation.environment.faulty_store import DIRECTORY, EPOCH_S, QUILTS, StoreFaults
from tests.simulation.environment.memory_database import JournalFaults
from tests.simulation.plan import make_plan
from tests.simulation.promises.checks import newest
from tests.simulation.schedule import World
from tests.simulation.server import Server
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.blobs.api import BlobMember, StoreLimits, StoreLostError
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import SaveOutcome, Value
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.core.values import value_digest
from tuskpoint_server.journal.database.pending_writes import StoredWrite

HUGE = random.Random(2).randbytes(60_000)
BIG = random.Random(1).randbytes(3000)


def fixed(
    limits: StoreLimits = DIRECTORY, **settings: Any
) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[], None]]:
    """Return a decorator that turns a coroutine over a stage into a test without random faults."""

    def make(acts: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            rng = random.Random(1)
            plan = replace(
                make_plan(rng),
                steps=0,
                servers=1,
                crashes=0.0,
                disk_fails=0.0,
                limits=limits,
                epoch_s=EPOCH_S if limits is QUILTS else None,
                store=StoreFaults(),
                journal=JournalFaults(),
                settings={"flush_interval_s": 3600.0, "longest_retry_s": 60.0, **settings},
            )
            with tempfile.TemporaryDirectory() as root:
                world = World(plan, rng, Path(root))
                with failpoints_visit(world.visit):
                    world.play(lambda: acts(Stage(world)))

        test.__doc__ = acts.__doc__
        return test

    return make


class Stage:
    """A server that only the schedule itself acts on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server: Server = world.servers[0]

    async def save(
        self,
        checkpoint_id: str,
        parent_id: str = "",
        thread_id: str = "t",
        writes: Sequence[StoredWrite] = (),
        run_id: str = "",
        **channels: Content,
    ) -> SaveOutcome:
        """Save a checkpoint."""
        self._note(content for content in channels.values() if isinstance(content, bytes))
        self._note(write.data for write in writes)
        metadata = {"run_id": run_id} if run_id else {}
        sent = draft(
            checkpoint_id, parent_id, channels,
            thread_id=thread_id, writes=writes, metadata=metadata,
        )  # fmt: skip
        return await self.world.clients.send(self.server, sent)

    async def write(
        self, checkpoint_id: str, *writes: StoredWrite, thread_id: str = "t"
    ) -> SaveOutcome:
        """Save pending writes."""
        self._note(write.data for write in writes)
        checkpoint_key, model = key(checkpoint_id, thread_id), self.server.model
        saved = await self.server.rows.save_writes(TENANT, checkpoint_key, writes)
        model.save_writes(checkpoint_key, writes, saved)
        return saved

    async def prune(self, thread_id: str = "t") -> None:
        """Keep the latest checkpoint."""
        doomed = self.server.model.superseded(thread_id)
        await self.server.removal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
        self.server.model.remove(thread_id, doomed)

    async def delete(self, thread_id: str = "t") -> None:
        """Delete a thread."""
        await self.server.removal.delete_thread(TENANT, thread_id)
        self.server.model.delete(thread_id)

    async def flush(self) -> None:
        """Certify everything, and check."""
        await self.server.archive.certify_all(TENANT)
        await self.check()

    async def check(self) -> None:
        """Recover the newest catalog, and compare the content."""
        await self.world.check(self.server)

    async def values(self, checkpoint_id: str) -> dict[bytes, Value]:
        """Return all values of a checkpoint, from the journal or the store."""
        checkpoint = await self.server.load(key(checkpoint_id))
        assert checkpoint is not None
        return {write.digest: write.value for write in checkpoint.writes}

    def marks(self, thread_id: str = "t") -> tuple[int, int]:
        """Return the number of a thread's last change, and its watermark."""
        thread = self.server.shadow.threads[thread_id]
        return thread.seq, thread.certified_seq

    def recovered(self, thread_id: str = "t") -> set[str]:
        """Return the checkpoints that the newest catalog brings back."""
        threads = self.world.looks[self.server.name].threads
        thread = None if threads is None else threads.get(thread_id)
        return set() if thread is None else {place[1] for place in thread.rows}

    def _note(self, contents: Any) -> None:
        for data in contents:
            self.world.clients.values[value_digest(value(data))] = value(data)


@fixed(longest_retry_s=24 * 3600.0)
async def test_an_outage_longer_than_the_event_window(stage: Stage) -> None:
    """Changes above the watermark are kept, however old they are."""
    await stage.save("01", x=b"one")
    await stage.flush()
    stage.world.vault.outage = (0.0, 1e12)
    await stage.save("02", "01", x=b"two", writes=[write("w", b"2")])
    await stage.save("03", "02", "u", x=b"three")
    await stage.world.clients.index(stage.server)
    await asyncio.sleep(2.0 * LIMITS.event_ttl_s)
    await stage.world.clients.sweep(stage.server)
    await stage.check()
    stage.world.vault.outage = (0.0, 0.0)
    await stage.flush()
    assert stage.recovered() == {"01", "02"}


@fixed()
async def test_a_prune_with_nothing_left_to_name(stage: Stage) -> None:
    """A range that only removes is stored, and needs no segment."""
    for number in range(1, 5):
        await stage.save(f"0{number}", f"0{number - 1}" if number > 1 else "", x=BIG)
    await stage.flush()
    await stage.prune()
    await stage.flush()
    assert stage.recovered() == {"04"}
    puts = len(stage.world.vault.packs)
    await stage.flush()
    assert len(stage.world.vault.packs) == puts


@fixed()
async def test_early_writes_are_claimed_below_the_watermark(stage: Stage) -> None:
    """Writes that were certified before their checkpoint came are stored with it."""
    await stage.write("02", write("w", b"early"))
    await stage.save("01", x=b"one")
    await stage.flush()
    assert stage.marks()[0] == stage.marks()[1]
    await stage.save("02", "01", x=b"two")
    await stage.flush()
    threads = stage.world.looks["main"].threads
    assert threads is not None
    assert len(threads["t"].writes) == 1


@fixed()
async def test_certifying_dirties_nothing(stage: Stage) -> None:
    """A flush leaves no backlog, and the next flush puts nothing."""
    saved = await stage.save("01", x=BIG, writes=[write("w", b"1")])
    await stage.server.archive.certify(TENANT, saved.key, saved.seq)
    puts = len(stage.world.vault.packs)
    assert stage.marks() == (saved.seq, saved.seq)
    for _ in range(3):
        await stage.flush()
        await asyncio.sleep(2 * 3600.0)
    assert len(stage.world.vault.packs) == puts
    assert stage.marks() == (saved.seq, saved.seq)


@fixed()
async def test_late_writes_are_evicted(stage: Stage) -> None:
    """Writes that came after their checkpoint was stored are read from their own segment."""
    await stage.save("01", x=b"one")
    await stage.flush()
    await stage.write("01", write("w", BIG), write("w", b"2", idx=1))
    await stage.save("02", "01", x=Reference.INHERIT)
    await stage.flush()
    await asyncio.sleep(1.0)
    await stage.server.evict()
    [[gone]] = stage.server.disk.journal.ask("SELECT count(*) FROM writes WHERE data IS NULL")
    assert gone == 2
    await stage.world.clients.compare(stage.server, key("01"))
    await stage.server.lineage.fork(TENANT, key("01"), "f", "", await stage.values("01"))
    stage.server.believe(["f"])
    await stage.flush()


@fixed(standalone=True)
async def test_evicted_writes_of_a_copy_are_stored_with_its_own(stage: Stage) -> None:
    """The segment of a single checkpoint has all its writes, including evicted ones."""
    await stage.save("01", x=b"one", writes=[write("w", BIG), write("w", b"2", idx=1)])
    await stage.save("02", "01", x=b"two")
    await stage.flush()
    await asyncio.sleep(1.0)
    await stage.server.evict()
    await stage.server.lineage.copy_thread(TENANT, "t", "u", "")
    stage.server.believe(["u"])
    await stage.write("01", write("w", b"3", idx=2), thread_id="u")
    await stage.flush()
    threads = stage.world.looks["main"].threads
    assert threads is not None
    assert len(threads["u"].writes) == 3
    await stage.world.clients.compare(stage.server, key("01", "u"))


@fixed()
async def test_one_refused_checkpoint_in_a_busy_tenant(stage: Stage) -> None:
    """The checkpoint becomes a gap; callers that wait for it get an error, and no other caller
    waits."""

    def blocked(members: Sequence[BlobMember]) -> Reason | None:
        for member in members:
            if member.kind == "segment":
                held = decode_segment(member.data, "").checkpoints
                if any(checkpoint.checkpoint_id == "bad" for checkpoint in held):
                    return Reason.BLOB_REJECTED
        return None

    stage.server.store.verdict = blocked
    bad = await stage.save("bad", x=b"bad", thread_id="b")
    neighbours = [await stage.save(f"0{n}", x=BIG, thread_id=f"t{n}") for n in range(4)]
    after = await stage.save("later", "bad", x=b"later", thread_id="b")
    for saved in (*neighbours, after):
        await stage.server.archive.certify(TENANT, saved.key, saved.seq)
    await refused(
        stage.server.archive.certify(TENANT, bad.key, bad.seq), Reason.CERTIFICATION_FAILED
    )
    await stage.check()
    assert stage.recovered("b") == {"later"}
    stage.server.store.verdict = lambda members: None
    await stage.flush()
    assert stage.recovered("b") == {"bad", "later"}


@fixed(max_pack_bytes=4000)
async def test_a_resave_above_the_bound_of_a_segment(stage: Stage) -> None:
    """The second save overtakes the flush of the first: neither version is lost or certified
    early."""
    await stage.save("01", x=BIG)
    await stage.save("02", "01", y=BIG[::-1])
    travelling = asyncio.Event()

    async def again(members: Sequence[BlobMember]) -> None:
        await stage.save("01", x=b"again")
        travelling.set()

    stage.server.store.on_put = again
    await stage.server.archive.certify_all(TENANT)
    assert travelling.is_set()
    await stage.check()
    await stage.save("03", "02", y=BIG)
    await stage.save("02", "01", y=b"again")
    await stage.flush()
    assert stage.recovered() == {"01", "02", "03"}


@fixed()
async def test_the_disk_is_full_while_space_must_be_freed(stage: Stage) -> None:
    """Saves are refused; eviction still works, and then saves work again."""
    for number in range(10, 20):
        content = random.Random(number).randbytes(20_000)
        await stage.save(f"{number}", f"{number - 1}" if number > 10 else "", x=content)
    await stage.flush()
    disk = stage.server.disk.journal
    disk.limit(2)
    await refused(stage.save("20", "19", x=HUGE), Reason.JOURNAL_UNAVAILABLE)
    stage.server.believe(["t"])
    await asyncio.sleep(1.0)
    await stage.server.evict()
    await stage.save("20", "19", x=HUGE)
    disk.limit(None)
    await stage.flush()


@fixed()
async def test_a_thread_is_deleted_while_its_segment_travels(stage: Stage) -> None:
    """The thread's watermark still moves, and the thread does not come back."""
    await stage.save("01", x=BIG)
    await stage.save("01", x=BIG, thread_id="u")

    async def delete(members: Sequence[BlobMember]) -> None:
        await stage.delete("t")

    stage.server.store.on_put = delete
    await stage.server.archive.certify_all(TENANT)
    await stage.check()
    assert stage.marks("u")[0] == stage.marks("u")[1]
    await stage.flush()
    assert stage.marks()[0] == stage.marks()[1]
    assert not stage.recovered()
    await stage.save("02", x=b"next")
    await stage.flush()
    assert stage.recovered() == {"02"}


@fixed(QUILTS, epochs=3)
async def test_one_put_of_several_fails(stage: Stage) -> None:
    """The other members are not put again, and nothing is certified before its member is stored."""
    failed: list[int] = []

    def once(members: Sequence[BlobMember]) -> Reason | None:
        if not failed and any(member.kind == "segment" for member in members):
            failed.append(len(members))
            return Reason.BLOB_UNAVAILABLE
        return None

    stage.server.store.verdict = once
    for number in range(8):
        await stage.save("01", x=BIG + bytes([number]), thread_id=f"t{number}")
    await refused(stage.server.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    await stage.check()
    assert all(stage.marks(f"t{number}")[1] == 0 for number in range(8))
    await stage.flush()
    segments = [
        member for pack in stage.world.vault.packs.values() for member in pack.values()
        if member.kind == "segment"
    ]  # fmt: skip
    assert len(segments) == len({segment.sha256 for segment in segments})


@fixed()
async def test_a_run_that_a_merge_needs_is_lost(stage: Stage) -> None:
    """The flush reports the loss, and a new catalog replaces the one that names the lost run."""
    for number in range(5):
        await stage.save(f"0{number}", x=b"%d" % number)
        await stage.flush()
    await stage.world.restart()
    known = newest(stage.server)
    assert known is not None
    [lost, *_] = [ref.location for ref in known.catalog.runs.oldest_first()]
    stage.world.vault.lose(lost.blob_id, lost.sha256)
    problems = []
    for number in range(5, 14):
        await stage.save(f"{number:02}", x=b"%d" % number)
        problems.append(await stage.server.flushed())
    assert [problem.reason for problem in problems if problem is not None] == [
        Reason.BLOB_NOT_FOUND
    ]
    assert problems[-1] is None


@fixed()
async def test_a_catalog_made_anew_while_a_row_has_changed_again(stage: Stage) -> None:
    """A segment that no row names at the moment is recorded, too: the next row may name it."""
    await stage.save("00", x=BIG)
    await stage.flush()
    for number in range(1, 7):
        await stage.save(f"0{number}", x=b"%d" % number)
        await stage.flush()
    await stage.world.restart()
    known = newest(stage.server)
    assert known is not None
    [lost, *_] = [ref.location for ref in known.catalog.runs.oldest_first()]
    stage.world.vault.lose(lost.blob_id, lost.sha256)
    await stage.save("00", x=b"small")
    problem = None
    while problem is None:
        problem = await stage.server.flushed()
        if problem is None:
            await stage.save("10", x=b"other")
    assert problem.reason is Reason.BLOB_NOT_FOUND
    await stage.save("20", x=BIG)
    await stage.flush()  # The flush checks that each needed member is recorded.


@fixed(QUILTS, epochs=3, renew_interval_s=EPOCH_S / 8)
async def test_all_blobs_are_lost_and_idle_rounds_follow(stage: Stage) -> None:
    """The values in the journal are stored again, and flushes continue."""
    await lose_everything(stage, EPOCH_S)
    assert stage.recovered() == {"01", "02", "03"}


@fixed()
async def test_all_files_of_a_directory_are_lost_and_idle_rounds_follow(stage: Stage) -> None:
    """Nothing is certified until the loss is accepted; then the values are stored again."""
    await lose_everything(stage, 3600.0)
    assert stage.recovered() == {"01", "02", "03"}


async def lose_everything(stage: Stage, round_s: float) -> None:
    """Lose every blob of a tenant; then let idle rounds pass."""
    await stage.save("01", x=BIG)
    await stage.flush()
    await stage.save("02", "01", x=b"two")
    await stage.flush()
    vault = stage.world.vault
    for blob_id, pack in vault.packs.items():
        for sha256 in list(pack):
            vault.lose(blob_id, sha256)
    for _ in range(6):
        stage.world.loop.forget_turns()
        await asyncio.sleep(round_s)
    await stage.save("03", "02", x=b"three")
    if vault.epoch_s is None:
        problem = await stage.server.flushed()
        assert isinstance(problem, StoreLostError)
        await stage.world.restart()
    for _ in range(3):
        problem = await stage.server.flushed()
        await asyncio.sleep(60.0)
    assert problem is None
    assert stage.marks()[0] == stage.marks()[1]
    await stage.check()
