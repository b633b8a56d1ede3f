# Written by `make sync` from _async/saving.py; do not edit.
"""Saving a draft: which checkpoint it follows, and what is sent again after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from .._messages.saving import (
    MAX_FOLLOWS,
    NOTHING,
    Draft,
    Known,
    Memory,
    check_draft,
    known_of,
    put_inline,
    save_request,
)
from ..errors import Conflict, ThreadDeleted, ValuesMissing
from ..v1.checkpoint_pb2 import CheckpointRef
from ..v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse
from .calls import SyncCalls


def save_draft(calls: SyncCalls, draft: Draft, memory: Memory) -> str:
    """Save a draft and return the ID of the checkpoint.

    A save that follows the latest checkpoint names it as `expected_head`, so an outdated memory
    does no harm: the service refuses the save, and the next attempt follows the new latest.

    Args:
        calls: The calls.
        draft: What to save.
        memory: The checkpoints that this client saved last.

    Raises:
        InvalidRequest: A name or a text of the draft cannot be sent.
        Conflict: The latest is not `expected_head`, or it changed during `MAX_FOLLOWS` attempts.
        ThreadDeleted: `parent` belongs to a deleted thread.
    """
    check_draft(draft)
    follows_latest = draft.parent is None and draft.expected_head is None
    for _ in range(MAX_FOLLOWS):
        parent = _parent(calls, draft, memory)
        request = save_request(draft, parent)
        if follows_latest:
            request.expected_head = parent.checkpoint_id
        try:
            answer = save_inlining(calls, request, partial(put_inline, draft, request))
        except (Conflict, ThreadDeleted) as refusal:
            memory.forget(draft.thread_id)
            if not follows_latest:
                raise
            last = refusal
            continue
        saved = answer.ref.checkpoint_id
        memory.put(draft.thread_id, draft.checkpoint_ns, known_of(saved, request.checkpoint))
        return saved
    raise last


def _parent(calls: SyncCalls, draft: Draft, memory: Memory) -> Known:
    # A save that names the expected head follows it.
    wanted = draft.expected_head if draft.parent is None else draft.parent
    if wanted == "":
        return NOTHING
    known = memory.get(draft.thread_id, draft.checkpoint_ns)
    if known is not None and wanted in (None, known.checkpoint_id):
        return known
    found = calls.get_checkpoint(
        CheckpointRef(
            thread_id=draft.thread_id,
            checkpoint_ns=draft.checkpoint_ns,
            checkpoint_id=wanted or "",
        )
    )
    if found is None:
        return Known(wanted or "")
    return known_of(found.ref.checkpoint_id, found)


def save_inlining(
    calls: SyncCalls,
    request: SaveCheckpointRequest,
    inline: Callable[[Collection[str] | None], None],
) -> SaveCheckpointResponse:
    """Save a checkpoint; values that the service does not have are sent with another attempt.

    Args:
        calls: The calls.
        request: The save.
        inline: Puts the values of some channels into the request; `None` means all channels.
    """
    try:
        return calls.save_checkpoint(request)
    except ValuesMissing as missing:
        inline(missing.channels)
    try:
        return calls.save_checkpoint(request)
    except ValuesMissing:
        # Trailers are bounded, so a refusal names only as many channels as fit.
        inline(None)
    return calls.save_checkpoint(request)
