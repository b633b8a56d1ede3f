"""The commands of the page about HTTP run, and its example is the tested example."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.web.web_kit import http_client
from tools.pages import markdown
from tuskpoint_server.api.messages.json_values import MAX_LEVELS
from tuskpoint_server.api.server.server import Server
from tuskpoint_server.core.limits import LIMITS, MIB

with_server = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "clients" / "http.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return [block.text for block in markdown.blocks(PAGE) if block.language == language]


@with_server
async def test_the_commands_run(both: Server) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl: there is none on the path")
    script = "set -euo pipefail\n" + "".join(f"{block}\necho\n" for block in blocks("sh"))
    bin_directory = Path(sys.executable).parent
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script.replace("http://127.0.0.1:7391", both.http_url),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}", "NO_PROXY": "*"},
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    decoder, left, answers = json.JSONDecoder(), printed.decode().strip(), []
    while left:
        answer, end = decoder.raw_decode(left)
        answers.append(answer)
        left = left[end:].strip()
    saved, loaded, listed, replayed, *verified, by_buf = answers
    ref = saved["ref"]
    assert ref["threadId"] == "report"
    assert [thread["threadId"] for thread in listed["threads"]] == ["report"]
    for checkpoint in (loaded["checkpoint"], replayed[0]["checkpoint"]):
        assert checkpoint["ref"] == ref
        (channel,) = checkpoint["state"]["channels"]
        assert channel["value"] == {"type": "json", "json": ["read", "write"]}
        assert checkpoint["metadata"] == {"source": "curl"}
    assert verified
    assert by_buf["checkpoint"]["ref"] == ref


@with_server
async def test_the_error_is_as_shown(both: Server) -> None:
    (shown,) = map(json.loads, blocks("json"))
    async with http_client(both.http_url) as http:
        answer = await http.post(
            "/tuskpoint.v1.ThreadService/GetThread",
            content=b'{"threadId": "none"}',
            headers={"content-type": "application/json"},
        )
    assert answer.status_code == 404
    assert answer.json() == shown


def test_the_numbers_are_those_of_the_code() -> None:
    assert LIMITS.max_message == 8 * MIB
    assert "at most 8 MiB of JSON" in PAGE
    assert f"| {MAX_LEVELS} arrays and objects inside one another |" in PAGE


def test_the_example_is_that_of_the_package() -> None:
    (shown,) = blocks("js")
    example = ROOT / "clients" / "typescript" / "examples" / "browser.js"
    assert shown in example.read_text("utf-8")
