"""Audits of a blob directory whose server is gone, intact and damaged in every way."""

from __future__ import annotations

import gzip
import hashlib
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.member_file import pack_of, read_pack
from tuskpoint.audit.catalog import UnknownThread
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.reading import MIB, Bounds
from tuskpoint.audit.report import BadReport, Report, compare, read_report
from tuskpoint.audit.roots import UnclearName, named
from tuskpoint.audit.sources import BadSource, DirectorySource
from tuskpoint.audit.verdicts import Findings, ItemKind, Verdict
from tuskpoint.v1 import envelope_pb2, handoff_pb2

from . import audit_kit as kit
from .audit_kit import COPY, FORK, GONE, LONG, SHORT, House
from .recovery_kit import draft, flush, new_kit, recovered_kit, save

NO_HASH = "0" * 64
STEPS = 130
"""Checkpoints of the long thread: three segments."""


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
    assert sorted(found.of(COPY).values()) == ["PASS", "RETRACTED"]
    assert list(found.of(FORK).values()) == ["PASS"]
    totals = {total.thread_id: total for total in found.findings.threads}
    assert totals[LONG].segments == 3
    assert totals[LONG].records == STEPS
    assert totals[GONE].ended
    assert totals[GONE].facts["deleted_through"] == left.ids[GONE][0]
    assert totals[SHORT].facts["agent_id"] == "planner"
    assert found.findings.facts["live_threads"] == 4
    assert found.findings.facts["snapshots"] == 1
    assert found.findings.facts["ended_threads"] == 1
    assert found.findings.facts["settings"] == {}
    assert found.told[-1].done == found.told[-1].total == len(found.told)


async def test_late_writes_are_read_as_addenda_and_copies_are_said_to_be_copies(
    left: House,
) -> None:
    found = await audited(left)
    items = {(item.thread_id, item.checkpoint_id): item for item in found.findings.items}
    second = left.ids[SHORT][1]
    assert [blob.role for blob in items[SHORT, second].blobs] == ["envelope", "addendum"]
    assert items[SHORT, second].notes == ()
    assert items[FORK, second].notes == ("shares the envelope that was made for thread 'short'",)


async def test_only_the_threads_that_are_named_are_audited(left: House) -> None:
    found = await audited(left, threads=(SHORT, GONE))
    assert [total.thread_id for total in found.findings.threads] == [GONE, SHORT]
    assert found.of(LONG) == {}
    assert found.result == "PASS"
    with pytest.raises(UnknownThread, match="no thread 'nobody'"):
        await audited(left, threads=("nobody",))


async def test_a_manifest_alone_passes(left: House) -> None:
    [head, *_] = left.segments(LONG)
    found = await kit.audited_manifest(kit.directory(left), head)
    assert found.result == "PASS"
    assert found.of(LONG) == dict.fromkeys(left.ids[LONG], "PASS")
    assert found.findings.trust == "the SHA-256 that was given for it"


async def test_a_descriptor_passes(left: House) -> None:
    found = await kit.audited_descriptor(kit.directory(left), left.handoff)
    assert found.result == "PASS"
    assert found.of(SHORT) == {left.ids[SHORT][1]: "PASS"}


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
    forged = kit.stored_json({**house.json(house.catalog), "changes": [], "runs": []})
    del members[house.catalog.identifier]
    members[hashlib.sha256(forged).hexdigest()] = (forged, b"catalog")
    file.write_bytes(pack_of(members))
    found = await audited(house, Location(house.catalog.blob_id))
    assert found.result == "FAIL"
    assert found.findings.root.reason == "it has another SHA-256"
    assert found.findings.root.actual_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


