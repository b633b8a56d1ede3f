"""Verifying a thread: a verdict on each of its checkpoints.

First the newest catalog and its runs are read, and folded to the thread's manifest. Then the
segments of every checkpoint are read, a page of checkpoints at a time, and compared with what
the journal recorded and with the manifest.

Threads change while they are verified, so nothing is called damaged on one look: a broken
chain must still be that of the newest catalog, and a checkpoint that fails must fail again
with what journal and manifest say then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...blobs.api import BlobStore
from ...domain.formats.manifests import fold
from ...domain.formats.segments import SegmentCheckpoint
from ...domain.limits import MIB
from ...domain.model import BlobLocation, CheckpointKey
from ...domain.threads import RowDigests, Verdict, VerdictKind, row_digests
from ...journal.archiving import standing as journal
from ...journal.archiving.standing import Incarnation, Place, RecordedCheckpoint, Standing
from ...journal.database.database import Database
from ..read.reader import digests_of, needed_values, newest_row, newest_writes
from ..read.segments import Stored
from .chain import Chain, contradiction, named_by, read_chain
from .reading import Damage, VerifiedSegments, damage_at

PAGE_CHECKPOINTS = 256
"""Checkpoints whose rows are read at once."""

BATCH_SEGMENTS = 256
BATCH_BYTES = 16 * MIB
"""Bounds on what is read from the blob store at once; one checkpoint always fits."""

LOOKS = 5
"""Times that something which keeps changing is looked at, before the last look counts."""

_CHECKED_VALUES = 100_000
_THREAD_ABOVE_BYTES = 64 * 1024


async def begin(
    database: Database,
    blobs: BlobStore,
    tenant: str,
    thread_id: str,
    mismatch: Callable[[], None],
) -> ThreadVerification | None:
    """Begin to verify a thread.

    Args:
        database: The journal's database.
        blobs: The blob store itself, no cache.
        tenant: The tenant.
        thread_id: The thread.
        mismatch: Called once for each member that is found to have another hash than recorded.

    Returns:
        `None` if there is no such thread.

    Raises:
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    found = await database.query(partial(journal.of_thread_now, tenant=tenant, thread_id=thread_id))
    if found is None:
        return None
    return ThreadVerification(database, blobs, tenant, thread_id, *found, mismatch)


