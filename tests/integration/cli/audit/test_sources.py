"""Audits cope with aggregators that hang, refuse, lie or return unrelated answers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.cli.audit import kit
from tests.kit.blobs.walrus_peer import Peer, Reply, World, changed, instead, problem
from tuskpoint._messages.lineage.handoffs import Descriptor
from tuskpoint.audit import answers
from tuskpoint.audit.aggregator import MAX_BODY_BYTES, AggregatorSource
from tuskpoint.audit.formats.stored import Location
from tuskpoint.audit.reading import SILENT_AT_MOST, Bounds, Reader
from tuskpoint.audit.roots import UnclearName, find
from tuskpoint.audit.sources import BadSource, is_patch_id
from tuskpoint.audit.verdicts import Verdict
from tuskpoint.storage.v1 import segment_pb2

BLOB = "B" * 42 + "A"
WEB_PAGE = Reply(200, b"<!DOCTYPE html><p>Sign in", {"Content-Type": "text/html"})
GATEWAY = Reply(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"})
PLAIN_404 = Reply(404, b"")
NOT_FOUND = problem(404, "NOT_FOUND", "BLOB_NOT_FOUND")
FAILED = problem(500, "INTERNAL", "INTERNAL_ERROR")
BUSY = Reply(429, b"Too many requests")


def bundle() -> bytes:
    row = segment_pb2.SegmentCheckpoint(checkpoint_id="c", summary="Half way.")
    message = segment_pb2.ThreadSegment(
        thread_id="t", checkpoints=[row], handoff={"checkpoint_id": "c"}
    )
    return kit.stored_segment(message)


STORED = bundle()
GIVEN = Descriptor("t:c", "t", "c", BLOB, hashlib.sha256(STORED).hexdigest(), "writer", "Half way.")


@pytest.fixture
async def peers() -> AsyncIterator[tuple[Peer, Peer]]:
    """Two aggregators of a network with a single blob."""
    world = World()
    world.blobs[BLOB] = STORED
    first, second = await Peer(world).start(), await Peer(world).start()
    yield first, second
    await first.stop()
    await second.stop()


class Pauses:
    """Replaces the pauses, and records their lengths."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    async def __call__(self, length: float) -> None:
        self.lengths.append(length)
        await asyncio.sleep(0)


async def audited(*peers: Peer, given: Descriptor = GIVEN, **options: Any) -> kit.Audited:
    source = AggregatorSource([peer.url for peer in peers], **{"sleep": Pauses(), **options})
    try:
        audit = await kit.audited_descriptor(source, given)
    finally:
        await source.close()
    return audit


async def test_an_aggregator_that_has_it_is_asked_once(peers: tuple[Peer, Peer]) -> None:
    first, second = peers
    assert (await audited(first, second)).result == "PASS"
    assert [request.path for request in first.requests] == [f"/v1/blobs/{BLOB}"]
    assert second.requests == []


@pytest.mark.parametrize(
    "reply",
    [WEB_PAGE, GATEWAY, PLAIN_404, NOT_FOUND, FAILED, BUSY, Reply(403), Reply(451), None],
    ids=["page", "502", "404 plain", "404", "500", "429", "403", "451", "cut"],
)
async def test_another_aggregator_answers_for_one_that_does_not(
    peers: tuple[Peer, Peer], reply: Reply | None
) -> None:
    first, second = peers
    first.always = instead(reply)
    assert (await audited(first, second)).result == "PASS"


@pytest.mark.parametrize(
    ("reply", "verdict", "said"),
    [
        (NOT_FOUND, Verdict.MISSING, "the source does not have it"),
        (WEB_PAGE, Verdict.UNREADABLE, "sent a web page instead of the blob"),
        (PLAIN_404, Verdict.UNREADABLE, "answered 404; check that the URL names an aggreg"),
        (GATEWAY, Verdict.UNREADABLE, "answered 502"),
        (FAILED, Verdict.UNREADABLE, "answered 500 INTERNAL_ERROR"),
        (BUSY, Verdict.UNREADABLE, "answered 429: the aggregator limits requests"),
        (Reply(451), Verdict.UNREADABLE, "answered 451: the aggregator must not serve"),
        (None, Verdict.UNREADABLE, "broke the connection"),
    ],
    ids=["404", "page", "404 plain", "502", "500", "429", "451", "cut"],
)
async def test_a_blob_that_no_aggregator_returns_neither_fails_nor_passes(
    peers: tuple[Peer, Peer], reply: Reply | None, verdict: Verdict, said: str
) -> None:
    for peer in peers:
        peer.always = instead(reply)
    audit = await audited(*peers)
    root = audit.findings.root
    assert root.verdict is verdict
    assert said in root.reason
    assert root.actual_sha256 == ""
    assert audit.result == ("FAIL" if verdict is Verdict.MISSING else "INCOMPLETE")


