"""A real server for the tests of the LangGraph checkpointer, and savers that call it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from tests.kit.servers.processes import ServerProcess
from tuskpoint.langgraph import TuskPointSaver


@pytest.fixture(scope="session")
def server_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a server that the whole session shares."""
    with ServerProcess(tmp_path_factory.mktemp("server"), {}) as server:
        server.start()
        yield server.target


@pytest.fixture
async def saver(server_target: str) -> AsyncIterator[TuskPointSaver]:
    async with TuskPointSaver(server_target) as saver:
        yield saver


@pytest.fixture
def thread_id() -> str:
    return f"thread-{uuid.uuid4()}"


class Face:
    """The sync or the async methods of a saver, called in the same way.

    The sync methods run in a separate thread, where no event loop runs.
    """

    def __init__(self, saver: TuskPointSaver, kind: str) -> None:
        self.saver = saver
        self.kind = kind

    def __getattr__(self, name: str) -> Any:
        if self.kind == "async":
            return getattr(self.saver, f"a{name}")
        method = getattr(self.saver, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **named)

        return call

    async def list(self, *arguments: Any, **named: Any) -> list[CheckpointTuple]:
        if self.kind == "async":
            return [checkpoint async for checkpoint in self.saver.alist(*arguments, **named)]
        return await asyncio.to_thread(lambda: [*self.saver.list(*arguments, **named)])

    async def history(self, config: Any, channels: Any) -> Any:
        return await self.get_delta_channel_history(config=config, channels=channels)


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, saver: TuskPointSaver) -> Face:
    return Face(saver, request.param)
