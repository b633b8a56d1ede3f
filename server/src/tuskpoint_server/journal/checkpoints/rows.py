"""The rows that a change becomes, in the order of the columns."""

from __future__ import annotations

from ...domain.model import Lineage
from ..database.overlay import Batch, Known, Log, Place
from .drafts import ChannelChange, WriteChange


def checkpoint_row(
    log: Log,
    place: Place,
    known: Known,
    *,
    lineage: Lineage = Lineage(),  # noqa: B008 - frozen
    delta_base: bytes | None = None,
    held: bytes | None = None,
) -> tuple[object, ...]:
    """Return the row of a checkpoint, in the order of `overlay.CHECKPOINT_COLUMNS`."""
    return (
        log.row.tenant,
        log.row.number,
        *place,
        known.seq,
        known.parent_id,
        known.state,
        known.metadata,
        known.run_id,
        known.root_id,
        known.delta_channels,
        delta_base,
        known.label,
        known.summary,
        lineage.forked_from,
        lineage.rolled_back_from,
        lineage.adopted_from,
        known.created_us,
        held,
    )


def content_row(batch: Batch, log: Log, one: ChannelChange, seq: int) -> tuple[object, ...]:
    """Return the row of a value, as a patch if the keyframe's data is here."""
    if one.content is None or one.digest is None:
        raise ValueError(f"channel {one.name} came without its value")
    packed, patches, patch_bytes = one.content.stored(lambda digest: batch.is_keyframe(log, digest))
    return (
        log.row.family,
        one.digest,
        one.type,
        one.size,
        int(packed.encoding),
        packed.keyframe,
        patches,
        patch_bytes,
        log.row.number,
        seq,
        None,
        packed.data,
    )


def write_row(
    log: Log, place: Place, one: WriteChange, seq: int, early_us: int | None
) -> tuple[object, ...]:
    """Return the row of a pending write, in the order of `overlay.WRITE_COLUMNS`."""
    write = one.write
    return (
        log.row.number,
        *place,
        write.task_id,
        write.idx,
        write.task_path,
        write.channel,
        write.value.type,
        write.digest,
        len(write.value.data),
        int(one.packed.encoding),
        seq,
        early_us,
        one.packed.data,
    )
