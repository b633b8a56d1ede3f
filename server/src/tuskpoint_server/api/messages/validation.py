"""Checks of requests against the limits of the contract.

All checks run before a request is used, and collect all violations, so that a caller can correct
them at once. Fields are checked by name and type, so a name means the same in every request;
servicers have further rules of their requests. Field paths start at the request message; in a frame
of a stream, at the save in the frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message

from tuskpoint.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    handoff_service_pb2,
    history_service_pb2,
    value_pb2,
)

from ...core.errors import Reason, Refusal, Violation
from ...core.limits import LIMITS, text_problem
from ...core.lineage import is_generated
from ...core.model import Durability, Source, View
from ...core.search import vector_problem
from ...core.threads import RESERVED, is_reserved
from ...core.values import DIGEST_BYTES

_MAX_VIOLATIONS = 64
_MAX_PATH = 1024  # characters; names of nodes in a namespace may be as long as the message


def check(request: Message, further: Check | None = None, *, streamed: bool = False) -> None:
    """Check a request before use, and fill in the defaults of unset fields.

    `further` checks the servicer's rules for the request. `streamed`: large values may follow in
    chunks.
    """
    checks = Checks(streamed=streamed)
    if further is not None:  # first, because the first of several problems becomes the message
        further(checks, request)
    for field_check in _checks_of(request.DESCRIPTOR):
        field_check(checks, request)
    if checks.violations:
        first = checks.violations[0]
        raise Refusal(
            Reason.INVALID_FIELD,
            violations=checks.violations,
            field=first.field,
            problem=first.description,
        )


Watch = history_service_pb2.WatchThreadRequest | handoff_service_pb2.WatchHandoffsRequest
"""Requests of watches."""


def is_within(time: Duration, least_s: float, most_s: float = math.inf) -> bool:
    """Return whether a duration has a valid form and is between two bounds, both included."""
    return 0 <= time.nanos < 10**9 and least_s <= time.seconds + time.nanos / 1e9 <= most_s


class Checks:
    """Collects the violations of one request."""

    def __init__(self, *, streamed: bool = False) -> None:
        self.streamed = streamed
        self.violations: list[Violation] = []

    def fail(self, field: str, problem: str) -> None:
        if problem and len(self.violations) < _MAX_VIOLATIONS:
            self.violations.append(Violation(field[:_MAX_PATH], problem))

    def text(self, field: str, value: str, maximum: int, *, required: bool = False) -> None:
        """Check a string: at most `maximum` bytes of UTF-8, without NUL, not empty if required."""
        self.fail(field, text_problem(value, maximum, required=required))

    def at_most(self, field: str, count: int, maximum: int, unit: str = "") -> bool:
        if count > maximum:
            self.fail(field, f"must be at most {maximum}{unit}")
        return count <= maximum

    def thread(self, field: str, thread_id: str, *, required: bool = True) -> None:
        """Check the name of a thread; refuse names of the server's own threads."""
        if is_reserved(thread_id):
            prefixes = ", ".join(f"'{prefix}'" for prefix, _ in RESERVED)
            self.fail(field, f"names that begin with one of {prefixes} are the server's own")
        else:
            self.text(field, thread_id, LIMITS.max_thread_id, required=required)

    def interval(self, request: Watch) -> None:
        """Check the longest silence of a watch."""
        interval = request.progress_interval
        if request.HasField("progress_interval") and not is_within(interval, 1):
            self.fail("progress_interval", "must be at least 1 second")

    def ref(self, path: str, ref: checkpoint_pb2.CheckpointRef, *, required: bool = False) -> None:
        self.thread(f"{path}.thread_id", ref.thread_id)
        self.text(f"{path}.checkpoint_ns", ref.checkpoint_ns, LIMITS.max_checkpoint_ns)
        checkpoint_id, longest = ref.checkpoint_id, LIMITS.max_checkpoint_id
        self.text(f"{path}.checkpoint_id", checkpoint_id, longest, required=required)

    def names(
        self, path: str, names: Collection[str], longest: int, most: int, unit: str = ""
    ) -> None:
        if self.at_most(path, len(names), most, unit):
            for number, name in enumerate(names):
                self.text(f"{path}[{number}]", name, longest, required=True)

    def channels(self, path: str, names: Collection[str]) -> None:
        self.names(path, names, LIMITS.max_channel_name, LIMITS.max_channels)

    def digests(self, path: str, digests: Collection[bytes]) -> None:
        if self.at_most(path, len(digests), LIMITS.max_held_digests, " digests"):
            for number, digest in enumerate(digests):
                if len(digest) != DIGEST_BYTES:
                    self.fail(f"{path}[{number}]", f"must be {DIGEST_BYTES} bytes")

    def threads(self, path: str, thread_ids: Collection[str]) -> None:
        if self.at_most(path, len(thread_ids), LIMITS.max_batch, " threads"):
            for number, thread_id in enumerate(thread_ids):
                self.thread(f"{path}[{number}]", thread_id)