async def test_runs_that_were_merged_and_generations_after_a_recovery_are_followed(
    tmp_path: Path,
) -> None:
    """By the archive alone, which flushes faster than a server is asked to."""
    async with new_kit(tmp_path / "old") as old:
        for n in range(40):
            await save(old, draft(f"{n}", thread_id=f"thread-{n % 5}"))
            catalog = await flush(old)
        async with recovered_kit(tmp_path / "new", old, catalog) as new:
            await save(new, draft("after", thread_id="thread-0"))
            catalog = await flush(new)
            blobs = DirectorySource(old.root / "blobs")
            found = await kit.audited_catalog(blobs, Location(catalog.blob_id))
    assert found.result == "PASS"
    assert found.findings.counts[Verdict.PASS] == 41
    assert found.findings.facts["generation"] == 2
    roles = {blob.role for item in found.findings.items for blob in item.blobs}
    assert roles == {"catalog", "page", "segment", "envelope"}
    [total] = [one for one in found.findings.threads if one.thread_id == "thread-0"]
    assert (total.segments, total.records) == (2, 9)


async def test_an_index_leads_to_pages_and_to_the_index_before(house: House) -> None:
    heads = house.heads()
    pages = [
        house.put(kit.stored_json({"format_version": 1, "kind": "page", "heads": [heads[name]]}))
        for name in (SHORT, FORK)
    ]
    last = None
    for page in pages:
        index = {"format_version": 1, "kind": "index", "pages": [page], "previous": last}
        last = house.put(kit.stored_json(index))
    location = house.forged_catalog({"changes": [], "runs": [[], [{"run": 1, **(last or {})}]]})
    found = await audited(house, location)
    assert found.result == "PASS"
    assert [total.thread_id for total in found.findings.threads] == [FORK, SHORT]

    house.stored(pages[0]).flip()
    found = await audited(house, location)
    assert found.only_problem().blobs[0].role == "page"
    assert [total.thread_id for total in found.findings.threads] == [FORK]


async def test_pages_of_a_run_that_tell_of_one_thread_in_two_ways_fail(house: House) -> None:
    head = house.heads()[SHORT]
    pages = [
        house.put(kit.stored_json({"format_version": 1, "kind": "page", "heads": [one]}))
        for one in (head, {**head, "ended": True})
    ]
    index = {"format_version": 1, "kind": "index", "pages": pages, "previous": None}
    run = {"run": 1, **house.put(kit.stored_json(index))}
    found = await audited(house, house.forged_catalog({"changes": [], "runs": [[], [run]]}))
    assert found.only_problem().reason == "another page of its run tells of thread 'short' too"


