"""Records and manifests are stored in canonical JSON; malformed records are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.rows import encode_record, records, refused_or_read, segment, sha
from tuskpoint_server.archive.formats.manifests import decode_manifest, encode_manifest, fold
from tuskpoint_server.archive.formats.records import (
    CheckpointRecord,
    MemberRecord,
    Record,
    decode_record,
)
from tuskpoint_server.archive.formats.segments import encode_segment
from tuskpoint_server.archive.formats.stored_json import (
    MAX_PARTS,
    decode_parts,
    encode_parts,
    is_part_list,
    join_parts,
)
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation
from tuskpoint_server.core.values import split

untimed = settings(deadline=None, max_examples=40)

KEPT = CheckpointRecord("t", 1, 2, 9, "", "c9", "c8", 1_700, sha("segment"), sha("state"))


@untimed
@given(records)
def test_a_record_comes_back_from_canonical_json(record: Record) -> None:
    line = encode_record(record)
    assert decode_record(line, "") == record
    content = json.loads(line)
    again = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert again.encode() == line
    assert b"\n" not in line


def test_a_record_spells_out_its_fields() -> None:
    assert json.loads(encode_record(KEPT)) == {
        "kind": "checkpoint",
        "thread_id": "t",
        "incarnation": 1,
        "generation": 2,
        "seq": 9,
        "checkpoint_ns": "",
        "checkpoint_id": "c9",
        "parent_checkpoint_id": "c8",
        "create_time_us": 1_700,
        "segment": sha("segment").hex(),
        "state_sha256": sha("state").hex(),
    }


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@untimed
@given(records, st.data())
def test_a_record_with_a_field_changed_is_refused_or_read(
    record: Record, data: st.DataObject
) -> None:
    content = json.loads(encode_record(record))
    key = data.draw(st.sampled_from(sorted(content)))
    content[key] = data.draw(json_values)
    with refused_or_read():
        decode_record(json.dumps(content).encode(), "b")
    del content[key]
    with refused_or_read():
        decode_record(json.dumps(content).encode(), "b")


@untimed
@given(records, st.data())
def test_changed_and_cut_records_are_refused_or_read(record: Record, data: st.DataObject) -> None:
    line = bytearray(encode_record(record))
    with pytest.raises(Refusal):
        decode_record(bytes(line[: data.draw(st.integers(0, len(line) - 1))]), "b")
    line[data.draw(st.integers(0, len(line) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_record(bytes(line), "b")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"1" * 5_000,
        b'{"kind":"poem"}',
        b'{"kind":null}',
        encode_record(KEPT).replace(b'"seq":9', b'"seq":9,"seq":10'),
        encode_record(KEPT).replace(b'"seq":9', b'"seq":true'),
        encode_record(KEPT).replace(b'"seq":9', b'"seq":-9'),
        encode_record(KEPT).replace(b'"seq":9', b'"seq":9.0'),
        encode_record(KEPT).replace(b'"seq":9', b'"seq":9223372036854775808'),
        encode_record(KEPT).replace(b'"c9"', b'"\\ud800"'),
        encode_record(KEPT).replace(b'"c9"', b'""'),
        encode_record(KEPT).replace(b'"t"', b'""'),
        encode_record(KEPT).replace(sha("state").hex().encode(), b"abcd"),
        encode_record(KEPT).replace(
            sha("state").hex().encode(), sha("state").hex().upper().encode()
        ),
    ],
)
def test_malformed_records_are_refused(line: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_record(line, "b")
    assert refused.value.reason is Reason.BLOB_MALFORMED


def test_a_member_in_this_quilt_is_in_the_blob_that_held_the_record() -> None:
    here = MemberRecord("t", 1, 1, 1, BlobLocation(sha("m"), 3, "", "x"))
    there = MemberRecord("t", 1, 1, 1, BlobLocation(sha("m"), 3, "b", "x"))
    assert decode_record(encode_record(here), "b") == there
    assert decode_record(encode_record(there), "a") == there


# --- manifests -------------------------------------------------------------------------


def test_a_stored_manifest_has_its_records_and_settles_them() -> None:
    member = MemberRecord("t", 1, 1, 1, BlobLocation(sha("m"), 3, "", "x"))
    data = encode_manifest(fold("t", [KEPT, member]), 'ten"records":[]ant')
    document = json.loads(data)
    assert document["kind"] == "manifest"
    assert document["tenant"] == 'ten"records":[]ant'
    assert [record["kind"] for record in document["records"]] == ["member", "checkpoint"]
    read = decode_manifest(data, "b")
    assert read.entries[("", "c9")].record == KEPT
    assert read.members[sha("m")].location.blob_id == "b"


def test_a_manifest_with_records_of_another_thread_is_refused() -> None:
    data = encode_manifest(fold("t", [KEPT]), "tenant").replace(
        b'"thread_id":"t"}]', b'"thread_id":"u"}]'
    )
    with pytest.raises(Refusal, match="has records of others"):
        decode_manifest(data, "b")


@untimed
@given(st.data())
def test_changed_manifests_are_refused_or_read(data: st.DataObject) -> None:
    stored = bytearray(encode_manifest(fold("t", [KEPT]), "tenant"))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_manifest(bytes(stored), "b")


# --- parts -----------------------------------------------------------------------------


def located(data: bytes, blob_id: str = "") -> BlobLocation:
    return BlobLocation(sha(data), len(data), blob_id, sha(data).hex())


@untimed
@given(st.binary(min_size=1, max_size=99), st.integers(1, 40))
def test_parts_make_up_the_manifest_that_was_cut(data: bytes, part_bytes: int) -> None:
    parts = split(data, part_bytes)
    assert max(map(len, parts)) <= part_bytes
    stored = encode_parts(data, [located(part) for part in parts])
    listed = decode_parts(stored, located(stored, "b"), 99)
    assert [part.blob_id for part in listed.parts] == ["b"] * len(parts)
    assert join_parts(listed, parts, "b") == data
    assert is_part_list(stored)


def test_a_segment_is_no_part_list() -> None:
    assert not is_part_list(encode_segment(segment()))


def test_parts_that_make_up_something_else_are_refused() -> None:
    stored = encode_parts(b"abcd", [located(b"ab"), located(b"cd")])
    listed = decode_parts(stored, located(stored), 4)
    with pytest.raises(Refusal) as refused:
        join_parts(listed, [b"ab", b"ce"], "b")
    assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
    with pytest.raises(Refusal, match="3 bytes where 4 were listed"):
        join_parts(listed, [b"ab", b"c"], "b")
    with pytest.raises(Refusal, match="or more than 3"):
        decode_parts(stored, located(stored), 3)


def test_a_list_of_too_many_parts_is_refused() -> None:
    stored = encode_parts(b"", [located(b"")] * (MAX_PARTS + 1))
    with pytest.raises(Refusal, match="more than 4096 parts"):
        decode_parts(stored, located(stored), 99)


@untimed
@given(st.data())
def test_changed_part_lists_are_refused_or_read(data: st.DataObject) -> None:
    stored = bytearray(encode_parts(b"abcd", [located(b"ab"), located(b"cd")]))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_parts(bytes(stored), located(bytes(stored)), 99)
