"""Calls on leases: acquire, with a wait for the lease of another driver, extend, release."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from ...core.errors import Reason, Refusal
from ...core.leases import MAX_WAITING, Lease, LeaseRequest
from ...core.model import ThreadName
from ...journal.database.database import Database
from ...journal.database.unit_of_work import UnitOfWork
from . import lease_rows

LAYOUT: Final = 4  # the first layout whose servers respect leases

_GAP_S = 0.05
"""Shortest time between two attempts of a waiting caller, however often the thread changes."""


@dataclass(slots=True)
class _Line:
    """The callers of this server that wait for the lease of a thread, in the order of arrival."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by the first caller
    count: int = 0
    refusal: Refusal | None = None  # last answer of the first caller
    refused_at: float = 0.0  # time of that answer, by the event loop's clock

    def refused(self, now: float, *, cause: str = "", advice: str = "") -> Refusal:
        """Return the refusal of another caller: the last answer of the first caller."""
        holds_s = (self.refusal.retry_after_s or 0.0) if self.refusal is not None else 0.0
        return Refusal(
            Reason.THREAD_BUSY,
            cause=cause,
            advice=advice,
            retry_after_s=max(0.0, holds_s - (now - self.refused_at)),
            **(self.refusal.metadata if self.refusal is not None else {}),  # type: ignore[arg-type]
        )


class Leases:
    """Leases of the threads of all tenants."""

    def __init__(self, database: Database, provider: MeterProvider | None = None) -> None:
        self._database = database
        self._lines: dict[ThreadName, _Line] = {}
        meter = metrics.get_meter("tuskpoint_server.leases", meter_provider=provider)
        self._acquired = meter.create_counter(
            "tuskpoint.leases.acquired",
            "{lease}",
            "Leases of threads that were acquired, by how: free, waited, taken_over.",
        )
        meter.create_observable_gauge(
            "tuskpoint.leases.waiting",
            [self._observe],
            "{call}",
            "Calls that wait for the lease of a thread.",
        )

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        yield Observation(sum(line.count for line in list(self._lines.values())))

    async def acquire(
        self, tenant: str, thread_id: str, request: LeaseRequest, wait_s: float | None = None
    ) -> Lease:
        """Acquire the lease of a thread, which need not exist.

        `wait_s`: seconds to wait for the end of another lease; `None` refuses at once.

        Raises:
            Refusal: `THREAD_BUSY`, `QUOTA_EXCEEDED`, `OLDER_SERVERS`.
        """
        if wait_s is None:
            lease, took_over = await self._attempt(tenant, thread_id, request)
            self._acquired.add(1, {"how": "taken_over" if took_over else "free"})
            return lease
        name = (tenant, thread_id)
        line = self._lines.setdefault(name, _Line())
        if line.count >= MAX_WAITING and line.refusal is not None:
            problem = f"{line.count} callers wait for it already"
            now = asyncio.get_running_loop().time()
            raise line.refused(now, cause=problem, advice="retry later")
        line.count += 1
        try:
            lease, waited = await self._wait(tenant, thread_id, request, line, wait_s)
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[name]
        self._acquired.add(1, {"how": "waited" if waited else "free"})
        return lease

    async def keep(self, tenant: str, thread_id: str, lease_id: str, ttl_us: int | None) -> Lease:
        """Extend a lease; `ttl_us`: its new time in microseconds; `None` keeps the time.

        Raises:
            Refusal: `LEASE_LOST`.
        """
        return await self._database.change(
            lambda batch: lease_rows.keep(batch, tenant, thread_id, lease_id, ttl_us),
            thread=(tenant, thread_id),
        )

    async def release(self, tenant: str, thread_id: str, lease_id: str) -> bool:
        """End a lease; return whether the lease held until now."""
        return await self._database.change(
            lambda batch: lease_rows.release(batch, tenant, thread_id, lease_id),
            thread=(tenant, thread_id),
        )

    async def _attempt(
        self, tenant: str, thread_id: str, request: LeaseRequest
    ) -> tuple[Lease, bool]:
        database = self._database
        entropy = database.random_bits()

        def acquire(batch: UnitOfWork) -> tuple[Lease, bool]:
            database.require_layout(batch.connection, LAYOUT, "leases")
            return lease_rows.acquire(
                batch, tenant, thread_id, request, database.generation, entropy
            )

        return await database.change(acquire, thread=(tenant, thread_id))

    async def _wait(
        self, tenant: str, thread_id: str, request: LeaseRequest, line: _Line, wait_s: float
    ) -> tuple[Lease, bool]:
        """Acquire the lease once all earlier callers had their turn and no other lease holds.

        Returns the lease, and whether the caller had to wait.
        """
        clock = asyncio.get_running_loop().time
        ends_at = clock() + wait_s
        waited = line.turn.locked()
        try:
            async with asyncio.timeout_at(ends_at):
                await line.turn.acquire()
        except TimeoutError:
            if line.refusal is None:  # the first caller has no answer yet
                return await self._attempt(tenant, thread_id, request)
            raise line.refused(clock()) from None
        try:
            # Subscribe before the first attempt, so that no release is missed.
            with self._database.waiters.subscribe(tenant, thread_id) as waiter:
                while True:
                    next_at = clock() + _GAP_S
                    try:
                        lease, _ = await self._attempt(tenant, thread_id, request)
                    except Refusal as refusal:
                        if refusal.reason is not Reason.THREAD_BUSY:
                            raise
                        line.refusal, line.refused_at = refusal, clock()
                        if clock() >= ends_at:
                            raise
                        holds_s = refusal.retry_after_s or 0.0
                    else:
                        return lease, waited
                    waited = True
                    await waiter.wait(max(0.0, min(ends_at - clock(), holds_s)))
                    await asyncio.sleep(max(0.0, next_at - clock()))
        finally:
            line.turn.release()
