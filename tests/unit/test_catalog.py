from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tuskpoint_server.domain import catalog as catalogs
from tuskpoint_server.domain.catalog import (
    FAN_OUT,
    Catalog,
    Merge,
    RunPart,
    RunRef,
    Runs,
    ThreadHead,
    add_page,
    begin_merges,
    decode_catalog,
    decode_runs,
    encode_catalog,
    encode_page,
    encode_runs,
    finish_merge,
    place_runs,
    read_heads,
    read_parts,
    runs_of,
    with_run,
)
from tuskpoint_server.domain.digests import blob_digest
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import ManifestHead
from tuskpoint_server.domain.model import BlobLocation

AT = BlobLocation(b"\0" * 32, 1, "the-blob")


def location(name: str, blob_id: str = "b") -> BlobLocation:
    return BlobLocation(blob_digest(name.encode()), len(name), blob_id, "patch")


def head(thread_id: str, incarnation: int = 1, blob_id: str = "b") -> ThreadHead:
    manifest = ManifestHead(location(thread_id, blob_id), 3, 1, 200)
    return ThreadHead(thread_id, incarnation, ended=False, deleted_through="", manifest=manifest)


def catalog(*changes: ThreadHead, runs: tuple[tuple[RunRef, ...], ...] = ()) -> Catalog:
    return Catalog(1, 7, location("previous"), {"retention": 3}, runs, changes)


class Blobs:
    """Bytes by location."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}

    def store(self, data: bytes) -> BlobLocation:
        sha256 = blob_digest(data)
        self.stored[sha256] = data
        return BlobLocation(sha256, len(data), sha256.hex())

    async def fetch(self, at: BlobLocation) -> bytes:
        return self.stored[at.sha256]


def test_catalog_round_trip() -> None:
    ended = ThreadHead("gone", 2, ended=True, deleted_through="9", manifest=None)
    stored = catalog(head("a"), ended, runs=((RunRef(1, location("run")),), ()))
    assert decode_catalog(encode_catalog(stored), AT) == stored


def test_this_quilt_is_the_one_that_was_read() -> None:
    unplaced = catalog(head("a", blob_id=""), runs=((RunRef(1, location("run", "")),),))
    unplaced = replace(unplaced, previous=location("previous", ""))
    read = decode_catalog(encode_catalog(unplaced), AT)
    assert read.changes[0].manifest is not None
    assert read.changes[0].manifest.location.blob_id == "the-blob"
    assert read.runs[0][0].location.blob_id == "the-blob"
    assert read.previous is not None
    assert read.previous.blob_id == "the-blob"


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode_catalog(catalog(head("a")))), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        changed(format_version=2),
        changed(kind="page"),
        changed(runs=[{}]),
        changed(changes=[{"thread_id": "t"}]),
        changed(settings=[]),
        changed(seq=None),
    ],
)
def test_malformed_catalog_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_catalog(data, AT)
    assert refused.value.reason is Reason.BLOB_MALFORMED


def test_runs_round_trip() -> None:
    runs = Runs(
        levels=((RunRef(1, location("a")), RunRef(2, location("b"))), ()),
        merges={0: Merge(3, (1, 2), (location("page"),), location("index")), 2: Merge(4, ())},
        next_run=5,
    )
    assert decode_runs(encode_runs(runs)) == runs
    placed = place_runs(runs, lambda at: replace(at, blob_id="placed"))
    assert placed.levels[0][0].location.blob_id == "placed"
    merge = placed.merges[0]
    assert merge.index is not None
    assert {merge.index.blob_id, merge.pages[0].blob_id} == {"placed"}


def test_merge_begins_when_a_level_is_full() -> None:
    runs = Runs()
    for number in range(1, FAN_OUT):
        runs = with_run(runs, 0, RunRef(number, location(str(number))))
    runs = replace(runs, next_run=100)
    assert begin_merges(runs).merges == {}
    runs = begin_merges(with_run(runs, 0, RunRef(FAN_OUT, location("last"))))
    assert runs.merges == {0: Merge(100, tuple(range(1, FAN_OUT + 1)))}
    assert begin_merges(runs) == runs


@pytest.mark.parametrize("pages", [0, 1, 2, 4, 5, 8, 9])
async def test_merged_run_holds_every_page(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "INDEX_PAGES", 4)
    blobs = Blobs()
    runs = Runs()
    for number in range(1, FAN_OUT + 2):
        runs = with_run(runs, 0, RunRef(number, location(str(number))))
    runs = begin_merges(replace(runs, next_run=100))
    for number in range(pages):
        page = blobs.store(encode_page([head(f"{number}-{one}") for one in range(3)]))
        runs = add_page(runs, 0, page, blobs.store)
    runs = finish_merge(runs, 0, blobs.store)
    assert runs.merges == {}
    assert [ref.run for ref in runs.levels[0]] == [FAN_OUT + 1]
    newest = blobs.store(encode_catalog(catalog(runs=runs.levels[1:])))
    found = [one async for one in read_heads(newest, blobs.fetch)]
    assert sorted(one.thread_id for one in found) == sorted(
        f"{number}-{one}" for number in range(pages) for one in range(3)
    )


async def test_newest_word_wins() -> None:
    blobs = Blobs()
    oldest = blobs.store(encode_page([head("a", 1), head("b", 1), head("c", 1), head("d", 1)]))
    older = blobs.store(encode_catalog(catalog(head("a", 2), head("b", 2), head("c", 2))))
    newer = blobs.store(encode_catalog(catalog(head("a", 3), head("b", 3))))
    newest = blobs.store(
        encode_catalog(
            catalog(
                head("a", 4),
                runs=((RunRef(2, older), RunRef(3, newer)), (RunRef(1, oldest),)),
            )
        )
    )
    found = {one.thread_id: one.incarnation async for one in read_heads(newest, blobs.fetch)}
    assert found == {"a": 4, "b": 3, "c": 2, "d": 1}


async def parts(blobs: Blobs, newest: BlobLocation) -> list[RunPart]:
    read = decode_catalog(blobs.stored[newest.sha256], newest)
    return [part async for part in read_parts(read, newest, blobs.fetch)]


async def test_every_piece_is_told_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that renewal has to keep, and for each head the run whose merge would move it."""
    monkeypatch.setattr(catalogs, "INDEX_PAGES", 2)
    blobs = Blobs()
    runs = Runs()
    for number in range(1, FAN_OUT + 1):
        runs = with_run(runs, 0, RunRef(number, location(str(number))))
    runs = begin_merges(replace(runs, next_run=100))
    pages = [blobs.store(encode_page([head(name)])) for name in ("a", "b", "c")]
    for page in pages:
        runs = add_page(runs, 0, page, blobs.store)
    runs = finish_merge(runs, 0, blobs.store)
    older = blobs.store(encode_catalog(catalog(head("a", 2), head("d", 2))))
    runs = with_run(runs, 0, RunRef(101, older))
    newest = blobs.store(encode_catalog(catalog(head("d", 3), runs=runs.levels)))
    found = await parts(blobs, newest)
    told = [(part.run, [one.thread_id for one in part.heads]) for part in found]
    assert [(run, names) for run, names in told if names] == [
        (102, ["d"]),
        (101, ["a"]),
        (100, ["c"]),
        (100, ["b"]),
    ]
    assert {part.location for part in found} >= {newest, older, *pages}
    assert len(found) == 2 + len(pages) + 2, "two indexes"


