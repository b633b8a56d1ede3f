"""MemWal as the rest of search sees it: it recalls, it is woken, and it says how it fares."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...domain.errors import Refusal
from ...journal.search.memories import MemoryRows, MemoryTally
from ..settings import MemWalSettings
from .api import Health, RelayerError, Trouble
from .budget import Budget
from .delivery import Delivery
from .lookup import Lookup, Recollected
from .relayer import Count, Relayer, UnusableError, open_relayer

TALLY_S = 30.0  # seconds between two countings of the memories, for metrics
_log = logging.getLogger(__name__)


class MemWal:
    """Recalls from MemWal and delivers to it, each in a task with a client of its own.

    Where it cannot be used (the SDK is not installed, a setting is malformed), that is told
    in the log once, and every recall fails at once. So it is while the relayer does not
    accept the credentials; but then it is asked again now and then.

    Attributes:
        tallies: How many memories there are, counted now and then.
    """

    def __init__(
        self,
        memories: MemoryRows,
        settings: MemWalSettings,  # credentials, deadlines, ceilings
        *,
        clock_us: Callable[[], int],  # microseconds since the Unix epoch; that of `memories`
        opener: Callable[[MemWalSettings, Count], Relayer] = open_relayer,
    ) -> None:
        self._memories = memories
        self._settings = settings
        self._clock_us = clock_us
        self._opener = opener
        self._recalling = Health(
            clock_us,
            works="MemWal works: memories are recalled",
            waits="MemWal recalls nothing for now, searches go on without it",
        )
        self._delivering = Health(
            clock_us,
            works="MemWal works: summaries are delivered",
            waits="deliveries to MemWal wait",
            beside=self._recalling,
        )
        self._lookup: Lookup | None = None
        self._delivery: Delivery | None = None
        self._tallier: asyncio.Task[None] | None = None
        self.tallies: Sequence[MemoryTally] = ()

    def start(self, count: Count = lambda *_: None) -> None:
        """Begin to recall and to deliver, in the running loop, if that is possible at all."""
        settings = self._settings
        try:
            for_recalls = self._opener(settings, count)
            for_deliveries = self._opener(settings, count)
        except UnusableError as error:
            self._recalling.failed(RelayerError(Trouble.DENIED, str(error)))
            return
        budget = Budget(settings, asyncio.get_running_loop().time)
        self._lookup = Lookup(for_recalls, budget, settings, self._recalling)
        self._delivery = Delivery(
            self._memories, for_deliveries, budget, settings, self._delivering, self._clock_us
        )
        self._lookup.start()
        self._delivery.start()
        self._tallier = asyncio.create_task(self._tally(), name="memwal-tally")

    async def stop(self) -> None:
        """End; what is not delivered is taken up at the next start."""
        if self._tallier is not None:
            self._tallier.cancel()
            await asyncio.gather(self._tallier, return_exceptions=True)
        if self._lookup is not None:
            await self._lookup.stop()
        if self._delivery is not None:
            await self._delivery.stop()

    async def _tally(self) -> None:
        while True:
            try:
                self.tallies = await self._memories.tallies()
            except Refusal as refusal:
                _log.debug("memories are not counted: %s", refusal)
            await asyncio.sleep(TALLY_S)

    def wake(self) -> None:
        """Look for memories to deliver now: there are new ones."""
        if self._delivery is not None:
            self._delivery.wake()

    async def recall(self, tenant: str, query: str, limit: int) -> Recollected:
        """Return memories of a tenant that are near to a query.

        Raises:
            RelayerError: There is no answer within the deadline, or will be none.
        """
        if self._lookup is None:
            problem = self._recalling.last_error or "it is not started"
            raise RelayerError(Trouble.DENIED, f"it is not used: {problem}")
        return await self._lookup.recall(tenant, query, limit)

    @property
    def healthy(self) -> bool:
        """Whether the last recall succeeded, and the last call of deliveries if there was one."""
        return self._recalling.healthy and not self._delivering.last_error

    @property
    def last_error(self) -> str:
        """The last error, for people; empty since the last success of whatever met it."""
        standing = [one for one in (self._recalling, self._delivering) if one.last_error]
        return max(standing, key=_error_us).last_error if standing else ""

    @property
    def last_error_us(self) -> int | None:
        """Time of the last error, in microseconds since the Unix epoch."""
        return max(_error_us(self._recalling), _error_us(self._delivering)) or None

    @property
    def last_recall_us(self) -> int | None:
        """Time of the last recall that MemWal answered."""
        return self._recalling.last_answer_us


def _error_us(health: Health) -> int:
    return health.last_error_us or 0
