from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import (
    SEGMENT_RECORDS,
    ChainCheck,
    ManifestEntry,
    ManifestHead,
    Record,
    RecordType,
    Segment,
    append,
    chain_problem,
    decode_segment,
    encode_segment,
    fold,
    fold_all,
)
from tuskpoint_server.domain.model import BlobLocation, Lineage

untimed = settings(deadline=None)


def predict(sha256: bytes, size: int) -> BlobLocation:
    return BlobLocation(sha256, size, f"blob-{sha256.hex()[:8]}")


def in_this_quilt(sha256: bytes, size: int) -> BlobLocation:
    return BlobLocation(sha256, size, "", sha256.hex())


def location(content: str, blob_id: str = "b") -> BlobLocation:
    return BlobLocation(blob_digest(content.encode()), len(content), blob_id)


def put(checkpoint_id: str, ns: str = "", content: str = "full", **more: object) -> Record:
    return Record(RecordType.PUT, ns, checkpoint_id, 1, location(content), **more)  # type: ignore[arg-type]


class Chain:
    """A manifest that grows as flushes grow it."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.open = Segment("t", 1, 1, 0)
        self.at: BlobLocation | None = None
        self.records = 0

    def add(self, *records: Record, generation: int = 0) -> None:
        kept = len(self.open.records) == SEGMENT_RECORDS or not self.stored
        kept = kept or generation > self.open.generation
        full, self.open = append(self.open, self.at, records, predict, generation)
        if not kept:
            self.stored.pop()
        self.stored += [encode_segment(segment) for segment in (*full, self.open)]
        data = self.stored[-1]
        self.at = predict(blob_digest(data), len(data))
        self.records += len(records)

    @property
    def head(self) -> ManifestHead:
        assert self.at is not None
        return ManifestHead(self.at, len(self.stored) - 1, self.open.generation, self.records)

    def problem(self, stored: list[bytes]) -> str:
        return chain_problem(self.head, "t", 1, stored)


def chain(count: int) -> Chain:
    grown = Chain()
    for number in range(0, count, 10):
        grown.add(*(put(f"{one:04}") for one in range(number, min(count, number + 10))))
    return grown


def _told(
    model: dict[tuple[str, str], ManifestEntry], kind: RecordType, number: int, seed: int
) -> Record | None:
    """Change the model as a record shall, and return the record; `None` if it makes no sense."""
    key = ("ns", str(number))
    envelope = location(str(seed))
    before = model.pop(key, None)
    if kind is RecordType.RETRACT:
        return Record(kind, *key)
    if kind is RecordType.PUT:
        model[key] = ManifestEntry(*key, "", seed, envelope, held=(seed,), label=str(seed))
        return Record(kind, *key, seed, envelope, label=str(seed))
    if before is None:
        return None
    after = replace(before, revision=max(seed, before.revision))
    if kind is RecordType.WRITES:
        after = replace(after, addenda=(*after.addenda, envelope), held=(*after.held, seed))
    elif kind is RecordType.LABEL:
        after = replace(after, label=str(seed))
    elif kind is RecordType.SUMMARY:
        after = replace(after, summary=str(seed))
    elif kind is RecordType.HIDE:
        after = replace(after, hidden=True, label="")
    model[key] = after
    return Record(
        kind,
        *key,
        seed,
        envelope if kind is RecordType.WRITES else None,
        label=str(seed) if kind is RecordType.LABEL else "",
        summary=str(seed) if kind is RecordType.SUMMARY else "",
    )


@untimed
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(RecordType), st.integers(0, 5), st.integers(0, 99)),
            min_size=1,
            max_size=100,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_fold_equals_a_model(flushes: list[list[tuple[RecordType, int, int]]]) -> None:
    grown = Chain()
    model: dict[tuple[str, str], ManifestEntry] = {}
    for flush in flushes:
        told = [_told(model, kind, number, seed) for kind, number, seed in flush]
        if records := [record for record in told if record is not None]:
            grown.add(*records)
    segments = [(decode_segment(data, "s"), "s") for data in grown.stored]
    entries = fold(segments)
    assert entries == model
    assert list(entries) == list(model), "in the order of their last records"
    assert all(len(segment.records) <= SEGMENT_RECORDS for segment, _ in segments)
    assert not grown.stored or grown.problem(grown.stored) == ""


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 129, 300])
def test_segments_are_full_but_the_last(count: int) -> None:
    grown = chain(count)
    sizes = [len(decode_segment(data, "").records) for data in grown.stored]
    assert sum(sizes) == count
    assert set(sizes[:-1]) <= {SEGMENT_RECORDS}
    assert grown.problem(grown.stored) == ""


def test_one_flush_may_fill_many_segments() -> None:
    grown = Chain()
    grown.add(*(put(str(number)) for number in range(200)))
    assert len(grown.stored) == 4
    assert grown.problem(grown.stored) == ""


def test_full_segment_is_not_stored_again() -> None:
    grown = chain(64)
    before = grown.stored[0]
    grown.add(put("next"))
    assert grown.stored[0] == before
    assert decode_segment(grown.stored[1], "").previous == predict(blob_digest(before), len(before))


@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_a_new_generation_begins_with_a_segment_of_its_own(count: int) -> None:
    grown = chain(count)
    before = list(grown.stored)
    grown.add(put("next"), generation=2)
    grown.add(put("and next"), generation=2)
    grown.add(put("and so on"))
    assert grown.stored[:-1] == before, "nothing of the old generation is written again"
    last = decode_segment(grown.stored[-1], "")
    assert (last.generation, len(last.records)) == (2, 3)
    grown.add(put("later"), generation=5)
    assert decode_segment(grown.stored[-1], "").generation == 5
    assert grown.problem(grown.stored) == ""
    assert len(fold((decode_segment(data, ""), "") for data in grown.stored)) == count + 4


@untimed
@given(st.lists(st.tuples(st.integers(1, 130), st.integers(0, 2)), min_size=1, max_size=6))
def test_chains_of_many_generations_hold(flushes: list[tuple[int, int]]) -> None:
    grown = Chain()
    generation = 1
    for number, (count, more) in enumerate(flushes):
        generation += more
        records = [put(f"{number}-{one}") for one in range(count)]
        grown.add(*records, generation=generation if number else 0)
    assert grown.problem(grown.stored) == ""
    for number in range(len(grown.stored)):
        assert grown.problem([*grown.stored[:number], *grown.stored[number + 1 :]]) != ""


def test_generations_may_not_fall() -> None:
    segments = [
        Segment("t", 1, 2, 0, None, (put("1"),)),
        Segment("t", 1, 1, 1, None, (put("2"),)),
    ]
    head, stored = relinked(segments, generations=(2, 1))
    assert "another generation" in chain_problem(head, "t", 1, stored)


def test_the_head_must_be_of_the_generation_that_was_recorded() -> None:
    grown = chain(3)
    head = replace(grown.head, generation=2)
    assert "another generation" in chain_problem(head, "t", 1, grown.stored)


def test_a_segment_in_the_middle_of_a_generation_must_be_full() -> None:
    segments = [Segment("t", 1, 1, n, None, (put(str(n)),)) for n in range(3)]
    head, stored = relinked(segments, generations=(1, 2, 2))
    assert "segment 1 has a successor" in chain_problem(head, "t", 1, stored)
    head, stored = relinked(segments, generations=(1, 2, 3))
    assert chain_problem(head, "t", 1, stored) == ""


def test_a_head_of_unknown_length_is_checked_by_hashes_alone() -> None:
    grown = chain(130)
    unknown = replace(grown.head, records=0)
    assert chain_problem(unknown, "t", 1, grown.stored) == ""
    assert chain_problem(unknown, "t", 1, grown.stored[1:]) != ""


def test_a_hidden_checkpoint_saved_anew_is_visible() -> None:
    hide = Record(RecordType.HIDE, "", "1", 2)
    segment = Segment("t", 1, 1, 0, None, (put("1", label="a"), hide))
    [entry] = fold([(segment, "b")]).values()
    assert (entry.hidden, entry.label, entry.revision) == (True, "", 2)
    again = replace(segment, records=(*segment.records, put("1", label="b")))
    [entry] = fold([(again, "b")]).values()
    assert (entry.hidden, entry.label) == (False, "b")
    content = json.loads(encode_segment(segment))["records"][1]
    assert content == {"type": "HIDE", "checkpoint_ns": "", "checkpoint_id": "1", "revision": 2}
    assert decode_segment(encode_segment(segment), "") == segment


def test_stored_form_is_canonical() -> None:
    record = put("1", parent_id="0", label="ü", lineage=Lineage(forked_from="a:b"))
    data = encode_segment(Segment("t", 1, 1, 0, None, (record,)))
    content = json.loads(data)
    assert data == json.dumps(
        content, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    ).encode("utf-8")
    [told] = content["records"]
    assert told["envelope"]["sha256"] == blob_digest(b"full").hex()
    assert told["lineage"] == {"forked_from": "a:b"}
    assert decode_segment(data, "").records == (record,)


def test_this_quilt_is_spelled_out_once_it_is_known() -> None:
    record = Record(RecordType.PUT, "", "1", 1, in_this_quilt(b"\1" * 32, 5))
    _, first = append(Segment("t", 1, 1, 0), None, [record] * 70, in_this_quilt)
    stored = BlobLocation(b"\2" * 32, 9, "quilt-1", "id")
    assert first.previous is not None
    assert first.previous.blob_id == ""
    _, second = append(first, stored, [record], in_this_quilt)
    assert second.previous is not None
    assert second.previous.blob_id == "quilt-1"
    quilts = [item.envelope.blob_id for item in second.records if item.envelope]
    assert quilts == ["quilt-1"] * 6 + [""]
    entries = fold([(second, "quilt-2")])
    assert entries["", "1"].envelope.blob_id == "quilt-2"


# --- tampering -------------------------------------------------------------------------


def test_missing_segment_is_detected() -> None:
    grown = chain(200)
    for number in range(len(grown.stored)):
        assert grown.problem(grown.stored[:number] + grown.stored[number + 1 :]) != ""


def test_missing_first_segment_is_named() -> None:
    grown = chain(200)
    problem = grown.problem(grown.stored[1:])
    assert "missing" in problem
    assert blob_digest(grown.stored[0]).hex() in problem


def test_reordered_segments_are_detected() -> None:
    grown = chain(200)
    one, two, *rest = grown.stored
    assert "segment 1" in grown.problem([two, one, *rest])


def test_substituted_segment_is_detected() -> None:
    grown, other = chain(200), Chain()
    other.add(*(put(f"{number:04}", content="other") for number in range(200)))
    for number in range(len(grown.stored)):
        substituted = list(grown.stored)
        substituted[number] = other.stored[number]
        problem = grown.problem(substituted)
        assert blob_digest(other.stored[number]).hex() in problem


def test_truncated_chain_is_detected() -> None:
    """An older head is a chain of its own; the recorded head tells it apart."""
    grown = chain(200)
    assert grown.problem(grown.stored[:-1]) != ""


def test_segment_too_many_is_detected() -> None:
    grown = chain(100)
    assert grown.problem([grown.stored[0], *grown.stored]) != ""


def test_chain_of_another_thread_is_detected() -> None:
    grown = chain(100)
    assert "another thread" in chain_problem(grown.head, "u", 1, grown.stored)
    assert "another thread" in chain_problem(grown.head, "t", 2, grown.stored)


def relinked(
    segments: list[Segment], generations: Sequence[int] = ()
) -> tuple[ManifestHead, list[bytes]]:
    """Store segments with true hashes, as someone with the keys to the store could."""
    generations = generations or (1,) * len(segments)
    stored: list[bytes] = []
    previous = None
    for number, segment in enumerate(segments):
        data = encode_segment(
            replace(segment, generation=generations[number], previous=previous if number else None)
        )
        stored.append(data)
        previous = predict(blob_digest(data), len(data))
    assert previous is not None
    records = sum(len(segment.records) for segment in segments)
    return ManifestHead(previous, len(segments) - 1, generations[-1], records), stored


def test_shortened_segment_inside_the_chain_is_detected() -> None:
    segments = [decode_segment(data, "") for data in chain(130).stored]
    segments[1] = Segment("t", 1, 1, 1, segments[1].previous, segments[1].records[:-1])
    assert "only 63 records" in chain_problem(*_args(relinked(segments)))


def test_wrong_number_of_records_is_detected() -> None:
    head, stored = relinked([decode_segment(data, "") for data in chain(130).stored])
    more = ManifestHead(head.location, head.segment, head.generation, head.records + 1)
    assert "130 records where 131" in chain_problem(more, "t", 1, stored)


def test_renumbered_segments_are_detected() -> None:
    segments = [decode_segment(data, "") for data in chain(130).stored]
    segments[2] = Segment("t", 1, 1, 7, segments[2].previous, segments[2].records)
    assert "segment 7" in chain_problem(*_args(relinked(segments)))


def _args(made: tuple[ManifestHead, list[bytes]]) -> tuple[ManifestHead, str, int, list[bytes]]:
    return made[0], "t", 1, made[1]


# --- malformed segments ----------------------------------------------------------------


def changed(**changes: object) -> bytes:
    content = json.loads(chain(1).stored[0])
    return json.dumps({**content, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        changed(format_version=2),
        changed(format_version="1"),
        changed(segment=1),
        changed(segment=-1),
        changed(segment=True),
        changed(previous={"sha256": "00", "size_bytes": 1}),
        changed(records={}),
        changed(records=[{"type": "ERASE", "checkpoint_ns": "", "checkpoint_id": "1"}]),
        changed(records=[{"type": "PUT", "checkpoint_ns": "", "checkpoint_id": "1"}]),
        changed(records=[{"type": "RETRACT", "checkpoint_ns": "", "checkpoint_id": "1"}] * 65),
    ],
)
def test_malformed_segment_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_segment(data, "the-blob")
    assert refused.value.reason is Reason.BLOB_MALFORMED
    assert refused.value.metadata["blob_id"] == "the-blob"


def test_writes_before_their_put_are_refused() -> None:
    record = Record(RecordType.WRITES, "", "1", 1, location("late"))
    with pytest.raises(Refusal) as refused:
        fold([(Segment("t", 1, 1, 0, None, (record,)), "b")])
    assert refused.value.reason is Reason.BLOB_MALFORMED


def test_retraction_of_what_was_never_told_is_harmless() -> None:
    record = Record(RecordType.RETRACT, "", "1")
    assert fold([(Segment("t", 1, 1, 0, None, (record,)), "b")]) == {}


def test_fold_tells_what_was_retracted() -> None:
    records = (
        put("1"),
        put("2"),
        put("3"),
        Record(RecordType.RETRACT, "", "1"),
        Record(RecordType.RETRACT, "", "2"),
        put("2"),
        Record(RecordType.RETRACT, "inner", "3"),
    )
    segments = [(Segment("t", 1, 1, 0, records=records), "b")]
    folded = fold_all(segments)
    assert folded.entries == fold(segments)
    assert set(folded.entries) == {("", "3"), ("", "2")}
    assert folded.retracted == {("", "1"), ("inner", "3")}


def test_check_hands_over_what_it_accepted() -> None:
    grown = Chain()
    grown.add(*(put(f"{number}") for number in range(SEGMENT_RECORDS + 1)))
    check = ChainCheck(grown.head, "t", 1)
    for number in (1, 0):
        assert check.accept(grown.stored[number]) == ""
        assert check.accepted is not None
        assert check.accepted == decode_segment(grown.stored[number], "")
