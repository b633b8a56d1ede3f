"""Streams of answers are available as plain lists: lines of JSON, or one array."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.integration.api.shapes import Behavior, Text, pipeline_of
from tests.integration.web.test_calls import serving
from tests.integration.web.test_plain_json import CHECKPOINTS, PLAIN, refusal, saving
from tests.integration.web.test_requests import post
from tests.integration.web.web_kit import http_client
from tuskpoint_server.api.middleware.pipeline import Call
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.api.web import plain
from tuskpoint_server.core.limits import KIB, LIMITS
from tuskpoint_server.features.call_memory import CallMemory

with_server = pytest.mark.asyncio(loop_scope="module")

HISTORY = "/tuskpoint.v1.HistoryService"
REPLAY = f"{HISTORY}/ReplayThread"
STREAM = "/tests.Shapes/UnaryStream"
ARRAY = {**PLAIN, "accept": "application/json"}
LINES = {**PLAIN, "accept": "application/x-ndjson"}


@with_server
async def test_a_list_is_lines_or_one_array(http: httpx.AsyncClient) -> None:
    for number in range(3):
        save = saving("listed", {"text": f"é\n{number}"})
        await post(http, f"{CHECKPOINTS}/SaveCheckpoint", save)
    path, thread = f"{REPLAY}?values=json", {"threadId": "listed"}
    lines = await http.post(path, json=thread, headers=LINES)
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.text.endswith("\n")
    items = [json.loads(line) for line in lines.text.removesuffix("\n").split("\n")]
    channels = [item["checkpoint"]["state"]["channels"] for item in items]
    assert [channel["value"]["json"] for (channel,) in channels] == ["é\n0", "é\n1", "é\n2"]
    for accept in (
        "application/json",
        "*/*",
        "application/*",
        "text/html, application/json;q=0.9, application/x-ndjson;q=0.5",
    ):
        array = await http.post(path, json=thread, headers={"accept": accept})
        assert array.headers["content-type"] == "application/json"
        assert array.json() == items
    better = "application/json;q=0.5, application/x-ndjson"
    preferred = await http.post(path, json=thread, headers={"accept": better})
    assert preferred.content == lines.content


@with_server
async def test_a_list_may_be_empty(http: httpx.AsyncClient) -> None:
    nobody = {"threadId": "nobody"}
    array = await http.post(f"{CHECKPOINTS}/ListCheckpoints", json=nobody, headers=ARRAY)
    assert (array.status_code, array.json()) == (200, [])
    lines = await http.post(f"{CHECKPOINTS}/ListCheckpoints", json=nobody, headers=LINES)
    assert (lines.status_code, lines.content) == (200, b"")


@with_server
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
async def test_a_refused_list_has_the_status_and_the_body_of_its_error(
    http: httpx.AsyncClient, accept: str
) -> None:
    thread = {"threadId": "none"}
    answer = await refusal(http, REPLAY, thread, accept=accept)
    assert (answer.status_code, answer.json()["reason"]) == (404, "THREAD_NOT_FOUND")
    answer = await refusal(http, REPLAY, b"[", accept=accept)
    assert (answer.status_code, answer.json()["reason"]) == (400, "INVALID_FIELD")
    answer = await refusal(http, REPLAY, thread, accept=accept, **{"connect-timeout-ms": "soon"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
    answer = await refusal(http, REPLAY, thread, accept=accept, **{"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (501, "unimplemented")


@with_server
@pytest.mark.parametrize(
    ("path", "accept", "words"),
    [
        (REPLAY, "text/html", "application/json or application/x-ndjson"),
        (REPLAY, "application/json;q=0", "accept one of them"),
        (REPLAY, "application/json;q=much", "accept one of them"),
        (REPLAY, ";,", "accept one of them"),
        (f"{HISTORY}/WatchThread", "application/json", "no end: accept application/x-ndjson"),
    ],
)
async def test_a_wrong_accept_is_refused(
    http: httpx.AsyncClient, path: str, accept: str, words: str
) -> None:
    answer = await refusal(http, path, {"threadId": "t"}, accept=accept)
    assert (answer.status_code, answer.json()["code"]) == (406, "invalid_argument")
    assert words in answer.json()["message"]


@with_server
async def test_a_stream_of_requests_has_no_plain_form(http: httpx.AsyncClient) -> None:
    answer = await refusal(http, f"{CHECKPOINTS}/Exchange", {})
    assert answer.status_code == 415


@with_server
@pytest.mark.parametrize("accept", ["application/x-ndjson", "*/*"])
async def test_a_watch_sends_each_event_as_a_line_at_once(
    both: Server, http: httpx.AsyncClient, accept: str
) -> None:
    thread = {"threadId": f"watched {accept}"}
    save = f"{CHECKPOINTS}/SaveCheckpoint"
    first = await post(http, save, saving(thread["threadId"], {"n": 1}))
    sent = http.stream("POST", f"{HISTORY}/WatchThread", json=thread, headers={"accept": accept})
    async with sent as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = answer.aiter_lines()
        event = json.loads(await anext(lines))["event"]
        assert event["checkpoint"]["ref"] == first["ref"]
        second = await post(http, save, saving(thread["threadId"], {"n": 2}))
        event = json.loads(await anext(lines))["event"]
        assert event["checkpoint"]["ref"] == second["ref"]


@asynccontextmanager
async def calling(
    behavior: object, memory: CallMemory | None = None, seconds: float = 60
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a stream of answers, and yield a client of it."""
    pipeline = pipeline_of(seconds=seconds)
    pipeline.memory = memory or pipeline.memory
    async with (
        serving(behavior, pipeline) as port,
        http_client(f"http://127.0.0.1:{port}") as http,
    ):
        yield http


