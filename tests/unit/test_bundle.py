"""Bundles: what is handed off comes back as it was, and what makes no sense is refused."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_envelope import channels, frames, name, text, write, writes
from tuskpoint.v1 import checkpoint_pb2, envelope_pb2, handoff_pb2
from tuskpoint_server.domain import bundle, bundle_fields
from tuskpoint_server.domain.bundle import check_size, decode_bundle, encode_bundle
from tuskpoint_server.domain.bundle_limits import member_problem
from tuskpoint_server.domain.digests import value_digest
from tuskpoint_server.domain.envelope import Envelope
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.lineage import Closure, ClosureMember
from tuskpoint_server.domain.model import (
    Channel,
    Checkpoint,
    CheckpointKey,
    Entry,
    Lineage,
    State,
    Value,
)

untimed = settings(deadline=None)

THREAD = "t"


def channel(label: str = "a", data: bytes = b"state") -> Channel:
    value = Value("msgpack", data)
    return Channel(label, 1, value_digest(value), len(data), value)


def entry(checkpoint_id: str = "1", ns: str = "", **fields: object) -> Entry:
    made = Entry(
        key=CheckpointKey(THREAD, ns, checkpoint_id),
        parent_id="",
        incarnation=0,
        revision=1,
        certified_revision=0,
        seq=0,
        created_us=1,
        metadata=b"{}",
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def member(checkpoint_id: str = "1", ns: str = "", *, hidden: bool = False) -> ClosureMember:
    state = State(b"", (channel(),))
    return ClosureMember(Checkpoint(entry(checkpoint_id, ns), state, (write(b"w"),)), hidden)


def closure(*members: ClosureMember) -> Closure:
    return Closure(CheckpointKey(THREAD, "", "1"), members or (member(),))


@st.composite
def closures(draw: st.DrawFn) -> Closure:
    places = draw(st.lists(st.tuples(text, name), min_size=1, max_size=4, unique=True))
    made = [
        ClosureMember(
            Checkpoint(
                entry(
                    checkpoint_id,
                    ns,
                    parent_id=draw(text),
                    revision=draw(st.integers(1, 2**40)),
                    created_us=draw(st.integers(0, 2**51)),
                    metadata=json.dumps({"step": draw(st.integers())}).encode(),
                    label=draw(text),
                    summary=draw(text),
                    lineage=Lineage(draw(text), draw(text), draw(text)),
                ),
                State(
                    draw(frames()),
                    tuple(draw(st.lists(channels(), max_size=3, unique_by=lambda c: c.name))),
                ),
                tuple(draw(st.lists(writes(), max_size=3, unique_by=lambda w: (w.task_id, w.idx)))),
            ),
            hidden=draw(st.booleans()) if number else False,
        )
        for number, (ns, checkpoint_id) in enumerate(places)
    ]
    key = made[0].checkpoint.entry.key
    return Closure(key, tuple(sorted(made, key=_place)))


def _place(one: ClosureMember) -> tuple[str, str]:
    key = one.checkpoint.entry.key
    return (key.checkpoint_ns, key.checkpoint_id)


def message_of(stored: bytes) -> handoff_pb2.HandoffBundle:
    return handoff_pb2.HandoffBundle.FromString(gzip.decompress(stored))


def stored_after(change: Callable[[handoff_pb2.HandoffBundle], object]) -> bytes:
    """Return the stored form of a bundle that was changed after it was made."""
    message = message_of(encode_bundle(closure(member(), member("0", hidden=True))))
    change(message)
    return gzip.compress(message.SerializeToString())


def problem(stored: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        decode_bundle(stored, "the-blob")
    assert caught.value.reason is Reason.BLOB_MALFORMED
    assert caught.value.metadata["blob_id"] == "the-blob"
    return caught.value.metadata["problem"]


# --- there and back --------------------------------------------------------------------


@untimed
@given(closures())
def test_what_is_handed_off_comes_back_as_it_was(given_closure: Closure) -> None:
    assert decode_bundle(encode_bundle(given_closure), "") == given_closure


@untimed
@given(closures(), st.randoms(use_true_random=False))
def test_equal_content_gives_equal_bytes(given_closure: Closure, random: object) -> None:
    shuffled = list(given_closure.members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    # Where it is and how far the archive has come is not content.
    moved = [
        replace(
            one,
            checkpoint=replace(
                one.checkpoint,
                entry=replace(one.checkpoint.entry, incarnation=7, seq=9, certified_revision=1),
            ),
        )
        for one in shuffled
    ]
    again = replace(given_closure, members=tuple(moved))
    assert encode_bundle(again) == encode_bundle(given_closure)


def test_another_process_makes_the_same_bytes() -> None:
    script = (
        "from tests.unit.test_bundle import closure, member\n"
        "from tuskpoint_server.domain.bundle import encode_bundle\n"
        "print(encode_bundle(closure(member(), member('0', hidden=True))).hex())"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == encode_bundle(closure(member(), member("0", hidden=True))).hex()


def test_any_gzip_reader_and_the_contract_suffice() -> None:
    message = message_of(
        encode_bundle(closure(member(), member("0", hidden=True), member("2", "n")))
    )
    assert message.format_version == 1
    assert (message.ref.thread_id, message.ref.checkpoint_id) == (THREAD, "1")
    found = [(one.envelope.ref.checkpoint_id, one.hidden) for one in message.checkpoints]
    assert found == [("0", True), ("1", False), ("2", False)]
    for one in message.checkpoints:
        assert one.envelope.kind == envelope_pb2.ENVELOPE_KIND_FULL
        assert one.envelope.state.channels[0].value.data == b"state"
        assert one.envelope.writes[0].value.data == b"w"


def test_metadata_that_was_left_out_is_an_empty_object() -> None:
    stored = stored_after(lambda m: m.checkpoints[1].envelope.ClearField("metadata_json"))
    assert decode_bundle(stored, "").members[1].checkpoint.entry.metadata == b"{}"


# --- what is refused -------------------------------------------------------------------


def test_bytes_that_are_no_gzip_of_a_bundle() -> None:
    whole = encode_bundle(closure())
    assert "not gzip" in problem(b"neither gzip nor anything else")
    assert "not gzip" in problem(b'{"format_version": 1, "kind": "parts"}')
    assert "cut off" in problem(whole[:-1])
    assert "cut off" in problem(b"")
    assert "follow" in problem(whole + b"x")
    assert "not a HandoffBundle" in problem(gzip.compress(b"\xff\xff"))


def test_a_small_blob_that_unpacks_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", 1 << 20)
    assert "more than 1048576 bytes" in problem(gzip.compress(bytes(1 << 24)))


def field(number: int, content: bytes) -> bytes:
    """Return a nested field on the wire."""
    size, rest = bytearray(), len(content)
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + content


CROWDS = {
    "checkpoints": lambda many: b"\x1a\x00" * many,
    "channels": lambda many: field(3, field(1, field(6, b"\x1a\x00" * many))),
    "writes": lambda many: field(3, field(1, b"\x5a\x00" * many)),
    "names": lambda many: field(3, field(1, field(6, b"\x32\x00" * many))),
    # Which content counts changes each time, and each is made anew.
    "contents of a channel": lambda many: field(
        3, field(1, field(6, field(3, b"\x1a\x00\x22\x00" * (many // 2))))
    ),
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS.keys())
def test_a_small_blob_that_makes_too_many_things(
    crowd: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_fields, "MAX_FIELDS", 1000)
    parsed = {"more": 0}

    def count(plain: bytes) -> handoff_pb2.HandoffBundle:
        parsed["more"] += 1
        raise DecodeError

    monkeypatch.setattr(handoff_pb2, "HandoffBundle", SimpleNamespace(FromString=count))
    assert "more than" in problem(gzip.compress(crowd(1002)))
    assert parsed["more"] == 0
    assert "not a HandoffBundle" in problem(gzip.compress(crowd(900)))
    assert parsed["more"] == 1


def test_what_would_be_too_many_things_is_not_handed_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundle_fields, "MAX_FIELDS", 20)
    with pytest.raises(Refusal) as caught:
        encode_bundle(closure())
    assert caught.value.reason is Reason.LIMIT_EXCEEDED


@given(st.binary(max_size=64))
def test_whatever_the_parser_takes_can_be_counted(plain: bytes) -> None:
    try:
        handoff_pb2.HandoffBundle.FromString(plain)
    except DecodeError:
        return
    if not {3, 4} & {byte & 7 for byte in plain}:  # groups, of which there are none
        assert not bundle_fields.has_too_many(plain)


def test_an_envelope_is_no_bundle() -> None:
    envelope = message_of(encode_bundle(closure())).checkpoints[0].envelope
    problem(gzip.compress(envelope.SerializeToString()))


def _twice(message: handoff_pb2.HandoffBundle) -> None:
    message.checkpoints.add().CopyFrom(message.checkpoints[0])


def _addendum(message: handoff_pb2.HandoffBundle) -> None:
    envelope = message.checkpoints[1].envelope
    envelope.kind = envelope_pb2.ENVELOPE_KIND_ADDENDUM
    envelope.full_sha256 = bytes(32)
    del envelope.state.channels[:]


SENSELESS: list[tuple[str, Callable[[handoff_pb2.HandoffBundle], object], str]] = [
    ("format", lambda m: setattr(m, "format_version", 2), "format_version is 2"),
    ("none", lambda m: m.ClearField("checkpoints"), "lacks checkpoint '1'"),
    ("no ref", lambda m: m.ClearField("ref"), "of thread ''"),
    ("other ref", lambda m: setattr(m.ref, "checkpoint_id", "9"), "lacks checkpoint '9'"),
    ("other namespace", lambda m: setattr(m.ref, "checkpoint_ns", "n"), "lacks checkpoint"),
    ("hidden ref", lambda m: setattr(m.checkpoints[1], "hidden", True), "is hidden"),
    ("twice", _twice, "twice"),
    (
        "another thread",
        lambda m: setattr(m.checkpoints[0].envelope.ref, "thread_id", "u"),
        "holds one of 'u'",
    ),
    ("addendum", _addendum, "addendum"),
    (
        "envelope's format",
        lambda m: setattr(m.checkpoints[0].envelope, "format_version", 9),
        "format_version is 9",
    ),
    (
        "lying digest",
        lambda m: setattr(m.checkpoints[0].envelope.state.channels[0], "digest", bytes(32)),
        "another digest",
    ),
    (
        "lying write",
        lambda m: setattr(m.checkpoints[0].envelope.writes[0], "digest", bytes(32)),
        "another digest",
    ),
    (
        "channel without content",
        lambda m: m.checkpoints[0].envelope.state.channels[0].ClearField("value"),
        "no content",
    ),
    (
        "metadata",
        lambda m: setattr(m.checkpoints[0].envelope, "metadata_json", b"[]"),
        "JSON object",
    ),
    (
        "time",
        lambda m: setattr(m.checkpoints[0].envelope.create_time, "seconds", 2**62),
        "no time",
    ),
    (
        "limit",
        lambda m: setattr(m.checkpoints[0].envelope, "label", "x" * 257),
        "checkpoint '0': label must be at most 256",
    ),
]


@pytest.mark.parametrize(
    ("change", "told"), [row[1:] for row in SENSELESS], ids=[row[0] for row in SENSELESS]
)
def test_a_bundle_that_makes_no_sense(
    change: Callable[[handoff_pb2.HandoffBundle], object], told: str
) -> None:
    assert told in problem(stored_after(change))


# --- limits ----------------------------------------------------------------------------


def test_a_closure_that_is_too_large_is_not_handed_off(monkeypatch: pytest.MonkeyPatch) -> None:
    size = message_of(encode_bundle(closure())).ByteSize()
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", size)
    encode_bundle(closure())
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", size - 1)
    with pytest.raises(Refusal) as caught:
        encode_bundle(closure())
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert caught.value.metadata["limit"] == "max_bundle_bytes"


def test_sizes_are_enough_to_refuse_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", 5)
    evicted = replace(channel(), value=None)
    fits = ClosureMember(Checkpoint(entry(), State(b"", (evicted,))))
    check_size(closure(fits))
    over = ClosureMember(Checkpoint(entry(), State(b"", (replace(evicted, size=6),))))
    with pytest.raises(Refusal) as caught:
        check_size(closure(over))
    assert caught.value.reason is Reason.LIMIT_EXCEEDED


def envelope(**fields: object) -> Envelope:
    made = Envelope(CheckpointKey(THREAD, "", "1"), "", 1, 1, b"{}", State(b"", (channel(),)))
    return replace(made, **fields)  # type: ignore[arg-type]


def with_channels(*found: Channel, frame: bytes = b"") -> Envelope:
    return envelope(state=State(frame, found))


def test_what_a_save_may_hold_passes() -> None:
    full = envelope(
        key=CheckpointKey("t" * 512, "n" * 2048, "i" * 128),
        label="l" * 256,
        summary="é" * 512,
        metadata=b"x" * LIMITS.max_metadata,
        lineage=Lineage("t" * 512 + ":" + "i" * 128),
        writes=(write(b"w"), write(b"w", idx=1)),
    )
    assert member_problem(full) == ""
    assert member_problem(with_channels(replace(channel(), version=None))) == ""


TOO_MUCH: list[tuple[str, Envelope]] = [
    ("thread_id", envelope(key=CheckpointKey("t" * 513, "", "1"))),
    ("thread_id", envelope(key=CheckpointKey("a\0", "", "1"))),
    ("checkpoint_ns", envelope(key=CheckpointKey("t", "n" * 2049, "1"))),
    ("checkpoint_id", envelope(key=CheckpointKey("t", "", "i" * 129))),
    ("checkpoint_id", envelope(key=CheckpointKey("t", "", ""))),
    ("parent_checkpoint_id", envelope(parent_id="i" * 129)),
    ("label", envelope(label="é" * 129)),
    ("summary", envelope(summary="s" * 1025)),
    ("lineage", envelope(lineage=Lineage(adopted_from="t" * 642))),
    ("metadata_json", envelope(metadata=b"x" * (LIMITS.max_metadata + 1))),
    ("channels", with_channels(*(channel(str(number)) for number in range(4097)))),
    ("twice", with_channels(channel(), channel())),
    ("name of a channel", with_channels(channel(""))),
    ("name of a channel", with_channels(channel("x" * 513))),
    ("version", with_channels(replace(channel(), version="v" * 513))),
    ("version", with_channels(replace(channel(), version=float("inf")))),
    ("type of a value", with_channels(replace(channel(), value=Value("", b"")))),
    ("values take", with_channels(replace(channel(), size=LIMITS.max_checkpoint + 1))),
    ("state without values", with_channels(frame=b"x" * (LIMITS.max_state + 1))),
    ("no CheckpointState", with_channels(frame=b"\xff\xff")),
    ("a write is there twice", envelope(writes=(write(b"1"), write(b"2")))),
    ("task_id", envelope(writes=(write(b"1", task=""),))),
    ("task_path", envelope(writes=(replace(write(b"1"), task_path="p" * 2049),))),
    ("channel of a write", envelope(writes=(replace(write(b"1"), channel=""),))),
    ("type of a value", envelope(writes=(replace(write(b"1"), value=Value("t" * 129, b"")),))),
    (
        "names of its writes",
        envelope(writes=tuple(write(b"", idx=number) for number in range(25_000))),
    ),
]


@pytest.mark.parametrize(
    ("told", "found"), TOO_MUCH, ids=[f"{n}-{row[0]}" for n, row in enumerate(TOO_MUCH)]
)
def test_what_no_save_may_hold_is_refused(told: str, found: Envelope) -> None:
    assert told in member_problem(found)


def test_a_value_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tuskpoint_server.domain.bundle_limits.LIMITS", replace(LIMITS, max_value=4)
    )
    assert "more than 4 bytes" in member_problem(envelope())


def test_delta_channels_are_looked_at() -> None:
    frame = checkpoint_pb2.CheckpointState(delta_channels=[""]).SerializeToString()
    assert "delta channel" in member_problem(with_channels(frame=frame))
    frame = checkpoint_pb2.CheckpointState(delta_channels=["a"] * 4097).SerializeToString()
    assert "delta channels" in member_problem(with_channels(frame=frame))
