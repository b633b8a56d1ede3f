"""One schedule's world: the server's lives, the store, the disk and what was acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider

from tests.simulation.crashes import Crash, Disk, Life
from tests.simulation.faulty_store import FaultyStore, StoreFaults, Vault
from tests.simulation.memory_journal import JournalFaults, MemoryJournal, database
from tests.simulation.model import Model
from tests.simulation.plan import Plan
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.walk import Walker
from tuskpoint_server.archive import Archive
from tuskpoint_server.domain.errors import Refusal

TENANT = "default"
_BEGIN_US = 1_700_000_000_000_000
_METERS = NoOpMeterProvider()


class Violation(AssertionError):
    """A promise was broken."""


class Clock:
    """Microseconds since the epoch, by the time of the loop; no two looks are alike."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._looks = 0

    def __call__(self) -> int:
        self._looks += 1
        return _BEGIN_US + int(self._loop.time() * 1e6) + self._looks


class World:
    """Everything a schedule has.

    Attributes:
        certified: Catalogs in the order of their certification: (generation, seq).
        ended: Greatest incarnation that a catalog told as ended, by thread.
        entropy: What identities and names are made of.
        unadmitted_bytes: Bytes journaled past admission: copies, and saves whose answer
            was lost.
        put_members: Hashes of what was put, by spool file.
    """

    def __init__(self, seed: int, root: Path, loop: VirtualLoop, plan: Plan) -> None:
        self.seed = seed
        self.root = root
        self.loop = loop
        self.plan = plan
        self.rng = random.Random(f"client {seed}")
        self.entropy = random.Random(f"entropy {seed}")
        self.clock = Clock(loop)
        self.model = Model()
        self.vault = Vault(plan.shape, loop.time)
        self.walker = Walker(self.vault)
        self.disk = Disk(root, random.Random(f"disk {seed}"))
        self.database = database()
        self.database.empty()
        self.violations: list[Violation] = []
        self.certified: list[tuple[int, int]] = []
        self.ended: dict[str, int] = {}
        self.unadmitted_bytes = 0
        self.spooled: dict[tuple[object, ...], list[bytes]] = {}
        self.put_members: dict[str, list[bytes]] = {}
        self.calm = False
        self.points: frozenset[str] = frozenset()
        self.on_commit: Callable[[World], None] = lambda world: None
        self.on_put: Callable[[World, Any], None] = lambda world, members: None
        self._look_rng = random.Random(f"look {seed}")
        self._faults_rng = random.Random(f"faults {seed}")
        self._trace = hashlib.sha256()
        self.life = Life(0)
        self.death: asyncio.Future[None] = loop.create_future()
        self.archive: Archive
        self.journal: MemoryJournal
        self.store: FaultyStore

    # --- lives -------------------------------------------------------------------------

    async def begin_life(self) -> None:
        """Start a server on what the last one left."""
        rng, plan = self._faults_rng, self.plan
        ends_after = None
        if not self.calm and rng.random() < plan.crashes:
            ends_after = int(2 ** rng.uniform(1.5, 8.5))
        self.life = self.disk.life = Life(self.life.number + 1, ends_after)
        self.death = death = self.loop.create_future()
        self.life.on_end = lambda: death.set_result(None)
        self.disk.fails = 0.0 if self.calm else plan.disk_fails
        self.journal = MemoryJournal(
            self.database, self.life, JournalFaults() if self.calm else plan.journal, rng
        )
        self.journal.on_commit = lambda: self.on_commit(self)
        self.store = FaultyStore(
            self.vault, self.life, StoreFaults() if self.calm else plan.store, rng
        )
        self.store.before_put = lambda members: self.on_put(self, members)
        self.archive = Archive(
            self.journal,
            self.store,
            self.root / "spool",
            settings=plan.settings,
            clock_us=self.clock,
            meters=_METERS,
        )
        await self.archive.start()

    async def live(self) -> None:
        """Begin lives until one gets through its start."""
        while True:
            try:
                await self.begin_life()
            except Crash:
                await self.bury()
            except Exception as error:  # noqa: BLE001 - the operator starts it again
                self._allow_start_failure(error)
                self.life.end("start failed")
                await self.bury()
            else:
                return

    def _allow_start_failure(self, error: Exception) -> None:
        """Let a start fail only if a fault was injected."""
        if self.calm or not isinstance(error, (Refusal, OSError)):
            self.violate("a start fails only by a fault", repr(error))
            self.verify()

    async def bury(self) -> None:
        """End what still runs of a dead life, and mount its disk anew."""
        self.disk.crashed()
        me = asyncio.current_task()
        while running := [task for task in self.loop.living() if task is not me]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
        self.disk.mount()

    async def lose_disk(self) -> None:
        """Lose the journal, the spool and the pointer; only the store is left."""
        for path in (self.root / "spool").iterdir():
            path.unlink()
        self.plan.settings.pointer.unlink(missing_ok=True)
        self.database = database("recovered")
        self.database.empty()
        self.journal = MemoryJournal(self.database, Life(0), JournalFaults(), self._faults_rng)

    def calm_down(self) -> None:
        """End all faults, for this life and the next."""
        self.calm = True
        self.vault.outage = (0.0, 0.0)
        for blob in self.vault.blobs.values():
            blob.visible_at = 0.0
        self.life.ends_after = None
        self.disk.fails = 0.0
        self.store.faults = StoreFaults()
        self.journal.faults = JournalFaults()

    # --- what was found ------------------------------------------------------------------

    def violate(self, promise: str, how: str) -> None:
        """Note that a promise was broken."""
        self.violations.append(
            Violation(f"{promise}: {how} (at {self.loop.time():.3f} s, life {self.life.number})")
        )

    def looks_closely(self) -> bool:
        """Tell whether a check that takes long is to be made now."""
        return self.calm or self._look_rng.random() < 0.25

    def verify(self) -> None:
        """Raise the first violation noted so far."""
        if self.violations:
            raise self.violations[0]

    def trace(self, *event: object) -> None:
        """Note what happened; two runs of a seed have the same trace."""
        self._trace.update(repr((round(self.loop.time(), 6), *event)).encode())

    @property
    def fingerprint(self) -> str:
        """Return a hash of the trace."""
        return self._trace.hexdigest()[:16]


class DefectLog(logging.Handler):
    """Turns an exception that the server logs as a defect into a violation."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = logging.Formatter().formatException(record.exc_info)
            self._world.violate("the archive has no defect", f"{error!r}\n{text}")
