"""Verification of a thread: a verdict on each checkpoint, and problems in the journal.

First the newest catalog and its runs are read and folded to the thread's manifest. Then the
segments of every checkpoint are read, a page of checkpoints at a time, and compared with the
journal and with the manifest. All bytes come from the blob store itself. A verification changes
nothing and only reports damage.

Threads change while they are verified, so nothing counts as damaged after one check: a broken chain
must still belong to the newest catalog, and a failed checkpoint must fail again with the journal
and the manifest of the moment of the second check.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from ...blobs.api import BlobStore
from ...core.errors import Reason, Refusal
from ...core.limits import MIB
from ...core.model import BlobLocation, CheckpointKey
from ...core.threads import PENDING_WRITES, Verdict, VerdictKind, difference, row_digests
from ...journal.database import put_back
from ...journal.database.database import Database
from ...journal.database.thread_rows import Place, ThreadRow
from ...journal.values.integrity import CheckPosition, check_some
from ..formats.catalogs import Catalog, decode_catalog
from ..formats.manifests import Manifest, ManifestEntry, fold
from ..formats.sealing import open_member
from ..formats.segment_reading import digests_of
from ..formats.segments import SegmentCheckpoint
from ..formats.stored_json import Kind, settle_location
from ..read.read import (
    DAMAGE,
    THREAD_ABOVE_BYTES,
    Segments,
    StoredSegment,
    newest_writes,
    read_each,
    recorded_places,
    records_of,
    slice_items,
    stored_row,
)
from ..rows import recorded as journal
from ..rows.recorded import RecordedCheckpoint, RecordedThread
from ..rows.status import NewestCatalog

PAGE_CHECKPOINTS = 256  # checkpoints whose rows are read at once

BATCH_CHECKPOINTS = 256  # checkpoints whose segments are read at once
BATCH_BYTES = 16 * MIB  # bytes of those segments; one checkpoint always fits
MAX_JOURNAL_PROBLEMS = 100  # problems after which the check stops; the contract states this number
LOOKS = 5  # checks of something that keeps changing, after which the last check counts

_KEPT_BYTES = 96 * MIB
_CHECKED_VALUES = 100_000


@dataclass(eq=False)
class ThreadVerification:
    """Verdicts on a thread; thread and checkpoints come from `recorded.of_thread_now`.

    `_mismatch` is called once for each member whose hash differs from the recorded hash.
    `chain_problem` describes, for people, the problem on the way from the newest catalog to the
    thread's manifest; empty if there is none.
    """

    _database: Database
    _blobs: BlobStore
    _of: ThreadRow
    _places: Sequence[Place]
    _mismatch: Callable[[], None]

    def __post_init__(self) -> None:
        self._segments = _VerifiedSegments(self._database, self._of.tenant, self._blobs)
        self._catalog = b""  # hash of the catalog that was read; empty: no catalog
        self._manifest = fold(self._of.thread_id, ())  # manifest of the live incarnation
        self._chain_holds = True
        self._last_seq = 0  # last change of the thread that a record in the blob store names
        self._put_back = ""  # how far the journal is behind these records, for people
        self._mismatched: set[bytes] = set()
        self._checked: set[tuple[bytes, bytes]] = set()
        self.chain_problem = ""

    async def verdicts(self) -> AsyncGenerator[Verdict, None]:
        """Yield a verdict on each checkpoint, by namespace and ID.

        Verdicts cover the checkpoints that the journal or the manifest had at the start of the
        verification, and the checkpoints whose removal the runs still record.
        """
        first = await self._look(())
        manifest = self._manifest
        places = sorted({*self._places, *first.removed, *manifest.entries, *manifest.removed})
        for start in range(0, len(places), PAGE_CHECKPOINTS):
            page = places[start : start + PAGE_CHECKPOINTS]
            journal_view = await self._read_journal(page)
            size_of = partial(self._new_bytes, journal_view=journal_view, seen=set())
            for batch in slice_items(page, size_of, BATCH_BYTES, BATCH_CHECKPOINTS):
                for verdict in await self._verdicts(batch, journal_view):
                    yield verdict

    async def journal_problems(self) -> tuple[str, ...]:
        """Return the problems of the thread's rows and values in the journal, for people.

        Call `verdicts` first: it reads the records that the row of the thread is compared with. The
        bytes of each part are read at one moment, so concurrent changes are not reported as
        problems.
        """
        problems: list[str] = [self._put_back] if self._put_back else []
        position: CheckPosition | None = None
        sound: set[bytes] = set()
        while len(problems) < MAX_JOURNAL_PROBLEMS:
            look = partial(
                check_some,
                tenant=self._of.tenant,
                thread_id=self._of.thread_id,
                at=position,
                sound=sound,
            )
            checked = await self._database.query(look)
            problems += map(str, checked.problems)
            position = checked.next
            if position is None:
                break
            if len(sound) > _CHECKED_VALUES:
                sound.clear()
        return tuple(dict.fromkeys(problems))[:MAX_JOURNAL_PROBLEMS]

    def _new_bytes(self, place: Place, journal_view: RecordedThread, seen: set[bytes]) -> int:
        """Return the bytes of a checkpoint's segments that no earlier checkpoint has."""
        recorded, members = journal_view.checkpoints.get(place), self._manifest.members
        segments = recorded.entry.segments if recorded is not None else ()
        new = {
            location.sha256: location.size for location in segments if location.sha256 not in seen
        }
        seen.update(new)
        part_lists = [
            sha256 for sha256 in new if sha256 in members and members[sha256].holds is Kind.PARTS
        ]
        return sum(new.values()) + BATCH_BYTES * len(part_lists)

    async def _read_journal(self, places: Sequence[Place]) -> RecordedThread:
        return await self._database.query(
            partial(journal.read_checkpoints, of=self._of, places=places)
        )

    def _note_mismatch(self, location: BlobLocation, actual_sha256: bytes) -> None:
        sha256 = location.sha256
        if actual_sha256 not in (b"", sha256) and sha256 not in self._mismatched:
            self._mismatched.add(sha256)
            self._mismatch()

    async def _look(self, places: Sequence[Place]) -> RecordedThread:
        """Return the journal's view, and read the manifest of the same moment.

        Once a newer catalog is certified, members of the older catalog may be removed: a broken
        chain counts only if it still belongs to the newest catalog.
        """
        broken: bytes | None = None
        while True:
            self._segments.forget()  # unreadable members may have moved since
            journal_view = await self._read_journal(places)
            catalog = journal_view.catalog
            if catalog is None or catalog.location.sha256 == self._catalog:
                return journal_view
            empty = fold(self._of.thread_id, ())
            try:
                manifest = await self._read_chain(catalog)
                self._chain_holds = True
                self._put_back = _how_behind(journal_view.certified_seq, self._last_seq)
            except MemberDamageError as damage:
                if broken != catalog.location.sha256:
                    broken = catalog.location.sha256
                    continue
                if journal_view.ended:
                    return journal_view
                self._note_mismatch(damage.location, damage.actual_sha256)
                self.chain_problem = self.chain_problem or damage.detail
                manifest, self._chain_holds = empty, False
            self._catalog = catalog.location.sha256
            self._segments.manifest = manifest
            self._manifest = manifest if manifest.incarnation == self._of.incarnation else empty
            return journal_view

    async def _read_chain(self, known: NewestCatalog) -> Manifest:
        """Return the thread's manifest from a catalog, or raise `MemberDamageError`."""
        with _damage_at(known.location):
            [data] = await self._segments.fetch([known.location])
            stored = decode_catalog(open_member(data, known.location), known.location.blob_id)
            if _catalog_identity(stored) != _catalog_identity(known.catalog):
                problem = "the stored catalog and the one in the journal differ"
                raise MemberDamageError(known.location, b"", problem)
            records = await records_of(stored.runs, self._of.thread_id, self._segments.fetch)
        self._last_seq = max((record.seq for record in records), default=0)
        manifest = await asyncio.to_thread(fold, self._of.thread_id, records)
        if manifest.incarnation > self._of.incarnation:
            problem = (
                f"the manifest is of incarnation {manifest.incarnation} and the journal has "
                f"{self._of.incarnation}"
            )
            raise MemberDamageError(known.location, b"", problem)
        return manifest

    async def _verdicts(
        self, batch: Sequence[Place], journal_view: RecordedThread
    ) -> Iterable[Verdict]:
        """Return the verdicts on a batch, in order.

        A failed checkpoint is judged again, with the journal and the manifest of that moment, until
        the journal does not change between two looks.
        """
        verdicts = await self._judge_all(batch, journal_view)
        doubtful = [place for place in batch if verdicts[place].kind is VerdictKind.FAIL]
        for _ in range(LOOKS):
            if not doubtful:
                break
            previous, journal_view = journal_view, await self._look(doubtful)
            verdicts |= await self._judge_all(doubtful, journal_view)
            doubtful = [
                place
                for place in doubtful
                if verdicts[place].kind is VerdictKind.FAIL
                and _facts(journal_view, place) != _facts(previous, place)
            ]
        for verdict in verdicts.values():
            if verdict.location is not None:
                self._note_mismatch(verdict.location, verdict.actual_sha256)
        return verdicts.values()

    async def _judge_all(
        self, batch: Sequence[Place], journal_view: RecordedThread
    ) -> dict[Place, Verdict]:
        locations: dict[bytes, BlobLocation] = {}
        for place in batch:
            recorded = journal_view.checkpoints.get(place)
            if recorded is not None and not recorded.gap:
                segments = (*recorded.entry.segments, *self._named_elsewhere(place, recorded))
                locations.update((location.sha256, location) for location in segments)
        await self._segments.load(locations.values())
        await self._segments.load_named(locations)
        verdicts: dict[Place, Verdict] = {}
        for place in batch:
            verdicts[place] = await self._judge(place, journal_view)
            await asyncio.sleep(0)  # give other calls a turn between batches
        return verdicts

    def _named_elsewhere(self, place: Place, recorded: RecordedCheckpoint) -> list[BlobLocation]:
        """Return the segments that only the manifest names for a checkpoint, not the journal."""
        entry = self._manifest.entries.get(place)
        if entry is None or not recorded.entry.certified or entry.record.seq != recorded.seq:
            return []
        locations = list(filter(None, map(self._manifest.location, _named_by(entry))))
        is_same = {location.sha256 for location in locations} == {
            location.sha256 for location in recorded.entry.segments
        }
        return [] if is_same else locations

    async def _judge(self, place: Place, journal_view: RecordedThread) -> Verdict:
        key = CheckpointKey(self._of.thread_id, *place)
        recorded = journal_view.checkpoints.get(place)
        entry = self._manifest.entries.get(place)
        if recorded is None:
            if entry is None or journal_view.ended or place in journal_view.removed:
                return Verdict(key, VerdictKind.RETRACTED)
            location = self._manifest.location(entry.record.segment)
            unknown = "the manifest names it and the journal does not know it"
            return Verdict(key, VerdictKind.FAIL, location, detail=unknown)
        first = next(iter(recorded.entry.segments), None)
        if recorded.gap:
            kind = VerdictKind.FAIL if recorded.lost else VerdictKind.UNVERIFIED
            return Verdict(key, kind, first, detail=recorded.gap)
        if recorded.seq > recorded.certified_seq:
            return Verdict(key, VerdictKind.UNVERIFIED)
        if first is None:
            nowhere = "it is certified and no segment of it is recorded"
            return Verdict(key, VerdictKind.FAIL, detail=nowhere)
        try:
            await self._check(key, recorded, recorded.entry.segments)
            if manifest_segments := self._named_elsewhere(place, recorded):
                await self._check(key, recorded, manifest_segments)
        except MemberDamageError as damage:
            member_location, reason = damage.location, journal_view.lost.get(damage.location.sha256)
            if reason is not None and not damage.actual_sha256:  # the gap is already known
                kind = VerdictKind.FAIL if recorded.lost else VerdictKind.UNVERIFIED
                return Verdict(key, kind, member_location, detail=reason)
            return Verdict(
                key, VerdictKind.FAIL, member_location, damage.actual_sha256, damage.detail
            )
        holds = self._chain_holds
        problem = _contradiction(recorded, entry, self._manifest) if holds else ""
        kind = VerdictKind.PASS if recorded.entry.certified else VerdictKind.UNVERIFIED
        if problem:
            kind = VerdictKind.FAIL
        return Verdict(key, kind, first, first.sha256, problem)

    async def _check(
        self, key: CheckpointKey, recorded: RecordedCheckpoint, places: Sequence[BlobLocation]
    ) -> None:
        """Raise `MemberDamageError` unless segments hold the checkpoint that the journal has."""
        with _damage_at(places[0]):
            stored = await self._segments.read(places)
            row, holder = stored_row(stored, key)
            content = await _digests(stored, row, key)
            if not recorded.entry.certified:  # the checkpoint has writes that are not stored yet
                content[PENDING_WRITES] = recorded.content[PENDING_WRITES]
            if different := difference(content, recorded.content):
                detail = f"the {different} in its segment and in the journal differ"
                raise MemberDamageError(places[0], places[0].sha256, detail)
            # The values of a segment are checked only once.
            digests = {
                (holder.location.sha256, digest)
                for digest in digests_of(row, holder.location.blob_id)
            }
            unchecked = digests - self._checked
            await self._segments.needed(holder, [digest for _, digest in unchecked])
            if len(self._checked) > _CHECKED_VALUES:
                self._checked.clear()
            self._checked |= unchecked


