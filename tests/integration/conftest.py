"""A real server on a real socket, in this process or in a separate process.

Tests that depend on the database are marked `usefixtures("database")` and run on each database.
Tests of facts that the tests of the contract prove on each database, such as which changes a watch
delivers and when, run on one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from bench.running.postgres import LeftOutError
from tests.integration.features.lineage.handoff_servers import side
from tests.kit.databases import in_postgres, journal_of, place, postgres
from tests.kit.servers.forking import Forked
from tests.kit.servers.listed_errors import check_answers
from tests.kit.servers.processes import own_environment
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceStub
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config

if TYPE_CHECKING:
    from tests.integration.features.lineage.handoff_kit import Side
    from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub
    from tuskpoint.v1.thread_service_pb2_grpc import ThreadServiceAsyncStub

END_SECONDS = 40

listed_answers = pytest.fixture(check_answers, autouse=True)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings of a server with an empty directory and without background work."""
    data_dir = tmp_path / "data"
    return Config(
        listen="127.0.0.1:0",
        data_dir=data_dir,
        journal=journal_of(data_dir),
        flush_interval=3600,
        scrub_bytes_per_second=0,
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a PostgreSQL database without tables."""
    try:
        with in_postgres(postgres()):
            return str(place(tmp_path))
    except LeftOutError as reason:
        pytest.skip(str(reason))


@pytest.fixture
async def server(config: Config) -> AsyncIterator[Server]:
    """A server in this process."""
    async with serve.running_server(config) as running:
        yield running


@pytest.fixture
async def grpc_channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}",
        options=[
            ("grpc.max_receive_message_length", 8 * 1024 * 1024),
            ("grpc.max_send_message_length", -1),
        ],
    ) as channel:
        yield channel


@pytest.fixture
def checkpoints(grpc_channel: grpc.aio.Channel) -> CheckpointServiceAsyncStub:
    return CheckpointServiceStub(grpc_channel)


@pytest.fixture
def threads(grpc_channel: grpc.aio.Channel) -> ThreadServiceAsyncStub:
    return ThreadServiceStub(grpc_channel)


@pytest.fixture
def admin(grpc_channel: grpc.aio.Channel) -> AdminServiceAsyncStub:
    return AdminServiceStub(grpc_channel)


@pytest.fixture
async def giver(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path / "giver", blob_dir=tmp_path / "blobs") as running:
        yield running


@pytest.fixture
async def taker(tmp_path: Path) -> AsyncIterator[Side]:
    """A server that shares only the blob directory with the other server."""
    async with side(tmp_path / "taker", blob_dir=tmp_path / "blobs") as running:
        yield running


@dataclass
class StartedServer:
    """A server that was started from the command line; `address` is empty if it did not listen."""

    process: Forked
    address: str
    log: Path

    async def end(self) -> tuple[int, str]:
        """Wait for the end of the server; return its exit code and its stderr."""
        code = await asyncio.to_thread(self.process.wait, END_SECONDS)
        return code, self.log.read_text("utf-8")


StartServer = Callable[..., "asyncio.Future[StartedServer]"]
RefusedProgram = Callable[..., tuple[int, str]]


@pytest.fixture
def refused_program(capsys: pytest.CaptureFixture[str]) -> RefusedProgram:
    """Run a program of the server in this process; return its exit code and its line of output."""

    def run(*arguments: str) -> tuple[int, str]:
        code = tuskpoint_server(arguments)
        printed = capsys.readouterr()
        assert printed.out == ""
        [line] = printed.err.splitlines()
        assert line.startswith("tuskpoint-server: ")
        return code, line

    return run


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start servers from the command line with arguments; running servers are killed at the end."""
    started: list[Forked] = []

    async def start(*arguments: str) -> StartedServer:
        log = tmp_path_factory.mktemp("log") / "server.log"
        process = Forked(tuskpoint_server, arguments, own_environment(), log)
        started.append(process)
        line = (await asyncio.to_thread(process.output.readline)).decode()
        match = re.fullmatch(r"tuskpoint-server listening on (\S+)\n", line)
        assert match or not line, line
        return StartedServer(process, match[1] if match else "", log)

    yield start  # type: ignore[misc]
    for process in started:
        process.kill()
        process.wait()
