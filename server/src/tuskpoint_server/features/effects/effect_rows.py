"""Effects in the journal: begin, report, decide, read.

Each change is decided by `core.effects` against the thread and its effects, both locked, and is
stored with a change of the thread itself, which wakes the thread's watchers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from ...archive.formats.segments import SegmentValue
from ...archive.rows import stored
from ...archive.rows.stored import live_thread
from ...core.effects import decisions
from ...core.effects.decisions import AttemptOutcome, BeginEffect, Decision, Moment, Origin
from ...core.effects.records import (
    STATE,
    EffectRecord,
    EffectsMode,
    EffectState,
    effect_id,
    effects_of,
    idempotency_key,
)
from ...core.errors import Reason, Refusal, checkpoint_missing
from ...core.leases import check_change
from ...core.limits import LIMITS
from ...core.threads import EventKind
from ...core.webhooks import WebhookEvent
from ...journal.database.database import Database
from ...journal.database.thread_rows import (
    CachedCheckpoint,
    Place,
    ThreadCacheEntry,
    ThreadRow,
    find_thread,
)
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import checkpoints
from ...journal.sql.statements import Statement, of_thread
from ..leases.checking import check_lease, lease_of
from .records import LAYOUT, WHAT, EffectThread, KeptEffect, decode, read_all, thread_of_effects

_PAGE = Statement(
    select(checkpoints.c.seq, checkpoints.c.number)
    .where(of_thread(checkpoints), checkpoints.c.seq < bindparam("below"))
    .order_by(checkpoints.c.seq.desc())
    .limit(bindparam("max_rows"))
)
_READ_AT_ONCE = 200
_ABOVE_ALL = 2**62


class _FullError(Exception):
    """A thread has as many effects as it may have, and effects may be removable."""


@dataclass(frozen=True, slots=True)
class ShownEffect:
    """An effect at a moment."""

    record: EffectRecord
    state: EffectState
    seq: int  # number of its last change
    has_result: bool
    unknown_us: int  # time at which a running effect becomes unknown, as of now


class Answer(NamedTuple):
    """The answer to a change: the effect, and what the decision says."""

    effect: ShownEffect
    changed: bool
    run: bool = False


Decide = Callable[[EffectRecord | None, Moment], Decision]


class EffectRows:
    """Effects of threads. Calls are coroutines; each can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self, tenant: str, thread_id: str, asked: BeginEffect, place: Place | None
    ) -> Answer:
        """Decide whether the caller must do the work of an effect; start the thread if necessary.

        `place`: the checkpoint of the task that the key belongs to; `None`: it belongs to none.

        Raises:
            Refusal: `EFFECT_INPUT_CHANGED`, `EFFECT_NOT_RECORDED`, `THREAD_DELETED`,
                `THREAD_BUSY`, `LEASE_LOST`, `CHECKPOINT_MISSING`, `LIMIT_EXCEEDED`,
                `QUOTA_EXCEEDED`, `OLDER_SERVERS`.
        """
        work = partial(self._begin, tenant=tenant, thread_id=thread_id, asked=asked, place=place)
        try:
            return await self._database.change(work, _bytes(asked), (tenant, thread_id))
        except _FullError:
            pass
        await self._database.transact(partial(_make_room, tenant=tenant, thread_id=thread_id))
        try:
            return await self._database.change(work, _bytes(asked), (tenant, thread_id))
        except _FullError:
            maximum = LIMITS.max_thread_effects
            what = f"one more effect of thread '{thread_id}', which has {maximum} effects,"
            raise Refusal(
                Reason.LIMIT_EXCEEDED, what=what, limit="max_thread_effects", maximum=maximum
            ) from None

    def _begin(
        self,
        batch: UnitOfWork,
        tenant: str,
        thread_id: str,
        asked: BeginEffect,
        place: Place | None,
    ) -> Answer:
        log, effects = self._open(batch, tenant, thread_id)
        if log is not None:
            check_change(thread_id, lease_of(log.row), asked.lease_id, batch.now_us)
            if log.row.deleted:
                raise log.row.refuse_deleted()
        origin = _origin(batch, thread_id, log, place)
        if log is None:
            log = batch.begin(tenant, thread_id)
            effects = EffectThread(batch, log.row)
        at = _moment(batch, log.row, origin)
        before = effects.find(asked.key) if effects is not None else None
        record = before.record if before is not None else None
        if effects is None:
            effects = EffectThread(batch, log.row)
        if effects.mode is EffectsMode.ANSWER:
            decision = decisions.answer(record, asked, at, effects.all)
        else:
            decision = decisions.begin(record, asked, at)
        if before is None and effects.count >= LIMITS.max_thread_effects:
            raise _FullError
        if decision.changed:
            check_lease(batch, log, asked.lease_id)
        return _put(batch, log, effects, before, decision, at)

    async def complete(
        self, tenant: str, thread_id: str, key: str, reported: str, value: SegmentValue | None
    ) -> Answer:
        """Record that the work of an effect is done; `reported`: the attempt's idempotency key.

        Raises:
            Refusal: `EFFECT_NOT_FOUND`, `OLDER_SERVERS`.
        """

        def decide(record: EffectRecord | None, at: Moment) -> Decision:
            return decisions.complete(record, key, reported, at)

        return await self._report(tenant, thread_id, key, decide, value)

    async def fail(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        attempt: int,
        reported: str,
        outcome: AttemptOutcome,
        error: str,
    ) -> Answer:
        """Record how an attempt failed.

        Raises:
            Refusal: `EFFECT_NOT_FOUND`, `OLDER_SERVERS`.
        """

        def decide(record: EffectRecord | None, at: Moment) -> Decision:
            return decisions.fail(record, key, attempt, reported, outcome, error, at)

        return await self._report(tenant, thread_id, key, decide)

    async def resolve(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        attempt: int,
        resolved_by: str,
        value: SegmentValue | None,
        *,
        done: bool,
    ) -> Answer:
        """Decide an unknown effect.

        Raises:
            Refusal: `EFFECT_NOT_FOUND`, `EFFECT_NOT_UNKNOWN`, `OLDER_SERVERS`.
        """

        def decide(record: EffectRecord | None, at: Moment) -> Decision:
            return decisions.resolve(record, key, attempt, resolved_by, at, done=done)

        return await self._report(tenant, thread_id, key, decide, value)

    async def _report(
        self,
        tenant: str,
        thread_id: str,
        key: str,
        decide: Decide,
        value: SegmentValue | None = None,
    ) -> Answer:
        def work(batch: UnitOfWork) -> Answer:
            log, effects = self._open(batch, tenant, thread_id)
            if log is None or log.row.deleted or effects is None:
                problem = "the thread does not exist"
                raise Refusal(
                    Reason.EFFECT_NOT_FOUND, thread_id=thread_id, key=key, problem=problem
                )
            head_id = log.row.head_id
            at = _moment(batch, log.row, Origin(checkpoint_id=head_id, root_id=head_id))
            before = effects.find(key)
            decision = decide(before.record if before is not None else None, at)
            return _put(batch, log, effects, before, decision, at, value)

        size = len(value.data) if value is not None else 0
        return await self._database.change(work, size + _RECORD_BYTES, (tenant, thread_id))

    def _open(
        self, batch: UnitOfWork, tenant: str, thread_id: str
    ) -> tuple[ThreadCacheEntry | None, EffectThread | None]:
        """Return a thread and its effects, both locked; `None`: it never existed."""
        self._database.require_layout(batch.connection, LAYOUT, WHAT)
        batch.lock([(tenant, thread_id), (tenant, effects_of(thread_id))])
        log = batch.find(tenant, thread_id)
        return log, EffectThread(batch, log.row) if log is not None else None

    async def get(self, tenant: str, thread_id: str, key: str) -> ShownEffect:
        """Return an effect.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `EFFECT_NOT_FOUND`, `JOURNAL_DAMAGED`.
        """
        now_us = self._database.now_us()

        def look(connection: Connection) -> ShownEffect:
            owner = _owner(connection, tenant, thread_id)
            row = thread_of_effects(connection, owner)
            places = [("", effect_id(key))]
            numbers = stored.numbers_of(connection, row.number, places) if row is not None else []
            if row is None or not numbers:
                problem = "it was never begun"
                raise Refusal(
                    Reason.EFFECT_NOT_FOUND, thread_id=thread_id, key=key, problem=problem
                )
            [checkpoint] = stored.read(connection, numbers)
            record = decode(row.thread_id, checkpoint)
            return _shown(record, checkpoint.known, owner, now_us)

        return await self._database.query(look)

    async def list(
        self, tenant: str, thread_id: str, states: Collection[EffectState], below: int, limit: int
    ) -> list[ShownEffect]:
        """Return effects in some states, the latest changed first, with numbers below `below`.

        `below` 0: all numbers; no states: all states.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `JOURNAL_DAMAGED`.
        """
        now_us = self._database.now_us()

        def look(connection: Connection) -> list[ShownEffect]:
            owner = _owner(connection, tenant, thread_id)
            row = thread_of_effects(connection, owner)
            found: list[ShownEffect] = []
            position = below or _ABOVE_ALL
            while row is not None and len(found) < limit:
                page = {"below": position, "max_rows": _READ_AT_ONCE}
                rows = _PAGE.run(connection, of_thread=row.number, **page).fetchall()
                numbers = [number for _, number in rows]
                for checkpoint in stored.read(connection, numbers) if numbers else ():
                    record = decode(row.thread_id, checkpoint)
                    effect = _shown(record, checkpoint.known, owner, now_us)
                    if not states or effect.state in states:
                        found.append(effect)
                if len(rows) < _READ_AT_ONCE:
                    break
                position = rows[-1][0]
            return found[:limit]

        return await self._database.query(look)