async def test_wrong_bytes_are_asked_for_again_past_caches_and_then_fail(
    peers: tuple[Peer, Peer],
) -> None:
    first, _ = peers
    first.always = changed(lambda body: body[:-1] + b"!")
    audit = await audited(first)
    assert audit.result == "FAIL"
    assert audit.findings.root.actual_sha256 == hashlib.sha256(STORED[:-1] + b"!").hexdigest()
    assert [request.query for request in first.requests] == [
        [],
        [("skip_consistency_check", "false")],
        [("strict_consistency_check", "true")],
    ]
    assert first.requests[1].headers["cache-control"] == "no-store"


async def test_an_aggregator_that_sends_wrong_bytes_is_named_if_another_is_right(
    peers: tuple[Peer, Peer],
) -> None:
    first, second = peers
    first.always = changed(lambda body: body + b"!")
    source = AggregatorSource([first.url, second.url])
    audit = await kit.audited_descriptor(source, GIVEN)
    await source.close()
    assert audit.result == "PASS"
    wrong = hashlib.sha256(STORED + b"!").hexdigest()
    assert source.remarks == [f"{first.url} sent bytes with SHA-256 {wrong} for blobs/{BLOB}"]


async def test_a_body_without_an_end_is_not_read_to_it(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    announced = Reply(200, b"x", {"Content-Length": str(MAX_BODY_BYTES + 1)}, drop_after=1)
    first.always = instead(announced)
    audit = await audited(first)
    assert audit.findings.root.verdict is Verdict.FAIL
    assert audit.findings.root.reason == f"it is longer than {MAX_BODY_BYTES} bytes"


async def test_more_bytes_than_a_blob_can_have_are_not_kept(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    endless = Reply(200, bytes(8 << 20), {"Content-Length": ""}, drop_after=8 << 20)
    first.always = instead(endless)
    source = AggregatorSource([first.url])
    piece = await Reader(source, Bounds()).read("bundle", Location(BLOB, "", "", 1 << 20))
    await source.close()
    assert piece.finding.reason == "it is longer than 2097152 bytes"
    assert source.traffic.bytes_read < 3 << 20


async def test_an_aggregator_that_hangs_is_left_after_the_timeout(
    peers: tuple[Peer, Peer],
) -> None:
    first, second = peers
    first.hold = asyncio.Event()
    assert (await audited(first, second, timeout_s=0.2)).result == "PASS"
    audit = await audited(first, timeout_s=0.01)
    assert audit.result == "INCOMPLETE"
    assert "did not answer in time" in audit.findings.root.reason


async def test_an_aggregator_that_fails_is_asked_after_the_others_from_then_on(
    peers: tuple[Peer, Peer],
) -> None:
    first, second = peers
    first.always = instead(GATEWAY)
    source = AggregatorSource([first.url, second.url])
    for _ in range(3):
        await source.fetch(Location(BLOB, "", GIVEN.blob_sha256), 1 << 20)
    await source.close()
    assert (len(first.requests), len(second.requests)) == (1, 3)


async def test_pauses_grow_and_end(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    first.always = instead(BUSY)
    pauses = Pauses()
    await audited(first, sleep=pauses, chance=lambda: 1.0)
    assert pauses.lengths == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert len(first.requests) == 1 + answers.USUAL.rounds


async def test_a_blob_that_was_stored_a_moment_ago_is_waited_for(
    peers: tuple[Peer, Peer],
) -> None:
    first, _ = peers
    first.script.extend([instead(NOT_FOUND)] * 3)
    pauses = Pauses()
    assert (await audited(first, recent=True, sleep=pauses)).result == "PASS"
    assert pauses.lengths == [0.5, 1.0, 2.0]
    first.always = instead(NOT_FOUND)
    pauses = Pauses()
    audit = await audited(first, recent=True, sleep=pauses)
    assert audit.findings.root.verdict is Verdict.MISSING
    assert sum(pauses.lengths) == 31.5


async def test_a_404_that_a_cache_kept_is_asked_past_it(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    first.script.append(instead(NOT_FOUND))
    assert (await audited(first)).result == "PASS"
    assert first.requests[1].query != first.requests[0].query


async def test_a_source_that_has_stopped_answering_is_not_asked_for_ever(
    peers: tuple[Peer, Peer],
) -> None:
    first, _ = peers
    first.always = instead(Reply(451))
    source = AggregatorSource([first.url])
    reader = Reader(source, Bounds())
    location = Location(BLOB, "", GIVEN.blob_sha256)
    pieces = [await reader.read("segment", location) for _ in range(20)]
    await source.close()
    assert len(first.requests) == SILENT_AT_MOST
    assert {piece.finding.verdict for piece in pieces} == {Verdict.UNREADABLE}
    assert pieces[-1].finding.reason.startswith("it was not asked for")


async def test_nothing_but_a_blob_id_becomes_part_of_a_url(peers: tuple[Peer, Peer]) -> None:
    first, _ = peers
    for blob_id in ("../../etc/passwd", "", "B" * 42, "B" * 44, "B?x=1"):
        descriptor = Descriptor("t:c", "t", "c", blob_id, GIVEN.blob_sha256, "", "")
        audit = await audited(first, given=descriptor)
        assert audit.findings.root.verdict is Verdict.MISSING
    assert first.requests == []


def test_urls_are_taken_as_people_write_them() -> None:
    source = AggregatorSource(
        ["http://user:secret@127.0.0.1:1/v1/blobs", "http://127.0.0.1:2/", "http://127.0.0.1:2/"]
    )
    assert source.places == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    for url in ("", "ftp://x", "http://", "http://x:port", "127.0.0.1:1"):
        with pytest.raises(BadSource):
            AggregatorSource([url])
    with pytest.raises(BadSource, match="no aggregator was given"):
        AggregatorSource([])


# --- quilts ----------------------------------------------------------------------------


async def test_a_catalog_is_found_in_its_quilt_and_is_no_pass_without_a_hash(
    peers: tuple[Peer, Peer],
) -> None:
    first, _ = peers
    content = kit.stored_json(
        {
            "format_version": 2,
            "kind": "catalog",
            "tenant": "default",
            "journal_id": "j",
            "generation": 1,
            "number": 1,
            "create_time_us": 1,
            "previous": None,
            "levels": [],
            "merges": [],
        }
    )
    name = hashlib.sha256(content).hexdigest()
    other = hashlib.sha256(b"other").hexdigest()
    quilt_id = first.world.add_quilt(
        {name: ({"tuskpoint-kind": "catalog"}, content), other: ({}, b"other")}
    )
    source = AggregatorSource([first.url], sleep=Pauses())
    unpinned = await kit.audited_catalog(source, Location(quilt_id))
    assert unpinned.result == "UNPINNED"
    assert unpinned.findings.root.verdict is Verdict.TRUSTED
    assert unpinned.findings.trust == "the word of the source: no SHA-256 was given for it"
    for location in (
        Location(quilt_id, "", name),
        Location(quilt_id, name),
        Location(quilt_id, name, name),
    ):
        assert (await kit.audited_catalog(source, location)).result == "PASS"
    assert (await kit.audited_catalog(source, Location(quilt_id, "", other))).result == "FAIL"
    alone = first.world.add_quilt({name: ({"tuskpoint-kind": "catalog"}, content)})
    with pytest.raises(UnclearName, match="holds no manifest"):
        await find(source, Location(alone), "manifest")
    await source.close()


def patch_id(version: int, start: int, end: int) -> str:
    raw = bytes(32) + bytes([version]) + start.to_bytes(2, "little") + end.to_bytes(2, "little")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_ids_of_patches_are_distinguished_from_those_of_blobs() -> None:
    assert is_patch_id(patch_id(1, 1, 2))
    assert not is_patch_id(patch_id(2, 1, 2))
    assert not is_patch_id(patch_id(1, 2, 2))
    assert not is_patch_id(BLOB)
