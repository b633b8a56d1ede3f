"""Recovers a tenant from its catalog or manifest: threads in groups, rows in batches.

People name a catalog, or the stored manifest of one thread, by the blob ID that the server's log,
its status or the pointer file shows. The blob may be a quilt of hundreds of members.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ...archive.flush.certify import put_catalog
from ...archive.formats.catalogs import Catalog, LiveRuns, decode_catalog, read_threads
from ...archive.formats.manifests import Key, Manifest, decode_manifest, fold
from ...archive.formats.runs import RunRef, decode_run, members_of, page_lines
from ...archive.formats.sealing import is_sealed, open_member, wrapped_key
from ...archive.formats.segments import MAX_SEGMENT_BYTES
from ...archive.formats.stored_json import Kind, decode_parts, is_part_list, join_parts
from ...archive.read.read import DAMAGE, Segments, StoredSegment, slice_items, too_large
from ...archive.read.root_keys import with_root_key
from ...archive.rows import status
from ...archive.rows.plan import StoredMember
from ...blobs.api import BlobStore, gather_all
from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import MIB
from ...core.model import BlobLocation
from ...core.threads import SNAPSHOTS, is_reserved
from ...journal.database.database import Database
from ...journal.database.unit_of_work import UnitOfWork
from ...keys.provider import KeyProvider
from ..inbox.offer_rows import drop_stale
from ..lineage.snapshot_rows import SnapshotRows
from ..lineage.snapshot_state import MEMBER_THREADS, member_thread_of
from . import recovered_rows as filling
from .reading import ThreadReader

_GROUP_THREADS = 512
_GROUP_RECORDS = 20_000
_BATCH_BYTES = 8 * MIB
_BATCH_SEGMENTS = 256
_BATCHES_AT_ONCE = 4
_INSERT_BYTES = 16 * MIB
_NAMED_AT_MOST = 20  # members of a blob in an error
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_Work = Callable[[UnitOfWork], None]
_Wanted = tuple[ThreadReader, BlobLocation]
_Read = tuple[ThreadReader, BlobLocation, StoredSegment | bytes]
_LEFT_OUT = (*DAMAGE, Reason.LIMIT_EXCEEDED)
"""Reasons that allow a recovery to leave out content."""


class UnclearReferenceError(Exception):
    """A reference names no member, or several; the text is one line."""


def parse_reference(text: str) -> BlobLocation:
    """Parse a reference: "BLOB_ID", "BLOB_ID/IDENTIFIER" or "BLOB_ID:SHA256HEX".

    Missing fields are empty; see `find`.

    Raises:
        UnclearReferenceError: The reference has another form.
    """
    reference = text.strip()
    separator = "/" if "/" in reference else ":"
    blob_id, separated, spelled = reference.partition(separator)
    if not blob_id or (separated and not _SHA256.fullmatch(spelled)):
        expected_form = "BLOB_ID/IDENTIFIER" if separator == "/" else "BLOB_ID:SHA256HEX"
        raise UnclearReferenceError(f"'{text}' is not BLOB_ID or {expected_form}")
    sha256 = bytes.fromhex(spelled)
    return BlobLocation(sha256, 0, blob_id, sha256.hex() if separator == "/" else "")


async def find(blobs: BlobStore, reference: BlobLocation, kind: Kind) -> BlobLocation:
    """Return the location of the only member of a kind that a reference names.

    Raises:
        UnclearReferenceError: The reference names no such member, or several.
        Refusal: `BLOB_HASH_MISMATCH`: no member has the given hash; any refusal of the store.
    """
    blob_id, sha256 = reference.blob_id, reference.sha256
    if reference.identifier:
        return reference
    members = await blobs.list_blob(blob_id)
    if sha256:
        locations = [member.location for member in members if member.location.sha256 == sha256]
        if not locations:
            actual = _shorten([member.location.sha256.hex() for member in members])
            raise Refusal(
                Reason.BLOB_HASH_MISMATCH, blob_id=blob_id, expected=sha256.hex(), actual=actual
            )
        return locations[0]
    # For a blob that is not a quilt, a store lists the hash of its bytes, without a kind.
    locations = [member.location for member in members if member.kind in (kind, "")]
    if len(locations) == 1:
        return locations[0]
    if not locations:
        raise UnclearReferenceError(f"blob {blob_id} holds no {kind}")
    names = _shorten([location.identifier for location in locations])
    raise UnclearReferenceError(
        f"blob {blob_id} holds more than one {kind}; name one as {blob_id}/IDENTIFIER: {names}"
    )


def _shorten(items: list[str]) -> str:
    rest = len(items) - _NAMED_AT_MOST
    text = ", ".join(items[:_NAMED_AT_MOST])
    return f"{text} and {rest} more" if rest > 0 else text


class RecoverySource(NamedTuple):
    """The catalog or manifest that a recovery starts with, and its location.

    Everything in a catalog names its blob.
    """

    location: BlobLocation
    content: Catalog | Manifest
    root: bytes = b""  # wrapped key of the source; empty if it is not sealed

    @property
    def generation(self) -> int:
        """The generation in which the recovered journal continues."""
        return self.content.generation + 1


async def read_source(
    blobs: BlobStore,
    location: BlobLocation,
    kind: Kind,
    keys: KeyProvider | None,
    tenant: str,
    memory_bytes: int = sys.maxsize,
) -> RecoverySource:
    """Return the catalog or manifest to recover from.

    Everything else is proven by the hash in its location, and opened by the key beside it.

    Raises:
        Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_MALFORMED`, also if it is of
            another format; `LIMIT_EXCEEDED` if its parts need more than `memory_bytes`;
            `BLOB_UNAVAILABLE`; `KEY_MISSING` if it is sealed and there is no key provider; what
            the key provider refuses.
    """
    data = await blobs.get(location)
    source_location, name = replace(location, size=len(data)), location.blob_id
    if is_part_list(data) and b'"kind":"parts"' in data[:4096]:
        part_list = decode_parts(data, location, MAX_SEGMENT_BYTES)
        if 2 * part_list.size > memory_bytes:
            raise too_large(f"blob {name} of {part_list.size} bytes", memory_bytes)
        parts = {part: await blobs.get(part) for part in dict.fromkeys(part_list.parts)}
        data = join_parts(part_list, [parts[part] for part in part_list.parts], name)
    if keys is not None and not is_sealed(data):
        problem = "it is not sealed; to recover from unsealed blobs, give no key provider"
        raise malformed_bytes(name, problem)
    source_location = await with_root_key(keys, tenant, data, source_location)
    decode = decode_catalog if kind is Kind.CATALOG else decode_manifest
    return RecoverySource(
        source_location, decode(open_member(data, source_location), name), wrapped_key(data, name)
    )


@dataclass(slots=True)
class RecoveryCounts:
    """Counts of a running recovery."""

    threads: int = 0  # threads that exist
    snapshots: int = 0
    ended: int = 0  # deleted threads that stay deleted
    checkpoints: int = 0  # checkpoints, snapshots included
    size_bytes: int = 0  # bytes of values, each once for a thread, and of writes
    left_out: list[str] = field(default_factory=list)  # left out content, a sentence each


@dataclass(eq=False)
class Recovery:
    """Recovers one tenant into an empty journal, in the generation of the source."""

    _tenant: str
    _database: Database
    _blobs: BlobStore
    _: KW_ONLY
    skip_damaged: bool = False  # leave out damaged content and continue
    memory_bytes: int = sys.maxsize  # bytes of an unpacked segment, or of a head's values
    on_progress: Callable[[RecoveryCounts], None] = lambda recovered: None

    def __post_init__(self) -> None:
        self._segments = Segments(self._blobs, places=self._placed, most_bytes=self.memory_bytes)
        self._places: dict[bytes, BlobLocation] = {}
        self._snapshots = SnapshotRows(self._database)
        self._done = RecoveryCounts()

    async def recover(self, source: RecoverySource) -> RecoveryCounts:
        """Recover all threads that a catalog leads to, or the thread of a manifest.

        The next flush after a recovery from a catalog follows that catalog. After a recovery from a
        manifest, the flush records the thread in a new catalog.

        Raises:
            Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_MALFORMED` (unless damaged
                content can be left out), `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`. The
                journal is then unusable.
        """
        backend = self._blobs.backend
        await self._database.transact(lambda batch: status.claim_home(batch.connection, backend))
        if isinstance(source.content, Catalog):
            await self._from_catalog(source.content, source.location, source.root)
        else:
            manifest = source.content
            await self._recover(
                [ThreadReader(manifest, manifest.seq, unrecorded=True)], unrecorded=True
            )
        await self._keep_whole_snapshots()
        await self._database.transact(lambda batch: drop_stale(batch, self._tenant))
        await self._database.transact(partial(filling.drop_stale_effects, tenant=self._tenant))
        return self._done

    async def _from_catalog(self, catalog: Catalog, location: BlobLocation, root: bytes) -> None:
        if self.skip_damaged:  # merges restart
            levels = [
                tuple([part for ref in level for part in await self._readable(ref)])
                for level in catalog.runs.levels
            ]
            catalog = replace(catalog, runs=LiveRuns(tuple(levels)))
        runs = [*catalog.runs.oldest_first()]
        runs += (ref for merge in catalog.runs.merges for height in merge.made for ref in height)
        members = [
            StoredMember(place, Kind.RUN)
            for ref in runs
            for place in await members_of(ref, self._blobs.get)
        ]
        members.append(StoredMember(location, Kind.CATALOG))

        def add(batch: UnitOfWork) -> None:
            put_catalog(batch, self._tenant, catalog, location.sha256, root)
            filling.add_members(batch, self._tenant, members)

        await self._database.transact(add)
        group: list[ThreadReader] = []
        size = 0
        async for thread_id, records in read_threads(catalog.runs, self._blobs.get):
            manifest = fold(thread_id, records)
            if not manifest.records:
                continue  # all stored parts of the thread are lost, and it was not deleted
            seq = max(record.seq for record in records)
            group.append(ThreadReader(manifest, seq, unrecorded=False))
            size += len(records)
            if len(group) >= _GROUP_THREADS or size >= _GROUP_RECORDS:
                await self._recover(group)
                group, size = [], 0
        await self._recover(group)

    async def _readable(self, ref: RunRef) -> list[RunRef]:
        """Return a run, or its readable parts."""
        try:
            data = open_member(await self._blobs.get(ref.location), ref.location)
            run = decode_run(data, ref)
            for page in run.pages:
                page_lines(data, page, ref.location.blob_id)
        except Refusal as refusal:
            span = f"from thread '{ref.first[0]}' to thread '{ref.last[0]}'"
            self._leave_out([f"the records {span} of a run"], refusal)
            return []
        parts = [part for child in run.runs for part in await self._readable(child)]
        return [ref] if tuple(parts) == run.runs else parts

    async def _keep_whole_snapshots(self) -> None:
        """Delete each incomplete snapshot.

        Another flush may have certified the members than the description.
        """
        heads = await self._database.query(
            lambda connection: filling.snapshot_threads(connection, self._tenant)
        )
        names = (name.removeprefix(MEMBER_THREADS).removeprefix(SNAPSHOTS) for name in heads)
        for snapshot_id in sorted({name.partition("/")[0] for name in names}):
            try:
                snapshot = await self._snapshots.snapshot(self._tenant, snapshot_id)
            except (KeyError, TypeError, ValueError):  # the description is malformed
                snapshot = None
            if snapshot is not None and all(
                heads.get(member_thread_of(snapshot_id, number)) == member.checkpoint_id
                for number, member in enumerate(snapshot.members)
            ):
                self._done.snapshots += 1
            else:
                await self._snapshots.delete_snapshot(self._tenant, snapshot_id)

    async def _recover(self, group: Sequence[ThreadReader], *, unrecorded: bool = False) -> None:
        self._places = {
            sha256: record.location
            for reading in group
            for sha256, record in reading.manifest.members.items()
        }
        begin = partial(filling.begin_thread, tenant=self._tenant, unrecorded=unrecorded)
        await self._insert(
            [partial(begin, manifest=reading.manifest, seq=reading.seq) for reading in group]
        )
        batches = list(self._batches(group))
        for start in range(0, len(batches), _BATCHES_AT_ONCE):
            works: list[_Work] = []
            size = 0
            for reads in await gather_all(
                map(self._read, batches[start : start + _BATCHES_AT_ONCE])
            ):
                for reading, location, data in reads:
                    try:
                        segment = await self._segments.take(location, data)
                        rows = reading.take(segment)
                    except Refusal as refusal:
                        self._lose(reading, location.sha256, refusal)
                        continue
                    works.append(partial(filling.add_rows, tenant=self._tenant, rows=rows))
                    size += segment.unpacked
                    if size >= _INSERT_BYTES:
                        await self._insert(works)
                        works, size = [], 0
            await self._insert(works)
        works, size = [], 0
        for reading in group:
            end = await self._end(reading)
            works.append(partial(filling.end_thread, tenant=self._tenant, end=end))
            size += sum(200 if value.data is None else len(value.data) for value in end.values)
            if size >= _INSERT_BYTES:
                await self._insert(works)
                works, size = [], 0
        await self._insert(works)

    async def _placed(self, locations: Sequence[BlobLocation]) -> list[BlobLocation]:
        """Return the locations in the records; segments may name earlier locations."""
        return [self._places.get(location.sha256, location) for location in locations]

    def _batches(self, group: Iterable[ThreadReader]) -> Iterable[list[_Wanted]]:
        """Cut the segments that threads need into batches, with the segments of a blob together."""
        every: list[_Wanted] = []
        for reading in group:
            for sha256, location in reading.segments.items():
                if location is not None:
                    every.append((reading, location))
                else:
                    self._lose(
                        reading, sha256, malformed_bytes("", f"nothing names {sha256.hex()}")
                    )
        every.sort(key=lambda entry: (entry[1].blob_id, entry[1].sha256))
        return slice_items(every, lambda entry: entry[1].size, _BATCH_BYTES, _BATCH_SEGMENTS)

    async def _read(self, batch: Sequence[_Wanted]) -> list[_Read]:
        """Return the stored or kept bytes of segments, which are unpacked one by one."""
        try:
            contents = await self._segments.stored([location for _, location in batch])
        except Refusal as refusal:
            if refusal.reason not in DAMAGE:
                raise
            if len(batch) == 1:
                self._lose(batch[0][0], batch[0][1].sha256, refusal)
                return []
            return [read for entry in batch for read in await self._read([entry])]
        return [(reading, location, contents[location.sha256]) for reading, location in batch]

    async def _end(self, reading: ThreadReader) -> filling.ThreadEnd:
        """Return the rows that complete a thread after all its segments."""
        for place, digest in reading.incomplete():
            problem = f"no segment holds value {digest.hex()}"
            self._lose_place(reading, place, malformed_bytes("", problem))
        for place, by_location in reading.head_values().items():
            try:
                size = reading.head_bytes(place)
                if size > self.memory_bytes:
                    raise too_large(f"{reading.named(place)} with {size} bytes", self.memory_bytes)
                for location, digests in by_location.items():
                    new_digests = [digest for digest in digests if not reading.keeps(digest)]
                    reading.keep(await self._segments.values_at([location], new_digests))
            except Refusal as refusal:
                self._lose_place(reading, place, refusal)
        end = reading.end()
        self._done.checkpoints += end.count
        self._done.size_bytes += end.added_bytes
        if not is_reserved(end.manifest.thread_id):
            self._done.ended += end.manifest.ended
            self._done.threads += not end.manifest.ended
        return end

    def _leave_out(self, names: Iterable[str], refusal: Refusal, *, known: bool = False) -> None:
        """Record left out content; content that the records mark as lost is always left out.

        Raises:
            Refusal: The given refusal, if it does not allow to leave out content.
        """
        if refusal.reason not in _LEFT_OUT or not (known or self.skip_damaged):
            raise refusal
        self._done.left_out += (f"{name}: {refusal}" for name in names)

    def _lose(self, reading: ThreadReader, sha256: bytes, refusal: Refusal) -> None:
        names = reading.lose(sha256, str(refusal))
        self._leave_out(names, refusal, known=sha256 in reading.known_lost)

    def _lose_place(self, reading: ThreadReader, place: Key, refusal: Refusal) -> None:
        self._leave_out([reading.named(place)], refusal, known=bool(reading.lost_segments))
        reading.lost[place] = None

    async def _insert(self, works: Sequence[_Work]) -> None:
        def insert(batch: UnitOfWork) -> None:
            for work in works:
                work(batch)

        await self._database.transact(insert)
        self.on_progress(self._done)
