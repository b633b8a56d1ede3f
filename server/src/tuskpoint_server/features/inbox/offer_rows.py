"""Offers of hand-offs in the journal: made, found, closed, removed.

The label of an offer's checkpoint is its stored state, so that open offers are found without a look
into closed ones. `run_id` is the thread of the handed-off checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from ...core.errors import Reason, Refusal
from ...core.lineage import Descriptor, first_id_at, mint_checkpoint_id
from ...core.model import SaveOutcome
from ...core.state import encode_names
from ...core.threads import EventKind
from ...journal.database.database import Database, Waiter
from ...journal.database.thread_rows import CachedCheckpoint, ThreadCacheEntry, find_thread
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import deletion
from ...journal.sql.schema import threads
from ...journal.sql.statements import EMPTY, SqlRow
from ...journal.values.integrity import damaged_rows
from .offer_statements import (
    BY_ID,
    FIND,
    IN_INBOX,
    INBOXES,
    ITS_THREAD,
    KEPT,
    NEWS,
    OF_INBOX,
    OF_THREAD,
    OLD_INBOXES,
    OLD_OFFERS,
    READ,
    SWEPT_AT_ONCE,
    C,
    T,
)
from .offers import (
    KEPT_US,
    STATE,
    HandoffState,
    Offer,
    decode,
    encode,
    inbox_of,
)

LAYOUT = 4
"""First layout of the journal whose servers know offers."""

OFFERS = "offers of hand-offs"
"""Name of what older servers do not know."""

NEWS_AT_ONCE = 256
"""Most changes of an inbox that a watch reads at once."""


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Which offers; `None` or empty: no condition."""

    to_agent: str | None = None
    thread_id: str = ""
    states: frozenset[HandoffState] = frozenset()


class ReadOffers(NamedTuple):
    """Offers, and why others were left out: their rows were changed."""

    offers: list[Offer]
    damaged: tuple[str, ...] = ()


class InboxNews(NamedTuple):
    """Offers that changed up to a change of their inbox, and IDs of removed offers."""

    seq: int
    changed: ReadOffers = ReadOffers([])
    removed: tuple[str, ...] = ()


def make(
    batch: UnitOfWork,
    tenant: str,
    descriptor: Descriptor,
    incarnation: int,
    entropy: int,
    ttl_us: int,
) -> str:
    """Offer a hand-off in the inbox of its receiver; return the ID of the offer.

    `incarnation` is the incarnation of the thread. `ttl_us`: microseconds after which the offer
    expires; 0: never. The inbox must be locked.
    """
    name = inbox_of(descriptor.to_agent)
    log = batch.find(tenant, name)
    if log is None:
        log = batch.begin(tenant, name)
        log.row.unsearchable = True
    handoff_id = mint_checkpoint_id(batch.now_us, entropy, batch.greatest(log, ""))
    offer = Offer(
        handoff_id=handoff_id,
        to_agent=descriptor.to_agent,
        descriptor=descriptor,
        state=HandoffState.OFFERED,
        created_us=batch.now_us,
        incarnation=incarnation,
        expire_us=batch.now_us + ttl_us if ttl_us else None,
    )
    _store(batch, log, offer)
    return handoff_id


@dataclass(frozen=True, slots=True)
class Claim:
    """What the transaction that makes a thread closes.

    Attributes:
        descriptor: Descriptor of the adoption.
        request_id: ID of the request; empty: no repeats.
        offer: The offer to adopt; `None`: the oldest open offer of exactly this descriptor, if
            there is one.
    """

    descriptor: Descriptor
    request_id: str = ""
    offer: Offer | None = None

    @property
    def inbox(self) -> str:
        """The thread with the offer."""
        return inbox_of(self.descriptor.to_agent)

    def take(self, batch: UnitOfWork, tenant: str) -> Offer | None:
        """Return the current state of the offer, which is open or was adopted by this request.

        Raises:
            Refusal: `HANDOFF_NOT_FOUND`, `HANDOFF_CLOSED`.
        """
        if self.offer is None:
            return _matching_offer(batch, tenant, self.descriptor)
        offer = _present(batch, tenant, self.offer)
        if not offer.is_repeated_by(self.request_id):
            offer.check_open(batch.now_us)
        return offer

    def close(self, batch: UnitOfWork, tenant: str, offer: Offer, saved: SaveOutcome) -> None:
        """Record the thread that adopted an open offer."""
        adopted = replace(
            offer,
            state=HandoffState.ADOPTED,
            closed_us=batch.now_us,
            adopted=saved,
            request_id=self.request_id,
        )
        _store(batch, _inbox(batch, tenant, offer), adopted)


