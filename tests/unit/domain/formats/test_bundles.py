"""Bundles: what is handed off comes back as it was, and what makes no sense is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.domain.formats.rows import checkpoint, refused_or_read, segment, value, write
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.formats import bundles, segments
from tuskpoint_server.domain.formats.bundles import decode_bundle, encode_bundle, segment_problem
from tuskpoint_server.domain.formats.segment_reading import decode_segment
from tuskpoint_server.domain.formats.segments import (
    DeltaChannel,
    DeltaSeed,
    DeltaWrite,
    Segment,
    encode_delta_base,
    encode_segment,
)
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.lineage import Closure, ClosureMember
from tuskpoint_server.domain.model import (
    Channel,
    Checkpoint,
    CheckpointKey,
    DeltaHistory,
    Entry,
    Lineage,
    State,
    Value,
    Write,
    write_order,
)
from tuskpoint_server.domain.state import encode_state
from tuskpoint_server.domain.values import patch, value_digest

untimed = settings(deadline=None, max_examples=40)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=9
)
versions = st.one_of(
    st.none(), texts, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
).filter(lambda version: version not in (float("inf"), float("-inf")))
values = st.builds(Value, names, st.binary(max_size=40))


@st.composite
def channels(draw: st.DrawFn, label: str | None = None) -> Channel:
    found = draw(values if label else st.one_of(st.none(), values))
    name = label or draw(names)
    if found is None:
        return Channel(name, draw(versions), None)
    return Channel(name, draw(versions), value_digest(found), len(found.data), found)


@st.composite
def writes(draw: st.DrawFn, channel: str | None = None) -> Write:
    found = draw(values)
    place = (draw(names), draw(texts), draw(st.integers(-4, 99)))
    return Write(*place, channel or draw(names), found, value_digest(found))


@st.composite
def histories(draw: st.DrawFn) -> DeltaHistory:
    name = draw(names)
    since = draw(st.lists(writes(channel=name), min_size=1, max_size=3))
    return DeltaHistory(name, draw(st.one_of(st.none(), channels(label=name))), tuple(since))


def entry(checkpoint_id: str = "c1", ns: str = "", **fields: object) -> Entry:
    made = Entry(CheckpointKey("t", ns, checkpoint_id), "", 0, 0, False, 1, b"{}")
    return replace(made, **fields)  # type: ignore[arg-type] # fields of an entry


@st.composite
def closures(draw: st.DrawFn) -> Closure:
    places = draw(st.lists(st.tuples(texts, names), min_size=1, max_size=3, unique=True))
    made = []
    for ns, checkpoint_id in places:
        found = entry(
            checkpoint_id,
            ns,
            parent_id=draw(texts),
            created_us=draw(st.integers(0, 2**51)),
            metadata=json.dumps({"step": draw(st.integers())}).encode(),
            label=draw(texts),
            summary=draw(texts),
            lineage=Lineage(draw(texts), draw(texts), draw(texts)),
        )
        kept = draw(st.lists(channels(), max_size=3, unique_by=lambda one: one.name))
        pending = draw(st.lists(writes(), max_size=3, unique_by=lambda one: (one.task_id, one.idx)))
        since = draw(st.lists(histories(), max_size=2, unique_by=lambda one: one.channel))
        frame = checkpoint_pb2.CheckpointState(schema_version=4, ts=draw(texts))
        content = State(frame.SerializeToString(deterministic=True), tuple(kept))
        whole = Checkpoint(found, content, tuple(sorted(pending, key=write_order)))
        made.append(ClosureMember(whole, tuple(since)))
    made.sort(key=lambda one: one.checkpoint.entry.key.checkpoint_id)
    made.sort(key=lambda one: one.checkpoint.entry.key.checkpoint_ns)
    return Closure(draw(st.sampled_from(made)).checkpoint.entry.key, tuple(made))


def simple(*kept: Channel) -> Closure:
    whole = Checkpoint(entry(), State(b"", kept))
    return Closure(entry().key, (ClosureMember(whole),))


@untimed
@given(closures())
def test_what_is_handed_off_comes_back_as_it_was(given_closure: Closure) -> None:
    data = encode_bundle(given_closure)
    assert decode_bundle(data, "b") == given_closure
    assert not decode_segment(data, "b").members


@untimed
@given(closures(), st.randoms(use_true_random=False), st.integers(0, 2**40))
def test_equal_content_gives_equal_bytes(
    given_closure: Closure, shuffler: random.Random, seq: int
) -> None:
    members = list(given_closure.members)
    shuffler.shuffle(members)
    moved = [
        replace(
            one, checkpoint=replace(one.checkpoint, entry=replace(one.checkpoint.entry, seq=seq))
        )
        for one in members
    ]
    assert encode_bundle(Closure(given_closure.key, tuple(moved), seq)) == encode_bundle(
        given_closure
    )


@untimed
@given(st.data())
def test_changed_bundles_are_refused_or_read(data: st.DataObject) -> None:
    found = value("[1]")
    kept = Channel("a", 1, found.digest, found.size, Value(found.type, found.data))
    whole = bytearray(encode_bundle(simple(kept)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_bundle(bytes(whole), "b")


PLAIN = value("[1,2,3,4,5,6]")
OTHER = Value("json", b"[1,2,3,4,5,6,7]")
PATCHED = replace(
    value("[1,2,3,4,5,6,7]"), encoding=2, data=patch(OTHER.data, PLAIN.data), keyframe=PLAIN.digest
)


def bundle(**changes: object) -> Segment:
    made = segment(
        checkpoints=(checkpoint("c1", 0, state=channel_state(PLAIN.digest, PLAIN.size)),),
        writes=(write("c1", 0, '"w"'),),
        values=(PLAIN,),
        members=(),
        handoff=("", "c1"),
    )
    return replace(made, **changes)  # type: ignore[arg-type] # fields of a segment


def channel_state(digest: bytes, size: int, frame: bytes = b"") -> bytes:
    return encode_state(frame, [Channel("a", 1, digest, size)])


def test_values_in_a_bundle_may_be_patches() -> None:
    made = bundle(
        checkpoints=(checkpoint("c1", 0, state=channel_state(PATCHED.digest, PATCHED.size)),),
        values=(PATCHED, PLAIN),
    )
    [member] = decode_bundle(encode_segment(made), "b").members
    assert member.checkpoint.state is not None
    assert member.checkpoint.state.channels[0].value == OTHER


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (bundle(handoff=None), "hands nothing off"),
        (bundle(values=(replace(PLAIN, data=b"[6,5,4,3,2,1]"),)), "another digest"),
        (bundle(values=(replace(PLAIN, encoding=1),)), "frame"),
        (
            bundle(values=(PLAIN, replace(PATCHED, data=b"no frame at all"))),
            "cannot be read",
        ),
        (bundle(writes=(write("c1", 0, "w", data=b"v"),)), "another digest"),
        (bundle(writes=(write("c2", 0, "w"),)), "a checkpoint that it lacks"),
        (
            bundle(checkpoints=(checkpoint("c1", 0, state=channel_state(PLAIN.digest, 1)),)),
            "another size",
        ),
        (
            bundle(
                checkpoints=(
                    checkpoint(
                        "c1", 0, delta_base=encode_delta_base((DeltaChannel("d", None, (), "c0"),))
                    ),
                )
            ),
            "an ancestor that it lacks",
        ),
        (bundle(thread_id="a\0b"), "thread_id must not contain NUL"),
        (bundle(checkpoints=(checkpoint("c1", 0, metadata=b"[]"),)), "metadata_json"),
    ],
)
def test_a_bundle_that_makes_no_sense_is_refused(made: Segment, problem: str) -> None:
    with pytest.raises(Refusal, match=problem) as refused:
        decode_bundle(encode_segment(made), "the-blob")
    assert refused.value.reason is Reason.BLOB_MALFORMED
    assert refused.value.metadata["blob_id"] == "the-blob"


def test_small_frames_that_unpack_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", PLAIN.size + 2)
    with pytest.raises(Refusal, match="its values take 16 bytes"):
        decode_bundle(encode_segment(bundle()), "b")


def test_a_closure_that_is_too_large_is_not_handed_off(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Channel("a", 1, PLAIN.digest, PLAIN.size, Value(PLAIN.type, PLAIN.data))
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", PLAIN.size)
    encode_bundle(simple(kept))
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", PLAIN.size - 1)
    with pytest.raises(Refusal) as refused:
        encode_bundle(simple(kept))
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    assert refused.value.metadata["limit"] == "max_bundle_bytes"


def test_a_closure_with_too_many_rows_is_not_handed_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_FIELDS", 50)
    with pytest.raises(Refusal, match="too many rows") as refused:
        encode_bundle(simple())
    assert refused.value.reason is Reason.LIMIT_EXCEEDED


def test_a_closure_without_its_values_is_not_handed_off() -> None:
    with pytest.raises(ValueError, match="no content"):
        encode_bundle(simple(Channel("a", 1, PLAIN.digest, PLAIN.size)))


# --- limits ----------------------------------------------------------------------------


def one(**fields: object) -> Segment:
    return bundle(checkpoints=(replace(checkpoint("c1", 0), **fields),))  # type: ignore[arg-type]


def framed(**fields: object) -> Segment:
    frame = checkpoint_pb2.CheckpointState(**fields)  # type: ignore[arg-type] # its fields
    return one(state=frame.SerializeToString())


def based(*found: DeltaChannel) -> Segment:
    return one(delta_base=encode_delta_base(found))


def test_what_a_save_may_hold_passes() -> None:
    full = one(
        checkpoint_ns="n" * 2048,
        checkpoint_id="i" * 128,
        label="l" * 256,
        summary="é" * 512,
        metadata=b'{"a":"%s"}' % (b"x" * (LIMITS.max_metadata - 8)),
        lineage=Lineage("t" * 512 + ":" + "i" * 128),
    )
    assert segment_problem(replace(full, thread_id="t" * 512)) == ""
    assert segment_problem(segment()) == ""


DIGEST = PLAIN.digest
LONG = "p" * 2049
TOO_MUCH: list[tuple[str, Segment]] = [
    ("thread_id", bundle(thread_id="t" * 513)),
    ("checkpoint_ns", one(checkpoint_ns="n" * 2049)),
    ("checkpoint_id", one(checkpoint_id="i" * 129)),
    ("parent_checkpoint_id", one(parent_id="i" * 129)),
    ("label", one(label="é" * 129)),
    ("summary", one(summary="s" * 1025)),
    ("lineage", one(lineage=Lineage(adopted_from="t" * 642))),
    ("metadata_json", one(metadata=b"x" * (LIMITS.max_metadata + 1))),
    ("metadata_json", one(metadata=b"null")),
    ("4096 channels", framed(channels=[{"name": str(number)} for number in range(4097)])),
    ("name of a channel", framed(channels=[{"name": ""}])),
    ("name of a channel", framed(channels=[{"name": "x" * 513}])),
    ("version", framed(channels=[{"name": "a", "version": {"text": "v" * 513}}])),
    ("version", framed(channels=[{"name": "a", "version": {"number": float("inf")}}])),
    (
        "values take",
        framed(
            channels=[{"name": str(n), "size_bytes": LIMITS.max_value} for n in range(3)],
        ),
    ),
    ("delta channel", framed(delta_channels=[""])),
    ("delta channels", framed(delta_channels=["a"] * 4097)),
    ("delta channel", based(DeltaChannel("x" * 513, None, ()))),
    ("version", based(DeltaChannel("d", DeltaSeed("v" * 513, DIGEST, 1), ()))),
    ("task_id", based(DeltaChannel("d", None, (DeltaWrite("", "", 0, DIGEST, "json", 1),)))),
    ("task_path", based(DeltaChannel("d", None, (DeltaWrite(LONG, "t", 0, DIGEST, "j", 1),)))),
    ("type of a value", based(DeltaChannel("d", None, (DeltaWrite("", "t", 0, DIGEST, "", 1),)))),
    ("type of a value", bundle(values=(replace(PLAIN, type="t" * 129),))),
    ("task_id", bundle(writes=(write("c1", 0, "w", task_id="t" * 513),))),
    ("task_path", bundle(writes=(write("c1", 0, "w", task_path="p" * 2049),))),
    ("channel of a write", bundle(writes=(write("c1", 0, "w", channel="c" * 513),))),
    ("type of a value", bundle(writes=(write("c1", 0, "w", type="t" * 129),))),
    ("checkpoint_id", bundle(writes=(write("i" * 129, 0, "w"),))),
    (
        "names of a checkpoint's writes",
        bundle(writes=tuple(write("c1", 0, "", idx=number) for number in range(25_000))),
    ),
]


@pytest.mark.parametrize(
    ("problem", "made"), TOO_MUCH, ids=[f"{n}-{row[0]}" for n, row in enumerate(TOO_MUCH)]
)
def test_what_no_save_may_hold_is_refused(problem: str, made: Segment) -> None:
    assert problem in segment_problem(made)
