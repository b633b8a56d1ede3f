"""The archive and the server."""

from __future__ import annotations

from .._reports import ArchiveStatus, ServerInfo, archive_status, server_info
from .base import AsyncFace, SyncFace, twin_of


class SyncAdmin(SyncFace):
    """The archive and the server."""

    def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses. Nothing is lost.
        """
        return self._calls.flush().certified_checkpoints

    def status(self) -> ArchiveStatus:
        """Return how the archive stands."""
        return archive_status(self._calls.get_archive_status())

    def info(self) -> ServerInfo:
        """Return version, limits and backends of the server."""
        return server_info(self._calls.get_server_info())


class AsyncAdmin(AsyncFace):
    """The archive and the server."""

    @twin_of(SyncAdmin.flush)
    async def flush(self) -> int:
        return (await self._calls.flush()).certified_checkpoints

    @twin_of(SyncAdmin.status)
    async def status(self) -> ArchiveStatus:
        return archive_status(await self._calls.get_archive_status())

    @twin_of(SyncAdmin.info)
    async def info(self) -> ServerInfo:
        return server_info(await self._calls.get_server_info())
