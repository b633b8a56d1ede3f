"""Audits of a blob directory whose server is gone, intact and damaged in every way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from tests.integration.cli import audit_kit as kit
from tests.integration.cli.audit_kit import COPY, FORK, GONE, LONG, SHORT, House
from tests.kit.member_file import pack_of, read_pack
from tuskpoint.audit.catalog import UnknownThread
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.reading import Bounds
from tuskpoint.audit.report import BadReport, Report, compare, read_report
from tuskpoint.audit.roots import UnclearName, named
from tuskpoint.audit.sources import BadSource, DirectorySource
from tuskpoint.audit.verdicts import Findings, ItemKind, Verdict
from tuskpoint.v1 import checkpoint_pb2, segment_pb2

NO_HASH = "0" * 64
STEPS = 30
"""Checkpoints of the long thread."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> House:
    """What a server left behind; nobody changes it."""
    return kit.left_behind(tmp_path_factory.mktemp("audited"), {}, STEPS)


@pytest.fixture
def house(left: House, tmp_path: Path) -> House:
    """A copy that may be damaged."""
    return left.copied(tmp_path)


async def audited(house: House, location: Location | None = None, **options: Any) -> kit.Audited:
    return await kit.audited_catalog(kit.directory(house), location or house.catalog, **options)


# --- intact ----------------------------------------------------------------------------


async def test_all_that_a_server_certified_passes_without_it(left: House) -> None:
    found = await audited(left)
    assert found.result == "PASS"
    assert found.of(LONG) == dict.fromkeys(left.ids[LONG], "PASS")
    assert found.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    assert list(found.of(COPY).values()) == list(found.of(FORK).values()) == ["PASS"]
    totals = {total.thread_id: total for total in found.findings.threads}
    assert totals[LONG].checkpoints["pass"] == STEPS
    assert totals[GONE].ended
    assert found.of(GONE) == {}
    assert totals[GONE].facts["deleted_through"] == left.ids[GONE][0]
    assert totals[SHORT].facts["agent_id"] == "planner"
    facts = found.findings.facts
    assert (facts["live_threads"], facts["snapshots"], facts["ended_threads"]) == (4, 1, 1)
    assert found.told[-1].done == found.told[-1].total == len(found.told)


async def test_late_writes_lie_in_a_segment_of_their_own_and_copies_share_one(
    left: House,
) -> None:
    found = await audited(left)
    items = {(item.thread_id, item.checkpoint_id): item for item in found.findings.items}
    first = left.ids[SHORT][0]
    assert len(items[SHORT, first].blobs) == 2
    assert items[SHORT, first].notes == ()
    snapshot = [name for name, _ in items if name.startswith("$snapshot/~") and name[-1] == "0"]
    note = "shares the segment that was made for thread 'long'"
    assert items[snapshot[0], left.ids[LONG][-1]].notes == (note,)


async def test_only_the_threads_that_are_named_are_audited(left: House) -> None:
    found = await audited(left, threads=(SHORT, GONE))
    assert [total.thread_id for total in found.findings.threads] == [GONE, SHORT]
    assert found.of(LONG) == {}
    assert found.result == "PASS"
    with pytest.raises(UnknownThread, match="nothing of a thread 'nobody'"):
        await audited(left, threads=("nobody",))


async def test_a_stored_manifest_passes(left: House) -> None:
    found = await kit.audited_manifest(kit.directory(left), left.manifest)
    assert found.result == "PASS"
    assert found.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    assert found.findings.trust == "the SHA-256 that was given for it"
    unpinned = Location(left.manifest.blob_id)
    assert (await kit.audited_manifest(kit.directory(left), unpinned)).result == "PASS"


async def test_a_descriptor_and_the_bundle_that_a_catalog_knows_of_pass(left: House) -> None:
    found = await kit.audited_descriptor(kit.directory(left), left.handoff)
    assert found.result == "PASS"
    assert found.of(SHORT) == {left.ids[SHORT][1]: "PASS"}
    items = (await audited(left, threads=(SHORT,))).findings.items
    [bundle] = [item for item in items if item.kind is ItemKind.BUNDLE]
    assert bundle.checkpoint_id == left.ids[SHORT][1]
    assert bundle.blobs[0].actual_sha256 == left.handoff.blob_sha256