class ThreadVerification:
    """Verdicts on a thread. Made by `begin`.

    Attributes:
        chain_problem: What is wrong with the way from the newest catalog to the thread's
            manifest, for people; else empty.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        tenant: str,
        thread_id: str,
        of: Incarnation,
        places: Sequence[Place],
        mismatch: Callable[[], None],
    ) -> None:
        self._database = database
        self._segments = VerifiedSegments(database, tenant, blobs)
        self._tenant = tenant
        self._thread_id = thread_id
        self._of = of
        self._places = places
        self._chain = Chain(b"", fold(thread_id, ()))
        self._mismatch = mismatch
        self._mismatched: set[bytes] = set()
        self._checked: set[tuple[bytes, bytes]] = set()
        self.chain_problem = ""

    def _note_mismatch(self, sha256: bytes) -> None:
        """Count a member that has another hash than this one, once; empty: none."""
        if sha256 and sha256 not in self._mismatched:
            self._mismatched.add(sha256)
            self._mismatch()

    async def verdicts(self) -> AsyncGenerator[Verdict, None]:
        """Yield a verdict on each checkpoint, by namespace and ID.

        Those are the checkpoints that journal and manifest knew when the verification
        began, with those whose removal the runs still have.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`: no verdict can be had now.
        """
        first = await self._look(())
        places = sorted({*self._places, *self._chain.places(self._of), *first.removed})
        for start in range(0, len(places), PAGE_CHECKPOINTS):
            page = places[start : start + PAGE_CHECKPOINTS]
            standing = await self._standing(page)
            for batch in _batches(page, standing):
                for verdict in await self._verdicts(batch, standing):
                    yield verdict

    async def _standing(self, places: Sequence[Place]) -> Standing:
        return await self._database.query(
            partial(journal.standing, tenant=self._tenant, of=self._of, places=places)
        )

    async def _verdicts(self, batch: Sequence[Place], standing: Standing) -> Iterable[Verdict]:
        """Return the verdicts on a batch, in order.

        What fails is judged again by what journal and manifest say then, until the journal
        says what it said before.
        """
        verdicts = await self._judge_all(batch, standing)
        doubtful = [one for one in batch if verdicts[one].kind is VerdictKind.FAIL]
        for _ in range(LOOKS):
            if not doubtful:
                break
            before, standing = standing, await self._look(doubtful)
            verdicts |= await self._judge_all(doubtful, standing)
            doubtful = [
                one
                for one in doubtful
                if verdicts[one].kind is VerdictKind.FAIL
                and _facts(standing, one) != _facts(before, one)
            ]
        for verdict in verdicts.values():
            if verdict.location and verdict.actual_sha256 not in (b"", verdict.location.sha256):
                self._note_mismatch(verdict.location.sha256)
        return verdicts.values()

    async def _look(self, places: Sequence[Place]) -> Standing:
        """Return what the journal says, and read the manifest of the same moment.

        Once a catalog was followed by another, nothing keeps what it names: a broken chain
        must still be that of the newest catalog.
        """
        broken: bytes | None = None
        while True:
            self._segments.forget()
            standing = await self._standing(places)
            known = standing.catalog
            if known is None or known.location.sha256 == self._chain.catalog:
                return standing
            chain = await read_chain(self._segments, self._thread_id, self._of, known)
            if chain.manifest is None and broken != chain.catalog:
                broken = chain.catalog
                continue
            if chain.manifest is not None or not standing.ended:
                self._chain = chain
                self._segments.manifest = chain.manifest
                self._note_mismatch(chain.mismatch)
                self.chain_problem = self.chain_problem or chain.problem
            return standing

    async def _judge_all(self, batch: Sequence[Place], standing: Standing) -> dict[Place, Verdict]:
        verdicts: dict[Place, Verdict] = {}
        await self._segments.load(self._locations(batch, standing))
        for group, holders in self._groups(batch, standing):
            await self._segments.load_named(holders)
            for place in group:
                verdicts[place] = await self._judge(place, standing)
                await asyncio.sleep(0)  # a batch must not hold up every other call
        return verdicts

    def _groups(
        self, batch: Sequence[Place], standing: Standing
    ) -> Iterator[tuple[list[Place], list[Stored]]]:
        """Cut a batch where the segments that its own ones name become too many."""
        group: list[Place] = []
        holders: dict[bytes, Stored] = {}
        named: dict[bytes, int] = {}
        for place in batch:
            own = filter(None, map(self._segments.kept, self._locations([place], standing)))
            more = {one.location.sha256: one for one in own}
            others = {
                member.location.sha256: member.location.size
                for one in more.values()
                for member in one.segment.members
            }
            if group and sum((named | others).values()) > BATCH_BYTES:
                yield group, list(holders.values())
                group, holders, named = [], {}, {}
            group.append(place)
            holders |= more
            named |= others
        yield group, list(holders.values())

    def _locations(self, places: Sequence[Place], standing: Standing) -> list[BlobLocation]:
        """Return the segments of checkpoints, each once."""
        found: dict[bytes, BlobLocation] = {}
        for place in places:
            recorded = standing.checkpoints.get(place)
            if recorded is not None and not recorded.hole:
                both = (*recorded.entry.segments, *self._told(place, recorded))
                found.update((one.sha256, one) for one in both)
        return list(found.values())

    def _told(self, place: Place, recorded: RecordedCheckpoint) -> list[BlobLocation]:
        """Return the segments that the manifest names for a checkpoint, where they are others."""
        entry, manifest = self._chain.entry(self._of, place), self._chain.manifest
        if entry is None or manifest is None or not recorded.entry.certified:
            return []
        if entry.record.seq != recorded.seq:
            return []
        told = list(filter(None, map(manifest.location, named_by(entry))))
        same = {one.sha256 for one in told} == {one.sha256 for one in recorded.entry.segments}
        return [] if same else told

    async def _judge(self, place: Place, standing: Standing) -> Verdict:
        key = CheckpointKey(self._thread_id, *place)
        manifest = self._chain.manifest
        recorded = standing.checkpoints.get(place)
        entry = self._chain.entry(self._of, place)
        if recorded is None:
            if entry is None or standing.ended or place in standing.removed or manifest is None:
                return Verdict(key, VerdictKind.RETRACTED)
            told = manifest.location(entry.record.segment)
            return Verdict(key, VerdictKind.FAIL, told, detail=_UNKNOWN)
        first = next(iter(recorded.entry.segments), None)
        if recorded.hole:
            kind = VerdictKind.FAIL if recorded.lost else VerdictKind.UNVERIFIED
            return Verdict(key, kind, first, detail=recorded.hole)
        if recorded.seq > recorded.certified_seq:
            return Verdict(key, VerdictKind.UNVERIFIED)
        if first is None:
            return Verdict(key, VerdictKind.FAIL, detail=_NOWHERE)
        try:
            await self._check(key, recorded, recorded.entry.segments)
            if others := self._told(place, recorded):
                await self._check(key, recorded, others)
        except Damage as damage:
            at, reason = damage.location, standing.lost.get(damage.location.sha256)
            if reason is not None and not recorded.lost:  # a known hole is no news
                return Verdict(key, VerdictKind.UNVERIFIED, at, detail=reason)
            return Verdict(key, VerdictKind.FAIL, at, damage.actual_sha256, damage.detail)
        problem = "" if manifest is None else contradiction(recorded, entry, manifest)
        kind = VerdictKind.PASS if recorded.entry.certified else VerdictKind.UNVERIFIED
        if problem:
            kind = VerdictKind.FAIL
        return Verdict(key, kind, first, first.sha256, problem)

    async def _check(
        self, key: CheckpointKey, recorded: RecordedCheckpoint, places: Sequence[BlobLocation]
    ) -> None:
        """Check that segments hold what the journal says of a checkpoint.

        Raises:
            Damage: They do not.
        """
        with damage_at(places[0]):
            stored = await self._segments.read(places)
            row, holder = newest_row(stored, key)
            found = await _digests(stored, row, key)
            if not recorded.entry.certified:  # its writes go on beside what is stored
                found = replace(found, pending_writes=recorded.content.pending_writes)
            if different := found.difference(recorded.content):
                detail = f"the {different} in its segment and in the journal differ"
                raise Damage(places[0], places[0].sha256, detail)
            # What its values are is known of each segment once.
            digests = {(holder.location.sha256, one) for one in digests_of(row, holder)}
            unchecked = digests - self._checked
            await needed_values(self._segments, holder, [one for _, one in unchecked])
            if len(self._checked) > _CHECKED_VALUES:
                self._checked.clear()
            self._checked |= unchecked


_UNKNOWN = "the manifest names it and the journal does not know it"
_NOWHERE = "it is certified and no segment of it is recorded"


def _facts(standing: Standing, place: Place) -> RecordedCheckpoint | None:
    """Return what a failure rests on; a watermark that moves on changes nothing of it."""
    recorded = standing.checkpoints.get(place)
    return None if recorded is None else replace(recorded, certified_seq=0)


async def _digests(
    segments: Sequence[Stored], row: SegmentCheckpoint, key: CheckpointKey
) -> RowDigests:
    """Return the digests of what segments hold of a checkpoint; its writes are unpacked.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    place = (key.checkpoint_ns, key.checkpoint_id)
    size = sum(write.size for one in segments for write in one.writes.get(place, ()))
    if size > _THREAD_ABOVE_BYTES:
        writes = await asyncio.to_thread(newest_writes, segments, key)
    else:
        writes = newest_writes(segments, key)
    facts = [(one.task_id, one.task_path, one.idx, one.channel, one.digest) for one in writes]
    return row_digests(row.state, row.metadata, row.delta_base, facts)


def _batches(page: Sequence[Place], standing: Standing) -> Iterator[list[Place]]:
    """Cut a page into batches whose segments are read at once."""
    batch: list[Place] = []
    sizes: dict[bytes, int] = {}
    for place in page:
        recorded = standing.checkpoints.get(place)
        more = {
            one.sha256: BATCH_BYTES if one.sha256 in standing.in_parts else one.size
            for one in (recorded.entry.segments if recorded is not None else ())
        }
        both = sizes | more
        if batch and (len(both) > BATCH_SEGMENTS or sum(both.values()) > BATCH_BYTES):
            yield batch
            batch, both = [], more
        batch.append(place)
        sizes = both
    if batch:
        yield batch