def _present(batch: UnitOfWork, tenant: str, offer: Offer) -> Offer:
    """Return the current state of an offer; lock its inbox.

    Raises:
        Refusal: `HANDOFF_NOT_FOUND`.
    """
    log = _inbox(batch, tenant, offer)
    checkpoint = batch.checkpoint(log, ("", offer.handoff_id))
    if checkpoint is None:
        raise Refusal(Reason.HANDOFF_NOT_FOUND, handoff_id=offer.handoff_id)
    return decode(log.row.thread_id, offer.handoff_id, checkpoint.metadata)


def _matching_offer(batch: UnitOfWork, tenant: str, descriptor: Descriptor) -> Offer | None:
    """Return the oldest open offer of exactly this descriptor, or `None`; lock the inbox."""
    name = inbox_of(descriptor.to_agent)
    log = batch.find(tenant, name)
    if log is None:
        return None
    batch.write_out()
    parameters = {"of_source": descriptor.thread_id, "of_inbox": name}
    rows = OF_THREAD.run(batch.connection, of_tenant=tenant, **parameters).fetchall()
    wanted = _compared(descriptor)
    for _, handoff_id in rows:
        checkpoint = batch.checkpoint(log, ("", handoff_id))
        offer = decode(name, handoff_id, checkpoint.metadata) if checkpoint is not None else None
        if offer is None or offer.descriptor is None or not offer.lives_at(batch.now_us):
            continue
        if _compared(offer.descriptor) == wanted:
            return offer
    return None


def drop_stale(batch: UnitOfWork, tenant: str) -> int:
    """Remove the offers of threads that have ended; return their number.

    In a recovered journal the end of a thread may be certified, and the removal of its offers not.
    """
    batch.write_out()
    count = 0
    for name, number in INBOXES.run(batch.connection, of_tenant=tenant).fetchall():
        rows = OF_INBOX.run(batch.connection, of_thread=number).fetchall()
        stale = [
            offer.handoff_id
            for offer in _read(batch.connection, [number for (number,) in rows]).offers
            if not _has_source(batch, tenant, offer)
        ]
        if stale:
            count += _remove(batch, tenant, name, stale)
    return count


def _has_source(batch: UnitOfWork, tenant: str, offer: Offer) -> bool:
    """Return whether the handed-off thread is still in the incarnation of the hand-off."""
    if offer.descriptor is None:
        return False
    source = find_thread(batch.connection, tenant, offer.descriptor.thread_id)
    return source is not None and not source.deleted and source.incarnation == offer.incarnation


def _compared(descriptor: Descriptor) -> Descriptor:
    """Return a descriptor without what is not signed, and may differ for the same hand-off."""
    return replace(descriptor, key="", sealed_key="")


def _inbox(batch: UnitOfWork, tenant: str, offer: Offer) -> ThreadCacheEntry:
    log = batch.find(tenant, inbox_of(offer.to_agent))
    if log is None:
        raise Refusal(Reason.HANDOFF_NOT_FOUND, handoff_id=offer.handoff_id)
    return log


def _store(batch: UnitOfWork, log: ThreadCacheEntry, offer: Offer) -> None:
    """Store the checkpoint of an offer, as a change of its inbox."""
    if offer.descriptor is None:
        raise ValueError("the offer was removed")
    place, metadata = ("", offer.handoff_id), encode(offer)
    before = batch.checkpoint(log, place)
    is_new = log.new
    size = len(metadata) + len(STATE)
    seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size)
    if is_new:
        log.row.settings_seq = seq
    columns = (seq, "", STATE, metadata, offer.descriptor.thread_id, "", encode_names(()))
    checkpoint = CachedCheckpoint(*columns, offer.state.name, "", offer.created_us)
    batch.put_checkpoint(log, place, checkpoint, before=before)
    log.add(place, checkpoint)
    log.row.checkpoint_count += before is None


