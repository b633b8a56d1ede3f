"""Wrong clocks of clients, servers and databases lose and delete nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from langgraph.checkpoint.base import empty_checkpoint

from tests.kit.databases import journal_of
from tuskpoint import AsyncClient
from tuskpoint._messages.checkpoints import ids
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.journal import clock

DAY_S = 86400


class Shifted:
    """The module `time` of a machine with a shifted clock."""

    def __init__(self) -> None:
        self.ahead_s = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.ahead_s * 10**9

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    data_dir = tmp_path / "data"
    return Config(
        listen="127.0.0.1:0",
        data_dir=data_dir,
        journal=journal_of(data_dir),
        flush_interval=3600,
    )


@pytest.fixture
async def server(config: Config) -> AsyncIterator[Server]:
    async with serve.running_server(config) as running:
        yield running


def a_day_back() -> str:
    """Return an ID from a client whose clock is a day behind."""
    ticks = (time.time_ns() // 1000 - DAY_S * 10**6) * 10 + 0x01B21DD213814000
    return ids.mint(ticks, 7, "")


async def test_a_saver_whose_clock_is_a_day_behind_is_warned(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    target = f"127.0.0.1:{server.port}"

    def put() -> None:
        with TuskPointSaver(target) as saver:
            at = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            saver.put(at, empty_checkpoint(), {"source": "input", "step": -1}, {})  # type: ignore[arg-type]
            late = empty_checkpoint() | {"id": a_day_back()}
            saver.put(at, late, {"source": "loop", "step": 0}, {})  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING):
        await asyncio.to_thread(put)
    said = {record.name.partition(".")[0]: record.getMessage() for record in caplog.records}
    assert "(below_latest)" in said["tuskpoint"]
    assert "sorts below" in said["tuskpoint"]
    assert "saved below the latest" in said["tuskpoint_server"]


async def test_a_client_whose_clock_is_a_day_behind_continues_from_the_latest(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = f"127.0.0.1:{server.port}"
    late = Shifted()
    late.ahead_s = -DAY_S
    async with AsyncClient(target) as client, AsyncClient(target) as behind:
        first = await client.save("t", {"n": 1})
        monkeypatch.setattr(ids, "time", late)
        second = await behind.save("t", {"n": 2})
        latest = await client.load("t")
    assert second > first
    assert (latest.checkpoint_id, latest.parent_checkpoint_id) == (second, first)
    assert not [record for record in caplog.records if "below_latest" in record.getMessage()]


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> Shifted:
    """The clock of a server that checks the clock, its rules and its retention all the time."""
    made = Shifted()
    monkeypatch.setattr(clock, "time", made)
    monkeypatch.setattr(serve, "CLOCK_SECONDS", 0.02)
    monkeypatch.setattr(serve, "RETENTION_SECONDS", 0.02)
    monkeypatch.setattr(serve, "RULES_SECONDS", 0.02)
    monkeypatch.setattr(serve, "SWEEP_SECONDS", 0.02)
    return made


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.02)


async def health(port: int, service: str) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await health_pb2_grpc.HealthStub(channel).Check(request)).status)


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("ahead_s", [400 * DAY_S, -400 * DAY_S])
async def test_a_clock_that_jumps_deletes_nothing(
    config: Config, shifted: Shifted, caplog: pytest.LogCaptureFixture, tmp_path: Path, ahead_s: int
) -> None:
    """The server deletes again once an operator accepts the clock. With several servers, the clock
    of one of them decides nothing."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[[retention]]\ntenant = "*"\nagent = "ruled"\ndelete_after = "30d"\n')
    config = config.model_copy(update={"retention_file": rules})
    caplog.set_level(logging.DEBUG, "tuskpoint_server.commands.serve")
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        await client.save("retained", {"n": 1})
        await client.set_retention("retained", timedelta(days=30))
        await client.save("ruled", {"n": 1}, agent_id="ruled")
    shifted.ahead_s = ahead_s
    async with (
        serve.running_server(config) as server,
        AsyncClient(f"127.0.0.1:{server.port}") as client,
    ):
        info = await client.info()
        # Saved while the clock is wrong: this thread is not too old when the clock is right, and is
        # not lost.
        await client.save("meanwhile", {"n": 1}, agent_id="ruled")
        caplog.clear()

        async def swept() -> bool:
            said = {record.getMessage().partition(":")[0] for record in caplog.records}
            return {
                "sweep of threads past their retention",
                "sweep of what retention rules delete",
            } <= said

        await until(swept)
        names = {thread.thread_id async for thread in client.threads()}
        assert names == {"retained", "ruled", "meanwhile"}
        serving = health_pb2.HealthCheckResponse.SERVING
        assert await health(server.port, "") == serving
        deletions = await health(server.port, "tuskpoint.deletions")
        if info.journal_backend == "postgresql":
            assert (info.clock_jump, deletions) == (None, serving)
            return
        assert info.clock_jump is not None
        step = info.clock_jump.clock - info.clock_jump.expected
        assert abs(step.total_seconds() - ahead_s) < 600
        assert deletions == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await client.accept_clock() is not None
        assert (await client.info()).clock_jump is None

        async def gone() -> bool:
            return not [thread async for thread in client.threads()]

        if ahead_s > 0:
            await until(gone)
            return
        shifted.ahead_s = 0  # Now the accepted clock is 400 days ahead of the real time.
        caplog.clear()
        await until(swept)
        assert len([thread async for thread in client.threads()]) == len(names)
