"""Segments are read back as they were stored; damaged and contradictory segments are refused."""

from __future__ import annotations

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.rows import (
    checkpoint,
    place,
    refused_or_read,
    segment,
    sha,
    state,
    value,
    write,
)
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint_server.archive.formats import segment_reading
from tuskpoint_server.archive.formats.segment_reading import decode_segment, digests_of
from tuskpoint_server.archive.formats.segments import (
    MAX_MEMBERS,
    SKIPPABLE,
    SKIPPABLE_MAGIC,
    Segment,
    SegmentMember,
    encode_segment,
    member,
)
from tuskpoint_server.core.delta_bases import (
    DeltaChannel,
    DeltaSeed,
    DeltaWrite,
    decode_delta_base,
    encode_delta_base,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import Lineage

untimed = settings(deadline=None, max_examples=40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
numbers = st.integers(0, 2**63 - 1)
deltas = st.builds(
    DeltaChannel,
    names,
    st.one_of(
        st.none(),
        st.builds(
            DeltaSeed,
            st.one_of(st.none(), names, numbers, st.floats(allow_nan=False)),
            names.map(sha),
            numbers,
        ),
    ),
    st.lists(
        st.builds(
            DeltaWrite, texts, names, st.integers(-4, 2**31 - 1), names.map(sha), names, numbers
        ),
        max_size=3,
    ).map(tuple),
    st.just(""),
) | st.builds(DeltaChannel, names, st.none(), st.just(()), texts)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    values = draw(st.lists(names.map(value), max_size=4, unique_by=lambda value: value.digest))
    elsewhere = [sha(name) for name in draw(st.lists(names, max_size=4, unique=True))]
    known = [value.digest for value in values] + elsewhere
    digests = st.lists(st.sampled_from(known), max_size=4) if known else st.just([])
    ids = draw(st.lists(names, max_size=4, unique=True))
    bases = [draw(st.lists(deltas, max_size=2, unique_by=lambda delta: delta.name)) for _ in ids]
    patches = [
        value(f"patch {number}", encoding=2, keyframe=digest)
        for number, digest in enumerate(draw(digests))
    ]
    needed = elsewhere + [digest for base in bases for delta in base for digest in delta.digests]
    return Segment(
        thread_id=draw(names),
        incarnation=draw(numbers),
        generation=draw(numbers),
        first_seq=0,
        last_seq=draw(numbers),
        checkpoints=tuple(
            checkpoint(
                checkpoint_id,
                draw(numbers),
                *draw(digests),
                parent_id=draw(texts),
                metadata=draw(st.binary(max_size=9)),
                created_us=draw(numbers),
                delta_base=encode_delta_base(tuple(base)),
                label=draw(texts),
                summary=draw(texts),
                lineage=draw(st.builds(Lineage, texts, texts, texts)),
            )
            for checkpoint_id, base in zip(ids, bases, strict=True)
        ),
        writes=tuple(
            write(draw(names), draw(numbers), draw(texts), idx=idx)
            for idx in draw(st.lists(st.integers(-4, 99), max_size=4, unique=True))
        ),
        values=(*values, *patches),
        members=(member(place("far", draw(texts)), needed),) if needed else (),
    )


@untimed
@given(segments())
def test_an_encoded_segment_is_decoded(made: Segment) -> None:
    data = encode_segment(made)
    assert decode_segment(data, "b") == made
    assert encode_segment(made) == data


@untimed
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_segment(data, "b")
    assert refused.value.reason is Reason.BLOB_MALFORMED


@untimed
@given(st.binary(max_size=300))
def test_arbitrary_content_is_refused_or_read(content: bytes) -> None:
    with refused_or_read():
        decode_segment(stored(content), "b")


@untimed
@given(st.data())
def test_a_changed_segment_is_refused_or_read(data: st.DataObject) -> None:
    plain = bytearray(zstd.decompress(encode_segment(segment())[12:]))
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(0, len(plain) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    end = data.draw(st.integers(0, len(plain)))
    with refused_or_read():
        decode_segment(stored(bytes(plain[:end])), "b")
        decode_segment(stored(bytes(plain)), "b")


@untimed
@given(st.data())
def test_changed_and_cut_stored_bytes_are_refused_or_read(data: st.DataObject) -> None:
    whole = encode_segment(segment())
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_segment(bytes(changed), "b")
    with pytest.raises(Refusal):
        decode_segment(whole[: data.draw(st.integers(0, len(whole) - 1))], "b")
    with pytest.raises(Refusal, match="bytes follow"):
        decode_segment(whole + b"more", "b")


def stored(plain: bytes, *, version: int = 2, sealing: int = 1) -> bytes:
    header = segment_pb2.SegmentHeader(
        format_version=version,
        sealing=sealing,  # type: ignore[arg-type] # also numbers that are none
    ).SerializeToString()
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(header)) + header + zstd.compress(plain)


def test_the_zstd_program_unpacks_a_segment_as_it_is() -> None:
    plain = zstd.decompress(encode_segment(segment()))
    message = segment_pb2.ThreadSegment.FromString(plain)
    assert message.thread_id == "t"
    assert message.checkpoints[0].state == segment().checkpoints[0].state


def test_an_unknown_version_or_sealing_is_refused() -> None:
    plain = zstd.decompress(encode_segment(segment())[12:])
    assert decode_segment(stored(plain), "b") == segment()
    with pytest.raises(Refusal, match="format_version is 3"):
        decode_segment(stored(plain, version=3), "b")
    with pytest.raises(Refusal, match="sealing 2"):
        decode_segment(stored(plain, sealing=2), "b")


def test_a_size_above_the_bound_is_refused_before_anything_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_reading, "MAX_SEGMENT_BYTES", 999_999)
    data = stored(b"\0" * 1_000_000)
    with pytest.raises(Refusal, match="unpacks to 1000000 bytes and the bound is 999999"):
        decode_segment(data, "b")


def test_a_frame_that_holds_more_than_it_declares_is_refused() -> None:
    frame = bytearray(zstd.compress(b"ab" * 500))
    assert frame[5:7] == (1000 - 256).to_bytes(2, "little")  # RFC 8878, 3.1.1.1.4
    frame[5:7] = (900 - 256).to_bytes(2, "little")
    with pytest.raises(Refusal, match="zstd"):
        decode_segment(stored(b"")[:12] + bytes(frame), "b")


def test_very_many_small_messages_are_refused_before_they_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parse(data: bytes) -> segment_pb2.ThreadSegment:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(segment_pb2.ThreadSegment, "FromString", parse)
    with pytest.raises(Refusal, match="more than 2097152 fields"):
        decode_segment(stored(b"\x32\x00" * (2**21 + 1)), "b")


BASE = encode_delta_base((DeltaChannel("d", DeltaSeed(3, sha("seed"), 4), ()),))
PATCHED = value("b", encoding=2, keyframe=value("a").digest)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (segment(thread_id=""), "lacks its thread"),
        (segment(first_seq=6), "range ends before it begins"),
        (segment(last_seq=2**63), "a number in it is above"),
        (segment(incarnation=2**63), "a number in it is above"),
        (segment(writes=(write("c", 2**63, "x"),)), "a number in it is above"),
        (segment(checkpoints=(checkpoint("c", 1),) * 2), "a checkpoint or a write twice"),
        (segment(writes=(write("c", 1, "x"),) * 2), "a checkpoint or a write twice"),
        (segment(checkpoints=(checkpoint("", 1),)), "a checkpoint has no ID"),
        (segment(checkpoints=(checkpoint("c", 1, sha("lost")),)), "it lacks value"),
        (segment(checkpoints=(checkpoint("c", 1, b"short"),)), "names no value"),
        (segment(checkpoints=(checkpoint("c", 1, state=b"\xff"),)), "not a CheckpointState"),
        (segment(checkpoints=(checkpoint("c", 1, state=state() * 2),)), "a channel twice"),
        (
            segment(checkpoints=(checkpoint("c", 1, state=b"\0" * (LIMITS.max_state + 1)),)),
            "a state takes",
        ),
        (segment(checkpoints=(checkpoint("c", 1, delta_base=BASE),)), "it lacks value"),
        (segment(values=(value("a"),) * 2), "a value twice"),
        (segment(values=(value("a", digest=b""),)), "lacks its digest or type"),
        (segment(values=(value("a", type=""),)), "lacks its digest or type"),
        (segment(values=(value("a", size=2),)), "has 1 bytes and says 2"),
        (segment(values=(value("a", size=LIMITS.max_value + 1, encoding=1),)), "takes 13421772"),
        (segment(values=(value("a", encoding=3),)), "encoding 3"),
        (segment(values=(value("a", encoding=2),)), "contradict"),
        (segment(values=(value("a", keyframe=sha("k")),)), "contradict"),
        (segment(values=(PATCHED,)), "it lacks value"),
        (
            segment(values=(PATCHED, value("a", encoding=2, keyframe=sha("keyframe")))),
            "is a patch",
        ),
        (segment(writes=(write("", 1, "x"),)), "lacks its checkpoint, task or channel"),
        (segment(writes=(write("c", 1, "x", task_id=""),)), "lacks its checkpoint, task"),
        (segment(writes=(write("c", 1, "x", channel=""),)), "lacks its checkpoint, task"),
        (segment(writes=(write("c", 1, "x", encoding=7),)), "encoding 7"),
        (segment(members=(SegmentMember(place("m"), ()),)), "are missing"),
        (segment(members=(SegmentMember(place("m"), (b"short",)),)), "truncated"),
        (segment(members=(SegmentMember(place("m"), (b"b" * 16, b"a" * 16)),)), "not ascending"),
        (segment(handoff=("", "c1")), "lacks the checkpoint that it hands off"),
        (
            segment(handoff=("", "other"), members=(), checkpoints=()),
            "lacks the checkpoint that it hands off",
        ),
    ],
)
def test_contradictions_are_refused(made: Segment, problem: str) -> None:
    with pytest.raises(Refusal, match=problem) as refused:
        decode_segment(encode_segment(made), "b")
    assert refused.value.reason is Reason.BLOB_MALFORMED


