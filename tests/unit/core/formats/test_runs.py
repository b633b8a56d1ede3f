"""Runs of records are stored in pages and read in order; damaged runs are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.formats.log import saved
from tests.unit.core.formats.rows import encode_record, records, refused_or_read, sha
from tests.unit.core.formats.store import Members
from tuskpoint_server.archive.formats import runs
from tuskpoint_server.archive.formats.records import (
    EndRecord,
    Line,
    MemberRecord,
    Position,
    Record,
    decode_record,
    line_of,
    read_line,
)
from tuskpoint_server.archive.formats.runs import (
    RunPut,
    RunRef,
    decode_run,
    members_of,
    page_lines,
    read_pages,
    store_records,
)
from tuskpoint_server.archive.formats.stored_json import settle_location
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation

untimed = settings(deadline=None, max_examples=40)


def position(record: Record) -> Position:
    return line_of(record).position


def settled_ref(ref: RunRef, holder: str) -> RunRef:
    return replace(ref, location=settle_location(ref.location, holder))


def stored_run(*chosen: Record) -> tuple[RunRef, Members]:
    members = Members()
    ref = store_records(chosen, RunPut(1, 1, members.store))
    assert ref is not None
    return settled_ref(ref, "put 0"), members


async def read(
    ref: RunRef, members: Members, *, after: Position = (), thread_id: str | None = None
) -> list[Record]:
    return [
        decode_record(line.stored.encode(), "b")
        async for lines in read_pages(ref, members.fetch, after=after, thread_id=thread_id)
        for line in lines
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages, leaves and branches so small that a few records fill them."""
    monkeypatch.setattr(runs, "PAGE_BYTES", 1_000)
    monkeypatch.setattr(runs, "LEAF_BYTES", 5_000)
    monkeypatch.setattr(runs, "BRANCH_RUNS", 3)


MANY = [saved(f"t{thread:02}", number) for thread in range(20) for number in range(15)]


async def test_a_run_that_fits_is_one_member_and_reads_in_order() -> None:
    ref, members = stored_run(*reversed(MANY))
    assert len(members.stored) == 1
    assert (ref.records, ref.height) == (300, 0)
    assert await read(ref, members) == MANY
    plain = zstd.decompress(members.stored[ref.location.sha256][1])
    index, *lines = plain.splitlines()
    assert b'"kind":"run"' in index
    assert [decode_record(line, "b") for line in lines] == MANY
    assert ref.plain_bytes == len(plain) - len(index) - 1


@pytest.mark.usefixtures("small")
async def test_a_larger_run_is_a_branch_over_leaves() -> None:
    ref, members = stored_run(*MANY)
    assert ref.height > 1
    assert await read(ref, members) == MANY
    assert {place.sha256 for place in await members_of(ref, members.fetch)} == set(members.stored)


@pytest.mark.usefixtures("small")
async def test_one_thread_is_read_from_the_pages_that_can_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref, members = stored_run(*MANY)
    read_of = list[int]()

    def counted(data: bytes, page: runs.RunPage, name: str) -> list[Line]:
        read_of.append(page.records)
        return page_lines(data, page, name)

    monkeypatch.setattr(runs, "page_lines", counted)
    assert await read(ref, members, thread_id="t07") == [saved("t07", n) for n in range(15)]
    # its own records, and the other records of the first and the last page
    assert sum(read_of) < 15 + 2 * 6
    assert len(members.fetched) <= ref.height + 2
    members.fetched.clear()
    assert await read(ref, members, thread_id="u") == []
    assert not members.fetched


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("number", [0, 1, 77, 150, 299])
async def test_reading_goes_on_after_a_position(number: int) -> None:
    ref, members = stored_run(*MANY)
    after = position(MANY[number])
    assert await read(ref, members, after=after) == MANY[number + 1 :]


@untimed
@given(st.lists(records, max_size=8))
async def test_any_records_come_back_in_order(chosen: list[Record]) -> None:
    members = Members()
    ref = store_records(chosen, RunPut(1, 1, members.store))
    if ref is None:
        assert not chosen
        return
    actual = await read(settled_ref(ref, "put 0"), members)
    in_quilt = [
        replace(
            record, location=replace(record.location, blob_id=record.location.blob_id or "put 0")
        )
        if isinstance(record, MemberRecord)
        else record
        for record in chosen
    ]
    assert sorted(line_of(record).stored for record in actual) == sorted(
        line_of(record).stored for record in in_quilt
    )
    positions = [position(record) for record in actual]
    assert positions == sorted(positions)


@untimed
@given(records)
def test_a_line_has_the_fields_of_its_record(record: Record) -> None:
    line = line_of(record)
    spelled = [part.hex() if isinstance(part, bytes) else part for part in record.identity]
    assert list(line.identity) == [part for part in spelled if part != ""] or len(spelled) > 2
    assert line.thread_id == record.thread_id
    assert (line.incarnation, line.rank) == (record.incarnation, record.rank)
    assert line.passing is record.passing
    assert line.stored.encode() == encode_record(record)


@untimed
@given(records, st.data())
def test_a_changed_line_is_refused_or_read(record: Record, data: st.DataObject) -> None:
    stored = line_of(record).stored
    at = data.draw(st.integers(0, len(stored) - 1))
    changed = stored[:at] + data.draw(st.sampled_from('"{}[]:,01ax\\')) + stored[at + 1 :]
    with refused_or_read():
        read_line(changed, "b")
    with pytest.raises(Refusal):
        read_line(stored[:at], "b")
    with pytest.raises(Refusal, match="something follows"):
        read_line(stored + "{}", "")