async def test_the_catalogs_before_are_read_when_asked_for(house: House) -> None:
    number = house.opened()["number"]
    found = await audited(house, history=100)
    assert found.result == "PASS"
    assert found.findings.facts["history"] == number - 1
    assert (await audited(house, history=1)).findings.facts["history"] == 1
    previous = house.opened()["previous"]
    house.stored(previous).flip()
    assert (await audited(house, history=0)).result == "PASS"
    [problem] = (await audited(house, history=100)).problems
    assert (problem.kind, problem.verdict) == (ItemKind.CATALOG, Verdict.FAIL)
    house.stored(previous).unlink()
    assert (await audited(house, threads=(LONG,), history=100)).findings.facts["history"] == 0


async def test_a_blob_id_of_a_directory_pins_what_it_names(left: House) -> None:
    found = await audited(left, Location(left.catalog.blob_id))
    assert found.result == "PASS"
    assert found.findings.trust == (
        "its blob ID, which in a blob directory is the SHA-256 of the file"
    )
    by_hash = await audited(left, Location(left.catalog.blob_id, "", left.catalog.sha256))
    assert by_hash.result == "PASS"


async def test_a_blob_id_of_a_directory_pins_every_member_of_its_pack(house: House) -> None:
    """A pack with another catalog in it is not the one that was named."""
    file = house.stored(house.catalog).path
    members = read_pack(file.read_bytes())
    forged = kit.stored_json({**house.opened(), "levels": [], "merges": []})
    del members[house.catalog.identifier]
    members[hashlib.sha256(forged).hexdigest()] = (forged, b"catalog")
    file.write_bytes(pack_of(members))
    found = await audited(house, Location(house.catalog.blob_id))
    assert found.result == "FAIL"
    assert found.findings.root.reason == "it has another SHA-256"
    assert found.findings.root.actual_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


async def test_a_run_with_runs_in_it_is_followed(house: House) -> None:
    """The records of one thread, cut into two runs that a third one names."""
    records = sorted(house.records(SHORT), key=kit.position)
    leaves = [house.leaf(records[:3]), house.leaf(records[3:])]
    found = await audited(house, house.forged_levels([house.branch(leaves)]))
    assert found.result == "PASS"
    assert found.of(SHORT) == dict.fromkeys(left_ids(house), "PASS")
    house.stored(leaves[0]).flip(-10)
    found = await audited(house, house.forged_levels([house.branch(leaves)]))
    assert found.problems[0].kind is ItemKind.CATALOG
    assert found.problems[0].blobs[0].actual_sha256 not in ("", leaves[0]["sha256"])


def left_ids(house: House) -> list[str]:
    return house.ids[SHORT]


# --- damaged ---------------------------------------------------------------------------


async def test_one_flipped_bit_of_a_segment_fails_what_lies_in_it(house: House) -> None:
    first = house.segments(SHORT)[0]
    house.stored(first).flip(30)
    found = await audited(house)
    assert found.result == "FAIL"
    assert found.of(SHORT)[house.ids[SHORT][0]] == "FAIL"
    assert found.of(LONG) == dict.fromkeys(house.ids[LONG], "PASS")
    for item in found.problems:
        [blob] = [one for one in item.blobs if one.verdict is Verdict.FAIL]
        assert (blob.role, blob.identifier) == ("segment", first.identifier)
        assert blob.expected_sha256 == first.sha256
        assert blob.actual_sha256 not in ("", first.sha256)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"more"])
async def test_a_truncated_and_a_longer_segment_fail(
    house: House, change: Callable[[bytes], bytes]
) -> None:
    at = house.segments(LONG)[0]
    house.stored(at).write_bytes(change(house.stored(at).read_bytes()))
    found = await audited(house, threads=(LONG,))
    assert set(found.of(LONG).values()) == {"FAIL"}
    assert all(item.blobs[0].actual_sha256 for item in found.problems)


async def test_a_huge_file_is_not_read(house: House) -> None:
    location = house.with_segment(SHORT, b"a segment")
    lying = [path for path in house.blobs.rglob("*") if path.is_file() and path.stat().st_size == 9]
    with lying[0].open("r+b") as file:
        file.truncate(1 << 40)
    [blob] = (await audited(house, location)).only_problem().blobs
    assert blob.verdict is Verdict.FAIL
    assert blob.actual_sha256 == ""
    assert blob.reason.startswith("it is longer than")


