"""The archive and the server."""

from __future__ import annotations

from ..._messages.reports import ArchiveStatus, ServerInfo, archive_status, server_info
from ..._transport import methods
from ...v1.admin_service_pb2 import (
    FlushRequest,
    GetArchiveStatusRequest,
    GetServerInfoRequest,
)
from .part import AsyncPart


class AsyncAdmin(AsyncPart):
    """The archive and the server."""

    async def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses. The checkpoints stay journaled.
        """
        flushed = await self._calls.unary(methods.FLUSH, FlushRequest())
        return flushed.certified_checkpoints

    async def status(self) -> ArchiveStatus:
        """Return the state of the archive."""
        request = GetArchiveStatusRequest()
        return archive_status(await self._calls.unary(methods.GET_ARCHIVE_STATUS, request))

    async def info(self) -> ServerInfo:
        """Return version, limits and backends of the server."""
        request = GetServerInfoRequest()
        return server_info(await self._calls.unary(methods.GET_SERVER_INFO, request))
