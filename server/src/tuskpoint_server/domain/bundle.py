"""Bundles: all that is needed to go on from a checkpoint, as a hand-off stores it.

The stored form is gzip (RFC 1952) of `tuskpoint.v1.HandoffBundle`; equal content gives
equal bytes. What is read may come from anybody: its hash proves that it is what was handed
off, not that it makes sense, so all of it is checked.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tuskpoint.v1 import handoff_pb2

from . import gzipped
from .bundle_fields import MAX_FIELDS, has_too_many
from .bundle_limits import member_problem
from .envelope import Envelope, fill_message, read_message
from .errors import Reason, Refusal
from .limits import LIMITS, MIB
from .lineage import Closure, ClosureMember
from .metadata import parse_metadata
from .model import Checkpoint, CheckpointKey, Entry
from .stored_json import malformed

FORMAT_VERSION = 1

MAX_BUNDLE_BYTES = LIMITS.max_bundle
"""Bound on an unpacked bundle."""

MAX_STORED_BYTES = MAX_BUNDLE_BYTES + MIB
"""Bound on a stored one: packing adds a little to what it cannot make smaller."""


def check_size(closure: Closure) -> None:
    """Refuse a closure whose values alone are more than a bundle holds.

    Looks at the sizes of channels only, so it works where values were evicted.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    states = (member.checkpoint.state for member in closure.members)
    size = sum(channel.size for state in states if state for channel in state.channels)
    check_bytes(closure.key, size)


def check_bytes(key: CheckpointKey, size: int) -> None:
    """Refuse the closure of a checkpoint that takes so many bytes or more.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    if size > MAX_BUNDLE_BYTES:
        raise _too_large(key, size)


def encode_bundle(closure: Closure) -> bytes:
    """Return the stored bytes of a closure that has all its values.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    message = handoff_pb2.HandoffBundle(format_version=FORMAT_VERSION)
    message.ref.thread_id = closure.key.thread_id
    message.ref.checkpoint_ns = closure.key.checkpoint_ns
    message.ref.checkpoint_id = closure.key.checkpoint_id
    for member in sorted(closure.members, key=_place):
        bundled = message.checkpoints.add(hidden=member.hidden)
        fill_message(bundled.envelope, _envelope(member.checkpoint))
    check_bytes(closure.key, message.ByteSize())
    plain = message.SerializeToString(deterministic=True)
    if has_too_many(plain):
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"the number of channels and writes needed to go on from {closure.key}",
            limit="the fields of a bundle",
            maximum=MAX_FIELDS,
        )
    return gzipped.pack(plain)


def decode_bundle(data: bytes, name: str) -> Closure:
    """Return the closure in stored bytes.

    Args:
        data: The stored bytes, already checked against their hash.
        name: Blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    plain = gzipped.unpack(data, name, MAX_BUNDLE_BYTES)
    try:
        if has_too_many(plain):
            raise malformed(name, f"it has more than {MAX_FIELDS} fields")
        message = handoff_pb2.HandoffBundle.FromString(plain)
    except (DecodeError, ValueError):
        raise malformed(name, "it is not a HandoffBundle") from None
    del plain  # the message holds its content
    if message.format_version != FORMAT_VERSION:
        raise malformed(
            name, f"format_version is {message.format_version} and only {FORMAT_VERSION} is known"
        )
    ref = message.ref
    key = CheckpointKey(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id)
    members = [_member(bundled, key, name) for bundled in message.checkpoints]
    _check_keys(members, key, name)
    return Closure(key, tuple(sorted(members, key=_place)))


def _envelope(checkpoint: Checkpoint) -> Envelope:
    if checkpoint.state is None:
        raise ValueError(f"checkpoint {checkpoint.entry.key} has no state")
    entry = checkpoint.entry
    return Envelope(
        key=entry.key,
        parent_id=entry.parent_id,
        revision=entry.revision,
        created_us=entry.created_us,
        metadata=entry.metadata,
        state=checkpoint.state,
        writes=checkpoint.writes,
        label=entry.label,
        summary=entry.summary,
        lineage=entry.lineage,
    )


def _member(bundled: handoff_pb2.BundledCheckpoint, key: CheckpointKey, name: str) -> ClosureMember:
    envelope = read_message(bundled.envelope, name)
    if envelope.is_addendum:
        raise malformed(name, "an addendum stands where a full envelope belongs")
    if envelope.key.thread_id != key.thread_id:
        raise malformed(
            name, f"it is of thread '{key.thread_id}' and holds one of '{envelope.key.thread_id}'"
        )
    if problem := member_problem(envelope):
        raise malformed(name, f"checkpoint '{envelope.key.checkpoint_id}': {problem}")
    return ClosureMember(_checkpoint(envelope, name), bundled.hidden)


def _checkpoint(envelope: Envelope, name: str) -> Checkpoint:
    try:
        metadata = parse_metadata(envelope.metadata, "metadata_json")
    except Refusal as refusal:
        raise malformed(name, refusal.message) from None
    entry = Entry(
        key=envelope.key,
        parent_id=envelope.parent_id,
        incarnation=0,
        revision=envelope.revision,
        certified_revision=0,
        seq=0,
        created_us=envelope.created_us,
        metadata=metadata.raw,
        label=envelope.label,
        summary=envelope.summary,
        lineage=envelope.lineage,
    )
    return Checkpoint(entry, envelope.state, envelope.writes)


def _check_keys(members: list[ClosureMember], key: CheckpointKey, name: str) -> None:
    found = {member.checkpoint.entry.key: member for member in members}
    if len(found) < len(members):
        raise malformed(name, "it holds a checkpoint twice")
    if key not in found:
        raise malformed(name, f"it lacks checkpoint '{key.checkpoint_id}', which it is of")
    if found[key].hidden:
        raise malformed(name, "the checkpoint that it is of is hidden")


def _place(member: ClosureMember) -> tuple[str, str]:
    key = member.checkpoint.entry.key
    return (key.checkpoint_ns, key.checkpoint_id)


def _too_large(key: CheckpointKey, size: int) -> Refusal:
    return Refusal(
        Reason.LIMIT_EXCEEDED,
        what=f"what is needed to go on from {key}: {size} bytes",
        limit="max_bundle_bytes",
        maximum=MAX_BUNDLE_BYTES,
    )