async def test_a_huge_member_is_not_read(house: House) -> None:
    first = house.segments(LONG)[0]
    with house.stored(first).path.open("r+b") as file:
        row = file.read().index(bytes.fromhex(first.identifier))
        file.truncate(1 << 40)
        file.seek(row + 40)
        file.write((1 << 39).to_bytes(8, "little"))
    found = await audited(house, threads=(LONG,))
    [blob] = found.problems[0].blobs
    assert blob.verdict is Verdict.FAIL
    assert blob.actual_sha256 == ""
    assert blob.reason.startswith("it is longer than")


async def test_a_lost_pack_takes_everything_that_lay_in_it(house: House) -> None:
    house.stored(house.segments(LONG)[0]).unlink()
    found = await audited(house)
    assert found.result == "FAIL"
    assert {item.verdict for item in found.problems} == {Verdict.MISSING}
    assert set(found.of(LONG).values()) <= {"MISSING"}


@pytest.mark.parametrize("damage", [lambda whole: whole[:100], lambda whole: whole[:12] + whole])
async def test_a_damaged_pack_fails_with_the_hash_of_the_file(
    house: House, damage: Callable[[bytes], bytes]
) -> None:
    file = house.stored(house.catalog).path
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    root = (await audited(house)).findings.root
    assert root.verdict is Verdict.FAIL
    assert root.expected_sha256 == house.catalog.sha256
    assert root.actual_sha256 == hashlib.sha256(damaged).hexdigest()


async def test_a_flipped_bit_of_the_catalog_fails_before_anything_is_believed(
    house: House,
) -> None:
    house.stored(house.catalog).flip()
    found = await audited(house)
    assert found.result == "FAIL"
    assert found.findings.root.verdict is Verdict.FAIL
    assert found.findings.root.actual_sha256 not in ("", house.catalog.sha256)
    assert found.findings.threads == ()
    assert len(found.findings.items) == 1


async def test_a_damaged_run_fails_and_the_rest_is_looked_at(house: House) -> None:
    [[newest, *_], *_] = [level["runs"] for level in house.opened()["levels"]]
    run = {**newest, "blob_id": newest["blob_id"] or house.catalog.blob_id}
    house.stored(run).flip()
    found = await audited(house)
    problem = found.problems[0]
    assert (problem.kind, problem.blobs[0].role) == (ItemKind.CATALOG, "run")
    assert problem.blobs[0].actual_sha256 not in ("", run["sha256"])
    assert found.findings.threads != ()


@pytest.mark.parametrize("what", ["manifest", "handoff"])
async def test_a_flipped_bit_of_a_manifest_or_a_bundle_fails(house: House, what: str) -> None:
    source = kit.directory(house)
    if what == "manifest":
        house.stored(house.manifest).flip()
        found = await kit.audited_manifest(source, house.manifest)
        expected = house.manifest.sha256
    else:
        house.stored(Location(house.handoff.blob_id)).flip()
        found = await kit.audited_descriptor(source, house.handoff)
        expected = house.handoff.blob_sha256
        assert (await audited(house)).only_problem().kind is ItemKind.BUNDLE
    assert found.result == "FAIL"
    assert found.findings.root.expected_sha256 == expected
    assert found.findings.root.actual_sha256 not in ("", expected)


async def test_a_file_that_cannot_be_read_is_no_verdict(house: House) -> None:
    path = house.stored(house.catalog).path
    path.unlink()
    path.mkdir()
    found = await audited(house)
    assert found.findings.root.verdict is Verdict.UNREADABLE
    assert found.result == "INCOMPLETE"


# --- what a server recorded of its own losses ------------------------------------------


def of_kind(house: House, thread_id: str, kind: str) -> list[Json]:
    return [one for one in house.records(thread_id) if one["kind"] == kind]


def told(record: Json, kind: str, **more: Any) -> Json:
    """Another record of the same thread, at the next change."""
    kept = {key: record[key] for key in ("thread_id", "incarnation", "generation")}
    return {**kept, "seq": record["seq"] + 1000, "kind": kind, **more}


