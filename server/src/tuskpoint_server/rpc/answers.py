"""Answers that several calls give."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2, errors_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ..domain.limits import LIMITS
from ..domain.model import Checkpoint
from ..service.checkpoints import SaveOutcome
from . import convert
from .checks import limit_exceeded
from .chunks import Cutter

_FRAME_OVERHEAD = 256
"""Bytes that the frame around a checkpoint takes, at most."""


def checkpoint_header(loaded: Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message that begins a checkpoint on a stream.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if it does not fit a message.
    """
    message = convert.checkpoint(loaded, cutter)
    size = message.ByteSize()
    if size > LIMITS.max_message - _FRAME_OVERHEAD:
        raise limit_exceeded(
            f"the checkpoint without its large values: {size} bytes",
            "max_message_bytes",
            LIMITS.max_message,
        )
    return message


def save_response(outcome: SaveOutcome) -> pb.SaveCheckpointResponse:
    """Return the answer to the save of a checkpoint."""
    saved = outcome.saved
    return pb.SaveCheckpointResponse(
        ref=convert.ref(saved.key),
        durability=convert.DURABILITIES[outcome.durability],
        seq=saved.seq,
        incarnation=saved.incarnation,
        catalog_blob_id=outcome.catalog_blob_id,
        warnings=_warnings(outcome),
    )


def writes_response(outcome: SaveOutcome) -> pb.SaveWritesResponse:
    """Return the answer to the save of pending writes."""
    return pb.SaveWritesResponse(
        durability=convert.DURABILITIES[outcome.durability],
        seq=outcome.saved.seq,
        early=outcome.saved.early,
        catalog_blob_id=outcome.catalog_blob_id,
        warnings=_warnings(outcome),
    )


def _warnings(outcome: SaveOutcome) -> list[errors_pb2.Warning]:
    if not outcome.backlog_warning:
        return []
    return [
        errors_pb2.Warning(
            kind=errors_pb2.WARNING_KIND_BACKLOG,
            message="much is waiting for certification; saves are refused if it grows on",
        )
    ]
