"""Collecting what is wrong with a request, and what the limits say about saves."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from tuskpoint.v1 import checkpoint_pb2, checkpoint_service_pb2, value_pb2

from ..domain.errors import Reason, Refusal, Violation
from ..domain.limits import LIMITS, text_problem
from ..domain.search import vector_problem
from ..domain.snapshots import THREADS, is_reserved
from ..domain.values import DIGEST_BYTES

_MAX_VIOLATIONS = 64


class Checks:
    """Collects what is wrong with one request. `streamed`: large values may follow in chunks."""

    def __init__(self, *, streamed: bool = False) -> None:
        self.streamed = streamed
        self._violations: list[Violation] = []

    def fail(self, field: str, problem: str) -> None:
        """Note a violation, if there is one."""
        if problem and len(self._violations) < _MAX_VIOLATIONS:
            self._violations.append(Violation(field, problem))

    def text(self, field: str, value: str, maximum: int, *, required: bool = False) -> None:
        """Check a string: at most `maximum` bytes of UTF-8, without NUL, not empty if required."""
        self.fail(field, text_problem(value, maximum, required=required))

    def at_most(self, field: str, count: int, maximum: int, unit: str = "") -> bool:
        """Check a size; tell whether it is within its limit."""
        if count > maximum:
            self.fail(field, f"must be at most {maximum}{unit}")
        return count <= maximum

    def thread(self, field: str, thread_id: str, *, required: bool = True) -> None:
        """Check the name of a thread; those of the server's own are refused."""
        if is_reserved(thread_id):
            self.fail(field, f"names that begin with '{THREADS}' are the server's own")
        else:
            self.text(field, thread_id, LIMITS.max_thread_id, required=required)

    def ref(self, path: str, ref: checkpoint_pb2.CheckpointRef, *, required: bool = False) -> None:
        """Check the identity of a checkpoint, whose ID may be required."""
        self.thread(f"{path}.thread_id", ref.thread_id)
        self.text(f"{path}.checkpoint_ns", ref.checkpoint_ns, LIMITS.max_checkpoint_ns)
        checkpoint_id, longest = ref.checkpoint_id, LIMITS.max_checkpoint_id
        self.text(f"{path}.checkpoint_id", checkpoint_id, longest, required=required)

    def names(self, path: str, names: Collection[str], maximum: int) -> None:
        """Check a list of names, each of at most `maximum` bytes."""
        if self.at_most(path, len(names), LIMITS.max_batch, " names"):
            for number, name in enumerate(names):
                self.text(f"{path}[{number}]", name, maximum, required=True)

    def channels(self, path: str, names: Collection[str]) -> None:
        """Check a list of names of channels."""
        if self.at_most(path, len(names), LIMITS.max_channels):
            for number, name in enumerate(names):
                self.text(f"{path}[{number}]", name, LIMITS.max_channel_name, required=True)

    def threads(self, path: str, thread_ids: Collection[str]) -> None:
        """Check a list of threads."""
        if self.at_most(path, len(thread_ids), LIMITS.max_batch, " threads"):
            for number, thread_id in enumerate(thread_ids):
                self.thread(f"{path}[{number}]", thread_id)

    def finish(self) -> None:
        """End the checks."""
        if self._violations:
            first = self._violations[0]
            raise Refusal(
                Reason.INVALID_FIELD,
                violations=self._violations,
                field=first.field,
                problem=first.description,
            )


def limit_exceeded(what: str, limit: str, maximum: int) -> Refusal:
    """Return the refusal of something that is too large."""
    return Refusal(Reason.LIMIT_EXCEEDED, what=what, limit=limit, maximum=maximum)


# --- saves ---------------------------------------------------------------------------------


def check_checkpoint(checks: Checks, request: checkpoint_service_pb2.SaveCheckpointRequest) -> None:
    """Check a save of a checkpoint."""
    checkpoint, path = request.checkpoint, "checkpoint"
    checks.ref(f"{path}.ref", checkpoint.ref)
    parent_id = checkpoint.parent_checkpoint_id
    checks.text(f"{path}.parent_checkpoint_id", parent_id, LIMITS.max_checkpoint_id)
    checks.text(f"{path}.label", checkpoint.label, LIMITS.max_label)
    checks.text(f"{path}.summary", checkpoint.summary, LIMITS.max_summary)
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
    """Check a save of pending writes."""
    if not request.writes:
        checks.fail("writes", "must not be empty")
    _check_writes(checks, request.writes)
    _check_sizes(request.writes, "the writes of one save")


def _check_sizes(contents: Iterable[value_pb2.Channel | value_pb2.PendingWrite], what: str) -> None:
    """Check the sizes of values, announced ones included, before any is buffered."""
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
        what = f"{what}: {total} bytes"
        raise limit_exceeded(what, "max_checkpoint_bytes", LIMITS.max_checkpoint)


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
    for node, seen in state.versions_seen.items():
        below = f'{path}.versions_seen["{node}"].channels'
        checks.at_most(below, len(seen.channels), LIMITS.max_channels)
        for name, version in seen.channels.items():
            if version_problem := _version_problem(version):
                checks.fail(f'{below}["{name}"]', version_problem)
    checks.channels(f"{path}.delta_channels", state.delta_channels)
    checks.at_most(f"{path}.extras", len(state.extras), LIMITS.max_extras)
    for name, value in state.extras.items():
        below = f'{path}.extras["{name}"]'
        checks.text(below, name, LIMITS.max_channel_name, required=True)
        checks.text(f"{below}.type", value.type, LIMITS.max_value_type, required=True)


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
    if content == "value":
        if problem := text_problem(holder.value.type, LIMITS.max_value_type, required=True):
            return "value.type", problem
    elif content == "large":
        if not streamed:
            return "large", "only a SaveCheckpoints stream carries large values"
        if problem := text_problem(holder.large.type, LIMITS.max_value_type, required=True):
            return "large.type", problem
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
        elif refused := _content_problem(write, content, streamed=checks.streamed):
            checks.fail(f"writes[{number}].{refused[0]}", refused[1])