async def test_a_recorded_gap_is_neither_a_pass_nor_a_failure(house: House) -> None:
    records = house.records(SHORT)
    first = of_kind(house, SHORT, "checkpoint")[0]
    place = {key: first[key] for key in ("checkpoint_ns", "checkpoint_id")}
    gap = told(first, "gap", reason="the store refused it", **place)
    found = await audited(house, house.forged(*records, gap))
    assert found.result == "INCOMPLETE"
    item = found.only_problem()
    assert (item.verdict, item.checkpoint_id) == (Verdict.GAP, first["checkpoint_id"])
    assert item.reason.endswith("is lost: the store refused it")
    over = {**gap, "seq": gap["seq"] + 1, "reason": ""}
    assert (await audited(house, house.forged(*records, gap, over))).result == "PASS"
    alone = {**gap, "checkpoint_id": "never-stored"}
    item = (await audited(house, house.forged(*records, alone))).only_problem()
    assert (item.verdict, item.checkpoint_id) == (Verdict.GAP, "never-stored")


async def test_a_lost_segment_that_was_recorded_is_a_gap_and_wrong_bytes_still_fail(
    house: House,
) -> None:
    at = house.put(house.stored(house.segments(LONG)[0]).read_bytes())
    records = [{**one, **at} if one["kind"] == "member" else one for one in house.records(LONG)]
    gap = told(records[0], "gap", reason="its blob expired", segment=at["sha256"])
    location = house.forged(*records, gap)
    assert (await audited(house, location)).result == "PASS"
    house.stored(at).flip()
    assert set((await audited(house, location)).of(LONG).values()) == {"FAIL"}
    house.stored(at).unlink()
    found = await audited(house, location)
    assert set(found.of(LONG).values()) == {"GAP"}
    assert found.result == "INCOMPLETE"


async def test_what_was_deleted_is_not_reported_as_lost(house: House) -> None:
    records = house.records(SHORT)
    first, *_ = of_kind(house, SHORT, "checkpoint")
    place = {key: first[key] for key in ("checkpoint_ns", "checkpoint_id")}
    found = await audited(house, house.forged(*records, told(first, "removal", **place)))
    assert found.result == "PASS"
    assert first["checkpoint_id"] not in found.of(SHORT)
    end = told(first, "end", deleted_through="zzz")
    found = await audited(house, house.forged(*records, end))
    assert found.result == "PASS"
    assert found.of(SHORT) == {}
    assert found.findings.threads[0].ended


async def test_writes_that_wait_for_their_checkpoint_are_checked(house: House) -> None:
    writes, *_ = of_kind(house, SHORT, "writes")
    members = of_kind(house, SHORT, "member")
    location = house.forged(writes, *members)
    [item] = [one for one in (await audited(house, location)).findings.items if one.checkpoint_id]
    assert item.verdict is Verdict.PASS
    assert item.notes == ("only writes of it are stored, which wait for it",)


# --- lies whose hashes are right -------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state_sha256": NO_HASH}, "where the record says 0000"),
        ({"checkpoint_id": "0"}, "its segment does not hold it"),
        ({"parent_checkpoint_id": "x"}, "its parent is '' where the record says 'x'"),
        ({"thread_id": "stolen"}, "its segment is of thread 'short'"),
        ({"segment": NO_HASH}, f"no record says where segment {NO_HASH} lies"),
        ({"held_ns": "elsewhere"}, "its segment does not hold it"),
    ],
)
async def test_a_record_that_lies_fails(house: House, change: Json, reason: str) -> None:
    first, *_ = of_kind(house, SHORT, "checkpoint")
    records = [{**first, **change}, *of_kind(house, SHORT, "member")]
    if "thread_id" in change:
        records = [{**one, **change} for one in records]
    found = await audited(house, house.forged(*records))
    assert reason in found.only_problem().reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format_version": 1}, "format_version is 1 and only 2 is known"),
        ({"kind": "manifest"}, "it is of kind 'manifest' where a catalog belongs"),
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
    found = await audited(house, Location(at["blob_id"], "", at["sha256"]))
    assert found.only_problem().reason == reason


