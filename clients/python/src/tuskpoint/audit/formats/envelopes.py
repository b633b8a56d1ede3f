"""Envelopes and bundles: checkpoints as they are stored, and whether they make sense."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from ...v1 import envelope_pb2, handoff_pb2, value_pb2
from .catalogs import SNAPSHOTS
from .manifests import Entry
from .stored import Malformed, parse_json
from .wire import check_fields, unpack

FORMAT_VERSION = 1
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope says, less the values, whose digests were checked.

    Attributes:
        thread_id: Thread that it was made for; provenance, since copies share bytes.
        checkpoint_ns: Its namespace.
        checkpoint_id: The checkpoint.
        parent_id: Its parent, or empty.
        full_sha256: In an addendum the hash of the full envelope, else empty.
        label: Name, or empty.
        summary: One sentence, or empty.
        metadata: What its metadata says.
        values: Content of the channels of type `json`, as far as it was asked for.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str
    full_sha256: str
    label: str
    summary: str
    metadata: dict[str, Any]
    values: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BundleMember:
    """A checkpoint of a bundle. Hidden ones are there for the delta channels of others."""

    envelope: Envelope
    hidden: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a hand-off stored: the checkpoint that it is of, and all members."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    members: tuple[BundleMember, ...]

    @property
    def handed_off(self) -> Envelope:
        """The checkpoint that it is of."""
        return next(
            member.envelope
            for member in self.members
            if (member.envelope.checkpoint_ns, member.envelope.checkpoint_id)
            == (self.checkpoint_ns, self.checkpoint_id)
        )


def read_envelope(
    data: bytes, max_bytes: int, max_fields: int, values: Sequence[str] = ()
) -> Envelope:
    """Return what a stored envelope says.

    Args:
        data: The stored bytes.
        max_bytes: Bound on what they unpack to.
        max_fields: Bound on the fields in that.
        values: Channels of type `json` whose content is wanted.

    Raises:
        Malformed: It is none, or contradicts itself.
    """
    plain = unpack(data, max_bytes)
    check_fields(plain, envelope_pb2.CheckpointEnvelope.DESCRIPTOR, max_fields)
    try:
        message = envelope_pb2.CheckpointEnvelope.FromString(plain)
    except DecodeError:
        raise Malformed("it is not a CheckpointEnvelope") from None
    return _envelope(message, values)


def read_bundle(data: bytes, max_bytes: int, max_fields: int) -> Bundle:
    """Return what a stored bundle says; bounds are as for `read_envelope`.

    Raises:
        Malformed: It is none, or contradicts itself.
    """
    plain = unpack(data, max_bytes)
    check_fields(plain, handoff_pb2.HandoffBundle.DESCRIPTOR, max_fields)
    try:
        message = handoff_pb2.HandoffBundle.FromString(plain)
    except DecodeError:
        raise Malformed("it is not a HandoffBundle") from None
    _check_version(message.format_version)
    members = tuple(
        BundleMember(_envelope(one.envelope, ()), one.hidden) for one in message.checkpoints
    )
    ref = message.ref
    bundle = Bundle(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id, members)
    _check_members(bundle)
    return bundle


def _check_members(bundle: Bundle) -> None:
    places: dict[tuple[str, str], bool] = {}
    for member in bundle.members:
        envelope = member.envelope
        place = (envelope.checkpoint_ns, envelope.checkpoint_id)
        if envelope.full_sha256:
            raise Malformed("an addendum stands where a full envelope belongs")
        if envelope.thread_id != bundle.thread_id:
            raise Malformed(
                f"it is of thread '{bundle.thread_id}' and holds one of '{envelope.thread_id}'"
            )
        if place in places:
            raise Malformed(f"it holds checkpoint '{envelope.checkpoint_id}' twice")
        places[place] = member.hidden
    hidden = places.get((bundle.checkpoint_ns, bundle.checkpoint_id))
    if hidden is None:
        raise Malformed(f"it lacks checkpoint '{bundle.checkpoint_id}', which it is of")
    if hidden:
        raise Malformed("the checkpoint that it is of is hidden")


def _check_version(version: int) -> None:
    if version != FORMAT_VERSION:
        raise Malformed(f"format_version is {version} and only {FORMAT_VERSION} is known")


def _envelope(message: envelope_pb2.CheckpointEnvelope, values: Sequence[str]) -> Envelope:
    _check_version(message.format_version)
    _check_kind(message)
    found = _check_channels(message, values)
    _check_writes(message)
    try:
        message.create_time.ToMicroseconds()
    except ValueError:
        raise Malformed("its create_time is no time") from None
    return Envelope(
        thread_id=message.ref.thread_id,
        checkpoint_ns=message.ref.checkpoint_ns,
        checkpoint_id=message.ref.checkpoint_id,
        parent_id=message.parent_checkpoint_id,
        full_sha256=message.full_sha256.hex(),
        label=message.label,
        summary=message.summary,
        metadata=_metadata(message.metadata_json),
        values=found,
    )


def _check_kind(message: envelope_pb2.CheckpointEnvelope) -> None:
    if not message.ref.thread_id or not message.ref.checkpoint_id:
        raise Malformed("it does not say which checkpoint it holds")
    if message.kind == envelope_pb2.ENVELOPE_KIND_FULL:
        if message.full_sha256:
            raise Malformed("a full envelope names another")
    elif message.kind == envelope_pb2.ENVELOPE_KIND_ADDENDUM:
        if len(message.full_sha256) != _DIGEST_BYTES:
            raise Malformed("an addendum does not name its full envelope by hash")
        if message.state.channels:
            raise Malformed("an addendum has channels")
    else:
        raise Malformed(f"envelopes of kind {message.kind} are not known")


def _check_channels(
    message: envelope_pb2.CheckpointEnvelope, values: Sequence[str]
) -> dict[str, bytes]:
    seen: set[str] = set()
    found: dict[str, bytes] = {}
    for channel in message.state.channels:
        name = channel.name
        if name in seen:
            raise Malformed(f"channel '{name}' is there twice")
        seen.add(name)
        if channel.HasField("version") and channel.version.WhichOneof("kind") is None:
            raise Malformed(f"channel '{name}' has a version without a kind")
        content = channel.WhichOneof("content")
        if content == "value":
            _check_digest(channel.value, channel.digest, f"channel '{name}'")
            if name in values and channel.value.type == "json":
                found[name] = channel.value.data
        elif content != "empty":
            raise Malformed(f"channel '{name}' has no content")
        elif channel.digest:
            raise Malformed(f"channel '{name}' is empty and has a digest")
    return found


def _check_writes(message: envelope_pb2.CheckpointEnvelope) -> None:
    seen: set[tuple[str, int]] = set()
    for write in message.writes:
        what = f"write {write.idx} of task '{write.task_id}'"
        if not write.HasField("idx") or write.WhichOneof("content") != "value":
            raise Malformed(f"{what} lacks its idx or its content")
        if (write.task_id, write.idx) in seen:
            raise Malformed(f"{what} is there twice")
        seen.add((write.task_id, write.idx))
        _check_digest(write.value, write.digest, what)


def _check_digest(value: value_pb2.Value, claimed: bytes, what: str) -> None:
    """Compare a value with the digest that stands beside it, if one does."""
    if claimed and claimed != value_digest(value.type, value.data):
        raise Malformed(f"{what} has another digest than it says")


def value_digest(kind: str, data: bytes) -> bytes:
    """Return the SHA-256 that a value is known by: its type, a zero byte, its data."""
    digest = hashlib.sha256(kind.encode())
    digest.update(b"\0")
    digest.update(data)
    return digest.digest()


def _metadata(encoded: bytes) -> dict[str, Any]:
    if not encoded:
        return {}
    try:
        metadata = parse_json(encoded)
    except Malformed:
        raise Malformed("its metadata is not JSON") from None
    if not isinstance(metadata, dict):
        raise Malformed("its metadata is not a JSON object")
    return metadata


# --- against what leads to it ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredEnvelope:
    """An envelope as it was read.

    Attributes:
        envelope: What it says.
        names: Hashes by which an addendum may name it: of its bytes, and of the list of its
            parts if it lies in parts.
    """

    envelope: Envelope
    names: frozenset[str]


def own_namespace(thread_id: str, checkpoint_ns: str) -> str:
    """Return the namespace of a checkpoint, or in a snapshot that where it was captured."""
    return checkpoint_ns.partition("|")[2] if thread_id.startswith(SNAPSHOTS) else checkpoint_ns


def entry_problem(thread_id: str, entry: Entry, stored: Sequence[StoredEnvelope]) -> str:
    """Say in what the envelopes of a checkpoint contradict its manifest; empty: in nothing.

    Args:
        thread_id: The thread whose manifest it is.
        entry: What the manifest says.
        stored: The full envelope, then the addenda.
    """
    full, *addenda = stored
    if full.envelope.full_sha256:
        return "an addendum stands where its full envelope belongs"
    checkpoint_ns, checkpoint_id = entry.place
    namespace = own_namespace(thread_id, checkpoint_ns)
    for one in stored:
        envelope = one.envelope
        if envelope.checkpoint_id != checkpoint_id:
            return f"its envelope holds checkpoint '{envelope.checkpoint_id}'"
        found = own_namespace(envelope.thread_id, envelope.checkpoint_ns)
        if found != namespace:
            return f"its envelope is of namespace '{found}'"
    if full.envelope.parent_id != entry.parent_id:
        return (
            f"its envelope follows '{full.envelope.parent_id}' where the manifest says "
            f"'{entry.parent_id}'"
        )
    for one in addenda:
        if not one.envelope.full_sha256:
            return "a full envelope stands where an addendum belongs"
        if one.envelope.full_sha256 not in full.names:
            return "an addendum belongs to another envelope"
    return ""


def provenance(thread_id: str, entry: Entry, envelope: Envelope) -> str:
    """Say for which other checkpoint an envelope was made; empty if for none."""
    if (envelope.thread_id, envelope.checkpoint_ns) == (thread_id, entry.place[0]):
        return ""
    namespace = f", namespace '{envelope.checkpoint_ns}'" if envelope.checkpoint_ns else ""
    return f"shares the envelope that was made for thread '{envelope.thread_id}'{namespace}"
