"""Saves of checkpoints, pending writes and labels in the writer.

Each change is decided before it changes the unit of work: a refused change leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from operator import attrgetter
from typing import NamedTuple

from ...core.errors import (
    Reason,
    Refusal,
    checkpoint_missing,
    checkpoint_not_found,
    values_missing,
)
from ...core.limits import LIMITS
from ...core.lineage import mint_checkpoint_id
from ...core.model import CheckpointKey, SaveOutcome, Value
from ...core.state import ChannelRef, channel_ref
from ...core.threads import ERROR, INTERRUPT, RESUME, EventKind, ThreadState
from ...core.webhooks import WebhookEvent
from ...journal.database.heads import HeadContent
from ...journal.database.pending_writes import PendingWrites, StoredWrite
from ...journal.database.thread_rows import CachedCheckpoint, Place, ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.values import contents, vectors
from ..leases.checking import check_lease
from .continuing import continue_latest
from .incoming import IncomingCheckpoint
from .listed_threads import switch_search
from .value_groups import PreparedValue

_KINDS = {str: "text", int: "integer", float: "number"}  # kinds of versions
_saved = attrgetter("parent_id", "state", "metadata", "delta_channels", "summary")


class _MergedWrites(NamedTuple):
    """The writes of a checkpoint after a save: the stored writes, and the new writes."""

    stored: PendingWrites
    new: dict[tuple[str, int], StoredWrite]
    size: int  # bytes of new writes
    last_seq: int  # greatest number of sent writes that are already stored


def save_checkpoint(
    batch: UnitOfWork,
    tenant: str,
    sent: IncomingCheckpoint,
    entropy: int,
    late_save_grace_us: int = 0,
) -> SaveOutcome:
    """Insert or replace a checkpoint; see `store.Checkpoints.save_checkpoint`."""
    thread_id = sent.key.thread_id
    log = batch.find(tenant, thread_id) or batch.begin(tenant, thread_id)
    sent_id = sent.key.checkpoint_id
    if sent.continues:
        sent = continue_latest(batch, log, sent)
    place = (sent.key.checkpoint_ns, sent.key.checkpoint_id)
    if not place[1]:
        floor_id = batch.greatest(log, place[0])
        place = (place[0], mint_checkpoint_id(batch.now_us, entropy, floor_id))
    stored = batch.checkpoint(log, place)
    parent = batch.checkpoint(log, (place[0], sent.parent_id)) if sent.parent_id else None
    if stored is None and log.row.deleted_through and sent_id:
        _refuse_repeat(batch, log, sent, sent_id, late_save_grace_us)
    begins = stored is None and _begins_next(batch, log, sent, parent_exists=parent is not None)
    channels, new_values = _resolve(batch, log, sent, parent, begins=begins)
    checkpoint = _cached_checkpoint(batch, sent, stored, channels)
    pending = _merge_writes(batch, log, place, stored, sent.writes)
    replaces = stored is None or _saved(stored) != _saved(checkpoint)
    changed = stored is None or replaces or bool(pending.new) or stored.label != checkpoint.label
    if sent.expected_head is not None and changed:
        check_head(batch, log, place[0], sent.expected_head)
    latest = batch.greatest(log, place[0])
    later_id = latest if stored is None and place[1] < latest else ""
    searchable = sent.searchable
    if searchable is None:
        searchable = begins or not log.row.unsearchable
    keeps_vector = bool(sent.vector) and searchable
    if keeps_vector:
        vectors.check(batch.connection, tenant, len(sent.vector))
    is_fenced = log.row.lease is not None or sent.lease_id
    if is_fenced and (changed or sent.agent_id not in ("", log.row.agent_id)):
        check_lease(batch, log, sent.lease_id)
    # Nothing is refused from here on.
    if begins:
        log.row.begin_next(batch.new_family(), batch.now_us)
    if sent.searchable is not None:
        switch_search(batch, log, sent.searchable)  # a separate change, before the save
    for name, (kind, content) in sent.contents.items():
        _bring(batch, log, sent.channels[name].digest, Value(kind, content.value))
    row, key = log.row, CheckpointKey(thread_id, *place)
    if keeps_vector:
        vectors.store(batch.connection, tenant, row.number, place, sent.vector)
    parent_id = sent.parent_id if sent.continues else ""
    names_agent = sent.agent_id not in ("", row.agent_id)
    if not changed and stored is not None and not names_agent:
        # A wait for certification includes the new setting.
        setting = row.settings_seq if sent.searchable is not None else 0
        seq = max(stored.seq, pending.last_seq, setting)
        return SaveOutcome(key, seq, row.incarnation, parent_id=parent_id)
    own_bytes = len(checkpoint.state) + len(checkpoint.metadata) if replaces else 0
    own_bytes += sum(content.size_bytes for _, content in new_values.values())
    size = own_bytes + pending.size
    seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size, indexed=True)
    if names_agent:
        row.agent_id = sent.agent_id
        row.settings_seq = seq
    checkpoint.seq = seq
    _store(
        batch, log, place, checkpoint, new_values, stored, orphan=stored is None and parent is None
    )
    if stored is None:
        row.checkpoint_count += 1
    elif checkpoint.state != stored.state:
        # Values of the old state count as values of a removed checkpoint.
        row.removed_count += 1
        row.removed_bytes = min(row.added_bytes, row.removed_bytes + own_bytes)
    claims = stored is None and pending.stored.count > 0
    _store_writes(batch, log, place, pending, seq, early=False)
    if claims:
        early_writes = [write for write in pending.stored.all() if write.early_us is not None]
        for write in batch.renumber_writes(log, place, early_writes, seq):
            pending.stored.put(write)
    log.add(place, checkpoint)
    if place[0] == "" and place[1] >= row.head_id:
        log.set_head(place[1], pending.stored)
        told = pending.stored.all() if claims else pending.new.values()
        _announce(batch, log, place, told)
    return SaveOutcome(key, seq, row.incarnation, parent_id=parent_id, latest=later_id)


def save_writes(
    batch: UnitOfWork,
    tenant: str,
    key: CheckpointKey,
    writes: Sequence[StoredWrite],
    *,
    early: bool,
    lease_id: str = "",
) -> SaveOutcome:
    """Insert pending writes; see `store.Checkpoints.save_writes`."""
    log = batch.find(tenant, key.thread_id) or batch.begin(tenant, key.thread_id)
    row, place = log.row, (key.checkpoint_ns, key.checkpoint_id)
    checkpoint = batch.checkpoint(log, place)
    if checkpoint is None and not early:
        raise checkpoint_missing(*astuple(key))
    # Writes may overtake the save that begins the next incarnation. If it never comes, they
    # expire unseen.
    if checkpoint is None and place[1] <= row.deleted_through:
        raise row.refuse_deleted()
    pending = _merge_writes(batch, log, place, checkpoint, writes)
    if not pending.new:
        seq = max(checkpoint.seq if checkpoint else 0, pending.last_seq)
        return SaveOutcome(key, seq, row.incarnation, early=checkpoint is None)
    if row.lease is not None or lease_id:
        check_lease(batch, log, lease_id)
    # Search finds questions; the save of an early write's checkpoint indexes them.
    asks = checkpoint is not None and any(
        write.channel == INTERRUPT for write in pending.new.values()
    )
    seq = batch.change(log, EventKind.WRITES_SAVED, place, size_bytes=pending.size, indexed=asks)
    _store_writes(batch, log, place, pending, seq, early=checkpoint is None)
    if checkpoint is None:
        log.early = True
    elif place == ("", row.head_id):
        log.set_head(row.head_id, pending.stored)
        _announce(batch, log, place, pending.new.values())
    return SaveOutcome(key, seq, row.incarnation, early=checkpoint is None)


def set_label(batch: UnitOfWork, tenant: str, key: CheckpointKey, label: str) -> SaveOutcome:
    """Set or clear a label; see `store.Checkpoints.set_label`."""
    log = batch.find(tenant, key.thread_id)
    place = (key.checkpoint_ns, key.checkpoint_id)
    if log is not None and not key.checkpoint_id:
        place = (key.checkpoint_ns, batch.greatest(log, key.checkpoint_ns))
    checkpoint = batch.checkpoint(log, place) if log is not None and place[1] else None
    if log is None or checkpoint is None:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    full_key = CheckpointKey(key.thread_id, *place)
    if checkpoint.label == label:
        return SaveOutcome(full_key, checkpoint.seq, log.row.incarnation)
    seq = batch.change(log, EventKind.LABEL_SET, place, size_bytes=len(label), indexed=True)
    checkpoint.label, checkpoint.seq = label, seq
    batch.amend_checkpoint(log, place, checkpoint)
    return SaveOutcome(full_key, seq, log.row.incarnation)


def check_head(batch: UnitOfWork, log: ThreadCacheEntry, checkpoint_ns: str, expected: str) -> None:
    """Refuse (`HEAD_MOVED`) a change of a namespace whose latest checkpoint is unexpected.

    Identical saves skip this check, because they are retries of a save whose answer was lost.
    """
    head = batch.greatest(log, checkpoint_ns)
    if head != expected:
        raise Refusal(
            Reason.HEAD_MOVED,
            thread_id=log.row.thread_id,
            checkpoint_ns=checkpoint_ns,
            head=head,
            expected=expected,
        )


def _announce(
    batch: UnitOfWork, log: ThreadCacheEntry, place: Place, writes: Iterable[StoredWrite]
) -> None:
    """Tell webhooks that new writes made the thread wait for a person, or fail."""
    row = log.row
    if row.state == ThreadState.IDLE or not batch.outbox.subscriptions.webhooks:
        return
    channels = {write.channel for write in writes}
    if row.state == ThreadState.INTERRUPTED and INTERRUPT in channels:
        batch.outbox.add(row, WebhookEvent.THREAD_WAITING, batch.now_us, place)
    elif row.state == ThreadState.FAILED and ERROR in channels:
        batch.outbox.add(row, WebhookEvent.THREAD_FAILED, batch.now_us, place)


def _refuse_repeat(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    sent: IncomingCheckpoint,
    checkpoint_id: str,
    grace_us: int,
) -> None:
    """Refuse a save that repeats a checkpoint of an ended incarnation.

    The save would restore a deleted thread, or enter the thread that started since. Within the
    grace period after a deletion such a save may start the next incarnation.
    """
    row = log.row
    if sent.restarts or (sent.parent_id and not sent.continues):
        return  # the caller, or the parent, decides
    if row.deleted and batch.now_us - row.updated_us < grace_us:
        return
    place = (sent.key.checkpoint_ns, checkpoint_id)
    if batch.is_of_ended(log, place, raised=sent.raises_id):
        raise row.refuse_deleted()


def _begins_next(
    batch: UnitOfWork, log: ThreadCacheEntry, sent: IncomingCheckpoint, *, parent_exists: bool
) -> bool:
    """Decide whether a new checkpoint may be saved; return whether it starts an incarnation.

    After a deletion only a checkpoint that is independent of the ended incarnation is accepted: it
    has no parent, and belongs to no root checkpoint of that incarnation.
    """
    row, through = log.row, log.row.deleted_through
    root_id = sent.metadata.root_id if sent.key.checkpoint_ns else ""
    old_root = bool(root_id) and root_id <= through
    if row.deleted:
        if sent.parent_id or old_root:
            raise row.refuse_deleted()
        return True
    if sent.parent_id and not parent_exists and sent.parent_id <= through:
        raise row.refuse_deleted()
    if old_root and batch.checkpoint(log, ("", root_id)) is None:
        raise row.refuse_deleted()
    return False


def _cached_checkpoint(
    batch: UnitOfWork,
    sent: IncomingCheckpoint,
    stored: CachedCheckpoint | None,
    channels: dict[str, ChannelRef],
) -> CachedCheckpoint:
    """Return the checkpoint to store, without its number."""
    state = sent.frame + b"".join(channel.encoded for channel in channels.values())
    if len(state) > LIMITS.max_state:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"a state of {len(state)} bytes without its content",
            limit="max_state_bytes",
            maximum=LIMITS.max_state,
        )
    return CachedCheckpoint(
        seq=0,
        parent_id=sent.parent_id,
        state=state,
        metadata=sent.metadata.raw,
        run_id=sent.metadata.run_id,
        root_id=sent.metadata.root_id,
        delta_channels=sent.delta_channels,
        label=sent.label or (stored.label if stored else ""),
        summary=sent.summary or (stored.summary if stored else ""),
        created_us=stored.created_us if stored else batch.now_us,
        decoded=channels,
    )


def _resolve(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    sent: IncomingCheckpoint,
    parent: CachedCheckpoint | None,
    *,
    begins: bool,
) -> tuple[dict[str, ChannelRef], dict[str, tuple[str, PreparedValue]]]:
    """Return the channels by name, and the values to store, with their types.

    A save that `begins` an incarnation also starts a family, which has no values.

    Raises:
        Refusal: `VALUES_MISSING`, `VERSION_TYPE_CHANGED`.
    """
    inherited = parent.channels if parent is not None else {}
    # The values of a head that was saved are here; one that is a copy, or became the head
    # because later ones were removed, may name evicted ones, like any older parent.
    checkpoint_ns = sent.key.checkpoint_ns
    head = batch.greatest(log, checkpoint_ns)
    parent_is_head = checkpoint_ns in log.whole and sent.parent_id == head
    present = (
        None if parent_is_head or begins else _digests_here(batch, log, sent.channels, inherited)
    )
    channels: dict[str, ChannelRef] = {}
    new_values: dict[str, tuple[str, PreparedValue]] = {}
    missing_names: list[str] = []
    for name, channel in sent.channels.items():
        base = inherited.get(name)
        base_version, version = base.version if base is not None else None, channel.version
        if (
            base_version is not None
            and version is not None
            and type(base_version) is not type(version)
        ):
            parent_kind, kind = _KINDS[type(base_version)], _KINDS[type(version)]
            raise Refusal(Reason.VERSION_TYPE_CHANGED, channel=name, parent=parent_kind, sent=kind)
        ref: ChannelRef | None = None
        if channel.encoded:
            ref = channel
            is_unchanged = parent_is_head and base is not None and base.digest == channel.digest
            if name in sent.contents and not is_unchanged:
                new_values[name] = sent.contents[name]
        elif begins:
            pass
        elif channel.digest is not None:
            value = None if log.new else batch.value(log, channel.digest)
            if value is not None:
                ref = channel_ref(name, channel.version, channel.digest, value[0])
        elif base is not None and base.version == channel.version:
            ref = base if present is None or base.digest is None or base.digest in present else None
        if ref is None:
            missing_names.append(name)
        else:
            channels[name] = ref
    if missing_names:
        raise values_missing(missing_names)
    return channels, new_values


def _digests_here(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    sent: Mapping[str, ChannelRef],
    inherited: Mapping[str, ChannelRef],
) -> set[bytes]:
    """Return the digests of inherited values whose data is in the journal."""
    names = (
        name for name, channel in sent.items() if not channel.encoded and channel.digest is None
    )
    inherited_digests = (inherited[name].digest for name in names if name in inherited)
    digests = {digest for digest in inherited_digests if digest is not None}
    pending = {digest for digest in digests if batch.brings(log, digest)}
    return pending | contents.present_digests(batch.connection, log.row.family, digests - pending)


def _merge_writes(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    place: Place,
    checkpoint: CachedCheckpoint | None,
    writes: Sequence[StoredWrite],
) -> _MergedWrites:
    """Decide which writes are stored: at `idx` 0 and above the first write wins, below 0 the last.

    A question with unchanged text is stored again if it arrives with the used answer: the order of
    both shows that the question is open.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if the checkpoint would have more than a read can return.
    """
    stored = batch.pending(log, place, checkpoint)
    new_writes: dict[tuple[str, int], StoredWrite] = {}
    questions: dict[tuple[str, int], StoredWrite] = {}
    last_seq = 0
    for write in writes:
        slot = (write.task_id, write.idx)
        if write.idx >= 0 and slot in new_writes:
            continue
        stored_write = stored.get(slot)
        if stored_write is not None and (
            write.idx >= 0
            or (stored_write.digest, stored_write.channel, stored_write.task_path)
            == (write.digest, write.channel, write.task_path)
        ):
            last_seq = max(last_seq, stored_write.seq)
            new_writes.pop(slot, None)  # the last of equal slots in one call stays
            if write.idx < 0 and write.channel == INTERRUPT:
                questions[slot] = write
            continue
        questions.pop(slot, None)
        new_writes[slot] = write
    if questions:
        tasks = {task_id for (task_id, _), write in new_writes.items() if write.channel == RESUME}
        new_writes |= {slot: write for slot, write in questions.items() if slot[0] in tasks}
    name_bytes = stored.name_bytes
    for slot, write in new_writes.items():
        replaced = stored.get(slot)
        name_bytes += write.name_bytes - (replaced.name_bytes if replaced is not None else 0)
    if new_writes and name_bytes > LIMITS.max_write_names:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"writes with {name_bytes} bytes of names on one checkpoint",
            limit="max_write_names_bytes",
            maximum=LIMITS.max_write_names,
        )
    size = sum([len(write.data or b"") for write in new_writes.values()])
    return _MergedWrites(stored, new_writes, size, last_seq)


def _bring(
    batch: UnitOfWork, log: ThreadCacheEntry, digest: bytes | None, value: HeadContent
) -> None:
    """Keep a value of the request in memory, where loads find it."""
    if digest:
        batch.logs.heads.bring((log.row.tenant, log.row.thread_id), digest, value)


def _store(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    place: Place,
    checkpoint: CachedCheckpoint,
    new_values: Mapping[str, tuple[str, PreparedValue]],
    previous: CachedCheckpoint | None,
    *,
    orphan: bool,
) -> None:
    """Store a checkpoint and new values; `orphan`: a new checkpoint whose parent is not stored."""
    for name, (kind, content) in new_values.items():
        channel = checkpoint.channels[name]
        packed, patches, size = content.stored(lambda digest: batch.is_keyframe(log, digest))
        value = (channel.digest, kind, channel.size, int(packed.encoding), packed.data)
        batch.put_content(log, checkpoint.seq, value, packed.keyframe, patches, size)
    if orphan and checkpoint.parent_id and checkpoint.delta_channels != b"[]":
        checkpoint.delta_base = batch.sibling_base(log, place[0], checkpoint.parent_id)
    batch.put_checkpoint(log, place, checkpoint, before=previous)
    if place[1] == batch.greatest(log, place[0]):
        log.whole.add(place[0])


def _store_writes(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    place: Place,
    pending: _MergedWrites,
    seq: int,
    *,
    early: bool,
) -> None:
    early_us = batch.now_us if early else None
    for slot, write in pending.new.items():
        batch.put_write(log, place, write, seq, early_us, pending.stored.get(slot))
        _bring(batch, log, write.digest, write)
        pending.stored.put(StoredWrite(*write[:8], seq, early_us, None))
    log.writes.keep(place, pending.stored)
