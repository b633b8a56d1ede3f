"""What the limits of the contract say about a request.

Fields are checked by what they are called and by their type, so a name means the same in every
request; `_FURTHER` has what a kind of request demands besides. Field paths are those of the
request message; in a `SaveCheckpoints` frame, of the save inside the frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from google.protobuf.message import Message

from tuskpoint.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    snapshot_service_pb2,
    thread_service_pb2,
)

from ..domain.limits import LIMITS
from ..domain.lineage import source_of
from ..domain.threads import EventKind
from . import saving
from .checks import Checks, limit_exceeded

Check = Callable[[Checks, Any], None]
"""Notes what is wrong with a request."""

Field = Any
"""Descriptor of a field; protobuf has two classes of them."""

_REF = checkpoint_pb2.CheckpointRef.DESCRIPTOR.full_name
_ID_REQUIRED = frozenset({"SaveWritesRequest", "RollbackThreadRequest"})
_THREADS = frozenset({"thread_id", "source_thread_id", "target_thread_id", "new_thread_id"})
_UNNAMED = frozenset(
    {
        ("AdoptHandoffRequest", "new_thread_id"),
        ("ForkThreadRequest", "new_thread_id"),
        ("SearchCheckpointsRequest", "thread_id"),
    }
)
"""Fields that may leave it open which thread is meant."""

_TEXTS: Mapping[str, int] = {
    "agent_id": LIMITS.max_agent_id,
    "before": LIMITS.max_checkpoint_id,
    "checkpoint_id": LIMITS.max_checkpoint_id,
    "checkpoint_ns": LIMITS.max_checkpoint_ns,
    "expected_head": LIMITS.max_checkpoint_id,
    "from_checkpoint_id": LIMITS.max_checkpoint_id,
    "hostname": LIMITS.max_hostname,
    "label": LIMITS.max_label,
    "request_id": LIMITS.max_request_id,
    "session_id": LIMITS.max_session_id,
    "snapshot_id": LIMITS.max_checkpoint_id,
    "to_agent": LIMITS.max_agent_id,
    "to_checkpoint_id": LIMITS.max_checkpoint_id,
    "working_directory": LIMITS.max_working_directory,
}
_REQUIRED = frozenset({"snapshot_id"})

_MAX_BLOB_ID = 256
"""Bytes; those of the known stores have 43."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def check(request: Message, *, streamed: bool = False) -> None:
    """Check a request before anything of it is used.

    Args:
        request: Any request of the contract.
        streamed: Large values may follow in chunks.

    Raises:
        Refusal: `INVALID_FIELD` with every violation, `LIMIT_EXCEEDED`.
    """
    checks = Checks(streamed=streamed)
    for one in _checks_of(request.DESCRIPTOR):
        one(checks, request)
    checks.finish()


@cache
def _checks_of(kind: Any) -> tuple[Check, ...]:
    found = [one for field in kind.fields if (one := _check_of(field)) is not None]
    # What is demanded besides comes first: of several problems the first is the message.
    return (*([_FURTHER[kind.name]] if kind.name in _FURTHER else []), *found)


def _check_of(field: Field) -> Check | None:
    """Return the check of a field by its name and type."""
    if field.is_repeated:
        return None
    if field.enum_type is not None:
        return partial(_enum, field)
    if field.message_type is not None and field.message_type.full_name == _REF:
        return partial(_ref, field)
    if field.name == "page_size":
        return _page_size
    if field.name in _THREADS:
        return partial(_thread, field)
    return partial(_text, field) if field.name in _TEXTS else None


def _enum(field: Field, checks: Checks, request: Message) -> None:
    number = getattr(request, field.name)
    if number not in field.enum_type.values_by_number:
        checks.fail(field.name, f"{number} is not a value of its enum")


def _ref(field: Field, checks: Checks, request: Message) -> None:
    required = field.containing_type.name in _ID_REQUIRED
    checks.ref(field.name, getattr(request, field.name), id_required=required)


def _page_size(checks: Checks, request: Any) -> None:
    if request.page_size < 0:
        checks.fail("page_size", "must not be negative")


def _thread(field: Field, checks: Checks, request: Message) -> None:
    if field.has_presence and not request.HasField(field.name):
        return
    required = (field.containing_type.name, field.name) not in _UNNAMED
    checks.thread(field.name, getattr(request, field.name), required=required)


def _text(field: Field, checks: Checks, request: Message) -> None:
    required = field.name in _REQUIRED
    checks.text(field.name, getattr(request, field.name), _TEXTS[field.name], required=required)


