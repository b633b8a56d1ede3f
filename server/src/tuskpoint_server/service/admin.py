"""What the server tells about itself."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..archive.archive import ArchiveStatus
from ..archive.flusher import FlushOutcome
from ..journal.api import Journal
from .archiving import Archive


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server is. `started_us`: microseconds since the Unix epoch."""

    version: str
    journal_backend: str
    blob_backend: str
    journal_id: str
    started_us: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How the archive of a tenant and the journal stand."""

    archive: ArchiveStatus
    journal_bytes: int


class Admin:
    """The server itself, and the archive as its operators see it."""

    def __init__(
        self, journal: Journal, archive: Archive, *, version: str, blob_backend: str
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._info = ServerInfo(
            version=version,
            journal_backend=journal.backend,
            blob_backend=blob_backend,
            journal_id=journal.journal_id,
            started_us=time.time_ns() // 1000,
        )

    def info(self) -> ServerInfo:
        """Return what the server is."""
        return self._info

    async def standing(self, tenant: str) -> Standing:
        """Return how the archive stands."""
        return Standing(await self._archive.status(tenant), await self._journal.size_bytes())

    async def flush(self, tenant: str) -> FlushOutcome:
        """Certify everything journaled before the call.

        Raises:
            Refusal: The blob store's, if a flush fails; it will be tried again.
        """
        return await self._archive.certify_all(tenant)
