"""Servers that are broken on purpose: proof that the checks can fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.environment.faulty_store import FaultyStore
from tuskpoint_server.archive.evict import eviction
from tuskpoint_server.archive.flush import assembling, certify
from tuskpoint_server.archive.flush.flusher import TenantFlusher
from tuskpoint_server.archive.flush.packs import Pack, PackRunner
from tuskpoint_server.archive.formats import manifests, records
from tuskpoint_server.archive.rows import segment_index
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.effects import decisions
from tuskpoint_server.core.effects.records import EffectRecord
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.features.removal import removal_rows as removal
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal import deletion

Patch = pytest.MonkeyPatch
_NOTHING = SimpleNamespace(
    run=lambda connection, **values: None,
    run_many=lambda connection, rows: len(rows),
    run_rows=lambda connection, names, rows: None,
)


def store_loses_what_was_read_back(patch: Patch) -> None:
    """Now and then a put succeeds, is read back, and is then lost."""
    get_many = FaultyStore.get_many

    async def lossy(self: FaultyStore, locations: Sequence[BlobLocation]) -> list[bytes]:
        contents = await get_many(self, locations)
        if locations and len(self.vault.packs) % 3 == 0:
            self.vault.packs[locations[0].blob_id].pop(locations[0].sha256, None)
        return contents

    patch.setattr(FaultyStore, "get_many", lossy)


def certified_without_read_back(patch: Patch) -> None:
    """The server takes a pack for stored although the store kept only a part of it."""

    async def believe(
        self: PackRunner, tenant: str, members: Sequence[BlobMember], *, standalone: bool = False
    ) -> dict[bytes, BlobLocation]:
        receipt = await self._blobs.put(members, standalone=standalone)
        return {location.sha256: location for location in receipt.locations}

    patch.setattr(PackRunner, "store", believe)


def resumed_pack_is_not_stored(patch: Patch) -> None:
    """The server certifies a pack from an earlier life's spool without a put."""
    finish = PackRunner.finish

    async def believe(
        self: PackRunner, pack: Pack, require_store: Callable[[], Awaitable[None]]
    ) -> BlobLocation | None:
        if not pack.resumed:
            return await finish(self, pack, require_store)
        places = [self._blobs.predict(member.sha256, len(member.data)) for member in pack.members]
        return await self._certify(pack, {place.sha256: place for place in places})

    patch.setattr(PackRunner, "finish", believe)


def waiters_are_forgotten(patch: Patch) -> None:
    """A failed flush never answers the callers that wait for a change."""
    failed = TenantFlusher._failed

    def forget(self: TenantFlusher, *arguments: Any) -> None:
        failed(self, *arguments)
        self._waiters = {waiter: None for waiter in self._waiters if waiter.wanted is None}

    patch.setattr(TenantFlusher, "_failed", forget)


def watermark_moves_to_the_end(patch: Patch) -> None:
    """Certification ignores that a thread changed after it was read."""
    move = certify.move

    def too_far(batch: UnitOfWork, tenant: str, moved: Sequence[Any]) -> None:
        threads = []
        for thread in moved:
            log = batch.find(tenant, thread.thread_id)
            assert log is not None
            threads.append(thread._replace(through=log.row.seq))
        move(batch, tenant, threads)

    patch.setattr(certify, "move", too_far)


def _records_only(patch: Patch, *, threads: bool) -> None:
    record = deletion.record

    def record_matching(batch: UnitOfWork, log: Any, seq: int, places: Any) -> None:
        if (list(places) == [("", "")]) is threads:
            record(batch, log, seq, places)

    patch.setattr(deletion, "record", record_matching)


def removal_is_not_recorded(patch: Patch) -> None:
    """A pruned checkpoint leaves no trace for the archive."""
    _records_only(patch, threads=True)


def deletion_is_not_recorded(patch: Patch) -> None:
    """A deleted thread leaves no trace for the archive."""
    _records_only(patch, threads=False)