def limit_exceeded(what: str, limit: str, maximum: int) -> Refusal:
    """Return the refusal of a value above a limit."""
    return Refusal(Reason.LIMIT_EXCEEDED, what=what, limit=limit, maximum=maximum)


Check = Callable[[Checks, Any], object]  # collects the violations of a request

_ID_REQUIRED = frozenset({"SaveWritesRequest", "RollbackThreadRequest"})
_THREAD_FIELDS = ("thread_id", "source_thread_id", "target_thread_id", "new_thread_id")
_UNNAMED = frozenset(
    {
        ("AdoptHandoffRequest", "new_thread_id"),
        ("ForkThreadRequest", "new_thread_id"),
        ("ListHandoffsRequest", "thread_id"),
        ("SearchCheckpointsRequest", "thread_id"),
    }
)
"""Thread fields that may be empty."""

# fields besides names with this ending
_CHECKPOINT_IDS = {"before", "expected_head", "snapshot_id", "after_batch_id", "handoff_id"}
_ENUMS_REQUIRED = {("PruneThreadsRequest", "strategy"), ("RestoreSnapshotRequest", "mode")}
_DEFAULTS = {"durability": Durability.JOURNALED, "view": View.FULL, "source": Source.ANY}
"""Defaults of unset fields."""


@cache
def _checks_of(kind: Any) -> tuple[Check, ...]:
    return tuple(
        field_check for field in kind.fields if (field_check := _check_of(field)) is not None
    )


def _check_of(field: Any) -> Check | None:
    kind, name = field.containing_type.name, field.name
    if name == "thread_ids":
        return lambda checks, request: checks.threads(name, request.thread_ids)
    if name == "held_digests":
        return lambda checks, request: checks.digests(name, request.held_digests)
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
        required = (kind, name) not in _UNNAMED

        def thread(checks: Checks, request: Message) -> None:
            if not field.has_presence or request.HasField(name):
                checks.thread(name, getattr(request, name), required=required)

        return thread
    if field.type == field.TYPE_STRING and (maximum := _max_bytes(name)) is not None:
        required = name == "snapshot_id" or kind == "WithdrawHandoffRequest"
        return lambda checks, request: checks.text(
            name, getattr(request, name), maximum, required=required
        )
    return None


def _max_bytes(name: str) -> int | None:
    """Return the byte limit of a text field with this name; `None` without a limit."""
    if name in _CHECKPOINT_IDS or name.endswith("checkpoint_id"):
        return LIMITS.max_checkpoint_id
    return LIMITS.max_agent_id if name == "to_agent" else getattr(LIMITS, f"max_{name}", None)


def _enum(kind: str, field: Any) -> Check:
    name, values = field.name, field.enum_type.values_by_number
    default = _DEFAULTS.get(name, 0)
    if (kind, name) == ("AdoptHandoffRequest", "durability"):
        # The answer names the blob of the adopted checkpoint, so the checkpoint needs a blob.
        default = Durability.CERTIFIED

    def enum(checks: Checks, request: Message) -> None:
        number = getattr(request, name)
        if number not in values:
            checks.fail(name, f"{number} is not a value of its enum")
        elif not number and default:
            setattr(request, name, default)
        elif not number and (kind, name) in _ENUMS_REQUIRED:
            checks.fail(name, "must be set")
        if name == "source" and number == Source.BLOB and getattr(request, "view", 0) == View.STEP:
            checks.fail("view", "must not be VIEW_STEP with SOURCE_BLOB")

    return enum


def check_save(checks: Checks, request: checkpoint_service_pb2.SaveCheckpointRequest) -> None:
    """Check the rules of saving a checkpoint, besides the limits of its fields."""
    checkpoint, path = request.checkpoint, "checkpoint"
    checks.ref(f"{path}.ref", checkpoint.ref)
    parent_id = checkpoint.parent_checkpoint_id
    checks.text(f"{path}.parent_checkpoint_id", parent_id, LIMITS.max_checkpoint_id)
    checks.text(f"{path}.label", checkpoint.label, LIMITS.max_label)
    checks.text(f"{path}.summary", checkpoint.summary, LIMITS.max_summary)
    if request.continue_latest and request.HasField("expected_head"):
        checks.fail("expected_head", "must not be set with continue_latest")
    if request.raise_id and not request.continue_latest:
        checks.fail("raise_id", "needs continue_latest")
    elif request.raise_id and not is_generated(checkpoint.ref.checkpoint_id):
        checks.fail(f"{path}.ref.checkpoint_id", "must end with a UUIDv6, because raise_id is set")
    if request.vector:
        longest = LIMITS.max_vector_dimension
        checks.fail("vector", vector_problem(request.vector, longest, zero_allowed=False))
    size = len(checkpoint.metadata_json)
    checks.at_most(f"{path}.metadata_json", size, LIMITS.max_metadata, " bytes")
    if checkpoint.HasField("state"):
        _check_state(checks, checkpoint.state)
    else:
        checks.fail(f"{path}.state", "must be set")
    _check_writes(checks, request.writes)
    _check_sizes(checkpoint.state.channels, "checkpoint")
    _check_sizes(request.writes, "the writes of one save")


