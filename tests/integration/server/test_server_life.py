"""The server starts, refuses to start, and drains as documented."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import (  # type: ignore[import-untyped]
    reflection_pb2,
    reflection_pb2_grpc,
)

from tests.integration.access.tls_kit import write_tokens
from tests.integration.conftest import END_SECONDS, RefusedProgram, StartServer
from tests.kit.messages import FIRST, ref, refused, save_request
from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import own_environment
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.__main__ import main as tuskpoint_server
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.api.web.console import ASSETS
from tuskpoint_server.commands import serve
from tuskpoint_server.config.settings import Config
from tuskpoint_server.core import process

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_an_acknowledged_save_survives_a_drain_and_a_restart(
    start_server: StartServer, tmp_path: Path
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "new" / "data")]
    first = await start_server(*arguments)
    async with grpc.aio.insecure_channel(first.address) as channel:
        stream: Any = CheckpointServiceStub(channel).Exchange()
        await stream.write(pb.ExchangeRequest(frames=[pb.Frame(id=1, save=save_request())]))
        assert isinstance(await stream.read(), pb.ExchangeResponse)
        first.process.terminate()
        assert (await stream.read()).draining
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    code, errors = await first.end()
    assert code == 0
    assert re.search(r"INFO tuskpoint_server\.commands\.serve: drained$", errors, re.MULTILINE)
    assert "Traceback" not in errors
    second = await start_server(*arguments)
    async with grpc.aio.insecure_channel(second.address) as channel:
        await CheckpointServiceStub(channel).GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST)))
    second.process.send_signal(signal.SIGINT)
    assert (await second.end())[0] == 0


@pytest.mark.parametrize("namespace", ["file system", "abstract"])
async def test_the_service_manager_is_told_of_ready_and_stopping(
    tmp_path: Path, namespace: str
) -> None:
    name = str(tmp_path / "notify") if namespace == "file system" else f"\0{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(END_SECONDS)
        manager.bind(name)
        environment = own_environment() | {"NOTIFY_SOCKET": name.replace("\0", "@")}
        arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
        with Forked(tuskpoint_server, arguments, environment, tmp_path / "log") as process:
            assert await asyncio.to_thread(manager.recv, 4096) == b"READY=1"
            line = process.output.readline().decode()
            async with grpc.aio.insecure_channel(line.split()[-1]) as channel:
                await CheckpointServiceStub(channel).SaveCheckpoint(save_request())
            process.terminate()
            assert await asyncio.to_thread(manager.recv, 4096) == b"STOPPING=1"
            assert process.wait(END_SECONDS) == 0


async def test_a_service_manager_that_is_gone_does_not_stop_the_server(tmp_path: Path) -> None:
    environment = own_environment() | {"NOTIFY_SOCKET": str(tmp_path / "none")}
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with Forked(tuskpoint_server, arguments, environment, tmp_path / "log") as process:
        assert process.output.readline().startswith(b"tuskpoint-server listening on ")
        process.terminate()
        assert process.wait(END_SECONDS) == 0
    assert "the service manager was not told READY=1" in (tmp_path / "log").read_text("utf-8")


@pytest.mark.parametrize("form", ["text", "json"])
async def test_one_line_of_the_log_describes_the_start(tmp_path: Path, form: str) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens)
    arguments = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--log-format", form]
    arguments += ["--data-dir", str(tmp_path / "data"), "--tokens", str(tokens)]
    with Forked(tuskpoint_server, arguments, own_environment(), tmp_path / "log") as process:
        address = process.output.readline().decode().split()[-1]
        url = process.output.readline().decode().split()[-1]
        process.terminate()
        assert process.wait(END_SECONDS) == 0
    parts = {
        "version": importlib.metadata.version("tuskpoint-server"),
        "address": address,
        "journal": str(tmp_path / "data" / "journal.db"),
        "blobs": str(tmp_path / "data" / "blobs"),
        "tls": "off",
        "tokens": str(tokens),
        "http": url,
        "console": "on" if (ASSETS / "index.html").exists() else "not built",
    }
    sentence = (
        "tuskpoint-server {version} serves on {address}: journal {journal}, blobs {blobs}, "
        "TLS {tls}, tokens {tokens}, HTTP {http}, console {console}"
    ).format(**parts)
    [line] = [
        line for line in (tmp_path / "log").read_text("utf-8").splitlines() if sentence in line
    ]
    if form == "json":
        logged = json.loads(line)
        assert logged["message"] == sentence
        assert logged.items() >= parts.items()


async def test_the_address_of_an_ipv6_host_is_printed_as_clients_take_it(
    start_server: StartServer, tmp_path: Path
) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    server = await start_server("--listen", "[::1]:0", "--data-dir", str(tmp_path))
    assert re.fullmatch(r"\[::1\]:[1-9]\d*", server.address)
    async with grpc.aio.insecure_channel(server.address) as channel:
        await CheckpointServiceStub(channel).SaveCheckpoint(save_request())


async def test_a_second_server_on_a_directory_is_refused(
    server: Server, start_server: StartServer, config: Config
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(config.data_dir)]
    code, errors = await (await start_server(*arguments)).end()
    assert code == process.EXIT_DATA_DIR_TAKEN
    [line] = errors.splitlines()
    assert line.startswith(f"tuskpoint-server: data directory {config.data_dir} is in use by ")
    assert f"process {os.getpid()}:" in line


async def test_two_servers_do_not_share_a_port(server: Server, tmp_path: Path) -> None:
    address = f"127.0.0.1:{server.port}"
    config = Config(listen=address, data_dir=tmp_path / "other")
    with pytest.raises(process.StartError, match=f"cannot listen on {address}") as refused_start:
        async with serve.running_server(config):
            pass
    assert refused_start.value.code == process.EXIT_ADDRESS


@pytest.mark.parametrize("argument", ["--data-dir", "--blob-dir"])
def test_a_path_that_cannot_be_written_is_reported_in_one_line(
    refused_program: RefusedProgram, tmp_path: Path, argument: str
) -> None:
    (tmp_path / "file").touch()
    paths = {"--data-dir": str(tmp_path / "data"), argument: str(tmp_path / "file" / "x")}
    arguments = [part for pair in paths.items() for part in pair]
    code, line = refused_program("--listen", "127.0.0.1:0", *arguments)
    assert code == process.EXIT_DIRECTORY
    assert str(tmp_path / "file") in line


@pytest.mark.parametrize(
    ("command", "expected"),
    [([], process.EXIT_DIRECTORY), (["recover", "--catalog", "A" * 43], process.EXIT_ARCHIVE)],
)
def test_a_blob_directory_of_another_layout_is_refused_in_one_line(
    refused_program: RefusedProgram, tmp_path: Path, command: list[str], expected: int
) -> None:
    blobs = tmp_path / "blobs"
    blob = blobs / "47" / "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    blob.parent.mkdir(parents=True)
    blob.touch()
    arguments = ["--data-dir", str(tmp_path / "data"), "--blob-dir", str(blobs)]
    code, line = refused_program(*command, *arguments)
    assert code == expected
    assert str(blobs) in line
    assert "layout" in line
    assert blob.exists()
    assert not (blobs / "layout").exists()


def test_a_file_that_is_no_database_is_reported_in_one_line(
    refused_program: RefusedProgram, tmp_path: Path
) -> None:
    (tmp_path / "journal.db").write_bytes(b"no database" * 1000)
    code, line = refused_program("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert code == process.EXIT_JOURNAL
    assert "journal.db" in line


def test_a_database_that_is_not_known_is_left_alone(
    refused_program: RefusedProgram, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as foreign, foreign:
        foreign.execute("CREATE TABLE cats (name TEXT)")
        before = list(foreign.iterdump())
    code, line = refused_program("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert code == process.EXIT_JOURNAL
    assert "journal.db" in line
    assert "another program" in line
    with closing(sqlite3.connect(tmp_path / "journal.db")) as foreign:
        assert list(foreign.iterdump()) == before


@pytest.mark.parametrize("arguments", [["--unknown"], ["--listen", "nowhere"]])
def test_a_bad_setting_is_reported_in_one_line(
    refused_program: RefusedProgram, arguments: list[str]
) -> None:
    code, _ = refused_program(*arguments)
    assert code == process.EXIT_CONFIG


async def listed_services(server: Server) -> list[str]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        async for answer in stub.ServerReflectionInfo(iter([request])):
            return [each.name for each in answer.list_services_response.service]
    return []


async def test_reflection_is_off_until_switched_on(server: Server, tmp_path: Path) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as off:
        await listed_services(server)
    assert off.value.code() is grpc.StatusCode.UNIMPLEMENTED
    config = Config(listen="127.0.0.1:0", data_dir=tmp_path / "other", reflection=True)
    async with serve.running_server(config) as reflecting:
        assert "tuskpoint.v1.CheckpointService" in await listed_services(reflecting)


async def test_draining_finishes_calls_and_refuses_new_ones(
    server: Server, grpc_channel: grpc.aio.Channel
) -> None:
    checkpoints = CheckpointServiceStub(grpc_channel)
    health = health_pb2_grpc.HealthStub(grpc_channel)
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == SERVING
    stream: Any = checkpoints.Exchange()
    await stream.write(pb.ExchangeRequest(frames=[pb.Frame(id=1, save=save_request())]))
    await stream.read()
    held = asyncio.Event()
    release = asyncio.Event()
    original = server.pipeline._emptied.wait

    async def hold() -> None:
        held.set()
        await release.wait()
        await original()

    server.pipeline._emptied.wait = hold  # type: ignore[method-assign, assignment]
    draining = asyncio.create_task(server.drain(60))
    await held.wait()
    assert (await watch.read()).status == NOT_SERVING
    answer = await refused(checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST))))
    assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert "RetryInfo" in answer.kinds
    assert (await stream.read()).draining
    with pytest.raises(grpc.aio.AioRpcError):
        await stream.read()
    release.set()
    assert await draining
    answer = await refused(checkpoints.GetCheckpoint(pb.GetCheckpointRequest(ref=ref(FIRST))))
    assert answer.code is grpc.StatusCode.UNAVAILABLE
