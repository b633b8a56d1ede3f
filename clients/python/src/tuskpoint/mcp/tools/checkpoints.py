"""Tools that save, load, list, compare and search checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ..._messages.checkpoints.steps import StepRecord
from ..._messages.lineage.differences import Change
from ..._messages.records import CheckpointRecord, DurabilityName
from ...aio import AsyncClient
from ..reading import (
    PAGE_CHARS,
    Limit,
    MaxChars,
    cut,
    failure_text,
    fitting,
    is_deep,
    json_text,
    moment,
    open_question,
    page,
    parsed,
)
from ..reading import part as part_of
from ..results import (
    Checkpoints,
    Difference,
    Entry,
    Found,
    FromTo,
    Loaded,
    Omitted,
    Part,
    Saved,
    SearchAnswer,
)

_FOUND_CHARS = 500
_METADATA_PART = 4  # metadata may fill a quarter of a result
_MAX_CHANGES = 1_000
_MAX_NODES = 20

ThreadId = Annotated[str, Field(description="The thread: one run of an agent.")]
Namespace = Annotated[
    str, Field(description="The namespace of a subgraph in the thread. Default: the root.")
]


async def checkpoint_save(
    client: AsyncClient,
    thread_id: ThreadId,
    state_json: Annotated[
        str, Field(description='The state as a JSON object: {"channel": value, ...}.')
    ],
    summary: Annotated[str, Field(description="One sentence about what happened.")] = "",
    label: Annotated[str, Field(description="A name for the checkpoint.")] = "",
    agent_id: Annotated[str, Field(description="The agent that drives the thread.")] = "",
    expected_head: Annotated[
        str | None,
        Field(description="Save only if this is the latest checkpoint; empty: if there is none."),
    ] = None,
    durability: Annotated[
        DurabilityName, Field(description='"certified" waits for the blob store.')
    ] = "journaled",
) -> Saved:
    """Save the state of an agent as the next checkpoint of a thread.

    The first save creates the thread. Nothing is overwritten: earlier checkpoints stay.
    """
    state = parsed("state_json", state_json, 'write an object: {"key": value}')
    if not isinstance(state, dict):
        raise ToolError('state_json is not a JSON object; write {"key": value}')
    checkpoint_id = await client.save(
        thread_id,
        state,
        summary=summary,
        label=label,
        agent_id=agent_id,
        expected_head=expected_head,
        durability=durability,
        metadata={"source": "mcp"},
    )
    blob_id = None
    if durability == "certified":
        blob_id = _blob_id(await client.load(thread_id, checkpoint_id, view="entry"))
    return Saved(
        thread_id=thread_id, checkpoint_id=checkpoint_id, blob_id=blob_id, durability=durability
    )


async def checkpoint_load(
    client: AsyncClient,
    thread_id: ThreadId,
    checkpoint_id: Annotated[
        str | None, Field(description="The exact checkpoint. Default: the latest.")
    ] = None,
    checkpoint_ns: Namespace = "",
    channel: Annotated[
        str | None, Field(description="Only this channel of the state, in parts if it is long.")
    ] = None,
    offset: Annotated[
        int,
        Field(
            ge=0,
            description="Read on at this character of the JSON text of `channel`, or of the "
            "whole state without one.",
        ),
    ] = 0,
    max_chars: MaxChars = PAGE_CHARS,
) -> Loaded:
    """Load a checkpoint with its state, as plain data whatever framework saved it.

    A long state is cut: `omitted` names the channels that did not fit. Read one with `channel`, and
    a channel that is itself too long in parts: give `part.next_offset` as `offset`, and name
    the `checkpoint_id`, so that all parts are of one checkpoint.
    """
    checkpoint = await client.load(
        thread_id, checkpoint_id or None, checkpoint_ns=checkpoint_ns, view="json"
    )
    stepped = await client.load(
        thread_id, checkpoint.checkpoint_id, checkpoint_ns=checkpoint_ns, view="step"
    )
    checkpoint = replace(checkpoint, step=stepped.step)
    state = checkpoint.state
    if channel is None and not offset:
        shown, omitted = fitting(state, max_chars)
        return _loaded(checkpoint, max_chars, state=shown, omitted=omitted, truncated=bool(omitted))
    piece = part_of(state, channel, offset, max_chars)
    if channel is not None and not offset and piece.next_offset is None:
        shown = {channel: state[channel]}
        return _loaded(checkpoint, max_chars, state=shown, truncated=len(state) > 1)
    return _loaded(checkpoint, max_chars, part=piece, truncated=True)


async def checkpoint_resume(
    client: AsyncClient, thread_id: ThreadId, max_chars: MaxChars = PAGE_CHARS
) -> Loaded:
    """Load the latest checkpoint of a thread, to continue its work.

    A long state is cut as in checkpoint_load, which reads the remaining parts.
    """
    return await checkpoint_load(client, thread_id, max_chars=max_chars)


async def checkpoint_list(
    client: AsyncClient,
    thread_id: ThreadId,
    limit: Limit = 50,
    before: Annotated[str, Field(description="Only checkpoints whose ID is below this one.")] = "",
    label: Annotated[str, Field(description="Only checkpoints with this label.")] = "",
    checkpoint_ns: Namespace = "",
) -> Checkpoints:
    """List the checkpoints of a thread, newest first, without their states."""
    checkpoints = client.list(
        thread_id,
        checkpoint_ns=checkpoint_ns,
        before=before,
        label=label,
        limit=limit + 1,
        view="step",
    )
    entries = [_entry(checkpoint) async for checkpoint in checkpoints]
    if not entries:
        await client.get_thread(thread_id)  # a listing does not raise for a missing thread
    shown, is_more = page(entries, limit, PAGE_CHARS)
    return Checkpoints(
        thread_id=thread_id,
        count=len(shown),
        checkpoints=shown,
        next_before=shown[-1].checkpoint_id if is_more else None,
    )


async def checkpoint_diff(
    client: AsyncClient,
    thread_id: ThreadId,
    id_a: Annotated[str, Field(description="The first checkpoint.")],
    id_b: Annotated[str, Field(description="The second checkpoint.")],
    checkpoint_ns: Namespace = "",
    max_chars: MaxChars = PAGE_CHARS,
) -> Difference:
    """Compare the states of two checkpoints of a thread.

    Each key is a channel and the JSON Pointer of the difference inside the channel. The server cuts
    long values; cut values are shown as text.
    """
    diff = await client.diff(
        thread_id, id_a, id_b, checkpoint_ns=checkpoint_ns, max_changes=_MAX_CHANGES
    )
    difference = Difference(
        thread_id=thread_id,
        id_a=id_a,
        id_b=id_b,
        added={},
        removed={},
        changed={},
        human_readable="",
        truncated=diff.truncated,
    )
    lines: list[str] = []
    room = max_chars
    for change in diff.changes:
        room -= 2 * len(
            (change.from_json or "") + (change.to_json or "") + change.channel + change.path
        )
        if lines and room < 0:
            difference.truncated = True
            break
        lines.append(_add_change(difference, change))
    difference.human_readable = "\n".join(lines) or "(no differences)"
    return difference


def _add_change(difference: Difference, change: Change) -> str:
    """Add a change to a difference; return its line for people."""
    place = change.channel + change.path
    before, after = change.from_json or "", change.to_json or ""
    if change.kind == "added":
        difference.added[place] = _value(after)
        return f"+ {place}: {after}"
    if change.kind == "removed":
        difference.removed[place] = _value(before)
        return f"- {place}: {before}"
    difference.changed[place] = FromTo.model_validate({"from": _value(before), "to": _value(after)})
    return f"~ {place}: {before} -> {after}"


def _value(text: str) -> Any:
    """Return the value of JSON text, or the text itself if the server cut it."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def checkpoint_search(
    client: AsyncClient,
    query: Annotated[
        str, Field(description="What happened, in plain words; in double quotes, exactly these.")
    ],
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many.")] = 5,
    thread_id: Annotated[str, Field(description="Only this thread. Default: all.")] = "",
    agent_id: Annotated[str, Field(description="Only threads of this agent. Default: all.")] = "",
) -> SearchAnswer:
    """Find past checkpoints by words, nearest first. checkpoint_load then loads one exactly."""
    hits = await client.search_history(
        query, limit, thread_id=thread_id or None, agent_id=agent_id or None
    )
    results = [
        Found(
            text=cut(hit.content, _FOUND_CHARS),
            distance=hit.distance,
            thread_id=hit.thread_id,
            checkpoint_id=hit.checkpoint_id,
            checkpoint_ns=hit.checkpoint_ns,
            summary=cut(hit.summary, _FOUND_CHARS),
        )
        for hit in hits
    ]
    shown, is_more = page(results, limit, PAGE_CHARS)
    return SearchAnswer(
        query=query,
        mode=hits.mode,
        results=shown,
        truncated=is_more,
        warnings=[warning.message for warning in hits.warnings],
    )


