"""Answers to saves."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import errors_pb2

from ..service.checkpoints import SaveOutcome
from . import convert


def save_response(outcome: SaveOutcome) -> pb.SaveCheckpointResponse:
    """Return the answer to the save of a checkpoint."""
    saved = outcome.saved
    return pb.SaveCheckpointResponse(
        ref=convert.ref(saved.key),
        durability=convert.DURABILITIES[outcome.durability],
        revision=saved.revision,
        seq=saved.seq,
        incarnation=saved.incarnation,
        catalog_blob_id=outcome.catalog_blob_id,
        warnings=_warnings(outcome),
    )


def writes_response(outcome: SaveOutcome) -> pb.SaveWritesResponse:
    """Return the answer to the save of pending writes."""
    return pb.SaveWritesResponse(
        durability=convert.DURABILITIES[outcome.durability],
        revision=outcome.saved.revision,
        seq=outcome.saved.seq,
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
