"""Storing the needed members of packs again without the others, so that the packs can be removed.

A directory or bucket keeps a pack as long as anything in it is needed. So a pack that also has
bytes of deleted threads, or little else than what nothing needs, is rewritten: its needed members
go into new packs, and a new catalog leads to them. What the journal did not store stays.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...blobs.api import Listed
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
from ..read.read import placed
from ..rows import lifetimes, status
from . import emptied
from .repair import Repair, Round, Survey, Surveyed, survey

_log = logging.getLogger(__name__)

IsOwn = Callable[[str, BlobLocation | None], Awaitable[bool]]
"""Whether this journal stored a blob; its second argument is a recorded segment in it."""

_INDEXES_AT_ONCE = 256
_ROUNDS = 1000  # flushes that a backlog may need until all is stored again; ends a defect's loop


@dataclass
class Rewriting:
    """Rewrites the packs of a tenant. No server runs meanwhile, and this process is the leader."""

    _database: Database
    _store: PackStore
    _tenant: str
    _is_own: IsOwn
    _own: dict[str, bool] = field(default_factory=dict)

    async def due(self, sizes: Mapping[str, int]) -> list[Surveyed]:
        """Return the packs that are rewritten; `sizes` has those of all blobs in the store."""
        return self._without(await self._chosen(await self._survey(), sizes))

    async def rewrite(
        self, flusher: TenantFlusher, salvage: Repair, sizes: Mapping[str, int]
    ) -> int:
        """Rewrite them; return how many.

        Raises:
            Refusal: A member is damaged or missing, and nothing of its pack was moved; the blob
                store or the journal cannot be used.
        """
        await self._purge_records(flusher)
        await self._separate(flusher, salvage, sizes)
        async with flusher.turn:
            await flusher.flush.settle()
            found = await self._survey()
            due = await self._chosen(found, sizes)
            chosen = self._without(due)
            if kept := [one for one in due if one.of_ended]:
                _log.warning(
                    "tenant %s: %d blobs keep bytes of deleted threads, because what other threads "
                    "need of these cannot be stored again; `tuskpoint verify` names it",
                    self._tenant,
                    len(kept),
                )
            if not chosen:
                return 0
            await self._database.transact(
                partial(emptied.note_emptied, blobs=[one.blob.blob_id for one in chosen])
            )
            lost = await salvage.move(flusher, found, chosen, Round())
        for refusal in lost.values():
            raise refusal
        return len(chosen)

    async def _survey(self) -> Survey:
        recorded = await self._database.query(lifetimes.every)
        blobs = recorded.get(self._tenant, [])
        return await survey(self._database, self._store, self._tenant, blobs)

    async def _purge_records(self, flusher: TenantFlusher) -> None:
        """Certify a catalog whose runs have no records of ended incarnations but their ends."""
        known = await self._database.query(partial(status.catalog, tenant=self._tenant))
        if known is None:
            return
        places = placed(self._database, self._tenant)

        async def fetch(location: BlobLocation) -> bytes:
            [place] = await places([location])
            return await self._store.get(place)

        ended: dict[str, EndRecord] = {}
        async for thread_id, records in read_threads(known.catalog.runs, fetch):
            end = _superseded_by(records)
            if end is not None:
                ended[thread_id] = end
        if ended:
            async with flusher.turn:
                await flusher.flush.settle()
                await flusher.flush.record(Chores(ended=ended))

    async def _separate(
        self, flusher: TenantFlusher, salvage: Repair, sizes: Mapping[str, int]
    ) -> None:
        """Store again what other threads need of the segments of deleted ones."""
        before: set[bytes] | None = None
        for _ in range(_ROUNDS):
            chosen = await self._chosen(await self._survey(), sizes)
            ended = set().union(*(blob.of_ended for blob in chosen))
            done = Round()
            if not ended or ended == before:
                return
            await salvage.store_again(flusher, ended, done)
            await flusher.flush_all(lambda _: True)
            before = None if done.waits else ended

    def _without(self, chosen: Sequence[Surveyed]) -> list[Surveyed]:
        """Return what can be rewritten: a segment that stays needed stays in its blob."""
        return [blob for blob in chosen if not blob.of_ended and not blob.is_member]

    async def _chosen(self, found: Survey, sizes: Mapping[str, int]) -> list[Surveyed]:
        """Return the own blobs that need to be rewritten."""
        sized = [
            replace(one, blob=one.blob._replace(size_bytes=sizes[one.blob.blob_id]))
            for one in found.blobs
            if one.alive and one.blob.blob_id in sizes
        ]
        chosen = [one for one in sized if _is_due(one)]
        names = {one.blob.blob_id for one in chosen}
        rest = [one for one in sized if one.blob.blob_id not in names and not one.is_member]
        for start in range(0, len(rest), _INDEXES_AT_ONCE):
            some = rest[start : start + _INDEXES_AT_ONCE]
            indexes = await self._store.indexes([one.blob.blob_id for one in some])
            for one, listed in zip(some, indexes, strict=True):
                if await self._has_remains(one, listed):
                    chosen.append(one)
        return [one for one in chosen if await self._stored_here(one)]

    async def _stored_here(self, one: Surveyed) -> bool:
        blob_id = one.blob.blob_id
        if blob_id not in self._own:
            segments = (m.location for m in (*one.dead, *one.alive) if m.kind is Kind.SEGMENT)
            self._own[blob_id] = await self._is_own(blob_id, next(segments, None))
        return self._own[blob_id]

    async def _has_remains(self, one: Surveyed, listed: Iterable[Listed]) -> bool:
        """Return whether a pack has records, or other bytes, of threads that are not there now."""
        recorded = {member.location.sha256 for member in (*one.alive, *one.dead)}
        others = [each for each in listed if each.location.sha256 not in recorded]
        if any(each.kind not in (Kind.RUN, Kind.CATALOG) for each in others):
            return True
        runs = [each.location for each in others if each.kind == Kind.RUN]
        for location, data in zip(runs, await self._store.get_many(runs), strict=True):
            if is_sealed(data):  # nobody here can say what is in it
                return True
            incarnations: dict[str, int] = {}
            for line in lines_of(data, location.blob_id):
                if line.identity[0] != EndRecord.kind:
                    lowest = incarnations.get(line.thread_id, line.incarnation)
                    incarnations[line.thread_id] = min(lowest, line.incarnation)
            read = partial(emptied.live, tenant=self._tenant, thread_ids=incarnations)
            live = await self._database.query(read)
            if any(live.get(name) != number for name, number in incarnations.items()):
                return True
        return False


def _is_due(one: Surveyed) -> bool:
    """Return whether a pack has bytes of deleted threads, or is kept by little, or by runs alone.

    The one with the newest catalog is left alone for its size: the next flush supersedes it.
    """
    if one.of_ended or any(member.ended for member in one.dead):
        return True
    if one.holds_catalog or one.is_member:
        return False
    wasted = one.blob.size_bytes > pack_bytes([member.location.size for member in one.alive])
    return one.is_sparse or (wasted and all(member.kind is Kind.RUN for member in one.alive))


def _superseded_by(records: Iterable[Record]) -> EndRecord | None:
    """Return the end of a thread's incarnation of which there are other records."""
    found = list(records)
    ends = [one for one in found if isinstance(one, EndRecord)]
    last = max(ends, key=lambda one: one.incarnation, default=None)
    if last is None:
        return None
    rest = (one for one in found if not isinstance(one, EndRecord))
    return last if any(one.incarnation <= last.incarnation for one in rest) else None
