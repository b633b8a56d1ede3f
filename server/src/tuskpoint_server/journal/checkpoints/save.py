"""Saving: a checkpoint, its pending writes, its label.

Each change is decided against the batch before it changes anything there: one that is
refused leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from ...domain.errors import Reason, Refusal, checkpoint_not_found, values_missing
from ...domain.formats.segments import decode_delta_base
from ...domain.limits import LIMITS
from ...domain.lineage import mint_checkpoint_id
from ...domain.model import Channel, CheckpointDraft, CheckpointKey, Reference, Saved, Version
from ...domain.state import encode_channel
from ...domain.threads import INTERRUPT, RESUME, EventKind
from ..database.logs import Known, KnownChannel, KnownWrite, Log, Pending, Place
from ..database.overlay import Batch, StoredWrite
from . import contents, vectors
from .drafts import ChannelChange, CheckpointChange, WriteChange
from .threads import switch_search

_BYTES_PER_WRITE = 128
"""What a write takes in a message besides its names and content, at most."""

_CHECKED_FROM = 512
"""So many writes fit an answer, however long their names are."""


_saved = attrgetter("parent_id", "state", "metadata", "delta_channels", "summary")


class _Plan(NamedTuple):
    """What a save does to the checkpoint's row."""

    replaces: bool
    known: Known  # as it will be stored, without its number
    contents: list[ChannelChange]  # whose value is to be stored
    size: int  # bytes of new content


class _Merged(NamedTuple):
    """What becomes of a checkpoint's writes: those there are, and those that are stored now."""

    stored: Pending
    new: dict[tuple[str, int], WriteChange]
    size: int  # bytes of new ones
    last_seq: int  # greatest number of those that were sent and stored before


def save_checkpoint(batch: Batch, change: CheckpointChange) -> Saved:
    """Insert or replace a checkpoint; see `store.Checkpoints.save_checkpoint`."""
    draft, thread_id = change.draft, change.draft.key.thread_id
    log = batch.find(change.tenant, thread_id) or batch.begin(change.tenant, thread_id)
    place = (draft.key.checkpoint_ns, draft.key.checkpoint_id)
    if not place[1]:
        above = batch.greatest(log, place[0])
        place = (place[0], mint_checkpoint_id(batch.now_us, change.entropy, above))
    stored = batch.checkpoint(log, place)
    parent = batch.checkpoint(log, (place[0], draft.parent_id)) if draft.parent_id else None
    begins = stored is None and _begins_next(batch, log, draft, parent_exists=parent is not None)
    plan = _plan(batch, log, change, place, stored, parent, begins=begins)
    pending = _merged(batch, log, place, stored, change.writes)
    known = plan.known
    changed = stored is None or plan.replaces or bool(pending.new) or stored.label != known.label
    if draft.expected_head is not None and changed:
        check_head(batch, log, place[0], draft.expected_head)
    searchable = draft.searchable
    if searchable is None:
        searchable = begins or not log.row.unsearchable
    keeps_vector = bool(draft.vector) and searchable
    if keeps_vector:
        vectors.check(batch.connection, change.tenant, len(draft.vector))
    # Nothing is refused from here on.
    if begins:
        log.row.begin_next(batch.new_family(), batch.now_us)
    if draft.searchable is not None:
        switch_search(batch, log, draft.searchable)  # a change of its own, before this one
    row, key = log.row, CheckpointKey(thread_id, *place)
    if keeps_vector:
        vectors.store(batch.connection, change.tenant, row.number, place, draft.vector)
    names_agent = draft.agent_id not in ("", row.agent_id)
    if not changed and stored is not None and not names_agent:
        # Who waits until it is certified waits for the setting that came with it, too.
        setting = row.settings_seq if draft.searchable is not None else 0
        return Saved(key, max(stored.seq, pending.last_seq, setting), row.incarnation)
    size = plan.size + pending.size
    seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size, indexed=True)
    if names_agent:
        row.agent_id = draft.agent_id
        row.settings_seq = seq
    known.seq = seq
    _store(batch, log, place, plan, stored, has_parent=parent is not None)
    known.pending = pending.stored
    claims = stored is None and bool(pending.stored)
    _store_writes(batch, log, place, pending, seq, early=False)
    if claims:
        batch.claim_early(log, place, seq)
        for slot, one in pending.stored.items():
            pending.stored[slot] = one._replace(seq=seq)
    log.add(place, known)
    if place[0] == "" and place[1] >= row.head_id:
        log.set_head(place[1], pending.stored)
    return Saved(key, seq, row.incarnation, size)


