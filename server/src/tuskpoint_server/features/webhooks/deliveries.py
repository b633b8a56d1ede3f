"""Events that webhooks have not accepted, in the journal.

An event goes to a webhook once no earlier event of its thread waits there, so that the events of a
thread arrive in order. A parked event does not hold later events up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import and_, bindparam, case, delete, exists, func, or_, select, update

from ...core.webhooks import WebhookEvent
from ...journal.database.database import Database
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import deliveries, threads
from ...journal.sql.statements import LISTED, SqlRow, Statement

DAY_US = 24 * 3600 * 1_000_000
KEPT_DAYS = 30
"""Days after which an event is dropped: parked, or of a webhook that is no longer in the file."""

_of = deliveries.c
_earlier = deliveries.alias("earlier").c
_WAITS = _of.parked.is_(False)
_FIELDS = (
    *(_of.number, _of.tenant, _of.webhook, threads.c.thread_id, _of.event, _of.seq),
    *(_of.checkpoint_id, _of.created_us, _of.due_us, _of.attempts, _of.parked, _of.error),
)
_JOINED = deliveries.join(threads, threads.c.number == _of.thread)
_FIRST = ~exists().where(
    _earlier.thread == _of.thread,
    _earlier.webhook == _of.webhook,
    _earlier.number < _of.number,
    _earlier.parked.is_(False),
    # An event that may become true later holds up no event that is true now.
    or_(_earlier.attempts > 0, _earlier.due_us <= bindparam("now_us")),
)
_DUE = Statement(
    select(*_FIELDS)
    .select_from(_JOINED)
    .where(_of.webhook.in_(LISTED), _WAITS, _of.due_us <= bindparam("now_us"), _FIRST)
    .order_by(_of.number)
    .limit(bindparam("max_rows"))
)
_NEXT = Statement(
    select(func.min(_of.due_us)).where(
        _of.webhook.in_(LISTED), _WAITS, _of.due_us > bindparam("now_us"), _FIRST
    )
)
_OF_WEBHOOK = and_(_of.tenant == bindparam("of_tenant"), _of.webhook == bindparam("of_webhook"))
_PAGE = Statement(
    select(*_FIELDS)
    .select_from(_JOINED)
    .where(
        _OF_WEBHOOK,
        _of.number > bindparam("after"),
        or_(bindparam("with_waiting"), _of.parked),
    )
    .order_by(_of.number)
    .limit(bindparam("max_rows"))
)
_waiting_since = func.min(case((_WAITS, _of.created_us)))
_COUNTS = Statement(
    select(
        _of.webhook,
        func.coalesce(func.sum(case((_WAITS, 1), else_=0)), 0),
        func.coalesce(func.sum(case((_of.parked, 1), else_=0)), 0),
        _waiting_since,
    )
    .where(_of.tenant == bindparam("of_tenant"))
    .group_by(_of.webhook)
)
_ALL_COUNTS = Statement(
    select(_of.tenant, _of.webhook, _of.parked, func.count(), func.min(_of.created_us)).group_by(
        _of.tenant, _of.webhook, _of.parked
    )
)
_LAST_ERROR = Statement(
    select(_of.error)
    .where(_OF_WEBHOOK, _of.attempts > 0)
    .order_by(_of.parked, _of.number.desc())
    .limit(1)
)
_DONE = Statement(delete(deliveries).where(_of.number == bindparam("of_number")))
_FAILED = Statement(
    update(deliveries)
    .where(_of.number == bindparam("of_number"))
    .values(
        attempts=_of.attempts + 1,
        due_us=bindparam("new_due_us"),
        parked=bindparam("new_parked"),
        error=bindparam("new_error"),
    )
)
_POSTPONED = Statement(
    update(deliveries)
    .where(_of.number == bindparam("of_number"))
    .values(due_us=bindparam("new_due_us"))
)
_PARKED = Statement(select(_of.number).where(_OF_WEBHOOK, _of.parked))
_RETRY = Statement(
    update(deliveries)
    .where(_OF_WEBHOOK, _of.number == bindparam("of_number"))
    .values(parked=False, attempts=0, created_us=bindparam("now_us"), due_us=bindparam("now_us"))
)
_DROP_OLD = Statement(delete(deliveries).where(_of.created_us < bindparam("before_us")))


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that a webhook has not accepted."""

    number: int
    tenant: str
    webhook: str
    thread_id: str
    event: WebhookEvent
    seq: int
    checkpoint_id: str  # empty if the event is of no checkpoint
    created_us: int
    due_us: int
    attempts: int  # failed attempts
    parked: bool
    error: str