async def test_an_error_after_the_first_line_is_the_last_line() -> None:
    async with calling(Behavior("abort")) as http:
        answer = await http.post(STREAM, content=b'""', headers=LINES)
        assert answer.status_code == 200
        first, last = map(json.loads, answer.text.splitlines())
        assert first == "first"
        assert last["error"].keys() == {"code", "message", "reason", "metadata"}
        assert last["error"]["reason"] == "THREAD_NOT_FOUND"
        answer = await http.post(STREAM, content=b'""', headers=ARRAY)
        assert (answer.status_code, answer.json()) == (404, last["error"])


@pytest.mark.parametrize("headers", [LINES, ARRAY], ids=["lines", "array"])
async def test_a_defect_is_hidden(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(Behavior("exception")) as http:
        answer = await http.post(STREAM, content=b'""', headers=headers)
    assert answer.status_code == (200 if headers is LINES else 500)
    assert "INTERNAL_ERROR" in answer.text
    assert "the agent's state" not in answer.text + caplog.text


@pytest.mark.parametrize("headers", [LINES, ARRAY], ids=["lines", "array"])
async def test_a_deadline_ends_a_list(headers: dict[str, str]) -> None:
    behavior = Behavior("deadline")
    async with calling(behavior) as http:
        limit = {"connect-timeout-ms": "50"}
        answer = await http.post(STREAM, content=b'""', headers={**headers, **limit})
    assert '"deadline_exceeded"' in answer.text.splitlines()[-1]
    assert answer.status_code == (200 if headers is LINES else 504)
    assert behavior.left.is_set()
    async with calling(Behavior("deadline"), seconds=0.05) as http:
        answer = await http.post(STREAM, content=b'""', headers=headers)
    assert '"DEADLINE_EXCEEDED"' in answer.text.splitlines()[-1]


@pytest.mark.parametrize("headers", [LINES, ARRAY], ids=["lines", "array"])
async def test_a_client_that_goes_away_cancels_its_list(headers: dict[str, str]) -> None:
    behavior = Behavior("cancel")
    async with calling(behavior) as http:
        request = asyncio.create_task(http.post(STREAM, content=b'""', headers=headers))
        await behavior.entered.wait()
        request.cancel()
        await behavior.left.wait()
    assert behavior.call is not None
    assert behavior.call.code == "CANCELLED"


class Counting:
    """Answers with a number of texts of 1 KiB, and counts the texts that the client read."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.written = 0
        self.is_closed = False

    async def UnaryStream(self, request: Any, call: Call) -> AsyncIterator[Any]:
        try:
            for number in range(self._count):
                self.written = number
                yield Text(value="x" * KIB)
        finally:
            self.is_closed = True


async def test_an_array_that_is_too_large_is_refused_and_its_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain, "LIMITS", replace(LIMITS, max_message=16 * KIB))
    memory, behavior = CallMemory(), Counting(1000)
    async with calling(behavior, memory) as http:
        answer = await http.post(STREAM, content=b'""', headers=ARRAY)
        assert answer.status_code == 429
        error = answer.json()
        assert (error["reason"], error["metadata"]["maximum"]) == ("LIMIT_EXCEEDED", str(16 * KIB))
        assert "accept application/x-ndjson" in error["message"]
        assert behavior.is_closed
        assert behavior.written < 20
        assert memory.held_bytes == 0
        answer = await http.post(STREAM, content=b'""', headers=LINES)
        assert len(answer.text.splitlines()) == 1000
        short = Counting(15)
    async with calling(short) as http:
        answer = await http.post(STREAM, content=b'""', headers=ARRAY)
        assert answer.json() == ["x" * KIB] * 15


async def test_an_array_counts_as_memory() -> None:
    memory, behavior = CallMemory(8 * KIB), Counting(1000)
    async with calling(behavior, memory) as http:
        answer = await http.post(STREAM, content=b'""', headers=ARRAY)
    assert (answer.status_code, answer.json()["reason"]) == (429, "MEMORY_FULL")
    assert answer.json()["retryAfter"] == "1s"
    assert behavior.is_closed
    assert memory.held_bytes == 0
