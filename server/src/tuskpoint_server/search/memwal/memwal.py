"""MemWal for the other modules of search: recalls memories, wakes deliveries, reports health."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from ...core.credentials import DEFAULT_TENANT
from ...core.errors import Refusal
from ...core.pacing import Backoff, pause
from ...core.search import parse_memory
from ..finding import RecalledMemory
from ..memories import MemoryRows, MemoryTally
from ..pacing import DEFECT
from .api import Budget, MemWalSettings, Recollection, RelayerError, RelayerHealth, RelayerTrouble
from .delivery import MemoryDelivery
from .relayer import Count, Relayer, UnusableError, open_relayer

TALLY_S = 30.0  # seconds between two counts of the memories, for metrics
MOST_WAITING = 16  # most recalls that wait. Each recall takes a few tenths of a second, at best
_LONGEST_TEXT_CHARS = 16 * 1024  # this server never sends a longer text


# Memories in this server's form, nearest first and not verified yet; number of all memories that
# MemWal returned, also in other forms; and number of matches that MemWal could not return.
Recollected = tuple[list[RecalledMemory], int, int]
_log = logging.getLogger(__name__)


class MemWal:
    """Recalls from MemWal and delivers to it, each in a task with a client of its own.

    Recalls run one after another, and no search waits for an unreachable relayer: while MemWal
    fails, searches fail at once. A recall checks the health, after growing pauses, and whenever
    there was no other recall for a while. If MemWal cannot be used (the SDK is not installed, a
    setting is malformed), the error is logged once, and every recall fails. `tallies` are counted
    at intervals.
    """

    def __init__(
        self,
        memories: MemoryRows,
        settings: MemWalSettings,  # credentials, deadlines, ceilings
        clock_us: Callable[[], int],  # clock of `memories`: microseconds since the Unix epoch
        count: Count = lambda *_: None,
        keeps: Callable[[], bool] = lambda: True,  # whether this server is the leader
        opener: Callable[[MemWalSettings, Count], Relayer] = open_relayer,
    ) -> None:
        self.memories = memories
        self.tallies: Sequence[MemoryTally] = ()
        self._settings = settings
        self._recalling = RelayerHealth(
            clock_us,
            "MemWal works: memories are recalled",
            "MemWal is suspended, searches use the server's own index",
            "MemWal is not used, saves and searches continue without it",
        )
        self._delivering = RelayerHealth(
            clock_us, "MemWal works: summaries are delivered", "deliveries to MemWal are delayed"
        )
        self._loop = asyncio.get_running_loop()
        self._budget = Budget(settings, self._loop.time)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._backoff = Backoff(settings.first_retry_s, settings.longest_retry_s)
        self._problem: RelayerError | None = None
        self._check_at = self._loop.time()
        self._failing = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._delivery: MemoryDelivery | None = None
        try:
            self._relayer = opener(settings, count)
            for_deliveries = opener(settings, count)
        except UnusableError as error:
            self._problem = RelayerError(RelayerTrouble.DENIED, str(error))
            self._recalling.failed(self._problem)
            return
        self._delivery = MemoryDelivery(
            memories, for_deliveries, self._budget, settings, self._delivering, clock_us, keeps
        )
        # The first recall is the server's own, and warms up SDK and relayer.
        self._tasks = {asyncio.create_task(work) for work in (self._check(), self._tally())}

    async def stop(self) -> None:
        """Stop. Running recalls are abandoned; the next start delivers the rest."""
        if self._delivery is None:
            return
        self._problem = RelayerError(RelayerTrouble.UNAVAILABLE, "the server is stopping")
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._relayer.close()
        await self._delivery.stop()

    def wake(self) -> None:
        """Check for new memories to deliver now."""
        if self._delivery is not None:
            self._delivery.wake()

    async def recall(self, tenant: str, query: str, limit: int) -> Recollected:
        """Return memories near to a query; raise `RelayerError` if none can be recalled."""
        self._admit()
        departure = asyncio.Event()
        # The call runs to its end even if its caller is gone: its outcome shows the health.
        call = asyncio.create_task(
            self._call(self._settings.namespace_of(tenant), query, limit, departure),
            name="memwal-recall",
        )
        self._tasks.add(call)
        call.add_done_callback(self._ended)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.recall_timeout_s):
                recollection = await asyncio.shield(call)
        except TimeoutError:
            raise RelayerError(
                RelayerTrouble.UNAVAILABLE, "no memory was recalled in time"
            ) from None
        except asyncio.CancelledError:
            if call.cancelled() and self._problem is not None:
                raise RelayerError(self._problem.trouble, str(self._problem)) from None
            raise
        finally:
            self._waiting -= 1
            departure.set()
        recalled = []
        for text, distance in recollection.memories:
            parts = parse_memory(text) if len(text) <= _LONGEST_TEXT_CHARS else None
            if parts is not None:
                recalled.append(
                    RecalledMemory(pointer=parts[1], summary=parts[0], distance=distance)
                )
        return recalled, len(recollection.memories), recollection.dropped

    def _ended(self, call: asyncio.Task[Recollection]) -> None:
        self._tasks.discard(call)
        if not call.cancelled():
            call.exception()  # marks the exception as retrieved: the caller may be gone

    def _admit(self) -> None:
        problem = self._problem
        if problem is not None:
            alone = (
                ""
                if problem.trouble is RelayerTrouble.DENIED
                else "it is suspended after a failure: "
            )
            again_s = max(0.0, self._check_at - self._loop.time())
            raise RelayerError(problem.trouble, f"{alone}{problem}", retry_after_s=again_s)
        if self._waiting >= MOST_WAITING:
            raise RelayerError(RelayerTrouble.LIMITED, "too many recalls wait already")
        wait_s = self._budget.take_recall()
        if wait_s:
            limited = "the rate limit allows no recall now"
            raise RelayerError(RelayerTrouble.LIMITED, limited, retry_after_s=wait_s)

    async def _call(
        self, namespace: str, query: str, limit: int, departure: asyncio.Event | None = None
    ) -> Recollection:
        """Recall in turn; a caller's recall is skipped if MemWal fails or `departure` is set."""
        async with self._turn:
            if departure is not None and self._problem is not None:
                raise RelayerError(self._problem.trouble, str(self._problem))
            if departure is not None and departure.is_set():
                return Recollection(())
            try:
                recollection = await self._relayer.recall(namespace, query, limit)
            except RelayerError as error:
                # a refusal is about the query, not about MemWal
                if error.trouble is not RelayerTrouble.REFUSED:
                    self._failed(error)
                raise
            except Exception:  # noqa: BLE001 - a defect must not end recalling for good
                _log.exception("recalling failed")
                defect = RelayerError(RelayerTrouble.UNAVAILABLE, DEFECT)
                self._failed(defect)
                raise defect from None
        self._backoff.succeeded()
        self._problem = None
        self._check_at = self._loop.time() + self._settings.check_s
        self._recalling.answered()
        return recollection

    def _failed(self, error: RelayerError) -> None:
        pause_s = max(self._backoff.failed(), error.retry_after_s or 0.0)
        self._check_at = self._loop.time() + pause_s
        if error.trouble is RelayerTrouble.LIMITED:
            self._budget.pause(pause_s)
        self._problem = error
        self._failing.set()
        self._recalling.failed(error)

    async def _check(self) -> None:
        """Check whether recalls work, if no other recall did so for a while."""
        while True:
            self._failing.clear()
            if (left_s := self._check_at - self._loop.time()) > 0:
                await pause(left_s, self._failing)
            elif wait_s := self._budget.take_recall():
                self._check_at = self._loop.time() + wait_s
            else:
                with contextlib.suppress(RelayerError):
                    await self._call(self._settings.namespace_of(DEFAULT_TENANT), "checkpoint", 1)

    async def _tally(self) -> None:
        while True:
            try:
                self.tallies = await self.memories.tallies()
            except Refusal as refusal:
                _log.debug("memories are not counted: %s", refusal)
            await asyncio.sleep(TALLY_S)

    @property
    def healthy(self) -> bool:
        """Whether the last recall succeeded, and also the last delivery call, if there was one."""
        return self._recalling.healthy and not self._delivering.last_error

    @property
    def last_error(self) -> str:
        """The last error, for people; empty since the last success of the part that failed."""
        kinds = sorted((self._delivering, self._recalling), key=lambda part: part.last_error_us)
        return kinds[1].last_error or kinds[0].last_error

    @property
    def last_error_us(self) -> int | None:
        """Time of the last error, in microseconds since the Unix epoch."""
        return max(self._recalling.last_error_us, self._delivering.last_error_us) or None

    @property
    def last_recall_us(self) -> int | None:
        """Time of the last recall that MemWal answered."""
        return self._recalling.last_answer_us
