"""Admission: limits of running and waiting requests; the rest are refused."""

from __future__ import annotations

import asyncio
from types import TracebackType

from ..errors import overloaded


class Admission:
    """Limits the requests at one time: an async context manager around each request.

    The publisher's defaults are 8 running and 8 waiting, the aggregator's 256 and 320
    (`crates/walrus-service/src/client/cli/args.rs` of MystenLabs/walrus).

    Args:
        running: Requests that may run at once.
        waiting: Requests that may wait; further requests are refused.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._places = asyncio.Semaphore(running)
        self._room = running + waiting
        self._present = 0

    @property
    def present(self) -> int:
        """Requests that run or wait."""
        return self._present

    async def __aenter__(self) -> None:
        if self._present >= self._room:
            raise overloaded()
        self._present += 1
        try:
            await self._places.acquire()
        except BaseException:
            self._present -= 1
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._present -= 1
        self._places.release()
