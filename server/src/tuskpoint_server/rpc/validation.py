"""What the limits of the contract say about a request.

Every check of a request runs before anything of it is used; all violations are
collected, so that a caller can mend them at once. Field paths are those of the request
message; in a `SaveCheckpoints` frame, of the save inside the frame.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from tuskpoint.v1 import checkpoint_pb2, checkpoint_service_pb2, thread_service_pb2, value_pb2

from ..domain.digests import DIGEST_BYTES
from ..domain.errors import Reason, Refusal, Violation
from ..domain.limits import LIMITS

_MAX_VIOLATIONS = 64
_VIEWS = frozenset(checkpoint_pb2.View.values())
_DURABILITIES = frozenset(checkpoint_pb2.Durability.values())
_SOURCES = frozenset(checkpoint_pb2.Source.values())

Writes = RepeatedCompositeFieldContainer[value_pb2.PendingWrite]


class Checks:
    """Collects what is wrong with one request."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def fail(self, field: str, problem: str) -> None:
        """Note a violation."""
        if len(self._violations) < _MAX_VIOLATIONS:
            self._violations.append(Violation(field, problem))

    def text(self, field: str, value: str, maximum: int, *, required: bool = False) -> None:
        """Check a string: at most `maximum` bytes of UTF-8, without NUL, not empty if required."""
        if problem := text_problem(value, maximum, required=required):
            self.fail(field, problem)

    def member(self, field: str, number: int, known: Collection[int]) -> None:
        """Check that an enum number is one of the contract's."""
        if number not in known:
            self.fail(field, f"{number} is not a value of its enum")

    def finish(self) -> None:
        """End the checks.

        Raises:
            Refusal: `INVALID_FIELD` with every violation noted.
        """
        if not self._violations:
            return
        first = self._violations[0]
        raise Refusal(
            Reason.INVALID_FIELD,
            violations=self._violations,
            field=first.field,
            problem=first.description,
        )


def text_problem(value: str, maximum: int, *, required: bool = False) -> str:
    """Say what is wrong with a string, or return an empty one."""
    if not value:
        return "must not be empty" if required else ""
    if len(value) > maximum or (
        not value.isascii() and len(value.encode(errors="surrogatepass")) > maximum
    ):
        return f"must be at most {maximum} bytes of UTF-8"
    if "\0" in value:
        return "must not contain NUL"
    return ""


# --- checkpoints ---------------------------------------------------------------------------


def check_save_checkpoint(
    request: checkpoint_service_pb2.SaveCheckpointRequest, *, streamed: bool
) -> None:
    """Check a save of a checkpoint. `streamed`: large values may follow in chunks.

    Raises:
        Refusal: `INVALID_FIELD`, `LIMIT_EXCEEDED`.
    """
    checks = Checks()
    checkpoint = request.checkpoint
    _ref(checks, "checkpoint.ref", checkpoint.ref)
    checks.text(
        "checkpoint.parent_checkpoint_id",
        checkpoint.parent_checkpoint_id,
        LIMITS.max_checkpoint_id,
    )
    checks.text("checkpoint.label", checkpoint.label, LIMITS.max_label)
    checks.text("checkpoint.summary", checkpoint.summary, LIMITS.max_summary)
    checks.text("agent_id", request.agent_id, LIMITS.max_agent_id)
    if request.HasField("expected_head"):
        checks.text("expected_head", request.expected_head, LIMITS.max_checkpoint_id)
    checks.member("durability", request.durability, _DURABILITIES)
    if len(checkpoint.metadata_json) > LIMITS.max_metadata:
        checks.fail("checkpoint.metadata_json", f"must be at most {LIMITS.max_metadata} bytes")
    if checkpoint.HasField("state"):
        _state(checks, "checkpoint.state", checkpoint.state, streamed=streamed)
    else:
        checks.fail("checkpoint.state", "must be set")
    _writes(checks, "writes", request.writes, streamed=streamed)
    checks.finish()
    check_sizes(checkpoint.state.channels, "checkpoint")
    check_sizes(request.writes, "the writes of one save")


