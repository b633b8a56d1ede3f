"""Graphs continue when each turn runs on a server rebuilt from blobs alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tuskpoint.langgraph import TuskPointSaver
from tuskpoint.v1 import admin_service_pb2
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.commands import recover, serve
from tuskpoint_server.config.settings import Config

from ..graphs import Run, delta_graph, interrupted_graph, story

if TYPE_CHECKING:
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub


class Lives:
    """Servers, one after another; each starts on an empty disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0

    def _config(self) -> Config:
        return Config(
            listen="127.0.0.1:0",
            data_dir=self._root / f"life-{self._count}",
            blob_dir=self._root / "blobs",
            catalog_pointer=self._root / "catalog",
            flush_interval=3600,
        )

    @asynccontextmanager
    async def saver(self) -> AsyncIterator[TuskPointSaver]:
        """Recover the stored content, serve, and certify at the end."""
        self._count += 1
        config = self._config()
        if config.pointer.exists():
            order = recover.Order(Kind.CATALOG, config.pointer.read_text())
            await recover.recover(config, order)
        async with serve.running_server(config) as server:
            address = f"127.0.0.1:{server.port}"
            async with TuskPointSaver(address) as saver:
                yield saver
            async with grpc.aio.insecure_channel(address) as channel:
                admin: AdminServiceAsyncStub = AdminServiceStub(channel)
                await admin.Flush(admin_service_pb2.FlushRequest())
            await server.drain(0)


async def test_an_interrupted_graph_goes_on(tmp_path: Path, thread_id: str) -> None:
    turns: list[Any] = [{"log": ["in"]}, Command(resume="yes"), Command(resume="no")]
    measure = Run(interrupted_graph(InMemorySaver()), "async", "async", thread_id)
    lives = Lives(tmp_path)
    for turn in turns:
        expected = await measure.invoke(turn)
        async with lives.saver() as saver:
            run = Run(interrupted_graph(saver), "async", "async", thread_id)
            result = await run.invoke(turn)
        for answer in (expected, result):
            answer["__interrupt__"] = [
                interrupt.value for interrupt in answer.pop("__interrupt__", ())
            ]
        assert result == expected
    async with lives.saver() as saver:
        run = Run(interrupted_graph(saver), "async", "async", thread_id)
        assert [story(snapshot) for snapshot in await run.history()] == [
            story(snapshot) for snapshot in await measure.history()
        ]


async def test_a_pruned_graph_with_delta_channels_goes_on(tmp_path: Path, thread_id: str) -> None:
    measure = Run(delta_graph(InMemorySaver()), "async", "async", thread_id)
    lives = Lives(tmp_path)
    for _ in range(3):
        expected = await measure.invoke({"round": 0})
        async with lives.saver() as saver:
            run = Run(delta_graph(saver), "async", "async", thread_id)
            assert await run.invoke({"round": 0}) == expected
            await saver.aprune([thread_id], strategy="keep_latest")
            before = await saver.aget_delta_channel_history(
                config=run.config, channels=["items", "rare"]
            )
        async with lives.saver() as saver:
            after = await saver.aget_delta_channel_history(
                config=run.config, channels=["items", "rare"]
            )
            assert after == before
            assert before["rare"]["writes"], (
                "no value is stored: what pruned ancestors left rebuilds it"
            )
            assert len([checkpoint async for checkpoint in saver.alist(run.config)]) == 1