async def test_of_many_pieces_few_are_in_memory(house: House) -> None:
    """A small catalog may name large pieces, and one of them many times."""
    piece = b" " * (MIB // 4) + kit.stored_json({"format_version": 1, "kind": "page", "heads": []})
    pages = 100 * [house.put(piece)]
    index = {"format_version": 1, "kind": "index", "pages": pages, "previous": None}
    run = {"run": 1, **house.put(kit.stored_json(index))}
    location = house.forged_catalog({"changes": [], "runs": [[], [run]]})
    tracemalloc.start()
    try:
        assert (await audited(house, location)).result == "PASS"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 15 * MIB


async def test_a_thread_of_which_nothing_is_stored_is_said_to_be_so(house: House) -> None:
    head = {**house.heads()[SHORT], "manifest": None}
    found = await audited(house, house.forged_catalog({"changes": [head], "runs": []}))
    now = datetime.now(UTC)
    report = Report.of(found.findings, kit.directory(house), now, now)
    assert "short (incarnation 1): nothing of it is stored" in report.to_text()


# --- damaged ---------------------------------------------------------------------------


async def test_one_flipped_bit_of_an_envelope_fails_its_checkpoint_alone(house: House) -> None:
    third = house.envelopes(LONG)[2]
    house.stored(third).flip(30)
    found = await audited(house)
    assert found.result == "FAIL"
    item = found.only_problem()
    assert (item.thread_id, item.checkpoint_id) == (LONG, house.ids[LONG][2])
    [blob] = item.blobs
    assert (blob.verdict, blob.identifier) == (Verdict.FAIL, third.identifier)
    assert blob.actual_sha256 not in ("", blob.expected_sha256)
    assert found.of(LONG)[house.ids[LONG][3]] == "PASS"


async def test_a_truncated_and_a_longer_envelope_fail(house: House) -> None:
    short, long = house.envelopes(LONG)[:2]
    house.stored(short).write_bytes(house.stored(short).read_bytes()[:-1])
    house.stored(long).write_bytes(house.stored(long).read_bytes() + b"more")
    found = await audited(house)
    assert [item.checkpoint_id for item in found.problems] == house.ids[LONG][:2]
    assert {item.verdict for item in found.problems} == {Verdict.FAIL}
    assert all(item.blobs[0].actual_sha256 for item in found.problems)


async def test_a_huge_file_is_not_read(house: House) -> None:
    at = house.put(b"an envelope")
    location = house.forge(SHORT, lambda segment: segment["records"][0].update(envelope=at))
    with house.stored(at).path.open("r+b") as file:
        file.truncate(1 << 40)
    [blob] = (await audited(house, location, threads=(SHORT,))).only_problem().blobs
    assert blob.verdict is Verdict.FAIL
    assert blob.actual_sha256 == ""
    assert blob.reason.startswith("it is longer than")


async def test_a_huge_member_is_not_read(house: House) -> None:
    first = house.envelopes(LONG)[0]
    with house.stored(first).path.open("r+b") as file:
        row = file.read().index(bytes.fromhex(first.identifier))
        file.truncate(1 << 40)
        file.seek(row + 40)
        file.write((1 << 39).to_bytes(8, "little"))
    [blob] = (await audited(house)).only_problem().blobs
    assert blob.verdict is Verdict.FAIL
    assert blob.actual_sha256 == ""
    assert blob.reason.startswith("it is longer than")


async def test_a_missing_envelope_is_missing(house: House) -> None:
    at = house.put(b"an envelope")
    location = house.forge(SHORT, lambda segment: segment["records"][0].update(envelope=at))
    house.stored(at).unlink()
    found = await audited(house, location, threads=(SHORT,))
    item = found.only_problem()
    assert (item.verdict, item.checkpoint_id) == (Verdict.MISSING, house.ids[SHORT][0])
    assert found.result == "FAIL"


async def test_what_a_pack_lacks_is_missing(house: House) -> None:
    nowhere = {**house.put(b"an envelope"), "blob_id": house.catalog.blob_id}
    nowhere["identifier"] = nowhere["sha256"]
    location = house.forge(SHORT, lambda segment: segment["records"][0].update(envelope=nowhere))
    item = (await audited(house, location, threads=(SHORT,))).only_problem()
    assert (item.verdict, item.checkpoint_id) == (Verdict.MISSING, house.ids[SHORT][0])


async def test_a_lost_pack_takes_everything_that_lay_in_it(house: House) -> None:
    envelopes = house.envelopes(LONG)
    house.stored(envelopes[0]).unlink()
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


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_flipped_bit_of_a_segment_breaks_the_chain(house: House, position: int) -> None:
    house.stored(house.segments(LONG)[position]).flip(200)
    found = await audited(house, threads=(LONG,))
    [manifest] = [item for item in found.findings.items if item.kind is ItemKind.MANIFEST]
    assert manifest.verdict is Verdict.FAIL
    assert manifest.reason == f"segment {2 - position}: it has another SHA-256"
    assert found.findings.threads[0].manifest is Verdict.FAIL
    # What newer segments tell of is judged all the same.
    assert set(found.of(LONG).values()) <= {"PASS"}
    assert len(found.of(LONG)) == (0, STEPS - 128, STEPS - 64)[position]


async def test_a_missing_segment_is_missing(house: House) -> None:
    _, middle, _ = house.segments(LONG)
    at = house.put(house.stored(middle).read_bytes())
    location = house.forge(LONG, lambda segment: segment.update(previous=at))
    house.stored(at).unlink()
    found = await audited(house, location, threads=(LONG,))
    item = found.only_problem()
    assert (item.kind, item.verdict) == (ItemKind.MANIFEST, Verdict.MISSING)
    assert item.reason == "segment 1: the source does not have it"


async def test_a_segment_in_the_place_of_another_fails(house: House) -> None:
    _, middle, oldest = house.segments(LONG)
    house.stored(middle).write_bytes(house.stored(oldest).read_bytes())
    found = await audited(house, threads=(LONG,))
    assert found.only_problem().reason == "segment 1: it has another SHA-256"


async def test_a_flipped_bit_of_the_catalog_fails_before_anything_is_believed(
    house: House,
) -> None:
    house.stored(house.catalog).flip()
    found = await audited(house)
    assert found.result == "FAIL"
    assert found.findings.root.verdict is Verdict.FAIL
    assert found.findings.threads == ()
    assert len(found.findings.items) == 1


async def test_a_damaged_run_fails_and_the_rest_is_looked_at(house: House) -> None:
    [[run, *_], *_] = house.json(house.catalog)["runs"]
    house.stored(run).flip()
    found = await audited(house)
    item = found.only_problem()
    assert (item.kind, item.blobs[0].blob_id) == (ItemKind.CATALOG, run["blob_id"])
    assert found.of(SHORT) == dict.fromkeys(house.ids[SHORT], "PASS")


async def test_a_forged_hash_fails(left: House) -> None:
    forged = Location(left.catalog.blob_id, left.catalog.identifier, NO_HASH)
    found = await audited(left, forged)
    assert found.result == "FAIL"
    assert found.findings.root.expected_sha256 == NO_HASH
    assert found.findings.root.actual_sha256 == left.catalog.sha256


async def test_a_number_that_no_json_can_have_fails(house: House) -> None:
    content = {**house.json(house.catalog), "settings": {"x": "here"}}
    at = house.put(kit.stored_json(content).replace(b'"here"', b"1e999"))
    found = await audited(house, Location(at["blob_id"], "", at["sha256"]))
    assert found.only_problem().reason == "'settings' holds a number that is too large"


async def test_a_missing_catalog_is_missing(left: House) -> None:
    found = await audited(left, named("A" * 43))
    assert found.findings.root.verdict is Verdict.MISSING
    assert found.result == "FAIL"


# --- right hashes, wrong words ---------------------------------------------------------


def drop_first_record(segment: dict[str, Any]) -> None:
    del segment["records"][0]


def swap_envelopes(segment: dict[str, Any]) -> None:
    first, second = segment["records"][:2]
    first["envelope"], second["envelope"] = second["envelope"], first["envelope"]


def another_parent(segment: dict[str, Any]) -> None:
    segment["records"][1]["parent_checkpoint_id"] = "elsewhere"


def another_thread(segment: dict[str, Any]) -> None:
    segment["thread_id"] = "stolen"


def another_number(segment: dict[str, Any]) -> None:
    segment["segment"] = 7


def skipped(segment: dict[str, Any]) -> None:
    segment["previous"] = None


def later_generation(segment: dict[str, Any]) -> None:
    segment["generation"] = 9


def no_put(segment: dict[str, Any]) -> None:
    segment["records"][0] = {
        "type": "LABEL",
        "checkpoint_ns": "",
        "checkpoint_id": "unheard-of",
        "label": "x",
        "revision": 1,
    }


def wrong_size(segment: dict[str, Any]) -> None:
    segment["records"][0]["envelope"]["size_bytes"] += 1


def addendum_of_another(segment: dict[str, Any]) -> None:
    [writes] = [one for one in segment["records"] if one["type"] == "WRITES"]
    writes["checkpoint_id"] = segment["records"][0]["checkpoint_id"]


def unknown_type(segment: dict[str, Any]) -> None:
    segment["records"][0]["type"] = "INVENTED"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop_first_record, "the chain has 129 records where 130 were recorded"),
        (swap_envelopes, "its envelope holds checkpoint "),
        (another_parent, "where the manifest says 'elsewhere'"),
        (another_thread, "segment 2 is of thread 'stolen', incarnation 1"),
        (another_number, "segment 7 stands where segment 2 belongs"),
        (skipped, "segment 2: exactly segment 0 has no predecessor"),
        (later_generation, "segment 2 is of generation 9"),
        (no_put, "none says where its envelope lies"),
        (wrong_size, "were recorded"),
        (unknown_type, "segment 2: records of type 'INVENTED' are not known"),
    ],
)
async def test_a_manifest_that_lies_fails_though_every_hash_is_right(
    house: House, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    found = await audited(house, house.forge(LONG, change), threads=(LONG,))
    assert found.result == "FAIL"
    assert any(reason in item.reason for item in found.problems), found.problems


async def test_an_addendum_of_another_checkpoint_fails(house: House) -> None:
    found = await audited(house, house.forge(SHORT, addendum_of_another), threads=(SHORT,))
    assert found.only_problem().verdict is Verdict.FAIL


async def test_a_successor_of_a_segment_that_is_not_full_fails(house: House) -> None:
    """Of the chain, segment 1 loses a record, and everything above it gets right hashes."""
    _, middle, _ = house.segments(LONG)
    content = house.json(middle)
    del content["records"][5]
    forged = house.put(kit.stored_json(content))
    found = await audited(
        house, house.forge(LONG, lambda segment: segment.update(previous=forged)), threads=(LONG,)
    )
    [manifest] = [item for item in found.problems if item.kind is ItemKind.MANIFEST]
    assert manifest.reason == "segment 1 has a successor and only 63 records"


async def test_a_snapshot_of_a_name_that_cannot_be_written_fails(house: House) -> None:
    [snapshot] = [name for name in house.heads() if name.startswith("$snapshot/")]

    def rename(segment: dict[str, Any]) -> None:
        [root] = [one for one in segment["records"] if not one["checkpoint_ns"]]
        stored = house.stored(root["envelope"]).read_bytes()
        envelope = envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(stored))
        [members] = [one for one in envelope.state.channels if one.name == "members"]
        members.value.data = rb'[{"checkpoint_id":"\ud800"}]'
        members.digest = b""
        root["envelope"] = house.put(gzip.compress(envelope.SerializeToString()))

    found = await audited(house, house.forge(snapshot, rename), threads=(snapshot,))
    assert "'checkpoint_id' cannot be written in UTF-8" in found.only_problem().reason


