"""What the limits of the contract say about a request.

Every check of a request runs before anything of it is used; all violations are collected, so
that a caller can mend them at once. Fields are checked by what they are called and by their
type, so a name means the same in every request; `_FURTHER` has what a kind of request demands
besides. Field paths are those of the request message; in a `SaveCheckpoints` frame, of the save
inside the frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
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
from ..domain.model import Durability, Source, View
from ..domain.threads import EventKind
from .checks import Checks, check_checkpoint, check_writes, limit_exceeded

_MAX_BLOB_ID = 256  # bytes; those of the known stores have 43
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check(request: Message, *, streamed: bool = False) -> None:
    """Check a request before anything of it is used, and put defaults where it leaves them open."""
    checks = Checks(streamed=streamed)
    for one in _checks_of(request.DESCRIPTOR):
        one(checks, request)
    checks.finish()


# --- fields, by their name and type --------------------------------------------------------

Check = Callable[[Checks, Any], None]  # notes what is wrong with a request

_ID_REQUIRED = frozenset({"SaveWritesRequest", "RollbackThreadRequest"})
_THREAD_FIELDS = ("thread_id", "source_thread_id", "target_thread_id", "new_thread_id")
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
_DEFAULTS = {"durability": Durability.JOURNALED, "view": View.FULL, "source": Source.ANY}
"""What a request that does not say asks for."""


@cache
def _checks_of(kind: Any) -> tuple[Check, ...]:
    found = [one for field in kind.fields if (one := _check_of(field)) is not None]
    # What is demanded besides comes first: of several problems the first is the message.
    return (*([_FURTHER[kind.name]] if kind.name in _FURTHER else []), *found)


def _check_of(field: Any) -> Check | None:
    kind, name = field.containing_type.name, field.name
    if field.is_repeated:
        return None
    if field.enum_type is not None:
        return _enum(kind, field)
    if field.message_type is checkpoint_pb2.CheckpointRef.DESCRIPTOR:
        required = kind in _ID_REQUIRED
        return lambda checks, request: checks.ref(name, getattr(request, name), required=required)
    if name == "page_size":
        return lambda checks, request: checks.fail(
            name, "must not be negative" if request.page_size < 0 else ""
        )
    if name in _THREAD_FIELDS:
        named = (kind, name) not in _UNNAMED

        def thread(checks: Checks, request: Message) -> None:
            if not field.has_presence or request.HasField(name):
                checks.thread(name, getattr(request, name), required=named)

        return thread
    if name in _TEXTS:
        maximum, needed = _TEXTS[name], name == "snapshot_id"
        return lambda checks, request: checks.text(
            name, getattr(request, name), maximum, required=needed
        )
    return None


def _enum(kind: str, field: Any) -> Check:
    name, known = field.name, field.enum_type.values_by_number
    default = _DEFAULTS.get(name, 0)
    if (kind, name) == ("AdoptHandoffRequest", "durability"):
        # The answer names the blob of the adopted checkpoint, which has to have one.
        default = Durability.CERTIFIED

    def enum(checks: Checks, request: Message) -> None:
        number = getattr(request, name)
        if number not in known:
            checks.fail(name, f"{number} is not a value of its enum")
        elif not number and default:
            setattr(request, name, default)

    return enum


# --- what a kind of request demands besides ------------------------------------------------


def _list_checkpoints(
    checks: Checks, request: checkpoint_service_pb2.ListCheckpointsRequest
) -> None:
    checks.at_most("filter_json", len(request.filter_json), LIMITS.max_metadata, " bytes")


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
    if not request.strategy:
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
    if not request.mode:
        checks.fail("mode", "must be set")


def _adopt(checks: Checks, request: handoff_service_pb2.AdoptHandoffRequest) -> None:
    named = request.descriptor
    if not _SHA256.fullmatch(named.blob_sha256):
        checks.fail(
            "descriptor.blob_sha256",
            "must be the SHA-256 of the blob, 64 lowercase hex digits: nothing is adopted "
            "without it",
        )
    checks.text("descriptor.blob_id", named.blob_id, _MAX_BLOB_ID, required=True)
    checks.thread("descriptor.thread_id", named.thread_id)
    field, longest = "descriptor.checkpoint_id", LIMITS.max_checkpoint_id
    checks.text(field, named.checkpoint_id, longest, required=True)
    if named.source != source_of(named.thread_id, named.checkpoint_id):
        checks.fail("descriptor.source", 'must be "thread:checkpoint", as the other fields say')
    checks.text("descriptor.to_agent", named.to_agent, LIMITS.max_agent_id)
    checks.text("descriptor.summary", named.summary, LIMITS.max_summary)


_FURTHER: Mapping[str, Check] = {
    "SaveCheckpointRequest": check_checkpoint,
    "SaveWritesRequest": check_writes,
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
