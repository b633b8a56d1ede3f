"""The guard around MemWal's SDK maps errors, keeps deadlines, and keeps secrets."""

from __future__ import annotations

import asyncio
import builtins
import email.utils
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import memwal
import memwal.client
import pytest

from tuskpoint_server.search.memwal.api import (
    Job,
    JobState,
    MemWalSettings,
    RelayerError,
    RelayerTrouble,
)
from tuskpoint_server.search.memwal.relayer import (
    Relayer,
    UnusableError,
    Wire,
    failure,
    open_relayer,
    printable_line,
)
from tuskpoint_server.search.pacing import LONGEST_RETRY_AFTER_S

KEY = "5a" * 32
SETTINGS = MemWalSettings(
    private_key=KEY, account_id="0x" + "ab" * 32, server_url="http://127.0.0.1:1"
)

Answer = Callable[[Wire], Awaitable[Any]]


class ScriptedSdk:
    """Answers every call with the next line of its script; the last line repeats."""

    def __init__(self, *script: Answer) -> None:
        self.wire = Wire()
        self.calls = 0
        self._script = list(script)

    async def remember(self, text: str, namespace: str, key: str) -> Any:
        del text, namespace, key
        return await self._next()

    async def remember_bulk_async(self, items: Any) -> Any:
        del items
        return await self._next()

    async def get_remember_bulk_status(self, job_ids: Any) -> Any:
        del job_ids
        return await self._next()

    async def recall(self, params: Any) -> Any:
        del params
        return await self._next()

    async def _next(self) -> Any:
        self.calls += 1
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return await answer(self.wire)


def guarding(*script: Answer, deadline_s: float = 30.0) -> tuple[Relayer, ScriptedSdk]:
    sdk = ScriptedSdk(*script)
    settings = replace(SETTINGS, send_timeout_s=deadline_s, recall_timeout_s=deadline_s)
    return Relayer(sdk, sdk.wire, settings), sdk


def says(value: Any) -> Answer:
    async def answer(wire: Wire) -> Any:
        wire.asked = True
        return value

    return answer


def fails(error: BaseException, *, asked: bool = True) -> Answer:
    async def answer(wire: Wire) -> Any:
        wire.asked = asked
        raise error

    return answer


def hangs(*, asked: bool) -> Answer:
    async def answer(wire: Wire) -> Any:
        wire.asked = asked
        await asyncio.Event().wait()

    return answer


def refusal(status: int, body: Any = "", **more: str) -> Exception:
    text = body if isinstance(body, str) else json.dumps(body)
    error: Exception = memwal.client._HttpStatusError(status, text, **more)
    return error


async def failing(awaitable: Awaitable[Any]) -> RelayerError:
    with pytest.raises(RelayerError) as caught:
        await awaitable
    return caught.value


# --- the table -------------------------------------------------------------------------

DENIED, LIMITED, REFUSED, UNAVAILABLE = (
    RelayerTrouble.DENIED,
    RelayerTrouble.LIMITED,
    RelayerTrouble.REFUSED,
    RelayerTrouble.UNAVAILABLE,
)