def _loaded(
    checkpoint: CheckpointRecord,
    max_chars: int,
    *,
    truncated: bool,
    state: Mapping[str, Any] | None = None,
    omitted: Sequence[Omitted] = (),
    part: Part | None = None,
) -> Loaded:
    metadata = dict(checkpoint.metadata)
    is_shown = not is_deep(metadata) and len(json_text(metadata)) <= max_chars // _METADATA_PART
    return Loaded(
        **_common(checkpoint),
        thread_id=checkpoint.thread_id,
        metadata=metadata if is_shown else None,
        state=dict(state or {}),
        truncated=truncated or any(map(_is_opaque, checkpoint.state.values())),
        omitted=list(omitted),
        part=part,
    )


def _is_opaque(value: Any) -> bool:
    """Return whether the view of a channel has the size of its value instead of the value."""
    return isinstance(value, dict) and "$opaque" in value


def _entry(checkpoint: CheckpointRecord) -> Entry:
    return Entry(**_common(checkpoint))


def _common(checkpoint: CheckpointRecord) -> dict[str, Any]:
    step = checkpoint.step or StepRecord()
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "checkpoint_ns": checkpoint.checkpoint_ns,
        "parent_checkpoint_id": checkpoint.parent_checkpoint_id or None,
        "timestamp": None if checkpoint.created is None else moment(checkpoint.created),
        "summary": checkpoint.summary,
        "label": checkpoint.label,
        "durability": checkpoint.durability,
        "blob_id": _blob_id(checkpoint),
        "forked_from": checkpoint.lineage.forked_from or None,
        "rolled_back_from": checkpoint.lineage.rolled_back_from or None,
        "adopted_from": checkpoint.lineage.adopted_from or None,
        "next_nodes": list(step.next_nodes[:_MAX_NODES]),
        "question": open_question(step),
        "failure": failure_text(step.failures[0] if step.failures else None),
    }


def _blob_id(checkpoint: CheckpointRecord) -> str | None:
    return None if checkpoint.location is None else checkpoint.location.blob_id
