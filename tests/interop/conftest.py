"""A real server for the tests of the LangGraph checkpointer, and savers that talk to it."""

import asyncio
import queue
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from tuskpoint.langgraph import TuskPointSaver

START_SECONDS = 60
STOP_SECONDS = 15


def _pump(stream: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _address(lines: "queue.SimpleQueue[str]", log: Path) -> str:
    while line := lines.get(timeout=START_SECONDS):
        if found := re.fullmatch(r"tuskpoint-server listening on (\S+)\n", line):
            return found[1]
    pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')}")


@contextmanager
def running_server(data_dir: Path, log: Path, *options: str) -> Iterator[str]:
    """Run a server with these options; yield its HOST:PORT."""
    command = [sys.executable, "-m", "tuskpoint_server"]
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(data_dir), *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=_pump, args=(server.stdout, lines), daemon=True)
        reader.start()
        try:
            yield _address(lines, log)
        finally:
            server.terminate()
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
            reader.join(STOP_SECONDS)


@pytest.fixture(scope="session")
def server_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a server that the whole session shares."""
    home = tmp_path_factory.mktemp("server")
    with running_server(home / "data", home / "log") as target:
        yield target


@pytest.fixture
async def saver(server_target: str) -> AsyncIterator[TuskPointSaver]:
    async with TuskPointSaver(server_target) as saver:
        yield saver


@pytest.fixture
def thread_id() -> str:
    return f"thread-{uuid.uuid4()}"


class Face:
    """The sync or the async methods of a saver, called in the same way.

    The sync ones run in a thread of their own, where no event loop is running.
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
            return [found async for found in self.saver.alist(*arguments, **named)]
        return await asyncio.to_thread(lambda: [*self.saver.list(*arguments, **named)])

    async def history(self, config: Any, channels: Any) -> Any:
        return await self.get_delta_channel_history(config=config, channels=channels)


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, saver: TuskPointSaver) -> Face:
    return Face(saver, request.param)
