"""Contract messages from the arguments of the clients' methods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from ..errors import NotFound
from ..v1 import checkpoint_pb2 as checkpoint
from ..v1 import thread_service_pb2 as threads
from ..v1.checkpoint_service_pb2 import ListCheckpointsRequest, SetLabelRequest
from .arguments import (
    check_given_texts,
    check_texts,
    checked_texts,
    encode_json,
    invalid_field,
    wrong_type,
)
from .records import DurabilityName, SourceName, ViewName
from .reports import THREAD_STATES, StateName

Keep = Literal["latest", "nothing"]

BATCH = 1000  # most threads or runs in one request
_NAMED_REFS = 5  # most checkpoints that an error names
_DURABILITIES: dict[str, checkpoint.Durability] = {
    "journaled": checkpoint.DURABILITY_JOURNALED,
    "certified": checkpoint.DURABILITY_CERTIFIED,
}
_SOURCES: dict[str, checkpoint.Source] = {
    "any": checkpoint.SOURCE_ANY,
    "blob": checkpoint.SOURCE_BLOB,
}
_VIEWS: dict[str, checkpoint.View] = {
    "entry": checkpoint.VIEW_ENTRY,
    "full": checkpoint.VIEW_FULL,
    "json": checkpoint.VIEW_JSON,
    "step": checkpoint.VIEW_STEP,
}
_STRATEGIES: dict[str, threads.PruneStrategy] = {
    "latest": threads.PRUNE_STRATEGY_KEEP_LATEST,
    "nothing": threads.PRUNE_STRATEGY_DELETE_ALL,
}


def choice(what: str, word: str, choices: Mapping[str, Any]) -> Any:
    """Return the number of a word in a table.

    Raises:
        InvalidRequest: The word is unknown.
    """
    try:
        return choices[word]
    except (KeyError, TypeError):
        words = " or ".join(f"'{name}'" for name in choices)
        raise invalid_field(what, f"it must be {words}, not {word!r}") from None


def durability(word: DurabilityName) -> checkpoint.Durability:
    """Return the durability that a word names.

    Raises:
        InvalidRequest: The word is unknown.
    """
    value: checkpoint.Durability = choice("durability", word, _DURABILITIES)
    return value


def source(word: SourceName) -> checkpoint.Source:
    """Return the source that a word names.

    Raises:
        InvalidRequest: The word is unknown.
    """
    value: checkpoint.Source = choice("source", word, _SOURCES)
    return value


def view(word: ViewName) -> checkpoint.View:
    """Return the view that a word names.

    Raises:
        InvalidRequest: The word is unknown.
    """
    value: checkpoint.View = choice("view", word, _VIEWS)
    return value


def flag(what: str, value: bool | None) -> bool | None:
    """Return a setting: true, false, or `None` for no change.

    Raises:
        InvalidRequest: The value is something else.
    """
    if value is not None and not isinstance(value, bool):
        raise invalid_field(what, f"it must be True, False or None, not {value!r:.80}")
    return value


def ref(thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> checkpoint.CheckpointRef:
    """Return a checkpoint reference; an empty ID means the latest checkpoint.

    Raises:
        InvalidRequest: A part is not a string, or cannot be sent.
    """
    check_texts(thread_id=thread_id, checkpoint_ns=checkpoint_ns)
    check_given_texts(checkpoint_id=checkpoint_id)
    return checkpoint.CheckpointRef(
        thread_id=thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id or ""
    )


def finding(checkpoint_id: str | None, checkpoint_ns: str) -> ListCheckpointsRequest:
    """Return the request that finds the threads that have a checkpoint.

    Args:
        checkpoint_id: The checkpoint.
        checkpoint_ns: Namespace of the checkpoint; empty is any namespace.

    Raises:
        InvalidRequest: No checkpoint is given, or an argument is not a string.
    """
    if not checkpoint_id:
        raise invalid_field("thread_id", "pass a thread_id, a checkpoint_id, or both")
    return listing(
        None, checkpoint_ns or None, checkpoint_id, "", None, "", _NAMED_REFS + 1, "entry", "any"
    )


def only_one(
    checkpoint_id: str, refs: Sequence[checkpoint.CheckpointRef]
) -> checkpoint.CheckpointRef:
    """Return the only checkpoint with an ID.

    Args:
        checkpoint_id: The ID.
        refs: The checkpoints that have it.

    Raises:
        NotFound: There is no such checkpoint.
        InvalidRequest: There are several such checkpoints.
    """
    if len(refs) == 1:
        return refs[0]
    if not refs:
        raise NotFound(
            f"checkpoint '{checkpoint_id}' not found in any thread; list() lists all checkpoints",
            status="NOT_FOUND",
            reason="CHECKPOINT_NOT_FOUND",
            metadata={"checkpoint_id": checkpoint_id},
        )
    names = [
        f"'{ref.thread_id}'" + (f" (namespace '{ref.checkpoint_ns}')" if ref.checkpoint_ns else "")
        for ref in refs[:_NAMED_REFS]
    ]
    more = ["..."] if len(refs) > _NAMED_REFS else []
    raise invalid_field(
        "thread_id",
        f"checkpoint '{checkpoint_id}' is in {', '.join(names + more)}: name one of these threads",
    )


def not_found(reference: checkpoint.CheckpointRef) -> NotFound:
    """Return the error for a checkpoint that does not exist."""
    where = f"thread '{reference.thread_id}'"
    if reference.checkpoint_ns:
        where += f" (namespace '{reference.checkpoint_ns}')"
    if reference.checkpoint_id:
        problem = (
            f"checkpoint '{reference.checkpoint_id}' not found in {where}; "
            "list(thread_id) lists the thread's checkpoints"
        )
    else:
        problem = f"{where} has no checkpoint, or does not exist; list_threads() lists the threads"
    return NotFound(
        problem,
        status="NOT_FOUND",
        reason="CHECKPOINT_NOT_FOUND",
        metadata={
            "thread_id": reference.thread_id,
            "checkpoint_ns": reference.checkpoint_ns,
            "checkpoint_id": reference.checkpoint_id,
        },
    )


def listing(
    thread_id: str | None,
    checkpoint_ns: str | None,
    checkpoint_id: str,
    before: str,
    metadata: Mapping[str, Any] | None,
    label: str,
    limit: int | None,
    how_much: ViewName,
    taken_from: SourceName,
) -> ListCheckpointsRequest:
    """Return the request of a listing; see `Client.list`."""
    if limit is not None and limit < 0:
        raise invalid_field("limit", f"it must be 0 or more, not {limit}")
    check_texts(checkpoint_id=checkpoint_id, before=before, label=label)
    check_given_texts(thread_id=thread_id, checkpoint_ns=checkpoint_ns)
    return ListCheckpointsRequest(
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id,
        before=before,
        filter_json=metadata_json(metadata),
        label=label,
        limit=limit,
        view=view(how_much),
        source=source(taken_from),
    )


def labelling(
    thread_id: str, label: str, checkpoint_id: str | None, checkpoint_ns: str, safe: DurabilityName
) -> SetLabelRequest:
    """Return the request that labels a checkpoint."""
    check_texts(label=label)
    return SetLabelRequest(
        ref=ref(thread_id, checkpoint_ns, checkpoint_id), label=label, durability=durability(safe)
    )


def deletion(thread_id: str, safe: DurabilityName) -> threads.DeleteThreadRequest:
    """Return the request that deletes a thread."""
    check_texts(thread_id=thread_id)
    return threads.DeleteThreadRequest(thread_id=thread_id, durability=durability(safe))


def retaining(
    thread_id: str, retention: timedelta | None, safe: DurabilityName
) -> threads.SetRetentionRequest:
    """Return the request that sets how long a thread is kept.

    Raises:
        InvalidRequest: The time is not above zero, or is not in whole seconds.
    """
    if retention is not None and not is_whole_seconds(retention):
        raise invalid_field(
            "retention",
            f"it must be a timedelta of at least one whole second, or None; not {retention!r}",
        )
    check_texts(thread_id=thread_id)
    request = threads.SetRetentionRequest(thread_id=thread_id, durability=durability(safe))
    if retention is not None:
        request.retention.FromTimedelta(retention)
    return request


def exposing(
    thread_id: str, searchable: bool, safe: DurabilityName
) -> threads.SetSearchableRequest:
    """Return the request that sets whether search finds a thread.

    Raises:
        InvalidRequest: The value is neither true nor false.
    """
    if not isinstance(searchable, bool):
        raise invalid_field("searchable", f"it must be True or False, not {searchable!r}")
    check_texts(thread_id=thread_id)
    return threads.SetSearchableRequest(
        thread_id=thread_id, searchable=searchable, durability=durability(safe)
    )


def is_whole_seconds(retention: object) -> bool:
    """Return whether a value is a time above zero in whole seconds."""
    if not isinstance(retention, timedelta):
        return False
    return retention > timedelta(0) and not retention.microseconds


def copying(thread_id: str, new_thread_id: str, safe: DurabilityName) -> threads.CopyThreadRequest:
    """Return the request that copies a thread."""
    check_texts(thread_id=thread_id, new_thread_id=new_thread_id)
    return threads.CopyThreadRequest(
        source_thread_id=thread_id, target_thread_id=new_thread_id, durability=durability(safe)
    )


def prunings(
    thread_ids: str | Iterable[str], keep: Keep, safe: DurabilityName
) -> Iterator[threads.PruneThreadsRequest]:
    """Yield the requests that prune threads, in batches."""
    strategy = choice("keep", keep, _STRATEGIES)
    level = durability(safe)
    for batch in _batches("thread_ids", thread_ids):
        yield threads.PruneThreadsRequest(thread_ids=batch, strategy=strategy, durability=level)


def run_deletions(
    run_ids: str | Iterable[str], safe: DurabilityName
) -> Iterator[threads.DeleteRunsRequest]:
    """Yield the requests that delete runs, in batches."""
    level = durability(safe)
    for batch in _batches("run_ids", run_ids):
        yield threads.DeleteRunsRequest(run_ids=batch, durability=level)


def _batches(what: str, names: str | Iterable[str]) -> Iterator[Sequence[str]]:
    whole = checked_texts(what, names)
    for start in range(0, len(whole), BATCH):
        yield whole[start : start + BATCH]


def thread_listing(
    agent_id: str,
    label: str,
    state: StateName | None,
    changed_after: datetime | None,
    changed_before: datetime | None,
    *,
    latest_first: bool,
) -> threads.ListThreadsRequest:
    """Return the request of the first page of threads."""
    check_texts(agent_id=agent_id, label=label)
    thread_state = None if state is None else choice("state", state, THREAD_STATES)
    order = threads.THREAD_ORDER_LATEST if latest_first else None
    request = threads.ListThreadsRequest(
        agent_id=agent_id, label=label, state=thread_state, page_size=BATCH, order=order
    )
    if changed_after is not None:
        request.changed_after.FromDatetime(changed_after)
    if changed_before is not None:
        request.changed_before.FromDatetime(changed_before)
    return request


def metadata_json(metadata: Mapping[str, Any] | None, what: str = "metadata") -> bytes:
    """Return metadata as JSON text; empty for no metadata.

    Args:
        metadata: The metadata or a filter.
        what: Name of the argument, for the error.

    Raises:
        InvalidRequest: The metadata is not a mapping, or cannot be written as JSON.
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise wrong_type(what, f"it must be a mapping, not {type(metadata).__name__}")
    return encode_json(what, dict(metadata)) if metadata else b""
