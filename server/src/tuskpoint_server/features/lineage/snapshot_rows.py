"""Snapshots: several threads captured together.

One hidden thread describes the snapshot, and one for each member has the captured checkpoints, in
the family of the captured thread: so values are stored once, and pruning or deleting the captured
thread removes nothing from the snapshot. `features.lineage.snapshot_state` has the names of these
threads, which no caller can use. Recovery restores a snapshot only if all of its threads are
certified.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial

from sqlalchemy import Connection, bindparam, func, select

from ...archive.formats.segments import SegmentCheckpoint
from ...archive.rows import stored
from ...archive.rows.stored import all_numbers, live_thread, of_segment, stored_value
from ...core.errors import Reason, Refusal, journal_damaged, snapshot_not_found
from ...core.limits import KIB, LIMITS
from ...core.lineage import mint_checkpoint_id
from ...core.model import Channel, CheckpointKey, Lineage, SaveOutcome, View
from ...core.state import encode_state, matches
from ...core.threads import SNAPSHOTS
from ...core.values import value_digest
from ...journal.database.database import Database
from ...journal.database.thread_rows import ThreadRow
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal.deletion import delete_thread
from ...journal.sql.schema import checkpoints, threads
from ...journal.sql.statements import Statement
from ...journal.values.load import load
from ..checkpoints.missing_values import NOTHING, SuppliedValues, size_of
from ..leases.checking import check_lease
from . import carried_effects, copies, first_answers
from . import snapshot_state as kept
from .carried_effects import names_with_effects
from .first_answers import decode_saved, encode_saved
from .rollback import roll_back
from .snapshot_state import Snapshot

CREATE, RESTORE = "CreateSnapshot", "RestoreSnapshot"

_MEMBER_BYTES = 16 * KIB
"""Bytes of a member in a batch of the writer, so that few large snapshots share a batch."""

_LISTED_AT_ONCE = 64
_PAST_NUMBERS = "~"

_OF_SNAPSHOTS = (
    threads.c.tenant == bindparam("of_tenant"),
    threads.c.thread_id >= SNAPSHOTS,
    threads.c.thread_id < bindparam("below"),
)
_NEWEST = Statement(select(func.max(threads.c.thread_id)).where(*_OF_SNAPSHOTS))
_BELOW = Statement(
    select(threads.c.thread_id, checkpoints.c.metadata)
    .join(checkpoints, checkpoints.c.thread == threads.c.number)
    .where(*_OF_SNAPSHOTS, threads.c.deleted.is_(False))
    .order_by(threads.c.thread_id.desc())
)
_MEMBERS = Statement(
    select(threads.c.thread_id).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id >= bindparam("from_name"),
        threads.c.thread_id < bindparam("below"),
        threads.c.deleted.is_(False),
    )
)


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Which snapshots; empty: no condition."""

    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDraft:
    """A snapshot to create; fields as in `features.lineage.snapshot_state.Snapshot`."""

    thread_ids: tuple[str, ...]
    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""
    metadata: bytes = b"{}"


