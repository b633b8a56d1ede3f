"""The server exports telemetry if configured, and otherwise spends nothing on it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace

from tests.integration.conftest import StartServer
from tests.kit.messages import exchanged, frames, save_request
from tuskpoint.v1.admin_service_pb2 import FlushRequest
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from tuskpoint_server.core import process


def test_the_sdk_is_not_imported_until_asked_for() -> None:
    program = (
        "import sys, tuskpoint_server.commands.serve;"
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


TRACE, STEP = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that start at the start of a line."""
    decoder = json.JSONDecoder()
    begins = (match.start() for match in re.finditer(r"^\{", text, re.MULTILINE))
    return [decoder.raw_decode(text, begin)[0] for begin in begins]


@pytest.mark.parametrize("way", ["unary", "stream"])
async def test_a_trace_leads_from_the_step_of_an_agent_to_the_put_of_its_blob(
    start_server: StartServer, tmp_path: Path, way: str
) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--otel", "console"]
    server = await start_server(*arguments, "--log-format", "json")
    context = f"00-{TRACE}-{STEP}-01"
    async with grpc.aio.insecure_channel(server.address) as channel:
        checkpoints = CheckpointServiceStub(channel)
        if way == "unary":
            await checkpoints.SaveCheckpoint(save_request(), metadata=(("traceparent", context),))
        else:
            [frame] = frames(1, save_request())
            frame.traceparent = context
            [answer] = await exchanged(checkpoints, [frame])
            assert answer.HasField("saved")
        await AdminServiceStub(channel).Flush(FlushRequest())
    server.process.terminate()
    code, errors = await server.end()
    assert code == 0
    printed = objects(errors)
    spans = {record["name"]: record for record in printed if "context" in record}
    save = spans["tuskpoint.v1.CheckpointService/SaveCheckpoint"]
    assert save["context"]["trace_id"] == f"0x{TRACE}"
    assert save["parent_id"] == f"0x{STEP}"
    flush, put = spans["archive.flush"], spans["archive.put"]
    for linked in (spans["archive.pack"], flush):
        assert [link["context"]["span_id"] for link in linked["links"]] == [
            save["context"]["span_id"]
        ]
    assert put["context"]["trace_id"] == flush["context"]["trace_id"]
    assert put["parent_id"] == flush["context"]["span_id"]
    exemplars = re.findall(r'"trace_id": (\d+)', errors)
    assert int(TRACE, 16) in map(int, exemplars)
    certified = [record for record in printed if "certified" in record.get("message", "")]
    assert [record["level"] for record in certified] == ["info"]


def test_a_line_of_the_log_in_json_names_its_span(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    span = trace.NonRecordingSpan(trace.SpanContext(int(TRACE, 16), int(STEP, 16), is_remote=True))
    try:
        process.configure_logs("info", "json")
        logging.getLogger("there").warning("two\nlines: %s", "é")
        with trace.use_span(span):
            logging.getLogger("there").error("inside")
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("there").exception("failed")
    finally:
        root.handlers[:], root.level = before
    outside, inside, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert outside.keys() == {"time", "level", "logger", "message"}
    assert outside | {"time": ""} == {
        "time": "", "level": "warning", "logger": "there", "message": "two\nlines: é"
    }  # fmt: skip
    assert (inside["trace_id"], inside["span_id"]) == (TRACE, STEP)
    assert "ValueError: no" in failed["exception"]
