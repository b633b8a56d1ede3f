"""Puts on Walrus handle every answer of a publisher, and send the right tokens."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import jwt
import pytest

from tests.kit.blobs.stores import many, member
from tests.kit.blobs.walrus_peer import (
    Fault,
    Reply,
    WalrusRequest,
    after,
    as_json,
    changed,
    instead,
    problem,
    read_form,
)
from tests.kit.blobs.walrus_stores import HTML, INTERNAL, MALFORMED, SECRET, PeerKit
from tests.kit.drafts import refused
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.blobs.walrus import store
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import MAX_MEMBERS
from tuskpoint_server.core.errors import Reason

NOWHERE = "http://127.0.0.1:1"
UNCONFIRMED = problem(504, "DEADLINE_EXCEEDED", "INSUFFICIENT_CONFIRMATIONS")


async def test_pack_is_one_put_of_a_quilt_named_by_hashes(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    first, second = member(b"one", "catalog"), member(b"\r\n--two\0")
    receipt = await store.put([first, second, first])
    [request] = peer.requests
    assert (request.method, request.path) == ("PUT", "/v1/quilts")
    assert sorted(request.query) == [("epochs", "5"), ("permanent", "true")]
    assert "authorization" not in request.headers
    form = read_form(request)
    tags = [{"identifier": first.sha256.hex(), "tags": {"tuskpoint-kind": "catalog"}}]
    assert json.loads(form.pop("_metadata")) == tags
    assert form == {first.sha256.hex(): b"one", second.sha256.hex(): b"\r\n--two\0"}
    [blob] = receipt.blobs
    assert receipt.locations == tuple(
        replace(store.predict(each.sha256, len(each.data)), blob_id=blob.blob_id)
        for each in (first, second, first)
    )
    assert (blob.size_bytes, blob.cost, blob.epoch, blob.end_epoch) == (11, 1000, 7, 12)
    assert blob.billed_bytes == 66_034_000
    assert blob.object_id == f"0x{1:064x}"
    assert [await store.get(location) for location in receipt.locations] == [
        b"one",
        b"\r\n--two\0",
        b"one",
    ]


async def test_same_pack_again_is_free(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    first = await store.put(many(3))
    second = await store.put(list(reversed(many(3))))
    assert second.locations == tuple(reversed(first.locations))
    [blob] = second.blobs
    assert (blob.billed_bytes, blob.cost, blob.epoch, blob.end_epoch) == (0, 0, None, 12)
    assert blob.blob_id == first.blobs[0].blob_id


async def test_apart_is_one_blob_for_each(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"one"), member(b""), member(b"one")]
    receipt = await store.put(members, standalone=True)
    assert peer.count("PUT", "v1", "blobs") == len(receipt.blobs) == 2
    assert [location.identifier for location in receipt.locations] == ["", "", ""]
    assert receipt.locations[0] == receipt.locations[2]
    assert [await store.get(location) for location in receipt.locations] == [b"one", b"", b"one"]


async def test_put_of_nothing_asks_nobody(kit: PeerKit) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([])
    assert (receipt.locations, receipt.blobs, peer.requests) == ((), (), [])


async def test_puts_stay_within_their_number(kit: PeerKit) -> None:
    peer = await kit.peer()
    peer.hold = asyncio.Event()
    store = kit.store(peer, puts_at_once=3)
    put = asyncio.create_task(store.put(many(9), standalone=True))
    for _ in range(3):
        await peer.arrived.acquire()
    for _ in range(50):
        await asyncio.sleep(0)
    assert peer.at_once == 3
    peer.hold.set()
    await put
    assert peer.most_at_once == 3


@pytest.mark.parametrize(
    "members",
    [many(MAX_MEMBERS + 1), [member(bytes(10 << 20)), member(b"more")]],
    ids=["members", "bytes"],
)
async def test_over_the_limits_is_a_defect_of_the_caller(
    kit: PeerKit, members: list[BlobMember]
) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    with pytest.raises(ValueError, match="over the limits"):
        await store.put(members)
    assert peer.requests == []


async def test_any_number_of_blobs_is_stored_apart(
    kit: PeerKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_MEMBERS", 3)
    peer = await kit.peer()
    assert not kit.store(peer).limits.hold([1] * 4)
    receipt = await kit.store(peer).put(many(4), standalone=True)
    assert len({location.blob_id for location in receipt.locations}) == 4


FIRST_FAULTS: dict[str, Fault] = {
    "connection cut before": instead(None),
    "connection cut after": after(None),
    "unconfirmed": instead(UNCONFIRMED),
    "unconfirmed, and yet stored": after(UNCONFIRMED),
    "busy": instead(Reply(429, b"too many requests")),
    "internal, and yet stored": after(INTERNAL),
    "gateway": instead(Reply(502, b"<html>bad gateway</html>", HTML)),
    "gateway, and yet stored": after(Reply(504, b"<html>timeout</html>", HTML)),
    "unavailable": instead(problem(503, "UNAVAILABLE", "BLOB_UNAVAILABLE")),
    "short answer": after(Reply(200, b"{" + b" " * 50, drop_after=3)),
    "not certified": instead(
        as_json(
            {
                "blobStoreResult": {
                    "error": {
                        "blobId": None,
                        "failurePhase": "with_certify_and_extend_result",
                        "errorMsg": "missing",
                    }
                },
                "storedQuiltBlobs": [],
            }
        )
    ),
    "no answer of a store": instead(as_json({"hello": 1})),
    "html that says 200": instead(Reply(200, b"<html>log in</html>", HTML)),
    "patches missing": changed(
        lambda body: json.dumps({**json.loads(body), "storedQuiltBlobs": []}).encode()
    ),
    "blob ID too short": changed(lambda body: body.replace(b'"blobId": "', b'"blobId": "x')),
}


@pytest.mark.parametrize("fault", FIRST_FAULTS.values(), ids=FIRST_FAULTS)
async def test_same_bytes_are_sent_again(kit: PeerKit, fault: Fault) -> None:
    peer = await kit.peer(fault)
    store = kit.store(peer)
    receipt = await store.put(many(3))
    first, second = peer.requests
    assert read_form(first) == read_form(second)
    assert first.query == second.query
    assert len(kit.time.pauses) == 1
    assert kit.world.objects == 1
    assert await store.get(receipt.locations[1]) == b"member 1"


@pytest.mark.parametrize("fault", FIRST_FAULTS.values(), ids=FIRST_FAULTS)
async def test_another_publisher_is_asked_at_once(kit: PeerKit, fault: Fault) -> None:
    first, second = await kit.peer(fault), await kit.peer()
    receipt = await kit.store(first, second).put(many(3))
    assert (len(first.requests), len(second.requests)) == (1, 1)
    assert kit.time.pauses == []
    assert receipt.blobs[0].blob_id in kit.world.blobs


async def test_unreachable_publisher_is_suspend(kit: PeerKit) -> None:
    peer = await kit.peer()
    store = kit.store(NOWHERE, peer)
    for number in range(3):
        await store.put([member(b"%d" % number)])
    assert kit.time.pauses == []
    points = kit.metric("tuskpoint.walrus.retries")
    assert points == {("put_quilt", "unreached"): 1}


async def test_a_put_that_gives_up_names_a_remedy(kit: PeerKit) -> None:
    peer = await kit.peer()
    peer.always = instead(INTERNAL)
    refusal = await refused(kit.store(peer).put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert refusal.metadata["backend"] == "walrus"
    assert "wallet holds enough WAL" in refusal.message
    assert peer.url in refusal.message
    assert len(peer.requests) == 3
    assert kit.time.pauses == [1.0, 2.0]


def _result(key: str, value: dict[str, object]) -> Reply:
    return as_json({"blobStoreResult": {key: value}, "storedQuiltBlobs": []})


FINAL = {
    "blocked": _result(
        "error", {"blobId": "x", "failurePhase": "check_blob_is_blocked", "errorMsg": "blocked"}
    ),
    "too large": _result(
        "error", {"blobId": None, "failurePhase": "encode", "errorMsg": "the blob is too large"}
    ),
    "invalid": _result("markedInvalid", {"blobId": "x", "event": {}}),
    "malformed": MALFORMED,
    "query": Reply(400, b"Failed to deserialize query string"),
    "body limit": Reply(413, b"length limit exceeded"),
    "forbidden": Reply(403, b"no"),
    "legal": problem(451, "UNAVAILABLE_FOR_LEGAL_REASONS", "FORBIDDEN_BLOB"),
    "signature": problem(401, "UNAUTHENTICATED", "INVALID_SIGNATURE"),
    "no such route": Reply(404),
    "redirect": Reply(307, b"", {"Location": "http://127.0.0.1:1/"}),
}


# Refusals that concern the publisher, not the request: another publisher may accept the request.
ABOUT_THE_PUBLISHER = ("query", "signature", "no such route", "redirect")


@pytest.mark.parametrize("name", FINAL)
async def test_final_answers_are_not_asked_for_twice(kit: PeerKit, name: str) -> None:
    peer = await kit.peer()
    peer.always = instead(FINAL[name])
    unavailable = name in ABOUT_THE_PUBLISHER
    reason = Reason.BLOB_UNAVAILABLE if unavailable else Reason.BLOB_REJECTED
    refusal = await refused(kit.store(peer).put(many(1)), reason)
    assert len(peer.requests) == 1
    assert kit.time.pauses == []
    assert "\n" not in refusal.message


@pytest.mark.parametrize("name", ["body limit", "signature", "no such route", "query"])
async def test_one_publisher_s_refusal_is_not_another_s(kit: PeerKit, name: str) -> None:
    first, second = await kit.peer(), await kit.peer()
    first.always = instead(FINAL[name])
    await kit.store(first, second).put(many(1))
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("name", ["blocked", "too large", "invalid", "legal"])
async def test_refused_content_goes_nowhere_else(kit: PeerKit, name: str) -> None:
    first, second = await kit.peer(), await kit.peer()
    first.always = instead(FINAL[name])
    await refused(kit.store(first, second).put(many(1)), Reason.BLOB_REJECTED)
    assert second.requests == []


async def test_slow_publisher_times_out(kit: PeerKit) -> None:
    peer = await kit.peer()
    peer.hold = asyncio.Event()
    other = await kit.peer()
    receipt = await kit.store(peer, other, put_timeout_s=0.3).put(many(1))
    assert receipt.blobs[0].blob_id in kit.world.blobs
    assert kit.metric("tuskpoint.walrus.retries")["put_quilt", "timeout"] >= 1


async def test_store_without_publishers_only_reads(kit: PeerKit) -> None:
    peer = await kit.peer()
    [location] = (await kit.store(peer).put([member(b"one")])).locations
    reader = kit.store(peer, publishers=())
    assert await reader.get(location) == b"one"
    refusal = await refused(reader.put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert "no publisher is configured" in refusal.message


def claims(request: WalrusRequest) -> dict[str, object]:
    scheme, _, token = request.headers["authorization"].partition(" ")
    assert scheme == "Bearer"
    return jwt.decode(token, SECRET, algorithms=["HS384"], options={"verify_exp": False})


async def test_every_attempt_has_a_token_of_its_own(kit: PeerKit) -> None:
    peer = await kit.peer(
        instead(problem(504, "DEADLINE_EXCEEDED", "EXPIRED_SIGNATURE")),
        instead(problem(429, "RESOURCE_EXHAUSTED", "TOKEN_ALREADY_USED")),
        instead(None),
    )
    owner = "0x" + "ab" * 32
    store = kit.store(
        peer,
        jwt_secret=SECRET,
        jwt_algorithm="HS384",
        jwt_lifetime_s=90,
        send_object_to=owner,
        epochs=3,
    )
    data = bytes(1 << 20)
    await store.put([member(data)])
    tokens = [claims(request) for request in peer.requests]
    assert len(tokens) == 4
    assert len({token["jti"] for token in tokens}) == 4
    for request, token in zip(peer.requests, tokens, strict=True):
        assert ("send_object_to", owner) in request.query
        size = max(len(request.body), *map(len, kit.world.blobs.values()))
        assert {**token, "jti": ""} == {
            "jti": "",
            "iat": 1_700_000_000,
            "exp": 1_700_000_090,
            "epochs": 3,
            "max_size": size,
            "send_object_to": owner,
        }


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (problem(504, "DEADLINE_EXCEEDED", "EXPIRED_SIGNATURE"), "compare the clocks"),
        (problem(401, "UNAUTHENTICATED", "INVALID_SIGNATURE"), "check that the JWT secret"),
        (problem(400, "FAILED_PRECONDITION", "INVALID_EXPIRATION"), "check that the JWT secret"),
        (Reply(400, b"Header of type authorization was missing"), "whether it requires tokens"),
    ],
    ids=["expired", "signature", "expiration", "missing"],
)
async def test_a_refused_token_is_reported_with_the_settings_to_check(
    kit: PeerKit, reply: Reply, advice: str
) -> None:
    peer = await kit.peer()

    def echo(request: WalrusRequest, _: object) -> Reply:
        message = f"you sent {request.headers['authorization']} from http://u:p4ss@host/"
        body = json.loads(reply.body) if reply.body.startswith(b"{") else None
        if body is None:
            return Reply(reply.status, reply.body + message.encode())
        body["error"]["message"] = message
        return as_json(body, reply.status)

    peer.always = echo
    store = kit.store(peer, jwt_secret=SECRET)
    refusal = await refused(store.put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert advice in refusal.message
    assert "p4ss" not in refusal.message
    for request in peer.requests:
        for part in request.headers["authorization"].split(" ")[1].split("."):
            assert part not in refusal.message
    assert SECRET.decode() not in refusal.message


async def test_credentials_of_a_url_are_sent_and_never_shown(
    kit: PeerKit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    peer = await kit.peer()
    peer.always = instead(Reply(401, b"who are you"))
    url = peer.url.replace("http://", "http://user:p%40ss@")
    store = kit.store(url)
    refusal = await refused(store.put(many(1)), Reason.BLOB_UNAVAILABLE)
    basic = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert [request.headers["authorization"] for request in peer.requests] == [basic]
    for text in (refusal.message, caplog.text, repr(WalrusSettings((url,), (url,)))):
        assert "p%40ss" not in text
        assert "p@ss" not in text
        assert basic not in text
