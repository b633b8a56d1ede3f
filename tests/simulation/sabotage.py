"""Servers that are broken on purpose: proof that the checks can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.faulty_store import FaultyStore
from tuskpoint_server.archive import building
from tuskpoint_server.archive.flusher import TenantFlusher
from tuskpoint_server.archive.packs import Pack, PackRunner
from tuskpoint_server.archive.spool import Spool
from tuskpoint_server.blobs.api import Member, Receipt
from tuskpoint_server.domain.model import Lineage
from tuskpoint_server.journal import answers, archive_certify, closures, evicting, removals
from tuskpoint_server.journal.archive_plan import PackState


@contextmanager
def store_that_loses_what_it_acknowledged() -> Iterator[None]:
    """Now and then a put is answered, read back, and then gone."""
    with pytest.MonkeyPatch.context() as patch:
        get_many = FaultyStore.get_many

        async def lossy(self: FaultyStore, locations: Sequence[Any]) -> list[bytes]:
            found = await get_many(self, locations)
            if len(self.vault.blobs) % 3 == 0:
                self.vault.blobs.pop(locations[0].blob_id, None)
            return found

        patch.setattr(FaultyStore, "get_many", lossy)
        yield


@contextmanager
def certification_without_read_back() -> Iterator[None]:
    """A pack is believed to be stored although the store kept only half of it."""
    with pytest.MonkeyPatch.context() as patch:
        keep = FaultyStore._keep

        def half(self: FaultyStore, members: Sequence[Member], *, apart: bool) -> Receipt:
            receipt = keep(self, members, apart=apart)
            if len(members) > 1 and len(self.vault.blobs) % 2 == 0:
                victim = receipt.locations[0]
                self.vault.blobs[victim.blob_id].patches.pop(victim.identifier, None)
            return receipt

        async def believe(self: PackRunner, pack: Pack) -> None:
            await self._move(pack, PackState.READ_BACK)

        patch.setattr(FaultyStore, "_keep", half)
        patch.setattr(PackRunner, "_read_back", believe)
        yield


@contextmanager
def spool_that_forgets() -> Iterator[None]:
    """The directory of the spool is not fsynced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Spool, "_sync", lambda self: None)
        yield


@contextmanager
def catalog_that_is_certified_before_it_is_stored() -> Iterator[None]:
    """The journal records certification although the put was refused."""
    with pytest.MonkeyPatch.context() as patch:

        async def skip(self: PackRunner, pack: Pack) -> None:
            pack.locations = [
                self._blobs.predict(member.sha256, len(member.data)) for member in pack.members
            ]
            await self._move(pack, PackState.READ_BACK)

        patch.setattr(PackRunner, "store", skip)
        yield


@contextmanager
def deletion_that_tells_nobody() -> Iterator[None]:
    """A deleted thread leaves no tombstone for the catalog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removals, "_BURY", SimpleNamespace(run=lambda connection, **values: None))
        yield


@contextmanager
def late_writes_that_are_dropped() -> Iterator[None]:
    """Certification forgets that a checkpoint changed after it was collected."""
    with pytest.MonkeyPatch.context() as patch:
        certify = archive_certify._CERTIFY.run

        def forget(connection: Any, **values: Any) -> Any:
            cursor = certify(connection, **values)
            connection.connection.cursor().execute(
                "UPDATE checkpoints SET dirty_us = NULL, dirty_bytes = 0,"
                " certified_revision = revision WHERE certified_revision > 0"
            )
            return cursor

        patch.setattr(archive_certify, "_CERTIFY", SimpleNamespace(run=forget))
        yield


@contextmanager
def put_of_other_bytes() -> Iterator[None]:
    """A retried put sends the members in another order than they were spooled."""
    with pytest.MonkeyPatch.context() as patch:
        store = PackRunner._store

        async def shuffled(self: PackRunner, pack: Pack) -> None:
            pack.members = list(reversed(pack.members))
            await store(self, pack)

        patch.setattr(PackRunner, "_store", shuffled)
        yield


@contextmanager
def eviction_of_what_is_not_stored() -> Iterator[None]:
    """Values leave the journal although nothing holds them."""
    with pytest.MonkeyPatch.context() as patch:
        evict = evicting.evict

        def careless(connection: Any, *, batch: Any, before_us: int) -> Any:
            gone = evict(connection, batch=batch, before_us=before_us)
            connection.connection.cursor().execute("UPDATE contents SET data = NULL")
            return gone

        patch.setattr(evicting, "evict", careless)
        yield


@contextmanager
def waiters_that_are_forgotten() -> Iterator[None]:
    """A flush that fails once never answers those who wait for a revision."""
    with pytest.MonkeyPatch.context() as patch:
        failed = TenantFlusher._failed

        def forget(self: TenantFlusher, *arguments: Any) -> None:
            failed(self, *arguments)
            self._revisions.clear()

        patch.setattr(TenantFlusher, "_failed", forget)
        yield


@contextmanager
def copies_without_what_they_are_rebuilt_from() -> Iterator[None]:
    """Forks, adoptions and snapshots leave the ancestors of delta channels behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closures, "_rebuilt_from", lambda connection, tenant, key: iter(()))
        yield


@contextmanager
def answers_that_are_forgotten() -> Iterator[None]:
    """A request that is sent again is carried out again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "keep_answer", lambda *arguments: None)
        yield


@contextmanager
def lineage_that_is_not_stored() -> Iterator[None]:
    """Manifests do not tell what a checkpoint came from."""
    with pytest.MonkeyPatch.context() as patch:
        put = building._put
        patch.setattr(building, "_put", lambda *told: replace(put(*told), lineage=Lineage()))
        yield


_UNREADABLE = (
    "a certified catalog can be read|certified means|flushed means|the store alone|a read returns"
)

SABOTAGES: dict[Callable[[], AbstractContextManager[None]], tuple[str, int]] = {
    store_that_loses_what_it_acknowledged: (_UNREADABLE, 0),
    certification_without_read_back: (_UNREADABLE, 0),
    spool_that_forgets: ("only spooled bytes are put", 0),
    catalog_that_is_certified_before_it_is_stored: (f"{_UNREADABLE}|catalogs follow", 0),
    deletion_that_tells_nobody: ("flushed means all found|the store alone", 63),
    late_writes_that_are_dropped: (_UNREADABLE, 3),
    put_of_other_bytes: ("only spooled bytes are put", 0),
    eviction_of_what_is_not_stored: ("the journal holds|a read returns|the archive has no", 75),
    waiters_that_are_forgotten: ("waiters never hang", 4),
    copies_without_what_they_are_rebuilt_from: ("what is made of checkpoints", 17),
    answers_that_are_forgotten: ("what is made of checkpoints", 30),
    lineage_that_is_not_stored: ("the store alone|recovery brings", 0),
}
"""What is broken: the promises that may be the first to tell, and the first seed to try."""
