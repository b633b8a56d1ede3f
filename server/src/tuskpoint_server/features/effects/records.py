"""Records of effects in the writer: found, stored and removed.

The effects of a thread are checkpoints of a reserved thread (`core.effects.effects_of`), whose
agent names the incarnation that the effects belong to. The deletion of a thread deletes this
thread, too (`journal.removal.deletion`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection

from ...archive.formats.segments import SegmentValue
from ...archive.rows import stored
from ...archive.rows.stored import StoredCheckpoint, live_thread
from ...core.effects.records import (
    RESULT,
    STATE,
    EffectRecord,
    EffectsMode,
    decode_record,
    effect_id,
    effects_of,
    marker_of,
    mode_in,
)
from ...core.errors import journal_damaged
from ...core.model import Channel
from ...core.state import encode_names, encode_state
from ...core.threads import EventKind
from ...journal.database.thread_rows import (
    CachedCheckpoint,
    ThreadCacheEntry,
    ThreadRow,
    greatest_id,
)
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.removal import deletion
from ...journal.sql.statements import in_lists

LAYOUT, WHAT = 4, "effects"
"""Servers of earlier layouts would delete, fork and hand off threads without their effects."""


class KeptEffect(NamedTuple):
    """A stored record of an effect."""

    record: EffectRecord
    checkpoint: CachedCheckpoint


class EffectThread:
    """The effects of a live thread, in the writer.

    Attributes:
        mode: What the thread does with its effects.
    """

    def __init__(self, batch: UnitOfWork, owner: ThreadRow) -> None:
        self._batch = batch
        self._owner = owner
        log = batch.find(owner.tenant, effects_of(owner.thread_id))
        self._log = log
        mode = None
        if log is not None and not log.row.deleted:
            mode = mode_in(log.row.agent_id, owner.incarnation)
        self._is_current = mode is not None
        self.mode = mode or EffectsMode.COPY

    @property
    def count(self) -> int:
        """Number of effects."""
        current = self._log is not None and self._is_current
        return self._log.row.checkpoint_count if self._log is not None and current else 0

    def find(self, key: str) -> KeptEffect | None:
        """Return the effect with a key, or `None`."""
        if self._log is None or not self._is_current:
            return None
        checkpoint = self._batch.checkpoint(self._log, ("", effect_id(key)))
        if checkpoint is None:
            return None
        return KeptEffect(decode(self._log.row.thread_id, checkpoint), checkpoint)

    def all(self) -> list[EffectRecord]:
        """Return all effects."""
        if self._log is None or not self._is_current:
            return []
        self._batch.write_out()
        connection, number = self._batch.connection, self._log.row.number
        return [record for _, record in read_all(connection, number, self._log.row.thread_id)]

    def put(
        self,
        record: EffectRecord,
        before: KeptEffect | None,
        state: bytes | None = None,
        value: SegmentValue | None = None,
    ) -> None:
        """Store a record as a change, with its result: a new value, or a state that has one."""
        batch, log = self._batch, self._begun()
        if state is None:
            state = before.checkpoint.state if before is not None else STATE
        if value is not None:
            state = encode_state(STATE, [Channel(RESULT, 1, value.digest, value.size)])
        metadata, place = record.encode(), ("", effect_id(record.key))
        size = len(metadata) + len(state) + (len(value.data) if value is not None else 0)
        seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size)
        if log.row.settings_seq == 0:
            log.row.settings_seq = seq
        if value is not None:
            batch.put_content(log, seq, value)
        fields = (seq, "", state, metadata, "", "", encode_names(()), "", "", batch.now_us)
        checkpoint = CachedCheckpoint(*fields)
        old = before.checkpoint if before is not None else None
        batch.put_checkpoint(log, place, checkpoint, before=old)
        log.add(place, checkpoint)
        log.row.checkpoint_count += old is None
        log.row.head_id = max(log.row.head_id, place[1])

    def drop(self, records: list[EffectRecord]) -> None:
        """Remove effects; the change must have its own savepoint."""
        if self._log is None or not records:
            return
        batch, log = self._batch, self._log
        batch.write_out()
        deletion.drop(batch, log, [("", effect_id(record.key)) for record in records])
        log.row.checkpoint_count -= len(records)
        log.row.head_id = greatest_id(batch.connection, log.row.number, "")
        batch.store(log)
        batch.write_out()
        batch.logs.forget(log.row.tenant, log.row.thread_id)

    def _begun(self) -> ThreadCacheEntry:
        """Return the thread of the effects; start it if it does not exist."""
        batch, owner, log = self._batch, self._owner, self._log
        if log is not None and self._is_current:
            return log
        if log is None:
            log = batch.begin(owner.tenant, effects_of(owner.thread_id))
        else:
            # A recovery may bring back the effects of an ended incarnation.
            if not log.row.deleted:
                batch.write_out()
                deletion.end_incarnation(batch, log)
            log.row.begin_next(batch.new_family(), batch.now_us)
            log.row.settings_seq = 0
        log.row.agent_id = marker_of(owner.incarnation, EffectsMode.COPY)
        log.row.unsearchable = True
        self._log, self._is_current = log, True
        return log


def decode(name: str, checkpoint: CachedCheckpoint | StoredCheckpoint) -> EffectRecord:
    """Return the record in a checkpoint of a thread of effects.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    known = checkpoint.known if isinstance(checkpoint, StoredCheckpoint) else checkpoint
    try:
        return decode_record(known.metadata)
    except ValueError as error:
        raise journal_damaged(name, problem=f"the record of an effect: {error}") from error


def read_all(connection: Connection, thread: int, name: str) -> Iterator[tuple[int, EffectRecord]]:
    """Yield the row numbers and records of a thread of effects, oldest change first."""
    for chunk in in_lists(stored.all_numbers(connection, thread)):
        for number, checkpoint in zip(chunk, stored.read(connection, chunk), strict=True):
            yield number, decode(name, checkpoint)


def thread_of_effects(connection: Connection, owner: ThreadRow) -> ThreadRow | None:
    """Return the row of the thread that keeps the effects of a live thread; `None`: no effects.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    row = live_thread(connection, owner.tenant, effects_of(owner.thread_id))
    if row is None or mode_in(row.agent_id, owner.incarnation) is None:
        return None
    return row
