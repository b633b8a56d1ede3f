from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import igzip

from tuskpoint.v1 import checkpoint_pb2, envelope_pb2
from tuskpoint_server.domain.digests import blob_digest, value_digest
from tuskpoint_server.domain.envelope import Envelope, decode_envelope, encode_envelope, merge
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import Channel, CheckpointKey, Lineage, State, Value, Write

untimed = settings(deadline=None)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
name = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
values = st.builds(Value, name, st.binary(max_size=200))
versions = st.one_of(
    st.none(),
    text,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def channels(draw: st.DrawFn) -> Channel:
    value = draw(st.one_of(st.none(), values))
    if value is None:
        return Channel(draw(name), draw(versions), None)
    return Channel(draw(name), draw(versions), value_digest(value), len(value.data), value)


@st.composite
def writes(draw: st.DrawFn) -> Write:
    value = draw(values)
    return Write(
        draw(name),
        draw(text),
        draw(st.integers(-4, 2**31 - 1)),
        draw(name),
        value,
        value_digest(value),
    )


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    message = checkpoint_pb2.CheckpointState(schema_version=draw(st.integers(0, 9)), ts=draw(text))
    for node in draw(st.lists(name, max_size=3)):
        message.versions_seen[node].channels["a"].integer = 1
    if draw(st.booleans()):
        message.updated_channels.names.extend(draw(st.lists(name, max_size=3)))
    return message.SerializeToString(deterministic=True)


envelopes = st.builds(
    Envelope,
    key=st.builds(CheckpointKey, name, text, name),
    parent_id=text,
    revision=st.integers(1, 2**40),
    created_us=st.integers(0, 2**51),
    metadata=st.binary(max_size=50),
    state=st.builds(State, frames(), st.lists(channels(), max_size=5).map(tuple)),
    writes=st.lists(writes(), max_size=5).map(tuple),
    label=text,
    summary=text,
    lineage=st.builds(Lineage, text, text, text),
)


def simple(**changes: object) -> Envelope:
    value = Value("msgpack", b"state")
    envelope = Envelope(
        key=CheckpointKey("t", "", "1"),
        parent_id="",
        revision=1,
        created_us=1,
        metadata=b"{}",
        state=State(b"", (Channel("a", 1, value_digest(value), 5, value),)),
    )
    return replace(envelope, **changes)  # type: ignore[arg-type]


def write(data: bytes, *, task: str = "task", idx: int = 0) -> Write:
    value = Value("msgpack", data)
    return Write(task, "", idx, "out", value, value_digest(value))


def refused(data: bytes, **bounds: int) -> str:
    with pytest.raises(Refusal) as refusal:
        decode_envelope(data, "the-blob", **bounds)
    assert refusal.value.reason is Reason.BLOB_MALFORMED
    assert refusal.value.metadata["blob_id"] == "the-blob"
    return refusal.value.metadata["problem"]


def packed(**changes: object) -> bytes:
    """Return the stored form of a message that was changed after it was made."""
    message = envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(encode_envelope(simple())))
    for field, value in changes.items():
        setattr(message, field, value)
    return gzip.compress(message.SerializeToString())


@untimed
@given(envelopes)
def test_round_trip(envelope: Envelope) -> None:
    stored = encode_envelope(envelope)
    assert decode_envelope(stored, "") == envelope
    assert encode_envelope(envelope) == stored


@untimed
@given(envelopes)
def test_any_gzip_reader_and_the_contract_suffice(envelope: Envelope) -> None:
    plain = gzip.decompress(encode_envelope(envelope))
    message = envelope_pb2.CheckpointEnvelope.FromString(plain)
    assert message.format_version == 1
    assert message.kind == envelope_pb2.ENVELOPE_KIND_FULL
    assert message.ref.checkpoint_id == envelope.key.checkpoint_id
    assert [write.value.data for write in message.writes] == [
        write.value.data for write in envelope.writes
    ]


@untimed
@given(envelopes, st.data())
def test_cut_off_bytes_are_refused(envelope: Envelope, data: st.DataObject) -> None:
    stored = encode_envelope(envelope)
    refused(stored[: data.draw(st.integers(0, len(stored) - 1))])


@untimed
@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    refused(noise)
    refused(gzip.compress(b"\xff" + noise))


@pytest.mark.parametrize("version", [0, 2])
def test_unknown_format_version_is_refused(version: int) -> None:
    assert str(version) in refused(packed(format_version=version))


@pytest.mark.parametrize("kind", [0, 2, 3])
def test_wrong_kind_is_refused(kind: int) -> None:
    refused(packed(kind=kind))


def test_full_envelope_of_an_addendum_is_refused() -> None:
    refused(packed(full_sha256=bytes(32)))


def test_bytes_behind_the_end_are_refused() -> None:
    assert "follow" in refused(encode_envelope(simple()) + b"more")


def test_second_gzip_member_is_refused() -> None:
    assert "follow" in refused(encode_envelope(simple()) * 2)


def test_gzip_bomb_is_refused_at_its_bound() -> None:
    assert "1000" in refused(igzip.compress(bytes(1 << 24), mtime=0), max_bytes=1000)


def test_largest_allowed_envelope_is_read() -> None:
    stored = encode_envelope(simple())
    size = len(gzip.decompress(stored))
    assert decode_envelope(stored, "", max_bytes=size) == simple()
    refused(stored, max_bytes=size - 1)


def test_digest_that_lies_is_refused() -> None:
    message = envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(encode_envelope(simple())))
    message.state.channels[0].digest = bytes(32)
    assert "channel a" in refused(gzip.compress(message.SerializeToString()))


def test_channel_without_content_is_refused() -> None:
    message = envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(encode_envelope(simple())))
    message.state.channels[0].ClearField("value")
    refused(gzip.compress(message.SerializeToString()))


def test_write_without_index_is_refused() -> None:
    envelope = simple(writes=(write(b"w"),))
    message = envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(encode_envelope(envelope)))
    message.writes[0].ClearField("idx")
    refused(gzip.compress(message.SerializeToString()))


def test_content_that_is_not_there_is_never_packed() -> None:
    with pytest.raises(ValueError, match="no content"):
        encode_envelope(simple(state=State(b"", (Channel("a", 1, bytes(32), 5),))))


def test_merge_lets_the_latest_write_win() -> None:
    full = simple(writes=(write(b"early"), write(b"old", task="b", idx=-3)))
    sha256 = blob_digest(encode_envelope(full))
    one = simple(
        revision=2,
        state=State(b"", ()),
        full_sha256=sha256,
        writes=(write(b"new", task="b", idx=-3), write(b"late", task="a", idx=1)),
        metadata=b'{"a":1}',
        label="l",
    )
    two = replace(one, revision=3, writes=(write(b"newest", task="b", idx=-3),))
    merged = merge(full, [one, two], sha256, "")
    assert [item.value.data for item in merged.writes] == [b"late", b"newest", b"early"]
    assert (merged.revision, merged.metadata, merged.label) == (3, b'{"a":1}', "l")
    assert merged.state == full.state


def test_merge_refuses_what_does_not_belong_together() -> None:
    addendum = simple(state=State(b"", ()), full_sha256=bytes(32))
    with pytest.raises(Refusal) as refusal:
        merge(simple(), [addendum], b"1" * 32, "")
    assert refusal.value.reason is Reason.BLOB_MALFORMED
    with pytest.raises(Refusal):
        merge(addendum, [], bytes(32), "")