@dataclass(eq=False)
class MemberDamageError(Exception):
    """Stored bytes are unreadable, or differ from the recorded bytes; fields as in `Verdict`."""

    location: BlobLocation
    actual_sha256: bytes
    detail: str

    @classmethod
    def named(cls, location: BlobLocation, refusal: Refusal) -> MemberDamageError:
        """Return the damage that a refusal reports, at a location."""
        actual = b""
        if refusal.reason is Reason.BLOB_HASH_MISMATCH:
            actual = bytes.fromhex(refusal.metadata["actual"])
        elif refusal.reason is Reason.BLOB_MALFORMED:
            actual = location.sha256
        return cls(location, actual, refusal.message)


@contextmanager
def _damage_at(location: BlobLocation) -> Iterator[None]:
    """Raise `MemberDamageError` for a refusal that reports damage at a location."""
    try:
        yield
    except Refusal as refusal:
        # refusals about the member's key
        if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):
            raise
        raise MemberDamageError.named(location, refusal) from refusal


class _VerifiedSegments(Segments):
    """Segments of a tenant, read from the blob store itself.

    An unreadable member raises `MemberDamageError`, and is not read again before `forget`. The
    manifest has the locations of segments that the journal does not record.
    """

    def __init__(self, database: Database, tenant: str, blobs: BlobStore) -> None:
        super().__init__(blobs, _KEPT_BYTES)
        self._recorded = recorded_places(database, tenant)
        self._damaged: dict[bytes, MemberDamageError] = {}
        self.manifest = fold("", ())

    def forget(self) -> None:
        self._damaged.clear()

    async def load(self, locations: Iterable[BlobLocation]) -> None:
        """Fetch segments, many at a time, and cache them; skip unreadable segments."""
        missing = [location for location in locations if location.sha256 not in self._kept]
        for location, data in zip(missing, await self._read(missing), strict=True):
            try:
                with _damage_at(location):
                    await self.take(location, _raise_damage(data))
            except MemberDamageError as damage:
                self._damaged[location.sha256] = damage

    async def load_named(self, hashes: Iterable[bytes]) -> None:
        """Fetch the first members that cached segments name; the rest is read on demand."""
        size = 0
        missing: dict[bytes, BlobLocation] = {}
        for stored in [self._kept[sha256] for sha256 in hashes if sha256 in self._kept]:
            for member in stored.segment.members:
                place = settle_location(member.location, stored.location.blob_id)
                if place.sha256 in self._kept or place.sha256 in missing:
                    continue
                size += place.size
                if size > BATCH_BYTES:
                    break
                missing[place.sha256] = place
        await self.load(missing.values())

    async def fetch(self, locations: Sequence[BlobLocation]) -> Sequence[bytes]:
        return list(map(_raise_damage, await self._read(locations)))

    async def _read(self, locations: Sequence[BlobLocation]) -> list[bytes | MemberDamageError]:
        """Return, for each location, its bytes or their damage, which is also noted."""
        by_hash = {
            location.sha256: location
            for location in locations
            if location.sha256 not in self._damaged
        }
        hints = [self.manifest.location(sha256) or hint for sha256, hint in by_hash.items()]
        places = await self._recorded(hints) if hints else ()
        answers = await read_each(self._blobs, places) if places else ()
        contents: dict[bytes, bytes | MemberDamageError] = {}
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, Refusal):
                self._damaged[place.sha256] = MemberDamageError.named(place, answer)
            else:
                contents[place.sha256] = answer
        results = contents | self._damaged
        return [results[location.sha256] for location in locations]


