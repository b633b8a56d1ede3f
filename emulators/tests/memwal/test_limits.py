"""The emulated relayer refuses calls above its limits, and malformed calls."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey

from emulators.tests.memwal.peer import Peer, free, running
from tuskpoint_emulators.memwal.access.accounts import Account, Credentials
from tuskpoint_emulators.memwal.access.limits import RateLimits
from tuskpoint_emulators.memwal.settings import RelayerSettings

MIB = 1024 * 1024


def second_key(memwal: Peer) -> SigningKey:
    """Add a second key to the account, and return the key."""
    credentials, other = memwal.emulator.credentials, Credentials.make()
    delegates = credentials.account.delegates | other.account.delegates
    memwal.emulator.accounts[credentials.account_id] = Account(credentials.account.owner, delegates)
    return SigningKey(bytes.fromhex(other.private_key))


async def recall(memwal: Peer, **signing: Any) -> httpx.Response:
    return await memwal.post("/api/recall", {"query": "anything"}, **signing)


def refused_by(response: httpx.Response) -> tuple[str, int, int]:
    """Return the layer, its limit and the pause of a 429, after checking its shape."""
    assert response.status_code == 429
    body = response.json()
    assert set(body) == {"error", "layer", "limit", "retry_after_seconds"}
    assert response.headers["retry-after"] == str(body["retry_after_seconds"])
    return body["layer"], body["limit"], body["retry_after_seconds"]


async def test_key_has_thirty_points_in_any_minute() -> None:
    async with running() as memwal:
        for _ in range(6):
            await memwal.accept("text")
            memwal.emulator.clock.advance(5)
        refused = await memwal.post("/api/remember", {"text": "text"})
        assert refused_by(refused) == ("delegate_key", 30, 60)
        assert (await recall(memwal)).status_code == 429
        memwal.emulator.clock.advance(30)
        assert (await memwal.post("/api/remember", {"text": "text"})).status_code == 202
        assert (await memwal.post("/api/remember", {"text": "text"})).status_code == 429
        assert memwal.emulator.statistics.points == {"remember": 35}


async def test_account_has_sixty_points_in_any_minute_and_keeps_what_a_key_took() -> None:
    async with running() as memwal:
        second, third = second_key(memwal), Credentials.make()
        credentials = memwal.emulator.credentials
        delegates = (
            memwal.emulator.accounts[credentials.account_id].delegates | third.account.delegates
        )
        memwal.emulator.accounts[credentials.account_id] = Account(
            credentials.account.owner, delegates
        )
        body = {"items": [{"text": "text"}]}
        for key in (memwal.key, memwal.key, memwal.key, second, second, second):
            assert (await memwal.post("/api/remember/bulk", body, key=key)).status_code == 202
        last = SigningKey(bytes.fromhex(third.private_key))
        for _ in range(30):
            assert refused_by(await recall(memwal, key=last)) == ("account_burst", 60, 60)
        # The key's own window has counted the calls that it admitted.
        assert refused_by(await recall(memwal, key=last)) == ("delegate_key", 30, 60)


async def test_account_has_five_hundred_points_in_any_hour() -> None:
    async with running() as memwal:
        body = {"items": [{"text": "text"}]}
        for _ in range(50):
            assert (await memwal.post("/api/remember/bulk", body)).status_code == 202
            memwal.emulator.clock.advance(60)
        assert refused_by(await recall(memwal)) == ("account_sustained", 500, 300)
        memwal.emulator.clock.advance(600)
        assert (await recall(memwal)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "points"),
    [
        ("/api/remember", {"text": "a"}, 5),
        ("/api/remember/bulk", {"items": [{"text": "a"}]}, 10),
        ("/api/remember/bulk/status", {"job_ids": ["a"]}, 1),
        ("/api/recall", {"query": "a"}, 1),
        ("/api/remember/manual", {"encrypted_data": "", "vector": [0.5] * 1536}, 3),
        ("/api/recall/manual", {"vector": [0.5] * 1536}, 1),
        ("/api/analyze", {"text": "a"}, 5),
        ("/api/embed", {"text": "a"}, 1),
        ("/api/ask", {"question": "a"}, 2),
        ("/api/restore", {}, 3),
        ("/api/stats", {}, 1),
        ("/api/forget", {}, 1),
    ],
)
async def test_every_call_costs_its_points(path: str, body: Any, points: int) -> None:
    async with running() as memwal:
        assert (await memwal.post(path, body)).status_code in (200, 202)
        await memwal.get("/api/remember/unknown")
        await memwal.get(f"/v1/owners/{memwal.emulator.owner}/namespaces")
        assert memwal.emulator.statistics.points.total() == points + 2


async def test_refused_requests_cost_points_too() -> None:
    async with running() as memwal:
        for body in (b"no JSON", {"text": " "}, {}, {"text": 1}, {"text": "a", "namespace": ""}):
            assert (await memwal.post("/api/remember", body)).status_code in (400, 422)
        assert (await memwal.post("/api/remember", {"text": "a"})).status_code == 202
        assert (await memwal.post("/api/remember", {"text": "a"})).status_code == 429


async def test_limits_are_chosen_and_switched_while_it_runs() -> None:
    settings = RelayerSettings(limits=RateLimits(1, 2, 3))
    async with running(settings) as memwal:
        assert (await recall(memwal)).status_code == 200
        assert refused_by(await recall(memwal))[:2] == ("delegate_key", 1)
        assert not (await memwal.http.get("/config")).json()["rateLimitDisabled"]
        shown = await memwal.tell("PUT", "limits", enabled=False)
        assert shown == {
            "enabled": False,
            "delegate_key": 1,
            "account_burst": 2,
            "account_sustained": 3,
        }
        assert (await recall(memwal)).status_code == 200
        assert (await memwal.http.get("/config")).json()["rateLimitDisabled"]
        await memwal.tell("PUT", "limits", enabled=True, delegate_key=60)
        assert memwal.emulator.limiter.limits == RateLimits(60, 2, 3)
        await memwal.tell("POST", "reset")
        assert memwal.emulator.limiter.limits == RateLimits(1, 2, 3)


def is_error(response: httpx.Response, code: int) -> bool:
    """Return whether MemWal itself refused."""
    return (
        response.status_code == code
        and response.headers["content-type"] == "application/json"
        and set(response.json()) == {"error"}
    )


def is_plain(response: httpx.Response, code: int) -> bool:
    """Return whether the web framework refused."""
    return response.status_code == code and response.headers["content-type"].startswith(
        "text/plain"
    )


async def test_texts_may_have_a_mebibyte() -> None:
    async with running(free()) as memwal:
        # Bytes are counted, not characters.
        longest = "\u00e9" * 300_000 + "x" * (MIB - 600_000)
        body = '{"text":"%s"}'
        assert (await memwal.post("/api/remember", (body % longest).encode())).status_code == 202
        response = await memwal.post("/api/remember", (body % (longest + "x")).encode())
        assert is_error(response, 400)
        items = {"items": [{"text": "a"}, {"text": "x" * (MIB + 1)}]}
        assert is_error(await memwal.post("/api/remember/bulk", items), 400)
        assert len(memwal.emulator.ledger.texts()) == 1


@pytest.mark.parametrize("path", ["/api/analyze", "/api/embed"])
async def test_short_texts_may_have_64_kibibytes(path: str) -> None:
    async with running(free()) as memwal:
        assert (await memwal.post(path, {"text": "x" * 65_536})).status_code in (200, 202)
        assert is_error(await memwal.post(path, {"text": "x" * 65_537}), 400)


@pytest.mark.parametrize(
    "change",
    [
        {"text": ""},
        {"text": " \n\t"},
        {"namespace": ""},
        {"namespace": "n" * 256},
        {"namespace": "é" * 128},
        {"idempotency_key": "k" * 256},
    ],
)
async def test_field_that_does_not_fit_is_400(change: dict[str, Any]) -> None:
    async with running(free()) as memwal:
        good = {"text": "a", "namespace": "n" * 255, "idempotency_key": "k" * 255}
        assert (await memwal.post("/api/remember", good)).status_code == 202
        assert is_error(await memwal.post("/api/remember", {**good, **change}), 400)


async def test_namespace_is_any_text_and_matched_exactly() -> None:
    async with running(free()) as memwal:
        for namespace in ("a", "A", "a/", "a/b", "ä☃", " a"):
            await memwal.accept(f"text of {namespace}", namespace=namespace)
            assert await memwal.recalled("text", namespace=namespace) == [f"text of {namespace}"]


@pytest.mark.parametrize(
    ("path", "name"), [("/api/remember/bulk", "items"), ("/api/remember/bulk/status", "job_ids")]
)
async def test_batches_hold_one_to_twenty(path: str, name: str) -> None:
    async with running(free()) as memwal:
        member: Any = {"text": "a"} if name == "items" else "a"
        assert (await memwal.post(path, {name: [member] * 20})).status_code in (200, 202)
        for count in (0, 21):
            assert is_error(await memwal.post(path, {name: [member] * count}), 400)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/remember", {"namespace": "a"}),
        ("/api/remember", {"text": None}),
        ("/api/remember", {"text": "a", "idempotency_key": 1}),
        ("/api/remember", ["text"]),
        ("/api/remember/bulk", {"items": {"text": "a"}}),
        ("/api/remember/bulk", {"items": ["a"]}),
        ("/api/remember/bulk/status", {"job_ids": [1]}),
        ("/api/recall", {"query": "a", "limit": -1}),
        ("/api/recall", {"query": "a", "limit": 1.5}),
        ("/api/recall", {"query": "a", "limit": True}),
        ("/api/recall", {"query": "a", "scoring_weights": {"recency": "much"}}),
        ("/api/recall/manual", {"vector": ["a"]}),
        ("/api/recall/manual", {"vector": [10**400] * 1536}),
    ],
)
async def test_body_of_another_shape_is_422_in_plain_text(path: str, body: Any) -> None:
    async with running(free()) as memwal:
        assert is_plain(await memwal.post(path, body), 422)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"text":"\xff"}',
        b'{"text":"\\ud800"}',
        b'{"text":"a","limit":NaN}',
        b"[" * 100_000,
    ],
)
async def test_body_that_is_no_json_is_400_in_plain_text(body: bytes) -> None:
    async with running(free()) as memwal:
        assert is_plain(await memwal.post("/api/remember", body), 400)


async def test_vector_of_another_dimension_is_400() -> None:
    async with running(free()) as memwal:
        for size in (0, 384, 1537):
            body = {"vector": [0.5] * size, "encrypted_data": ""}
            assert is_error(await memwal.post("/api/recall/manual", body), 400)
            assert is_error(await memwal.post("/api/remember/manual", body), 400)
        body = {"vector": [0.5] * 1536, "encrypted_data": "no base64!"}
        assert is_error(await memwal.post("/api/remember/manual", body), 400)


async def test_owner_may_store_a_quota() -> None:
    async with running(free(quota_bytes=10)) as memwal:
        await memwal.accept("x" * 8)
        assert is_error(await memwal.post("/api/remember", {"text": "xxx"}), 402)
        batch = {"items": [{"text": "x"}, {"text": "xx"}]}
        assert is_error(await memwal.post("/api/remember/bulk", batch), 402)
        await memwal.accept("xx")


async def test_namespaces_are_the_owners_and_their_pages_are_checked() -> None:
    async with running(free()) as memwal:
        path = f"/v1/owners/{memwal.emulator.owner}/namespaces"
        assert is_error(await memwal.get("/v1/owners/0x1/namespaces"), 403)
        for query in ("limit=many", "updated_after=nonsense", "updated_after=W10="):
            assert is_error(await memwal.get(f"{path}?{query}"), 400)
        for number in range(3):
            await memwal.accept("a", namespace=str(number))
        page = (await memwal.get(f"{path}?limit=1000")).json()
        assert len(page["namespaces"]) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"job_delay_s": -1},
        {"refusal_delay_s": -1},
        {"lifetime_s": 0},
        {"max_drift_s": 901},
    ],
)
def test_settings_that_make_no_relayer_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"delays|lives|drift"):
        RelayerSettings(**settings)


def test_limits_are_whole_numbers() -> None:
    with pytest.raises(ValueError, match="account_burst"):
        RateLimits(account_burst=-1)
