"""Audits detect records, segments and bundles that lie although their hashes are right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from backports import zstd

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.kit import (
    SHORT,
    House,
    another,
    audited,
    of_kind,
)
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.reading import Bounds
from tuskpoint.audit.verdicts import ItemKind, Verdict
from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2

NO_HASH = "0" * 64

Json = dict[str, Any]


# --- lies with right hashes ------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state_sha256": NO_HASH}, "where the record says 0000"),
        ({"checkpoint_id": "0"}, "its segment does not hold it"),
        ({"parent_checkpoint_id": "x"}, "its parent is '' where the record says 'x'"),
        ({"thread_id": "stolen"}, "its segment is of thread 'short'"),
        ({"segment": NO_HASH}, f"no record has the location of segment {NO_HASH}"),
        ({"held_ns": "elsewhere"}, "its segment does not hold it"),
    ],
)
async def test_a_false_record_fails(house: House, change: Json, reason: str) -> None:
    first, *_ = of_kind(house, SHORT, "checkpoint")
    records = [{**first, **change}, *of_kind(house, SHORT, "member")]
    if "thread_id" in change:
        records = [{**record, **change} for record in records]
    audit = await audited(house, house.forged(*records))
    assert reason in audit.only_problem().reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format_version": 1}, "format_version is 1 and only 2 is known"),
        ({"kind": "manifest"}, "it is of kind 'manifest' where a catalog was expected"),
        ({"tenant": ""}, "'tenant' is empty"),
        ({"tenant": "\ud800"}, "it is not JSON in UTF-8, or has a key twice"),
        ({"number": 1 << 63}, "'number' is not a count"),
        ({"levels": [{}]}, "'runs' is missing or not of type list"),
        ({"levels": [{"runs": []}] * 33}, "it has more than 32 levels of runs"),
        ({"merges": [{"level": 0}]}, "it merges a level that has fewer than 8 runs"),
        ({"merges": [{"level": 1}, {"level": 0}]}, "its merges are not in order"),
    ],
)
async def test_a_catalog_that_makes_no_sense_fails(
    house: House, content: Json, reason: str
) -> None:
    at = house.put(json.dumps({**house.opened(), **content}).encode())
    audit = await audited(house, Location(at["blob_id"], "", at["sha256"]))
    assert audit.only_problem().reason == reason


async def test_runs_that_differ_from_their_names_fail(house: House) -> None:
    records = sorted(house.records(SHORT), key=kit.position)
    leaf, (first, *middle, last) = house.leaf(records), records
    cases = [
        ([{**leaf, "records": 1}], "what it holds does not make up 1 records"),
        ([{**leaf, "plain_bytes": leaf["plain_bytes"] + 1}], "its pages do not make up all of it"),
        ([{**leaf, "plain_bytes": 9}], "where 9 are the most"),
        ([{**leaf, "last": ["u", "", "", ""]}], "is not in order, or not what names it says"),
        ([leaf, leaf], "it is named twice"),
        ([house.leaf([first, *middle[::-1], last])], "of a page are not in order"),
        ([house.leaf([first, {**first, "kind": "invented"}, last])], "'invented' are not known"),
        ([house.branch([leaf], height=0)], "or one that is not lower than itself"),
        ([house.leaf([{**first, "seq": -1}])], "'seq' is not a count"),
        ([house.leaf([{**first, "thread_id": ""}])], "'thread_id' is empty"),
    ]
    for runs, reason in cases:
        audit = await audited(house, house.forged_levels(runs))
        [problem] = [item for item in audit.problems if item.kind is ItemKind.CATALOG]
        assert reason in problem.reason, (problem.reason, reason)


async def test_a_page_that_was_changed_fails_with_both_hashes(house: House) -> None:
    """The catalog names the run with the right hash; the run's index names another page."""
    leaf = house.leaf(house.records(SHORT))
    data = bytearray(house.stored(leaf).read_bytes())
    data[-3] ^= 1
    audit = await audited(house, house.forged_levels([{**leaf, **house.put(bytes(data))}]))
    assert audit.only_problem().reason.startswith("a page has SHA-256 ")
    assert " where the index says " in audit.only_problem().reason


async def test_of_many_records_no_more_are_kept_than_are_allowed(house: House) -> None:
    audit = await audited(house, bounds=Bounds(records=10_000))
    assert "audit some threads at a time, with --thread" in audit.problems[0].reason