def save_writes(
    batch: Batch, tenant: str, key: CheckpointKey, writes: Sequence[WriteChange]
) -> Saved:
    """Insert pending writes; see `store.Checkpoints.save_writes`."""
    log = batch.find(tenant, key.thread_id) or batch.begin(tenant, key.thread_id)
    row, place = log.row, (key.checkpoint_ns, key.checkpoint_id)
    known = batch.checkpoint(log, place)
    early = known is None
    # Writes may overtake the save that begins the next incarnation. If it never comes, they
    # expire unseen.
    if early and place[1] <= row.deleted_through:
        raise row.refuse_deleted()
    pending = _merged(batch, log, place, known, writes)
    if not pending.new:
        seq = max(known.seq if known else 0, pending.last_seq)
        return Saved(key, seq, row.incarnation, early=early)
    seq = batch.change(log, EventKind.WRITES_SAVED, place, size_bytes=pending.size)
    _store_writes(batch, log, place, pending, seq, early=early)
    if known is None:
        log.early = True
    else:
        known.pending = pending.stored
        if place == ("", row.head_id):
            log.set_head(row.head_id, pending.stored)
    return Saved(key, seq, row.incarnation, pending.size, early=early)


def set_label(batch: Batch, tenant: str, key: CheckpointKey, label: str) -> Saved:
    """Set or clear a label; see `store.Checkpoints.set_label`."""
    log = batch.find(tenant, key.thread_id)
    place = (key.checkpoint_ns, key.checkpoint_id)
    if log is not None and not key.checkpoint_id:
        place = (key.checkpoint_ns, batch.greatest(log, key.checkpoint_ns))
    known = batch.checkpoint(log, place) if log is not None and place[1] else None
    if log is None or known is None:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    named = CheckpointKey(key.thread_id, *place)
    if known.label == label:
        return Saved(named, known.seq, log.row.incarnation)
    seq = batch.change(log, EventKind.LABEL_SET, place, size_bytes=len(label), indexed=True)
    batch.set_label(log, place, label, seq)
    batch.note(log, known.channels.values())  # the next flush needs them
    known.label, known.seq = label, seq
    return Saved(named, seq, log.row.incarnation, len(label))


