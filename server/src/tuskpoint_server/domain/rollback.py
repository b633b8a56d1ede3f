"""What a checkpoint is like that takes a thread back to an earlier one.

It is the earlier one again, under a new ID, with the same parent: delta channels are
rebuilt from the same ancestors.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from tuskpoint.v1 import checkpoint_pb2

from .limits import LIMITS
from .metadata import parse_metadata
from .model import Metadata

BEFORE_FIRST_STEP = -2
"""LangGraph's `step` of a thread that has no checkpoint yet."""


def metadata_of(raw: bytes, namespace: str, root_id: str) -> Metadata:
    """Return the metadata of a rollback.

    That of the earlier checkpoint, without `run_id`, because no run made it; in a subgraph
    `parents[""]` is the root's rollback. `source` stays: below a checkpoint whose source is
    "fork" LangGraph looks for subgraphs by the parent's ID, and would miss what they did
    after it (langgraph/pregel/_loop.py).

    Args:
        raw: Metadata of the earlier checkpoint.
        namespace: Its namespace.
        root_id: The root's rollback; empty if that is what this is.
    """
    members = _members(raw.decode())
    members.pop("run_id", None)
    if namespace and root_id:
        parents = _members(members.get("parents", "{}"))
        members["parents"] = _object({**parents, "": json.dumps(root_id)})
    return parse_metadata(_object(members).encode(), "metadata_json")


def metadata_of_nothing(root_id: str) -> Metadata:
    """Return the metadata of a subgraph that is taken back to before its first run."""
    metadata = {"source": "fork", "step": BEFORE_FIRST_STEP, "parents": {"": root_id}}
    return parse_metadata(json.dumps(metadata, separators=(",", ":")).encode(), "metadata_json")


def frame_of(frame: bytes, now_us: int) -> bytes:
    """Return the frame of a rollback: the earlier one's, made now."""
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    if state.ts:
        state.ts = datetime.fromtimestamp(now_us / 1e6, UTC).isoformat()
    return state.SerializeToString(deterministic=True)


def frame_of_nothing(frame: bytes, now_us: int) -> bytes:
    """Return a frame without any state, in the layout of another."""
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    empty = checkpoint_pb2.CheckpointState(schema_version=state.schema_version, ts=state.ts)
    return frame_of(empty.SerializeToString(deterministic=True), now_us)


def summary_of(reference: str, summary: str) -> str:
    """Return a sentence that says what was rolled back to, within the limit.

    Args:
        reference: "thread:checkpoint".
        summary: Summary of that checkpoint, or empty.
    """
    sentence = f"Rolled back to {reference}"
    sentence += f": {summary}" if summary else "."
    return sentence.encode()[: LIMITS.max_summary].decode(errors="ignore")


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def _members(text: str) -> dict[str, str]:
    """Return the members of a JSON object, each value as it is spelled; empty for another value.

    A number that Python has no equal of, or the size of a text, is not changed this way.
    """
    at = _past_space(text, 0)
    if text[at] != "{":
        return {}
    members: dict[str, str] = {}
    at = _past_space(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        start = _past_space(text, _past_space(text, at) + 1)  # past the colon
        _, end = _DECODER.raw_decode(text, start)
        members[name] = text[start:end]
        at = _past_space(text, end)
        if text[at] == ",":
            at = _past_space(text, at + 1)
    return members


def _object(members: dict[str, str]) -> str:
    # JSON can spell half of a surrogate pair, UTF-8 cannot: such a name stays spelled.
    named = (f"{_name(name)}:{value}" for name, value in members.items())
    return "{" + ",".join(named) + "}"


def _name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return json.dumps(name)
    return json.dumps(name, ensure_ascii=False)


def _past_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
