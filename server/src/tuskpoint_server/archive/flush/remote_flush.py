"""Exchange between the servers of a shared journal about flushes.

Only the leader flushes. Every server reads how much waits for certification, so that each server
enforces the limits of the backlog. The other servers ask the leader to certify the changes that
their callers wait for, and see in the journal when those are certified. Notifications make this
fast; where none arrive, each server checks the journal every second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from ...core.errors import Reason, Refusal
from ...journal.database.database import KEEPING, POLL_S, Database
from ...journal.lease import Lease
from ..rows import status
from . import flush_requests
from .flush_requests import FlushRequestRow
from .flusher import FlushTrouble, TenantFlusher, text_of

_log = logging.getLogger(__name__)

_GATHER_S = 0.02  # pause between checks of certified changes, while many arrive


class RemoteFlush:
    """Asks the leader and follows the journal, or answers the other servers as the leader.

    Args:
        database: The journal, which is shared.
        lease: Tells which server is the leader.
        flushers: The flushers of all known tenants.
        flusher: Returns the flusher of a tenant, known or not.
        trouble: Returns the last error of a tenant, and its number of failing renewals.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        flushers: Mapping[str, TenantFlusher],
        flusher: Callable[[str], TenantFlusher],
        trouble: Callable[[str], tuple[FlushTrouble | None, int]],
    ) -> None:
        self._database = database
        self._lease = lease
        self._flushers = flushers
        self._flusher = flusher
        self._trouble = trouble
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: dict[str, int] = {}
        self._serving = False
        self._trying: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Count the backlog, and start."""
        await self._count()
        self._tasks = [
            asyncio.create_task(work, name="archive-following")
            for work in (self._look(), self._watch())
        ]

    async def stop(self) -> None:
        """Stop the tasks."""
        await _cancel(self._tasks)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer the other servers inside the context: a part of the leader's duty."""
        self._asked.clear()
        self._serving = True
        try:
            yield
        finally:
            self._serving = False
            await _cancel([*self._trying.values()])

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        count_at = loop.time() + POLL_S
        with self._database.waiters.subscribe(*KEEPING) as waiter:
            while True:
                await waiter.wait(POLL_S)
                try:
                    if loop.time() >= count_at:
                        count_at = loop.time() + POLL_S
                        await self._count()
                    if self._serving:
                        await self._serve()
                except Refusal as refusal:
                    _log.debug("what other servers save and ask for is not read: %s", refusal)
                except Exception:  # noqa: BLE001 - a defect; without a look the limits are not kept
                    _log.exception("what other servers save and ask for was not read")

    async def _count(self) -> None:
        damaged = [
            number
            for flusher in self._flushers.values()
            for number in flusher.flush.damaged.numbers
        ]
        backlogs = await self._database.query(partial(status.backlogs, damaged=damaged))
        for tenant in backlogs.keys() | self._flushers.keys():
            self._flusher(tenant).counted(
                backlogs.get(tenant, status.CertificationBacklog(0, 0, None))
            )

    async def _serve(self) -> None:
        """Flush for other servers, and report the state of the archive."""
        rows = await self._database.query(flush_requests.read_rows)
        for tenant, row in rows.items():
            is_new, self._asked[tenant] = row.asked != self._asked.get(tenant), row.asked
            if row.all_asked > row.all_tried and tenant not in self._trying:
                task = asyncio.create_task(self._try(self._flusher(tenant), row.all_asked))
                self._trying[tenant] = task
                task.add_done_callback(lambda _, tenant=tenant: self._trying.pop(tenant))  # type: ignore[misc]
            elif is_new:
                self._flusher(tenant).flush_soon()
        for tenant in [*self._flushers]:
            row = rows.get(tenant, FlushRequestRow(tenant))
            trouble, failing = self._trouble(tenant)
            report = row._replace(
                trouble=trouble.message if trouble else "",
                trouble_us=trouble.at_us if trouble else None,
                failing=failing,
            )
            if report != row:
                await self._database.write_past_batches(partial(flush_requests.report, row=report))

    async def _try(self, flusher: TenantFlusher, number: int) -> None:
        """Certify everything for other servers, and record the outcome."""
        outcome: int | Refusal
        try:
            outcome = (await flusher.flush_all(lambda _: True)).certified
        except Refusal as refusal:
            if refusal.reason is Reason.DRAINING:
                return  # the next leader retries the request
            outcome = refusal
        except Exception as error:  # noqa: BLE001 - the servers that asked get its text
            outcome = Refusal(Reason.CERTIFICATION_FAILED, problem=text_of(error))
        try:
            await self._database.write_past_batches(
                partial(
                    flush_requests.record_outcome,
                    tenant=flusher.tenant,
                    number=number,
                    outcome=outcome,
                )
            )
        except Refusal as refusal:
            _log.debug("the outcome of a flush is not recorded; it is tried again: %s", refusal)
            return
        self._database.announce({KEEPING})

    async def _watch(self) -> None:
        """Answer the callers on this server that wait for the leader."""
        with self._database.waiters.subscribe() as changes:
            while True:
                pauses: list[float] = []
                for flusher in () if self._lease.held else [*self._flushers.values()]:
                    try:
                        if (pause_s := await flusher.follow()) is not None:
                            pauses.append(pause_s)
                    except Refusal as refusal:
                        pauses.append(POLL_S)
                        _log.debug("what is certified is not read: %s", refusal)
                    except Exception as error:  # noqa: BLE001 - a defect; those who wait get it
                        flusher.fail(error)
                await changes.wait(min(pauses, default=POLL_S))
                if pauses:
                    await asyncio.sleep(_GATHER_S)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
