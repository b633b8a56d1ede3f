"""Minted IDs, lineage, hand-offs and rollbacks.

A minted ID sorts, by code point, after all others of its namespace. It is a UUID of version 6
(RFC 9562, section 5.6), whose text sorts by time. If a caller's ID such as `cp-001` sorts after
every UUIDv6, the minted ID is that ID, a dash and a UUIDv6. The next one keeps `cp-001-`, so that
IDs do not grow and the caller's `cp-002` sorts after them all.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import IntEnum

from tuskpoint.v1 import checkpoint_pb2

from .errors import invalid_field
from .limits import LIMITS
from .model import CheckpointEntry, CheckpointKey

_GREGORIAN_OFFSET = 0x01B21DD213814000  # 100 ns between 1582-10-15 and the Unix epoch
_UUID6 = "[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_UUID6_BEHIND = re.compile(f"(.*-)({_UUID6})", re.DOTALL)
_GENERATED = re.compile(f"(.*-)?{_UUID6}", re.DOTALL)
_UUID_CHARS, _ENTROPY_CHARS = 36, 17  # of a UUID, and of its end with the random bits


def mint_checkpoint_id(
    now_us: int, entropy: int, above: str, *, field: str = "checkpoint.ref.checkpoint_id"
) -> str:
    """Return an ID with the present time and 62 bits of entropy, above the namespace's greatest ID.

    If the ID would be too long, the named field of the request is refused (`INVALID_FIELD`).
    """
    ticks = now_us * 10 + _GREGORIAN_OFFSET
    prefix, last = _split(above)
    for minted in (
        _uuid6(ticks, entropy),
        _uuid6(max(ticks, _ticks_of(above) + 1), entropy),
        prefix + _uuid6(max(ticks, _ticks_of(last) + 1), entropy),
        f"{above}-{_uuid6(ticks, entropy)}",
    ):
        if minted > above and len(minted.encode()) <= LIMITS.max_checkpoint_id:
            return minted
    raise invalid_field(
        field,
        f"no ID of at most {LIMITS.max_checkpoint_id} bytes can be made that sorts after the "
        f"namespace's greatest, '{above}'; save under an ID of your own that does",
    )


def entropy_of(checkpoint_id: str) -> int:
    """Return the 62 bits of entropy of an ID that ends with a UUIDv6."""
    return uuid.UUID(checkpoint_id[-_UUID_CHARS:]).int & ((1 << 62) - 1)


def random_end_of(checkpoint_id: str) -> str:
    """Return the characters with the entropy of an ID that ends with a UUIDv6."""
    return checkpoint_id[-_ENTROPY_CHARS:]


def generated_us(checkpoint_id: str) -> int:
    """Return the time in an ID that is or ends with a UUIDv6, in microseconds; 0 in other IDs."""
    if not is_generated(checkpoint_id):
        return 0
    return (_ticks_of(checkpoint_id[-_UUID_CHARS:]) - _GREGORIAN_OFFSET) // 10


def first_id_at(at_us: int) -> str:
    """Return the least UUIDv6 of a time in microseconds since the epoch."""
    return _uuid6(at_us * 10 + _GREGORIAN_OFFSET, 0)


def is_generated(checkpoint_id: str) -> bool:
    """Return whether an ID is or ends with a UUIDv6."""
    return _GENERATED.fullmatch(checkpoint_id) is not None


def mint_next_checkpoint_id(now_us: int, entropy: int, above: str, *, field: str) -> str:
    """Return the ID next after `above`; arguments and refusal as for `mint_checkpoint_id`.

    The ID does not have the present time: IDs of agents whose clocks are behind would sort below.
    """
    prefix, last = _split(above)
    ticks = _ticks_of(last)
    minted = prefix + _uuid6(ticks + 1, entropy) if ticks else ""
    return minted if minted > above else mint_checkpoint_id(now_us, entropy, above, field=field)


def _split(checkpoint_id: str) -> tuple[str, str]:
    """Return the prefix of an ID that ends with a UUIDv6, and the UUID; otherwise "" and the ID."""
    match = _UUID6_BEHIND.fullmatch(checkpoint_id)
    return (match[1], match[2]) if match else ("", checkpoint_id)


def _uuid6(ticks: int, entropy: int) -> str:
    ticks &= (1 << 60) - 1
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64
    number |= 0b10 << 62 | entropy & ((1 << 62) - 1)
    return str(uuid.UUID(int=number))


def _ticks_of(checkpoint_id: str) -> int:
    try:
        number = uuid.UUID(checkpoint_id).int
    except ValueError:
        return 0
    return (number >> 80) << 12 | (number >> 64) & 0xFFF


class Descent(IntEnum):
    """How a checkpoint came from another checkpoint. The contract defines the numbers."""

    FORK = 1
    ADOPTION = 2
    ROLLBACK = 3


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A checkpoint that came from another checkpoint."""

    descent: Descent
    origin: CheckpointKey
    key: CheckpointKey
    created_us: int


