"""Saving a draft: the choice of its parent, and the retry after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from .._messages.checkpoints.saving import (
    NOTHING,
    Draft,
    KnownCheckpoint,
    Memory,
    check_draft,
    known_of,
    put_inline,
    save_request,
)
from ..errors import Conflict, ThreadDeleted, ValuesMissing
from ..v1.checkpoint_pb2 import CheckpointRef
from ..v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse
from .calls import AsyncCalls


async def save_draft(calls: AsyncCalls, draft: Draft, memory: Memory) -> str:
    """Save a draft and return the ID of the checkpoint.

    Without a parent or an expected head, the service decides which checkpoint the draft follows:
    the latest when the save commits. Then an outdated `memory` does no harm.

    Args:
        calls: The calls of the client.
        draft: The draft to save.
        memory: The checkpoints that this client saved last.

    Raises:
        InvalidRequest: A name or a text of the draft cannot be sent.
        Conflict: The latest checkpoint is not `expected_head`.
        ThreadDeleted: `parent` belongs to a deleted thread, or the ID is one of its checkpoints.
    """
    check_draft(draft)
    parent = await _parent(calls, draft, memory)
    request = save_request(draft, parent)
    try:
        answer = await save_inlining(calls, request, partial(put_inline, draft, request))
    except (Conflict, ThreadDeleted):
        memory.forget(draft.thread_id)
        raise
    checkpoint_id = answer.ref.checkpoint_id
    is_exact = not request.continue_latest or (
        answer.parent_checkpoint_id == request.checkpoint.parent_checkpoint_id
    )
    head = known_of(checkpoint_id, request.checkpoint, is_exact=is_exact)
    memory.put(draft.thread_id, draft.checkpoint_ns, head)
    return checkpoint_id


async def _parent(calls: AsyncCalls, draft: Draft, memory: Memory) -> KnownCheckpoint:
    head = memory.get(draft.thread_id, draft.checkpoint_ns)
    # A save that names the expected head follows that head.
    parent_id = draft.expected_head if draft.parent is None else draft.parent
    if parent_id is None:
        return head or NOTHING
    if parent_id == "":
        return NOTHING
    if head is not None and head.is_exact and parent_id == head.checkpoint_id:
        return head
    checkpoint = await calls.get_checkpoint(
        CheckpointRef(
            thread_id=draft.thread_id,
            checkpoint_ns=draft.checkpoint_ns,
            checkpoint_id=parent_id,
        )
    )
    if checkpoint is None:
        return KnownCheckpoint(parent_id)
    return known_of(checkpoint.ref.checkpoint_id, checkpoint)


async def save_inlining(
    calls: AsyncCalls,
    request: SaveCheckpointRequest,
    inline: Callable[[Collection[str] | None], None],
) -> SaveCheckpointResponse:
    """Save a checkpoint; send values that the service does not have with another attempt.

    Args:
        calls: The calls of the client.
        request: The save.
        inline: Puts the values of some channels into the request; `None` means all channels.
    """
    try:
        return await calls.save_checkpoint(request)
    except ValuesMissing as missing:
        inline(missing.channels)
    try:
        return await calls.save_checkpoint(request)
    except ValuesMissing:
        # Trailers are bounded, so a refusal names only as many channels as fit.
        inline(None)
    return await calls.save_checkpoint(request)
