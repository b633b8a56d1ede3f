"""One member or many members are read from Walrus."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.kit.blobs.stores import many, member
from tests.kit.blobs.walrus_peer import (
    Fault,
    Reply,
    WalrusRequest,
    changed,
    instead,
    problem,
    with_wrong_member,
)
from tests.kit.blobs.walrus_stores import HTML, INTERNAL, NOT_FOUND, PeerKit
from tests.kit.drafts import refused
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import BlobLocation


async def test_one_member_is_one_patch_not_the_quilt(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    receipt = await store.put(many(20))
    peer.requests.clear()
    location = receipt.locations[7]
    assert await store.get(location) == b"member 7"
    [request] = peer.requests
    assert request.path == f"/v1/blobs/by-quilt-id/{location.blob_id}/{location.identifier}"


READ_FAULTS: dict[str, Fault] = {
    "connection cut": instead(None),
    "short body": instead(Reply(200, b"content", drop_after=3)),
    "corrupted": changed(lambda body: b"X" + body[1:]),
    "truncated": changed(lambda body: body[:-1]),
    "unavailable": instead(problem(503, "UNAVAILABLE", "BLOB_UNAVAILABLE")),
    "internal": instead(INTERNAL),
    "busy": instead(Reply(429, b"overload")),
    "gateway": instead(Reply(502, b"<html></html>", HTML)),
    "not visible yet": instead(NOT_FOUND),
    "not visible yet, says a cache": instead(Reply(404, b"<html></html>", HTML)),
}


@pytest.mark.parametrize("standalone", [False, True], ids=["quilt", "standalone"])
@pytest.mark.parametrize("fault", READ_FAULTS.values(), ids=READ_FAULTS)
async def test_reads_are_tried_again(kit: PeerKit, fault: Fault, standalone: bool) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")], standalone=standalone)).locations
    peer.requests.clear()
    peer.script.append(fault)
    assert await store.get(location) == b"content"
    assert len(peer.requests) == 2
    assert len(kit.time.pauses) == 1


@pytest.mark.parametrize("fault", READ_FAULTS.values(), ids=READ_FAULTS)
async def test_another_aggregator_is_asked_at_once(kit: PeerKit, fault: Fault) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second)
    [location] = (await store.put([member(b"content")])).locations
    first.script.append(fault)
    assert await store.get(location) == b"content"
    assert (len(first.requests), len(second.requests)) == (2, 1)
    assert kit.time.pauses == []


async def test_blob_just_stored_may_take_half_a_minute(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [quilted] = (await store.put([member(b"one")])).locations
    [alone] = (await store.put([member(b"two")], standalone=True)).locations
    for location, data in ((quilted, b"one"), (alone, b"two")):
        peer.requests.clear()
        kit.time.pauses.clear()
        peer.script.extend([instead(NOT_FOUND)] * 6)
        assert await store.get(location) == data
        assert kit.time.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
        assert len({(request.path, tuple(request.query)) for request in peer.requests}) == 7
        assert {request.headers["cache-control"] for request in peer.requests} == {"no-store"}


async def test_blob_just_stored_and_never_seen(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"one")])).locations
    peer.always = instead(NOT_FOUND)
    await refused(store.get(location), Reason.BLOB_NOT_FOUND)
    assert sum(kit.time.pauses) == 31.5


async def test_missing_blob_is_missing_at_once(kit: PeerKit) -> None:
    peer = await kit.peer()
    writer, reader = kit.store(peer), kit.store(peer)
    [location] = (await writer.put([member(b"one")])).locations
    kit.world.blobs.clear()
    peer.requests.clear()
    refusal = await refused(reader.get(location), Reason.BLOB_NOT_FOUND)
    assert refusal.metadata["blob_id"] == location.blob_id
    assert (len(peer.requests), kit.time.pauses) == (1, [])


async def test_a_blob_is_missing_once_every_aggregator_says_so(kit: PeerKit) -> None:
    first, second = await kit.peer(), await kit.peer()
    [location] = (await kit.store(first).put([member(b"one")])).locations
    reader = kit.store(first, second)
    first.always = instead(NOT_FOUND)
    assert await reader.get(location) == b"one"
    second.always = instead(NOT_FOUND)
    await refused(reader.get(location), Reason.BLOB_NOT_FOUND)
    assert kit.time.pauses == []


async def test_not_found_by_something_else_is_no_verdict(kit: PeerKit) -> None:
    """A proxy, or a daemon without the route, knows nothing about blobs."""
    peer = await kit.peer()
    [location] = (await kit.store(peer).put([member(b"one")])).locations
    reader = kit.store(peer)
    for reply in (Reply(404), Reply(404, b"<html>not here</html>", HTML)):
        peer.always = instead(reply)
        refusal = await refused(reader.get(location), Reason.BLOB_UNAVAILABLE)
        assert "check that the URL" in refusal.message


async def test_wrong_bytes_are_refused_with_both_hashes(kit: PeerKit) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second)
    [location] = (await store.put([member(b"content")])).locations
    for peer in (first, second):
        peer.requests.clear()
        peer.always = instead(Reply(200, b"Content"))
    refusal = await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)
    assert refusal.metadata == {
        "blob_id": location.blob_id,
        "expected": hashlib.sha256(b"content").hexdigest(),
        "actual": hashlib.sha256(b"Content").hexdigest(),
    }
    for peer in (first, second):
        assert [request.query for request in peer.requests] == [
            [],
            [("fresh", "1")],
            [("fresh", "2")],
        ]


async def test_wrong_bytes_of_a_blob_are_asked_for_under_keys_that_are_allowed(
    kit: PeerKit,
) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")], standalone=True)).locations
    peer.requests.clear()
    peer.always = instead(Reply(200, b"Content"))
    await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)
    assert [request.query for request in peer.requests] == [
        [],
        [("skip_consistency_check", "false")],
        [("strict_consistency_check", "true")],
    ]


async def test_wrong_bytes_are_reported_even_if_the_rest_is_silence(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")])).locations
    peer.script.append(instead(Reply(200, b"Content")))
    peer.always = instead(Reply(502))
    await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)


async def test_body_without_end_is_cut(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer, max_body_bytes=1000)
    [location] = (await store.put([member(b"content")])).locations
    chunked = {"Transfer-Encoding": "chunked", "Content-Length": ""}
    endless = b"400\r\n" + bytes(1024) + b"\r\n"
    announced = Reply(200, b"", {"Content-Length": str(10**12)}, drop_after=0)
    for reply in (Reply(200, bytes(1001)), Reply(200, endless, chunked), announced):
        peer.always = instead(reply)
        refusal = await refused(store.get(location), Reason.BLOB_UNAVAILABLE)
        assert "sent more than expected" in refusal.message


async def test_slow_aggregator_times_out(kit: PeerKit) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second, get_timeout_s=0.3)
    [location] = (await store.put([member(b"content")])).locations
    first.hold = asyncio.Event()
    assert await store.get(location) == b"content"
    assert kit.metric("tuskpoint.walrus.retries")["get_patch", "timeout"] >= 1


@pytest.mark.parametrize(
    "blob_id", ["", "a", "../" + "a" * 40, "_" * 43, "a" * 43 + "=", "A" * 44, "é" * 43]
)
async def test_an_invalid_blob_id_is_not_asked_for(kit: PeerKit, blob_id: str) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    location = BlobLocation(hashlib.sha256(b"").digest(), 0, blob_id)
    for call in (store.get(location), store.list_blob(blob_id), store.renew(blob_id)):
        await refused(call, Reason.BLOB_NOT_FOUND)
    assert peer.requests == []


async def test_identifier_stays_one_segment(kit: PeerKit) -> None:
    peer = await kit.peer()
    name = "a/../b %?#é"
    blob_id = kit.world.add_quilt({name: ({}, b"content")})
    location = BlobLocation(hashlib.sha256(b"content").digest(), 7, blob_id, name)
    store = kit.store(peer)
    assert await store.get(location) == b"content"
    for bad in ("..", ".", "a ", "a\n"):
        await refused(store.get(replace(location, identifier=bad)), Reason.BLOB_NOT_FOUND)
    assert len(peer.requests) == 1


async def test_much_of_a_quilt_is_one_read(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = (await store.put(many(40))).locations
    few = (await store.put([member(b"few 1"), member(b"few 2")])).locations
    [alone] = (await store.put([member(b"alone")], standalone=True)).locations
    peer.requests.clear()
    wanted = [few[1], *locations[10:30], alone, locations[10], few[0]]
    assert await store.get_many(wanted) == [
        b"few 2",
        *(b"member %d" % number for number in range(10, 30)),
        b"alone",
        b"member 10",
        b"few 1",
    ]
    assert len(peer.requests) == 4
    assert peer.count("GET", "v1", "blobs", locations[0].blob_id) == 1
    assert await store.get_many([]) == []


@pytest.mark.parametrize(
    "fault",
    [
        instead(Reply(502)),
        instead(NOT_FOUND),
        instead(Reply(200, b"no quilt")),
        changed(lambda raw: raw[:1] + b"\xff" * 4 + raw[5:]),
        changed(with_wrong_member),
    ],
    ids=["gateway", "not found", "no quilt", "broken index", "broken member"],
)
async def test_members_that_the_quilt_does_not_prove_are_read_alone(
    kit: PeerKit, fault: Fault
) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"member %d" % number + bytes(1000)) for number in range(10)]
    locations = (await store.put(members)).locations
    peer.script.append(fault)
    assert await store.get_many(locations) == [each.data for each in members]


async def test_quilt_that_cannot_be_read_is_not_waited_for(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = (await store.put(many(10))).locations

    def no_raw_reads(request: WalrusRequest, answer: Callable[[WalrusRequest], Reply]) -> Reply:
        return answer(request) if "by-quilt-id" in request.path else Reply(502)

    peer.always = no_raw_reads
    assert await store.get_many(locations) == [each.data for each in many(10)]
    assert kit.time.pauses == []


async def test_quilt_too_large_for_memory_is_read_by_patches(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer, max_body_bytes=100_000)
    locations = (await store.put(many(10))).locations
    assert await store.get_many(locations) == [each.data for each in many(10)]
    assert peer.count("GET", "v1", "blobs", "by-quilt-id") == 10


async def test_one_wrong_member_fails_the_read_of_many(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = list((await store.put(many(10))).locations)
    locations[4] = replace(locations[4], sha256=hashlib.sha256(b"other").digest())
    await refused(store.get_many(locations), Reason.BLOB_HASH_MISMATCH)