async def test_a_snapshot_that_lacks_a_member_fails(house: House) -> None:
    [snapshot] = [name for name in house.heads() if name.startswith("$snapshot/")]

    def forget(segment: dict[str, Any]) -> None:
        segment["records"] = [one for one in segment["records"] if one["checkpoint_ns"] != "1"]

    found = await audited(house, house.forge(snapshot, forget, fewer=2), threads=(snapshot,))
    assert found.only_problem().reason.startswith("the snapshot says that it captured it")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format_version": 2}, "format_version is 2 and only 1 is known"),
        ({"kind": "page", "heads": []}, "it is a page where a catalog belongs"),
        ({"kind": "parts"}, "it is no piece of a catalog (kind 'parts')"),
        ({"changes": [{"thread_id": 5}]}, "'thread_id' is missing or not of type str"),
        ({"settings": {"x": "\ud800"}}, "'settings' cannot be written in UTF-8"),
        ({"seq": 1 << 63}, "'seq' is not a count"),
    ],
)
async def test_a_catalog_that_makes_no_sense_fails(
    house: House, content: dict[str, Any], reason: str
) -> None:
    forged = {**house.json(house.catalog), **content}
    at = house.put(json.dumps(forged).encode())
    found = await audited(house, Location(at["blob_id"], "", at["sha256"]))
    assert found.only_problem().reason == reason


