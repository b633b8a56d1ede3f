"""How `Client.save` decides what to send: parent, versions, and what is unchanged.

`save_steps` is a generator that does no I/O: it yields what is to be asked of the service and is
sent the answers. The sync and the async client drive the same steps.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ._checkpoint_ids import new_checkpoint_id
from .errors import Conflict, InvalidRequest, ThreadDeleted, ValuesMissing
from .v1.checkpoint_pb2 import ChannelNames, Checkpoint, CheckpointRef, CheckpointState, Durability
from .v1.checkpoint_service_pb2 import SaveCheckpointRequest, SaveCheckpointResponse
from .v1.value_pb2 import Channel, Value, Version

MAX_FOLLOWS = 16
_STATE_LAYOUT = 4  # the layout that LangGraph 1.x writes and reads without migrating
_LEADING_NUMBER = re.compile(r"[0-9]+")

Steps = Generator[
    CheckpointRef | SaveCheckpointRequest, Checkpoint | SaveCheckpointResponse | None, str
]


@dataclass(frozen=True, slots=True)
class Known:
    """What a client knows of a checkpoint that the next one may follow.

    Attributes:
        checkpoint_id: Its ID; empty stands for no checkpoint.
        parent_id: ID of its own parent; empty if it has none.
        channels: Channel to version and digest.
    """

    checkpoint_id: str = ""
    parent_id: str = ""
    channels: Mapping[str, tuple[Version, bytes]] = field(default_factory=dict)


NOTHING = Known()


class Memory:
    """The last checkpoints that a client saved, one per thread and namespace. Thread-safe.

    Args:
        size: Most entries; the one not used for longest goes first.
    """

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Known] = OrderedDict()

    def get(self, thread_id: str, checkpoint_ns: str) -> Known | None:
        """Return what was put last, if it is still remembered."""
        with self._lock:
            known = self._known.get((thread_id, checkpoint_ns))
            if known is not None:
                self._known.move_to_end((thread_id, checkpoint_ns))
            return known

    def put(self, thread_id: str, checkpoint_ns: str, known: Known) -> None:
        """Remember the last checkpoint of a namespace."""
        with self._lock:
            self._known[thread_id, checkpoint_ns] = known
            self._known.move_to_end((thread_id, checkpoint_ns))
            if len(self._known) > self._size:
                self._known.popitem(last=False)

    def forget(self, thread_id: str) -> None:
        """Forget all namespaces of a thread."""
        with self._lock:
            for key in [key for key in self._known if key[0] == thread_id]:
                del self._known[key]


def now() -> str:
    """Return the time as checkpoints spell it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class Draft:
    """A save as the caller asked for it.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        values: Channel to its value as JSON text.
        checkpoint_id: The ID to give it; `None` mints one.
        parent: The checkpoint to follow; `None` is `expected_head` or the latest, empty is none.
        expected_head: What the latest must be; `None` is whatever it is.
        metadata_json: Metadata as JSON text.
        summary: One sentence that says what happened.
        label: A name.
        agent_id: Name of the agent.
        durability: What to wait for.
        ts: Time of the checkpoint, ISO 8601.
        vector: The vector by which search finds it; empty for none.
        searchable: Whether search finds the thread; `None` leaves that as it is.
    """

    thread_id: str
    checkpoint_ns: str
    values: Mapping[str, bytes]
    checkpoint_id: str | None
    parent: str | None
    expected_head: str | None
    metadata_json: bytes
    summary: str
    label: str
    agent_id: str
    durability: Durability
    ts: str = field(default_factory=now)
    vector: Sequence[float] = ()
    searchable: bool | None = None


def encode_state(state: Mapping[str, Any]) -> dict[str, bytes]:
    """Return each value of a state as JSON text.

    JSON's own rules hold: tuples become lists, and keys of inner mappings become strings.

    Raises:
        InvalidRequest: It is no mapping, a value cannot be written as JSON, or a key is no name.
    """
    if not isinstance(state, Mapping):
        raise invalid_field("state", f"it maps channels to values; {type(state).__name__} does not")
    if not all(map(_is_name, state)):
        raise invalid_field("state", "its keys are the names of channels: texts that are not empty")
    return {name: encode_json(f"state[{name!r}]", value) for name, value in state.items()}


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key != "" and is_unicode(key)


