"""Which saves and writes a thread admits after it was deleted."""

from __future__ import annotations

from ...domain.model import CheckpointDraft
from ..database.logs import Log, Place
from ..database.overlay import Batch


def begins_next(batch: Batch, log: Log, draft: CheckpointDraft, *, parent_exists: bool) -> bool:
    """Decide whether a checkpoint that is not stored may be saved; true if it begins anew.

    After a deletion only a checkpoint that owes nothing to the ended incarnation is let
    in: one without parent, which is not tied to a root checkpoint of that time.

    Raises:
        Refusal: `THREAD_DELETED`.
    """
    row = log.row
    root_id = draft.metadata.root_id if draft.key.checkpoint_ns else ""
    if row.deleted:
        if draft.parent_id or (root_id and root_id <= row.deleted_through):
            raise row.refuse_deleted()
        return True
    if not row.deleted_through:
        return False
    if draft.parent_id and not parent_exists and draft.parent_id <= row.deleted_through:
        raise row.refuse_deleted()
    if root_id and root_id <= row.deleted_through and batch.checkpoint(log, ("", root_id)) is None:
        raise row.refuse_deleted()
    return False


def refuse_stale_write(log: Log, place: Place) -> None:
    """Refuse a write to a checkpoint that was deleted.

    Writes may overtake the save that begins the next incarnation. If it never comes, they
    expire unseen.

    Raises:
        Refusal: `THREAD_DELETED`.
    """
    if place[1] <= log.row.deleted_through:
        raise log.row.refuse_deleted()
