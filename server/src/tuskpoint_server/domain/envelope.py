"""Envelopes: one checkpoint made self-contained, as it is stored and hashed.

The stored form is gzip (RFC 1952, no time, one member) of
`tuskpoint.v1.CheckpointEnvelope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError, EncodeError

from tuskpoint.v1 import checkpoint_pb2, envelope_pb2, value_pb2

from . import gzipped
from .digests import DIGEST_BYTES, value_digest
from .limits import LIMITS, MIB
from .model import Channel, CheckpointKey, Lineage, State, Value, Write, write_order
from .state import decode_version, encode_version
from .stored_json import malformed

FORMAT_VERSION = 1

MAX_ENVELOPE_BYTES = 2 * LIMITS.max_checkpoint + 64 * MIB
"""Bound on an unpacked envelope: content, writes and what surrounds them."""

NO_LINEAGE = Lineage()


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope holds.

    Attributes:
        key: The checkpoint it was made for; provenance, not identity.
        parent_id: Its parent, or empty.
        revision: Revision that the envelope, with its predecessors, holds.
        created_us: Time of the first save.
        metadata: The metadata's exact bytes.
        state: The state; in an addendum its channels are empty.
        writes: Pending writes; in an addendum those that earlier envelopes lack.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        full_sha256: In an addendum the hash of the stored full envelope, else empty.
    """

    key: CheckpointKey
    parent_id: str
    revision: int
    created_us: int
    metadata: bytes
    state: State
    writes: tuple[Write, ...] = ()
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    full_sha256: bytes = b""

    @property
    def is_addendum(self) -> bool:
        """Tell an addendum from a full envelope."""
        return bool(self.full_sha256)


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the stored bytes.

    Raises:
        ValueError: The envelope is larger than any reader accepts.
    """
    message = envelope_pb2.CheckpointEnvelope()
    fill_message(message, envelope)
    try:
        plain = message.SerializeToString(deterministic=True)
    except EncodeError as error:
        raise ValueError(f"the envelope of {envelope.key} cannot be serialized") from error
    if len(plain) > MAX_ENVELOPE_BYTES:
        raise ValueError(f"the envelope of {envelope.key} takes {len(plain)} bytes")
    return gzipped.pack(plain)


def decode_envelope(data: bytes, name: str, *, max_bytes: int = MAX_ENVELOPE_BYTES) -> Envelope:
    """Return what stored bytes hold.

    Args:
        data: The stored bytes, already checked against their hash.
        name: Blob ID, for the refusal.
        max_bytes: Bound on the unpacked size.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    plain = gzipped.unpack(data, name, max_bytes)
    try:
        message = envelope_pb2.CheckpointEnvelope.FromString(plain)
    except DecodeError:
        raise malformed(name, "it is not a CheckpointEnvelope") from None
    return read_message(message, name)


def fill_message(message: envelope_pb2.CheckpointEnvelope, envelope: Envelope) -> None:
    """Write an envelope into an empty message.

    Raises:
        ValueError: A channel has no content.
    """
    message.format_version = FORMAT_VERSION
    message.kind = (
        envelope_pb2.ENVELOPE_KIND_ADDENDUM
        if envelope.is_addendum
        else envelope_pb2.ENVELOPE_KIND_FULL
    )
    message.ref.thread_id = envelope.key.thread_id
    message.ref.checkpoint_ns = envelope.key.checkpoint_ns
    message.ref.checkpoint_id = envelope.key.checkpoint_id
    message.parent_checkpoint_id = envelope.parent_id
    message.revision = envelope.revision
    message.metadata_json = envelope.metadata
    message.label = envelope.label
    message.summary = envelope.summary
    message.full_sha256 = envelope.full_sha256
    message.state.ParseFromString(envelope.state.frame)
    _add_channels(message.state, envelope.state.channels)
    for write in envelope.writes:
        message.writes.add(
            task_id=write.task_id,
            task_path=write.task_path,
            idx=write.idx,
            channel=write.channel,
            value=value_pb2.Value(type=write.value.type, data=write.value.data),
        )
    message.create_time.FromMicroseconds(envelope.created_us)
    _set_lineage(message, envelope.lineage)


