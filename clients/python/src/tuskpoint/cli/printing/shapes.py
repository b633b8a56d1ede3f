"""What `--json` prints: the client's records as JSON objects with stable snake_case keys. Pure.

Times are ISO 8601 in UTC, lengths of time are seconds (`_s`), sizes are bytes. Every key is
always present; a missing value is null.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..._messages.history import ThreadEvent
    from ..._messages.lineage.differences import Diff
    from ..._messages.lineage.verification import CheckpointVerdict, Verification
    from ..._messages.records import CheckpointRecord
    from ..._messages.reports import ThreadRecord
    from ..._messages.retention import RetentionPreview
    from ..._messages.search import SearchResults

Shape = dict[str, Any]

# What JSON lets stand and a terminal obeys: the controls that are not ASCII's first, and what
# breaks lines or turns the direction of writing. They occur within texts only, where an escape
# means the same.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def time(moment: datetime | None) -> str | None:
    """Return a time as JSON has it."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def record(one: Any) -> Any:
    """Return a record of the client, or what it holds, as JSON has it."""
    if is_dataclass(one) and not isinstance(one, type):
        return {key: record(value) for key, value in asdict(one).items()}
    if isinstance(one, dict):
        return {key: record(value) for key, value in one.items()}
    if isinstance(one, list | tuple):
        return [record(value) for value in one]
    if isinstance(one, datetime):
        return time(one)
    if isinstance(one, timedelta):
        return one.total_seconds()
    if isinstance(one, bytes):
        return base64.b64encode(one).decode()
    return one


def thread(one: ThreadRecord, *, is_whole: bool) -> Shape:
    """Return a thread; its numbers and heads are null in a listing, which does not have them."""
    return {
        "thread_id": one.thread_id,
        "incarnation": one.incarnation,
        "agent_id": one.agent_id,
        "state": one.state,
        "head_checkpoint_id": one.head_checkpoint_id,
        "created": time(one.created),
        "updated": time(one.updated),
        "expires": time(one.expires),
        "retention_s": None if one.retention is None else one.retention.total_seconds(),
        "searchable": one.searchable,
        "heads": dict(one.heads) if is_whole else None,
        "checkpoint_count": one.checkpoint_count if is_whole else None,
        "uncertified_count": one.uncertified_count if is_whole else None,
    }


def preview(one: RetentionPreview) -> Shape:
    """Return what retention rules would delete."""
    rules = []
    for rule in one.rules:
        shape = asdict(rule)
        for name in ("delete_after", "keep_for"):
            length = shape.pop(name)
            shape[f"{name}_s"] = None if length is None else length.total_seconds()
        rules.append(shape)
    return {**record(one), "rules": rules}


def entry(one: CheckpointRecord) -> Shape:
    """Return a checkpoint without its state."""
    return {
        "thread_id": one.thread_id,
        "checkpoint_ns": one.checkpoint_ns,
        "checkpoint_id": one.checkpoint_id,
        "parent_checkpoint_id": one.parent_checkpoint_id,
        "agent_id": one.agent_id,
        "created": time(one.created),
        "summary": one.summary,
        "label": one.label,
        "metadata": dict(one.metadata),
        "lineage": asdict(one.lineage),
        "seq": one.seq,
        "durability": one.durability,
        "location": None if one.location is None else asdict(one.location),
    }


def checkpoint(one: CheckpointRecord) -> Shape:
    """Return a checkpoint that was read in the JSON view, with its state and pending writes."""
    return {
        **entry(one),
        "state": one.state,
        "writes": [
            {
                "task_id": write.task_id,
                "task_path": write.task_path,
                "idx": write.idx,
                "channel": write.channel,
                "value": write.value,
            }
            for write in one.writes
        ],
    }


def event(one: ThreadEvent, *, with_state: bool) -> Shape:
    """Return a change of a thread."""
    shown = None
    if one.checkpoint is not None:
        shown = checkpoint(one.checkpoint) if with_state else entry(one.checkpoint)
    return {
        "kind": one.kind,
        "seq": one.seq,
        "incarnation": one.incarnation,
        "time": time(one.time),
        "cursor": base64.b64encode(one.cursor).decode(),
        "deleted_checkpoints": one.deleted_checkpoints,
        "checkpoint": shown,
    }


def difference(diff: Diff) -> Shape:
    """Return what differs between two checkpoints."""
    return {"changes": [asdict(one) for one in diff.changes], "truncated": diff.truncated}


def verdict(one: CheckpointVerdict) -> Shape:
    """Return what reading a stored checkpoint back showed."""
    return {"kind": "verdict", **asdict(one)}


def verification(one: Verification) -> Shape:
    """Return the outcome of a verification; its failures are among the verdicts before."""
    total = asdict(one)
    del total["failures"]
    return {"kind": "total", **total}


def search(results: SearchResults) -> Shape:
    """Return what a search found, and how."""
    return {
        "mode": results.mode,
        "metric": results.metric,
        "unindexed": results.unindexed,
        "truncated": results.truncated,
        "warnings": [asdict(one) for one in results.warnings],
        "results": [asdict(one) for one in results],
    }


def text(shape: Any, *, is_unicode: bool, indent: int | None = None) -> str:
    """Return a shape as JSON text, in which everything that a terminal would obey is escaped.

    Args:
        shape: The shape.
        is_unicode: Whether the text may hold more than ASCII.
        indent: Spaces of each level, for people; one line without.
    """
    written = json.dumps(shape, ensure_ascii=not is_unicode, indent=indent)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
