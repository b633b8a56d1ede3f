"""Bundles are read back as they were written, and contradictory bundles are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.rows import checkpoint, refused_or_read, segment, value, write
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.archive.formats import bundles, segments
from tuskpoint_server.archive.formats.bundles import (
    Closure,
    decode_bundle,
    encode_bundle,
    segment_problem,
)
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.segments import (
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
    encode_segment,
)
from tuskpoint_server.core.delta_bases import DeltaChannel, DeltaSeed, DeltaWrite, encode_delta_base
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import Channel, CheckpointKey, Lineage, Value
from tuskpoint_server.core.state import encode_state
from tuskpoint_server.core.values import patch, value_digest

untimed = settings(deadline=None, max_examples=40)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=9
)
versions = st.one_of(
    st.none(), texts, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
).filter(lambda version: version not in (float("inf"), float("-inf")))
values = st.builds(Value, names, st.binary(max_size=40))


class Rows:
    """Values that the rows of a bundle name."""

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}

    def named(self, value: Value) -> bytes:
        digest = value_digest(value)
        self.values[digest] = value
        return digest

    def channel(self, draw: st.DrawFn) -> Channel:
        value, name, version = draw(st.one_of(st.none(), values)), draw(names), draw(versions)
        if value is None:
            return Channel(name, version, None)
        return Channel(name, version, self.named(value), len(value.data))

    def history(self, draw: st.DrawFn) -> DeltaChannel:
        seed, seeded = None, draw(st.one_of(st.none(), values))
        if seeded is not None:
            seed = DeltaSeed(draw(versions), self.named(seeded), len(seeded.data))
        since = draw(st.lists(values, min_size=1, max_size=3))
        return DeltaChannel(
            draw(names),
            seed,
            tuple(
                DeltaWrite(
                    *(draw(texts), draw(names), draw(st.integers(-4, 99))),
                    *(self.named(value), value.type, len(value.data)),
                )
                for value in since
            ),
        )

    def writes(self, draw: st.DrawFn, ns: str, checkpoint_id: str) -> Iterator[SegmentWrite]:
        slots = draw(st.lists(st.tuples(names, st.integers(-4, 99)), max_size=3, unique=True))
        for task_id, idx in slots:
            value = draw(values)
            yield SegmentWrite(
                *(ns, checkpoint_id, 0, task_id, idx, draw(texts), draw(names), value.type),
                *(value_digest(value), len(value.data), 0, value.data),
            )


@st.composite
def closures(draw: st.DrawFn) -> Closure:
    places = sorted(draw(st.lists(st.tuples(texts, names), min_size=1, max_size=3, unique=True)))
    rows, checkpoints = Rows(), []
    writes: list[SegmentWrite] = []
    for ns, checkpoint_id in places:
        kept = [rows.channel(draw) for _ in range(draw(st.integers(0, 3)))]
        since = [rows.history(draw) for _ in range(draw(st.integers(0, 2)))]
        frame = checkpoint_pb2.CheckpointState(schema_version=4, ts=draw(texts))
        checkpoints.append(
            SegmentCheckpoint(
                *(ns, checkpoint_id, 0, draw(texts)),
                state=encode_state(
                    frame.SerializeToString(deterministic=True),
                    {channel.name: channel for channel in kept}.values(),
                ),
                metadata=json.dumps({"step": draw(st.integers())}).encode(),
                created_us=draw(st.integers(0, 2**51)),
                label=draw(texts),
                summary=draw(texts),
                delta_base=encode_delta_base({channel.name: channel for channel in since}.values()),
                lineage=Lineage(draw(texts), draw(texts), draw(texts)),
            )
        )
        writes += rows.writes(draw, ns, checkpoint_id)
    segment = Segment(
        *("t", 0, 0, 0, 0),
        tuple(checkpoints),
        tuple(writes),
        tuple(
            SegmentValue(digest, value.type, len(value.data), 0, value.data)
            for digest, value in sorted(rows.values.items(), key=lambda item: item[0])
        ),
        handoff=draw(st.sampled_from(places)),
    )
    return Closure(CheckpointKey("t", *(segment.handoff or ("", ""))), segment)


def simple(*kept: SegmentValue) -> Closure:
    channels = [
        Channel(str(number), 1, value.digest, value.size) for number, value in enumerate(kept)
    ]
    row = SegmentCheckpoint("", "c1", 0, "", encode_state(b"", channels), b"{}", 1)
    return Closure(
        CheckpointKey("t", "", "c1"),
        Segment("t", 0, 0, 0, 0, (row,), values=kept, handoff=("", "c1")),
    )


@untimed
@given(closures())
def test_a_bundle_comes_back_as_it_was(given_closure: Closure) -> None:
    data = encode_bundle(given_closure)
    assert decode_bundle(data, "b") == given_closure
    assert not decode_segment(data, "b").members


@untimed
@given(closures(), st.randoms(use_true_random=False))
def test_the_order_in_a_bundle_does_not_matter(
    given_closure: Closure, shuffler: random.Random
) -> None:
    made = given_closure.segment
    checkpoints, stored = list(made.checkpoints), list(made.values)
    shuffler.shuffle(checkpoints)
    shuffler.shuffle(stored)
    moved = replace(made, checkpoints=tuple(checkpoints), values=tuple(stored))
    assert decode_bundle(encode_segment(moved), "b") == given_closure


@untimed
@given(st.data())
def test_changed_bundles_are_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(encode_bundle(simple(value("[1]"))))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_bundle(bytes(whole), "b")


PLAIN = value("[1,2,3,4,5,6]")
OTHER = Value("json", b"[1,2,3,4,5,6,7]")
PATCHED = value("[1,2,3,4,5,6,7]")._replace(
    encoding=2, data=patch(OTHER.data, PLAIN.data), keyframe=PLAIN.digest
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
    values = decode_bundle(encode_segment(made), "b").segment.values
    whole = {value.digest: (value.type, value.size, value.encoding, value.data) for value in values}
    assert whole[PATCHED.digest] == (OTHER.type, len(OTHER.data), 0, OTHER.data)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (bundle(handoff=None), "a segment without a hand-off"),
        (bundle(values=(PLAIN._replace(data=b"[6,5,4,3,2,1]"),)), "another digest"),
        (bundle(values=(PLAIN._replace(encoding=1),)), "frame"),
        (
            bundle(values=(PLAIN, PATCHED._replace(data=b"no frame at all"))),
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
            "an ancestor that is missing",
        ),
        (
            bundle(
                checkpoints=(
                    checkpoint(
                        "c1",
                        0,
                        delta_base=encode_delta_base(
                            (DeltaChannel("d", DeltaSeed(1, PLAIN.digest, 1), ()),)
                        ),
                    ),
                )
            ),
            "another size",
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
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", PLAIN.size)
    encode_bundle(simple(PLAIN))
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", PLAIN.size - 1)
    with pytest.raises(Refusal) as refused:
        encode_bundle(simple(PLAIN))
    assert refused.value.reason is Reason.LIMIT_EXCEEDED
    assert refused.value.metadata["limit"] == "max_bundle_bytes"


def test_a_closure_with_too_many_rows_is_not_handed_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_FIELDS", 50)
    with pytest.raises(Refusal, match="too many rows") as refused:
        encode_bundle(simple())
    assert refused.value.reason is Reason.LIMIT_EXCEEDED


# --- limits ----------------------------------------------------------------------------


def segment_of(**fields: object) -> Segment:
    return bundle(checkpoints=(checkpoint("c1", 0)._replace(**fields),))  # type: ignore[arg-type]


def framed(**fields: object) -> Segment:
    frame = checkpoint_pb2.CheckpointState(**fields)  # type: ignore[arg-type] # its fields
    return segment_of(state=frame.SerializeToString())


def based(*channels: DeltaChannel) -> Segment:
    return segment_of(delta_base=encode_delta_base(channels))


def test_values_within_the_limits_of_a_save_pass() -> None:
    full = segment_of(
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
    ("checkpoint_ns", segment_of(checkpoint_ns="n" * 2049)),
    ("checkpoint_id", segment_of(checkpoint_id="i" * 129)),
    ("parent_checkpoint_id", segment_of(parent_id="i" * 129)),
    ("label", segment_of(label="é" * 129)),
    ("summary", segment_of(summary="s" * 1025)),
    ("lineage", segment_of(lineage=Lineage(adopted_from="t" * 642))),
    ("metadata_json", segment_of(metadata=b"x" * (LIMITS.max_metadata + 1))),
    ("metadata_json", segment_of(metadata=b"null")),
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
    ("type of a value", bundle(values=(PLAIN._replace(type="t" * 129),))),
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
def test_values_above_the_limits_of_a_save_are_refused(problem: str, made: Segment) -> None:
    assert problem in segment_problem(made)