def check_writes(checks: Checks, request: checkpoint_service_pb2.SaveWritesRequest) -> None:
    """Check the rules of saving pending writes, besides the limits of their fields."""
    if not request.writes:
        checks.fail("writes", "must not be empty")
    _check_writes(checks, request.writes)
    _check_sizes(request.writes, "the writes of one save")


def _check_sizes(
    contents: Iterable[value_pb2.Channel | value_pb2.PendingWrite], subject: str
) -> None:
    """Check the sizes of all values, announced values included, before any is buffered."""
    total = 0
    for content in contents:
        if content.HasField("large"):
            size = content.large.size_bytes
        elif content.HasField("value"):
            size = len(content.value.data)
        else:
            continue
        if size > LIMITS.max_value:
            raise limit_exceeded(f"a value of {size} bytes", "max_value_bytes", LIMITS.max_value)
        total += size
    if total > LIMITS.max_checkpoint:
        subject = f"{subject}: {total} bytes"
        raise limit_exceeded(subject, "max_checkpoint_bytes", LIMITS.max_checkpoint)


def _check_state(checks: Checks, state: checkpoint_pb2.CheckpointState) -> None:
    path = "checkpoint.state"
    checks.text(f"{path}.ts", state.ts, LIMITS.max_timestamp_text)
    if not checks.at_most(f"{path}.channels", len(state.channels), LIMITS.max_channels):
        return
    names: set[str] = set()
    for number, channel in enumerate(state.channels):
        if problem := _channel_problem(channel, names, streamed=checks.streamed):
            checks.fail(f"{path}.channels[{number}].{problem[0]}", problem[1])
        names.add(channel.name)
    for node, versions in state.versions_seen.items():
        field = f'{path}.versions_seen["{node}"].channels'
        checks.at_most(field, len(versions.channels), LIMITS.max_channels)
        for name, version in versions.channels.items():
            if version_problem := _version_problem(version):
                checks.fail(f'{field}["{name}"]', version_problem)
    checks.channels(f"{path}.delta_channels", state.delta_channels)
    checks.at_most(f"{path}.extras", len(state.extras), LIMITS.max_extras)
    for name, value in state.extras.items():
        field = f'{path}.extras["{name}"]'
        checks.text(field, name, LIMITS.max_channel_name, required=True)
        checks.text(f"{field}.type", value.type, LIMITS.max_value_type, required=True)


def _channel_problem(
    channel: value_pb2.Channel, names: set[str], *, streamed: bool
) -> tuple[str, str] | None:
    if problem := text_problem(channel.name, LIMITS.max_channel_name, required=True):
        return "name", problem
    if channel.name in names:
        return "name", f"'{channel.name}' is not unique"
    if channel.HasField("version") and (problem := _version_problem(channel.version)):
        return "version", problem
    content = channel.WhichOneof("content")
    if channel.digest:
        if len(channel.digest) != DIGEST_BYTES:
            return "digest", f"must be {DIGEST_BYTES} bytes"
        if content in ("inherit", "empty"):
            return "digest", f"must not be set together with {content}"
    elif content is None:
        return "content", "one of value, large, inherit, empty or a digest must be set"
    return _content_problem(channel, content, streamed=streamed)


def _content_problem(
    holder: value_pb2.Channel | value_pb2.PendingWrite, content: str | None, *, streamed: bool
) -> tuple[str, str] | None:
    if content == "large" and not streamed:
        return "large", "only an Exchange stream carries large values"
    if content in ("value", "large"):
        kind = getattr(holder, content).type
        if problem := text_problem(kind, LIMITS.max_value_type, required=True):
            return f"{content}.type", problem
    return None


def _version_problem(version: value_pb2.Version) -> str:
    kind = version.WhichOneof("kind")
    if kind is None:
        return "must be text, integer or number"
    if kind == "text":
        return text_problem(version.text, LIMITS.max_version_text)
    if kind == "number" and not math.isfinite(version.number):
        return "must be finite"
    return ""


def _check_writes(
    checks: Checks, writes: RepeatedCompositeFieldContainer[value_pb2.PendingWrite]
) -> None:
    if not checks.at_most("writes", len(writes), LIMITS.max_writes):
        return
    for number, write in enumerate(writes):
        if problem := text_problem(write.task_id, LIMITS.max_task_id, required=True):
            checks.fail(f"writes[{number}].task_id", problem)
        if problem := text_problem(write.task_path, LIMITS.max_task_path):
            checks.fail(f"writes[{number}].task_path", problem)
        if problem := text_problem(write.channel, LIMITS.max_channel_name, required=True):
            checks.fail(f"writes[{number}].channel", problem)
        content = write.WhichOneof("content")
        if content is None:
            checks.fail(f"writes[{number}].content", "one of value or large must be set")
        elif content_problem := _content_problem(write, content, streamed=checks.streamed):
            checks.fail(f"writes[{number}].{content_problem[0]}", content_problem[1])