@dataclass(frozen=True, slots=True)
class LineageTree:
    """Steps that lead to a thread, oldest first, and from it, nearest first."""

    ancestors: tuple[LineageStep, ...]
    descendants: tuple[LineageStep, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Descriptor of a hand-off. The fields are the keys of the JSON; see `HandoffDescriptor`."""

    source: str  # as `str(CheckpointKey)`
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str
    key: str = ""
    signer: str = ""
    signature: str = ""
    sealed_key: str = ""


def entry_summary(entry: CheckpointEntry) -> str:
    """Return the summary of a checkpoint, or a generated sentence that search can find."""
    if entry.summary:
        return entry.summary
    metadata = json.loads(entry.metadata)
    step, source = metadata.get("step"), metadata.get("source")
    if not isinstance(step, int) or isinstance(step, bool):
        return f"Checkpoint {entry.key.checkpoint_id} of thread {entry.key.thread_id}."
    cause = f" ({source})" if source in _LANGGRAPH_SOURCES else ""
    return f"Step {step}{cause} of thread {entry.key.thread_id}."


_LANGGRAPH_SOURCES = ("input", "loop", "update", "fork")
"""Values of `source` in the metadata that LangGraph writes."""


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """Return the canonical JSON form."""
    content = asdict(descriptor)
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def encode_offered(descriptor: bytes, handoff_id: str) -> bytes:
    """Return an encoded descriptor with the ID of its offer."""
    content = json.loads(descriptor) | {"handoff_id": handoff_id}
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def decode_offered(encoded: bytes) -> tuple[Descriptor, str]:
    """Decode a descriptor with or without the ID of an offer; empty: none."""
    content = json.loads(encoded)
    handoff_id = content.pop("handoff_id", "")
    return Descriptor(**content), handoff_id


BEFORE_FIRST_STEP = -2  # LangGraph's `step` of a thread without checkpoints


def rollback_metadata(raw: bytes, namespace: str, root_id: str) -> bytes:
    """Return the metadata of a rollback, from the metadata of the earlier checkpoint.

    `run_id` is removed, because no run made the rollback; in a subgraph `parents[""]` becomes
    `root_id`, the ID of the root's rollback (otherwise empty). `source` stays: for a checkpoint
    whose source is "fork", LangGraph looks for subgraphs by the parent's ID, and would miss their
    writes (langgraph/pregel/_loop.py).
    """
    members = _members(raw.decode())
    members.pop("run_id", None)
    if namespace and root_id:
        parents = _members(members.get("parents", "{}").partition(":")[2])
        parents[""] = f'"":{json.dumps(root_id)}'
        members["parents"] = f'"parents":{_object(parents)}'
    return _object(members).encode()


def empty_rollback_metadata(root_id: str) -> bytes:
    """Return the metadata of a subgraph that is rolled back to before its first run."""
    metadata = {"source": "fork", "step": BEFORE_FIRST_STEP, "parents": {"": root_id}}
    return json.dumps(metadata, separators=(",", ":")).encode()


def rollback_frame(frame: bytes, now_us: int, *, empty: bool = False) -> bytes:
    """Return the frame of a rollback: the earlier checkpoint's, or an empty frame of now."""
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    if empty:
        state = checkpoint_pb2.CheckpointState(schema_version=state.schema_version, ts=state.ts)
    if state.ts:
        state.ts = datetime.fromtimestamp(now_us / 1e6, UTC).isoformat()
    return state.SerializeToString(deterministic=True)


def rollback_summary(earlier: CheckpointKey, summary: str) -> str:
    """Return the summary of a rollback, cut to the limit.

    If the earlier checkpoint is a rollback, the sentence about that rollback is left out. A fork or
    a snapshot of a rollback has the sentence too, but not the lineage.
    """
    thread = re.escape(earlier.thread_id)
    summary = re.sub(
        rf"\ARolled back to (?:{thread}:\S+?|.*?:\S*?{_UUID6})(?:: |\.\Z)", "", summary
    )
    sentence = f"Rolled back to {earlier}"
    sentence += f": {summary}" if summary else "."
    return sentence.encode()[: LIMITS.max_summary].decode(errors="ignore")


_decode = json.JSONDecoder().raw_decode
_GAP = re.compile(r"[ \t\n\r:,]*")


def _members(text: str) -> dict[str, str]:
    """Return the members of a JSON object in their spelling; empty for another value.

    So numbers without an equal in Python, and the size of the text, stay the same.
    """
    members: dict[str, str] = {}
    at = _past_gap(text, 0)
    if not text.startswith("{", at):
        return members
    at = _past_gap(text, at + 1)
    while text[at] != "}":
        name, name_end = _decode(text, at)
        value = _past_gap(text, name_end)
        _, end = _decode(text, value)
        members[name] = f"{text[at:name_end]}:{text[value:end]}"
        at = _past_gap(text, end)
    return members


def _object(members: dict[str, str]) -> str:
    return "{" + ",".join(members.values()) + "}"


def _past_gap(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at