# --- envelopes and bundles that mean harm ----------------------------------------------


def with_envelope(house: House, stored: bytes) -> Location:
    """Let the first checkpoint of the short thread lie in other bytes, with their right hash."""
    at = house.put(stored)
    return house.forge(SHORT, lambda segment: segment["records"][0].update(envelope=at))


def first_envelope(house: House) -> envelope_pb2.CheckpointEnvelope:
    stored = house.stored(house.envelopes(SHORT)[0]).read_bytes()
    return envelope_pb2.CheckpointEnvelope.FromString(gzip.decompress(stored))


async def test_a_gzip_bomb_is_not_unpacked(house: House) -> None:
    location = with_envelope(house, gzip.compress(bytes(8 << 20)))
    found = await audited(house, location, threads=(SHORT,), bounds=Bounds(envelope=1 << 20))
    assert found.only_problem().reason == "it unpacks to more than 1048576 bytes"


async def test_a_bomb_of_empty_fields_is_not_parsed(house: House) -> None:
    empty_channels = b"\x32\xd0\x0f" + b"\x1a\x00" * 1000
    location = with_envelope(house, gzip.compress(empty_channels))
    found = await audited(house, location, threads=(SHORT,), bounds=Bounds(fields=1000))
    assert found.only_problem().reason == "it has more fields than any reader takes"


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"no gzip", "it is not gzip, or damaged"),
        (gzip.compress(b"x") + b"y", "bytes follow its gzip stream"),
        (gzip.compress(b"x" * 99)[:-4], "its gzip stream is cut off"),
        (gzip.compress(b"\x0a\xff"), "it ends inside a field"),
        (gzip.compress(b""), "format_version is 0 and only 1 is known"),
        (b'{"kind":"parts"}', "its list of parts: 'format_version' is missing"),
    ],
    ids=["no gzip", "more after it", "cut off", "cut field", "empty", "no parts"],
)
async def test_bytes_that_are_no_envelope_fail(house: House, stored: bytes, reason: str) -> None:
    found = await audited(house, with_envelope(house, stored), threads=(SHORT,))
    assert found.only_problem().reason.startswith(reason)


