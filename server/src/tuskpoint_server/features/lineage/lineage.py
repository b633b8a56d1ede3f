"""Lineage in the journal: closures, forks, copies, rollbacks, adoptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial

from sqlalchemy import Connection, bindparam, select

from ...archive.formats.bundles import Closure
from ...archive.formats.segments import SegmentCheckpoint
from ...archive.rows import stored
from ...archive.rows.stored import StoredCheckpoint, live_thread, named_place, stored_value
from ...core.errors import Reason, Refusal, checkpoint_not_found
from ...core.lineage import (
    LineageTree,
    empty_rollback_metadata,
    mint_next_checkpoint_id,
    rollback_frame,
    rollback_metadata,
    rollback_summary,
)
from ...core.model import CheckpointKey, Lineage, SaveOutcome, Value
from ...core.offers import Offer
from ...core.state import decode_channels, decode_state, encode_state
from ...core.threads import EventKind
from ...journal.database.database import Database
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import (
    Place,
    ThreadCacheEntry,
    ThreadRow,
    find_thread,
    greatest_id,
)
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import writes
from ...journal.sql.statements import Statement, in_lists
from ...journal.values.contents import referred_digests
from ..checkpoints.missing_values import NOTHING, SuppliedValues, size_of
from ..checkpoints.save import check_head
from ..inbox.offer_rows import LAYOUT, OFFERS, Claim, OfferRows
from ..leases.checking import check_lease
from . import copies, descent, first_answers
from .first_answers import Request, decode_saved, encode_saved
from .subgraphs import RootPath, stateful_namespaces

ADOPT, COPY, FORK = "AdoptHandoff", "CopyThread", "ForkThread"
ROLLBACK = "RollbackThread"

_EARLY = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, *stored.WRITE)
    .where(
        writes.c.thread == bindparam("of_thread"),
        writes.c.early_us.is_not(None),
        writes.c.data.is_not(None),
    )
    .order_by(writes.c.seq, writes.c.checkpoint_ns, writes.c.checkpoint_id)
)


class LineageRows:
    """Lineage of checkpoints, and new checkpoints that are made from others.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller withdraws it only before the writer starts it.
    With a `request_id` a retry gets the first answer, and `REQUEST_ID_REUSED` refuses another
    request with the same ID. A call with `supplied` raises `ValuesEvictedError` if it needs evicted
    values; repeat the call with the values. Every call can refuse with `JOURNAL_UNAVAILABLE`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def closure(
        self, tenant: str, key: CheckpointKey, supplied: SuppliedValues = NOTHING
    ) -> Closure | None:
        """Return a checkpoint with all that its next run needs; an empty ID means the latest.

        `None`: the checkpoint does not exist.

        Raises:
            Refusal: `LIMIT_EXCEEDED` if it exceeds a bundle; no values were read.
        """
        return await self._database.query(
            lambda connection: copies.closure(connection, tenant, key, supplied)
        )

    async def lineage(self, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
        """Return the steps to and from a thread; `None` if the thread does not exist."""
        return await self._database.query(
            lambda connection: descent.tree(connection, tenant, thread_id, max_steps)
        )

    async def fork(
        self,
        tenant: str,
        key: CheckpointKey,
        target: str,
        request_id: str,
        supplied: SuppliedValues = NOTHING,
    ) -> SaveOutcome:
        """Create a thread that starts with a checkpoint; an empty ID means the latest.

        For an empty `target` the journal generates a name.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """
        name = target or self._new_name()
        await self._database.query(partial(copies.check, tenant=tenant, key=key))
        return await self._saved(
            first_answers.request(tenant, request_id, FORK, *astuple(key), target),
            lambda batch: fork(batch, tenant, key, name, supplied),
            size_of(supplied),
        )

    async def copy_thread(
        self,
        tenant: str,
        source: str,
        target: str,
        request_id: str,
        supplied: SuppliedValues = NOTHING,
    ) -> int:
        """Copy a thread with all its checkpoints; return their number.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """
        request = first_answers.request(tenant, request_id, COPY, source, target)
        source_key = CheckpointKey(source, "", "")
        await self._database.query(partial(copies.check, tenant=tenant, key=source_key, whole=True))

        def copy(batch: UnitOfWork) -> int:
            connection = batch.connection
            batch.lock([(tenant, source), (tenant, target)])
            origin = live_thread(connection, tenant, source)
            if origin is None:
                raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=source)
            if source == target:
                raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
            log = stored.begin_from(batch, tenant, target, origin)
            numbers = stored.all_numbers(connection, origin.number)
            for chunk in in_lists(numbers):
                [checkpoints] = copies.prepare(
                    connection, [(origin, chunk)], supplied, with_ancestors=True
                )
                stored.add(batch, log, checkpoints)
                batch.write_out()
            # Early writes, each with a number.
            seqs: dict[Place, int] = {}
            for ns, id_, *columns in _EARLY.run(connection, of_thread=origin.number).fetchall():
                write, place = StoredWrite(*columns), (ns, id_)
                if place not in seqs:
                    seqs[place] = batch.change(log, EventKind.WRITES_SAVED, place)
                log.row.dirty_bytes += len(write.data or b"")
                batch.put_write(log, place, write, seqs[place], write.early_us)
            log.early = bool(seqs)
            stored.end(batch, log, ("", ""))
            return len(numbers)

        return await self._database.transact(
            lambda batch: request.once(batch, copy, lambda count: b"%d" % count, int),
            size_of(supplied),
        )

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        supplied: SuppliedValues = NOTHING,
        *,
        lease_id: str = "",
    ) -> SaveOutcome:
        """Append a checkpoint with the state of an earlier checkpoint.

        `expected_head` is the required latest ID of the namespace; `None`: no requirement.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `HEAD_MOVED`, `REQUEST_ID_REUSED`,
                `INVALID_FIELD` (no ID can be minted), `THREAD_BUSY`, `LEASE_LOST`.
        """
        guard = "" if expected_head is None else f"={expected_head}"
        entropy = self._database.random_bits()
        place = (key.checkpoint_ns, key.checkpoint_id)
        await self._database.query(partial(copies.check, tenant=tenant, key=key))

        def rollback(batch: UnitOfWork) -> SaveOutcome:
            log = batch.find(tenant, key.thread_id)
            number = log.row.number if log is not None and not log.row.deleted else 0
            if log is None or not stored.numbers_of(batch.connection, number, [place]):
                raise checkpoint_not_found(*astuple(key))
            if expected_head is not None:
                check_head(batch, log, key.checkpoint_ns, expected_head)
            check_lease(batch, log, lease_id)
            return roll_back(batch, log, log.row, place, supplied, entropy)

        return await self._saved(
            first_answers.request(tenant, request_id, ROLLBACK, *astuple(key), guard),
            rollback,
            size_of(supplied),
        )

    async def adopt(
        self,
        tenant: str,
        closure: Closure,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
        claim: Claim | None = None,
    ) -> SaveOutcome:
        """Create a thread, with a family of its own, from a closure of another server.

        The lineage of its checkpoint has `adopted_from`. `sha256` is the descriptor's hash;
        for an empty `target` the journal generates a name. The same transaction closes what the
        adoption claims.

        Raises:
            Refusal: `THREAD_EXISTS`, `REQUEST_ID_REUSED`, `HANDOFF_NOT_FOUND`, `HANDOFF_CLOSED`,
                `OLDER_SERVERS`.
        """
        checkpoints = await asyncio.to_thread(_adoptable_checkpoints, closure)
        name, source = target or self._new_name(), closure.key

        def adopt(batch: UnitOfWork) -> SaveOutcome:
            # A bundle does not record whether search finds its thread. If this server has the
            # thread, its setting counts.
            inboxes = [(tenant, claim.inbox)] if claim is not None else []
            batch.lock([(tenant, source.thread_id), (tenant, name), *inboxes])
            offer = claim.take(batch, tenant) if claim is not None else None
            if offer is not None:
                if offer.adopted is not None:
                    return offer.adopted
                self._database.require_layout(batch.connection, LAYOUT, OFFERS)
            origin = live_thread(batch.connection, tenant, source.thread_id)
            has_source = (
                origin is not None and named_place(batch.connection, origin, source) is not None
            )
            hidden = origin is not None and has_source and origin.unsearchable
            log = stored.begin(batch, tenant, name, None, agent_id, unsearchable=hidden)
            place = (source.checkpoint_ns, source.checkpoint_id)
            lineage = Lineage(adopted_from=str(source))
            saved = stored.fill(batch, log, checkpoints, place, lineage)
            if claim is not None and offer is not None:
                claim.close(batch, tenant, offer, saved)
            return saved

        if claim is not None and claim.offer is not None:
            request = _offer_adoption(tenant, claim.offer.handoff_id, target, request_id)
        else:
            request = _adoption(tenant, source, sha256, target, agent_id, request_id)
        return await self._saved(
            request,
            adopt,
            sum(checkpoint.new_bytes for checkpoint in checkpoints),
        )

    async def adopted(
        self,
        tenant: str,
        source: CheckpointKey,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
    ) -> SaveOutcome | None:
        """Return the first answer of `adopt` with a `request_id`; `None` if the ID is new.

        So a retry fetches nothing. The arguments equal the arguments of `adopt`.

        Raises:
            Refusal: `REQUEST_ID_REUSED`; `THREAD_EXISTS` if the ID is new and the target has
                checkpoints.
        """
        request = _adoption(tenant, source, sha256, target, agent_id, request_id)

        def look(connection: Connection) -> SaveOutcome | None:
            answered = request.first_answer(connection)
            if answered is not None:
                return decode_saved(answered)
            _refuse_taken(connection, tenant, target)
            return None

        return await self._database.query(look)

    async def offered(
        self, tenant: str, handoff_id: str, target: str, request_id: str
    ) -> SaveOutcome | Offer:
        """Return the open offer to adopt, or the first answer of its adoption by this request.

        Raises:
            Refusal: `HANDOFF_NOT_FOUND`, `HANDOFF_CLOSED`, `REQUEST_ID_REUSED`, `THREAD_EXISTS`.
        """
        request = _offer_adoption(tenant, handoff_id, target, request_id)
        answered = await self._database.query(request.first_answer)
        if answered is not None:
            return decode_saved(answered)
        offer = await OfferRows(self._database).find(tenant, handoff_id)
        # The first answers of a recovered journal are lost.
        if offer.adopted is not None and offer.is_repeated_by(request_id):
            return offer.adopted
        offer.check_open(self._database.now_us())
        await self._database.query(partial(_refuse_taken, tenant=tenant, target=target))
        return offer

    async def _saved(
        self, request: Request, work: Callable[[UnitOfWork], SaveOutcome], size_bytes: int
    ) -> SaveOutcome:
        return await self._database.transact(
            lambda batch: request.once(batch, work, encode_saved, decode_saved), size_bytes
        )

    def _new_name(self) -> str:
        return f"{self._database.random_bits():016x}{self._database.random_bits():016x}"