def check_save_writes(request: checkpoint_service_pb2.SaveWritesRequest, *, streamed: bool) -> None:
    """Check a save of pending writes. `streamed`: large values may follow in chunks.

    Raises:
        Refusal: `INVALID_FIELD`, `LIMIT_EXCEEDED`.
    """
    checks = Checks()
    _ref(checks, "ref", request.ref, id_required=True)
    checks.member("durability", request.durability, _DURABILITIES)
    if not request.writes:
        checks.fail("writes", "must not be empty")
    _writes(checks, "writes", request.writes, streamed=streamed)
    checks.finish()
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


def limit_exceeded(what: str, limit: str, maximum: int) -> Refusal:
    """Return the refusal of something that is too large."""
    return Refusal(Reason.LIMIT_EXCEEDED, what=what, limit=limit, maximum=maximum)


def check_read(
    request: checkpoint_service_pb2.GetCheckpointRequest
    | checkpoint_service_pb2.LoadCheckpointRequest,
) -> None:
    """Check a read of one checkpoint.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _ref(checks, "ref", request.ref)
    checks.member("view", request.view, _VIEWS)
    checks.member("source", request.source, _SOURCES)
    checks.finish()


def check_list(request: checkpoint_service_pb2.ListCheckpointsRequest) -> None:
    """Check a listing of checkpoints.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    if request.HasField("thread_id"):
        checks.text("thread_id", request.thread_id, LIMITS.max_thread_id, required=True)
    checks.text("checkpoint_ns", request.checkpoint_ns, LIMITS.max_checkpoint_ns)
    checks.text("checkpoint_id", request.checkpoint_id, LIMITS.max_checkpoint_id)
    checks.text("before", request.before, LIMITS.max_checkpoint_id)
    checks.text("label", request.label, LIMITS.max_label)
    if len(request.filter_json) > LIMITS.max_metadata:
        checks.fail("filter_json", f"must be at most {LIMITS.max_metadata} bytes")
    checks.member("view", request.view, _VIEWS)
    checks.member("source", request.source, _SOURCES)
    checks.finish()


def check_delta_history(request: checkpoint_service_pb2.GetDeltaHistoryRequest) -> None:
    """Check a request for the history of delta channels.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _ref(checks, "ref", request.ref)
    _names(checks, "channels", request.channels)
    checks.finish()


def check_set_label(request: checkpoint_service_pb2.SetLabelRequest) -> None:
    """Check a new label.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _ref(checks, "ref", request.ref)
    checks.text("label", request.label, LIMITS.max_label)
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


# --- threads -------------------------------------------------------------------------------


def check_get_thread(request: thread_service_pb2.GetThreadRequest) -> None:
    """Check a request for one thread.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("thread_id", request.thread_id, LIMITS.max_thread_id, required=True)
    checks.finish()


def check_delete_thread(request: thread_service_pb2.DeleteThreadRequest) -> None:
    """Check a deletion.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("thread_id", request.thread_id, LIMITS.max_thread_id, required=True)
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


def check_set_retention(request: thread_service_pb2.SetRetentionRequest) -> None:
    """Check a retention.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("thread_id", request.thread_id, LIMITS.max_thread_id, required=True)
    retention = request.retention
    if retention.nanos:
        checks.fail("retention", "must be whole seconds")
    elif not 0 <= retention.seconds <= LIMITS.max_retention_s:
        checks.fail("retention", f"must be 1 to {LIMITS.max_retention_s} seconds, or 0 to keep it")
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


def check_list_threads(request: thread_service_pb2.ListThreadsRequest) -> None:
    """Check a listing of threads.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("agent_id", request.agent_id, LIMITS.max_agent_id)
    checks.text("label", request.label, LIMITS.max_label)
    checks.member("state", request.state, range(4))
    _page_size(checks, request.page_size)
    checks.finish()


def check_get_manifest(request: thread_service_pb2.GetManifestRequest) -> None:
    """Check a request for a page of a manifest.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    checks.text("thread_id", request.thread_id, LIMITS.max_thread_id, required=True)
    _page_size(checks, request.page_size)
    checks.finish()


def check_copy_thread(request: thread_service_pb2.CopyThreadRequest) -> None:
    """Check a copy.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    for field in ("source_thread_id", "target_thread_id"):
        checks.text(field, getattr(request, field), LIMITS.max_thread_id, required=True)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