def lying_digest(message: envelope_pb2.CheckpointEnvelope) -> None:
    message.state.channels[0].digest = bytes(32)


def channel_twice(message: envelope_pb2.CheckpointEnvelope) -> None:
    message.state.channels.append(message.state.channels[0])


def no_content(message: envelope_pb2.CheckpointEnvelope) -> None:
    message.state.channels[0].ClearField("content")


def no_metadata(message: envelope_pb2.CheckpointEnvelope) -> None:
    message.metadata_json = b"[]"


def of_another_namespace(message: envelope_pb2.CheckpointEnvelope) -> None:
    message.ref.checkpoint_ns = "agent:1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lying_digest, "has another digest than it says"),
        (channel_twice, "is there twice"),
        (no_content, "has no content"),
        (no_metadata, "its metadata is not a JSON object"),
        (of_another_namespace, "its envelope is of namespace 'agent:1'"),
    ],
)
async def test_an_envelope_that_contradicts_itself_fails(
    house: House, change: Callable[[envelope_pb2.CheckpointEnvelope], None], reason: str
) -> None:
    message = first_envelope(house)
    change(message)
    location = with_envelope(house, gzip.compress(message.SerializeToString()))
    found = await audited(house, location, threads=(SHORT,))
    assert reason in found.only_problem().reason


