"""Callers without a credential cost the server little, and cost other callers nothing."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from tests.integration.access.tls_kit import write_tokens
from tests.kit.servers import http2
from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import own_environment
from tuskpoint import Client
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.api.web import connect, connections
from tuskpoint_server.core import process as processes

MIB = 1024 * 1024
MESSAGE = 16 * MIB - 1024
"""Largest message that gRPC accepts, with its framing; the server refuses it only after receipt."""

SAVE = "/tuskpoint.v1.CheckpointService/SaveCheckpoint"
HEALTH = "/grpc.health.v1.Health/Check"
WAIT_S = 60

pytestmark = pytest.mark.slow


@dataclass
class Attacked:
    """A server process that requires tokens; `resident` and `peak` are its memory in MiB."""

    process: Forked
    grpc_port: int
    http_port: int
    token: str

    def _status(self, field: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        match = re.search(rf"{field}:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) // 1024

    @property
    def resident(self) -> int:
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        return self._status("VmHWM")

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"


@contextmanager
def attacked(directory: Path, *arguments: str, files: int = 4096) -> Iterator[Attacked]:
    token = write_tokens(directory / "tokens.toml")["writer"]
    settings = ["--data-dir", str(directory / "data"), "--tokens", str(directory / "tokens.toml")]
    listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    process = Forked(
        tuskpoint_server,
        [*listen, *settings, *arguments],
        own_environment(),
        directory / "log",
        open_files=files,
    )
    try:
        over_grpc, over_http = (
            process.output.readline().decode().rpartition(":")[2] for _ in range(2)
        )
        yield Attacked(process, int(over_grpc), int(over_http), token)
    finally:
        process.kill()
        process.wait()


async def send_most(port: int, path: str, *headers: tuple[bytes, bytes]) -> None:
    """Call over HTTP/2; send the message except its last byte, as far as flow control allows."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    left, windows = MESSAGE + 5 - 1, {0: 65_535, 1: 65_535}
    initial = 65_535
    begin = struct.pack(">BI", 0, MESSAGE)

    def send() -> None:
        nonlocal left, begin
        while (size := min(left, 16_384, *windows.values())) > 0:
            piece, begin = (begin + bytes(size))[:size], b""
            writer.write(http2.frame(http2.DATA, 0, 1, piece))
            left -= size
            for stream in windows:
                windows[stream] -= size

    writer.write(http2.opening(path, *headers))
    send()
    try:
        while start := await reader.readexactly(9):
            content = await reader.readexactly(int.from_bytes(start[:3], "big"))
            kind, flags, stream = start[3], start[4], int.from_bytes(start[5:9], "big")
            if kind == http2.WINDOW_UPDATE:
                windows[stream] += int.from_bytes(content, "big")
            elif kind == http2.SETTINGS and not flags & http2.ACK:
                for at in range(0, len(content), 6):
                    name, value = struct.unpack(">HI", content[at : at + 6])
                    if name == http2.INITIAL_WINDOW_SIZE:
                        windows[1] += value - initial
                        initial = value
                writer.write(http2.frame(http2.SETTINGS, http2.ACK, 0, b""))
            elif kind == http2.PING and not flags & http2.ACK:
                writer.write(http2.frame(http2.PING, http2.ACK, 0, content))
            elif kind == http2.RST_STREAM or (kind == http2.HEADERS and flags & http2.END_STREAM):
                return
            send()
            await writer.drain()
            if not left:
                await asyncio.Event().wait()
    finally:
        writer.close()


