"""What the limits of the contract say about saves: of checkpoints, and of pending writes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from tuskpoint.v1 import checkpoint_pb2, checkpoint_service_pb2, value_pb2

from ..domain.limits import LIMITS, text_problem
from ..domain.search import vector_problem
from ..domain.values import DIGEST_BYTES
from .checks import Checks, limit_exceeded

Writes = RepeatedCompositeFieldContainer[value_pb2.PendingWrite]


def check_checkpoint(checks: Checks, request: checkpoint_service_pb2.SaveCheckpointRequest) -> None:
    """Check a save of a checkpoint.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    checkpoint = request.checkpoint
    checks.ref("checkpoint.ref", checkpoint.ref)
    checks.text(
        "checkpoint.parent_checkpoint_id",
        checkpoint.parent_checkpoint_id,
        LIMITS.max_checkpoint_id,
    )
    checks.text("checkpoint.label", checkpoint.label, LIMITS.max_label)
    checks.text("checkpoint.summary", checkpoint.summary, LIMITS.max_summary)
    if request.vector and (
        problem := vector_problem(request.vector, LIMITS.max_vector_dimension, zero_allowed=False)
    ):
        checks.fail("vector", problem)
    if len(checkpoint.metadata_json) > LIMITS.max_metadata:
        checks.fail("checkpoint.metadata_json", f"must be at most {LIMITS.max_metadata} bytes")
    if checkpoint.HasField("state"):
        _state(checks, checkpoint.state)
    else:
        checks.fail("checkpoint.state", "must be set")
    _writes(checks, request.writes)
    check_sizes(checkpoint.state.channels, "checkpoint")
    check_sizes(request.writes, "the writes of one save")


def check_writes(checks: Checks, request: checkpoint_service_pb2.SaveWritesRequest) -> None:
    """Check a save of pending writes.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    if not request.writes:
        checks.fail("writes", "must not be empty")
    _writes(checks, request.writes)
    check_sizes(request.writes, "the writes of one save")


def check_sizes(contents: Iterable[value_pb2.Channel | value_pb2.PendingWrite], what: str) -> None:
    """Check the sizes of values, announced ones included, before any is buffered.

    Raises:
        Refusal: `LIMIT_EXCEEDED` names the limit.
    """
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
        raise limit_exceeded(
            f"{what}: {total} bytes", "max_checkpoint_bytes", LIMITS.max_checkpoint
        )


def _state(checks: Checks, state: checkpoint_pb2.CheckpointState) -> None:
    path = "checkpoint.state"
    checks.text(f"{path}.ts", state.ts, LIMITS.max_timestamp_text)
    if len(state.channels) > LIMITS.max_channels:
        checks.fail(f"{path}.channels", f"must be at most {LIMITS.max_channels}")
        return
    names: set[str] = set()
    for number, channel in enumerate(state.channels):
        if problem := _channel_problem(channel, names, streamed=checks.streamed):
            checks.fail(f"{path}.channels[{number}].{problem[0]}", problem[1])
        names.add(channel.name)
    for node, seen in state.versions_seen.items():
        if len(seen.channels) > LIMITS.max_channels:
            checks.fail(
                f'{path}.versions_seen["{node}"].channels', f"must be at most {LIMITS.max_channels}"
            )
        for name, version in seen.channels.items():
            if version_problem := _version_problem(version):
                checks.fail(f'{path}.versions_seen["{node}"].channels["{name}"]', version_problem)
    checks.channels(f"{path}.delta_channels", state.delta_channels)
    if len(state.extras) > LIMITS.max_extras:
        checks.fail(f"{path}.extras", f"must be at most {LIMITS.max_extras}")
    for name, value in state.extras.items():
        checks.text(f'{path}.extras["{name}"]', name, LIMITS.max_channel_name, required=True)
        checks.text(
            f'{path}.extras["{name}"].type', value.type, LIMITS.max_value_type, required=True
        )


def _channel_problem(
    channel: value_pb2.Channel, names: set[str], *, streamed: bool
) -> tuple[str, str] | None:
    """Return the field of a channel that is refused, and why."""
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


def _writes(checks: Checks, writes: Writes) -> None:
    if len(writes) > LIMITS.max_writes:
        checks.fail("writes", f"must be at most {LIMITS.max_writes}")
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