def check_prune_threads(request: thread_service_pb2.PruneThreadsRequest) -> None:
    """Check a pruning.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _batch(checks, "thread_ids", request.thread_ids, LIMITS.max_thread_id)
    if request.strategy == thread_service_pb2.PRUNE_STRATEGY_UNSPECIFIED:
        checks.fail("strategy", "must be set")
    checks.member("strategy", request.strategy, thread_service_pb2.PruneStrategy.values())
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


def check_delete_runs(request: thread_service_pb2.DeleteRunsRequest) -> None:
    """Check a deletion of runs.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _batch(checks, "run_ids", request.run_ids, LIMITS.max_run_id)
    checks.member("durability", request.durability, _DURABILITIES)
    checks.finish()


# --- parts ---------------------------------------------------------------------------------


def _ref(
    checks: Checks, path: str, ref: checkpoint_pb2.CheckpointRef, *, id_required: bool = False
) -> None:
    if problem := text_problem(ref.thread_id, LIMITS.max_thread_id, required=True):
        checks.fail(f"{path}.thread_id", problem)
    if problem := text_problem(ref.checkpoint_ns, LIMITS.max_checkpoint_ns):
        checks.fail(f"{path}.checkpoint_ns", problem)
    if problem := text_problem(ref.checkpoint_id, LIMITS.max_checkpoint_id, required=id_required):
        checks.fail(f"{path}.checkpoint_id", problem)


def _state(
    checks: Checks, path: str, state: checkpoint_pb2.CheckpointState, *, streamed: bool
) -> None:
    checks.text(f"{path}.ts", state.ts, LIMITS.max_timestamp_text)
    if len(state.channels) > LIMITS.max_channels:
        checks.fail(f"{path}.channels", f"must be at most {LIMITS.max_channels}")
        return
    names: set[str] = set()
    for number, channel in enumerate(state.channels):
        if problem := _channel_problem(channel, names, streamed=streamed):
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
    _names(checks, f"{path}.delta_channels", state.delta_channels)
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


def _writes(checks: Checks, path: str, writes: Writes, *, streamed: bool) -> None:
    if len(writes) > LIMITS.max_writes:
        checks.fail(path, f"must be at most {LIMITS.max_writes}")
        return
    for number, write in enumerate(writes):
        if problem := text_problem(write.task_id, LIMITS.max_task_id, required=True):
            checks.fail(f"{path}[{number}].task_id", problem)
        if problem := text_problem(write.task_path, LIMITS.max_task_path):
            checks.fail(f"{path}[{number}].task_path", problem)
        if problem := text_problem(write.channel, LIMITS.max_channel_name, required=True):
            checks.fail(f"{path}[{number}].channel", problem)
        content = write.WhichOneof("content")
        if content is None:
            checks.fail(f"{path}[{number}].content", "one of value or large must be set")
        elif refused := _content_problem(write, content, streamed=streamed):
            checks.fail(f"{path}[{number}].{refused[0]}", refused[1])


def _names(checks: Checks, path: str, names: Collection[str]) -> None:
    if len(names) > LIMITS.max_channels:
        checks.fail(path, f"must be at most {LIMITS.max_channels}")
        return
    for number, name in enumerate(names):
        if problem := text_problem(name, LIMITS.max_channel_name, required=True):
            checks.fail(f"{path}[{number}]", problem)


def _batch(checks: Checks, path: str, names: Collection[str], maximum: int) -> None:
    if len(names) > LIMITS.max_batch:
        checks.fail(path, f"must be at most {LIMITS.max_batch}")
        return
    for number, name in enumerate(names):
        if problem := text_problem(name, maximum, required=True):
            checks.fail(f"{path}[{number}]", problem)


def _page_size(checks: Checks, page_size: int) -> None:
    if page_size < 0:
        checks.fail("page_size", "must not be negative")