@pytest.mark.parametrize(
    ("error", "trouble", "unsure", "part"),
    [
        (refusal(400, {"error": "text is too long"}), REFUSED, False, "HTTP 400: text is too long"),
        (refusal(401), DENIED, False, "MEMWAL_PRIVATE_KEY"),
        (refusal(401, auth_error="ANYTHING"), DENIED, False, "MEMWAL_ACCOUNT_ID"),
        (memwal.MemWalClockDriftError("drift"), DENIED, False, "clock"),
        (refusal(402, {"error": "quota"}), UNAVAILABLE, False, "used up"),
        (refusal(403), DENIED, False, "MEMWAL_SERVER_URL"),
        (refusal(404), UNAVAILABLE, False, "the answer did not come from a relayer"),
        (refusal(302), UNAVAILABLE, False, "HTTP 302"),
        (refusal(409), REFUSED, False, "another text"),
        (refusal(413), REFUSED, False, "too long"),
        (refusal(422, "not JSON"), REFUSED, False, "(HTTP 422)"),
        (memwal.MemWalCompatibilityError("needs SDK 9"), UNAVAILABLE, False, "needs SDK 9"),
        (refusal(429), LIMITED, False, "rate limit"),
        (refusal(500, {"traceId": "x"}), UNAVAILABLE, True, "(HTTP 500)"),
        (refusal(503), UNAVAILABLE, True, "the relayer failed"),
        (
            refusal(503, auth_error="AUTH_UPSTREAM_UNAVAILABLE"),
            UNAVAILABLE,
            False,
            "HTTP 503",
        ),
        (memwal.client.MemWalError("Sui GraphQL returned 502"), UNAVAILABLE, False, "Sui"),
        (httpx.ConnectError("refused"), UNAVAILABLE, False, "no connection to the relayer"),
        (httpx.ConnectTimeout("slow"), UNAVAILABLE, False, "no connection"),
        (httpx.ReadError("reset"), UNAVAILABLE, True, "broke: reset"),
        (httpx.RemoteProtocolError("the answer is too long"), UNAVAILABLE, True, "too long"),
        (json.JSONDecodeError("Expecting value", "<html>", 0), UNAVAILABLE, True, "JSONDecode"),
        (ValueError("server returned 1 job_ids for 2 items"), UNAVAILABLE, True, "ValueError"),
        (TypeError("'int' object"), UNAVAILABLE, True, "TypeError"),
        (KeyError("job_id"), UNAVAILABLE, True, "KeyError"),
        (RecursionError(), UNAVAILABLE, True, "RecursionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_every_error_of_the_sdk_is_of_a_kind(
    error: Exception, trouble: RelayerTrouble, unsure: bool, part: str
) -> None:
    relayer, _ = guarding(fails(error))
    for call in (
        relayer.remember("space", "text", "key"),
        relayer.remember_batch("space", ["text"]),
        relayer.recall("space", "query", 1),
    ):
        problem = await failing(call)
        assert (problem.trouble, problem.unsure) == (trouble, unsure)
        assert part in str(problem)
        assert problem.__cause__ is None
        assert problem.__suppress_context__


def test_an_error_of_a_connection_names_its_host() -> None:
    sui = httpx.Request("POST", "https://graphql.mainnet.sui.io/graphql")
    problem = failure(httpx.ConnectError("no route", request=sui), asked=False)
    assert "graphql.mainnet.sui.io" in str(problem)


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("42", "", 42.0),
        (email.utils.formatdate(999_000, usegmt=True), "", 0.0),
        ("soon", {"retry_after_seconds": 300}, 300.0),
        (None, {"retry_after_seconds": 300}, 300.0),
        (None, '{"retry_after_seconds": 1e999}', LONGEST_RETRY_AFTER_S),
        (None, '{"retry_after_seconds": 1' + 400 * "0" + "}", None),
        ("soon", "[]", None),
        ("nan", "<html>", None),
        (None, "[" * 100_000, None),
        (None, "", None),
    ],
)
async def test_a_rate_limit_gives_the_time_to_retry(
    header: Any, body: Any, seconds: float | None
) -> None:
    relayer, _ = guarding(fails(refusal(429, body, retry_after=header)))
    assert (await failing(relayer.jobs(["job"]))).retry_after_s == seconds


# --- deadlines and cancellation --------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
async def test_call_without_an_answer_ends(asked: bool) -> None:
    relayer, _ = guarding(hangs(asked=asked), deadline_s=0.01)
    for call in (relayer.remember("space", "text", "key"), relayer.recall("space", "query", 1)):
        problem = await failing(call)
        assert (problem.trouble, problem.unsure) == (UNAVAILABLE, asked)
        assert str(problem) == "no answer within 0.01 seconds"


async def test_calls_that_others_end_again_and_again_fail() -> None:
    relayer, sdk = guarding(fails(asyncio.CancelledError(), asked=False))
    problem = await failing(relayer.recall("space", "query", 1))
    assert (problem.trouble, problem.unsure, sdk.calls) == (UNAVAILABLE, False, 2)


async def test_a_sent_batch_is_not_sent_again_by_itself() -> None:
    relayer, sdk = guarding(fails(asyncio.CancelledError()))
    problem = await failing(relayer.remember_batch("space", ["text"]))
    assert (problem.trouble, problem.unsure, sdk.calls) == (UNAVAILABLE, True, 1)


# --- answers ---------------------------------------------------------------------------


def item(job_id: Any, status: str, blob_id: Any = None, error: Any = None) -> SimpleNamespace:
    return SimpleNamespace(job_id=job_id, status=status, blob_id=blob_id, error=error)


async def test_jobs_come_in_the_order_asked_for() -> None:
    answer = [
        item("d", "failed", error="no\nWAL"),
        item("a", "done", "blob"),
        item("b", "uploaded", "early"),
        item("e", "not_found"),
        item("f", "a state of the future"),
    ]
    relayer, _ = guarding(says(SimpleNamespace(results=answer)))
    assert await relayer.jobs(["a", "b", "c", "d", "e", "f"]) == [
        Job("a", JobState.DONE, "blob"),
        Job("b", JobState.RUNNING, "early"),
        Job("c", JobState.RUNNING),
        Job("d", JobState.FAILED, error="no WAL"),
        Job("e", JobState.UNKNOWN),
        Job("f", JobState.RUNNING),
    ]


