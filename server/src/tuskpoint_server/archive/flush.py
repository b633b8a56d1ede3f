"""One flush: collect what waits, build a pack of it, and see it certified."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..blobs.api import BlobStore
from ..domain.failpoints import failpoint
from ..domain.model import BlobLocation, CheckpointKey
from ..journal import archive_collect
from ..journal.archive_collect import Bounds, Collected
from ..journal.archive_plan import PackPlan
from .building import build
from .packs import Pack, PackRunner
from .pointer import Pointer
from .ports import ArchiveJournal
from .settings import ArchiveSettings
from .telemetry import Instruments, tracer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flushed:
    """Outcome of a flush.

    Attributes:
        certified: Checkpoints that became certified, with their revisions.
        certified_bytes: Bytes of values and writes that no longer wait.
        catalog: The newest catalog, or `None` if nothing was ever certified.
        complete: Nothing that was journaled before the flush began is left.
        pointer_problem: Why the pointer file is behind, for people; else empty.
    """

    certified: Mapping[CheckpointKey, int]
    certified_bytes: int
    catalog: BlobLocation | None
    complete: bool
    pointer_problem: str = ""


class Flush:
    """Flushes of one tenant, one pack at a time.

    Args:
        tenant: The tenant.
        journal: Where what waits is read.
        blobs: The store, for predicted locations.
        runner: Moves packs.
        pointer: Told of the newest catalog.
        settings: Settings.
        instruments: What is measured.
        clock_us: Microseconds since the epoch.
    """

    def __init__(
        self,
        tenant: str,
        journal: ArchiveJournal,
        blobs: BlobStore,
        runner: PackRunner,
        pointer: Pointer,
        settings: ArchiveSettings,
        instruments: Instruments,
        clock_us: Callable[[], int],
    ) -> None:
        self._tenant = tenant
        self._journal = journal
        self._blobs = blobs
        self._runner = runner
        self._pointer = pointer
        self._instruments = instruments
        self._clock_us = clock_us
        self._bounds = Bounds(settings.max_pack_checkpoints, settings.max_pack_bytes)
        self._waiting: list[Pack] = []

    def take_up(self, pack: Pack) -> None:
        """Finish this pack of an earlier run before anything new is collected."""
        self._waiting.append(pack)

    async def once(self, on_collect: Callable[[], None]) -> Flushed:
        """Certify one pack: the one that waits, else a new one.

        Args:
            on_collect: Called right before the snapshot is taken.

        Raises:
            Refusal: Of the blob store or the journal; the next call goes on from there.
        """
        if self._waiting:
            return await self._finish(self._waiting[0], complete=False)
        on_collect()
        collected = await self._journal.query(
            lambda connection: archive_collect.collect(connection, self._tenant, self._bounds)
        )
        failpoint("archive.after_collect")
        if collected.empty:
            catalog = collected.catalog.location if collected.catalog else None
            return Flushed({}, 0, catalog, complete=True)
        pack = await self._pack(collected)
        self._waiting.append(pack)
        return await self._finish(pack, complete=collected.complete)

    async def _pack(self, collected: Collected) -> Pack:
        with tracer.start_as_current_span("archive.pack", attributes=self._about(collected)):
            built = await asyncio.to_thread(build, collected, self._blobs.predict, self._clock_us())
            return await self._runner.begin(self._tenant, built)

    async def _finish(self, pack: Pack, *, complete: bool) -> Flushed:
        with tracer.start_as_current_span("archive.flush", attributes=self._about(pack.plan)):
            certified = await self._runner.finish(pack)
        self._waiting.remove(pack)
        if certified is None:
            return Flushed({}, 0, None, complete=False)
        catalog = _catalog_location(pack)
        # Whoever has lost everything else finds the way back with this line.
        _log.info(
            "tenant %s: %d checkpoints certified, catalog %s",
            self._tenant,
            len(certified),
            catalog.blob_id,
        )
        problem = await self._point(catalog)
        failpoint("archive.after_pointer")
        await self._runner.discard_spooled(pack)
        seconds = (self._clock_us() - pack.plan.collected_us) / 1e6
        self._instruments.flushed(self._tenant, max(0.0, seconds), len(certified))
        return Flushed(
            {planned.key: planned.revision for planned in certified},
            sum(planned.dirty_bytes for planned in certified),
            catalog,
            complete=complete,
            pointer_problem=problem,
        )

    def _about(self, content: Collected | PackPlan) -> dict[str, str | int]:
        return {
            "tuskpoint.tenant": self._tenant,
            "tuskpoint.checkpoints": len(content.checkpoints),
        }

    async def _point(self, catalog: BlobLocation) -> str:
        """Write the pointer file; say what kept it from being written."""
        try:
            await asyncio.to_thread(self._pointer.write, self._tenant, catalog.blob_id)
        except OSError as error:
            problem = f"the pointer file cannot be written: {error.strerror or error}"
            _log.error("%s; the newest catalog is %s", problem, catalog.blob_id)
            return problem
        return ""


def _catalog_location(pack: Pack) -> BlobLocation:
    wanted = pack.plan.catalog.sha256
    return next(location for location in pack.locations if location.sha256 == wanted)
