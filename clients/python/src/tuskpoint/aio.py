"""`AsyncClient`: the service for agents without LangGraph, to be awaited."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ._calls import AsyncCalls
from ._faces.admin import AsyncAdmin
from ._faces.checkpoints import AsyncCheckpoints
from ._faces.handoffs import AsyncHandoffs
from ._faces.history import AsyncHistory
from ._faces.lineage import AsyncLineage
from ._faces.search import AsyncSearch
from ._faces.snapshots import AsyncSnapshots
from ._faces.threads import AsyncThreads
from ._options import Options
from ._saving import Memory


class AsyncClient(
    AsyncCheckpoints,
    AsyncThreads,
    AsyncLineage,
    AsyncHistory,
    AsyncSearch,
    AsyncHandoffs,
    AsyncSnapshots,
    AsyncAdmin,
):
    """Saves and loads the state of agents.

    One client may be shared by all tasks, and by any number of event loops and their threads.
    Failed calls are tried again where that is safe, and every call has a deadline; errors are
    those of `tuskpoint.errors`.

    Args:
        target: `host:port` of the server. Default: the environment variable `TUSKPOINT_TARGET`,
            else `127.0.0.1:7390`.
        timeout_s: Seconds after which a quick call gives up, its retries included. Calls that
            wait for the blob store or read streams have longer ones.

    Raises:
        InvalidRequest: The target cannot be one, or `timeout_s` is not above 0.
    """

    def __init__(self, target: str | None = None, *, timeout_s: float = 30.0) -> None:
        self._calls = AsyncCalls(Options.of(target, timeout_s=timeout_s))
        self._memory = Memory()

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._calls.options.target

    async def aclose(self) -> None:
        """Let go of the connections. Calls made afterwards raise; closing again does nothing."""
        await self._calls.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
