"""Audits of a blob directory without its server report intact and damaged blobs correctly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.cli.audit import kit
from tests.integration.cli.audit.kit import (
    COPY,
    FORK,
    GONE,
    LONG,
    SHORT,
    STEPS,
    House,
    another,
    audited,
    of_kind,
)
from tests.kit.blobs.member_file import pack_of, read_pack
from tuskpoint.audit.checks.catalog import UnknownThread
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.report import BadReport, Report, compare, read_report
from tuskpoint.audit.roots import UnclearName, named
from tuskpoint.audit.sources import BadSource, DirectorySource
from tuskpoint.audit.verdicts import Findings, ItemKind, Verdict

# --- intact ----------------------------------------------------------------------------


async def test_all_that_a_server_certified_passes_without_it(left: House) -> None:
    audit = await audited(left)
    assert audit.result == "PASS"
    assert audit.of(LONG) == dict.fromkeys(left.ids[LONG], "PASS")
    assert audit.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    assert list(audit.of(COPY).values()) == list(audit.of(FORK).values()) == ["PASS"]
    totals = {total.thread_id: total for total in audit.findings.threads}
    assert totals[LONG].checkpoints["pass"] == STEPS
    assert totals[GONE].ended
    assert audit.of(GONE) == {}
    assert totals[GONE].facts["deleted_through"] == left.ids[GONE][0]
    assert totals[SHORT].facts["agent_id"] == "planner"
    facts = audit.findings.facts
    assert (facts["live_threads"], facts["snapshots"], facts["ended_threads"]) == (5, 1, 1)
    assert audit.reported[-1].done == audit.reported[-1].total == len(audit.reported)


async def test_late_writes_lie_in_a_segment_of_their_own_and_copies_share_one(
    left: House,
) -> None:
    audit = await audited(left)
    items = {(item.thread_id, item.checkpoint_id): item for item in audit.findings.items}
    first = left.ids[SHORT][0]
    assert len(items[SHORT, first].blobs) == 2
    assert items[SHORT, first].notes == ()
    snapshot = [name for name, _ in items if name.startswith("$snapshot/~") and name[-1] == "0"]
    note = "shares the segment that was made for thread 'long'"
    assert items[snapshot[0], left.ids[LONG][-1]].notes == (note,)


async def test_only_the_threads_that_are_named_are_audited(left: House) -> None:
    audit = await audited(left, threads=(SHORT, GONE))
    assert [total.thread_id for total in audit.findings.threads] == [GONE, SHORT]
    assert audit.of(LONG) == {}
    assert audit.result == "PASS"
    with pytest.raises(UnknownThread, match="has no thread 'nobody'"):
        await audited(left, threads=("nobody",))


async def test_a_stored_manifest_passes(left: House) -> None:
    audit = await kit.audited_manifest(kit.directory(left), left.manifest)
    assert audit.result == "PASS"
    assert audit.of(SHORT) == dict.fromkeys(left.ids[SHORT], "PASS")
    assert audit.findings.trust == "the SHA-256 that was given for it"
    unpinned = Location(left.manifest.blob_id)
    assert (await kit.audited_manifest(kit.directory(left), unpinned)).result == "PASS"


async def test_a_descriptor_and_the_bundle_that_a_catalog_knows_of_pass(left: House) -> None:
    audit = await kit.audited_descriptor(kit.directory(left), left.handoff)
    assert audit.result == "PASS"
    assert audit.of(SHORT) == {left.ids[SHORT][1]: "PASS"}
    items = (await audited(left, threads=(SHORT,))).findings.items
    [bundle] = [item for item in items if item.kind is ItemKind.BUNDLE]
    assert bundle.checkpoint_id == left.ids[SHORT][1]
    assert bundle.blobs[0].actual_sha256 == left.handoff.blob_sha256


async def test_a_bundle_that_is_not_sealed_contradicts_a_sealed_key(left: House) -> None:
    descriptor = kit.changed(left.handoff, sealed_key="YWdl")
    audit = await kit.audited_descriptor(kit.directory(left), descriptor)
    assert audit.result == "FAIL"
    assert "it is not sealed, and what leads to it says that it is" in audit.findings.root.reason


async def test_the_catalogs_before_are_read_when_asked_for(house: House) -> None:
    number = house.opened()["number"]
    audit = await audited(house, history=100)
    assert audit.result == "PASS"
    assert audit.findings.facts["history"] == number - 1
    assert (await audited(house, history=1)).findings.facts["history"] == 1
    previous = house.opened()["previous"]
    house.stored(previous).flip()
    assert (await audited(house, history=0)).result == "PASS"
    [problem] = (await audited(house, history=100)).problems
    assert (problem.kind, problem.verdict) == (ItemKind.CATALOG, Verdict.FAIL)
    house.stored(previous).unlink()
    assert (await audited(house, threads=(LONG,), history=100)).findings.facts["history"] == 0


async def test_a_blob_id_of_a_directory_pins_its_blob(left: House) -> None:
    audit = await audited(left, Location(left.catalog.blob_id))
    assert audit.result == "PASS"
    assert audit.findings.trust == (
        "its blob ID, which in a blob directory is the SHA-256 of the file"
    )
    by_hash = await audited(left, Location(left.catalog.blob_id, "", left.catalog.sha256))
    assert by_hash.result == "PASS"


async def test_a_blob_id_of_a_directory_pins_every_member_of_its_pack(house: House) -> None:
    """A pack with another catalog in it is not the named pack."""
    file = house.stored(house.catalog).path
    members = read_pack(file.read_bytes())
    forged = kit.stored_json({**house.opened(), "levels": [], "merges": []})
    del members[house.catalog.identifier]
    members[hashlib.sha256(forged).hexdigest()] = (forged, b"catalog")
    file.write_bytes(pack_of(members))
    audit = await audited(house, Location(house.catalog.blob_id))
    assert audit.result == "FAIL"
    assert audit.findings.root.reason == "it has another SHA-256"
    assert audit.findings.root.actual_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


async def test_a_run_with_runs_in_it_is_followed(house: House) -> None:
    """The records of one thread are divided into two runs that a third run names."""
    records = sorted(house.records(SHORT), key=kit.position)
    leaves = [house.leaf(records[:3]), house.leaf(records[3:])]
    audit = await audited(house, house.forged_levels([house.branch(leaves)]))
    assert audit.result == "PASS"
    assert audit.of(SHORT) == dict.fromkeys(left_ids(house), "PASS")
    house.stored(leaves[0]).flip(-10)
    audit = await audited(house, house.forged_levels([house.branch(leaves)]))
    assert audit.problems[0].kind is ItemKind.CATALOG
    assert audit.problems[0].blobs[0].actual_sha256 not in ("", leaves[0]["sha256"])


def left_ids(house: House) -> list[str]:
    return house.ids[SHORT]


# --- damaged ---------------------------------------------------------------------------


async def test_one_flipped_bit_of_a_segment_fails_its_checkpoints(house: House) -> None:
    first = house.segments(SHORT)[0]
    house.stored(first).flip(30)
    audit = await audited(house)
    assert audit.result == "FAIL"
    assert audit.of(SHORT)[house.ids[SHORT][0]] == "FAIL"
    assert audit.of(LONG) == dict.fromkeys(house.ids[LONG], "PASS")
    for item in audit.problems:
        [blob] = [blob for blob in item.blobs if blob.verdict is Verdict.FAIL]
        assert (blob.role, blob.identifier) == ("segment", first.identifier)
        assert blob.expected_sha256 == first.sha256
        assert blob.actual_sha256 not in ("", first.sha256)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"more"])
async def test_a_truncated_and_a_longer_segment_fail(
    house: House, change: Callable[[bytes], bytes]
) -> None:
    at = house.segments(LONG)[0]
    house.stored(at).write_bytes(change(house.stored(at).read_bytes()))
    audit = await audited(house, threads=(LONG,))
    assert set(audit.of(LONG).values()) == {"FAIL"}
    assert all(item.blobs[0].actual_sha256 for item in audit.problems)


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
    audit = await audited(house, threads=(LONG,))
    [blob] = audit.problems[0].blobs
    assert blob.verdict is Verdict.FAIL
    assert blob.actual_sha256 == ""
    assert blob.reason.startswith("it is longer than")


async def test_a_lost_pack_takes_everything_that_lay_in_it(house: House) -> None:
    house.stored(house.segments(LONG)[0]).unlink()
    audit = await audited(house)
    assert audit.result == "FAIL"
    assert {item.verdict for item in audit.problems} == {Verdict.MISSING}
    assert set(audit.of(LONG).values()) <= {"MISSING"}


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
    audit = await audited(house)
    assert audit.result == "FAIL"
    assert audit.findings.root.verdict is Verdict.FAIL
    assert audit.findings.root.actual_sha256 not in ("", house.catalog.sha256)
    assert audit.findings.threads == ()
    assert len(audit.findings.items) == 1


async def test_a_damaged_run_fails_and_the_rest_is_looked_at(house: House) -> None:
    [[newest, *_], *_] = [level["runs"] for level in house.opened()["levels"]]
    run = {**newest, "blob_id": newest["blob_id"] or house.catalog.blob_id}
    house.stored(run).flip()
    audit = await audited(house)
    problem = audit.problems[0]
    assert (problem.kind, problem.blobs[0].role) == (ItemKind.CATALOG, "run")
    assert problem.blobs[0].actual_sha256 not in ("", run["sha256"])
    assert audit.findings.threads != ()


@pytest.mark.parametrize("what", ["manifest", "handoff"])
async def test_a_flipped_bit_of_a_manifest_or_a_bundle_fails(house: House, what: str) -> None:
    source = kit.directory(house)
    if what == "manifest":
        house.stored(house.manifest).flip()
        audit = await kit.audited_manifest(source, house.manifest)
        expected = house.manifest.sha256
    else:
        house.stored(Location(house.handoff.blob_id)).flip()
        audit = await kit.audited_descriptor(source, house.handoff)
        expected = house.handoff.blob_sha256
        assert (await audited(house)).only_problem().kind is ItemKind.BUNDLE
    assert audit.result == "FAIL"
    assert audit.findings.root.expected_sha256 == expected
    assert audit.findings.root.actual_sha256 not in ("", expected)


async def test_a_file_that_cannot_be_read_is_no_verdict(house: House) -> None:
    path = house.stored(house.catalog).path
    path.unlink()
    path.mkdir()
    audit = await audited(house)
    assert audit.findings.root.verdict is Verdict.UNREADABLE
    assert audit.result == "INCOMPLETE"


# --- losses that the server recorded ---------------------------------------------------


async def test_a_recorded_gap_is_neither_a_pass_nor_a_failure(house: House) -> None:
    records = house.records(SHORT)
    first = of_kind(house, SHORT, "checkpoint")[0]
    place = {key: first[key] for key in ("checkpoint_ns", "checkpoint_id")}
    gap = another(first, "gap", reason="the store refused it", **place)
    audit = await audited(house, house.forged(*records, gap))
    assert audit.result == "INCOMPLETE"
    item = audit.only_problem()
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
    records = [
        {**record, **at} if record["kind"] == "member" else record for record in house.records(LONG)
    ]
    gap = another(records[0], "gap", reason="its blob expired", segment=at["sha256"])
    location = house.forged(*records, gap)
    assert (await audited(house, location)).result == "PASS"
    house.stored(at).flip()
    assert set((await audited(house, location)).of(LONG).values()) == {"FAIL"}
    house.stored(at).unlink()
    audit = await audited(house, location)
    assert set(audit.of(LONG).values()) == {"GAP"}
    assert audit.result == "INCOMPLETE"


async def test_deleted_checkpoints_are_not_reported_as_lost(house: House) -> None:
    records = house.records(SHORT)
    first, *_ = of_kind(house, SHORT, "checkpoint")
    place = {key: first[key] for key in ("checkpoint_ns", "checkpoint_id")}
    audit = await audited(house, house.forged(*records, another(first, "removal", **place)))
    assert audit.result == "PASS"
    assert first["checkpoint_id"] not in audit.of(SHORT)
    end = another(first, "end", deleted_through="zzz")
    audit = await audited(house, house.forged(*records, end))
    assert audit.result == "PASS"
    assert audit.of(SHORT) == {}
    assert audit.findings.threads[0].ended


async def test_writes_that_wait_for_their_checkpoint_are_checked(house: House) -> None:
    writes, *_ = of_kind(house, SHORT, "writes")
    members = of_kind(house, SHORT, "member")
    location = house.forged(writes, *members)
    [item] = [
        item for item in (await audited(house, location)).findings.items if item.checkpoint_id
    ]
    assert item.verdict is Verdict.PASS
    assert item.notes == ("only writes of it are stored, which wait for it",)


# --- reports ---------------------------------------------------------------------------


def report_of(findings: Findings, house: House) -> Report:
    source = DirectorySource(house.blobs)
    return Report.of(findings, source, datetime.now(UTC), datetime.now(UTC))


async def test_two_auditors_of_the_same_bytes_find_the_same(left: House, house: House) -> None:
    first = report_of((await audited(left)).findings, left)
    second = report_of((await audited(house)).findings, house)
    assert first.digest == second.digest
    read = [read_report(report.to_json(), "report") for report in (first, second)]
    assert compare(*read).same

    house.stored(house.segments(LONG)[0]).flip()
    third = read_report(report_of((await audited(house)).findings, house).to_json(), "third")
    comparison = compare(read[0], third)
    assert not comparison.same
    assert any(house.ids[LONG][2] in line for line in comparison.differences)


async def test_a_report_that_was_changed_is_noticed(left: House) -> None:
    written = report_of((await audited(left)).findings, left).to_json()
    changed = read_report(written.replace('"PASS"', '"FAIL"', 1), "changed")
    comparison = compare(read_report(written, "as written"), changed)
    assert comparison.differences[0] == (
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
    audit = await audited(house, threads=(SHORT,))
    text = report_of(audit.findings, house).to_text()
    assert text.startswith("Audit of catalog ")
    assert "trusted by   the SHA-256 that was given" in text
    assert all(checkpoint_id in text for checkpoint_id in house.ids[SHORT])
    assert f"FAIL       segment {damaged.blob_id}/{damaged.identifier}" in text
    brief = report_of(audit.findings, house).to_text(brief=True)
    assert damaged.identifier in brief
    assert house.ids[SHORT][0] not in brief


# --- unusable sources ------------------------------------------------------------------


def test_names_that_name_nothing_are_refused(tmp_path: Path) -> None:
    for text in ("", "short", "A" * 43 + ":xyz", "A" * 42 + "+"):
        with pytest.raises(UnclearName):
            named(text)
    with pytest.raises(BadSource, match="is not a directory"):
        DirectorySource(tmp_path / "nowhere")