@asynccontextmanager
async def strangers(
    count: int, attack: Callable[[], object], *, settled: Callable[[], bool] | None = None
) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Run an attack of several strangers at once; cancel them at the end."""
    tasks: list[asyncio.Task[object]] = [asyncio.ensure_future(attack()) for _ in range(count)]  # type: ignore[call-overload]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def works(server: Attacked, thread_id: str) -> None:
    """Save a certified checkpoint, and load it."""
    with Client(server.target, token=server.token, timeout_s=WAIT_S) as client:
        client.save(thread_id, {"n": 1}, durability="certified")
        assert client.load(thread_id).state == {"n": 1}


async def test_messages_over_grpc_without_a_token_are_not_read(tmp_path: Path) -> None:
    with attacked(tmp_path) as server:
        await asyncio.to_thread(works, server, "before")
        before = server.resident
        async with strangers(100, lambda: send_most(server.grpc_port, SAVE)) as tasks:
            _, pending = await asyncio.wait(tasks, timeout=WAIT_S)
            await asyncio.to_thread(works, server, "meanwhile")
        assert not pending, "the server still waits for messages of strangers"
        assert server.peak - before < 150


async def test_questions_for_health_that_never_end_are_few(tmp_path: Path) -> None:
    count = 60
    with attacked(tmp_path) as server:
        await asyncio.to_thread(works, server, "before")
        before = server.resident
        async with strangers(60, lambda: send_most(server.grpc_port, HEALTH)) as tasks:
            while sum(not task.done() for task in tasks) > 4:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)
            async with grpc.aio.insecure_channel(server.target) as channel:
                answer = await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=WAIT_S
                )
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            await asyncio.to_thread(works, server, "meanwhile")
        # gRPC frees a cancelled message a little later, so that more than the few messages exist
        # for a moment; all messages together would need `count` times 16 MiB.
        assert server.peak - before < count * MESSAGE / MIB / 3


def request(token: str = "", size: int = MESSAGE) -> bytes:
    """Return the headers of a call over HTTP."""
    lines = [f"POST {SAVE} HTTP/1.1", "host: 127.0.0.1", "content-type: application/proto"]
    if token:
        lines.append(f"authorization: Bearer {token}")
    return "\r\n".join([*lines, f"content-length: {size}", "", ""]).encode()


async def test_bodies_over_http_without_a_token_are_not_kept(tmp_path: Path) -> None:
    """The server answers before the body arrives, and discards the body."""

    async def attack() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(request() + bytes(64 * 1024))
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            for _ in range(63):
                writer.write(bytes(128 * 1024))
                await writer.drain()
            await asyncio.Event().wait()
        finally:
            writer.close()
        return head

    with attacked(tmp_path) as server:
        await asyncio.to_thread(works, server, "before")
        before = server.resident
        async with strangers(100, attack) as tasks:
            # The server cuts all of them off after ten seconds, because the rest of the request
            # never comes.
            await asyncio.wait(tasks, timeout=5)
            await asyncio.to_thread(works, server, "meanwhile")
        assert server.peak - before < 150


async def test_a_thousand_half_open_connections_leave_saves_their_files(tmp_path: Path) -> None:
    """Open as many connections as the server may have open files."""
    with attacked(tmp_path, files=1024) as server:
        await asyncio.to_thread(works, server, "before")
        before = server.resident
        opened = []
        for number in range(1000):
            connection = socket.create_connection(("127.0.0.1", server.http_port))
            if number % 2:
                connection.sendall(b"POST / HTTP/1.1\r\nhost: 127.0")
            opened.append(connection)
        for round_ in range(3):
            await asyncio.to_thread(works, server, f"meanwhile-{round_}")
        files = server.open_files
        assert files < 1024 - processes.KEPT_DESCRIPTORS // 2
        assert server.peak - before < 150
        for connection in opened:
            connection.close()
        body = json.dumps({"ref": {"threadId": "before"}}).encode()
        path = "/tuskpoint.v1.CheckpointService/GetCheckpoint"
        headers = request(server.token, len(body)).decode().replace(SAVE, path)
        call = headers.replace("application/proto", "application/json").encode() + body
        answer = b""
        # The server refuses new connections until it has noticed the closed ones.
        while not answer:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
            writer.write(call)
            with suppress(ConnectionResetError):
                answer = await reader.readline()
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200")


async def test_connections_over_grpc_are_bounded(tmp_path: Path) -> None:
    with attacked(tmp_path, "--max-connections", "16") as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.grpc_port) for _ in range(16)]
        for _, writer in opened:
            writer.write(http2.connecting())
        for reader, _ in opened:
            await reader.readexactly(9)
        late, writer = await asyncio.open_connection("127.0.0.1", server.grpc_port)
        try:
            assert await late.read() == b""
        except ConnectionResetError:
            pass
        for _, stream in [*opened, (late, writer)]:
            stream.close()
        await asyncio.to_thread(works, server, "after")


async def test_connections_of_one_address_take_half_of_those_over_http(tmp_path: Path) -> None:
    with attacked(tmp_path, "--max-connections", "16") as server:
        held = [await asyncio.open_connection("127.0.0.1", server.http_port) for _ in range(8)]
        late, closed = await asyncio.open_connection("127.0.0.1", server.http_port)
        assert await late.read() == b""
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.connect(("127.0.0.1", server.http_port))
        reader, writer = await asyncio.open_connection(sock=other)
        writer.write(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        for _, stream in [*held, (late, closed)]:
            stream.close()
        writer.close()


def test_http_gives_headers_and_bodies_ten_seconds() -> None:
    assert connections.DEADLINE_SECONDS == 10
    assert connect.BODY_SECONDS == 10
    assert connect.HELD_BYTES == 64 * 1024


async def test_late_headers_and_bodies_end_a_connection(tmp_path: Path) -> None:
    async def closed(sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write(sent)
        answer = b""
        try:
            answer = await reader.read()
        except ConnectionResetError:
            pass
        writer.close()
        return answer

    with attacked(tmp_path) as server:
        nothing, headers, refused, late = await asyncio.wait_for(
            asyncio.gather(
                closed(b""),
                closed(b"POST / HTTP/1.1\r\nhost:"),
                closed(request() + b"x"),
                closed(request(server.token) + b"x"),
            ),
            WAIT_S,
        )
        assert nothing == headers == b""
        assert refused.startswith(b"HTTP/1.1 401")
        assert late.startswith(b"HTTP/1.1 504")
