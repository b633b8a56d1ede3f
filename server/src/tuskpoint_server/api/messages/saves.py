"""Conversion of saves: one pass checks, digests and takes over a message.

The pass handles the common form of a save, and only decides whether `validation` would find no
violation. In uncertain cases (names that are long or not ASCII, large values, vectors),
`validation` lists all violations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb

from ...core import model
from ...core.errors import Reason, Refusal
from ...core.limits import LIMITS
from ...core.lineage import is_generated
from ...core.search import pack_vector
from ...core.state import ChannelRef, channel_ref, decode_version, encode_names, parse_metadata
from ...core.threads import is_reserved
from ...core.values import DIGEST_BYTES, begin_digest
from ...features.checkpoints.incoming import (
    IncomingCheckpoint,
    IncomingWrite,
    IncomingWrites,
    incoming_write,
)
from ...features.checkpoints.value_groups import PreparedValue
from .chunks import ReceivedValue
from .convert import key, number
from .validation import check, check_save, check_writes

SPECIAL_CHANNELS = {
    "__error__": -1,
    "__scheduled__": -2,
    "__interrupt__": -3,
    "__resume__": -4,
}
"""Slots in which the last write wins; see `tuskpoint.v1.PendingWrite.idx`."""

_SHORT, _LONG = 128, 1024
"""ASCII characters that are within the limits of all texts of the pass."""


def take_checkpoint(
    request: pb.SaveCheckpointRequest,
    received: Sequence[ReceivedValue] | None = None,
    *,
    streamed: bool = False,
) -> IncomingCheckpoint | None:
    """Check a save and return its checkpoint for the journal. The request loses its content.

    Args:
        request: The save; an open durability is set.
        received: The large values of a save for which `None` was returned, in order.
        streamed: Whether large values may follow in chunks.

    Returns:
        The checkpoint; `None`, with the request unchanged, if its large values must arrive first.

    Raises:
        Refusal: `INVALID_FIELD`, `LIMIT_EXCEEDED`, `METADATA_NOT_JSON`, `DIGEST_MISMATCH`.
    """
    scan = _Pass(received)
    checkpoint = request.checkpoint
    state, ref = checkpoint.state, checkpoint.ref
    channels, contents = scan.channels(state.channels)
    writes = scan.writes(request.writes)
    expected_head = request.expected_head if request.HasField("expected_head") else None
    place = key(ref)
    parent_id, label = checkpoint.parent_checkpoint_id, checkpoint.label
    summary, agent_id, lease_id = checkpoint.summary, request.agent_id, request.lease_id
    if received is None:
        scan.required.append(place.thread_id)
        scan.texts += (
            place.checkpoint_id,
            parent_id,
            label,
            agent_id,
            lease_id,
            expected_head or "",
        )
        scan.long_texts += (place.checkpoint_ns, summary)
        common = (
            checkpoint.HasField("state")
            and not (request.vector or state.extras or state.delta_channels)
            and len(checkpoint.metadata_json) <= LIMITS.max_metadata
            and len(state.ts) <= LIMITS.max_timestamp_text
            and _is_plain(state.ts)
            and not is_reserved(place.thread_id)
            and _are_common_versions(state.versions_seen)
            and not (request.continue_latest and expected_head is not None)
            and (not request.raise_id or _may_be_raised(request))
        )
        if not (common and scan.is_common(request)):
            check(request, check_save, streamed=streamed)
        if scan.waits:
            return None
    metadata = parse_metadata(checkpoint.metadata_json, "checkpoint.metadata_json")
    if scan.mismatch is not None:
        raise scan.mismatch
    delta_channels = encode_names(state.delta_channels)
    state.ClearField("channels")
    return IncomingCheckpoint(
        key=place,
        parent_id=parent_id,
        frame=state.SerializeToString(deterministic=True),
        channels=channels,
        contents=contents,
        delta_channels=delta_channels,
        metadata=metadata,
        label=label,
        summary=summary,
        agent_id=agent_id,
        writes=writes,
        expected_head=expected_head,
        continues=request.continue_latest,
        raises_id=request.raise_id,
        restarts=request.restart_deleted,
        vector=pack_vector(request.vector) if request.vector else b"",
        searchable=request.searchable if request.HasField("searchable") else None,
        lease_id=lease_id,
    )


def take_writes(
    request: pb.SaveWritesRequest,
    received: Sequence[ReceivedValue] | None = None,
    *,
    streamed: bool = False,
) -> IncomingWrites | None:
    """Check a save of pending writes and return them; see `take_checkpoint`."""
    scan = _Pass(received)
    place, writes, lease_id = key(request.ref), scan.writes(request.writes), request.lease_id
    if received is None:
        scan.required += (place.thread_id, place.checkpoint_id)
        scan.texts.append(lease_id)
        scan.long_texts.append(place.checkpoint_ns)
        common = bool(writes) and not is_reserved(place.thread_id)
        if not (common and scan.is_common(request)):
            check(request, check_writes, streamed=streamed)
        if scan.waits:
            return None
    return place, writes, lease_id


class _Pass:
    """One pass over the channels and writes of a save, and its findings."""

    def __init__(self, received: Sequence[ReceivedValue] | None) -> None:
        self.required: list[str] = []  # texts that must not be empty; their byte limits
        self.texts: list[str] = []  # texts that may be empty
        self.long_texts: list[str] = []  # longer texts that may be empty
        self.waits = False  # a large value has not arrived yet
        self.mismatch: Refusal | None = None  # of the first digest without its value
        self._odd = False  # the message is not of the common form
        self._received = iter(received or ())

    def is_common(self, request: pb.SaveCheckpointRequest | pb.SaveWritesRequest) -> bool:
        """Return whether the message has the common form, and so is within the limits."""
        required, texts, long_texts = self.required, self.texts, self.long_texts
        request.durability = request.durability or number(model.Durability.JOURNALED)
        return (
            not (self._odd or self.waits)
            and request.durability in _DURABILITIES
            and "" not in required
            and len(max(required, key=len)) <= _SHORT
            and len(max(texts, key=len, default="")) <= _SHORT
            and len(max(long_texts, key=len)) <= _LONG
            and _is_plain("".join(required + texts + long_texts))
        )

    def channels(
        self, messages: Sequence[value_pb2.Channel]
    ) -> tuple[dict[str, ChannelRef], dict[str, tuple[str, PreparedValue]]]:
        """Return the channels, and their values by name."""
        channels: dict[str, ChannelRef] = {}
        contents: dict[str, tuple[str, PreparedValue]] = {}
        for message in messages:
            name, claimed = message.name, message.digest
            version: model.Version | None = message.version.text
            if version:
                self.texts.append(version)  # type: ignore[arg-type]
            elif message.HasField("version"):
                version = decode_version(message.version)
                self._odd = self._odd or not _is_common_version(message.version)
            else:
                version = None
            content = message.WhichOneof("content")
            if content == "inherit" or content == "empty":
                self._odd = self._odd or claimed != b""
                channel = ChannelRef(version, None)
                if content == "empty":
                    channel = channel_ref(name, version, None, 0)
            elif content is not None:
                kind, data, digest = self._content(message)
                if claimed and claimed != digest:
                    self._mismatched(message, digest)
                contents[name] = kind, PreparedValue(data)
                channel = channel_ref(name, version, digest, len(data))
            else:
                self._odd = self._odd or len(claimed) != DIGEST_BYTES
                channel = ChannelRef(version, claimed)
            channels[name] = channel
        count = len(messages)
        self._odd = self._odd or count > LIMITS.max_channels or len(channels) < count
        self.required += channels
        return channels, contents

    def writes(self, messages: Sequence[value_pb2.PendingWrite]) -> list[IncomingWrite]:
        """Return pending writes with their slots, digests and content."""
        positions: dict[str, int] = {}
        writes = []
        for message in messages:
            task_id, task_path, channel = message.task_id, message.task_path, message.channel
            self.required += (task_id, channel)
            self.long_texts.append(task_path)
            position = positions.get(task_id, 0)
            positions[task_id] = position + 1
            if message.HasField("idx"):
                position = message.idx
            else:
                position = SPECIAL_CHANNELS.get(channel, position)
            kind, data, digest = self._content(message)
            fields = (task_id, position, task_path, channel, kind)
            writes.append(incoming_write(*fields, digest, data))
        self._odd = self._odd or len(writes) > LIMITS.max_writes
        return writes

    def _content(
        self, message: value_pb2.Channel | value_pb2.PendingWrite
    ) -> tuple[str, bytes, bytes]:
        if message.HasField("value"):
            value = message.value
            kind, data = value.type, value.data
            self.required.append(kind)
            digest = begin_digest(kind)
            digest.update(data)
            return kind, data, digest.digest()
        content = next(self._received, _NOTHING)
        self.waits = self.waits or content is _NOTHING
        return content

    def _mismatched(self, message: value_pb2.Channel, digest: bytes) -> None:
        self._odd = self._odd or len(message.digest) != DIGEST_BYTES
        name, claimed, computed = message.name, message.digest.hex(), digest.hex()
        refusal = Refusal(Reason.DIGEST_MISMATCH, channel=name, claimed=claimed, computed=computed)
        self.mismatch = self.mismatch or refusal


_DURABILITIES = frozenset(model.Durability)
_MANY = LIMITS.max_channels  # bytes; more versions do not fit
_NOTHING = ReceivedValue("", b"", b"")


def _are_common_versions(versions_seen: Mapping[str, checkpoint_pb2.VersionsSeen]) -> bool:
    for node in versions_seen:  # views of protobuf maps are slow
        message = versions_seen[node]
        # Most versions need no single check. In ASCII bytes no text is longer than 127 and no
        # number is infinite or NaN (the exponent is not ASCII); bytes without a zero have no NUL,
        # and each version has a kind (a version without a kind has length 0).
        raw = message.SerializeToString()
        if raw.isascii() and b"\0" not in raw and len(raw) <= _MANY:
            continue
        versions = message.channels
        if len(versions) > LIMITS.max_channels:
            return False
        for version in versions.values():
            if not _is_common_version(version):
                return False
    return True


def _may_be_raised(request: pb.SaveCheckpointRequest) -> bool:
    return request.continue_latest and is_generated(request.checkpoint.ref.checkpoint_id)


def _is_plain(text: str) -> bool:
    return text.isascii() and "\0" not in text


def _is_common_version(version: value_pb2.Version) -> bool:
    text = version.text
    if text:
        return len(text) <= _SHORT and _is_plain(text)
    kind = version.WhichOneof("kind")
    return kind in ("text", "integer") or (kind == "number" and math.isfinite(version.number))