class OfferRows:
    """Offers of all tenants. Every call can refuse with `JOURNAL_UNAVAILABLE`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def subscribe(self, tenant: str, to_agent: str) -> AbstractContextManager[Waiter]:
        """Wake the caller after changes of an inbox inside the context, existing or not."""
        return self._database.waiters.subscribe(tenant, inbox_of(to_agent))

    @property
    def journal_id(self) -> str:
        """ID of the journal."""
        return self._database.journal_id

    def now_us(self) -> int:
        """Return the present time of the journal's clock."""
        return self._database.now_us()

    async def find(self, tenant: str, handoff_id: str) -> Offer | None:
        """Return an offer, as it is stored, or `None`.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """

        def work(connection: Connection) -> Offer | None:
            rows = FIND.run(connection, of_tenant=tenant, of_id=handoff_id).fetchall()
            numbers = [number for (number,) in rows]
            for refusal in damaged_rows(connection, numbers).values():
                raise refusal
            return next(iter(_read(connection, numbers).offers), None)

        return await self._database.query(work)

    async def withdraw(self, tenant: str, handoff_id: str) -> Offer:
        """Withdraw an open offer; a withdrawn offer stays as it is.

        Raises:
            Refusal: `HANDOFF_NOT_FOUND`, `HANDOFF_CLOSED`, `OLDER_SERVERS`.
        """
        offer = await self.find(tenant, handoff_id)
        if offer is None:
            raise Refusal(Reason.HANDOFF_NOT_FOUND, handoff_id=handoff_id)

        def work(batch: UnitOfWork) -> Offer:
            current = _present(batch, tenant, offer)
            if current.state is HandoffState.WITHDRAWN:
                return current
            current.check_open(batch.now_us)
            self._database.require_layout(batch.connection, LAYOUT, OFFERS)
            withdrawn = replace(current, state=HandoffState.WITHDRAWN, closed_us=batch.now_us)
            _store(batch, _inbox(batch, tenant, withdrawn), withdrawn)
            return withdrawn

        return await self._database.transact(work)

    async def listed(self, tenant: str, query: OfferQuery, after: str, limit: int) -> ReadOffers:
        """Return offers after an ID, oldest first, as callers see them now."""
        now_us = self._database.now_us()

        def work(connection: Connection) -> ReadOffers:
            offers: list[Offer] = []
            damaged: list[str] = []
            last_id, wanted = after, limit
            while wanted:
                rows = _numbers(connection, tenant, query, last_id, wanted)
                read = _read(connection, [number for number, _ in rows])
                damaged += read.damaged
                shown = (offer.at(now_us) for offer in read.offers)
                offers += [
                    offer for offer in shown if not query.states or offer.state in query.states
                ]
                if len(rows) < wanted:
                    break
                last_id, wanted = rows[-1][1], limit - len(offers)
            return ReadOffers(offers, tuple(damaged))

        return await self._database.query(work)

    async def seq(self, tenant: str, to_agent: str) -> int:
        """Return the number of the last change of an inbox; 0 if the inbox does not exist."""

        def work(connection: Connection) -> int:
            inbox = find_thread(connection, tenant, inbox_of(to_agent))
            return inbox.seq if inbox is not None else 0

        return await self._database.query(work)

    async def news(
        self, tenant: str, to_agent: str, after: int, shown: Collection[str]
    ) -> InboxNews:
        """Return the offers that changed after a change of the inbox, as they are stored.

        `shown`: IDs of offers; the removed ones among them are returned, too.
        """

        def work(connection: Connection) -> InboxNews:
            inbox = find_thread(connection, tenant, inbox_of(to_agent))
            if inbox is None or inbox.seq <= after:
                return InboxNews(after)
            parameters = {"of_thread": inbox.number, "after": after, "max_rows": NEWS_AT_ONCE}
            rows = NEWS.run(connection, **parameters).fetchall()
            ids = {checkpoint_id for _, _, checkpoint_id in rows if checkpoint_id}
            seq = rows[-1][0] if rows else inbox.seq
            removed: set[str] = set()
            # Changes that were dropped may have closed or removed any offer.
            has_gap = not rows or rows[0][0] != after + 1
            if has_gap or any(kind == EventKind.CHECKPOINTS_DELETED for _, kind, _ in rows):
                kept = KEPT.run_listed(connection, shown, of_thread=inbox.number)
                removed = set(shown) - {checkpoint_id for (checkpoint_id,) in kept}
            if has_gap:
                ids |= set(shown)
            numbers = [n for (n,) in BY_ID.run_listed(connection, ids, of_thread=inbox.number)]
            return InboxNews(seq, _read(connection, numbers), tuple(sorted(removed)))

        return await self._database.query(work)

    async def read(self, tenant: str, to_agent: str, ids: Collection[str]) -> list[Offer]:
        """Return the stored ones of some offers to an agent."""

        def work(connection: Connection) -> list[Offer]:
            inbox = find_thread(connection, tenant, inbox_of(to_agent))
            if inbox is None:
                return []
            rows = BY_ID.run_listed(connection, ids, of_thread=inbox.number)
            return _read(connection, [number for (number,) in rows]).offers

        return await self._database.query(work) if ids else []

    async def sweep(self) -> int:
        """Remove the offers of all tenants that were closed long ago; return their number.

        An offer cannot have been closed before it was made, and its ID has that time.
        """
        before_us = self._database.now_us() - KEPT_US
        before_id = first_id_at(before_us)
        count = 0
        for tenant, name, number in await self._database.rows(OLD_INBOXES, before_id=before_id):
            after_id, is_last = "", False
            while not is_last:
                parameters = {"of_thread": number, "before_id": before_id, "after_id": after_id}
                rows = await self._database.rows(OLD_OFFERS, **parameters)
                is_last = len(rows) < SWEPT_AT_ONCE
                after_id = rows[-1][1] if rows else ""
                read = await self._read([number for number, _ in rows])
                doomed = [
                    offer.handoff_id
                    for offer in read.offers
                    if (closed_us := offer.at(before_us).closed_us) and closed_us <= before_us
                ]
                if doomed:
                    work = partial(_remove, tenant=tenant, name=name, ids=doomed)
                    count += await self._database.transact(work)
        return count

    async def _read(self, numbers: Sequence[int]) -> ReadOffers:
        return await self._database.query(lambda connection: _read(connection, numbers))