def test_runs_go_on_from_a_stored_catalog() -> None:
    levels = ((RunRef(7, location("seven")), RunRef(9, location("nine"))), (RunRef(8, AT),))
    runs = runs_of(catalog(runs=levels), AT)
    assert runs == Runs(levels=((*levels[0], RunRef(10, AT)), levels[1]), merges={}, next_run=11)
    assert runs_of(catalog(), AT) == Runs(((RunRef(1, AT),),), {}, 2)


async def test_a_recovered_writer_merges_what_it_found() -> None:
    """Fifteen runs before, one own: the next flush begins a merge of them all."""
    blobs = Blobs()
    refs = tuple(
        RunRef(number, blobs.store(encode_catalog(catalog(head(str(number))))))
        for number in range(1, FAN_OUT)
    )
    newest = blobs.store(encode_catalog(catalog(head("own"), runs=(refs,))))
    runs = begin_merges(runs_of(catalog(head("own"), runs=(refs,)), newest))
    assert runs.merges == {0: Merge(FAN_OUT + 1, tuple(range(1, FAN_OUT + 1)))}
    assert {part.run for part in await parts(blobs, newest)} == set(runs.merges[0].inputs)


def test_facts_of_threads_may_be_missing() -> None:
    content = json.loads(encode_catalog(catalog(head("a"))))
    for fact in ("agent_id", "retention_s", "unsearchable"):
        del content["changes"][0][fact]
    [read] = decode_catalog(json.dumps(content).encode(), AT).changes
    assert (read.agent_id, read.retention_s, read.unsearchable) == ("", 0, False)
    told = replace(head("a"), agent_id="planner", retention_s=5, unsearchable=True)
    assert decode_catalog(encode_catalog(catalog(told)), AT).changes == (told,)