_RECORD_BYTES = 1024


def _bytes(asked: BeginEffect) -> int:
    return _RECORD_BYTES + len(asked.key) + len(asked.name)


def _owner(connection: Connection, tenant: str, thread_id: str) -> ThreadRow:
    row = live_thread(connection, tenant, thread_id)
    if row is None:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    return row


def _origin(
    batch: UnitOfWork, thread_id: str, log: ThreadCacheEntry | None, place: Place | None
) -> Origin:
    """Return where the work of a new effect is started.

    Raises:
        Refusal: `CHECKPOINT_MISSING`.
    """
    if place is None:
        head_id = log.row.head_id if log is not None else ""
        return Origin(checkpoint_id=head_id, root_id=head_id)
    checkpoint = batch.checkpoint(log, place) if log is not None else None
    if checkpoint is None:
        raise checkpoint_missing(thread_id, *place)
    root_id = checkpoint.root_id if place[0] else place[1]
    return Origin(True, *place, root_id)


def _lease_now(row: ThreadRow, now_us: int) -> str:
    """Return the ID of the lease that a thread has at a time; empty: none."""
    lease = lease_of(row)
    return lease.lease_id if lease is not None and lease.holds(now_us) else ""


def _moment(batch: UnitOfWork, row: ThreadRow, origin: Origin) -> Moment:
    lease_id = _lease_now(row, batch.now_us)

    return Moment(
        row.thread_id,
        batch.now_us,
        lease_id,
        lambda key, number: idempotency_key(
            row.tenant, row.thread_id, row.incarnation, key, number
        ),
        origin,
    )


