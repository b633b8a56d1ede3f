"""A PostgreSQL that accepts connections and does not answer, on some connections or on all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from bench.running.postgres import Cluster, LeftOutError, running_cluster
from tests.kit.messages import FIRST, ref, reported, save_request
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.journal.sql import pulse
from tuskpoint_server.journal.sql.pipelined import PipelinedConnection

if TYPE_CHECKING:
    from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceAsyncStub

Call = Awaitable[Any]
PROMISED_S = 15.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tuskpoint-server'"


class Proxy:
    """Proxy between a server and PostgreSQL that forwards or swallows bytes.

    Attributes:
        folder: The folder that the proxy listens in, as the folder of PostgreSQL's socket.
    """

    def __init__(self, folder: Path, behind: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._behind = str(behind / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._swallowing = False
        self._pairs: list[list[bool]] = []
        self._open = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def freeze(self) -> None:
        """Swallow the bytes of all connections, including future ones."""
        self._swallowing = True
        self.swallow_answers()
        for pair in self._pairs:
            pair[0] = True

    def swallow_answers(self) -> None:
        """Swallow PostgreSQL's answers on the open connections."""
        for pair in self._pairs:
            pair[1] = True

    def thaw(self) -> None:
        """Forward the bytes of new connections again; the other connections stay frozen."""
        self._swallowing = False

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            with contextlib.suppress(OSError):  # The connections may be closed already.
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # The connection is closed.
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                self._open += [near, far]
                far.connect(self._behind)
                pair = [self._swallowing, self._swallowing]
                self._pairs.append(pair)
                self._start(_carry, near, far, pair, 0)
                self._start(_carry, far, near, pair, 1)


def _carry(source: socket.socket, target: socket.socket, swallows: list[bool], way: int) -> None:
    with contextlib.suppress(OSError):  # The other end has closed the connection.
        while data := source.recv(65536):
            if not swallows[way]:
                target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    try:
        with running_cluster("fsync=off") as running:
            yield running
    except LeftOutError as reason:
        pytest.skip(str(reason))


def _folder(cluster: Cluster) -> Path:
    return Path(str(psycopg.conninfo.conninfo_to_dict(cluster.dsn)["host"]))


@pytest.fixture
def proxy(cluster: Cluster, tmp_path: Path) -> Iterator[Proxy]:
    opened = Proxy(tmp_path / "proxy", _folder(cluster))
    yield opened
    opened.close()


def _processes(cluster: Cluster) -> list[int]:
    """Return the process of PostgreSQL that accepts connections, and then all other processes."""
    first = (_folder(cluster) / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0]
    children = Path(f"/proc/{first}/task/{first}/children").read_text(encoding="ascii").split()
    return [int(pid) for pid in (first, *children)]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # The session may have ended meanwhile.
            os.kill(pid, number)


@contextlib.asynccontextmanager
async def _serving(folder: Path, tmp_path: Path) -> AsyncIterator[tuple[Server, grpc.aio.Channel]]:
    config = Config(
        listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        journal=f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}",
        flush_interval=3600,
    )
    async with (
        serve.running_server(config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield server, channel


def _load(stub: CheckpointServiceAsyncStub) -> Call:
    return stub.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)), timeout=PROMISED_S)


def _save(stub: CheckpointServiceAsyncStub, name: str) -> Call:
    return stub.SaveCheckpoint(save_request(name, thread_id=name), timeout=PROMISED_S)


@pytest.mark.parametrize("way", ["processes", "proxy"])
async def test_calls_end_and_health_fails_while_postgres_does_not_answer(
    cluster: Cluster, proxy: Proxy, tmp_path: Path, way: str
) -> None:
    def freeze() -> None:
        if way == "proxy":
            proxy.freeze()
        else:
            _signal(_processes(cluster), signal.SIGSTOP)

    def thaw() -> None:
        if way == "proxy":
            proxy.thaw()
        else:
            _signal(_processes(cluster), signal.SIGCONT)

    async with _serving(proxy.folder, tmp_path) as (_, channel):
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        await _load(stub)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        freeze()
        try:
            # More calls than connections: a call that waits for a connection must end in time, too.
            calls: list[Call] = [_load(stub) for _ in range(40)]
            calls += [_save(stub, f"thread-{number}") for number in range(40)]
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await call
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
                assert reported(failed.value).reason in ("JOURNAL_UNAVAILABLE", "OUTCOME_UNKNOWN")
            assert (await watch.read()).status == NOT_SERVING
        finally:
            thaw()
        assert (await watch.read()).status == SERVING
        watch.cancel()
        await _load(stub)
        await asyncio.gather(*(_save(stub, f"thread-{number}") for number in range(40)))


async def test_sessions_that_do_not_answer_are_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """One process of PostgreSQL hangs, and the others answer."""
    async with _serving(_folder(cluster), tmp_path) as (_, channel):
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        await _load(stub)
        with psycopg.connect(cluster.dsn) as other:
            ours = [pid for [pid] in other.execute(OURS)]
        _signal(ours, signal.SIGSTOP)
        try:
            await asyncio.gather(_save(stub, "other"), _load(stub))
        finally:
            _signal(ours, signal.SIGCONT)


async def test_a_statement_that_takes_long_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """A slow statement sends as few bytes as a frozen PostgreSQL."""
    async with _serving(_folder(cluster), tmp_path) as (_, channel):
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        with psycopg.connect(cluster.dsn) as other:
            other.execute("LOCK TABLE checkpoints IN ACCESS EXCLUSIVE MODE")
            call = _load(stub)
            await asyncio.sleep(2 * pulse.SILENCE_S - 1)
        await call


async def test_a_commit_whose_answer_is_lost_is_acknowledged(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PipelinedConnection.commit

    def losing(connection: PipelinedConnection) -> None:
        if threading.current_thread().name == "journal-writer":
            patched.undo()
            proxy.swallow_answers()
        commit(connection)

    async with _serving(proxy.folder, tmp_path) as (_, channel):
        stub = CheckpointServiceStub(channel)
        await stub.SaveCheckpoint(save_request())
        with monkeypatch.context() as patched:
            patched.setattr(PipelinedConnection, "commit", losing)
            await _save(stub, "other")
        again = await stub.SaveCheckpoint(save_request("other", thread_id="other"))
        assert again.seq == 1, "it was stored once"