async def test_a_snapshot_that_lacks_a_member_is_none_yet(house: House) -> None:
    names = {name for name in house.threads() if name.startswith("$snapshot/")}
    lacking = [name for name in names if not name.endswith("/1")]
    records = [record for name in lacking for record in house.records(name)]
    audit = await audited(house, house.forged(*records))
    item = audit.only_problem()
    assert item.reason.startswith("the snapshot says that it captured it")
    assert (item.verdict, item.checkpoint_id) == (Verdict.GAP, house.ids[SHORT][1])


# --- malicious segments and bundles ----------------------------------------------------


def first_segment(house: House) -> segment_pb2.ThreadSegment:
    """Return a segment whose first value belongs to its first checkpoint."""
    message = house.segment(house.segments(SHORT)[0])
    needed = checkpoint_pb2.CheckpointState.FromString(message.checkpoints[0].state).channels
    message.values.sort(key=lambda value: value.digest != needed[0].digest)
    return message


async def test_a_zstd_bomb_is_not_unpacked(house: House) -> None:
    bomb = kit.header() + zstd.compress(bytes(8 << 20))
    audit = await audited(house, house.with_segment(SHORT, bomb), bounds=Bounds(segment=1 << 20))
    assert audit.only_problem().reason == "it unpacks to 8388608 bytes where 1048576 are the most"


async def test_a_segment_that_takes_more_than_the_memory_is_not_unpacked(house: House) -> None:
    bomb = kit.header() + zstd.compress(bytes(8 << 20))
    place = house.with_segment(SHORT, bomb)
    audit = await audited(house, place, bounds=Bounds(memory=16 << 20))
    assert audit.result == "INCOMPLETE"
    [blob] = [blob for blob in audit.only_problem().blobs if blob.verdict is Verdict.UNREADABLE]
    assert "8388608 bytes joined or unpacked" in blob.reason
    assert "16777216 bytes of --memory-bytes" in blob.reason


async def test_a_bomb_of_empty_rows_is_not_parsed(house: House) -> None:
    bomb = kit.header() + zstd.compress(b"\x32\x00" * (1 << 20))
    audit = await audited(house, house.with_segment(SHORT, bomb))
    assert audit.only_problem().reason == "it has more fields than any reader takes"


async def test_a_list_that_makes_much_of_little_is_not_joined(house: House) -> None:
    part = house.put(b"part")
    for parts, problem in (
        ([part] * 17, "it names a part more than 16 times"),
        ([part, {**part, "size_bytes": 5}], "it names a part with two sizes or at two places"),
        ([part, {**part, "size_bytes": 0}], "it names a part with two sizes or at two places"),
        ([{**part, "size_bytes": 65 << 20}], "it has a part of no bytes, or of more than"),
    ):
        size = sum(part["size_bytes"] for part in parts)
        whole = {"sha256": "ab" * 32, "size_bytes": size, "parts": parts}
        listed = {"format_version": 2, "kind": "parts", **whole}
        audit = await audited(house, house.with_segment(SHORT, kit.stored_json(listed)))
        assert problem in audit.only_problem().reason
    listed |= {"parts": [part] * 3, "size_bytes": 12}
    place = house.with_segment(SHORT, kit.stored_json(listed))
    audit = await audited(house, place, bounds=Bounds(memory=23))
    assert audit.result == "INCOMPLETE"


async def test_a_bomb_of_empty_fields_is_not_parsed(house: House) -> None:
    bomb = kit.header() + zstd.compress(b"\x42\x00" * 1001)
    audit = await audited(house, house.with_segment(SHORT, bomb), bounds=Bounds(fields=1000))
    assert audit.only_problem().reason == "it has more fields than any reader takes"