async def test_runs_that_are_not_what_names_them_fail(house: House) -> None:
    records = sorted(house.records(SHORT), key=kit.position)
    leaf, (first, *others, last) = house.leaf(records), records
    cases = [
        ([{**leaf, "records": 1}], "what it holds does not make up 1 records"),
        ([{**leaf, "plain_bytes": leaf["plain_bytes"] + 1}], "its pages do not make up all of it"),
        ([{**leaf, "plain_bytes": 9}], "where 9 are the most"),
        ([{**leaf, "last": ["u", "", "", ""]}], "is not in order, or not what names it says"),
        ([leaf, leaf], "it is named twice"),
        ([house.leaf([first, *others[::-1], last])], "of a page are not in order"),
        ([house.leaf([first, {**first, "kind": "invented"}, last])], "'invented' are not known"),
        ([house.branch([leaf], height=0)], "or one that is as high as itself"),
        ([house.leaf([{**first, "seq": -1}])], "'seq' is not a count"),
        ([house.leaf([{**first, "thread_id": ""}])], "'thread_id' is empty"),
    ]
    for runs, reason in cases:
        found = await audited(house, house.forged_levels(runs))
        [problem] = [item for item in found.problems if item.kind is ItemKind.CATALOG]
        assert reason in problem.reason, (problem.reason, reason)


async def test_a_page_that_was_changed_fails_with_both_hashes(house: House) -> None:
    """The catalog names the run with its right hash; the run's index names another page."""
    leaf = house.leaf(house.records(SHORT))
    data = bytearray(house.stored(leaf).read_bytes())
    data[-3] ^= 1
    found = await audited(house, house.forged_levels([{**leaf, **house.put(bytes(data))}]))
    assert found.only_problem().reason.startswith("a page has SHA-256 ")
    assert " where the index says " in found.only_problem().reason


async def test_of_many_records_no_more_are_kept_than_are_allowed(house: House) -> None:
    found = await audited(house, bounds=Bounds(records=10_000))
    assert "audit some threads at a time, with --thread" in found.problems[0].reason


async def test_a_snapshot_that_lacks_a_member_is_none_yet(house: House) -> None:
    names = {one for one in house.threads() if one.startswith("$snapshot/")}
    lacking = [one for one in names if not one.endswith("/1")]
    records = [record for name in lacking for record in house.records(name)]
    found = await audited(house, house.forged(*records))
    item = found.only_problem()
    assert item.reason.startswith("the snapshot says that it captured it")
    assert (item.verdict, item.checkpoint_id) == (Verdict.GAP, house.ids[SHORT][1])


# --- segments and bundles that mean harm -----------------------------------------------


def first_segment(house: House) -> segment_pb2.ThreadSegment:
    """A segment whose first value belongs to its first checkpoint."""
    message = house.segment(house.segments(SHORT)[0])
    needed = checkpoint_pb2.CheckpointState.FromString(message.checkpoints[0].state).channels
    message.values.sort(key=lambda value: value.digest != needed[0].digest)
    return message


async def test_a_zstd_bomb_is_not_unpacked(house: House) -> None:
    bomb = kit.header() + zstd.compress(bytes(8 << 20))
    found = await audited(house, house.with_segment(SHORT, bomb), bounds=Bounds(segment=1 << 20))
    assert found.only_problem().reason == "it unpacks to 8388608 bytes where 1048576 are the most"


async def test_a_bomb_of_empty_fields_is_not_parsed(house: House) -> None:
    bomb = kit.header() + zstd.compress(b"\x42\x00" * 1001)
    found = await audited(house, house.with_segment(SHORT, bomb), bounds=Bounds(fields=1000))
    assert found.only_problem().reason == "it has more fields than any reader takes"


async def test_a_value_that_declares_to_be_huge_is_not_unpacked(house: House) -> None:
    message = first_segment(house)
    message.values[0].size_bytes = 1 << 40
    found = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert found.only_problem().reason == f"a value takes {1 << 40} bytes"
    message = first_segment(house)
    value = message.values[0]
    value.encoding, value.size_bytes = segment_pb2.VALUE_ENCODING_ZSTD, 5
    value.data = zstd.compress(bytes(1 << 20))
    found = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert "it unpacks to 1048576 bytes where 5 are the most" in found.only_problem().reason


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
    found = await audited(house, house.with_segment(SHORT, stored))
    assert found.only_problem().reason.startswith(reason)


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
    found = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert reason in found.only_problem().reason


