"""Facts about the server: version, backends, archive and search."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..archive.archive import Archive, ArchiveStatus
from ..archive.flush.waiting import FlushOutcome
from ..core.search import SearchMode
from ..journal.clock import ClockJump, JournalClock
from ..journal.database.database import Database
from ..keys.identities import Identities
from ..search.search import SearchEngine, SearchStatus


class Admin:
    """Status of the server, the archive and search, for operators."""

    def __init__(
        self,
        journal: Database,
        archive: Archive,
        engine: SearchEngine | None,
        clock: JournalClock,
        *,
        version: str,
        blob_backend: str,
        signers: Sequence[str],
        identities: Identities,
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._engine = engine
        self._clock = clock
        self.version = version
        self.journal_backend = journal.backend
        self.journal_id = journal.journal_id
        self.blob_backend = blob_backend
        self.signers = signers
        self.recipients_of = identities.recipients
        self.started_us = time.time_ns() // 1000
        self.search_modes: Sequence[SearchMode] = engine.modes if engine is not None else ()
        self.embedder = engine.embedder_name if engine is not None else ""
        self.grpc_port = 0  # known once the server listens

    async def status(self, tenant: str) -> tuple[ArchiveStatus, int, SearchStatus | None]:
        """Return the status of the archive, the journal's bytes, and search's status, if any."""
        index = await self._engine.status(tenant) if self._engine is not None else None
        return await self._archive.status(tenant), await self._journal.size_bytes(), index

    @property
    def clock_jump(self) -> ClockJump | None:
        """The step of the clock that the journal does not follow, in seconds."""
        return self._clock.jump

    async def accept_clock(self) -> ClockJump | None:
        """Accept the clock's step; return the step."""
        return await self._clock.accept(self._journal)

    async def flush(self, tenant: str) -> FlushOutcome:
        """Certify everything that was journaled before the call."""
        return await self._archive.certify_all(tenant)
