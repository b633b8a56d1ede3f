"""Streams over HTTP run in both directions at once, and end for stalled readers and old tokens."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf import json_format

from tests.integration.access.tls_kit import write_tokens
from tests.integration.conftest import StartServer
from tests.integration.web.web_kit import (
    JSON,
    PROTO,
    WIRES,
    Envelopes,
    HttpCaller,
    Wire,
    enveloped,
    http_client,
)
from tests.kit.messages import FIRST, SECOND, ref, reported, save_request
from tuskpoint import AsyncClient
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1 import history_service_pb2 as history
from tuskpoint_server.auth import access
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core.limits import MIB
from tuskpoint_server.features import call_memory as memories

EXCHANGE = "/tuskpoint.v1.CheckpointService/Exchange"
LOAD = "/tuskpoint.v1.CheckpointService/LoadCheckpoint"
WATCH = "/tuskpoint.v1.HistoryService/WatchThread"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        listen="127.0.0.1:0",
        http_listen="127.0.0.1:0",
        data_dir=tmp_path / "data",
        flush_interval=3600,
    )


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_an_exchange_answers_while_the_request_goes_on(config: Config, wire: Wire) -> None:
    async with serve.running_server(config) as server:
        host, _, port = server.http_url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        def send(*frames: pb.Frame) -> None:
            body = enveloped(wire.encoded(pb.ExchangeRequest(frames=frames)))
            writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")

        writer.write(
            f"POST {EXCHANGE} HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n"
            f"content-type: {wire.kind(streams=True)}\r\n\r\n".encode()
        )
        answers: list[Any] = []
        envelopes = Envelopes()
        send(pb.Frame(id=1, save=save_request(FIRST)))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        while size := int(await reader.readline(), 16):
            for data in envelopes.feed((await reader.readexactly(size + 2))[:size]):
                answers.append(wire.decoded(pb.ExchangeResponse, data))
                if len(answers) == 1:
                    send(pb.Frame(id=2, save=save_request(SECOND, parent=FIRST)))
                else:
                    writer.write(b"0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert envelopes.is_ended
    assert envelopes.error is None
    saved = [answer.answers[0].saved.ref.checkpoint_id for answer in answers]
    assert saved == [FIRST, SECOND]


async def test_readers_that_stand_still_are_ended_once_others_wait_for_memory(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(memories, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(memories, "WHOLE", 16 * MIB)
    load = pb.LoadCheckpointRequest(ref=ref(thread_id="large"))
    async with serve.running_server(config) as server, http_client(server.http_url) as http:
        memory, running = server.pipeline.memory, server.pipeline._authentication.running
        memory.max_bytes = 64 * MIB
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.save("large", {"text": "x" * 8 * MIB})
        slow = [standing_still(server.http_url, load) for _ in range(7)]
        while memory.held_bytes < 48 * MIB:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        frames: list[Any] = await HttpCaller(http, JSON).call(LOAD, [load])
        assert sum(len(frame.chunk.data) for frame in frames) > 8 * MIB
        ends = await asyncio.gather(
            *(asyncio.to_thread(read_all, connection) for connection in slow)
        )
        assert any(b"READER_TOO_SLOW" in end for end in ends)
        for connection in slow:
            connection.close()
        while memory.held_bytes or running:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


def standing_still(url: str, request: pb.LoadCheckpointRequest) -> socket.socket:
    """Start a call on a connection that is never read and that buffers few bytes."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    body = enveloped(request.SerializeToString())
    connection.sendall(
        f"POST {LOAD} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/connect+proto\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Read an answer to its end; return the last bytes."""
    connection.settimeout(30)
    end = b""
    while piece := connection.recv(MIB):
        end = (end + piece)[-4096:]
    return end


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_a_watch_does_not_outlive_its_token(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.01)
    file = tmp_path / "tokens.toml"
    tokens = write_tokens(file)
    config = config.model_copy(update={"tokens": file})
    async with serve.running_server(config) as server, http_client(server.http_url) as http:
        caller = HttpCaller(http, wire, tokens["writer"])
        await caller.call("/tuskpoint.v1.CheckpointService/SaveCheckpoint", [save_request()])
        request = history.WatchThreadRequest(thread_id="thread")
        headers = {"content-type": wire.kind(streams=True), **caller.headers}
        content = enveloped(wire.encoded(request))
        async with http.stream("POST", WATCH, content=content, headers=headers) as answer:
            envelopes, seen = Envelopes(), 0
            async for piece in answer.aiter_raw():
                for _ in envelopes.feed(piece):
                    seen += 1
                    write_tokens(file)  # other tokens
        assert seen == 1
        assert envelopes.error is not None
        error = reported(envelopes.error)
        assert (error.code, error.reason) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "CREDENTIAL_INVALID",
        )
        assert not server.pipeline._authentication.running


async def test_a_drain_ends_a_watch_and_the_process(
    start_server: StartServer, tmp_path: Path
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    server = await start_server(*arguments, "--data-dir", str(tmp_path))
    line = (await asyncio.to_thread(server.process.output.readline)).decode()
    url = line.rpartition(" on ")[2].strip()
    assert line == f"console and JSON over HTTP on {url}\n"
    async with http_client(url) as http:
        caller = HttpCaller(http, PROTO)
        await caller.call("/tuskpoint.v1.CheckpointService/SaveCheckpoint", [save_request()])
        request = json_format.MessageToJson(history.WatchThreadRequest(thread_id="thread"))
        headers = {"content-type": "application/connect+json"}
        content = enveloped(request.encode())
        async with http.stream("POST", WATCH, content=content, headers=headers) as answer:
            envelopes = Envelopes()
            async for piece in answer.aiter_raw():
                for _ in envelopes.feed(piece):
                    server.process.send_signal(signal.SIGTERM)
        assert envelopes.error is not None
        assert reported(envelopes.error).reason == "DRAINING"
        code, log = await server.end()
        with pytest.raises(httpx.ConnectError):
            await http.get("/")
    assert code == 0
    assert "Traceback" not in log
    assert "uvicorn" not in log, "its notes are of no use"
