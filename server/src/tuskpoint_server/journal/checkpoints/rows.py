"""The rows that a change becomes, in the order of the columns."""

from __future__ import annotations

from ...domain.model import Lineage
from ..database.logs import Known, Log, Place


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


def content_row(
    log: Log,
    seq: int,
    digest: bytes,
    kind: str,
    size: int,
    encoding: int,
    data: bytes | None,
    keyframe: bytes | None = None,
    patches: int = 0,
    patch_bytes: int = 0,
    segment: bytes | None = None,
) -> tuple[object, ...]:
    """Return the row of a value, in the order of `overlay.CONTENT_COLUMNS`."""
    return (
        log.row.family,
        digest,
        kind,
        size,
        encoding,
        keyframe,
        patches,
        patch_bytes,
        log.row.number,
        seq,
        segment,
        data,
    )