def test_the_end_of_an_incarnation_comes_first_in_its_thread() -> None:
    chosen = [saved("t", 1), EndRecord("t", 1, 1, 9, "c1"), saved("s", 1)]
    assert sorted(map(position, chosen)) == [
        ("s", "checkpoint", "", "c0001"),
        ("t", "", "", ""),
        ("t", "checkpoint", "", "c0001"),
    ]


async def test_a_member_in_this_quilt_is_in_the_blob_of_the_run() -> None:
    member = MemberRecord("t", 1, 1, 1, BlobLocation(sha("m"), 3, "", "x"))
    ref, members = stored_run(member)
    [record] = await read(ref, members)
    assert isinstance(record, MemberRecord)
    assert record.location.blob_id == "put 0"


# --- refusals --------------------------------------------------------------------------


def decoded(data: bytes, ref: RunRef) -> None:
    run = decode_run(data, ref)
    for page in run.pages:
        page_lines(data, page, "b")


@untimed
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    ref, _ = stored_run(saved("t", 1))
    with pytest.raises(Refusal) as refused:
        decoded(data, ref)
    assert refused.value.reason is Reason.BLOB_MALFORMED


@untimed
@given(st.data())
def test_changed_and_cut_runs_are_refused_or_read(data: st.DataObject) -> None:
    ref, members = stored_run(*MANY[:9])
    whole = members.stored[ref.location.sha256][1]
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decoded(bytes(changed), ref)
    with pytest.raises(Refusal):
        decoded(whole[: data.draw(st.integers(0, len(whole) - 1))], ref)
    with pytest.raises(Refusal, match="do not add up to its size"):
        decoded(whole + b"more", ref)


@untimed
@given(st.data())
def test_a_changed_index_is_refused_or_read(data: st.DataObject) -> None:
    ref, members = stored_run(*MANY[:9])
    whole = members.stored[ref.location.sha256][1]
    size = zstd.get_frame_size(whole)
    index = bytearray(zstd.decompress(whole[:size]))
    index[data.draw(st.integers(0, len(index) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decoded(zstd.compress(bytes(index)) + whole[size:], ref)


@pytest.mark.usefixtures("small")
@untimed
@given(st.data())
def test_a_changed_branch_is_refused_or_read(data: st.DataObject) -> None:
    ref, members = stored_run(*MANY)
    index = bytearray(zstd.decompress(members.stored[ref.location.sha256][1]))
    index[data.draw(st.integers(0, len(index) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with refused_or_read():
        decode_run(zstd.compress(bytes(index)), ref)


def test_a_run_other_than_the_named_one_is_refused() -> None:
    ref, members = stored_run(*MANY[:9])
    data = members.stored[ref.location.sha256][1]
    with pytest.raises(Refusal, match="not those in the reference"):
        decode_run(data, replace(ref, first=("a", "", "", "")))
    with pytest.raises(Refusal, match="their number is wrong"):
        decode_run(data, replace(ref, records=8))


def page_of(lines: list[str]) -> tuple[bytes, runs.RunPage]:
    frame = zstd.compress("".join(line + "\n" for line in lines).encode())
    first, last = position(MANY[0]), position(MANY[1])
    return frame, runs.RunPage(0, len(frame), sha(frame), first, last, len(lines))


ONE, TWO = (line_of(record).stored for record in MANY[:2])


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([TWO, ONE], "not in order"),
        ([ONE], "other positions"),
        ([TWO], "other positions"),
        ([ONE, "{}", TWO], "not a record"),
        ([ONE, "", TWO], "not a record"),
    ],
)
def test_a_page_that_differs_from_its_index_is_refused(lines: list[str], problem: str) -> None:
    data, page = page_of(lines)
    with pytest.raises(Refusal, match=problem):
        page_lines(data, page, "b")


def test_a_page_with_another_hash_is_refused() -> None:
    data, page = page_of([ONE, TWO])
    assert len(page_lines(data, page, "b")) == 2
    with pytest.raises(Refusal, match="another SHA-256"):
        page_lines(data, replace(page, sha256=sha("other")), "b")


@pytest.mark.usefixtures("small")
async def test_branches_that_name_one_another_in_a_circle_are_refused() -> None:
    ref, members = stored_run(*MANY)
    data = members.stored[ref.location.sha256][1]
    for child in decode_run(data, ref).runs:
        with pytest.raises(Refusal, match="not lower than itself"):
            decode_run(data, replace(ref, height=child.height))


def test_pages_have_about_the_size_of_their_bound() -> None:
    ref, members = stored_run(*(saved(f"t{number:05}", number) for number in range(5_000)))
    data = members.stored[ref.location.sha256][1]
    pages = decode_run(data, ref).pages
    sizes = [sum(len(line.stored) for line in page_lines(data, page, "b")) for page in pages]
    assert len(pages) > 3
    assert all(runs.PAGE_BYTES * 0.9 < size < runs.PAGE_BYTES * 1.1 for size in sizes[:-1])
    assert all(page.last < next_page.first for page, next_page in itertools.pairwise(pages))
