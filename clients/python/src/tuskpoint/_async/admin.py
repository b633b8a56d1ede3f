"""The archive and the server."""

from __future__ import annotations

from .._messages.reports import ArchiveStatus, ServerInfo, archive_status, server_info
from .base import AsyncPart


class AsyncAdmin(AsyncPart):
    """The archive and the server."""

    async def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses. The checkpoints stay journaled.
        """
        return (await self._calls.flush()).certified_checkpoints

    async def status(self) -> ArchiveStatus:
        """Return the state of the archive."""
        return archive_status(await self._calls.get_archive_status())

    async def info(self) -> ServerInfo:
        """Return version, limits and backends of the server."""
        return server_info(await self._calls.get_server_info())
