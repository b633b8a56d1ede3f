"""Strangers who guess tokens are slowed down by address, over gRPC and over HTTP alike."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import grpc
import httpx
import pytest

from tests.integration.access.tls_kit import write_tokens
from tests.integration.web.web_kit import JSON, WIRES, GrpcCaller, HttpCaller, http_client
from tests.kit.messages import ReportedError, ref, reported
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.api.middleware import guessing
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.credentials import Grant, Scope

GET = "/tuskpoint.v1.CheckpointService/GetCheckpoint"
NEIGHBOUR = "127.0.0.2"
LOGGER = "tuskpoint_server.api.middleware.guessing"


class StillClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr(guessing, "time", SimpleNamespace(monotonic=clock))
    return clock


@dataclass
class Port:
    """The gRPC and HTTP ports of a server, as callers from two addresses reach them."""

    channel: grpc.aio.Channel
    http: httpx.AsyncClient
    neighbour: httpx.AsyncClient  # HTTP from another address

    def ways(self, token: str) -> Sequence[GrpcCaller | HttpCaller]:
        """Return a caller of each transport, with a token, from the first address."""
        return [GrpcCaller(self.channel, token), *(HttpCaller(self.http, w, token) for w in WIRES)]


@dataclass
class Attacked:
    """A server, its tokens, and its ports for the attack."""

    port: Port
    tokens: dict[str, str]
    token_file: Path


@pytest.fixture
async def attacked(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Attacked]:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    tokens = write_tokens(tmp_path / "tokens.toml")
    config = Config(
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        tokens=tmp_path / "tokens.toml",
        flush_interval=3600,
    )
    async with AsyncExitStack() as opened:
        server = await opened.enter_async_context(serve.running_server(config))
        target = f"127.0.0.1:{server.port}"
        channel = await opened.enter_async_context(grpc.aio.insecure_channel(target))
        elsewhere = httpx.AsyncHTTPTransport(local_address=NEIGHBOUR)
        port = Port(
            channel,
            await opened.enter_async_context(http_client(server.http_url)),
            await opened.enter_async_context(http_client(server.http_url, transport=elsewhere)),
        )
        yield Attacked(port, tokens, tmp_path / "tokens.toml")


async def answer(caller: GrpcCaller | HttpCaller) -> ReportedError:
    """Return the error of a call; for an accepted token, the error is that the thread does not
    exist."""
    try:
        await caller.call(GET, [pb.GetCheckpointRequest(ref=ref(""))])
    except grpc.RpcError as error:
        return reported(error)
    raise AssertionError("there is no such thread")


def is_unknown(error: ReportedError) -> bool:
    return (error.code, error.reason) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "CREDENTIAL_INVALID",
    )


def is_accepted(error: ReportedError) -> bool:
    return error.code is grpc.StatusCode.NOT_FOUND


def check_slowed(error: ReportedError) -> None:
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert error.metadata == {"quota": "unknown_tokens_per_second", "limit": "1"}
    assert "RetryInfo" in error.kinds


def guess() -> str:
    return "tusk_" + secrets.token_urlsafe(32)


async def guess_often(port: Port) -> None:
    """Try as many tokens as the server checks without a delay, over each transport in turn."""
    for number in range(guessing.FREE_TOKENS):
        ways = port.ways(guess())
        assert is_unknown(await answer(ways[number % len(ways)]))


async def test_guesses_are_checked_once_a_second_over_every_way(
    attacked: Attacked, clock: StillClock
) -> None:
    await guess_often(attacked.port)
    for caller in attacked.port.ways(guess()):
        check_slowed(await answer(caller))
    for number in range(len(WIRES) + 1):
        clock.now += guessing.CHECK_SECONDS
        assert is_unknown(await answer(attacked.port.ways(guess())[number]))
        for caller in attacked.port.ways(guess()):
            check_slowed(await answer(caller))
    clock.now += guessing.WINDOW_SECONDS
    await guess_often(attacked.port)


async def test_a_repeated_wrong_token_slows_nobody(attacked: Attacked) -> None:
    wrong = guess()
    for _ in range(guessing.FREE_TOKENS):
        for caller in attacked.port.ways(wrong):
            assert is_unknown(await answer(caller))
    assert is_unknown(await answer(GrpcCaller(attacked.port.channel, guess())))


async def test_known_callers_of_the_same_address_go_on(
    attacked: Attacked, clock: StillClock
) -> None:
    port, tokens = attacked.port, attacked.tokens
    assert is_accepted(await answer(GrpcCaller(port.channel, tokens["writer"])))
    await guess_often(port)
    for _ in range(3):
        for caller in port.ways(tokens["writer"]):
            assert is_accepted(await answer(caller))
    check_slowed(await answer(GrpcCaller(port.channel, tokens["reader"])))
    clock.now += guessing.CHECK_SECONDS
    assert is_accepted(await answer(GrpcCaller(port.channel, tokens["reader"])))
    for caller in port.ways(tokens["reader"]):
        assert is_accepted(await answer(caller))
    check_slowed(await answer(HttpCaller(port.http, JSON, guess())))


async def test_callers_of_other_addresses_are_not_slowed(attacked: Attacked) -> None:
    await guess_often(attacked.port)
    there = HttpCaller(attacked.port.neighbour, JSON, attacked.tokens["writer"])
    assert is_accepted(await answer(there))
    assert is_unknown(await answer(HttpCaller(attacked.port.neighbour, JSON, guess())))


async def test_a_wrong_token_is_accepted_as_soon_as_it_is_added(attacked: Attacked) -> None:
    """If a client starts before its token is in the file, the guesses of others do not delay it."""
    token, entry = new_token(Grant("late", "default", frozenset({Scope.READ})))
    late = GrpcCaller(attacked.port.channel, token)
    assert is_unknown(await answer(late))
    for _ in range(guessing.FREE_TOKENS - 1):
        assert is_unknown(await answer(GrpcCaller(attacked.port.channel, guess())))
    check_slowed(await answer(GrpcCaller(attacked.port.channel, guess())))
    attacked.token_file.write_text(attacked.token_file.read_text("utf-8") + "\n" + entry, "utf-8")
    while is_unknown(error := await answer(late)):
        pass
    assert is_accepted(error)


async def test_the_log_names_the_address_once_and_no_token(
    attacked: Attacked, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    for _ in range(2):
        caplog.clear()
        await guess_often(attacked.port)
        for _ in range(3):
            clock.now += guessing.CHECK_SECONDS
            for caller in attacked.port.ways(guess()):
                await answer(caller)
        [record] = [record for record in caplog.records if record.name == LOGGER]
        assert record.levelno == logging.WARNING
        assert "127.0.0.1" in record.getMessage()
        assert "tusk_" not in record.getMessage()
        clock.now += guessing.WINDOW_SECONDS