def _raise_damage(data: bytes | MemberDamageError) -> bytes:
    if isinstance(data, MemberDamageError):
        raise data
    return data


def _how_behind(certified_seq: int, last_seq: int) -> str:
    """Return how a thread's watermark is behind the thread's records; empty if it is not."""
    if not put_back.is_older(certified_seq, last_seq):
        return ""
    return put_back.problem(certified_seq, last_seq)


def _catalog_identity(catalog: Catalog) -> tuple[object, ...]:
    """Return the hashes of a catalog's runs and its identity; locations may have changed."""
    runs = [ref.location.sha256 for ref in catalog.runs.oldest_first()]
    return (catalog.tenant, catalog.generation, catalog.number, runs)


def _contradiction(
    recorded: RecordedCheckpoint, entry: ManifestEntry | None, manifest: Manifest
) -> str:
    """Return how a manifest contradicts the journal, for people; empty if it does not."""
    if entry is None:
        return "it is certified and missing from the manifest"
    record, saved = entry.record, recorded.entry
    if record.seq != recorded.seq:
        return f"the manifest has change {record.seq} of it and the journal {recorded.seq}"
    if record.segment != saved.segments[0].sha256:
        spelled = " + ".join(place.sha256.hex() for place in saved.segments)
        return f"the manifest names {record.segment.hex()} where {spelled} was recorded"
    different = [
        name
        for name in ("parent_id", "label", "summary", "lineage", "created_us")
        if getattr(record, name) != getattr(saved, name)
    ]
    if record.state_sha256 != recorded.content["state"]:
        different.append("state_sha256")
    if different:
        return f"manifest and journal differ in {', '.join(different)}"
    for sha256 in _named_by(entry):
        member = manifest.members.get(sha256)
        needs = member.needs if member is not None else (sha256,)
        lacking = next((need for need in needs if manifest.location(need) is None), None)
        if lacking is not None:
            return f"the manifest does not say where {lacking.hex()} lies"
    return ""


def _named_by(entry: ManifestEntry) -> list[bytes]:
    """Return the segments that a manifest names for a checkpoint, its state's first."""
    return list(dict.fromkeys([entry.record.segment, *(writes.segment for writes in entry.writes)]))


def _facts(journal_view: RecordedThread, place: Place) -> RecordedCheckpoint | None:
    """Return the facts that a failure depends on, which exclude the watermark."""
    recorded = journal_view.checkpoints.get(place)
    return None if recorded is None else replace(recorded, certified_seq=0)


async def _digests(
    segments: Sequence[StoredSegment], row: SegmentCheckpoint, key: CheckpointKey
) -> dict[str, bytes]:
    """Return the digests of a checkpoint in segments; its writes are unpacked."""
    place = (key.checkpoint_ns, key.checkpoint_id)
    size = sum(write.size for segment in segments for write in segment.writes.get(place, ()))
    if size > THREAD_ABOVE_BYTES:
        writes = await asyncio.to_thread(newest_writes, segments, key)
    else:
        writes = newest_writes(segments, key)
    facts = [
        (write.task_id, write.task_path, write.idx, write.channel, write.digest) for write in writes
    ]
    return row_digests(row.state, row.metadata, row.delta_base, facts)
