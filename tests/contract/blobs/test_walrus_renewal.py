"""A blob on Walrus can be listed and stored once more."""

from __future__ import annotations

import hashlib

import pytest

from tests.kit.blobs.stores import member
from tests.kit.blobs.walrus_peer import (
    Fault,
    Reply,
    as_json,
    blob_id_of,
    changed,
    instead,
    problem,
    with_wrong_member,
)
from tests.kit.blobs.walrus_stores import INTERNAL, NOT_FOUND, PeerKit
from tests.kit.drafts import refused
from tuskpoint_server.core.errors import Reason


async def test_names_that_are_no_hash_are_not_listed(kit: PeerKit) -> None:
    peer = await kit.peer()
    name = hashlib.sha256(b"content").hexdigest()
    blob_id = kit.world.add_quilt(
        {name: ({}, b"content"), "README": ({}, b"hello"), name.upper() + "x": ({}, b"")}
    )
    [listed] = await kit.store(peer).list_blob(blob_id)
    assert listed.location.identifier == name


@pytest.mark.parametrize(
    "fault",
    [instead(INTERNAL), instead(Reply(404)), instead(NOT_FOUND)],
    ids=["internal", "no route", "not found"],
)
async def test_quilt_without_a_list_is_listed_from_its_bytes(kit: PeerKit, fault: Fault) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([member(b"one", "catalog"), member(b"two")])
    reader = kit.store(peer)
    peer.script.append(fault)
    listed = await reader.list_blob(receipt.blobs[0].blob_id)
    assert {item.location.identifier: item.kind for item in listed} == {
        receipt.locations[0].identifier: "catalog",
        receipt.locations[1].identifier: "",
    }


async def test_list_survives_an_outage_of_one(kit: PeerKit) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([member(b"one")])
    peer.script.extend([instead(Reply(502)), instead(None), instead(as_json({"no": "list"}))])
    assert len(await kit.store(peer).list_blob(receipt.blobs[0].blob_id)) == 1


@pytest.mark.parametrize(
    "fault",
    [
        changed(lambda raw: raw[:1] + b"\xff" * 4 + raw[5:]),
        changed(with_wrong_member),
    ],
    ids=["broken index", "broken member"],
)
async def test_nothing_wrong_is_renewed(kit: PeerKit, fault: Fault) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"member %d" % number + bytes(1000), "segment") for number in range(10)]
    first = await store.put(members)
    peer.script.append(fault)
    renewed = await store.renew(first.blobs[0].blob_id)
    assert renewed.blobs[0].blob_id == first.blobs[0].blob_id
    assert set(renewed.locations) == set(first.locations)


@pytest.mark.parametrize("too_large", [True, False])
async def test_quilt_too_large_to_be_read_whole_is_renewed_by_patches(
    kit: PeerKit, too_large: bool
) -> None:
    """An aggregator may limit the size that it serves, and the client the size that it accepts."""
    peer = await kit.peer()
    members = [member(b"one", "catalog"), member(b"two")]
    first = await kit.store(peer).put(members)
    peer.always = lambda request, answer: (
        problem(403, "SIZE_EXCEEDED", "BLOB_TOO_LARGE")
        if too_large and request.route[:2] == ("v1", "blobs") and len(request.route) == 3
        else answer(request)
    )
    store = kit.store(peer, max_body_bytes=100_000)
    renewed = await store.renew(first.blobs[0].blob_id)
    assert renewed.blobs[0].blob_id == first.blobs[0].blob_id
    assert set(renewed.locations) == set(first.locations)


async def test_quilt_whose_members_are_wrong_is_not_renewed(kit: PeerKit) -> None:
    peer = await kit.peer()
    blob_id = kit.world.add_quilt({hashlib.sha256(b"a").hexdigest(): ({}, b"b")})
    refusal = await refused(kit.store(peer).renew(blob_id), Reason.BLOB_HASH_MISMATCH)
    assert refusal.metadata["actual"] == hashlib.sha256(b"b").hexdigest()
    other = kit.world.add_quilt({"README": ({}, b"hello")})
    await refused(kit.store(peer).renew(other), Reason.BLOB_MALFORMED)
    assert peer.count("PUT") == 0


async def test_blob_of_its_own_is_renewed(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    first = await store.put([member(b"one")], standalone=True)
    kit.world.epoch += 1
    renewed = await store.renew(first.blobs[0].blob_id)
    assert renewed.locations == first.locations
    assert renewed.blobs[0].end_epoch == 13
    peer.script.append(changed(lambda _: b"two"))
    refusal = await refused(store.renew(first.blobs[0].blob_id), Reason.BLOB_MALFORMED)
    assert blob_id_of(b"two") in refusal.message