async def test_metadata_may_be_whatever_json_object_an_agent_saved(house: House) -> None:
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
    found = await audited(house, house.with_segment(SHORT, kit.stored_segment(message)))
    assert found.only_problem().reason.endswith("is not where it should be")
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
    gap = told(of_kind(house, SHORT, "checkpoint")[0], "gap", reason="lost", segment=at["sha256"])
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
        ({"kind": "catalog"}, "it is of kind 'catalog' where a manifest belongs"),
    ):
        at = house.put(kit.stored_json({**content, **change}))
        location = Location(at["blob_id"], "", at["sha256"])
        found = await kit.audited_manifest(kit.directory(house), location)
        assert found.only_problem().reason == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"thread_id": "mine", "source": "mine:{id}"},
            "the descriptor names checkpoint '{id}' of thread 'mine', and the bundle is of",
        ),
        ({"checkpoint_id": "x", "source": "short:x"}, "the descriptor names checkpoint 'x'"),
        ({"summary": "All is well."}, "the descriptor's summary is not that of the checkpoint"),
        ({"blob_sha256": NO_HASH}, "it has another SHA-256"),
    ],
)
async def test_a_descriptor_that_lies_fails(
    left: House, fields: dict[str, str], reason: str
) -> None:
    checkpoint_id = left.ids[SHORT][1]
    said = {key: value.replace("{id}", checkpoint_id) for key, value in fields.items()}
    found = await kit.audited_descriptor(kit.directory(left), kit.changed(left.handoff, **said))
    assert found.result == "FAIL"
    assert found.problems[0].reason.startswith(reason.replace("{id}", checkpoint_id))


async def test_a_descriptor_without_a_blob_is_missing_it(left: House) -> None:
    given = kit.changed(left.handoff, blob_id="B" * 43)
    found = await kit.audited_descriptor(kit.directory(left), given)
    assert found.only_problem().verdict is Verdict.MISSING


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
        (no_handoff, "it is a segment that hands nothing off"),
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


# --- reports ---------------------------------------------------------------------------


def report_of(findings: Findings, house: House) -> Report:
    source = DirectorySource(house.blobs)
    return Report.of(findings, source, datetime.now(UTC), datetime.now(UTC))


async def test_two_auditors_of_the_same_bytes_find_the_same(left: House, house: House) -> None:
    first = report_of((await audited(left)).findings, left)
    second = report_of((await audited(house)).findings, house)
    assert first.digest == second.digest
    read = [read_report(one.to_json(), "report") for one in (first, second)]
    assert compare(*read).same

    house.stored(house.segments(LONG)[0]).flip()
    third = read_report(report_of((await audited(house)).findings, house).to_json(), "third")
    found = compare(read[0], third)
    assert not found.same
    assert any(house.ids[LONG][2] in line for line in found.differences)


async def test_a_report_that_was_changed_is_noticed(left: House) -> None:
    written = report_of((await audited(left)).findings, left).to_json()
    changed = read_report(written.replace('"PASS"', '"FAIL"', 1), "changed")
    found = compare(read_report(written, "as written"), changed)
    assert found.differences[0] == (
        "the findings of the second report are not those that its digest was made of"
    )
    no_report = {**json.loads(written), "findings": {"items": [7]}}
    no_number = {**json.loads(written), "findings": {"items": [], "x": float("nan")}}
    contents: list[object] = [7, [], no_report, no_number]
    for content in (*contents, {"kind": "tuskpoint-audit", "format_version": 1}):
        with pytest.raises(BadReport):
            read_report(json.dumps(content), "something")


async def test_the_text_names_everything_that_was_checked(house: House) -> None:
    damaged = house.segments(SHORT)[-1]
    house.stored(damaged).flip()
    found = await audited(house, threads=(SHORT,))
    text = report_of(found.findings, house).to_text()
    assert text.startswith("Audit of catalog ")
    assert "trusted by   the SHA-256 that was given" in text
    assert all(checkpoint_id in text for checkpoint_id in house.ids[SHORT])
    assert f"FAIL       segment {damaged.blob_id}/{damaged.identifier}" in text
    brief = report_of(found.findings, house).to_text(brief=True)
    assert damaged.identifier in brief
    assert house.ids[SHORT][0] not in brief


# --- what cannot be audited ------------------------------------------------------------


def test_names_that_name_nothing_are_refused(tmp_path: Path) -> None:
    for text in ("", "short", "A" * 43 + ":xyz", "A" * 42 + "+"):
        with pytest.raises(UnclearName):
            named(text)
    with pytest.raises(BadSource, match="is not a directory"):
        DirectorySource(tmp_path / "nowhere")