async def test_a_value_that_declares_to_be_huge_is_not_unpacked(house: House) -> None:
    message = first_segment(house)
    message.values[0].size_bytes = 1 << 40
    audit = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert audit.only_problem().reason == f"a value takes {1 << 40} bytes"
    message = first_segment(house)
    value = message.values[0]
    value.encoding, value.size_bytes = segment_pb2.VALUE_ENCODING_ZSTD, 5
    value.data = zstd.compress(bytes(1 << 20))
    audit = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert "it unpacks to 1048576 bytes where 5 are the most" in audit.only_problem().reason


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"no zstd at all", "it does not begin with the header of a segment"),
        (b"short", "it is too short for a segment"),
        (kit.header() + zstd.compress(b"x") + b"y", "bytes follow its zstd frame"),
        (kit.header() + zstd.compress(b"x" * 99)[:-4], "its zstd frame is cut off"),
        (kit.header() + zstd.compress(b"\x0a\xff"), "it is not a ThreadSegment"),
        (kit.header() + zstd.compress(b""), "it lacks its thread"),
        (kit.header(version=3) + zstd.compress(b""), "format_version is 3 and only 2 is known"),
        (kit.header(sealing=2) + zstd.compress(b""), "it is sealed, in way 2, which is not known"),
        (b'{"format_version":2,"kind":"parts"}', "its list of parts: 'parts' is missing"),
    ],
    ids=["none", "short", "more", "cut off", "no message", "empty", "version", "sealed", "parts"],
)
async def test_bytes_that_are_no_segment_fail(house: House, stored: bytes, reason: str) -> None:
    audit = await audited(house, house.with_segment(SHORT, stored))
    assert audit.only_problem().reason.startswith(reason)


def other_digest(message: segment_pb2.ThreadSegment) -> None:
    message.values[0].data = bytes(len(message.values[0].data))


def other_type(message: segment_pb2.ThreadSegment) -> None:
    message.values[0].type = "pickle"


def value_twice(message: segment_pb2.ThreadSegment) -> None:
    message.values.append(message.values[0])


def row_twice(message: segment_pb2.ThreadSegment) -> None:
    message.checkpoints.append(message.checkpoints[0])


def without_values(message: segment_pb2.ThreadSegment) -> None:
    del message.values[:]


def patch_of_nothing(message: segment_pb2.ThreadSegment) -> None:
    message.values[0].encoding = segment_pb2.VALUE_ENCODING_PATCH


def unknown_encoding(message: segment_pb2.ThreadSegment) -> None:
    message.values[0].encoding = 9  # type: ignore[assignment]


def no_metadata(message: segment_pb2.ThreadSegment) -> None:
    message.checkpoints[0].metadata_json = b"[]"


def five_members(message: segment_pb2.ThreadSegment) -> None:
    for number in range(5):
        location = checkpoint_pb2.BlobLocation(sha256=bytes(32))
        message.members.add(location=location, digests=bytes([number] * 16))


def members_in_disorder(message: segment_pb2.ThreadSegment) -> None:
    location = checkpoint_pb2.BlobLocation(sha256=bytes(32))
    message.members.add(location=location, digests=b"b" * 16 + b"a" * 16)


def range_of_none(message: segment_pb2.ThreadSegment) -> None:
    message.first_seq = message.last_seq + 1


def too_late(message: segment_pb2.ThreadSegment) -> None:
    message.checkpoints[0].seq = 1 << 63


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_digest, "has digest "),
        (other_type, "has digest "),
        (value_twice, "it holds a value twice"),
        (row_twice, "it holds a checkpoint twice"),
        (without_values, "and names nothing that holds it"),
        (patch_of_nothing, "the encoding and the keyframe of a value contradict each other"),
        (unknown_encoding, "a value is of unknown encoding"),
        (no_metadata, "its metadata is not a JSON object"),
        (five_members, "it names more than 4 members"),
        (members_in_disorder, "do not ascend"),
        (range_of_none, "its range ends before it begins"),
        (too_late, "it has a number above 2^63 - 1"),
    ],
)
async def test_a_segment_that_contradicts_itself_fails(
    house: House, change: Callable[[segment_pb2.ThreadSegment], None], reason: str
) -> None:
    message = first_segment(house)
    change(message)
    audit = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert reason in audit.only_problem().reason


async def test_metadata_may_be_any_json_object(house: House) -> None:
    message = first_segment(house)
    message.checkpoints[0].metadata_json = rb'{"a":1,"a":2,"half":"\ud800"}'
    assert (
        await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    ).result == ("PASS")


def channel_twice(state: checkpoint_pb2.CheckpointState) -> None:
    state.channels.append(state.channels[0])


def no_value(state: checkpoint_pb2.CheckpointState) -> None:
    state.channels[0].digest = b"short"


