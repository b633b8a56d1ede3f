"""Lineage in the journal: closures, forks, copies, rollbacks, adoptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple
from functools import partial

from sqlalchemy import Connection, bindparam, select

from ...archive.formats.bundles import Closure
from ...archive.rows import stored
from ...archive.rows.stored import StoredCheckpoint, live_thread, named_place, stored_value
from ...core.effects.records import EffectsMode
from ...core.errors import Reason, Refusal, checkpoint_not_found
from ...core.lineage import (
    LineageTree,
)
from ...core.model import CheckpointKey, Lineage, SaveOutcome, Value
from ...core.threads import EventKind
from ...journal.database.database import Database
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import (
    Place,
    find_thread,
)
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import writes
from ...journal.sql.statements import Statement, in_lists
from ...journal.values.contents import referred_digests
from ..checkpoints.missing_values import NOTHING, SuppliedValues, size_of
from ..checkpoints.save import check_head
from ..effects.records import LAYOUT, WHAT
from ..inbox.offer_rows import OFFERS, Claim, OfferRows
from ..inbox.offers import Offer
from ..leases.checking import check_lease
from . import carried_effects, copies, descent, first_answers
from .carried_effects import names_with_effects
from .first_answers import Request, decode_saved, decode_signer, encode_saved
from .rollback import roll_back

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

        def read(connection: Connection) -> Closure | None:
            closure = copies.closure(connection, tenant, key, supplied)
            return carried_effects.with_effects(connection, tenant, closure, supplied)

        return await self._database.query(read)

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
        *,
        mode: EffectsMode = EffectsMode.COPY,
    ) -> SaveOutcome:
        """Create a thread that starts with a checkpoint; an empty ID means the latest.

        For an empty `target` the journal generates a name. `mode`: what the thread does with the
        effects of its source.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`, `OLDER_SERVERS`.
        """
        name = target or self._new_name()
        await self._database.query(partial(copies.check, tenant=tenant, key=key))
        # Requests from before the modes have no mode in their fingerprint.
        modes = () if mode is EffectsMode.COPY else (mode.name,)

        def work(batch: UnitOfWork) -> SaveOutcome:
            if mode is not EffectsMode.COPY:
                self._database.require_layout(batch.connection, LAYOUT, WHAT)
            return fork(batch, tenant, key, name, supplied, mode)

        return await self._saved(
            first_answers.request(tenant, request_id, FORK, *astuple(key), target, *modes),
            work,
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
            batch.lock(names_with_effects(tenant, source, target))
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
            effects = carried_effects.find(connection, origin, None)
            carried_effects.carry(batch, log, [effects], supplied)
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
        all_checkpoints = await asyncio.to_thread(_adoptable_checkpoints, closure)
        checkpoints, effects, mode = carried_effects.split(all_checkpoints)
        name, source = target or self._new_name(), closure.key

        def adopt(batch: UnitOfWork) -> SaveOutcome:
            # A bundle does not record whether search finds its thread. If this server has the
            # thread, its setting counts.
            if effects:
                self._database.require_layout(batch.connection, LAYOUT, WHAT)
            inboxes = [(tenant, claim.inbox)] if claim is not None else []
            names = names_with_effects(tenant, name)
            batch.lock([(tenant, source.thread_id), *names, *inboxes])
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
            carried_effects.adopt(batch, log, effects, mode)
            if claim is not None and offer is not None:
                claim.close(batch, tenant, offer, saved)
            return saved

        signer = ""
        if claim is not None and claim.offer is not None:
            request = _offer_adoption(tenant, claim.offer.handoff_id, target, request_id)
            signer = claim.descriptor.signer
        else:
            request = _adoption(tenant, source, sha256, target, agent_id, request_id)
        return await self._saved(
            request,
            adopt,
            sum(checkpoint.new_bytes for checkpoint in all_checkpoints),
            signer,
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
    ) -> tuple[Offer | None, SaveOutcome | None, str]:
        """Return an offer to adopt, and the first answer of its adoption by this request.

        Without a first answer the offer is open. With a first answer the offer may be missing: it
        was removed since. The text is the signer of a first answer.

        Raises:
            Refusal: `HANDOFF_NOT_FOUND`, `HANDOFF_CLOSED`, `REQUEST_ID_REUSED`, `THREAD_EXISTS`.
        """
        request = _offer_adoption(tenant, handoff_id, target, request_id)
        answered = await self._database.query(request.first_answer)
        offer = await OfferRows(self._database).find(tenant, handoff_id)
        if answered is not None:
            return offer, decode_saved(answered), decode_signer(answered)
        if offer is None:
            raise Refusal(Reason.HANDOFF_NOT_FOUND, handoff_id=handoff_id)
        # The first answers of a recovered journal are lost.
        if offer.is_repeated_by(request_id):
            return offer, offer.adopted, offer.descriptor.signer if offer.descriptor else ""
        offer.check_open(self._database.now_us())
        await self._database.query(partial(_refuse_taken, tenant=tenant, target=target))
        return offer, None, ""

    async def _saved(
        self,
        request: Request,
        work: Callable[[UnitOfWork], SaveOutcome],
        size_bytes: int,
        signer: str = "",
    ) -> SaveOutcome:
        encode = partial(encode_saved, signer=signer)
        return await self._database.transact(
            lambda batch: request.once(batch, work, encode, decode_saved), size_bytes
        )

    def _new_name(self) -> str:
        return f"{self._database.random_bits():016x}{self._database.random_bits():016x}"


def fork(
    batch: UnitOfWork,
    tenant: str,
    key: CheckpointKey,
    target: str,
    supplied: SuppliedValues,
    mode: EffectsMode = EffectsMode.COPY,
) -> SaveOutcome:
    """Create a thread that starts with a checkpoint; see `LineageRows.fork`."""
    connection = batch.connection
    batch.lock(names_with_effects(tenant, key.thread_id, target))
    origin = live_thread(connection, tenant, key.thread_id)
    place = named_place(connection, origin, key) if origin is not None else None
    if origin is None or place is None:
        raise checkpoint_not_found(*astuple(key))
    log = stored.begin_from(batch, tenant, target, origin)
    numbers = copies.closure_numbers(connection, origin.number, place)
    [checkpoints] = copies.prepare(connection, [(origin, numbers)], supplied)
    reference = str(CheckpointKey(key.thread_id, *place))
    saved = stored.fill(batch, log, checkpoints, place, Lineage(forked_from=reference))
    effects = carried_effects.find(connection, origin, place, mode)
    carried_effects.carry(batch, log, [effects], supplied, mode)
    return saved


def _adoption(
    tenant: str, source: CheckpointKey, sha256: str, target: str, agent_id: str, request_id: str
) -> Request:
    arguments = (source.thread_id, source.checkpoint_id, sha256, target, agent_id)
    return first_answers.request(tenant, request_id, ADOPT, *arguments)


def _offer_adoption(tenant: str, handoff_id: str, target: str, request_id: str) -> Request:
    return first_answers.request(tenant, request_id, ADOPT, handoff_id, target)


def _refuse_taken(connection: Connection, tenant: str, target: str) -> None:
    thread = find_thread(connection, tenant, target) if target else None
    if (thread is not None and stored.is_taken(connection, thread.number)) or (
        target and carried_effects.taken(connection, tenant, target)
    ):
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