# --- what a kind of request demands besides ------------------------------------------------


def _list_checkpoints(
    checks: Checks, request: checkpoint_service_pb2.ListCheckpointsRequest
) -> None:
    if len(request.filter_json) > LIMITS.max_metadata:
        checks.fail("filter_json", f"must be at most {LIMITS.max_metadata} bytes")


def _watch(checks: Checks, request: history_service_pb2.WatchThreadRequest) -> None:
    known = {int(kind) for kind in EventKind}
    for number, kind in enumerate(request.kinds):
        if kind not in known:
            checks.fail(f"kinds[{number}]", f"{kind} is not a value of its enum")
    interval = request.progress_interval
    if request.HasField("progress_interval") and (interval.seconds < 1 or interval.nanos < 0):
        checks.fail("progress_interval", "must be at least 1 second")


def _retention(checks: Checks, request: thread_service_pb2.SetRetentionRequest) -> None:
    retention = request.retention
    if retention.nanos:
        checks.fail("retention", "must be whole seconds")
    elif not 0 <= retention.seconds <= LIMITS.max_retention_s:
        checks.fail("retention", f"must be 1 to {LIMITS.max_retention_s} seconds, or 0 to keep it")


def _prune(checks: Checks, request: thread_service_pb2.PruneThreadsRequest) -> None:
    checks.threads("thread_ids", request.thread_ids)
    if request.strategy == thread_service_pb2.PRUNE_STRATEGY_UNSPECIFIED:
        checks.fail("strategy", "must be set")


def _manifest(checks: Checks, request: thread_service_pb2.GetManifestRequest) -> None:
    if request.store and request.page_token:
        checks.fail("store", "must not be set with a page token; ask for it with the first page")


def _create_snapshot(checks: Checks, request: snapshot_service_pb2.CreateSnapshotRequest) -> None:
    if not request.thread_ids:
        checks.fail("thread_ids", "must not be empty")
    checks.threads("thread_ids", request.thread_ids)
    if len(set(request.thread_ids)) < len(request.thread_ids):
        checks.fail("thread_ids", "must not name a thread twice")
    size = len(request.metadata_json)
    if size > LIMITS.max_metadata:
        raise limit_exceeded(f"metadata of {size} bytes", "max_metadata_bytes", LIMITS.max_metadata)


def _restore(checks: Checks, request: snapshot_service_pb2.RestoreSnapshotRequest) -> None:
    if request.mode == snapshot_service_pb2.RESTORE_MODE_UNSPECIFIED:
        checks.fail("mode", "must be set")


def _adopt(checks: Checks, request: handoff_service_pb2.AdoptHandoffRequest) -> None:
    descriptor = request.descriptor
    if not _SHA256.fullmatch(descriptor.blob_sha256):
        checks.fail(
            "descriptor.blob_sha256",
            "must be the SHA-256 of the blob, 64 lowercase hex digits: nothing is adopted "
            "without it",
        )
    checks.text("descriptor.blob_id", descriptor.blob_id, _MAX_BLOB_ID, required=True)
    checks.thread("descriptor.thread_id", descriptor.thread_id)
    checks.text(
        "descriptor.checkpoint_id",
        descriptor.checkpoint_id,
        LIMITS.max_checkpoint_id,
        required=True,
    )
    if descriptor.source != source_of(descriptor.thread_id, descriptor.checkpoint_id):
        checks.fail("descriptor.source", 'must be "thread:checkpoint", as the other fields say')
    checks.text("descriptor.to_agent", descriptor.to_agent, LIMITS.max_agent_id)
    checks.text("descriptor.summary", descriptor.summary, LIMITS.max_summary)


_FURTHER: Mapping[str, Check] = {
    "SaveCheckpointRequest": saving.check_checkpoint,
    "SaveWritesRequest": saving.check_writes,
    "ListCheckpointsRequest": _list_checkpoints,
    "GetDeltaHistoryRequest": lambda checks, request: checks.channels("channels", request.channels),
    "AdoptHandoffRequest": _adopt,
    "WatchThreadRequest": _watch,
    "CreateSnapshotRequest": _create_snapshot,
    "RestoreSnapshotRequest": _restore,
    "SetRetentionRequest": _retention,
    "PruneThreadsRequest": _prune,
    "DeleteRunsRequest": lambda checks, request: checks.names(
        "run_ids", request.run_ids, LIMITS.max_run_id
    ),
    "GetManifestRequest": _manifest,
}
