"""Tokens that the emulated publisher accepts, and their use."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import httpx
import jwt
import pytest

from emulators.tests.walrus.peer import Peer, is_text, reason, running
from tuskpoint_emulators.walrus.faults import Fault, FaultKind, Operation
from tuskpoint_emulators.walrus.requests.auth import AuthSettings, secret_from_text
from tuskpoint_emulators.walrus.settings import EmulatorSettings

SECRET = b"a secret of the forty characters it needs"
NOW = 1_700_000_000
ADDRESS = "0x" + "12" * 32
OTHER = "0x" + "34" * 32


def guarded(**settings: Any) -> EmulatorSettings:
    auth = AuthSettings(**{"secret": SECRET, "now": lambda: NOW, **settings})
    return EmulatorSettings(auth=auth)


def token(*, key: bytes = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Return a valid token for one store, with changed claims; `None` removes a claim."""
    all_claims = {"jti": str(uuid.uuid4()), "exp": NOW + 60, **claims}
    payload = {name: value for name, value in all_claims.items() if value is not None}
    return jwt.encode(payload, key, algorithm=algorithm)


async def put(walrus: Peer, bearer: str, data: bytes = b"hello", **query: Any) -> httpx.Response:
    return await walrus.http.put(
        "/v1/blobs", content=data, params=query, headers={"Authorization": f"Bearer {bearer}"}
    )


async def put_quilt(walrus: Peer, bearer: str) -> httpx.Response:
    return await walrus.http.put(
        "/v1/quilts", files={"a": b"1"}, headers={"Authorization": f"Bearer {bearer}"}
    )


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic eDp5"}])
async def test_missing_token_is_refused_in_plain_text(headers: dict[str, str]) -> None:
    async with running(guarded()) as walrus:
        for path in ("/v1/blobs", "/v1/quilts"):
            assert is_text(await walrus.http.put(path, content=b"x", headers=headers), 400)
        assert (await walrus.get("/status")).status_code == 200


async def test_good_token_stores() -> None:
    async with running(guarded()) as walrus:
        assert (await put(walrus, token())).status_code == 200
        assert (await put_quilt(walrus, token())).status_code == 200


async def test_bad_signature_is_unauthenticated() -> None:
    async with running(guarded()) as walrus:
        response = await put(walrus, token(key=b"another secret of forty characters, or so"))
        assert reason(response, 401) == "INVALID_SIGNATURE"
        assert response.json()["error"]["status"] == "UNAUTHENTICATED"
        assert response.json()["error"]["details"][0]["domain"] == "auth.publisher.walrus.space"


async def test_expired_token_is_a_gateway_timeout_after_a_leeway() -> None:
    async with running(guarded()) as walrus:
        assert (await put(walrus, token(exp=NOW - 60))).status_code == 200
        response = await put(walrus, token(exp=NOW - 61))
        assert reason(response, 504) == "EXPIRED_SIGNATURE"
        assert response.json()["error"]["status"] == "DEADLINE_EXCEEDED"


async def test_replayed_token_is_refused_and_a_new_one_is_not() -> None:
    async with running(guarded()) as walrus:
        first = token()
        assert (await put(walrus, first)).status_code == 200
        response = await put(walrus, first)
        assert reason(response, 429) == "TOKEN_ALREADY_USED"
        assert response.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
        assert (await put(walrus, token())).status_code == 200


async def test_token_is_burnt_when_the_store_fails() -> None:
    async with running(guarded()) as walrus:
        first = token()
        walrus.emulator.faults.add(
            Operation.PUT_BLOB, Fault(kind=FaultKind.REFUSE, status=504), times=1
        )
        assert reason(await put(walrus, first), 504) == "INSUFFICIENT_CONFIRMATIONS"
        assert reason(await put(walrus, first), 429) == "TOKEN_ALREADY_USED"


async def test_token_is_not_burnt_when_a_claim_does_not_fit() -> None:
    async with running(guarded(verify_upload=True)) as walrus:
        first = token(epochs=2)
        assert reason(await put(walrus, first, epochs=3), 400) == "INVALID_EPOCHS"
        assert (await put(walrus, first, epochs=2)).status_code == 200


async def test_token_for_an_audience_is_invalid() -> None:
    async with running(guarded()) as walrus:
        response = await put(walrus, token(aud="walrus"))
        assert reason(response, 400) == "INVALID_TOKEN"
        assert response.json()["error"]["status"] == "FAILED_PRECONDITION"
        assert (await put(walrus, token(iss="x", sub="y", nbf=NOW + 9, more=1))).status_code == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"jti": None},
        {"exp": None},
        {"jti": 7},
        {"exp": NOW + 0.5},
        {"exp": str(NOW)},
        {"iat": "now"},
        {"epochs": -1},
        {"max_size": "9"},
        {"send_object_to": 7},
    ],
)
async def test_claim_that_is_missing_or_of_the_wrong_type_is_invalid(
    claims: dict[str, Any],
) -> None:
    async with running(guarded()) as walrus:
        assert reason(await put(walrus, token(**claims)), 400) == "INVALID_TOKEN"


