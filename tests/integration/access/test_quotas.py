"""Quotas of tenants in the token file apply over the network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from tests.integration.access.tls_kit import bearer, write_tokens
from tests.kit.messages import (
    SECOND,
    THREAD,
    ReportedError,
    channel,
    incompressible,
    refused,
    save_request,
)
from tuskpoint import AsyncClient
from tuskpoint.v1 import history_service_pb2
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.history_service_pb2_grpc import HistoryServiceStub
from tuskpoint.v1.value_pb2 import Value
from tuskpoint_server.api.middleware import quotas
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

TENANT = "default"


class StillClock:
    """A clock that moves only while a call waits for a quota."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr(quotas, "asyncio", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr(quotas, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


@pytest.fixture
def tokens(token_file: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """Tokens, and a quota of the tenant `default` that the test chooses."""
    tokens = write_tokens(token_file)
    limit(token_file, request.param)
    return tokens


def limit(token_file: Path, lines: str, tenant: str = TENANT) -> None:
    """Set the quota of a tenant."""
    granted = token_file.read_text("utf-8").partition("[[quota]]")[0]
    token_file.write_text(f'{granted}\n[[quota]]\ntenant = "{tenant}"\n{lines}\n', "utf-8")


@pytest.fixture
def config(tmp_path: Path, token_file: Path, tokens: dict[str, str], clock: StillClock) -> Config:
    return Config(
        listen="127.0.0.1:0", data_dir=tmp_path / "data", flush_interval=3600, tokens=token_file
    )


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(serve, "COUNT_SECONDS", 0.01)


@pytest.fixture
async def calls(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


def save(
    calls: grpc.aio.Channel, token: str, thread_id: str = THREAD, data: bytes = b"data"
) -> Awaitable[object]:
    """Save a checkpoint in a unary call."""
    request = save_request(
        SECOND, [channel("c", value=Value(type="bytes", data=data))], thread_id=thread_id
    )
    return CheckpointServiceStub(calls).SaveCheckpoint(request, metadata=bearer(token))


def check(error: ReportedError, quota: str, limit: int) -> None:
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert error.metadata == {"tenant": TENANT, "quota": quota, "limit": str(limit)}
    assert f"tenant {TENANT} has reached its quota {quota} of {limit}; " in error.message
    assert ("RetryInfo" in error.kinds) == (quota not in ("threads", "stored_bytes"))


@pytest.mark.parametrize("tokens", ["calls_per_second = 3"], indirect=True)
async def test_calls_are_refused_until_the_next_may_come(
    calls: grpc.aio.Channel, tokens: dict[str, str], clock: StillClock
) -> None:
    for _ in range(3):
        await save(calls, tokens["writer"])
    check(await refused(save(calls, tokens["writer"])), "calls_per_second", 3)
    await save(calls, tokens["stranger"])
    clock.now += 0.4
    await save(calls, tokens["writer"])


@pytest.mark.parametrize("tokens", ["bytes_per_second = 200000"], indirect=True)
async def test_bytes_of_requests_and_of_answers_count(
    calls: grpc.aio.Channel, tokens: dict[str, str], clock: StillClock
) -> None:
    await save(calls, tokens["writer"], data=incompressible(300_000))
    check(await refused(save(calls, tokens["writer"])), "bytes_per_second", 200_000)
    clock.now += 1
    request = history_service_pb2.ReplayThreadRequest(thread_id=THREAD)
    replayed = HistoryServiceStub(calls).ReplayThread(request, metadata=bearer(tokens["writer"]))
    assert [frame async for frame in replayed]
    check(await refused(save(calls, tokens["writer"])), "bytes_per_second", 200_000)


@pytest.mark.parametrize("tokens", ["open_streams = 1"], indirect=True)
async def test_streams_are_refused_until_another_ends(
    calls: grpc.aio.Channel, server: Server, tokens: dict[str, str]
) -> None:
    await save(calls, tokens["writer"])
    request = history_service_pb2.WatchThreadRequest(thread_id=THREAD)
    history = HistoryServiceStub(calls)
    watch = history.WatchThread(request, metadata=bearer(tokens["writer"]))
    await watch.read()
    check(
        await refused(history.WatchThread(request, metadata=bearer(tokens["reader"]))),
        "open_streams",
        1,
    )
    watch.cancel()
    for _ in range(1000):
        if not server.pipeline._authentication.running:
            break
        await asyncio.sleep(0.01)
    other = history.WatchThread(request, metadata=bearer(tokens["reader"]))
    await other.read()
    other.cancel()


@pytest.mark.parametrize("tokens", ["threads = 2"], indirect=True)
async def test_threads_are_refused_once_they_are_counted(
    calls: grpc.aio.Channel, tokens: dict[str, str]
) -> None:
    made = 0
    while made < 1000:
        try:
            await save(calls, tokens["writer"], f"thread {made}")
        except grpc.aio.AioRpcError:
            break
        made += 1
    assert made >= 2
    check(await refused(save(calls, tokens["writer"], "one more")), "threads", 2)
    await save(calls, tokens["writer"], "thread 0")


@pytest.mark.parametrize("tokens", ["stored_bytes = 100000"], indirect=True)
async def test_saves_are_refused_while_too_much_is_stored(
    calls: grpc.aio.Channel, tokens: dict[str, str], token_file: Path
) -> None:
    made = 0
    while made < 1000:
        try:
            data = incompressible(50_000, str(made))
            await save(calls, tokens["writer"], f"thread {made}", data)
        except grpc.aio.AioRpcError:
            break
        made += 1
    assert made >= 2
    check(await refused(save(calls, tokens["writer"])), "stored_bytes", 100_000)
    limit(token_file, "stored_bytes = 1000000000")
    for _ in range(1000):
        try:
            await save(calls, tokens["writer"])
            break
        except grpc.aio.AioRpcError:
            # until the server reads the file again and counts with the new quota
            await asyncio.sleep(0.01)
    else:
        raise AssertionError("the larger quota does not take effect")


@pytest.mark.parametrize("tokens", ["calls_per_second = 10"], indirect=True)
async def test_a_stream_is_read_as_fast_as_the_quota_allows(
    server: Server, tokens: dict[str, str], clock: StillClock
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token=tokens["writer"]) as client:
        for number in range(15):
            await client.save(THREAD, {"number": number})
    assert len(clock.waits) >= 4
    assert clock.waits[:4] == pytest.approx([0.1] * 4)
