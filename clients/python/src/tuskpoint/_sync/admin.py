# Written by `make sync` from _async/admin.py; do not edit.
"""The archive and the server."""

from __future__ import annotations

from .._messages.reports import ArchiveStatus, ServerInfo, archive_status, server_info
from .base import SyncPart


class SyncAdmin(SyncPart):
    """The archive and the server."""

    def flush(self) -> int:
        """Certify everything saved so far; return how many checkpoints became certified.

        Raises:
            Unavailable: The blob store refuses. The checkpoints stay journaled.
        """
        return self._calls.flush().certified_checkpoints

    def status(self) -> ArchiveStatus:
        """Return the state of the archive."""
        return archive_status(self._calls.get_archive_status())

    def info(self) -> ServerInfo:
        """Return version, limits and backends of the server."""
        return server_info(self._calls.get_server_info())
