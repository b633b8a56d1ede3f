# Written by `make sync` from _async/parts/admin.py; do not edit.
"""Methods about the archive and the server."""

from __future__ import annotations

from collections.abc import Iterator

from ..._messages.reports import (
    ArchiveStatus,
    ClockJump,
    ServerInfo,
    archive_status,
    clock_jump,
    server_info,
)
from ..._messages.trail import TrailEntry, TrailReader, trail_entry
from ..._transport import methods
from ...v1.admin_service_pb2 import (
    AcceptClockRequest,
    FlushRequest,
    GetArchiveStatusRequest,
    GetServerInfoRequest,
    ListTrailRequest,
)
from .part import SyncPart


class SyncAdmin(SyncPart):
    """Methods about the archive and the server."""

    def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses the bytes. The checkpoints stay journaled.
        """
        flushed = self._calls.unary(methods.FLUSH, FlushRequest())
        return flushed.certified_checkpoints

    def status(self) -> ArchiveStatus:
        """Return the state of the archive."""
        request = GetArchiveStatusRequest()
        return archive_status(self._calls.unary(methods.GET_ARCHIVE_STATUS, request))

    def info(self) -> ServerInfo:
        """Return the version, limits and backends of the server."""
        request = GetServerInfoRequest()
        return server_info(self._calls.unary(methods.GET_SERVER_INFO, request))

    def accept_clock(self) -> ClockJump | None:
        """Let the journal follow the server's clock. Needs the scope "admin".

        Returns:
            The step of the clock that had stopped deletions, which continue now. `None` if the
            clock had made no step.
        """
        answer = self._calls.unary(methods.ACCEPT_CLOCK, AcceptClockRequest())
        return clock_jump(answer.accepted) if answer.HasField("accepted") else None

    def trail(self) -> Iterator[TrailEntry]:
        """Yield the entries of the audit trail, oldest first. Needs the scope "admin".

        Raises:
            DataLoss: A batch is malformed, or was changed or left out.
        """
        reader, request = TrailReader(), ListTrailRequest()
        while True:
            page = self._calls.unary(methods.LIST_TRAIL, request)
            if not page.batches:
                return
            for batch in page.batches:
                for entry in reader.entries(batch):
                    yield trail_entry(batch, entry)
            request.after_batch_id = page.batches[-1].batch_id
