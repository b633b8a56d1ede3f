"""Snapshots in a journal: captured threads, each kept in a thread of the server's own.

What a snapshot captured is copied, so that pruning or deleting its threads takes nothing
from it; copies of what is certified cost rows, not content. See `domain.snapshots` for
where it stands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection, bindparam, func, select

from ..domain import snapshots as kept
from ..domain.checkpoint_ids import mint_checkpoint_id
from ..domain.digests import value_digest
from ..domain.errors import Reason, Refusal
from ..domain.limits import KIB, LIMITS
from ..domain.lineage import Snapshot
from ..domain.metadata import matches, parse_metadata
from ..domain.model import Channel, CheckpointKey, Saved, State, View
from ..domain.state import encode_state
from . import answers, closures, grafts, pending, reads, removals, rollbacks, threads
from .adoptions import decode_saved, encode_saved
from .closures import Part
from .journal import SqlJournal
from .lineage_api import SnapshotDraft, SnapshotQuery, Supplied
from .schema import checkpoints
from .schema import threads as threads_table
from .statements import EMPTY, Statement, of_checkpoint, of_thread, parameters_of
from .threads import ThreadRow

CREATE, RESTORE = "CreateSnapshot", "RestoreSnapshot"

_KEEPERS = (
    threads_table.c.tenant == bindparam("of_tenant"),
    threads_table.c.thread_id >= kept.THREADS,
    threads_table.c.thread_id < bindparam("below"),
)
_NEWEST = Statement(select(func.max(threads_table.c.thread_id)).where(*_KEEPERS))
_BELOW = Statement(
    select(threads_table.c.thread_id)
    .where(*_KEEPERS, threads_table.c.deleted.is_(False))
    .order_by(threads_table.c.thread_id.desc())
)
_METADATA = Statement(select(checkpoints.c.metadata).where(of_checkpoint(checkpoints)))
_PARTS = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id, checkpoints.c.hidden)
    .where(of_thread(checkpoints), checkpoints.c.checkpoint_ns != EMPTY)
    .order_by(checkpoints.c.hidden, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
)
_AT_ONCE = 64
_MEMBER_BYTES = 16 * KIB
"""What a member counts as in a batch of the writer, so that few large snapshots share one."""


class Snapshots:
    """Snapshots in a `SqlJournal`; satisfies `lineage_api.SnapshotJournal`."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal

    async def create_snapshot(self, tenant: str, draft: SnapshotDraft, request_id: str) -> Snapshot:
        """Capture threads; see `lineage_api.SnapshotJournal.create_snapshot`."""
        now_us, entropy = self._journal.now_us(), self._journal.random_bits()
        asked = (*draft.thread_ids, draft.session_id, draft.hostname, draft.working_directory)
        fingerprint = answers.fingerprint_of(CREATE, *asked, draft.metadata.hex())

        def work(connection: Connection) -> Snapshot:
            answered = answers.first_answer(connection, tenant, request_id, CREATE, fingerprint)
            if answered is not None:
                known = _load(connection, tenant, answered.decode())
                if known is None:
                    raise not_found(answered.decode())
                return known[0]
            created = _create(connection, tenant, draft, now_us, entropy)
            answers.keep_answer(
                connection,
                tenant,
                request_id,
                CREATE,
                fingerprint,
                created.snapshot_id.encode(),
                now_us,
            )
            return created

        size = len(draft.metadata) + len(draft.thread_ids) * _MEMBER_BYTES
        return await self._journal.transact(work, size_bytes=size)

    async def snapshot(self, tenant: str, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot; see `lineage_api.SnapshotJournal.snapshot`."""
        found = await self._journal.query(lambda connection: _load(connection, tenant, snapshot_id))
        return found[0] if found else None

    async def list_snapshots(
        self, tenant: str, query: SnapshotQuery, below: str, limit: int
    ) -> list[Snapshot]:
        """Return snapshots; see `lineage_api.SnapshotJournal.list_snapshots`."""
        return await self._journal.query(
            lambda connection: _list(connection, tenant, query, below, limit)
        )

    async def restore_snapshot(
        self, tenant: str, snapshot_id: str, *, rollback: bool, request_id: str, supplied: Supplied
    ) -> tuple[Saved, ...]:
        """Restore the members; see `lineage_api.SnapshotJournal.restore_snapshot`."""
        restore = _Restore(
            tenant,
            snapshot_id,
            self._journal.now_us(),
            self._journal.random_bits(),
            self._journal.random_bits(),
        )
        fingerprint = answers.fingerprint_of(RESTORE, snapshot_id, str(rollback))

        def work(connection: Connection) -> tuple[Saved, ...]:
            answered = answers.first_answer(connection, tenant, request_id, RESTORE, fingerprint)
            if answered is not None:
                return tuple(decode_saved(one.encode()) for one in json.loads(answered))
            restored = (
                restore.roll_back(connection, supplied)
                if rollback
                else restore.as_new_threads(connection)
            )
            answer = json.dumps([encode_saved(one).decode() for one in restored])
            answers.keep_answer(
                connection,
                tenant,
                request_id,
                RESTORE,
                fingerprint,
                answer.encode(),
                restore.now_us,
            )
            return restored

        size = sum(len(value.data) for value in supplied.values())
        size += LIMITS.max_snapshot_members * _MEMBER_BYTES  # nobody has counted them yet
        return await self._journal.transact(work, size_bytes=size)

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> bool:
        """Delete a snapshot; see `lineage_api.SnapshotJournal.delete_snapshot`."""
        now_us = self._journal.now_us()
        thread_id = kept.thread_of(snapshot_id)
        removed = await self._journal.transact(
            lambda connection: removals.delete_thread(connection, tenant, thread_id, now_us)
        )
        return removed.deleted > 0


def not_found(snapshot_id: str) -> Refusal:
    """Return the refusal of a snapshot that does not exist."""
    return Refusal(Reason.SNAPSHOT_NOT_FOUND, snapshot_id=snapshot_id)


def thread_not_found(thread_id: str, advice: str = "") -> Refusal:
    """Return the refusal of a thread that does not exist, or has no root checkpoint."""
    return Refusal(Reason.THREAD_NOT_FOUND, advice=advice, thread_id=thread_id)


# --- capturing -------------------------------------------------------------------------


def _create(
    connection: Connection, tenant: str, draft: SnapshotDraft, now_us: int, entropy: int
) -> Snapshot:
    row = _NEWEST.run(connection, of_tenant=tenant, below=kept.THREADS_END).fetchone()
    newest = (row[0] or "" if row else "").removeprefix(kept.THREADS)
    snapshot_id = mint_checkpoint_id(now_us, entropy, newest)
    thread = threads.new_thread(tenant, kept.thread_of(snapshot_id), now_us)
    members: list[kept.Member] = []
    for number, thread_id in enumerate(draft.thread_ids):
        member = _head(connection, tenant, thread_id)
        parts = closures.parts(connection, tenant, member.key)
        grafts.copy_parts(
            connection,
            thread,
            parts,
            now_us,
            origins={},
            place=partial(kept.inside, number),
        )
        members.append(member)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        session_id=draft.session_id,
        hostname=draft.hostname,
        working_directory=draft.working_directory,
        metadata=draft.metadata,
        members=tuple(member.key for member in members),
        created_us=now_us,
    )
    _describe(connection, thread, snapshot, members, now_us)
    thread.head_id = snapshot_id
    threads.store(connection, thread, now_us)
    return snapshot


def _head(connection: Connection, tenant: str, thread_id: str) -> kept.Member:
    """Return the latest root checkpoint of a thread, as a member."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None or thread.deleted or not thread.head_id:
        raise thread_not_found(thread_id)
    key = CheckpointKey(thread_id, "", thread.head_id)
    return kept.Member(key, thread.agent_id, bool(thread.unsearchable))


def _describe(
    connection: Connection,
    thread: ThreadRow,
    snapshot: Snapshot,
    members: Sequence[kept.Member],
    now_us: int,
) -> None:
    record = kept.encode(snapshot, members)
    channels = tuple(
        Channel(name, 1, value_digest(value), len(value.data), value)
        for name, value in record.values
    )
    count = len(snapshot.members)
    grafts.insert_checkpoint(
        connection,
        thread,
        grafts.Graft(
            key=CheckpointKey(thread.thread_id, "", snapshot.snapshot_id),
            parent_id="",
            state=encode_state(record.frame, channels),
            channels=channels,
            metadata=parse_metadata(record.metadata, "metadata_json"),
            summary=f"Snapshot of {count} thread{'s' if count != 1 else ''}.",
        ),
        now_us,
    )


# --- reading ---------------------------------------------------------------------------


def _load(
    connection: Connection, tenant: str, snapshot_id: str
) -> tuple[Snapshot, tuple[kept.Member, ...]] | None:
    key = CheckpointKey(kept.thread_of(snapshot_id), "", snapshot_id)
    found = reads.load(connection, tenant, key, View.FULL)
    if found is None:
        return None
    values = {
        channel.name: channel.value for channel in _state(found.state).channels if channel.value
    }
    return kept.decode(snapshot_id, found.entry.created_us, found.entry.metadata, values)


def _state(state: State | None) -> State:
    return state or State(b"", ())


def _list(
    connection: Connection, tenant: str, query: SnapshotQuery, below: str, limit: int
) -> list[Snapshot]:
    wanted: dict[str, object] = {
        name: sought
        for name, sought in (
            ("session_id", query.session_id),
            ("hostname", query.hostname),
            ("working_directory", query.working_directory),
        )
        if sought
    }
    end = kept.thread_of(below) if below else kept.THREADS_END
    rows = _BELOW.run(connection, of_tenant=tenant, below=end)
    found: list[Snapshot] = []
    while len(found) < limit and (some := rows.fetchmany(_AT_ONCE)):
        for (thread_id,) in some:
            snapshot_id = thread_id.removeprefix(kept.THREADS)
            if len(found) < limit and _matches(connection, tenant, snapshot_id, wanted):
                loaded = _load(connection, tenant, snapshot_id)
                found += [loaded[0]] if loaded else []
    return found


def _matches(
    connection: Connection, tenant: str, snapshot_id: str, wanted: dict[str, object]
) -> bool:
    key = CheckpointKey(kept.thread_of(snapshot_id), "", snapshot_id)
    row = _METADATA.run(connection, **parameters_of(tenant, key)).fetchone()
    return row is not None and matches(row[0], wanted)


# --- restoring -------------------------------------------------------------------------


class _Restore:
    """One restoration, inside a transaction."""

    def __init__(
        self, tenant: str, snapshot_id: str, now_us: int, entropy: int, more_entropy: int
    ) -> None:
        self._tenant = tenant
        self._snapshot_id = snapshot_id
        self.now_us = now_us
        self._entropy = entropy
        self._names = f"{entropy:016x}{more_entropy:016x}"

    def as_new_threads(self, connection: Connection) -> tuple[Saved, ...]:
        """Make a thread of each member; names are made up.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`.
        """
        members, parts = self._read(connection)
        return tuple(
            self._as_new_thread(connection, number, member, parts[number])
            for number, member in enumerate(members)
        )

    def roll_back(self, connection: Connection, supplied: Supplied) -> tuple[Saved, ...]:
        """Roll each member's own thread back to it.

        What was pruned since is taken back out of readers' sight first.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`.
            ValuesEvicted: It needs values that are not here.
        """
        members, parts = self._read(connection)
        return tuple(
            self._roll_back(connection, number, member, parts[number], supplied)
            for number, member in enumerate(members)
        )

    def _read(self, connection: Connection) -> tuple[tuple[kept.Member, ...], Sequence[list[Part]]]:
        found = _load(connection, self._tenant, self._snapshot_id)
        if found is None:
            raise not_found(self._snapshot_id)
        members = found[1]
        parts: list[list[Part]] = [[] for _ in members]
        thread_id = kept.thread_of(self._snapshot_id)
        rows = _PARTS.run(connection, of_tenant=self._tenant, of_thread=thread_id).fetchall()
        for namespace, checkpoint_id, hidden in rows:
            number, _ = kept.outside(namespace)
            key = CheckpointKey(thread_id, namespace, checkpoint_id)
            parts[number].append(Part(key, bool(hidden)))
        return members, parts

    def _as_new_thread(
        self, connection: Connection, number: int, member: kept.Member, parts: list[Part]
    ) -> Saved:
        thread = grafts.begin(connection, self._tenant, f"{self._names}-{number}", self.now_us)
        thread.agent_id = member.agent_id
        thread.unsearchable = member.unsearchable or threads.is_unsearchable(
            connection, self._tenant, member.key.thread_id
        )
        origins = {
            part.key: str(member.key)
            for part in parts
            if part.key.checkpoint_ns == kept.inside(number, "")
            and part.key.checkpoint_id == member.key.checkpoint_id
        }
        grafts.copy_parts(
            connection, thread, parts, self.now_us, origins=origins, place=_place_outside
        )
        threads.review_head(connection, thread)
        threads.store(connection, thread, self.now_us)
        key = CheckpointKey(thread.thread_id, "", member.key.checkpoint_id)
        return Saved(key, 1, thread.seq, thread.incarnation, alone=len(parts) == 1)

    def _roll_back(
        self,
        connection: Connection,
        number: int,
        member: kept.Member,
        parts: list[Part],
        supplied: Supplied,
    ) -> Saved:
        thread_id = member.key.thread_id
        thread = threads.lock(connection, self._tenant, thread_id)
        if thread is None or thread.deleted:
            raise thread_not_found(thread_id, "restore the snapshot as new threads instead")
        self._take_back(connection, thread, parts)
        target = self._captured(connection, number, member)
        saved = rollbacks.roll_back(
            connection, thread, target, supplied, self.now_us, self._entropy
        )
        threads.store(connection, thread, self.now_us)
        return saved

    def _take_back(self, connection: Connection, thread: ThreadRow, parts: list[Part]) -> None:
        """Put what the thread has lost of a member back into it, out of readers' sight."""
        lost = []
        for part in parts:
            namespace = _place_outside(part.key.checkpoint_ns)
            key = CheckpointKey(thread.thread_id, namespace, part.key.checkpoint_id)
            if not threads.exists(connection, self._tenant, key):
                lost.append(Part(part.key, hidden=True))
                # What was written since it was pruned is no part of what was captured.
                pending.drop(connection, self._tenant, key)
        grafts.copy_parts(connection, thread, lost, self.now_us, origins={}, place=_place_outside)

    def _captured(
        self, connection: Connection, number: int, member: kept.Member
    ) -> rollbacks.Source:
        """Return a member as it was captured: its thread may have replaced it since."""
        thread_id, checkpoint_id = kept.thread_of(self._snapshot_id), member.key.checkpoint_id
        at = CheckpointKey(thread_id, kept.inside(number, ""), checkpoint_id)
        captured = rollbacks.source(connection, self._tenant, at)
        own = rollbacks.source(connection, self._tenant, member.key)
        if captured is None or own is None:
            raise LookupError(f"snapshot {self._snapshot_id} lacks checkpoint {member.key}")
        return replace(captured, key=member.key, hidden=own.hidden)


def _place_outside(checkpoint_ns: str) -> str:
    return kept.outside(checkpoint_ns)[1]
