"""A simulated server: a journal, an archive and their services over a blob store."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.kit.drafts import TENANT
from tests.simulation.environment.crashes import Life
from tests.simulation.environment.faulty_store import FaultyStore, PlainStore, StoreFaults, Vault
from tests.simulation.environment.keys import SimulatedKeys
from tests.simulation.environment.memory_database import Disk, JournalFaults, MemoryDatabase, disk
from tests.simulation.promises.committed_rows import Shadow
from tests.simulation.promises.model import Model
from tests.simulation.promises.violation import check
from tuskpoint_server.archive.archive import Archive
from tuskpoint_server.archive.archive_settings import ArchiveSettings
from tuskpoint_server.archive.evict.eviction import EvictionSettings, Evictor
from tuskpoint_server.archive.flush.packs import Spool, SpoolDamagedError
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.archive.renew import unneeded
from tuskpoint_server.archive.rows.status import NewestCatalog
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.model import Checkpoint, CheckpointKey, View
from tuskpoint_server.core.threads import is_reserved
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.features.checkpoints.completing import Completer
from tuskpoint_server.features.effects.effect_rows import EffectRows
from tuskpoint_server.features.inbox.offer_rows import OfferRows
from tuskpoint_server.features.leases.leases import Leases
from tuskpoint_server.features.lineage.handoff_rows import HandoffRows
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotRows
from tuskpoint_server.features.recovery.recovery import Recovery, read_source
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.lease import Leader, Lease
from tuskpoint_server.journal.values.load_head import load_head
from tuskpoint_server.search.index import IndexRows

T = TypeVar("T")


@dataclass
class LocalDisk:
    """The files of a server: the journal, spooled packs, and the pointer to the catalog."""

    journal: Disk
    spooled: dict[str, list[BlobMember]] = field(default_factory=dict)
    pointer: str = ""
    fails: float = 0.0


class _Spool(Spool):
    """Spool files in memory."""

    def __init__(self, disk: LocalDisk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng
        self._numbers = 0

    def write(self, members: Sequence[BlobMember]) -> str:
        if self._rng.random() < self._disk.fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        name = f"{self._rng.getrandbits(62):x}.pack"
        self._disk.spooled[name] = list(members)
        return name

    def read(self, name: str) -> list[BlobMember]:
        if name not in self._disk.spooled:
            raise SpoolDamagedError(f"spool file {name} is missing")
        return self._disk.spooled[name]

    def remove(self, name: str) -> None:
        self._disk.spooled.pop(name, None)

    def keep_only(self, names: set[str]) -> None:
        for name in self._disk.spooled.keys() - names:
            del self._disk.spooled[name]

    def size_bytes(self) -> int:
        return sum(len(member.data) for pack in self._disk.spooled.values() for member in pack)


class _Pointer:
    """The pointer file in memory."""

    def __init__(self, disk: LocalDisk, rng: random.Random) -> None:
        self._disk = disk
        self._rng = rng

    def path(self, tenant: str) -> Path:
        return Path("catalog")  # only for a message

    def write(self, tenant: str, blob_id: str) -> None:
        if self._rng.random() < self._disk.fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._disk.pointer = blob_id


class Server:
    """A server over its disk, started again after each crash.

    Attributes:
        disk: The files, which survive a crash.
        model: The server's answers to clients.
        shadow: The journal's content after each commit.
        recovered_seqs: Last change of each thread at the recovery of the journal, if it was
            recovered.
        edited: Threads that an edit at rest ever affected.
        skew_us: Difference between the server's clock and the time of the schedule.
        database, store, archive, leader, rows, removal, lineage, snapshots, handoffs, offers,
            leases: Parts of the current life.
    """

    def __init__(
        self, name: str, vault: Vault, rng: random.Random, root: Path, *, sealed: bool
    ) -> None:
        self.name = name
        self.vault = vault
        self.rng = rng
        self.keys = SimulatedKeys() if sealed else None
        self._root = root
        self.disk = LocalDisk(disk(name))
        self.disk.journal.format(f"journal-{name}")
        self.model = Model()
        self.shadow = Shadow(self.disk.journal)
        self.recovered_seqs: dict[str, int] = {}
        self.edited: set[str] = set()
        self.skew_us = 0
        self._recoveries = 0

    async def start(
        self,
        life: Life,
        clock_us: Callable[[], int],
        store: StoreFaults,
        journal: JournalFaults,
        **settings: Any,
    ) -> None:
        """Start the server; it resumes the unfinished work of an earlier life."""
        self.shadow.follow()
        self.believe(self.model.doubtful)
        self.model.doubtful.clear()

        def now_us() -> int:
            return clock_us() + self.skew_us

        self.database = MemoryDatabase(self.disk.journal, now_us, self.rng, life, journal)
        self.database.on_commit = lambda changed: self.shadow.follow(
            name for tenant, name in sorted(changed) if tenant == TENANT
        )
        self.store = FaultyStore(self.vault, life, store, self.rng)
        chosen = ArchiveSettings(pointer=self._root / "catalog", **settings)
        lease = Lease(self.database)
        spooled = self._root / "spool"
        self.archive = Archive(
            self.database,
            lease,
            self.store,
            spooled,
            settings=chosen,
            clock_us=now_us,
            keys=self.keys,
        )
        self.leader = Leader(lease, [self.archive.leading])
        spool: Any = _Spool(self.disk, self.rng)
        pointer: Any = _Pointer(self.disk, self.rng)
        self.archive.spool = self.archive._parts.runner._spool = spool
        self.archive._parts = replace(self.archive._parts, pointer=pointer)
        self.rows = CheckpointRows(self.database)
        self.removal = RemovalRows(self.database)
        self.lineage = LineageRows(self.database)
        self.effects = EffectRows(self.database)
        self.snapshots = SnapshotRows(self.database)
        self.handoffs = HandoffRows(self.database)
        self.offers = OfferRows(self.database)
        self.leases = Leases(self.database)
        self.index = IndexRows(self.database)
        self.completer = Completer(self.rows, self.archive)
        await self.archive.start()
        await self.leader.start()

    def now_us(self) -> int:
        """Return the time of the server's clock."""
        return self.database.now_us()

    def calm(self) -> None:
        """End all faults of the store, the disk and the database."""
        self.store.faults, self.database._faults = StoreFaults(), JournalFaults()
        self.disk.fails = 0.0

    async def collect(self, clock_us: Callable[[], int], *, of_others: bool) -> int:
        """Remove the blobs that the stopped server does not need; return their number."""
        store: Any = PlainStore(self.vault)
        database = MemoryDatabase(self.disk.journal, clock_us, self.rng)
        garbage = await unneeded.find_unneeded(database, store, self.keys, of_others=of_others)
        removed = await unneeded.remove(database, store, garbage)
        await database.close()
        return len(removed)

    async def recover(self, known: NewestCatalog, clock_us: Callable[[], int]) -> None:
        """Lose all files of the stopped server, and recover a new journal from a catalog.

        Raises:
            Refusal: The catalog cannot be recovered.
        """
        self._recoveries += 1
        store = PlainStore(self.vault)
        source = await read_source(store, known.location, Kind.CATALOG, self.keys, TENANT)
        filled = disk(f"beside-{self.name}")
        filled.format(f"{self.name}-{self._recoveries}", source.generation)
        database = MemoryDatabase(filled, clock_us, self.rng)
        await Recovery(TENANT, database, store).recover(source)
        await database.close()
        self.disk.spooled.clear()
        self.disk.pointer = ""  # The command `recover` sets the pointer file aside.
        self.disk.journal.take(filled)
        self.model, self.shadow = Model(), Shadow(self.disk.journal)
        self.edited.clear()
        self.shadow.follow()
        self.recovered_seqs = {name: thread.seq for name, thread in self.shadow.threads.items()}
        self.believe(())

    def believe(self, names: Collection[str]) -> None:
        """Take the content of threads with an unanswered call from the journal.

        This includes threads that an unanswered call may have created under an unknown name.
        """
        known = self.model.stories.keys()
        for name, thread in self.shadow.threads.items():
            if name in names or (name not in known and not is_reserved(name)):
                self.model.believe(thread, name)

    async def stop(self) -> None:
        """Stop as on SIGTERM."""
        await self.leader.stop()
        await self.archive.stop()
        await self.database.close()

    async def evict(self) -> None:
        """Evict all values that may leave the journal."""
        settings = EvictionSettings(journal_bytes=0, grace_s=0.0)
        await Evictor(self.database, settings).evict()

    async def load(self, key: CheckpointKey) -> Checkpoint | None:
        """Load a checkpoint as the service does: evicted values come from the store."""
        checkpoint = await self.rows.load(TENANT, key, View.FULL)
        return None if checkpoint is None else await self.completer.checkpoint(TENANT, checkpoint)

    def compare_with_memory(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        """Compare a checkpoint loaded from the journal with the thread cache."""
        head = load_head(self.database.heads, TENANT, key)
        if head is None:
            return
        assert checkpoint.state is not None
        check(
            head.entry == checkpoint.entry, key, "is", head.entry, "in memory and", checkpoint.entry
        )
        check(head.writes == checkpoint.writes, key, "has other writes in memory")
        stored = {
            channel.digest: channel.value
            for channel in checkpoint.state.channels
            if channel.digest is not None
        }
        check(head.values == stored, key, "has other values in memory")

    async def flushed(self) -> Refusal | None:
        """Certify everything; return the refusal that prevented it, or `None`."""
        try:
            await self.archive.certify_all(TENANT)
        except Refusal as refusal:
            return refusal
        return None