def fork(
    batch: UnitOfWork, tenant: str, key: CheckpointKey, target: str, supplied: SuppliedValues
) -> SaveOutcome:
    """Create a thread that starts with a checkpoint; see `LineageRows.fork`."""
    connection = batch.connection
    batch.lock([(tenant, key.thread_id), (tenant, target)])
    origin = live_thread(connection, tenant, key.thread_id)
    place = named_place(connection, origin, key) if origin is not None else None
    if origin is None or place is None:
        raise checkpoint_not_found(*astuple(key))
    log = stored.begin_from(batch, tenant, target, origin)
    numbers = copies.closure_numbers(connection, origin.number, place)
    [checkpoints] = copies.prepare(connection, [(origin, numbers)], supplied)
    reference = str(CheckpointKey(key.thread_id, *place))
    return stored.fill(batch, log, checkpoints, place, Lineage(forked_from=reference))


def roll_back(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    at: ThreadRow,
    place: Place,
    supplied: SuppliedValues,
    entropy: int,
) -> SaveOutcome:
    """Append a checkpoint with the state of an earlier checkpoint of the thread.

    A root checkpoint is rolled back with the subgraphs that keep a state of their own: each gets a
    checkpoint with its state after the runs before the earlier checkpoint. These checkpoints come
    first, so that "the latest before the root's" finds them. All new checkpoints are the latest of
    their namespaces, whose values are never evicted, so evicted values are restored.

    The earlier checkpoints are in the thread `at`: the same thread, or a captured copy.

    Raises:
        Refusal: `INVALID_FIELD` if no ID can be minted.
        ValuesEvictedError: The rollback needs evicted values.
    """
    batch.write_out()
    connection = batch.connection
    [target] = stored.read(connection, stored.numbers_of(connection, at.number, [place]))
    earlier: dict[str, StoredCheckpoint | None] = {}
    if not place[0]:
        earlier = _followers(connection, log.row.number, at.number, target)
    earlier[place[0]] = target
    states = [checkpoint for checkpoint in earlier.values() if checkpoint is not None]
    for checkpoint in states:
        checkpoint.writes = []
    copies.bring_values(connection, log.row.family, at, states, supplied, {})
    # IDs above the greatest of their namespaces; the root's ID above all others.
    last_id = ""
    ids: dict[str, str] = {}
    for namespace in earlier:
        floor_id = max(batch.greatest(log, namespace), last_id)
        last_id = mint_next_checkpoint_id(
            batch.now_us, entropy, floor_id, field="ref.checkpoint_id"
        )
        ids[namespace] = last_id
    for namespace, base in earlier.items():
        root_id = "" if namespace == place[0] else last_id
        new_checkpoint = _copy_state(batch, log, (namespace, ids[namespace]), base, root_id)
        stored.insert_checkpoint(batch, log, new_checkpoint)
    log.forget_checkpoints()
    key = CheckpointKey(log.row.thread_id, place[0], last_id)
    return SaveOutcome(key, log.row.seq, log.row.incarnation)


