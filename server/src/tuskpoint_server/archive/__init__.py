"""From the journal to the blob store: the way of a checkpoint to certainty.

Builds envelopes from what the journal holds, appends to manifests, writes the
catalog, packs all of it, spools the exact bytes, stores them, reads them back and
compares, and only then tells the journal that they are certified. Also reads
checkpoints back from their envelopes.

It must never: delay or fail a save, certify what was not read back, rebuild bytes
that were hashed once, know of wire messages or gRPC, or decide what a call means.
"""

from .archive import Archive, ArchiveStatus
from .flusher import FlushOutcome
from .settings import ArchiveSettings

__all__ = ["Archive", "ArchiveSettings", "ArchiveStatus", "FlushOutcome"]