def check_head(batch: Batch, log: Log, checkpoint_ns: str, expected: str) -> None:
    """Compare the latest of a namespace with the expected one.

    What is stored already passes without it, wherever the head is: it is the retry of a
    save whose answer was lost.

    Raises:
        Refusal: `HEAD_MOVED`.
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


def _begins_next(batch: Batch, log: Log, draft: CheckpointDraft, *, parent_exists: bool) -> bool:
    """Decide whether a checkpoint that is not stored may be saved; true if it begins anew.

    After a deletion only a checkpoint that owes nothing to the ended incarnation is let
    in: one without parent, which is not tied to a root checkpoint of that time.
    """
    row, through = log.row, log.row.deleted_through
    root_id = draft.metadata.root_id if draft.key.checkpoint_ns else ""
    old_root = bool(root_id) and root_id <= through
    if row.deleted:
        if draft.parent_id or old_root:
            raise row.refuse_deleted()
        return True
    if draft.parent_id and not parent_exists and draft.parent_id <= through:
        raise row.refuse_deleted()
    if old_root and batch.checkpoint(log, ("", root_id)) is None:
        raise row.refuse_deleted()
    return False


def _plan(
    batch: Batch,
    log: Log,
    change: CheckpointChange,
    place: Place,
    stored: Known | None,
    parent: Known | None,
    *,
    begins: bool,
) -> _Plan:
    draft = change.draft
    channels, new = _resolve(batch, log, change, place, parent, begins=begins)
    state = draft.frame + b"".join(channel.encoded for channel in channels.values())
    if len(state) > LIMITS.max_state:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"a state of {len(state)} bytes without its content",
            limit="max_state_bytes",
            maximum=LIMITS.max_state,
        )
    known = Known(
        seq=0,
        parent_id=draft.parent_id,
        state=state,
        metadata=draft.metadata.raw,
        run_id=draft.metadata.run_id,
        root_id=draft.metadata.root_id,
        delta_channels=change.delta_channels,
        label=draft.label or (stored.label if stored else ""),
        summary=draft.summary or (stored.summary if stored else ""),
        created_us=stored.created_us if stored else batch.now_us,
        decoded=channels,
    )
    replaces = stored is None or _saved(stored) != _saved(known)
    size = len(state) + len(known.metadata) if replaces else 0
    size += sum(one.content.size_bytes for one in new if one.content is not None)
    return _Plan(replaces, known, new, size)


def _resolve(
    batch: Batch,
    log: Log,
    change: CheckpointChange,
    place: Place,
    parent: Known | None,
    *,
    begins: bool,
) -> tuple[dict[str, KnownChannel], list[ChannelChange]]:
    """Return the channels by name, and those whose value has to be stored.

    Raises:
        Refusal: `VALUES_MISSING`, `VERSION_TYPE_CHANGED`.
    """
    inherited = parent.channels if parent is not None else {}
    # The values of a head that was saved are here; one that is a copy, or became the head
    # because later ones were removed, may name evicted ones, like any older parent.
    head = batch.greatest(log, place[0])
    parent_is_head = place[0] in log.whole and change.draft.parent_id == head
    here = None
    if not parent_is_head and not begins:
        here = _here(batch, log, change.channels, inherited)
    channels: dict[str, KnownChannel] = {}
    new: list[ChannelChange] = []
    missing: list[str] = []
    for one in change.channels:
        old = inherited.get(one.name)
        if old is not None:
            _check_version_type(one.name, one.known.version, old.version)
        if one.content is None:
            found = _referred(batch, None if begins else log, one, old, here)
            if found is None:
                missing.append(one.name)
            else:
                channels[one.name] = found
        else:
            channels[one.name] = one.known
            if not (parent_is_head and old is not None and old.digest == one.known.digest):
                new.append(one)
    if missing:
        raise values_missing(missing)
    return channels, new


def _here(
    batch: Batch, log: Log, sent: Sequence[ChannelChange], inherited: dict[str, KnownChannel]
) -> set[bytes]:
    """Return the digests of inherited values whose data is here."""
    wanted = (inherited.get(one.name) for one in sent if one.reference is Reference.INHERIT)
    named = {old.digest for old in wanted if old is not None and old.digest is not None}
    pending = {digest for digest in named if batch.brings(log, digest)}
    return pending | contents.present(batch.connection, log.row.family, named - pending)


def _referred(
    batch: Batch,
    log: Log | None,
    one: ChannelChange,
    old: KnownChannel | None,
    here: set[bytes] | None,
) -> KnownChannel | None:
    """Return a channel that came without its value; `None` if its value is not here.

    `log`: whose family has the value; `None`: the save begins a family. `here`: values of the
    parent that are here; `None`: all of them.
    """
    if one.reference is Reference.EMPTY:
        return one.known
    if one.reference is Reference.INHERIT:
        if old is None or old.version != one.known.version or log is None:
            return None
        return old if here is None or old.digest is None or old.digest in here else None
    version, digest = one.known.version, one.known.digest or b""
    found = batch.value(log, digest) if log is not None and not log.new else None
    if found is None:
        return None
    encoded = encode_channel(Channel(one.name, version, digest, found[0]))
    return KnownChannel(version, digest, found[0], encoded)


def _check_version_type(name: str, sent: Version | None, before: Version | None) -> None:
    if before is not None and sent is not None and type(before) is not type(sent):
        kinds = {str: "text", int: "integer", float: "number"}
        raise Refusal(
            Reason.VERSION_TYPE_CHANGED,
            channel=name,
            parent=kinds[type(before)],
            sent=kinds[type(sent)],
        )


def _merged(
    batch: Batch, log: Log, place: Place, known: Known | None, sent: Sequence[WriteChange]
) -> _Merged:
    """Decide which writes are stored: the first wins at `idx` 0 and above, the last below.

    A question that is asked again in the same words is stored again if the answer that was used
    comes with it: the order of both says that it is open.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if the checkpoint would have more than a read can return.
    """
    stored = batch.pending(log, place, known)
    new: dict[tuple[str, int], WriteChange] = {}
    again: dict[tuple[str, int], WriteChange] = {}
    last_seq = 0
    for one in sent:
        write = one.write
        slot = (write.task_id, write.idx)
        if write.idx >= 0 and slot in new:
            continue
        before = stored.get(slot)
        if before is not None and (
            write.idx >= 0
            or (before.digest, before.channel, before.task_path)
            == (write.digest, write.channel, write.task_path)
        ):
            last_seq = max(last_seq, before.seq)
            new.pop(slot, None)  # of equal signs in one call the last stays
            if write.idx < 0 and write.channel == INTERRUPT:
                again[slot] = one
            continue
        again.pop(slot, None)
        new[slot] = one
    if again:
        tasks = {task_id for (task_id, _), one in new.items() if one.write.channel == RESUME}
        new |= {slot: one for slot, one in again.items() if slot[0] in tasks}
    if new and len(stored) + len(new) > _CHECKED_FROM:
        _check_extent(stored, new)
    return _Merged(stored, new, sum(len(one.packed.data) for one in new.values()), last_seq)


def _check_extent(stored: Pending, new: dict[tuple[str, int], WriteChange]) -> None:
    names = [
        (slot[0], one.task_path, one.channel, one.type)
        for slot, one in stored.items()
        if slot not in new
    ]
    for slot, change in new.items():
        write = change.write
        names.append((slot[0], write.task_path, write.channel, write.value.type))
    size = sum(_BYTES_PER_WRITE + sum(len(name.encode()) for name in some) for some in names)
    if size > LIMITS.max_write_names:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"writes with {size} bytes of names on one checkpoint",
            limit="max_write_names_bytes",
            maximum=LIMITS.max_write_names,
        )


def _store(
    batch: Batch, log: Log, place: Place, plan: _Plan, stored: Known | None, *, has_parent: bool
) -> None:
    known = plan.known
    for one in plan.contents:
        if one.known.digest is not None and one.content is not None:
            packed, patches, size = one.content.stored(
                lambda digest: batch.is_keyframe(log, digest)
            )
            value = (one.known.digest, one.type, one.known.size, int(packed.encoding), packed.data)
            batch.put_content(log, known.seq, *value, packed.keyframe, patches, size)
    batch.note(log, known.channels.values())
    base = None
    if stored is None and known.delta_channels != b"[]" and known.parent_id and not has_parent:
        base = batch.sibling_base(log, place[0], known.parent_id)
        if base is not None:
            rebuilt_from = decode_delta_base(base, place[1])
            batch.note_digests(log, (one for channel in rebuilt_from for one in channel.digests))
    batch.put_checkpoint(log, place, known, delta_base=base)
    if place[1] == batch.greatest(log, place[0]):
        log.whole.add(place[0])
    if stored is None:
        log.row.checkpoint_count += 1
    elif known.state != stored.state:
        # What it named before is looked for as if it had been another that was removed.
        log.row.removed_count += 1
        log.row.removed_bytes = min(log.row.added_bytes, log.row.removed_bytes + plan.size)


def _store_writes(
    batch: Batch, log: Log, place: Place, pending: _Merged, seq: int, *, early: bool
) -> None:
    early_us = batch.now_us if early else None
    for slot, (write, packed) in pending.new.items():
        size = len(write.value.data)
        described = (write.task_path, write.channel, write.value.type, write.digest, size)
        pending.stored[slot] = KnownWrite(*described, seq)
        row = (*slot, *described, int(packed.encoding), seq, early_us, packed.data)
        batch.put_write(log, place, StoredWrite(*row))
