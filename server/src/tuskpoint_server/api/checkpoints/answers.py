"""Answers that unary calls and frames of a stream share."""

from __future__ import annotations

from typing import TypeVar

from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.model import Durability, SaveOutcome
from ...features.call_memory import Holder
from ...features.checkpoints.checkpoints import Checkpoints
from ...features.checkpoints.completing import content_bytes
from ..messages import convert
from ..messages.chunks import uncut_values

SavedT = TypeVar("SavedT", bound=pb.SaveCheckpointResponse | pb.SaveWritesResponse)


def fill_saved(
    message: SavedT, saved: SaveOutcome, reached: Durability, catalog_blob_id: str, *, warns: bool
) -> SavedT:
    """Fill and return the answer to a save, field by field, because each save pays for it."""
    message.durability, message.seq = convert.number(reached), saved.seq
    message.catalog_blob_id = catalog_blob_id
    if warns:
        message.warnings.append(convert.BACKLOG_WARNING)
    if isinstance(message, pb.SaveWritesResponse):
        message.early = saved.early
    else:
        ref, key = message.ref, saved.key
        ref.thread_id, ref.checkpoint_ns = key.thread_id, key.checkpoint_ns
        ref.checkpoint_id, message.incarnation = key.checkpoint_id, saved.incarnation
        message.parent_checkpoint_id = saved.parent_id
        if saved.latest:
            message.warnings.append(convert.below_latest(saved))
    return message


async def checkpoint_in_one(
    checkpoints: Checkpoints,
    tenant: str,
    request: pb.GetCheckpointRequest,
    holder: Holder,
    maximum: int = LIMITS.max_unary,
) -> checkpoint_pb2.Checkpoint:
    """Return a checkpoint that fits a message, or refuse one of more than `maximum` bytes."""
    loaded = await checkpoints.load(tenant, *convert.read_load_request(request), holder)
    size = content_bytes(loaded)
    if size <= maximum:
        message = convert.checkpoint(loaded, uncut_values())
        size = message.ByteSize()
    if size > maximum:
        raise Refusal(Reason.CHECKPOINT_TOO_LARGE, size_bytes=size, maximum=maximum)
    return message