async def test_an_envelope_in_parts_is_joined_and_each_part_checked(house: House) -> None:
    stored = house.stored(house.envelopes(SHORT)[0]).read_bytes()
    parts = [house.put(stored[:100]), house.put(stored[100:])]
    listed = {
        "format_version": 1,
        "kind": "parts",
        "sha256": house.put(stored)["sha256"],
        "size_bytes": len(stored),
        "parts": parts,
    }
    location = with_envelope(house, kit.stored_json(listed))
    assert (await audited(house, location, threads=(SHORT,))).result == "PASS"

    listed["parts"] = parts[::-1]
    swapped = with_envelope(house, kit.stored_json(listed))
    item = (await audited(house, swapped, threads=(SHORT,))).only_problem()
    assert item.reason.startswith("its parts make SHA-256")

    house.stored(parts[1]).flip()
    item = (await audited(house, location, threads=(SHORT,))).only_problem()
    assert [blob.verdict.value for blob in item.blobs] == ["PASS", "PASS", "FAIL"]


# --- descriptors -----------------------------------------------------------------------


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
    told = {key: value.replace("{id}", checkpoint_id) for key, value in fields.items()}
    found = await kit.audited_descriptor(kit.directory(left), kit.changed(left.handoff, **told))
    assert found.result == "FAIL"
    assert found.problems[0].reason.startswith(reason.replace("{id}", checkpoint_id))


async def test_a_descriptor_without_a_blob_is_missing_it(left: House) -> None:
    given = kit.changed(left.handoff, blob_id="B" * 43)
    found = await kit.audited_descriptor(kit.directory(left), given)
    assert found.only_problem().verdict is Verdict.MISSING


async def test_a_bundle_is_read_within_bounds(house: House) -> None:
    at = house.put(gzip.compress(bytes(4 << 20)))
    given = kit.changed(house.handoff, blob_id=at["blob_id"], blob_sha256=at["sha256"])
    found = await kit.audited_descriptor(kit.directory(house), given, Bounds(bundle=1 << 20))
    assert found.only_problem().reason == "it unpacks to more than 1048576 bytes"


async def test_the_summary_of_a_checkpoint_that_has_none_is_the_sentence_that_names_it(
    house: House,
) -> None:
    bundle = handoff_pb2.HandoffBundle.FromString(
        gzip.decompress(house.stored(Location(house.handoff.blob_id)).read_bytes())
    )
    envelope = bundle.checkpoints[0].envelope
    envelope.summary = ""
    envelope.metadata_json = b'{"step": 3, "source": "loop"}'
    at = house.put(gzip.compress(bundle.SerializeToString()))
    given = kit.changed(house.handoff, blob_id=at["blob_id"], blob_sha256=at["sha256"])
    fits = kit.changed(given, summary="Step 3 (loop) of thread short.")
    assert (await kit.audited_descriptor(kit.directory(house), fits)).result == "PASS"
    assert (await kit.audited_descriptor(kit.directory(house), given)).result == "FAIL"


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

    house.stored(house.envelopes(LONG)[2]).flip()
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
    for content in (*contents, {"kind": "tuskpoint-audit", "format_version": 2}):
        with pytest.raises(BadReport):
            read_report(json.dumps(content), "something")


async def test_the_text_names_everything_that_was_checked(house: House) -> None:
    damaged = house.envelopes(SHORT)[0]
    house.stored(damaged).flip()
    found = await audited(house, threads=(SHORT,))
    text = report_of(found.findings, house).to_text()
    assert text.startswith("Audit of catalog ")
    assert "trusted by   the SHA-256 that was given" in text
    assert all(checkpoint_id in text for checkpoint_id in house.ids[SHORT])
    assert f"FAIL       envelope {damaged.blob_id}/{damaged.identifier}" in text
    brief = report_of(found.findings, house).to_text(brief=True)
    assert damaged.identifier in brief
    assert house.ids[SHORT][1] not in brief


# --- what cannot be audited ------------------------------------------------------------


def test_names_that_name_nothing_are_refused(tmp_path: Path) -> None:
    for text in ("", "short", "A" * 43 + ":xyz", "A" * 42 + "+"):
        with pytest.raises(UnclearName):
            named(text)
    with pytest.raises(BadSource, match="is not a directory"):
        DirectorySource(tmp_path / "nowhere")