class Tally(NamedTuple):
    """Numbers of a webhook's events of one tenant."""

    waiting: int = 0
    parked: int = 0
    oldest_us: int | None = None  # time of the oldest waiting event


class DeliveryRows:
    """Events for webhooks. All calls are coroutines and can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.now_us = database.now_us
        self.journal_id = database.journal_id

    async def due(self, webhooks: Collection[str], now_us: int, most: int) -> list[Delivery]:
        """Return events that can be posted now, oldest first; at most one for each thread."""
        return await self._database.query(
            lambda connection: [
                _delivery(row)
                for row in _DUE.run_listed(connection, webhooks, now_us=now_us, max_rows=most)
            ]
        )

    async def next_due_us(self, webhooks: Collection[str], now_us: int) -> int | None:
        """Return the next time, after now, at which an event can be posted; `None`: none waits."""
        times = await self._database.query(
            lambda connection: [
                row[0] for row in _NEXT.run_listed(connection, webhooks, now_us=now_us)
            ]
        )
        return min((time_us for time_us in times if time_us is not None), default=None)

    async def accepted(self, number: int) -> None:
        """Remove an event that its webhook accepted, or that is void."""
        await self._database.transact(
            lambda batch: _DONE.run(batch.connection, of_number=number).close()
        )

    async def postponed(self, number: int, due_us: int) -> None:
        """Note that an event is not true yet, and when to look again."""
        await self._database.transact(
            lambda batch: _POSTPONED.run(
                batch.connection, of_number=number, new_due_us=due_us
            ).close()
        )

    async def failed(self, number: int, error: str, due_us: int, *, parked: bool) -> None:
        """Note a failed attempt, and when the next follows."""

        def note(batch: UnitOfWork) -> None:
            values = {"new_error": error, "new_due_us": due_us, "new_parked": parked}
            _FAILED.run(batch.connection, of_number=number, **values).close()

        await self._database.transact(note)

    async def retry(self, tenant: str, webhook: str, numbers: Sequence[int]) -> int:
        """Let parked events wait again, all of a webhook's without numbers; return how many."""
        of = {"of_tenant": tenant, "of_webhook": webhook, "now_us": self.now_us()}

        def again(batch: UnitOfWork) -> int:
            parked = _PARKED.run(batch.connection, of_tenant=tenant, of_webhook=webhook).fetchall()
            chosen = {row[0] for row in parked}
            if numbers:
                chosen &= set(numbers)
            for number in sorted(chosen):
                _RETRY.run(batch.connection, **of, of_number=number).close()
            return len(chosen)

        return await self._database.transact(again)

    async def page(
        self, tenant: str, webhook: str, *, parked_only: bool, after: int, most: int
    ) -> list[Delivery]:
        """Return events of a webhook above a number, oldest first."""
        rows = await self._database.rows(
            _PAGE,
            of_tenant=tenant,
            of_webhook=webhook,
            after=after,
            with_waiting=not parked_only,
            max_rows=most,
        )
        return [_delivery(row) for row in rows]

    async def tallies(self, tenant: str) -> dict[str, Tally]:
        """Return the numbers of a tenant's events, by webhook."""
        rows = await self._database.rows(_COUNTS, of_tenant=tenant)
        return {
            name: Tally(int(waiting), int(parked), since) for name, waiting, parked, since in rows
        }

    async def last_error(self, tenant: str, webhook: str) -> str:
        """Return the problem of the last failed attempt; empty if there is none."""
        rows = await self._database.rows(_LAST_ERROR, of_tenant=tenant, of_webhook=webhook)
        return str(rows[0][0]) if rows else ""

    async def totals(self) -> list[tuple[str, str, bool, int, int]]:
        """Return tenant, webhook, whether parked, number and oldest time of all events."""
        return [
            (tenant, webhook, bool(parked), int(count), int(since))
            for tenant, webhook, parked, count, since in await self._database.rows(_ALL_COUNTS)
        ]

    async def sweep(self) -> int:
        """Drop events that nobody accepted for long; return their number."""
        before_us = self.now_us() - KEPT_DAYS * DAY_US

        def drop(batch: UnitOfWork) -> int:
            return int(_DROP_OLD.run(batch.connection, before_us=before_us).rowcount)

        return await self._database.transact(drop)


def _delivery(row: SqlRow) -> Delivery:
    number, tenant, webhook, thread_id, event, *rest = row
    seq, checkpoint_id, created_us, due_us, attempts, parked, error = rest
    times = (created_us, due_us, attempts)
    kind = WebhookEvent(event)
    return Delivery(
        *(number, tenant, webhook, thread_id, kind, seq, checkpoint_id), *times, bool(parked), error
    )
