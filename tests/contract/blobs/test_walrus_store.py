"""The Walrus store against a publisher and aggregator that fail as they are told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import jwt
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)

from tests.kit.walrus_peer import (
    Asked,
    Fault,
    Peer,
    Reply,
    World,
    after,
    as_json,
    blob_id_of,
    changed,
    instead,
    problem,
    read_form,
    write_quilt,
)
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.blobs.walrus.quilt import parse_quilt
from tuskpoint_server.blobs.walrus.settings import WalrusSettings
from tuskpoint_server.blobs.walrus.store import MAX_MEMBERS, WalrusStore
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import BlobLocation

NOWHERE = "http://127.0.0.1:1"
HTML = {"Content-Type": "text/html"}
NOT_FOUND = problem(404, "NOT_FOUND", "BLOB_NOT_FOUND")
INTERNAL = problem(500, "INTERNAL", "INTERNAL_ERROR")
UNCONFIRMED = problem(504, "DEADLINE_EXCEEDED", "INSUFFICIENT_CONFIRMATIONS")
SECRET = b"a secret that is as long as the hash of the algorithm"


class Time:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Kit:
    """Peers and stores that end with the test."""

    def __init__(self) -> None:
        self.time = Time()
        self.world = World()
        self.peers: list[Peer] = []
        self.reader = InMemoryMetricReader()
        self._provider = MeterProvider([self.reader])
        self._stores: list[WalrusStore] = []

    async def peer(self, *script: Fault) -> Peer:
        peer = await Peer(self.world).start()
        peer.script.extend(script)
        self.peers.append(peer)
        return peer

    def store(self, *peers: Peer | str, **settings: object) -> WalrusStore:
        urls = tuple(peer if isinstance(peer, str) else peer.url for peer in peers)
        chosen = WalrusSettings(**{"publishers": urls, "aggregators": urls, **settings})  # type: ignore[arg-type]
        store = WalrusStore(
            chosen,
            clock=self.time.clock,
            now=lambda: 1_700_000_000.5,
            sleep=self.time.sleep,
            random=lambda: 1.0,
            provider=self._provider,
        )
        self._stores.append(store)
        return store

    async def end(self) -> None:
        for store in self._stores:
            await store.close()
        for peer in self.peers:
            await peer.stop()
        self._provider.shutdown()


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    kit = Kit()
    yield kit
    await kit.end()


def member(data: bytes, kind: str = "") -> Member:
    return Member(hashlib.sha256(data).digest(), data, kind)


def many(count: int) -> list[Member]:
    return [member(b"member %d" % number) for number in range(count)]


async def refused(call: object, reason: Reason) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await call  # type: ignore[misc]
    assert caught.value.reason is reason
    return caught.value


# --- putting ---------------------------------------------------------------------------


async def test_pack_is_one_put_of_a_quilt_named_by_hashes(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    one, two = member(b"one", "catalog"), member(b"\r\n--two\0")
    receipt = await store.put([one, two, one])
    [asked] = peer.asked
    assert (asked.method, asked.path) == ("PUT", "/v1/quilts")
    assert sorted(asked.query) == [("epochs", "5"), ("permanent", "true")]
    assert "authorization" not in asked.headers
    form = read_form(asked)
    tags = [{"identifier": one.sha256.hex(), "tags": {"tuskpoint-kind": "catalog"}}]
    assert json.loads(form.pop("_metadata")) == tags
    assert form == {one.sha256.hex(): b"one", two.sha256.hex(): b"\r\n--two\0"}
    [blob] = receipt.blobs
    assert receipt.locations == tuple(
        replace(store.predict(each.sha256, len(each.data)), blob_id=blob.blob_id)
        for each in (one, two, one)
    )
    assert (blob.size_bytes, blob.cost, blob.epoch, blob.end_epoch) == (11, 1000, 7, 12)
    assert blob.billed_bytes == 66_034_000
    assert blob.object_id == f"0x{1:064x}"
    assert [await store.get(location) for location in receipt.locations] == [
        b"one",
        b"\r\n--two\0",
        b"one",
    ]


async def test_same_pack_again_is_free(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    first = await store.put(many(3))
    second = await store.put(list(reversed(many(3))))
    assert second.locations == tuple(reversed(first.locations))
    [blob] = second.blobs
    assert (blob.billed_bytes, blob.cost, blob.epoch, blob.end_epoch) == (0, 0, None, 12)
    assert blob.blob_id == first.blobs[0].blob_id


async def test_apart_is_one_blob_for_each(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"one"), member(b""), member(b"one")]
    receipt = await store.put(members, apart=True)
    assert peer.count("PUT", "v1", "blobs") == len(receipt.blobs) == 2
    assert [location.identifier for location in receipt.locations] == ["", "", ""]
    assert receipt.locations[0] == receipt.locations[2]
    assert [await store.get(location) for location in receipt.locations] == [b"one", b"", b"one"]


async def test_put_of_nothing_asks_nobody(kit: Kit) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([])
    assert (receipt.locations, receipt.blobs, peer.asked) == ((), (), [])


async def test_puts_stay_within_their_number(kit: Kit) -> None:
    peer = await kit.peer()
    peer.hold = asyncio.Event()
    store = kit.store(peer, puts_at_once=3)
    put = asyncio.create_task(store.put(many(9), apart=True))
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
async def test_over_the_limits_is_a_defect_of_the_caller(kit: Kit, members: list[Member]) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    with pytest.raises(ValueError, match="over the limits"):
        await store.put(members)
    assert peer.asked == []


async def test_any_number_of_blobs_is_stored_apart(kit: Kit) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put(many(MAX_MEMBERS + 1), apart=True)
    assert len({location.blob_id for location in receipt.locations}) == MAX_MEMBERS + 1


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
async def test_same_bytes_are_sent_again(kit: Kit, fault: Fault) -> None:
    peer = await kit.peer(fault)
    store = kit.store(peer)
    receipt = await store.put(many(3))
    first, second = peer.asked
    assert read_form(first) == read_form(second)
    assert first.query == second.query
    assert len(kit.time.pauses) == 1
    assert kit.world.objects == 1
    assert await store.get(receipt.locations[1]) == b"member 1"


@pytest.mark.parametrize("fault", FIRST_FAULTS.values(), ids=FIRST_FAULTS)
async def test_another_publisher_is_asked_at_once(kit: Kit, fault: Fault) -> None:
    first, second = await kit.peer(fault), await kit.peer()
    receipt = await kit.store(first, second).put(many(3))
    assert (len(first.asked), len(second.asked)) == (1, 1)
    assert kit.time.pauses == []
    assert receipt.blobs[0].blob_id in kit.world.blobs


async def test_unreachable_publisher_is_put_aside(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(NOWHERE, peer)
    for number in range(3):
        await store.put([member(b"%d" % number)])
    assert kit.time.pauses == []
    points = metric(kit, "tuskpoint.walrus.retries")
    assert points == {("put_quilt", "unreached"): 1}


async def test_put_gives_up_and_says_what_to_do(kit: Kit) -> None:
    peer = await kit.peer()
    peer.always = instead(INTERNAL)
    refusal = await refused(kit.store(peer).put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert refusal.metadata["backend"] == "walrus"
    assert "wallet holds enough WAL" in refusal.message
    assert peer.url in refusal.message
    assert len(peer.asked) == 3
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
    "malformed": problem(400, "INVALID_ARGUMENT", "MALFORMED_REQUEST"),
    "query": Reply(400, b"Failed to deserialize query string"),
    "body limit": Reply(413, b"length limit exceeded"),
    "forbidden": Reply(403, b"no"),
    "legal": problem(451, "UNAVAILABLE_FOR_LEGAL_REASONS", "FORBIDDEN_BLOB"),
    "signature": problem(401, "UNAUTHENTICATED", "INVALID_SIGNATURE"),
    "no such route": Reply(404),
    "redirect": Reply(307, b"", {"Location": "http://127.0.0.1:1/"}),
}


# Whatever is about the publisher and not about what was sent: others may take the same.
ABOUT_THE_PUBLISHER = ("query", "signature", "no such route", "redirect")


@pytest.mark.parametrize("name", FINAL)
async def test_final_answers_are_not_asked_for_twice(kit: Kit, name: str) -> None:
    peer = await kit.peer()
    peer.always = instead(FINAL[name])
    unavailable = name in ABOUT_THE_PUBLISHER
    reason = Reason.BLOB_UNAVAILABLE if unavailable else Reason.BLOB_REJECTED
    refusal = await refused(kit.store(peer).put(many(1)), reason)
    assert len(peer.asked) == 1
    assert kit.time.pauses == []
    assert "\n" not in refusal.message


@pytest.mark.parametrize("name", ["body limit", "signature", "no such route", "query"])
async def test_one_publisher_s_refusal_is_not_another_s(kit: Kit, name: str) -> None:
    first, second = await kit.peer(), await kit.peer()
    first.always = instead(FINAL[name])
    await kit.store(first, second).put(many(1))
    assert (len(first.asked), len(second.asked)) == (1, 1)


@pytest.mark.parametrize("name", ["blocked", "too large", "invalid", "legal"])
async def test_refused_content_goes_nowhere_else(kit: Kit, name: str) -> None:
    first, second = await kit.peer(), await kit.peer()
    first.always = instead(FINAL[name])
    await refused(kit.store(first, second).put(many(1)), Reason.BLOB_REJECTED)
    assert second.asked == []


async def test_slow_publisher_times_out(kit: Kit) -> None:
    peer = await kit.peer()
    peer.hold = asyncio.Event()
    other = await kit.peer()
    receipt = await kit.store(peer, other, put_timeout_s=0.3).put(many(1))
    assert receipt.blobs[0].blob_id in kit.world.blobs
    assert metric(kit, "tuskpoint.walrus.retries")["put_quilt", "timeout"] >= 1


async def test_store_without_publishers_only_reads(kit: Kit) -> None:
    peer = await kit.peer()
    [location] = (await kit.store(peer).put([member(b"one")])).locations
    reader = kit.store(peer, publishers=())
    assert await reader.get(location) == b"one"
    refusal = await refused(reader.put(many(1)), Reason.BLOB_UNAVAILABLE)
    assert "no publisher is configured" in refusal.message


# --- tokens ----------------------------------------------------------------------------


def claims(asked: Asked) -> dict[str, object]:
    scheme, _, token = asked.headers["authorization"].partition(" ")
    assert scheme == "Bearer"
    return jwt.decode(token, SECRET, algorithms=["HS384"], options={"verify_exp": False})


async def test_every_attempt_has_a_token_of_its_own(kit: Kit) -> None:
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
    tokens = [claims(asked) for asked in peer.asked]
    assert len(tokens) == 4
    assert len({token["jti"] for token in tokens}) == 4
    for asked, token in zip(peer.asked, tokens, strict=True):
        assert ("send_object_to", owner) in asked.query
        size = max(len(asked.body), len(kit.world.blobs[blob_of(kit)]))
        assert {**token, "jti": ""} == {
            "jti": "",
            "iat": 1_700_000_000,
            "exp": 1_700_000_090,
            "epochs": 3,
            "max_size": size,
            "send_object_to": owner,
        }


def blob_of(kit: Kit) -> str:
    [blob_id] = kit.world.blobs
    return blob_id


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (problem(504, "DEADLINE_EXCEEDED", "EXPIRED_SIGNATURE"), "compare the clocks"),
        (problem(401, "UNAUTHENTICATED", "INVALID_SIGNATURE"), "check that the JWT secret"),
        (problem(400, "FAILED_PRECONDITION", "INVALID_EXPIRATION"), "check that the JWT secret"),
        (Reply(400, b"Header of type authorization was missing"), "whether it wants tokens"),
    ],
    ids=["expired", "signature", "expiration", "missing"],
)
async def test_refused_token_says_what_to_check(kit: Kit, reply: Reply, advice: str) -> None:
    peer = await kit.peer()

    def echo(asked: Asked, _: object) -> Reply:
        message = f"you sent {asked.headers['authorization']} from http://u:p4ss@host/"
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
    for asked in peer.asked:
        for part in asked.headers["authorization"].split(" ")[1].split("."):
            assert part not in refusal.message
    assert SECRET.decode() not in refusal.message


async def test_credentials_of_a_url_are_sent_and_never_shown(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    peer = await kit.peer()
    peer.always = instead(Reply(401, b"who are you"))
    url = peer.url.replace("http://", "http://user:p%40ss@")
    store = kit.store(url)
    refusal = await refused(store.put(many(1)), Reason.BLOB_UNAVAILABLE)
    basic = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert [asked.headers["authorization"] for asked in peer.asked] == [basic]
    for text in (refusal.message, caplog.text, repr(WalrusSettings((url,), (url,)))):
        assert "p%40ss" not in text
        assert "p@ss" not in text
        assert basic not in text


# --- reading one -----------------------------------------------------------------------


async def test_one_member_is_one_patch_not_the_quilt(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    receipt = await store.put(many(20))
    peer.asked.clear()
    location = receipt.locations[7]
    assert await store.get(location) == b"member 7"
    [asked] = peer.asked
    assert asked.path == f"/v1/blobs/by-quilt-id/{location.blob_id}/{location.identifier}"


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


@pytest.mark.parametrize("apart", [False, True], ids=["quilt", "apart"])
@pytest.mark.parametrize("fault", READ_FAULTS.values(), ids=READ_FAULTS)
async def test_reads_are_tried_again(kit: Kit, fault: Fault, apart: bool) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")], apart=apart)).locations
    peer.asked.clear()
    peer.script.append(fault)
    assert await store.get(location) == b"content"
    assert len(peer.asked) == 2
    assert len(kit.time.pauses) == 1


@pytest.mark.parametrize("fault", READ_FAULTS.values(), ids=READ_FAULTS)
async def test_another_aggregator_is_asked_at_once(kit: Kit, fault: Fault) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second)
    [location] = (await store.put([member(b"content")])).locations
    first.script.append(fault)
    assert await store.get(location) == b"content"
    assert (len(first.asked), len(second.asked)) == (2, 1)
    assert kit.time.pauses == []


async def test_blob_just_stored_may_take_half_a_minute(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [quilted] = (await store.put([member(b"one")])).locations
    [alone] = (await store.put([member(b"two")], apart=True)).locations
    for location, data in ((quilted, b"one"), (alone, b"two")):
        peer.asked.clear()
        kit.time.pauses.clear()
        peer.script.extend([instead(NOT_FOUND)] * 6)
        assert await store.get(location) == data
        assert kit.time.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
        assert len({(asked.path, tuple(asked.query)) for asked in peer.asked}) == 7
        assert {asked.headers["cache-control"] for asked in peer.asked} == {"no-store"}


async def test_blob_just_stored_and_never_seen(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"one")])).locations
    peer.always = instead(NOT_FOUND)
    await refused(store.get(location), Reason.BLOB_NOT_FOUND)
    assert sum(kit.time.pauses) == 31.5


async def test_missing_blob_is_missing_at_once(kit: Kit) -> None:
    peer = await kit.peer()
    writer, reader = kit.store(peer), kit.store(peer)
    [location] = (await writer.put([member(b"one")])).locations
    kit.world.blobs.clear()
    peer.asked.clear()
    refusal = await refused(reader.get(location), Reason.BLOB_NOT_FOUND)
    assert refusal.metadata["blob_id"] == location.blob_id
    assert (len(peer.asked), kit.time.pauses) == (1, [])


async def test_blob_is_missing_once_every_aggregator_says_so(kit: Kit) -> None:
    first, second = await kit.peer(), await kit.peer()
    [location] = (await kit.store(first).put([member(b"one")])).locations
    reader = kit.store(first, second)
    first.always = instead(NOT_FOUND)
    assert await reader.get(location) == b"one"
    second.always = instead(NOT_FOUND)
    await refused(reader.get(location), Reason.BLOB_NOT_FOUND)
    assert kit.time.pauses == []


async def test_not_found_by_something_else_is_no_verdict(kit: Kit) -> None:
    """A proxy, or a daemon without the route, knows nothing about blobs."""
    peer = await kit.peer()
    [location] = (await kit.store(peer).put([member(b"one")])).locations
    reader = kit.store(peer)
    for reply in (Reply(404), Reply(404, b"<html>not here</html>", HTML)):
        peer.always = instead(reply)
        refusal = await refused(reader.get(location), Reason.BLOB_UNAVAILABLE)
        assert "check that the URL" in refusal.message


async def test_wrong_bytes_are_refused_with_both_hashes(kit: Kit) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second)
    [location] = (await store.put([member(b"content")])).locations
    for peer in (first, second):
        peer.asked.clear()
        peer.always = instead(Reply(200, b"Content"))
    refusal = await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)
    assert refusal.metadata == {
        "blob_id": location.blob_id,
        "expected": hashlib.sha256(b"content").hexdigest(),
        "actual": hashlib.sha256(b"Content").hexdigest(),
    }
    for peer in (first, second):
        assert [asked.query for asked in peer.asked] == [[], [("fresh", "1")], [("fresh", "2")]]


async def test_wrong_bytes_of_a_blob_are_asked_for_under_keys_that_are_allowed(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")], apart=True)).locations
    peer.asked.clear()
    peer.always = instead(Reply(200, b"Content"))
    await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)
    assert [asked.query for asked in peer.asked] == [
        [],
        [("skip_consistency_check", "false")],
        [("strict_consistency_check", "true")],
    ]


async def test_wrong_bytes_are_told_even_if_the_rest_is_silence(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"content")])).locations
    peer.script.append(instead(Reply(200, b"Content")))
    peer.always = instead(Reply(502))
    await refused(store.get(location), Reason.BLOB_HASH_MISMATCH)


async def test_body_without_end_is_cut(kit: Kit) -> None:
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


async def test_slow_aggregator_times_out(kit: Kit) -> None:
    first, second = await kit.peer(), await kit.peer()
    store = kit.store(first, second, get_timeout_s=0.3)
    [location] = (await store.put([member(b"content")])).locations
    first.hold = asyncio.Event()
    assert await store.get(location) == b"content"
    assert metric(kit, "tuskpoint.walrus.retries")["get_patch", "timeout"] >= 1


@pytest.mark.parametrize(
    "blob_id", ["", "a", "../" + "a" * 40, "_" * 43, "a" * 43 + "=", "A" * 44, "é" * 43]
)
async def test_what_is_no_blob_id_is_not_asked_for(kit: Kit, blob_id: str) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    location = BlobLocation(hashlib.sha256(b"").digest(), 0, blob_id)
    for call in (store.get(location), store.list_blob(blob_id), store.renew(blob_id)):
        await refused(call, Reason.BLOB_NOT_FOUND)
    assert peer.asked == []


async def test_identifier_stays_one_segment(kit: Kit) -> None:
    peer = await kit.peer()
    name = "a/../b %?#é"
    blob_id = kit.world.add_quilt({name: ({}, b"content")})
    location = BlobLocation(hashlib.sha256(b"content").digest(), 7, blob_id, name)
    store = kit.store(peer)
    assert await store.get(location) == b"content"
    for bad in ("..", ".", "a ", "a\n"):
        await refused(store.get(replace(location, identifier=bad)), Reason.BLOB_NOT_FOUND)
    assert len(peer.asked) == 1


def with_wrong_member(raw: bytes) -> bytes:
    """Return the quilt that is sound but for one member, which is not what its name says."""
    patches = parse_quilt(raw)
    first = patches[0]
    files = {patch.identifier: (dict(patch.tags), patch.data) for patch in patches}
    files[first.identifier] = (dict(first.tags), b"X" + first.data[1:])
    return write_quilt(files)


# --- reading many ----------------------------------------------------------------------


async def test_much_of_a_quilt_is_one_read(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = (await store.put(many(40))).locations
    few = (await store.put([member(b"few 1"), member(b"few 2")])).locations
    [alone] = (await store.put([member(b"alone")], apart=True)).locations
    peer.asked.clear()
    wanted = [few[1], *locations[10:30], alone, locations[10], few[0]]
    assert await store.get_many(wanted) == [
        b"few 2",
        *(b"member %d" % number for number in range(10, 30)),
        b"alone",
        b"member 10",
        b"few 1",
    ]
    assert len(peer.asked) == 4
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
async def test_what_the_quilt_does_not_prove_is_read_by_itself(kit: Kit, fault: Fault) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"member %d" % number + bytes(1000)) for number in range(10)]
    locations = (await store.put(members)).locations
    peer.script.append(fault)
    assert await store.get_many(locations) == [each.data for each in members]


async def test_quilt_that_cannot_be_read_is_not_waited_for(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = (await store.put(many(10))).locations

    def no_raw_reads(asked: Asked, answer: Callable[[Asked], Reply]) -> Reply:
        return answer(asked) if "by-quilt-id" in asked.path else Reply(502)

    peer.always = no_raw_reads
    assert await store.get_many(locations) == [each.data for each in many(10)]
    assert kit.time.pauses == []


async def test_quilt_too_large_for_memory_is_read_by_patches(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer, max_body_bytes=100_000)
    locations = (await store.put(many(10))).locations
    assert await store.get_many(locations) == [each.data for each in many(10)]
    assert peer.count("GET", "v1", "blobs", "by-quilt-id") == 10


async def test_one_wrong_member_fails_the_read_of_many(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    locations = list((await store.put(many(10))).locations)
    locations[4] = replace(locations[4], sha256=hashlib.sha256(b"other").digest())
    await refused(store.get_many(locations), Reason.BLOB_HASH_MISMATCH)


# --- listing ---------------------------------------------------------------------------


async def test_quilt_is_listed_with_kinds(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    receipt = await store.put([member(b"one", "catalog"), member(b"two")])
    listed = await store.list_blob(receipt.blobs[0].blob_id)
    assert {item.location: item.kind for item in listed} == {
        replace(receipt.locations[0], size=0): "catalog",
        replace(receipt.locations[1], size=0): "",
    }


async def test_names_that_are_no_hash_are_not_listed(kit: Kit) -> None:
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
async def test_quilt_without_a_list_is_listed_from_its_bytes(kit: Kit, fault: Fault) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([member(b"one", "catalog"), member(b"two")])
    reader = kit.store(peer)
    peer.script.append(fault)
    listed = await reader.list_blob(receipt.blobs[0].blob_id)
    assert {item.location.identifier: item.kind for item in listed} == {
        receipt.locations[0].identifier: "catalog",
        receipt.locations[1].identifier: "",
    }


async def test_blob_of_its_own_is_listed_as_itself(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    [location] = (await store.put([member(b"one")], apart=True)).locations
    [listed] = await store.list_blob(location.blob_id)
    assert (listed.location, listed.kind) == (replace(location, size=0), "")


async def test_list_of_what_is_missing(kit: Kit) -> None:
    peer = await kit.peer()
    await refused(kit.store(peer).list_blob(blob_id_of(b"x")), Reason.BLOB_NOT_FOUND)


async def test_list_survives_an_outage_of_one(kit: Kit) -> None:
    peer = await kit.peer()
    receipt = await kit.store(peer).put([member(b"one")])
    peer.script.extend([instead(Reply(502)), instead(None), instead(as_json({"no": "list"}))])
    assert len(await kit.store(peer).list_blob(receipt.blobs[0].blob_id)) == 1


# --- renewal ---------------------------------------------------------------------------


async def test_quilt_is_stored_again_as_it_was(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"one", "catalog"), member(b""), member(bytes(9999))]
    first = await store.put(members)
    kit.world.epoch += 3
    renewed = await store.renew(first.blobs[0].blob_id)
    puts = [asked for asked in peer.asked if asked.method == "PUT"]
    assert read_form(puts[0]) == read_form(puts[1])
    assert set(renewed.locations) == set(first.locations)
    [blob] = renewed.blobs
    assert (blob.blob_id, blob.end_epoch) == (first.blobs[0].blob_id, 15)


@pytest.mark.parametrize(
    "fault",
    [
        changed(lambda raw: raw[:1] + b"\xff" * 4 + raw[5:]),
        changed(with_wrong_member),
    ],
    ids=["broken index", "broken member"],
)
async def test_nothing_wrong_is_renewed(kit: Kit, fault: Fault) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    members = [member(b"member %d" % number + bytes(1000), "segment") for number in range(10)]
    first = await store.put(members)
    peer.script.append(fault)
    renewed = await store.renew(first.blobs[0].blob_id)
    assert renewed.blobs[0].blob_id == first.blobs[0].blob_id
    assert set(renewed.locations) == set(first.locations)


async def test_quilt_whose_members_are_wrong_is_not_renewed(kit: Kit) -> None:
    peer = await kit.peer()
    blob_id = kit.world.add_quilt({hashlib.sha256(b"a").hexdigest(): ({}, b"b")})
    refusal = await refused(kit.store(peer).renew(blob_id), Reason.BLOB_HASH_MISMATCH)
    assert refusal.metadata["actual"] == hashlib.sha256(b"b").hexdigest()
    other = kit.world.add_quilt({"README": ({}, b"hello")})
    await refused(kit.store(peer).renew(other), Reason.BLOB_MALFORMED)
    assert peer.count("PUT") == 0


async def test_blob_of_its_own_is_renewed(kit: Kit) -> None:
    peer = await kit.peer()
    store = kit.store(peer)
    first = await store.put([member(b"one")], apart=True)
    kit.world.epoch += 1
    renewed = await store.renew(first.blobs[0].blob_id)
    assert renewed.locations == first.locations
    assert renewed.blobs[0].end_epoch == 13
    peer.script.append(changed(lambda _: b"two"))
    refusal = await refused(store.renew(first.blobs[0].blob_id), Reason.BLOB_MALFORMED)
    assert blob_id_of(b"two") in refusal.message


async def test_renewal_of_what_is_missing(kit: Kit) -> None:
    peer = await kit.peer()
    await refused(kit.store(peer).renew(blob_id_of(b"x")), Reason.BLOB_NOT_FOUND)


# --- around it -------------------------------------------------------------------------


async def test_proxy_is_not_asked_for_this_machine(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    peer = await kit.peer()
    await kit.store(peer, peer.url.replace("127.0.0.1", "localhost")).put(many(1))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await kit.store(peer, "http://walrus.example").put(many(2))
    assert kit.time.pauses == []


async def test_proxy_is_asked_for_the_world(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = await kit.peer()
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    proxy.always = instead(FINAL["malformed"])
    await refused(kit.store("http://walrus.example").put(many(1)), Reason.BLOB_REJECTED)
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/blobs", "/v1/quilts/"])
async def test_url_may_go_as_far_as_the_route(kit: Kit, suffix: str) -> None:
    peer = await kit.peer()
    store = kit.store(peer.url + suffix)
    [location] = (await store.put([member(b"one")])).locations
    assert await store.get(location) == b"one"
    assert [asked.path.split("/")[1] for asked in peer.asked] == ["v1", "v1"]


async def test_what_is_measured(kit: Kit) -> None:
    peer = await kit.peer(instead(Reply(429, b"busy")))
    store = kit.store(peer)
    receipt = await store.put(many(2))
    await store.put(many(2))
    await store.get(receipt.locations[0])
    with pytest.raises(Refusal):
        await store.get(replace(receipt.locations[0], sha256=bytes(32)))
    assert metric(kit, "tuskpoint.walrus.retries") == {
        ("put_quilt", "busy"): 1,
        ("get_patch", "mismatch"): 2,
    }
    assert metric(kit, "tuskpoint.walrus.puts") == {
        ("put_quilt", "created"): 1,
        ("put_quilt", "found"): 1,
    }
    assert metric(kit, "tuskpoint.walrus.billed_bytes") == {("put_quilt",): 66_034_000}
    assert metric(kit, "tuskpoint.walrus.put.duration") == {
        ("put_quilt", "created"): 1,
        ("put_quilt", "found"): 1,
    }
    assert metric(kit, "tuskpoint.walrus.get.duration") == {
        ("get_patch", "read"): 1,
        ("get_patch", "failed"): 1,
    }


def metric(kit: Kit, name: str) -> dict[tuple[object, ...], float]:
    """Return a metric's counts by the values of their attributes."""
    data = kit.reader.get_metrics_data()
    found: dict[tuple[object, ...], float] = {}
    if data is None:
        return found
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for one in scope.metrics:
                if one.name == name:
                    for point in one.data.data_points:
                        assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                        found[tuple((point.attributes or {}).values())] = (
                            point.count if isinstance(point, HistogramDataPoint) else point.value
                        )
    return found