def test_more_members_than_four_are_neither_written_nor_read() -> None:
    members = tuple(member(place(number), [sha(number)]) for number in range(MAX_MEMBERS + 1))
    with pytest.raises(ValueError, match="names 5 others"):
        encode_segment(segment(members=members))
    message = segment_pb2.ThreadSegment(thread_id="t")
    for named_member in members:
        message.members.add(digests=b"".join(named_member.prefixes)).location.sha256 = sha("x")
    with pytest.raises(Refusal, match="more than 4 members"):
        decode_segment(stored(message.SerializeToString()), "b")


def test_a_write_is_never_stored_as_a_patch() -> None:
    with pytest.raises(ValueError, match="is a patch"):
        encode_segment(segment(writes=(write("c", 1, "x", encoding=2),)))


def test_a_needed_value_is_found_in_the_segment_or_in_the_member_that_holds_it() -> None:
    made = segment()
    needed = digests_of(made.checkpoints[0], "b")
    assert needed == {value.digest for value in made.values} | {sha("far")}


def test_a_bundle_holds_its_checkpoint_and_needs_no_other() -> None:
    whole = value("[1]")
    made = segment(
        checkpoints=(checkpoint("c1", 3, whole.digest),),
        values=(whole,),
        members=(),
        handoff=("", "c1"),
    )
    assert decode_segment(encode_segment(made), "b") == made


@untimed
@given(st.lists(deltas, max_size=3, unique_by=lambda delta: delta.name).map(tuple))
def test_a_delta_base_comes_back(channels: tuple[DeltaChannel, ...]) -> None:
    assert decode_delta_base(encode_delta_base(channels), "b") == channels


@untimed
@given(st.binary(max_size=60))
def test_arbitrary_delta_bases_are_refused_or_read(data: bytes) -> None:
    with refused_or_read():
        decode_delta_base(data, "b")


def test_a_delta_base_that_begins_with_a_value_and_at_an_ancestor_is_refused() -> None:
    both = DeltaChannel("d", DeltaSeed(3, sha("seed"), 4), (), "c0")
    with pytest.raises(Refusal, match="begins twice"):
        decode_delta_base(encode_delta_base((both,)), "b")


def test_a_delta_base_with_a_channel_twice_or_without_a_digest_is_refused() -> None:
    with pytest.raises(Refusal, match="twice"):
        decode_delta_base(BASE + BASE, "b")
    with pytest.raises(Refusal, match="names no value"):
        decode_delta_base(encode_delta_base((DeltaChannel("d", DeltaSeed(3, b"", 4), ()),)), "b")