def older_record_wins(patch: Patch) -> None:
    """Of two records about the same checkpoint, the first that is read wins."""
    live = manifests.live_facts
    patch.setattr(manifests, "live_facts", lambda facts: live(list(facts)[::-1]))
    rank = property(lambda self: (0, 0))
    patch.setattr(records.CheckpointRecord, "rank", rank)


def removal_does_not_override(patch: Patch) -> None:
    """The fold of a manifest ignores removals."""
    patch.setattr(manifests, "_unremoved_facts", lambda newest: list(newest.values()))


def early_writes_keep_their_number(patch: Patch) -> None:
    """An early write keeps its first number after its checkpoint comes."""
    renumber = UnitOfWork.renumber_writes

    def as_it_was(self: UnitOfWork, log: Any, place: Any, written: Any, seq: int) -> Any:
        return renumber(self, log, place, written, 0)

    patch.setattr(UnitOfWork, "renumber_writes", as_it_was)


def late_writes_are_not_stored(patch: Patch) -> None:
    """A segment lacks pending writes that came after their checkpoint was stored."""
    patch.setattr(assembling.Recorder, "_writes", lambda *arguments: None)


def values_are_evicted_that_nothing_holds(patch: Patch) -> None:
    """Eviction removes any value, stored or not."""
    evict_family = eviction.evict_family

    async def careless(database: Any, *arguments: Any) -> Any:
        gone = await evict_family(database, *arguments)
        await database.transact(
            lambda batch: batch.connection.connection.cursor().execute(
                "UPDATE contents SET data = NULL, keyframe = NULL, encoding = 0"
            )
        )
        return gone

    patch.setattr(eviction, "evict_family", careless)


def changes_are_swept_too_early(patch: Patch) -> None:
    """Changes are removed before the archive has stored them."""

    async def drop(database: Any, *arguments: Any, **named: Any) -> int:
        await database.transact(
            lambda batch: batch.connection.connection.cursor().execute("DELETE FROM changes")
        )
        return 1

    patch.setattr(removal, "drop_changes", drop)


def uses_are_not_recorded(patch: Patch) -> None:
    """The server does not record which threads need a segment."""
    patch.setattr(segment_index, "_ADD_USE", _NOTHING)


_LOST = "the catalog: |cannot be recovered|was refused: |without faults|work never ends"
_MISSING = r"is None|is \(\)|not recovered|came back|rebuilt otherwise"


def effects_are_repeated(patch: Patch) -> None:
    """The server tells an agent to do work that is done."""
    begin = decisions.begin

    def forgetful(
        record: EffectRecord | None, asked: decisions.BeginEffect, at: decisions.Moment
    ) -> decisions.Decision:
        decision = begin(record, asked, at)
        return replace(decision, run=True) if not decision.changed else decision

    patch.setattr(decisions, "begin", forgetful)


SABOTAGES: dict[Callable[[Patch], None], tuple[str, int]] = {
    store_loses_what_was_read_back: (_LOST, 1),
    certified_without_read_back: (_LOST, 30),
    resumed_pack_is_not_stored: (_LOST, 1),
    watermark_moves_to_the_end: (_MISSING, 2),
    removal_is_not_recorded: ("came back", 16),
    deletion_is_not_recorded: ("came back|deleted", 10),
    older_record_wins: ("is .*|went back", 6),
    removal_does_not_override: ("came back", 3),
    early_writes_keep_their_number: (_MISSING, 2),
    late_writes_are_not_stored: (_MISSING, 1),
    values_are_evicted_that_nothing_holds: ("nothing holds them", 4),
    changes_are_swept_too_early: ("lacks changes", 26),
    uses_are_not_recorded: ("does not use", 1),
    waiters_are_forgotten: ("waits for ever", 6),
    effects_are_repeated: ("done again", 1),
}
"""The text of the violation that each sabotage causes, and a seed that finds it."""