@pytest.mark.parametrize("job_id", [None, "", 7, "x" * 256])
async def test_an_answer_without_a_job_leaves_memories_unsure(job_id: Any) -> None:
    relayer, _ = guarding(says(SimpleNamespace(job_id=job_id, job_ids=[job_id])))
    assert (await failing(relayer.remember("space", "text", "key"))).unsure
    assert (await failing(relayer.remember_batch("space", ["text"]))).unsure


async def test_recalled_are_nearest_first_and_no_more_than_asked_for() -> None:
    results = [
        SimpleNamespace(text=text, distance=distance)
        for text, distance in [
            ("far", 1.5),
            ("near", 0.25),
            ("nowhere", None),
            ("nor here", float("nan")),
            (7, 0.1),
            ("middle", "0.5"),
        ]
    ]
    answer = SimpleNamespace(results=results, dropped_count=2)
    relayer, _ = guarding(says(answer))
    recollection = await relayer.recall("space", "query", 2)
    assert [(m.text, m.distance) for m in recollection.memories] == [
        ("near", 0.25),
        ("middle", 0.5),
    ]
    assert recollection.dropped == 5


async def test_encoded_answers_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(_: Any, request: httpx.Request, **named: Any) -> httpx.Response:
        del named
        packed = httpx.ByteStream(gzip.compress(b"{}"))
        headers = {"content-encoding": "gzip"}
        return httpx.Response(200, headers=headers, stream=packed, request=request)

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    wire = Wire()
    with pytest.raises(httpx.RemoteProtocolError, match="content encoding"):
        await wire.send(httpx.Request("GET", "http://127.0.0.1/version"))
    await wire.aclose()


# --- secrets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\r\ntwo\x1b[2J", "one two [2J"),
        (f"bad key {KEY}!", "bad key (hidden)!"),
        ("suiprivkey1qqqq is wrong", "(hidden) is wrong"),
        ("x-seal-session: " + "eyJhZGRyZXNzIjoi" * 40, "x-seal-session: (hidden)"),
        ("http://user:pass@relayer/x", "http://relayer/x"),
        ("word " * 100, ("word " * 100)[:157] + "..."),
    ],
)
def test_foreign_error_text_is_shown_in_one_line_without_secrets(text: str, line: str) -> None:
    assert printable_line(text) == line


# --- opening ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"private_key": "5a" * 31}, "MEMWAL_PRIVATE_KEY"),
        ({"private_key": "zz" * 32}, "MEMWAL_PRIVATE_KEY"),
        ({"private_key": "suiprivkey1" + "q" * 20}, "MEMWAL_PRIVATE_KEY"),
        ({"private_key": ""}, "MEMWAL_PRIVATE_KEY"),
        ({"account_id": ""}, "MEMWAL_ACCOUNT_ID"),
        ({"account_id": "me@example.com"}, "MEMWAL_ACCOUNT_ID"),
        ({"account_id": "0x" + "ab" * 33}, "MEMWAL_ACCOUNT_ID"),
        ({"account_id": "0xab\r\nx: y"}, "MEMWAL_ACCOUNT_ID"),
        ({"server_url": "memwal.example"}, "MEMWAL_SERVER_URL"),
        ({"server_url": "ftp://relayer.example"}, "MEMWAL_SERVER_URL"),
        ({"server_url": "http://"}, "MEMWAL_SERVER_URL"),
        ({"server_url": "http://relayer.example:99999"}, "MEMWAL_SERVER_URL"),
        ({"server_url": "http://user:pass@relayer.example"}, "MEMWAL_SERVER_URL"),
        ({"server_url": "http://relayer.example/?a=b"}, "MEMWAL_SERVER_URL"),
    ],
)
def test_malformed_settings_are_named_and_not_repeated(changed: dict[str, str], name: str) -> None:
    with pytest.raises(UnusableError) as caught:
        open_relayer(replace(SETTINGS, **changed))  # type: ignore[arg-type]
    text = str(caught.value)
    assert name in text
    assert "\n" not in text
    [value] = changed.values()
    assert not value or value not in text
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_missing_sdk_is_reported_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "memwal":
            raise ImportError(name)
        return genuine(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnusableError, match=r"pip install 'tuskpoint-server\[memwal\]'"):
        open_relayer(SETTINGS)


def test_unusable_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(UnusableError, match="proxies"):
        open_relayer(SETTINGS)


@pytest.mark.parametrize("key", [KEY, "0x" + KEY])
async def test_forms_of_keys(key: str) -> None:
    relayer = open_relayer(replace(SETTINGS, private_key=key))
    assert KEY not in repr(relayer)
    assert KEY not in repr(replace(SETTINGS, private_key=key))
    await relayer.close()