def no_kind(state: checkpoint_pb2.CheckpointState) -> None:
    state.channels[0].version.Clear()
    state.channels[0].version.SetInParent()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (channel_twice, "has a channel twice"),
        (no_value, "is not empty and names no value"),
        (no_kind, "has a version without a kind"),
    ],
)
async def test_a_state_that_makes_no_sense_fails(
    house: House, change: Callable[[checkpoint_pb2.CheckpointState], None], reason: str
) -> None:
    message = first_segment(house)
    state = checkpoint_pb2.CheckpointState.FromString(message.checkpoints[0].state)
    change(state)
    message.checkpoints[0].state = state.SerializeToString()
    sha256 = hashlib.sha256(message.checkpoints[0].state).hexdigest()
    location = house.with_segment(SHORT, kit.stored_segment(message), state_sha256=sha256)
    assert reason in (await audited(house, location)).only_problem().reason


async def test_a_value_in_a_member_that_does_not_hold_it_fails(house: House) -> None:
    message = first_segment(house)
    value = message.values.pop(0)
    other = house.put(kit.stored_segment(segment_pb2.ThreadSegment(thread_id=SHORT)))
    location = checkpoint_pb2.BlobLocation(
        sha256=bytes.fromhex(other["sha256"]),
        size_bytes=other["size_bytes"],
        blob_id=other["blob_id"],
    )
    message.members.add(location=location, digests=value.digest[:16])
    audit = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert audit.only_problem().reason.endswith("is not where it should be")
    right = segment_pb2.ThreadSegment(thread_id=SHORT, values=[value])
    at = house.put(kit.stored_segment(right))
    named = message.members[0].location
    named.sha256, named.blob_id = bytes.fromhex(at["sha256"]), at["blob_id"]
    named.size_bytes = at["size_bytes"]
    location_of_it = house.with_segment(SHORT, kit.stored_segment(message))
    assert (await audited(house, location_of_it)).result == "PASS"
    house.stored(at).flip()
    item = (await audited(house, location_of_it)).only_problem()
    assert [blob.verdict.value for blob in item.blobs] == ["PASS", "FAIL"]
    gap = another(
        of_kind(house, SHORT, "checkpoint")[0], "gap", reason="lost", segment=at["sha256"]
    )
    house.stored(at).unlink()
    assert (await audited(house, location_of_it)).only_problem().verdict is Verdict.MISSING
    recorded = house.with_segment(SHORT, kit.stored_segment(message), gap)
    assert (await audited(house, recorded)).only_problem().verdict is Verdict.GAP


async def test_a_segment_in_parts_is_joined_and_each_part_checked(house: House) -> None:
    stored = kit.stored_segment(first_segment(house))
    parts = [house.put(stored[:100]), house.put(stored[100:])]
    whole = {"sha256": hashlib.sha256(stored).hexdigest(), "size_bytes": len(stored)}
    listed = {"format_version": 2, "kind": "parts", **whole, "parts": parts}
    location = house.with_segment(SHORT, kit.stored_json(listed))
    assert (await audited(house, location)).result == "PASS"

    swapped = house.with_segment(SHORT, kit.stored_json({**listed, "parts": parts[::-1]}))
    item = (await audited(house, swapped)).only_problem()
    assert item.reason.startswith("its parts make SHA-256")

    house.stored(parts[1]).flip()
    item = (await audited(house, location)).only_problem()
    assert [blob.verdict.value for blob in item.blobs] == ["PASS", "PASS", "FAIL"]


# --- manifests and descriptors ---------------------------------------------------------


async def test_a_manifest_of_another_thread_or_out_of_order_fails(house: House) -> None:
    content = json.loads(house.stored(house.manifest).read_bytes())
    records = content["records"]
    for change, reason in (
        ({"thread_id": "mine"}, "it is of thread 'mine' and has records of another one"),
        ({"records": records[::-1]}, "its records are not in the order of the log"),
        ({"kind": "catalog"}, "it is of kind 'catalog' where a manifest was expected"),
    ):
        at = house.put(kit.stored_json({**content, **change}))
        location = Location(at["blob_id"], "", at["sha256"])
        audit = await kit.audited_manifest(kit.directory(house), location)
        assert audit.only_problem().reason == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"thread_id": "mine", "source": "mine:{id}"},
            "the descriptor names checkpoint '{id}' of thread 'mine', and the bundle holds",
        ),
        ({"checkpoint_id": "x", "source": "short:x"}, "the descriptor names checkpoint 'x'"),
        ({"summary": "All is well."}, "the summary of the descriptor differs from the summary"),
        ({"blob_sha256": NO_HASH}, "it has another SHA-256"),
    ],
)
async def test_a_false_descriptor_fails(left: House, fields: dict[str, str], reason: str) -> None:
    checkpoint_id = left.ids[SHORT][1]
    said = {key: value.replace("{id}", checkpoint_id) for key, value in fields.items()}
    audit = await kit.audited_descriptor(kit.directory(left), kit.changed(left.handoff, **said))
    assert audit.result == "FAIL"
    assert audit.problems[0].reason.startswith(reason.replace("{id}", checkpoint_id))


