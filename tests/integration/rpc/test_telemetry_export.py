"""Telemetry leaves the server when asked to, and costs nothing when not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc

from tests.integration.conftest import StartServer
from tests.kit.messages import save_request
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub


def test_the_sdk_is_not_imported_until_asked_for() -> None:
    program = (
        "import sys, tuskpoint_server.app;"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


async def test_spans_and_measurements_go_where_asked(
    start_server: StartServer, tmp_path: Path
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--otel", "console"]
    server = await start_server(*arguments)
    async with grpc.aio.insecure_channel(server.address) as channel:
        await CheckpointServiceStub(channel).SaveCheckpoint(
            save_request(metadata=b'{"secret": "of the agent"}')
        )
    server.process.terminate()
    code, errors = await server.end()
    assert code == 0
    assert '"rpc.method": "tuskpoint.v1.CheckpointService/SaveCheckpoint"' in errors
    assert "rpc.server.call.duration" in errors
    assert '"service.name": "tuskpoint-server"' in errors
    assert "of the agent" not in errors