def _put(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    effects: EffectThread,
    before: KeptEffect | None,
    decision: Decision,
    at: Moment,
    value: SegmentValue | None = None,
) -> Answer:
    """Store the record of a decision, and a change of the thread; return the answer."""
    record = decision.record
    if decision.changed:
        source = effects.find(decision.source_key) if decision.source_key else None
        state = source.checkpoint.state if source is not None else None
        is_new = log.new
        seq = batch.change(log, EventKind.EFFECT_CHANGED)
        if is_new:  # otherwise no catalog would record a thread without checkpoints
            log.row.settings_seq = seq
        effects.put(record, before, state, value)
        if record.state is EffectState.RUNNING:
            event, place = WebhookEvent.EFFECT_UNKNOWN, ("", record.key)
            due_us = _unknown_us(record, log.row)
            batch.outbox.add(log.row, event, batch.now_us, place, due_us=due_us)
        before = effects.find(record.key)
    if before is None:
        raise LookupError(f"effect {record.key!r} was decided and is not stored")
    state_now = record.state_at(at.now_us, at.lease_id)
    has_result = before.checkpoint.state != STATE
    unknown_us = _unknown_us(record, log.row)
    shown = ShownEffect(record, state_now, before.checkpoint.seq, has_result, unknown_us)
    return Answer(shown, decision.changed, decision.run)


def _shown(
    record: EffectRecord, checkpoint: CachedCheckpoint, owner: ThreadRow, now_us: int
) -> ShownEffect:
    state = record.state_at(now_us, _lease_now(owner, now_us))
    unknown_us = _unknown_us(record, owner)
    return ShownEffect(record, state, checkpoint.seq, checkpoint.state != STATE, unknown_us)


def _unknown_us(record: EffectRecord, owner: ThreadRow) -> int:
    """Return the time at which a running effect becomes unknown if nothing changes until then."""
    until_us = record.end_us or record.expire_us
    lease = lease_of(owner) if record.lease_id else None
    if lease is not None and lease.lease_id == record.lease_id:
        until_us = min(until_us, lease.until_us)
    return until_us


def _make_room(batch: UnitOfWork, tenant: str, thread_id: str) -> None:
    """Remove the ended effects of tasks whose checkpoint is not stored: no task asks for them."""
    batch.lock([(tenant, thread_id), (tenant, effects_of(thread_id))])
    owner = find_thread(batch.connection, tenant, thread_id)
    row = thread_of_effects(batch.connection, owner) if owner is not None else None
    if owner is None or owner.deleted or row is None:
        return
    records = [record for _, record in read_all(batch.connection, row.number, row.thread_id)]
    gone = [
        record
        for record in records
        if record.is_task
        and record.is_ended
        and not stored.numbers_of(
            batch.connection, owner.number, [(record.checkpoint_ns, record.checkpoint_id)]
        )
    ]
    EffectThread(batch, owner).drop(gone)