def is_unicode(text: str) -> bool:
    """Tell whether a text can be sent: a half of a surrogate pair cannot be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(what: str, given: object) -> None:
    """Pass if an argument is a text that can be sent.

    Raises:
        InvalidRequest: It is none; `what` names it in the message.
    """
    if not isinstance(given, str):
        raise invalid_field(what, f"it is a text, not {given!r}")
    if not is_unicode(given):
        raise invalid_field(what, "it has half of a surrogate pair, which UTF-8 cannot say")


def encode_json(what: str, value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8.

    Raises:
        InvalidRequest: It cannot be written as JSON; `what` names it in the message.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_field(what, f"it cannot be written as JSON: {error}") from error


def save_steps(draft: Draft, memory: Memory) -> Steps:
    """Yield what to ask of the service, in order; return the ID of the saved checkpoint.

    A reference asks for that checkpoint (`None` if there is none), a request asks to save it. A
    save that follows the latest names it as `expected_head`, so that what this client remembers
    can be wrong without harm: the service refuses, and the save follows the new latest.

    Raises:
        InvalidRequest: A name or a text of the draft cannot be sent.
    """
    for name in ("thread_id", "checkpoint_ns", "summary", "label", "agent_id"):
        check_text(name, getattr(draft, name))
    follows_latest = draft.parent is None and draft.expected_head is None
    for _ in range(MAX_FOLLOWS):
        parent = yield from _parent(draft, memory)
        request = _request(draft, parent)
        if follows_latest:
            request.expected_head = parent.checkpoint_id
        try:
            saved = yield from _send(draft, request)
        except (Conflict, ThreadDeleted) as refusal:
            memory.forget(draft.thread_id)
            if not follows_latest:
                raise
            last = refusal
            continue
        memory.put(draft.thread_id, draft.checkpoint_ns, _known(saved, request.checkpoint))
        return saved
    raise last


def _parent(draft: Draft, memory: Memory) -> Generator[CheckpointRef, Any, Known]:
    # Whoever says what the latest must be means to follow it.
    wanted = draft.expected_head if draft.parent is None else draft.parent
    if wanted == "":
        return NOTHING
    known = memory.get(draft.thread_id, draft.checkpoint_ns)
    if known is not None and wanted in (None, known.checkpoint_id):
        return known
    found: Checkpoint | None = yield CheckpointRef(
        thread_id=draft.thread_id,
        checkpoint_ns=draft.checkpoint_ns,
        checkpoint_id=wanted or "",
    )
    if found is None:
        return Known(wanted or "")
    return _known(found.ref.checkpoint_id, found)


def _send(
    draft: Draft, request: SaveCheckpointRequest
) -> Generator[SaveCheckpointRequest, Any, str]:
    saved: SaveCheckpointResponse
    try:
        saved = yield request
    except ValuesMissing as missing:
        _put_inline(draft, request, missing.channels)
        try:
            saved = yield request
        except ValuesMissing:
            # Trailers are bounded, so that a refusal names only as many channels as fit.
            _put_inline(draft, request, list(draft.values))
            saved = yield request
    return saved.ref.checkpoint_id


def _request(draft: Draft, parent: Known) -> SaveCheckpointRequest:
    raised = next_version([version for version, _ in parent.channels.values()])
    channels = [_channel(name, data, parent, raised) for name, data in draft.values.items()]
    saved_again = draft.checkpoint_id == parent.checkpoint_id
    request = SaveCheckpointRequest(
        checkpoint=Checkpoint(
            ref=CheckpointRef(
                thread_id=draft.thread_id,
                checkpoint_ns=draft.checkpoint_ns,
                checkpoint_id=draft.checkpoint_id or new_checkpoint_id(parent.checkpoint_id),
            ),
            parent_checkpoint_id=parent.parent_id if saved_again else parent.checkpoint_id,
            state=CheckpointState(
                schema_version=_STATE_LAYOUT,
                ts=draft.ts,
                channels=channels,
                updated_channels=ChannelNames(
                    names=[one.name for one in channels if one.HasField("value")]
                ),
            ),
            metadata_json=draft.metadata_json,
            summary=draft.summary,
            label=draft.label,
        ),
        durability=draft.durability,
        agent_id=draft.agent_id,
        vector=draft.vector,
    )
    if draft.searchable is not None:
        request.searchable = draft.searchable
    if draft.expected_head is not None:
        request.expected_head = draft.expected_head
    return request


def _channel(name: str, data: bytes, parent: Known, raised: Version) -> Channel:
    digest = value_digest("json", data)
    version, before = parent.channels.get(name, (raised, b""))
    if before == digest:
        return Channel(name=name, version=version, digest=digest)
    return Channel(name=name, version=raised, digest=digest, value=Value(type="json", data=data))


def _put_inline(draft: Draft, request: SaveCheckpointRequest, names: Sequence[str]) -> None:
    for channel in request.checkpoint.state.channels:
        if channel.name in names:
            channel.value.type, channel.value.data = "json", draft.values[channel.name]


def _known(checkpoint_id: str, checkpoint: Checkpoint) -> Known:
    versions = {one.name: (one.version, one.digest) for one in checkpoint.state.channels}
    return Known(checkpoint_id, checkpoint.parent_checkpoint_id, versions)


def value_digest(kind: str, data: bytes) -> bytes:
    """Return the digest that a value is keyed by (see `Channel.digest` in the contract)."""
    digest = hashlib.sha256(kind.encode() + b"\0")
    digest.update(data)
    return digest.digest()


def next_version(versions: Sequence[Version]) -> Version:
    """Return a version above all of a checkpoint's, in the kind that they have.

    A thread that has none begins with the integer 1. Text versions count up in their leading
    number, zero-padded to the 32 digits that LangGraph writes.

    Raises:
        InvalidRequest: They are texts that do not begin with a number.
    """
    kinds = {one.WhichOneof("kind") for one in versions} - {None}
    if not kinds:
        return Version(integer=1)
    if kinds == {"integer"}:
        return Version(integer=max(one.integer for one in versions) + 1)
    if kinds == {"number"}:
        return Version(number=float(int(max(one.number for one in versions)) + 1))
    newest = max(one.text for one in versions)
    number = _LEADING_NUMBER.match(newest)
    if kinds != {"text"} or number is None:
        raise invalid_field(
            "parent", "its channel versions cannot be counted up; continue it with its framework"
        )
    return Version(text=f"{int(number[0]) + 1:032}.0")


def invalid_field(field_name: str, problem: str) -> InvalidRequest:
    """Return the error of an argument that can never be right."""
    return InvalidRequest(
        f"{field_name}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": field_name},
        violations=[(field_name, problem)],
    )
