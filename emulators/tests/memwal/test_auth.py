"""The emulated relayer admits valid signatures, and checks in MemWal's order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import nacl.signing
import pytest

from emulators.tests.memwal.peer import Peer, free, running
from tuskpoint_emulators.memwal.access.accounts import Account, Credentials
from tuskpoint_emulators.memwal.access.auth import DRIFTED
from tuskpoint_emulators.memwal.settings import RelayerSettings

PATH = "/api/stats"
BODY = b'{"namespace":"default"}'
TOO_LARGE = b'{"namespace":"' + b"x" * (2 * 1024 * 1024) + b'"}'
STRANGER = nacl.signing.SigningKey(b"\x01" * 32)

Headers = dict[str, str]
Change = Callable[[Peer, Headers], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a valid request, and the answer to it.

    `late`: after the delay that hides the cause. `drifted`: with the header that names it.
    """

    change: Change
    status: int
    late: bool = False
    drifted: bool = False
    body: bytes = BODY


def without(name: str) -> Change:
    return lambda _, headers: headers.pop(name)


def with_value(name: str, value: str) -> Change:
    return lambda _, headers: headers.update({name: value})


def edited(name: str, edit: Callable[[str], str]) -> Change:
    return lambda _, headers: headers.update({name: edit(headers[name])})


def signed_anew(**changes: object) -> Change:
    def change(memwal: Peer, headers: Headers) -> None:
        headers.update(memwal.headers("POST", PATH, BODY, **changes))  # type: ignore[arg-type]

    return change


def signed_at(offset_s: int) -> Change:
    """Sign with another time, 5 s inside the limit, because a test takes some time."""
    return lambda memwal, headers: signed_anew(timestamp=str(int(time.time()) + offset_s))(
        memwal, headers
    )


def all_of(*changes: Change) -> Change:
    def change(memwal: Peer, headers: Headers) -> None:
        for step in changes:
            step(memwal, headers)

    return change


def without_delegates(memwal: Peer, _: Headers) -> None:
    credentials = memwal.emulator.credentials
    memwal.emulator.accounts[credentials.account_id] = Account(
        credentials.account.owner, frozenset()
    )


def inactive(memwal: Peer, _: Headers) -> None:
    credentials = memwal.emulator.credentials
    memwal.emulator.accounts[credentials.account_id] = Account(
        credentials.account.owner, credentials.account.delegates, active=False
    )


def flipped(signature: str) -> str:
    return ("1" if signature[0] == "0" else "0") + signature[1:]


CASES = {
    "good": Case(lambda _, headers: None, 200),
    "upper-case hex": Case(edited("x-signature", str.upper), 200),
    "upper-case key": Case(edited("x-public-key", str.upper), 200),
    "simple nonce": Case(signed_anew(nonce="0f8fad5bd9cb469fa16570867728950e"), 200),
    "almost drifted": Case(signed_at(-295), 200),
    "almost ahead": Case(signed_at(300), 200),
    "no key": Case(without("x-public-key"), 401),
    "no signature": Case(without("x-signature"), 401),
    "no timestamp": Case(without("x-timestamp"), 401),
    "no nonce": Case(without("x-nonce"), 426),
    "no nonce nor signature": Case(all_of(without("x-nonce"), without("x-signature")), 401),
    "no nonce, no time": Case(all_of(without("x-nonce"), with_value("x-timestamp", "now")), 426),
    "nonce is not a UUID": Case(signed_anew(nonce="12345"), 401, late=True),
    "nonce is not a UUID and old": Case(signed_anew(nonce="x", timestamp="1"), 401, late=True),
    "time is not a number": Case(signed_anew(timestamp="now"), 401),
    "time has a fraction": Case(signed_anew(timestamp=f"{time.time():.1f}"), 401),
    "time is beyond 64 bits": Case(signed_anew(timestamp="9" * 19), 401),
    "too old": Case(signed_at(-301), 401, late=True, drifted=True),
    "too new": Case(signed_at(305), 401, late=True, drifted=True),
    "too old, not hex": Case(
        all_of(signed_anew(timestamp="1"), with_value("x-public-key", "z")),
        401,
        late=True,
        drifted=True,
    ),
    "key is not hex": Case(edited("x-public-key", lambda key: "g" + key[1:]), 401),
    "key has a space": Case(edited("x-public-key", lambda key: key[:32] + " " + key[33:]), 401),
    "key is short": Case(edited("x-public-key", lambda key: key[2:]), 401),
    "key has 0x": Case(edited("x-public-key", lambda key: "0x" + key), 401),
    "signature is short": Case(edited("x-signature", lambda signature: signature[2:]), 401),
    "not hex and too large": Case(with_value("x-signature", "z"), 401, body=TOO_LARGE),
    "too large and unsigned": Case(edited("x-signature", flipped), 400, body=TOO_LARGE),
    "wrong signature": Case(edited("x-signature", flipped), 401, late=True),
    "another's key": Case(
        with_value("x-public-key", bytes(STRANGER.verify_key).hex()), 401, late=True
    ),
    "key is not a point": Case(with_value("x-public-key", "ff" * 32), 401, late=True),
    "another account than signed": Case(with_value("x-account-id", "0x1"), 401, late=True),
    "no account": Case(without("x-account-id"), 401, late=True),
    "unknown account": Case(signed_anew(account_id="0x1"), 401, late=True),
    "wallet instead of account": Case(
        lambda memwal, headers: signed_anew(account_id=memwal.emulator.owner)(memwal, headers),
        401,
        late=True,
    ),
    "unknown key": Case(signed_anew(key=STRANGER), 401, late=True),
    "account without delegates": Case(without_delegates, 401, late=True),
    "inactive account": Case(inactive, 401, late=True),
}