async def test_a_signature_of_somebody_else_fails(left: House) -> None:
    signer, signature = left.handoff.signer, left.handoff.signature
    for changes in (
        {"signer": signer, "signature": signature, "to_agent": left.handoff.to_agent + "x"},
        {"signer": "ab" * 32, "signature": signature},
        {"signer": signer, "signature": "00" * 64},
    ):
        descriptor = kit.changed(left.handoff, **changes)
        audit = await kit.audited_descriptor(kit.directory(left), descriptor)
        assert audit.result == "FAIL"
        assert audit.problems[0].reason.startswith("the descriptor's signature was not made by")
    assert (await kit.audited_descriptor(kit.directory(left), left.handoff)).result == "PASS"


async def test_a_key_of_small_order_signs_for_nobody(left: House) -> None:
    descriptor = kit.changed(left.handoff, signer=f"01{'00' * 31}", signature=f"01{'00' * 63}")
    audit = await kit.audited_descriptor(kit.directory(left), descriptor)
    assert audit.result == "FAIL"
    assert "has small order" in audit.problems[0].reason


async def test_a_descriptor_without_a_blob_is_missing_it(left: House) -> None:
    descriptor = kit.changed(left.handoff, blob_id="B" * 43)
    audit = await kit.audited_descriptor(kit.directory(left), descriptor)
    assert audit.only_problem().verdict is Verdict.MISSING


def bundle(house: House) -> segment_pb2.ThreadSegment:
    return house.segment(Location(house.handoff.blob_id))


async def with_bundle(
    house: House, message: segment_pb2.ThreadSegment, **fields: str
) -> kit.Audited:
    at = house.put(kit.stored_segment(message))
    fields = {"blob_id": at["blob_id"], "blob_sha256": at["sha256"], **fields}
    return await kit.audited_descriptor(kit.directory(house), kit.changed(house.handoff, **fields))


async def test_the_summary_of_a_checkpoint_that_has_none_is_the_sentence_that_names_it(
    house: House,
) -> None:
    message = bundle(house)
    message.checkpoints[0].summary = ""
    message.checkpoints[0].metadata_json = b'{"step": 3, "source": "loop"}'
    summary = "Step 3 (loop) of thread short."
    assert (await with_bundle(house, message, summary=summary)).result == "PASS"
    assert (await with_bundle(house, message)).result == "FAIL"


async def test_a_bundle_that_lacks_something_fails(house: House) -> None:
    def no_handoff(message: segment_pb2.ThreadSegment) -> None:
        message.ClearField("handoff")

    def lacks_it(message: segment_pb2.ThreadSegment) -> None:
        message.handoff.checkpoint_id = "x"

    def ancestor(message: segment_pb2.ThreadSegment) -> None:
        base = message.checkpoints[0].delta_base
        base.channels.add(name="d", ancestor_checkpoint_id="before")

    def foreign_write(message: segment_pb2.ThreadSegment) -> None:
        digest = hashlib.sha256(b"json\x00").digest()
        message.writes.add(checkpoint_id="x", task_id="t", channel="c", type="json", digest=digest)

    for change, reason in (
        (no_handoff, "it is a segment without a hand-off"),
        (lacks_it, "it lacks the checkpoint that it hands off"),
        (five_members, "it hands off a checkpoint and needs other segments"),
        (ancestor, "a delta channel is rebuilt from an ancestor that it lacks"),
        (foreign_write, "it has writes of a checkpoint that it lacks"),
        (other_digest, "has digest "),
    ):
        message = bundle(house)
        change(message)
        if change is five_members:
            del message.members[1:]
        assert reason in (await with_bundle(house, message)).only_problem().reason
