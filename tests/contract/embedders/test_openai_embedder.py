"""Requests to an embeddings endpoint are right, and wrong answers are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.kit.servers.embedding_endpoint import Endpoint, answer, serving
from tuskpoint_server.core.search import pack_vector
from tuskpoint_server.search.embedders import EmbedderError, openai
from tuskpoint_server.search.embedders.openai import OpenAIEmbedder
from tuskpoint_server.search.pacing import LONGEST_RETRY_AFTER_S

KEY = "sk-tusk-123"
NO_LIST = "something other than a list of embeddings"


def of_length(text: str) -> list[float]:
    """Return a vector that distinguishes texts."""
    return [float(len(text)), 1.0, -0.5]


@pytest.fixture(scope="module", autouse=True)
def journals() -> None:
    """Open no journal in these tests."""


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serving(of_length) as running:
        yield running


@pytest.fixture
async def embedder(endpoint: Endpoint) -> AsyncIterator[OpenAIEmbedder]:
    opened = OpenAIEmbedder(endpoint.url, "small", key=KEY)
    yield opened
    await opened.close()


def says(endpoint: Endpoint, body: Any, status: int = 200, **headers: str) -> None:
    """Let the endpoint give this answer to every request."""
    content = body if isinstance(body, bytes) else web.json_response(body).body
    endpoint.respond = lambda request, request_body: web.Response(
        body=content, status=status, headers={**headers, "Content-Type": "application/json"}
    )


async def refused(embedder: OpenAIEmbedder, *texts: str) -> EmbedderError:
    """Return the error of an embedding: one line without key and address."""
    with pytest.raises(EmbedderError) as raised:
        await embedder.embed(texts or ("one",))
    assert "\n" not in str(raised.value)
    assert KEY not in str(raised.value)
    assert "127.0.0.1" not in str(raised.value)
    return raised.value


# --- requests --------------------------------------------------------------------------------


async def test_texts_are_embedded_in_their_order(
    endpoint: Endpoint, embedder: OpenAIEmbedder
) -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    embedded = await embedder.embed(texts)
    assert embedded == [pack_vector(of_length(text)) for text in texts]
    assert [body["input"] for body in endpoint.requests] == [texts]
    assert endpoint.requests[0].keys() == {"model", "input", "encoding_format"}
    assert endpoint.requests[0]["model"] == "small"
    assert endpoint.requests[0]["encoding_format"] == "float"
    assert endpoint.headers["Authorization"] == f"Bearer {KEY}"


async def test_an_empty_text_is_sent_as_a_space(
    endpoint: Endpoint, embedder: OpenAIEmbedder
) -> None:
    await embedder.embed(["", "a"])
    assert endpoint.requests[0]["input"] == [" ", "a"]


async def test_a_long_text_is_cut_between_characters(
    endpoint: Endpoint, embedder: OpenAIEmbedder
) -> None:
    await embedder.embed(["a" + "é" * 8000])
    (sent,) = endpoint.requests[0]["input"]
    assert sent == "a" + "é" * ((openai.MAX_TEXT - 1) // 2)


async def test_several_may_ask_at_once(endpoint: Endpoint, embedder: OpenAIEmbedder) -> None:
    every = await asyncio.gather(*(embedder.embed(["x" * n]) for n in range(1, 9)))
    assert every == [[pack_vector(of_length("x" * n))] for n in range(1, 9)]


async def test_without_a_key_none_is_sent(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(f"{endpoint.url}/", "small")
    await embedder.embed(["a"])
    assert "Authorization" not in endpoint.headers
    await embedder.close()


# --- dimensions ------------------------------------------------------------------------------


async def test_the_dimension_is_found_out_once(
    endpoint: Endpoint, embedder: OpenAIEmbedder
) -> None:
    assert await embedder.dimension() == 3
    assert await embedder.dimension() == 3
    assert len(endpoint.requests) == 1
    assert embedder.name == "openai:small"


async def test_chosen_dimensions_are_asked_for(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", dimensions=3)
    assert embedder.name == "openai:small:3"
    assert await embedder.dimension() == 3
    assert endpoint.requests == []
    await embedder.embed(["a"])
    assert endpoint.requests[0]["dimensions"] == 3
    await embedder.close()


async def test_other_dimensions_than_chosen_are_refused(endpoint: Endpoint) -> None:
    embedder = OpenAIEmbedder(endpoint.url, "small", dimensions=4)
    assert "3 components, not 4" in str(await refused(embedder))
    await embedder.close()


async def test_a_dimension_that_changes_is_refused(
    endpoint: Endpoint, embedder: OpenAIEmbedder
) -> None:
    await embedder.embed(["a"])
    endpoint.vectors = lambda text: [1.0, 2.0]
    assert "2 components, not 3" in str(await refused(embedder))


# --- wrong answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", NO_LIST),
        (b"<html>", NO_LIST),
        (b"[" * 100_000, NO_LIST),
        ([], NO_LIST),
        ({"data": None}, NO_LIST),
        ({"data": [[1.0]]}, NO_LIST),
        ({"data": [{"embedding": [1.0]}]}, NO_LIST),
        (
            {"data": [{"index": [0], "embedding": [1.0]}]},
            NO_LIST,
        ),
        ({"data": []}, "0 embeddings"),
        (answer([[1.0], [2.0]]), "2 embeddings"),
        ({"data": [{"index": 1, "embedding": [1.0]}]}, "1 embeddings"),
        (answer([[]]), "must have components"),
        (answer(["AACAPw=="]), "not a list of numbers"),
        (answer([[1.0, None]]), "not a list of numbers"),
        (answer([[1.0, True]]), "not a list of numbers"),
        (answer([[0.0, 0.0]]), "not 0"),
        (answer([[1e-60, 0.0]]), "not 0"),
        (answer([[1.0, 1e39]]), "not finite"),
        (answer([[1.0, 10**400]]), "32 bits"),
        (answer([[1.0, float("nan")]]), "not finite"),
        (answer([[1.0, float("inf")]]), "not finite"),
        (answer([[1.0] * 8193]), "at most 8192"),
    ],
)
async def test_an_answer_that_is_not_good_is_not_taken(
    endpoint: Endpoint, embedder: OpenAIEmbedder, body: Any, problem: str
) -> None:
    says(endpoint, body)
    error = await refused(embedder)
    assert problem in str(error)
    assert error.retry_after_s is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (answer([[1.0], [1.0, 2.0]]), "several dimensions"),
        ({"data": [{"index": 0, "embedding": [1.0]}] * 2}, "2 embeddings"),
    ],
)
async def test_embeddings_that_do_not_go_together_are_not_taken(
    endpoint: Endpoint, embedder: OpenAIEmbedder, body: Any, problem: str
) -> None:
    says(endpoint, body)
    assert problem in str(await refused(embedder, "one", "two"))


async def test_an_answer_without_end_is_not_read_to_it(
    endpoint: Endpoint, embedder: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "MAX_ANSWER", 1000)
    says(endpoint, b" " * 1001)
    assert "more than 1000 bytes" in str(await refused(embedder))


# --- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (302, "answered 302"),
        (400, "check the model"),
        (401, "refused the key"),
        (404, "no such address or model"),
        (429, "asked too often"),
        (503, "answered 503"),
    ],
)
async def test_a_status_is_reported_without_the_body(
    endpoint: Endpoint, embedder: OpenAIEmbedder, status: int, meaning: str
) -> None:
    says(endpoint, {"error": f"your key {KEY}\nand your texts"}, status, Location="/elsewhere")
    error = await refused(embedder)
    assert meaning in str(error)
    assert "your texts" not in str(error)
    assert str(error).startswith(f"{embedder.name} answered {status}")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("inf", LONGEST_RETRY_AFTER_S),
        ("1000000", LONGEST_RETRY_AFTER_S),
        ("Sun, 22 Nov 2020 10:00:00 GMT", 0.0),
        ("Fri, 22 Nov 2999 10:00:00 GMT", LONGEST_RETRY_AFTER_S),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_retry_after_is_honoured(
    endpoint: Endpoint, embedder: OpenAIEmbedder, header: str, seconds: float | None
) -> None:
    says(endpoint, {}, 429, **{"Retry-After": header})
    assert (await refused(embedder)).retry_after_s == seconds


async def test_an_endpoint_that_hangs_is_given_up(endpoint: Endpoint) -> None:
    released = asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    application = web.Application()
    application.router.add_post("/embeddings", never)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    embedder = OpenAIEmbedder(f"http://127.0.0.1:{runner.addresses[0][1]}", "small", timeout_s=0.05)
    assert "no answer in 0.05 s" in str(await refused(embedder))
    released.set()
    await embedder.close()
    await runner.cleanup()


async def test_an_endpoint_that_is_not_there_is_reported(unused_tcp_port: int) -> None:
    embedder = OpenAIEmbedder(f"http://127.0.0.1:{unused_tcp_port}", "small", key=KEY)
    assert "cannot be reached (ConnectError)" in str(await refused(embedder))
    await embedder.close()


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    embedder = OpenAIEmbedder(endpoint.url, "small")
    assert len(await embedder.embed(["a"])) == 1
    await embedder.close()


# --- secrets ---------------------------------------------------------------------------------


async def test_the_key_is_neither_shown_nor_logged(
    endpoint: Endpoint, embedder: OpenAIEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for library in ("httpx", "httpcore"):  # a server in this process may have raised their levels
        caplog.set_level(logging.DEBUG, library)
    logging.getLogger("httpx").info("logs are caught")
    await embedder.embed(["a"])
    says(endpoint, {}, 401)
    await refused(embedder)
    assert "logs are caught" in caplog.text
    assert KEY not in caplog.text
    assert KEY not in repr(embedder)


@pytest.mark.parametrize(
    ("url", "key", "problem"),
    [
        ("api.openai.com/v1", "", "must begin with"),
        ("ftp://api.openai.com", "", "must begin with"),
        ("http://", "", "must begin with"),
        ("http://host:no/v1", "", "no host or port"),
        ("http://[::1", "", "no host or port"),
        (f"http://user:{KEY}@host/v1", "", "must not hold credentials"),
        (f"http://host/v1?api-key={KEY}", "", "must not hold credentials"),
        ("http://host/v1", f"{KEY}\r\nX: y", "printable ASCII"),
        ("http://host/v1", f"{KEY}é", "printable ASCII"),
    ],
)
def test_settings_that_cannot_work_are_refused(url: str, key: str, problem: str) -> None:
    with pytest.raises(EmbedderError, match=problem) as raised:
        OpenAIEmbedder(url, "small", key=key)
    assert KEY not in str(raised.value)