@pytest.mark.parametrize("name", CASES)
async def test_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    async with running(RelayerSettings(refusal_delay_s=0.1)) as memwal:
        headers = memwal.headers("POST", PATH, case.body)
        case.change(memwal, headers)
        monkeypatch.setattr(asyncio, "sleep", noted)
        response = await memwal.http.post(PATH, content=case.body, headers=headers)
        assert response.status_code == case.status
        assert response.headers.get("x-auth-error") == (DRIFTED if case.drifted else None)
        assert (response.status_code != 401) or response.content == b""
        assert (0.1 in slept) == case.late
        assert memwal.emulator.statistics.points.total() == (1 if case.status == 200 else 0)


async def test_nonce_serves_once_and_is_forgotten_in_the_end() -> None:
    async with running() as memwal:
        headers = memwal.headers("POST", PATH, BODY)

        async def again() -> httpx.Response:
            return await memwal.http.post(PATH, content=BODY, headers=headers)

        assert (await again()).status_code == 200
        replayed = await again()
        assert (replayed.status_code, replayed.content) == (401, b"")
        memwal.emulator.clock.advance(899)
        assert (await again()).status_code == 401
        memwal.emulator.clock.advance(1)
        assert (await again()).status_code == 200


async def test_nonce_is_burnt_after_the_signature_and_before_the_account() -> None:
    async with running() as memwal:
        good = memwal.headers("POST", PATH, BODY)
        bad = {**good, "x-signature": flipped(good["x-signature"])}
        credentials = memwal.emulator.credentials

        async def send(headers: Headers) -> int:
            return (await memwal.http.post(PATH, content=BODY, headers=headers)).status_code

        assert await send(bad) == 401
        memwal.emulator.accounts.clear()
        assert await send(good) == 401
        memwal.emulator.accounts[credentials.account_id] = credentials.account
        assert await send(good) == 401
        assert (await memwal.post(PATH, BODY)).status_code == 200


async def test_drift_is_measured_on_the_relayers_clock() -> None:
    async with running() as memwal:
        memwal.emulator.gate.ahead_s = -400
        assert (await memwal.post(PATH, BODY)).headers["x-auth-error"] == DRIFTED
        behind = str(int(time.time()) - 400)
        assert (await memwal.post(PATH, BODY, timestamp=behind)).status_code == 200


async def test_raw_bytes_raw_path_and_query_are_signed() -> None:
    async with running(free()) as memwal:
        # Other bytes with the same JSON value.
        spaced = b'{ "namespace" : "\\u0064efault" }'
        assert (await memwal.post(PATH, spaced)).status_code == 200
        headers = memwal.headers("POST", PATH, BODY)
        sent = await memwal.http.post(PATH, content=spaced, headers=headers)
        assert sent.status_code == 401
        owner = memwal.emulator.owner
        target = f"/v1/owners/%30{owner[1:]}/namespaces?limit=5"
        for signed, status in ((target, 200), (target.replace("%30", "0"), 401)):
            headers = memwal.headers("GET", signed)
            answer = await memwal.http.get(httpx.URL(memwal.emulator.url + target), headers=headers)
            assert answer.status_code == status
        path = f"/v1/owners/{owner}/namespaces"
        headers = memwal.headers("GET", path)
        assert (await memwal.http.get(path, headers=headers)).status_code == 200
        headers = memwal.headers("GET", path)
        response = await memwal.http.get(path, params={"limit": 5}, headers=headers)
        assert response.status_code == 401


async def test_method_is_signed() -> None:
    async with running() as memwal:
        path = "/api/remember/some-job"
        headers = memwal.headers("POST", path)
        assert (await memwal.http.get(path, headers=headers)).status_code == 401


async def test_body_of_two_mebibytes_is_let_in_and_one_byte_more_is_not() -> None:
    async with running(free()) as memwal:
        body = b'{"namespace":"default"'.ljust(2 * 1024 * 1024 - 1) + b"}"
        assert (await memwal.post(PATH, body)).status_code == 200
        refused = await memwal.post(PATH, body + b" ")
        assert refused.status_code == 400
        assert set(refused.json()) == {"error"}


async def test_delegates_of_one_account_share_its_memories() -> None:
    async with running() as memwal:
        credentials = memwal.emulator.credentials
        second = Credentials.make()
        memwal.emulator.accounts[credentials.account_id] = Account(
            credentials.account.owner, credentials.account.delegates | second.account.delegates
        )
        await memwal.accept("the build is red")
        key = nacl.signing.SigningKey(bytes.fromhex(second.private_key))
        response = await memwal.post("/api/recall", {"query": "build"}, key=key)
        assert [result["text"] for result in response.json()["results"]] == ["the build is red"]


async def test_unsigned_calls_need_no_signature_and_others_are_not_found() -> None:
    async with running() as memwal:
        for path in ("/health", "/version", "/config"):
            assert (await memwal.http.get(path)).status_code == 200
        assert (await memwal.http.get("/api/nothing")).status_code == 404
        wrong = await memwal.http.get("/api/recall")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert (await memwal.http.get("/api/remember/bulk")).status_code == 405
