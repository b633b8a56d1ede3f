"""Clocks that are wrong: of clients, of servers, of databases."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from tests.kit.databases import journal_of
from tuskpoint import AsyncClient
from tuskpoint._messages import checkpoint_ids
from tuskpoint.langgraph import TuskPointSaver
from tuskpoint_server import app
from tuskpoint_server.config import Config
from tuskpoint_server.rpc.server.server import Server

DAY_S = 86400


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
    async with app.running(config) as running:
        yield running


def a_day_back() -> str:
    """Return an ID that a client generates whose clock is a day behind."""
    ticks = (time.time_ns() // 1000 - DAY_S * 10**6) * 10 + 0x01B21DD213814000
    return checkpoint_ids.mint(ticks, 7, "")


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
    said = {one.name.partition(".")[0]: one.getMessage() for one in caplog.records}
    assert "(below_latest)" in said["tuskpoint"]
    assert "sorts below" in said["tuskpoint"]
    assert "saved below the latest" in said["tuskpoint_server"]


async def test_a_client_whose_clock_is_a_day_behind_continues_from_the_latest(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = f"127.0.0.1:{server.port}"
    async with AsyncClient(target) as client, AsyncClient(target) as behind:
        first = await client.save("t", {"n": 1})
        now_ns = time.time_ns()
        monkeypatch.setattr(checkpoint_ids.time, "time_ns", lambda: now_ns - DAY_S * 10**9)
        second = await behind.save("t", {"n": 2})
        latest = await client.load("t")
    assert second > first
    assert (latest.checkpoint_id, latest.parent_checkpoint_id) == (second, first)
    assert not [one for one in caplog.records if "below_latest" in one.getMessage()]