class SnapshotRows:
    """Snapshots of several threads; calls behave like the calls of `LineageRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_snapshot(
        self, tenant: str, draft: SnapshotDraft, request_id: str, supplied: SuppliedValues = NOTHING
    ) -> Snapshot:
        """Capture the heads of threads at one instant.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`.
        """
        entropy = self._database.random_bits()
        arguments = (*draft.thread_ids, draft.session_id, draft.hostname, draft.working_directory)
        request = first_answers.request(
            tenant, request_id, CREATE, *arguments, draft.metadata.hex()
        )
        for thread_id in draft.thread_ids:
            head = CheckpointKey(thread_id, "", "")
            await self._database.query(partial(copies.check, tenant=tenant, key=head))
        return await self._database.transact(
            lambda batch: request.once(
                batch,
                lambda batch: _create(batch, tenant, draft, supplied, entropy),
                lambda snapshot: snapshot.snapshot_id.encode(),
                lambda answer: _find_snapshot(batch.connection, tenant, answer.decode()),
            ),
            len(draft.metadata) + len(draft.thread_ids) * _MEMBER_BYTES,
        )

    async def snapshot(self, tenant: str, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot, or `None`."""
        return await self._database.query(lambda connection: _read(connection, tenant, snapshot_id))

    async def list_snapshots(
        self, tenant: str, query: SnapshotQuery, below: str, limit: int
    ) -> list[Snapshot]:
        """Return snapshots, newest first, with IDs below `below` unless it is empty."""
        filters: dict[str, object] = {k: sought for k, sought in asdict(query).items() if sought}
        end = kept.thread_of(below) if below else kept.MEMBER_THREADS

        def look(connection: Connection) -> list[Snapshot]:
            rows = _BELOW.run(connection, of_tenant=tenant, below=end)
            snapshots: list[Snapshot] = []
            while len(snapshots) < limit and (chunk := rows.fetchmany(_LISTED_AT_ONCE)):
                for thread_id, metadata in chunk:
                    if len(snapshots) < limit and matches(metadata, filters):
                        snapshot = _read(connection, tenant, thread_id.removeprefix(SNAPSHOTS))
                        snapshots += [snapshot] if snapshot is not None else []
            return snapshots

        return await self._database.query(look)

    async def restore_snapshot(
        self,
        tenant: str,
        snapshot_id: str,
        supplied: SuppliedValues = NOTHING,
        *,
        rollback: bool,
        request_id: str,
        skip_deleted: bool = False,
    ) -> tuple[SaveOutcome, ...]:
        """Restore all members or none, each into a new thread, or by a rollback of its own thread.

        `skip_deleted` leaves out members whose thread was deleted and cannot be rolled back.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`, `THREAD_BUSY`.
        """
        bits = [self._database.random_bits(), self._database.random_bits()]
        mode = "skip_deleted" if rollback and skip_deleted else str(rollback)
        request = first_answers.request(tenant, request_id, RESTORE, snapshot_id, mode)
        await self._database.query(lambda connection: _check(connection, tenant, snapshot_id))
        # The number of members is not known yet.
        size = size_of(supplied) + LIMITS.max_snapshot_members * _MEMBER_BYTES
        return await self._database.transact(
            lambda batch: request.once(
                batch,
                lambda batch: (
                    _roll_back(batch, tenant, snapshot_id, supplied, bits[0], skips=skip_deleted)
                    if rollback
                    else _restore(batch, tenant, snapshot_id, supplied, bits)
                ),
                lambda outcomes: json.dumps(
                    [encode_saved(saved).decode() for saved in outcomes]
                ).encode(),
                lambda answer: tuple(decode_saved(text.encode()) for text in json.loads(answer)),
            ),
            size,
        )

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> bool:
        """Delete a snapshot with its members; return whether it existed."""
        prefix = kept.member_threads_of(snapshot_id)

        def work(batch: UnitOfWork) -> bool:
            rows = _MEMBERS.run(
                batch.connection, of_tenant=tenant, from_name=prefix, below=prefix + _PAST_NUMBERS
            ).fetchall()
            for (thread_id,) in rows:
                delete_thread(batch, tenant, thread_id)
            return delete_thread(batch, tenant, kept.thread_of(snapshot_id)) > 0

        return await self._database.transact(work)


def _create(
    batch: UnitOfWork, tenant: str, draft: SnapshotDraft, supplied: SuppliedValues, entropy: int
) -> Snapshot:
    connection = batch.connection
    sources: list[tuple[ThreadRow, list[int]]] = []
    batch.lock(names_with_effects(tenant, *draft.thread_ids))
    for thread_id in draft.thread_ids:
        origin = live_thread(connection, tenant, thread_id)
        if origin is None or not origin.head_id:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        numbers = copies.closure_numbers(connection, origin.number, ("", origin.head_id))
        sources.append((origin, numbers))
    captured = copies.prepare(connection, sources, supplied)
    for (origin, _), copied in zip(sources, captured, strict=True):
        if ("", origin.head_id) not in {checkpoint.place for checkpoint in copied}:
            raise journal_damaged(origin.thread_id, "", origin.head_id)  # the row was deleted
    row = _NEWEST.run(connection, of_tenant=tenant, below=kept.MEMBER_THREADS).fetchone()
    newest = (row[0] or "" if row else "").removeprefix(SNAPSHOTS)
    members = [
        kept.SnapshotMember(thread.thread_id, thread.head_id, thread.agent_id, thread.unsearchable)
        for thread, _ in sources
    ]
    snapshot = Snapshot(
        snapshot_id=mint_checkpoint_id(batch.now_us, entropy, newest),
        session_id=draft.session_id,
        hostname=draft.hostname,
        working_directory=draft.working_directory,
        metadata=draft.metadata,
        members=tuple(members),
        created_us=batch.now_us,
    )
    for number, (member, (origin, _)) in enumerate(zip(members, sources, strict=True)):
        name = kept.member_thread_of(snapshot.snapshot_id, number)
        log = stored.begin_from(batch, tenant, name, origin)
        place = ("", member.checkpoint_id)
        stored.fill(batch, log, captured[number], place)
        effects = carried_effects.find(connection, origin, place)
        carried_effects.carry(batch, log, [effects], supplied)
    metadata, frame, contents = kept.encode(snapshot)
    values = [stored_value(value_digest(value), value) for value in contents.values()]
    channels = [
        Channel(name, 1, value.digest, value.size)
        for name, value in zip(contents, values, strict=True)
    ]
    state = encode_state(frame, channels)
    summary = f"Snapshot of {len(members)} thread{'s' if len(members) != 1 else ''}."
    place = ("", snapshot.snapshot_id)
    description = of_segment(SegmentCheckpoint(*place, 0, "", state, metadata, 0, "", summary))
    description.values = values
    log = stored.begin(batch, tenant, kept.thread_of(snapshot.snapshot_id), None)
    stored.fill(batch, log, [description], place)
    return snapshot


def _read(connection: Connection, tenant: str, snapshot_id: str) -> Snapshot | None:
    """Return a snapshot, or `None`."""
    key = CheckpointKey(kept.thread_of(snapshot_id), "", snapshot_id)
    checkpoint = load(connection, tenant, key, View.FULL)
    if checkpoint is None or checkpoint.state is None:
        return None
    copies.refuse_damaged(key, (channel.value for channel in checkpoint.state.channels))
    values = {channel.name: channel.value for channel in checkpoint.state.channels if channel.value}
    return kept.decode(snapshot_id, checkpoint.entry.created_us, checkpoint.entry.metadata, values)


def _check(connection: Connection, tenant: str, snapshot_id: str) -> None:
    """Compare the captured values of a snapshot, if it exists, with their digests."""
    snapshot = _read(connection, tenant, snapshot_id)
    for number in range(len(snapshot.members) if snapshot is not None else 0):
        captured = CheckpointKey(kept.member_thread_of(snapshot_id, number), "", "")
        copies.check(connection, tenant, captured, whole=True)


def _find_snapshot(connection: Connection, tenant: str, snapshot_id: str) -> Snapshot:
    snapshot = _read(connection, tenant, snapshot_id)
    if snapshot is None:
        raise snapshot_not_found(snapshot_id)
    return snapshot


def _lock_members(
    batch: UnitOfWork, tenant: str, snapshot_id: str
) -> list[tuple[kept.SnapshotMember, ThreadRow]]:
    """Return the members of a snapshot and their hidden threads, all locked."""
    connection = batch.connection
    members = _find_snapshot(connection, tenant, snapshot_id).members
    numbers = range(len(members))
    batch.lock((tenant, kept.member_thread_of(snapshot_id, number)) for number in numbers)
    batch.lock(names_with_effects(tenant, *(member.thread_id for member in members)))
    member_threads: list[ThreadRow] = []
    for number in numbers:
        thread = live_thread(connection, tenant, kept.member_thread_of(snapshot_id, number))
        if thread is None:
            raise LookupError(f"snapshot {snapshot_id} lacks member {number}")
        member_threads.append(thread)
    return list(zip(members, member_threads, strict=True))


def _roll_back(
    batch: UnitOfWork,
    tenant: str,
    snapshot_id: str,
    supplied: SuppliedValues,
    entropy: int,
    *,
    skips: bool,
) -> tuple[SaveOutcome, ...]:
    restored: list[SaveOutcome] = []
    for member, thread in _lock_members(batch, tenant, snapshot_id):
        log = batch.find(tenant, member.thread_id)
        if log is not None and not log.row.deleted:
            place = ("", member.checkpoint_id)
            check_lease(batch, log, "")
            restored.append(roll_back(batch, log, thread, place, supplied, entropy))
        elif not skips:
            raise Refusal(
                Reason.THREAD_NOT_FOUND,
                advice="restore the snapshot as new threads, or leave out deleted ones",
                thread_id=member.thread_id,
            )
    return tuple(restored)


def _restore(
    batch: UnitOfWork, tenant: str, snapshot_id: str, supplied: SuppliedValues, bits: list[int]
) -> tuple[SaveOutcome, ...]:
    connection = batch.connection
    locked = _lock_members(batch, tenant, snapshot_id)
    restored: list[SaveOutcome] = []
    sources = [(thread, all_numbers(connection, thread.number)) for _, thread in locked]
    captured = copies.prepare(connection, sources, supplied, with_ancestors=True)
    names = "".join(f"{value:016x}" for value in bits)
    for number, ((member, thread), member_checkpoints) in enumerate(
        zip(locked, captured, strict=True)
    ):
        origin = live_thread(connection, tenant, member.thread_id)
        hidden = member.unsearchable or (origin is not None and origin.unsearchable)
        name = f"{names}-{number}"
        log = stored.begin(batch, tenant, name, thread.family, member.agent_id, unsearchable=hidden)
        place, lineage = ("", member.checkpoint_id), Lineage(forked_from=str(member.key))
        restored.append(stored.fill(batch, log, member_checkpoints, place, lineage))
        # Work that was done since the capture must not be repeated either.
        effects = [carried_effects.find(connection, thread, None)]
        if origin is not None and stored.numbers_of(connection, origin.number, [place]):
            effects.append(carried_effects.find(connection, origin, place))
        carried_effects.carry(batch, log, effects, supplied)
    return tuple(restored)
