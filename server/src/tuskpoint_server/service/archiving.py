"""What the service needs of the archive."""

from __future__ import annotations

from typing import Protocol

from ..archive.flush.archive import ArchiveStatus
from ..archive.flush.flusher import FlushOutcome
from ..archive.verifying import ThreadVerification
from ..domain.model import BlobLocation, Checkpoint, CheckpointKey, Entry
from ..journal.archive_status import CertifiedHead


class Archive(Protocol):
    """The way from the journal to the blob store, as the service sees it."""

    def changed(self, tenant: str, stored_bytes: int) -> None:
        """Tell that the journal has something new to certify."""

    def admit(self, tenant: str) -> None:
        """Let a save pass.

        Raises:
            Refusal: `BACKLOG_FULL`.
        """

    def warning(self, tenant: str) -> bool:
        """Tell whether the backlog passed its soft limit."""

    async def certify(self, tenant: str, key: CheckpointKey, revision: int) -> BlobLocation:
        """Wait until a revision is certified; return a catalog that leads to it.

        Raises:
            Refusal: `CHECKPOINT_MISSING`, `DRAINING`, `JOURNAL_UNAVAILABLE`.
        """

    async def certify_all(self, tenant: str) -> FlushOutcome:
        """Wait until everything journaled before the call is certified.

        Raises:
            Refusal: The blob store's, if a flush fails; it will be tried again.
        """

    async def read(self, tenant: str, entry: Entry, *, bypass_cache: bool) -> Checkpoint:
        """Return a certified checkpoint from its envelopes.

        Raises:
            Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_MALFORMED`,
                `BLOB_UNAVAILABLE`.
        """

    async def verification(self, tenant: str, thread_id: str) -> ThreadVerification | None:
        """Begin to verify a thread; `None` if there is no such thread.

        Raises:
            Refusal: `BLOB_UNAVAILABLE`, `JOURNAL_UNAVAILABLE`.
        """

    async def status(self, tenant: str) -> ArchiveStatus:
        """Return how the archive stands."""

    async def certified_head(self, tenant: str, thread_id: str) -> CertifiedHead | None:
        """Return the certified head of a thread's manifest."""
