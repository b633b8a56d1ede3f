"""Where checkpoints come from: lineage, closures, hand-offs and rollbacks."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import IntEnum

from tuskpoint.v1 import checkpoint_pb2

from .formats.segments import DeltaChannel, DeltaSeed, DeltaWrite, encode_delta_base
from .formats.stored_json import dump
from .limits import LIMITS
from .metadata import parse_metadata
from .model import Checkpoint, CheckpointKey, DeltaHistory, Entry, Metadata, State, Value
from .state import encode_state


class Descent(IntEnum):
    """How one checkpoint came from another. Numbers are those of the contract."""

    FORK = 1
    ADOPTION = 2
    ROLLBACK = 3


@dataclass(frozen=True, slots=True)
class LineageStep:
    """One checkpoint that came from another."""

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
class ClosureMember:
    """A checkpoint that is needed to go on from another, or that other itself."""

    checkpoint: Checkpoint  # the checkpoint, with its state and its pending writes
    # what its delta channels are rebuilt from: of each channel that the checkpoint does not store
    # itself, the seed and the writes since
    histories: tuple[DeltaHistory, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and ID of the checkpoint."""
        key = self.checkpoint.entry.key
        return (key.checkpoint_ns, key.checkpoint_id)

    @property
    def state(self) -> State:
        """Its state.

        Raises:
            ValueError: It came without one.
        """
        if self.checkpoint.state is None:
            raise ValueError(f"checkpoint {self.checkpoint.entry.key} came without its state")
        return self.checkpoint.state

    @property
    def stored_state(self) -> bytes:
        """Its state as it is stored."""
        return encode_state(self.state.frame, self.state.channels)

    @property
    def delta_base(self) -> bytes:
        """What its delta channels are rebuilt from, as it is stored; empty: nothing."""
        return encode_delta_base(
            _delta_channel(one) for one in self.histories if one.seed or one.writes
        )

    def values(self) -> dict[bytes, Value]:
        """Return the values of its state and of what its delta channels are rebuilt from.

        Raises:
            ValueError: A value is not there.
        """
        found: dict[bytes, Value] = {}
        seeds = (one.seed for one in self.histories if one.seed is not None)
        for channel in (*self.state.channels, *seeds):
            if channel.digest is not None:
                if channel.value is None:
                    raise ValueError(f"channel {channel.name} has a digest and no content")
                found[channel.digest] = channel.value
        for history in self.histories:
            found.update((write.digest, write.value) for write in history.writes)
        return found


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything needed to go on from a checkpoint."""

    key: CheckpointKey  # the checkpoint
    # it, and what subgraphs tied to it stand at; by namespace and ID
    members: tuple[ClosureMember, ...]
    seq: int = 0  # last change of the thread when the closure was read; 0 if it came from elsewhere


def _delta_channel(history: DeltaHistory) -> DeltaChannel:
    seed = history.seed
    return DeltaChannel(
        history.channel,
        None
        if seed is None or seed.digest is None
        else DeltaSeed(seed.version, seed.digest, seed.size),
        tuple(
            DeltaWrite(
                *(write.task_path, write.task_id, write.idx, write.digest),
                *(write.value.type, len(write.value.data)),
            )
            for write in history.writes
        ),
    )


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Its fields are the seven keys of the JSON form; see `HandoffDescriptor`."""

    source: str
    thread_id: str
    checkpoint_id: str
    blob_id: str
    blob_sha256: str
    to_agent: str
    summary: str


def source_of(thread_id: str, checkpoint_id: str) -> str:
    """Return "thread:checkpoint", what `Descriptor.source` must be."""
    return str(CheckpointKey(thread_id, "", checkpoint_id))


def entry_summary(entry: Entry) -> str:
    """Return the summary of a checkpoint; where nobody wrote one, a sentence that finds it."""
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
    """Return the JSON form."""
    return dump(asdict(descriptor))


def decode_descriptor(encoded: bytes) -> Descriptor:
    """Return what `encode_descriptor` wrote."""
    return Descriptor(**json.loads(encoded))


BEFORE_FIRST_STEP = -2
"""LangGraph's `step` of a thread that has no checkpoint yet."""


def rollback_metadata(raw: bytes, namespace: str, root_id: str) -> Metadata:
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


def empty_rollback_metadata(root_id: str) -> Metadata:
    """Return the metadata of a subgraph that is taken back to before its first run."""
    metadata = {"source": "fork", "step": BEFORE_FIRST_STEP, "parents": {"": root_id}}
    return parse_metadata(json.dumps(metadata, separators=(",", ":")).encode(), "metadata_json")


def rollback_frame(frame: bytes, now_us: int) -> bytes:
    """Return the frame of a rollback: the earlier one's, made now."""
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    if state.ts:
        state.ts = datetime.fromtimestamp(now_us / 1e6, UTC).isoformat()
    return state.SerializeToString(deterministic=True)


def empty_rollback_frame(frame: bytes, now_us: int) -> bytes:
    """Return a frame without any state, in the layout of another."""
    state = checkpoint_pb2.CheckpointState.FromString(frame)
    empty = checkpoint_pb2.CheckpointState(schema_version=state.schema_version, ts=state.ts)
    return rollback_frame(empty.SerializeToString(deterministic=True), now_us)


def rollback_summary(reference: str, summary: str) -> str:
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
