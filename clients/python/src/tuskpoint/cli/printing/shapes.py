"""Output of `--json`: the client's records as JSON objects with stable snake_case keys. Pure.

Times are ISO 8601 in UTC, durations are seconds (`_s`), sizes are bytes. Every key is
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
    from ..._messages.lineage.offers import OfferRecord
    from ..._messages.lineage.verification import CheckpointVerdict, Verification
    from ..._messages.records import CheckpointRecord, LeaseRecord
    from ..._messages.reports import ManifestRecord, ThreadRecord
    from ..._messages.retention import RetentionPreview, RetentionRule
    from ..._messages.search import SearchResults

Shape = dict[str, Any]

# Characters that are valid in JSON and control a terminal: controls outside of ASCII, line
# separators, and characters that change the direction of writing. They occur only within texts,
# where an escape has the same meaning.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def time(moment: datetime | None) -> str | None:
    """Return a time as a JSON value."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def seconds(length: timedelta | None) -> float | None:
    """Return a duration as a JSON value."""
    return None if length is None else length.total_seconds()


def record(content: Any) -> Any:
    """Return a record of the client, or a value in it, as a JSON value."""
    if is_dataclass(content) and not isinstance(content, type):
        return {key: record(value) for key, value in asdict(content).items()}
    if isinstance(content, dict):
        return {key: record(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [record(value) for value in content]
    if isinstance(content, datetime):
        return time(content)
    if isinstance(content, timedelta):
        return content.total_seconds()
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    return content


def offer(offer_record: OfferRecord) -> Shape:
    """Return an offer of a hand-off; its descriptor has the keys of a descriptor."""
    descriptor = offer_record.descriptor
    return {
        "handoff_id": offer_record.handoff_id,
        "to_agent": offer_record.to_agent,
        "state": offer_record.state,
        "adopted_thread_id": offer_record.adopted_thread_id,
        "created": time(offer_record.created),
        "expires": time(offer_record.expires),
        "closed": time(offer_record.closed),
        "descriptor": descriptor.as_dict() if descriptor is not None else None,
    }


def thread(thread_record: ThreadRecord, *, is_whole: bool) -> Shape:
    """Return the shape of a thread. In a listing, `heads` and `uncertified_count` are null."""
    return {
        "thread_id": thread_record.thread_id,
        "incarnation": thread_record.incarnation,
        "agent_id": thread_record.agent_id,
        "state": thread_record.state,
        "head_checkpoint_id": thread_record.head_checkpoint_id,
        "created": time(thread_record.created),
        "updated": time(thread_record.updated),
        "expires": time(thread_record.expires),
        "retention_s": seconds(thread_record.retention),
        "searchable": thread_record.searchable,
        "heads": dict(thread_record.heads) if is_whole else None,
        "checkpoint_count": thread_record.checkpoint_count,
        "uncertified_count": thread_record.uncertified_count if is_whole else None,
        "summary": thread_record.summary,
        "question": record(thread_record.question),
        "failure": record(thread_record.failure),
        "lease": lease(thread_record.lease),
    }


def lease(lease_record: LeaseRecord | None) -> Shape | None:
    """Return the shape of a lease without its ID; `None` for no lease."""
    if lease_record is None:
        return None
    return {
        "owner": lease_record.owner,
        "fence": lease_record.fence,
        "advisory": lease_record.advisory,
        "acquired": time(lease_record.acquired),
        "expires": time(lease_record.expires),
        "ttl_s": seconds(lease_record.ttl),
    }


def preview(retention: RetentionPreview) -> Shape:
    """Return the shape of a retention preview."""
    return {**record(retention), "rules": [rule(each) for each in retention.rules]}


def rule(retention_rule: RetentionRule) -> Shape:
    """Return the shape of a retention rule."""
    shape = asdict(retention_rule)
    for name in ("delete_after", "keep_for"):
        shape[f"{name}_s"] = seconds(shape.pop(name))
    return shape


def manifest_entry(stored: ManifestRecord) -> Shape:
    """Return the shape of a stored checkpoint in the manifest of its thread."""
    shape: Shape = record(stored)
    shape["write_segments"] = shape.pop("writes")
    return shape


def entry(checkpoint_record: CheckpointRecord) -> Shape:
    """Return the shape of a checkpoint without its state.

    `step` is null unless the checkpoint was read with its step.
    """
    return {
        "thread_id": checkpoint_record.thread_id,
        "checkpoint_ns": checkpoint_record.checkpoint_ns,
        "checkpoint_id": checkpoint_record.checkpoint_id,
        "parent_checkpoint_id": checkpoint_record.parent_checkpoint_id,
        "agent_id": checkpoint_record.agent_id,
        "created": time(checkpoint_record.created),
        "summary": checkpoint_record.summary,
        "label": checkpoint_record.label,
        "metadata": dict(checkpoint_record.metadata),
        "lineage": asdict(checkpoint_record.lineage),
        "seq": checkpoint_record.seq,
        "durability": checkpoint_record.durability,
        "location": None
        if checkpoint_record.location is None
        else asdict(checkpoint_record.location),
        "step": record(checkpoint_record.step),
    }


def checkpoint(checkpoint_record: CheckpointRecord) -> Shape:
    """Return the shape of a checkpoint in the JSON view, with its state and pending writes."""
    return {
        **entry(checkpoint_record),
        "state": checkpoint_record.state,
        "writes": [
            {
                "task_id": write.task_id,
                "task_path": write.task_path,
                "idx": write.idx,
                "channel": write.channel,
                "value": write.value,
            }
            for write in checkpoint_record.writes
        ],
    }


def event(change: ThreadEvent, *, with_state: bool) -> Shape:
    """Return the shape of a change of a thread."""
    shape = None
    if change.checkpoint is not None:
        shape = checkpoint(change.checkpoint) if with_state else entry(change.checkpoint)
    return {
        "kind": change.kind,
        "seq": change.seq,
        "incarnation": change.incarnation,
        "time": time(change.time),
        "cursor": base64.b64encode(change.cursor).decode(),
        "deleted_checkpoints": change.deleted_checkpoints,
        "checkpoint": shape,
    }


def difference(diff: Diff) -> Shape:
    """Return the shape of a difference between two checkpoints."""
    return {"changes": [asdict(change) for change in diff.changes], "truncated": diff.truncated}


def verdict(checkpoint_verdict: CheckpointVerdict) -> Shape:
    """Return the shape of the verdict on a stored checkpoint."""
    return {"kind": "verdict", **asdict(checkpoint_verdict)}


def verification(outcome: Verification) -> Shape:
    """Return the shape of a verification without its failures, which precede it as verdicts."""
    total = asdict(outcome)
    del total["failures"]
    return {"kind": "total", **total}


def search(results: SearchResults) -> Shape:
    """Return the shape of a search: its results and its mode."""
    return {
        "mode": results.mode,
        "metric": results.metric,
        "unindexed": results.unindexed,
        "truncated": results.truncated,
        "warnings": [asdict(warning) for warning in results.warnings],
        "results": [asdict(result) for result in results],
    }


def text(shape: Any, *, is_unicode: bool, indent: int | None = None) -> str:
    """Return a shape as JSON text in which all characters that control a terminal are escaped.

    Args:
        shape: The shape.
        is_unicode: Whether the text may contain characters outside of ASCII.
        indent: Spaces for each level, for people. Without `indent`, the text is one line.
    """
    json_text = json.dumps(shape, ensure_ascii=not is_unicode, indent=indent)
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)