def _followers(
    connection: Connection, number: int, source_number: int, target: StoredCheckpoint
) -> dict[str, StoredCheckpoint | None]:
    """Return the stateful subgraphs that ran since the start of a root checkpoint.

    Each has the checkpoint to roll back to; `None`: before its first run. A capture has that
    checkpoint, even if the thread has lost it since.
    """
    namespaces = {
        namespace
        for thread in {number, source_number}
        for namespace in stateful_namespaces(connection, thread)
    }
    path = RootPath(connection, source_number, target.known.parent_id)
    earlier: dict[str, StoredCheckpoint | None] = {}
    for namespace in sorted(namespaces):
        checkpoint_id = path.left_at(namespace) if target.known.parent_id else ""
        if checkpoint_id == greatest_id(connection, number, namespace):
            continue
        numbers = stored.numbers_of(connection, source_number, [(namespace, checkpoint_id)])
        earlier[namespace] = stored.read(connection, numbers)[0] if numbers else None
    return earlier


def _copy_state(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    place: Place,
    earlier: StoredCheckpoint | None,
    root_id: str,
) -> StoredCheckpoint:
    """Return a checkpoint with the state of an earlier one; `None`: the state before the first run.

    `root_id` is for the metadata of a subgraph.
    """
    if earlier is None:
        newest = batch.checkpoint(log, (place[0], batch.greatest(log, place[0])))
        frame = decode_state(newest.state, {}).frame if newest is not None else b""
        row = SegmentCheckpoint(
            *(*place, 0, ""),
            state=rollback_frame(frame, batch.now_us, empty=True),
            metadata=empty_rollback_metadata(root_id),
            created_us=batch.now_us,
            summary="Rolled back to before its first run.",
        )
        return stored.of_segment(row)
    origin = CheckpointKey(log.row.thread_id, *earlier.place)
    checkpoint = earlier.known
    frame = rollback_frame(decode_state(checkpoint.state, {}).frame, batch.now_us)
    row = SegmentCheckpoint(
        *(*place, 0, checkpoint.parent_id),
        state=encode_state(frame, decode_channels(checkpoint.state)),
        metadata=rollback_metadata(checkpoint.metadata, place[0], root_id),
        created_us=batch.now_us,
        summary=rollback_summary(origin, checkpoint.summary),
        delta_base=earlier.delta_base or b"",
        lineage=Lineage(rolled_back_from=str(origin)),
    )
    return replace(stored.of_segment(row), values=earlier.values)