def read_message(message: envelope_pb2.CheckpointEnvelope, name: str) -> Envelope:
    """Return what a message holds; it is taken apart.

    Args:
        message: The message.
        name: Blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    _check_kind(message, name)
    channels = tuple(_channel(channel, name) for channel in message.state.channels)
    if channels and message.kind != envelope_pb2.ENVELOPE_KIND_FULL:
        raise malformed(name, "an addendum has no channels")
    message.state.ClearField("channels")
    return Envelope(
        key=CheckpointKey(
            message.ref.thread_id, message.ref.checkpoint_ns, message.ref.checkpoint_id
        ),
        parent_id=message.parent_checkpoint_id,
        revision=message.revision,
        created_us=_created_us(message, name),
        metadata=message.metadata_json,
        state=State(message.state.SerializeToString(deterministic=True), channels),
        writes=tuple(_write(write, name) for write in message.writes),
        label=message.label,
        summary=message.summary,
        lineage=Lineage(
            message.lineage.forked_from,
            message.lineage.rolled_back_from,
            message.lineage.adopted_from,
        ),
        full_sha256=message.full_sha256,
    )


def merge(
    full: Envelope,
    addenda: Sequence[Envelope],
    full_sha256: bytes,
    name: str,
    *,
    listed_as: bytes = b"",
) -> Envelope:
    """Return a full envelope with its addenda folded into it.

    The writes of an addendum replace those of the same task and `idx`; its metadata,
    label and summary replace the earlier ones.

    Args:
        full: The full envelope.
        addenda: Its addenda, oldest first.
        full_sha256: Hash of the stored full envelope.
        name: Blob ID of the full envelope, for the refusal.
        listed_as: Hash of the list of its parts, if it is stored in parts; addenda may
            name it by that.

    Raises:
        Refusal: `BLOB_MALFORMED` if they do not belong together.
    """
    if full.is_addendum:
        raise malformed(name, "an addendum stands where a full envelope belongs")
    writes = {(write.task_id, write.idx): write for write in full.writes}
    last = full
    for addendum in addenda:
        if addendum.full_sha256 not in (full_sha256, listed_as):
            raise malformed(name, "an addendum belongs to another envelope")
        writes.update({(write.task_id, write.idx): write for write in addendum.writes})
        last = addendum
    return Envelope(
        key=full.key,
        parent_id=full.parent_id,
        revision=last.revision,
        created_us=full.created_us,
        metadata=last.metadata,
        state=full.state,
        writes=tuple(sorted(writes.values(), key=write_order)),
        label=last.label,
        summary=last.summary,
        lineage=full.lineage,
    )


def _set_lineage(message: envelope_pb2.CheckpointEnvelope, lineage: Lineage) -> None:
    if lineage != NO_LINEAGE:
        message.lineage.forked_from = lineage.forked_from
        message.lineage.rolled_back_from = lineage.rolled_back_from
        message.lineage.adopted_from = lineage.adopted_from


def _add_channels(state: checkpoint_pb2.CheckpointState, channels: Iterable[Channel]) -> None:
    for channel in channels:
        stored = state.channels.add(name=channel.name)
        if channel.version is not None:
            stored.version.CopyFrom(encode_version(channel.version))
        if channel.digest is None:
            stored.empty.SetInParent()
        elif channel.value is None:
            raise ValueError(f"channel {channel.name} has a digest and no content")
        else:
            stored.value.type = channel.value.type
            stored.value.data = channel.value.data


def _check_kind(message: envelope_pb2.CheckpointEnvelope, name: str) -> None:
    if message.format_version != FORMAT_VERSION:
        raise malformed(
            name,
            f"format_version is {message.format_version} and only {FORMAT_VERSION} is known",
        )
    is_full = message.kind == envelope_pb2.ENVELOPE_KIND_FULL
    if not is_full and message.kind != envelope_pb2.ENVELOPE_KIND_ADDENDUM:
        raise malformed(name, f"kind {message.kind} is not known")
    if not message.ref.thread_id or not message.ref.checkpoint_id:
        raise malformed(name, "it does not say which checkpoint it holds")
    if is_full == bool(message.full_sha256) or len(message.full_sha256) not in (0, DIGEST_BYTES):
        raise malformed(name, "its kind and full_sha256 contradict each other")


def _created_us(message: envelope_pb2.CheckpointEnvelope, name: str) -> int:
    try:
        return message.create_time.ToMicroseconds()
    except ValueError:
        raise malformed(name, "its create_time is no time") from None


def _channel(message: value_pb2.Channel, name: str) -> Channel:
    version = None
    if message.HasField("version"):
        if message.version.WhichOneof("kind") is None:
            raise malformed(name, f"channel {message.name} has a version without a kind")
        version = decode_version(message.version)
    content = message.WhichOneof("content")
    if content == "empty":
        return Channel(message.name, version, None)
    if content != "value":
        raise malformed(name, f"channel {message.name} has no content")
    value = Value(message.value.type, message.value.data)
    digest = _checked_digest(value, message.digest, f"channel {message.name}", name)
    return Channel(message.name, version, digest, len(value.data), value)


def _write(message: value_pb2.PendingWrite, name: str) -> Write:
    if not message.HasField("idx") or message.WhichOneof("content") != "value":
        raise malformed(name, f"a write of task {message.task_id} lacks its idx or content")
    value = Value(message.value.type, message.value.data)
    digest = _checked_digest(value, message.digest, f"a write of task {message.task_id}", name)
    return Write(message.task_id, message.task_path, message.idx, message.channel, value, digest)


def _checked_digest(value: Value, claimed: bytes, what: str, name: str) -> bytes:
    """Return the digest of a value; a digest from elsewhere is never believed."""
    digest = value_digest(value)
    if claimed and claimed != digest:
        raise malformed(name, f"{what} has another digest than it claims")
    return digest
