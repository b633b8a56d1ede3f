"""`Client`: the service for agents without LangGraph, blocking."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ._calls import SyncCalls
from ._faces.admin import SyncAdmin
from ._faces.checkpoints import SyncCheckpoints
from ._faces.handoffs import SyncHandoffs
from ._faces.history import SyncHistory
from ._faces.lineage import SyncLineage
from ._faces.search import SyncSearch
from ._faces.snapshots import SyncSnapshots
from ._faces.threads import SyncThreads
from ._options import Options
from ._saving import Memory


class Client(
    SyncCheckpoints,
    SyncThreads,
    SyncLineage,
    SyncHistory,
    SyncSearch,
    SyncHandoffs,
    SyncSnapshots,
    SyncAdmin,
):
    """Saves and loads the state of agents.

    One client may be shared by all threads of a process. Failed calls are tried again where
    that is safe, and every call has a deadline; errors are those of `tuskpoint.errors`.

    Args:
        target: `host:port` of the server. Default: the environment variable `TUSKPOINT_TARGET`,
            else `127.0.0.1:7390`.
        timeout_s: Seconds after which a quick call gives up, its retries included. Calls that
            wait for the blob store or read streams have longer ones.

    Raises:
        InvalidRequest: The target cannot be one, or `timeout_s` is not above 0.
    """

    def __init__(self, target: str | None = None, *, timeout_s: float = 30.0) -> None:
        self._calls = SyncCalls(Options.of(target, timeout_s=timeout_s))
        self._memory = Memory()

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._calls.options.target

    def close(self) -> None:
        """Let go of the connection. Calls made afterwards raise; closing again does nothing."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