def _adoption(
    tenant: str, source: CheckpointKey, sha256: str, target: str, agent_id: str, request_id: str
) -> Request:
    arguments = (source.thread_id, source.checkpoint_id, sha256, target, agent_id)
    return first_answers.request(tenant, request_id, ADOPT, *arguments)


def _offer_adoption(tenant: str, handoff_id: str, target: str, request_id: str) -> Request:
    return first_answers.request(tenant, request_id, ADOPT, handoff_id, target)


def _refuse_taken(connection: Connection, tenant: str, target: str) -> None:
    thread = find_thread(connection, tenant, target) if target else None
    if thread is not None and stored.is_taken(connection, thread.number):
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)


def _adoptable_checkpoints(closure: Closure) -> list[StoredCheckpoint]:
    """Return the checkpoints of a closure for insertion; reads check their digests."""
    segment = closure.segment
    packed = {
        value.digest: stored_value(value.digest, Value(value.type, value.data))
        for value in segment.values
    }
    checkpoints: dict[Place, StoredCheckpoint] = {}
    for row in segment.checkpoints:
        checkpoint = stored.of_segment(row)
        checkpoint.values = [
            packed[digest] for digest in sorted(referred_digests(row.state, checkpoint.delta_base))
        ]
        checkpoints[checkpoint.place] = checkpoint
    for write in segment.writes:
        value = stored_value(write.digest, Value(write.type, write.data))
        new_write = stored.of_written(write, 0, value.encoding, value.data)
        checkpoints[write.checkpoint_ns, write.checkpoint_id].writes.append(new_write)
    return list(checkpoints.values())
