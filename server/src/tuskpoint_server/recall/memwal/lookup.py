"""Recalls memories: one task asks MemWal, and searches never wait for one that is not there.

While MemWal fails, searches are told so at once. The task itself asks it now and then, after
pauses that grow, and the first answer lets searches through again. It also asks when nobody
else did for a while: what counts as healthy was proven by a recall.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...domain.memories import parse_memory
from ...journal.search.records import Recalled
from ..settings import MemWalSettings
from .api import COST_RECALL, Memorised, Recollection, Relayer, RelayerError, Trouble
from .budget import Budget
from .health import Health

_log = logging.getLogger(__name__)

MOST_WAITING = 16
"""Recalls that wait at most. Each takes a few tenths of a second, at best."""

_LONGEST_TEXT_CHARS = 16 * 1024
"""A longer text is none of this server's."""

_CHECK_TENANT, _CHECK_QUERY = "default", "checkpoint"
_DEFECT = "a defect of the server; its log tells more"


class Recollected(NamedTuple):
    """What MemWal recalled, nearest first.

    Attributes:
        recalled: Memories that have the form of this server's; not to be believed yet.
        returned: How many MemWal returned, those of any other form included.
        dropped: Matches that it could not return.
    """

    recalled: list[Recalled]
    returned: int
    dropped: int


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A recall that waits for its turn, and whoever waits for its answer."""

    namespace: str
    query: str
    limit: int
    answer: asyncio.Future[Recollection]


class Lookup:
    """Recalls memories, one recall after another.

    Args:
        relayer: A client of the relayer; the task closes it at its end.
        budget: What calls cost is taken from here.
        settings: Deadlines and pauses.
        health: Told of every outcome.
        namespace_of: Returns the namespace of a tenant's memories.
    """

    def __init__(
        self,
        relayer: Relayer,
        budget: Budget,
        settings: MemWalSettings,
        health: Health,
        namespace_of: Callable[[str], str],
    ) -> None:
        self.ignored = 0
        """Texts recalled so far that were none of this server's form."""
        self._relayer = relayer
        self._budget = budget
        self._settings = settings
        self._health = health
        self._namespace_of = namespace_of
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        # A dictionary, because it keeps the order in which recalls came.
        self._waiting: dict[_Asked, None] = {}
        self._failures = 0
        self._problem: RelayerError | None = RelayerError(Trouble.UNAVAILABLE, "not started")
        self._check_at = self._loop.time()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to recall; a recall of its own comes first, and warms everything up."""
        self._problem = None
        self._task = asyncio.create_task(self._run(), name="memwal-lookup")

    async def stop(self) -> None:
        """End; a recall that is under way is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._refuse(RelayerError(Trouble.UNAVAILABLE, "the server is stopping"))

    async def recall(self, tenant: str, query: str, limit: int) -> Recollected:
        """Return memories of a tenant that are near to a query.

        Raises:
            RelayerError: There is no answer within the deadline, or will be none: MemWal
                failed lately, the rate limit leaves no recall, or too many wait.
        """
        self._admit()
        asked = _Asked(self._namespace_of(tenant), query, limit, self._loop.create_future())
        self._waiting[asked] = None
        self._wake.set()
        try:
            async with asyncio.timeout(self._settings.recall_timeout_s):
                recollection = await asked.answer
        except TimeoutError:
            raise RelayerError(Trouble.UNAVAILABLE, "no memory was recalled in time") from None
        finally:
            self._waiting.pop(asked, None)
        return self._parsed(recollection)

    # --- what searches see -------------------------------------------------------------

    def _admit(self) -> None:
        problem = self._problem
        if problem is not None:
            raise RelayerError(
                problem.trouble,
                str(problem)
                if problem.trouble is Trouble.DENIED
                else f"it is left alone for a while: {problem}",
                retry_after_s=max(0.0, self._check_at - self._loop.time()),
            )
        if len(self._waiting) >= MOST_WAITING:
            raise RelayerError(Trouble.LIMITED, "too many recalls wait already")
        wait_s = self._budget.take_recall(COST_RECALL)
        if wait_s:
            raise RelayerError(
                Trouble.LIMITED, "the rate limit leaves no recall", retry_after_s=wait_s
            )

    def _refuse(self, problem: RelayerError) -> None:
        """Tell those who wait, and those to come, that there is no recalling."""
        self._problem = problem
        for asked in self._waiting:
            if not asked.answer.done():
                asked.answer.set_exception(RelayerError(problem.trouble, str(problem)))
        self._waiting.clear()

    def _parsed(self, recollection: Recollection) -> Recollected:
        found = [_parsed(memory) for memory in recollection.memories]
        recalled = [memory for memory in found if memory is not None]
        self.ignored += len(found) - len(recalled)
        return Recollected(recalled, len(found), recollection.dropped)

    # --- the task ----------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                asked = await self._next()
                try:
                    await (self._check() if asked is None else self._answer(asked))
                except Exception:  # noqa: BLE001 - a defect must not end recalling for good
                    _log.exception("recalling failed")
                    self._failed(RelayerError(Trouble.UNAVAILABLE, _DEFECT))
        finally:
            try:
                await self._relayer.close()
            except RelayerError as error:
                _log.debug("closing a client of MemWal: %s", error)

    async def _next(self) -> _Asked | None:
        """Return the recall whose turn it is; `None` when it is time for one of our own."""
        while self._check_at > self._loop.time():
            for asked in self._waiting:
                if not asked.answer.done():  # otherwise its caller is about to go
                    return asked
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._check_at):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return None

    async def _check(self) -> None:
        """Find out whether recalls work."""
        wait_s = self._budget.take_recall(COST_RECALL)
        if wait_s:
            self._check_at = self._loop.time() + wait_s
            return
        try:
            await self._relayer.recall(self._namespace_of(_CHECK_TENANT), _CHECK_QUERY, 1)
        except RelayerError as error:
            self._failed(error)
        else:
            self._works()

    async def _answer(self, asked: _Asked) -> None:
        try:
            recollection = await self._relayer.recall(asked.namespace, asked.query, asked.limit)
        except RelayerError as error:
            if not asked.answer.done():
                asked.answer.set_exception(error)
            if error.trouble is not Trouble.REFUSED:  # that is about the query
                self._failed(error)
            return
        if not asked.answer.done():
            asked.answer.set_result(recollection)
        self._works()

    def _works(self) -> None:
        self._failures = 0
        self._problem = None
        self._check_at = self._loop.time() + self._settings.check_s
        self._health.answered()

    def _failed(self, error: RelayerError) -> None:
        self._failures += 1
        pause_s = min(
            self._settings.longest_retry_s,
            self._settings.first_retry_s * 2 ** min(self._failures - 1, 20),
        )
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        pause_s = max(pause_s, error.retry_after_s or 0.0)
        self._check_at = self._loop.time() + pause_s
        if error.trouble is Trouble.LIMITED:
            self._budget.pause(pause_s)
        self._refuse(error)
        self._health.failed(error)


def _parsed(memory: Memorised) -> Recalled | None:
    if len(memory.text) > _LONGEST_TEXT_CHARS:
        return None
    parts = parse_memory(memory.text)
    if parts is None:
        return None
    summary, pointer = parts
    return Recalled(pointer, summary, memory.distance)