def _numbers(
    connection: Connection, tenant: str, query: OfferQuery, after: str, limit: int
) -> Sequence[SqlRow]:
    """Return the row numbers and IDs of offers after an ID, oldest first.

    `coalesce` keeps the database from the index of all checkpoints of the tenant.
    """
    by_id: ColumnElement[str] = C.checkpoint_id
    statement = select(C.number, by_id).join(threads, ITS_THREAD).where(T.tenant == tenant)
    statement = statement.where(IN_INBOX, by_id > after).limit(limit)
    if query.states and HandoffState.EXPIRED not in query.states:
        statement = statement.where(C.label.in_([state.name for state in query.states]))
    if query.to_agent is not None:
        statement = statement.where(T.thread_id == inbox_of(query.to_agent))
    if query.thread_id:
        of_source = (C.tenant == tenant, C.run_id == query.thread_id, C.run_id != EMPTY)
        statement = statement.where(*of_source)
    if query.to_agent is None:
        by_id = func.coalesce(by_id, EMPTY)
    return connection.execute(statement.order_by(by_id)).fetchall()


def _read(connection: Connection, numbers: Sequence[int]) -> ReadOffers:
    """Return the offers in rows, oldest first, without the rows that were changed."""
    damaged = damaged_rows(connection, numbers)
    rows = sorted(READ.run_listed(connection, numbers), key=itemgetter(2))
    offers = [decode(*columns) for number, *columns in rows if number not in damaged]
    return ReadOffers(offers, tuple(map(str, damaged.values())))


def _remove(batch: UnitOfWork, tenant: str, name: str, ids: Sequence[str]) -> int:
    log = batch.find(tenant, name)
    if log is None:
        return 0
    deletion.drop_records(batch, log, [("", handoff_id) for handoff_id in ids])
    return len(ids)