@pytest.mark.parametrize(
    ("claims", "query", "expected"),
    [
        ({"epochs": 2}, {"epochs": 1}, "INVALID_EPOCHS"),
        ({"epochs": 2}, {"epochs": 2}, None),
        ({"max_epochs": 2}, {"epochs": 3}, "INVALID_EPOCHS"),
        ({"max_epochs": 2}, {"epochs": 2}, None),
        ({"epochs": 2, "max_epochs": 2}, {"epochs": 2}, "INCONSISTENT_TOKEN"),
        ({"size": 4}, {}, "INVALID_SIZE"),
        ({"size": 5}, {}, None),
        ({"size": 6}, {}, "INVALID_SIZE"),
        ({"max_size": 4}, {}, "INVALID_SIZE"),
        ({"max_size": 5}, {}, None),
        ({"size": 5, "max_size": 5}, {}, "INCONSISTENT_TOKEN"),
        ({"send_object_to": ADDRESS}, {}, "INVALID_SEND_OBJECT_TO"),
        ({"send_object_to": ADDRESS}, {"send_object_to": OTHER}, "INVALID_SEND_OBJECT_TO"),
        ({"send_object_to": ADDRESS}, {"send_object_to": ADDRESS}, None),
        ({}, {"send_object_to": ADDRESS}, None),
    ],
)
async def test_claims_bind_the_store_where_uploads_are_verified(
    claims: dict[str, Any], query: dict[str, Any], expected: str | None
) -> None:
    async with running(guarded(verify_upload=True)) as walrus:
        response = await put(walrus, token(**claims), **query)
        if expected is None:
            assert response.status_code == 200
        else:
            assert reason(response, 400) == expected


async def test_only_sizes_bind_the_store_where_uploads_are_not_verified() -> None:
    async with running(guarded()) as walrus:
        assert (await put(walrus, token(epochs=5, send_object_to=ADDRESS))).status_code == 200
        late = token(max_size=4)
        assert reason(await put(walrus, late), 400) == "INVALID_SIZE"
        # The body has arrived before the check, so the token is used.
        assert reason(await put(walrus, late), 429) == "TOKEN_ALREADY_USED"


async def test_size_of_a_quilt_is_that_of_the_blob_it_makes() -> None:
    async with running(guarded(verify_upload=True)) as walrus:
        assert reason(await put_quilt(walrus, token(max_size=400_000)), 400) == "INVALID_SIZE"
        assert (await put_quilt(walrus, token(max_size=445_556))).status_code == 200
        assert reason(await put_quilt(walrus, token(size=445_556)), 400) == "INVALID_SIZE"


async def test_lifetime_is_the_agreed_one_to_the_second() -> None:
    async with running(guarded(expiring_s=60)) as walrus:
        assert (await put(walrus, token(iat=NOW))).status_code == 200
        for issued in (NOW + 1, NOW - 1, None):
            assert reason(await put(walrus, token(iat=issued)), 400) == "INVALID_EXPIRATION"


async def test_open_publisher_fails_on_a_bearer_that_is_no_token() -> None:
    async with running() as walrus:
        assert reason(await put(walrus, "a-key-of-some-gateway"), 500) == "INTERNAL_ERROR"
        basic = {"Authorization": "Basic eDp5"}
        assert is_text(await walrus.http.put("/v1/blobs", content=b"x", headers=basic), 400)
        assert (await walrus.put(b"x")).status_code == 200


async def test_open_publisher_minds_the_sizes_of_a_token_and_not_its_signature() -> None:
    settings = EmulatorSettings(auth=AuthSettings(now=lambda: NOW))
    async with running(settings) as walrus:
        assert (await put(walrus, token(key=b"x" * 40))).status_code == 200
        assert reason(await put(walrus, token(max_size=1)), 400) == "INVALID_SIZE"


async def test_signature_counts_for_nothing_without_a_secret() -> None:
    async with running(guarded(secret=None, verify_upload=True)) as walrus:
        assert (await put(walrus, token(key=b"x" * 40))).status_code == 200
        assert is_text(await walrus.put(b"x"), 400)


async def test_tokens_beyond_the_memory_are_an_internal_error_until_some_expire() -> None:
    now = [NOW]
    async with running(guarded(replay_capacity=1, now=lambda: now[0])) as walrus:
        assert (await put(walrus, token(exp=NOW + 10))).status_code == 200
        assert reason(await put(walrus, token()), 500) == "INTERNAL_ERROR"
        now[0] += 11
        assert (await put(walrus, token())).status_code == 200


async def test_query_is_read_before_the_token() -> None:
    async with running(guarded()) as walrus:
        first = token()
        assert is_text(await put(walrus, first, cb="1"), 400)
        assert (await put(walrus, first)).status_code == 200


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
async def test_other_algorithms_work_where_they_are_set(algorithm: str) -> None:
    key = b"k" * 64
    async with running(guarded(secret=key, algorithm=algorithm)) as walrus:
        assert (await put(walrus, token(key=key, algorithm=algorithm))).status_code == 200
        assert reason(await put(walrus, token(key=key)), 400) == "INVALID_TOKEN"


async def test_short_secret_works() -> None:
    async with running(guarded(secret=b"short")) as walrus:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions of PyJWT warn of a short secret
            bearer = token(key=b"short")
        assert (await put(walrus, bearer)).status_code == 200


def test_secret_is_text_or_hexadecimal() -> None:
    assert secret_from_text("text") == b"text"
    assert secret_from_text("0x00ff") == b"\x00\xff"
    for raw in ("", "0x", "0xzz"):
        with pytest.raises(ValueError, match=r"secret|hexadecimal"):
            secret_from_text(raw)


def test_algorithm_with_a_key_pair_is_not_offered() -> None:
    with pytest.raises(ValueError, match="ES256"):
        AuthSettings(algorithm="ES256")
