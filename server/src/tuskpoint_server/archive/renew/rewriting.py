"""Rewriting of packs: stores their needed members again, so that the packs can be removed.

A directory or bucket keeps a pack as long as a member of it is needed. So a pack that also has
bytes of deleted threads, or consists mostly of unneeded members, is rewritten: its needed members
are stored in new packs, and a new catalog leads to them. Packs that this journal did not store
stay.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...blobs.api import ListedMember
from ...blobs.packed import PackStore
from ...blobs.packs import pack_bytes
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ..flush.assembling import Chores
from ..flush.flusher import TenantFlusher
from ..formats.catalogs import read_threads
from ..formats.records import EndRecord, Record
from ..formats.runs import lines_of
from ..formats.sealing import is_sealed
from ..formats.stored_json import Kind
from ..read.read import recorded_places
from ..rows import lifetimes, status
from . import emptied
from .repair import Repair, Round, Survey, SurveyedBlob, survey

_log = logging.getLogger(__name__)

IsOwn = Callable[[str, BlobLocation | None], Awaitable[bool]]
"""Returns whether this journal stored a blob, given its ID and a recorded segment in it."""

_INDEXES_AT_ONCE = 256
# flushes in which all is stored again, even with a backlog; bounds the loop in case of a defect
_ROUNDS = 1000


@dataclass
class PackRewriter:
    """Rewrites the packs of a tenant. No server runs meanwhile, and this process is the leader."""

    _database: Database
    _store: PackStore
    _tenant: str
    _is_own: IsOwn
    _own: dict[str, bool] = field(default_factory=dict)

    async def due(self, sizes: Mapping[str, int]) -> list[SurveyedBlob]:
        """Return the packs to rewrite; `sizes` has the sizes of all blobs in the store."""
        return self._without(await self._chosen(await self._survey(), sizes))

    async def rewrite(
        self, flusher: TenantFlusher, repair: Repair, sizes: Mapping[str, int]
    ) -> int:
        """Rewrite the packs that need it; return their number.

        Raises:
            Refusal: A member is damaged or missing, and nothing of its pack was moved; the blob
                store or the journal cannot be used.
        """
        await self._purge_records(flusher)
        await self._separate(flusher, repair, sizes)
        async with flusher.turn:
            await flusher.flush.settle()
            report = await self._survey()
            due = await self._chosen(report, sizes)
            blobs = self._without(due)
            if shared_blobs := [blob for blob in due if blob.of_ended]:
                _log.warning(
                    "tenant %s: %d blobs keep bytes of deleted threads, because what other threads "
                    "need of these cannot be stored again; `tuskpoint verify` names it",
                    self._tenant,
                    len(shared_blobs),
                )
            if not blobs:
                return 0
            await self._database.transact(
                partial(emptied.note_emptied, blobs=[blob.blob.blob_id for blob in blobs])
            )
            refusals = await repair.move(flusher, report, blobs, Round())
        for refusal in refusals.values():
            raise refusal
        return len(blobs)

    async def _survey(self) -> Survey:
        recorded = await self._database.query(lifetimes.all_blobs)
        blobs = recorded.get(self._tenant, [])
        return await survey(self._database, self._store, self._tenant, blobs)

    async def _purge_records(self, flusher: TenantFlusher) -> None:
        """Certify a catalog whose runs keep only the end records of ended incarnations."""
        known = await self._database.query(partial(status.catalog, tenant=self._tenant))
        if known is None:
            return
        places = recorded_places(self._database, self._tenant)

        async def fetch(location: BlobLocation) -> bytes:
            [place] = await places([location])
            return await self._store.get(place)

        ends: dict[str, EndRecord] = {}
        async for thread_id, records in read_threads(known.catalog.runs, fetch):
            end = _superseded_by(records)
            if end is not None:
                ends[thread_id] = end
        if ends:
            async with flusher.turn:
                await flusher.flush.settle()
                await flusher.flush.record(Chores(ended=ends))

    async def _separate(
        self, flusher: TenantFlusher, repair: Repair, sizes: Mapping[str, int]
    ) -> None:
        """Store again what other threads need from the segments of deleted threads."""
        ended_before: set[bytes] | None = None
        for _ in range(_ROUNDS):
            blobs = await self._chosen(await self._survey(), sizes)
            ended = set().union(*(blob.of_ended for blob in blobs))
            done = Round()
            if not ended or ended == ended_before:
                return
            await repair.store_again(flusher, ended, done)
            await flusher.flush_all(lambda _: True)
            ended_before = None if done.waits else ended

    def _without(self, blobs: Sequence[SurveyedBlob]) -> list[SurveyedBlob]:
        """Return the blobs that can be rewritten: a segment that stays needed stays in its blob."""
        return [blob for blob in blobs if not blob.of_ended and not blob.is_member]

    async def _chosen(self, report: Survey, sizes: Mapping[str, int]) -> list[SurveyedBlob]:
        """Return the blobs of this journal that need to be rewritten."""
        sized = [
            replace(blob, blob=blob.blob._replace(size_bytes=sizes[blob.blob.blob_id]))
            for blob in report.blobs
            if blob.alive and blob.blob.blob_id in sizes
        ]
        blobs = [blob for blob in sized if _is_due(blob)]
        names = {blob.blob.blob_id for blob in blobs}
        rest = [blob for blob in sized if blob.blob.blob_id not in names and not blob.is_member]
        for start in range(0, len(rest), _INDEXES_AT_ONCE):
            batch = rest[start : start + _INDEXES_AT_ONCE]
            indexes = await self._store.indexes([blob.blob.blob_id for blob in batch])
            for blob, index in zip(batch, indexes, strict=True):
                if await self._has_remains(blob, index):
                    blobs.append(blob)
        return [blob for blob in blobs if await self._stored_here(blob)]

    async def _stored_here(self, blob: SurveyedBlob) -> bool:
        blob_id = blob.blob.blob_id
        if blob_id not in self._own:
            segments = (
                member.location
                for member in (*blob.dead, *blob.alive)
                if member.kind is Kind.SEGMENT
            )
            self._own[blob_id] = await self._is_own(blob_id, next(segments, None))
        return self._own[blob_id]

    async def _has_remains(self, blob: SurveyedBlob, index: Iterable[ListedMember]) -> bool:
        """Return whether a pack has records, or other bytes, of threads that no longer exist."""
        recorded = {member.location.sha256 for member in (*blob.alive, *blob.dead)}
        unrecorded = [member for member in index if member.location.sha256 not in recorded]
        if any(member.kind not in (Kind.RUN, Kind.CATALOG) for member in unrecorded):
            return True
        runs = [member.location for member in unrecorded if member.kind == Kind.RUN]
        for location, data in zip(runs, await self._store.get_many(runs), strict=True):
            if is_sealed(data):  # without the key, nobody can tell what the run contains
                return True
            incarnations: dict[str, int] = {}
            for line in lines_of(data, location.blob_id):
                if line.identity[0] != EndRecord.kind:
                    lowest = incarnations.get(line.thread_id, line.incarnation)
                    incarnations[line.thread_id] = min(lowest, line.incarnation)
            read = partial(emptied.live_incarnations, tenant=self._tenant, thread_ids=incarnations)
            live = await self._database.query(read)
            if any(live.get(name) != number for name, number in incarnations.items()):
                return True
        return False


def _is_due(blob: SurveyedBlob) -> bool:
    """Return whether a pack has bytes of deleted threads, little needed content, or only runs.

    The pack with the newest catalog is never rewritten because of its size: the next flush
    supersedes it.
    """
    if blob.of_ended or any(member.ended for member in blob.dead):
        return True
    if blob.holds_catalog or blob.is_member:
        return False
    wasted = blob.blob.size_bytes > pack_bytes([member.location.size for member in blob.alive])
    return blob.is_sparse or (wasted and all(member.kind is Kind.RUN for member in blob.alive))


def _superseded_by(records: Iterable[Record]) -> EndRecord | None:
    """Return the end record of a thread's incarnation that also has other records."""
    facts = list(records)
    ends = [fact for fact in facts if isinstance(fact, EndRecord)]
    last = max(ends, key=lambda fact: fact.incarnation, default=None)
    if last is None:
        return None
    rest = (fact for fact in facts if not isinstance(fact, EndRecord))
    return last if any(fact.incarnation <= last.incarnation for fact in rest) else None
