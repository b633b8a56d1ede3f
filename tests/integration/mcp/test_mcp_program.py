"""The program `tuskpoint mcp` prints, serves, refuses and ends as documented."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import cast

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.integration.access.tls_kit import running_secure_server
from tests.integration.cli.command_line.kit import run
from tests.integration.mcp.mcp_kit import (
    Caller,
    calling,
    environment,
    over_http,
    over_stdio,
    program,
)
from tests.kit.servers.processes import STOP_SECONDS, ServerProcess
from tuskpoint import AsyncClient
from tuskpoint.mcp.server import Access, make_server

TOKEN = "0123456789abcdef-of-clients"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
JSON_HEADERS = {"Accept": "application/json, text/event-stream"}


async def test_it_starts_before_its_server_and_needs_no_restart(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as server:
        async with calling(over_stdio(server.target)) as call:
            said, info = await asyncio.gather(
                call.refused("checkpoint_save", thread_id="t", state_json="{}"),
                call("tuskpoint_info"),
            )
            assert f"no TuskPoint server answers at {server.target}" in said
            assert "call the tool again" in said
            assert info["server"] is None
            assert "TUSKPOINT_TARGET" in info["problem"]
            server.start()
            assert (await call("checkpoint_save", thread_id="t", state_json="{}"))["checkpoint_id"]


def test_stdout_has_only_the_protocol_and_the_end_of_stdin_ends_it(target: str) -> None:
    lines = "".join(
        json.dumps(message) + "\n"
        for message in (
            HELLO,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "checkpoint_load", "arguments": {"thread_id": "no such"}},
            },
        )
    )
    with program(target) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines.encode())
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(STOP_SECONDS) == 0
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["isError"]


def test_ctrl_c_ends_it(target: str) -> None:
    with program(target) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_SECONDS) == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_over_http_it_stops_cleanly(target: str, number: signal.Signals) -> None:
    with over_http(target) as (url, process):
        assert httpx.post(url, json=HELLO, headers=JSON_HEADERS, trust_env=False).is_success
        process.send_signal(number)
        assert process.wait(STOP_SECONDS) == 0


def test_with_json_the_first_line_is_an_object_with_its_url(target: str) -> None:
    with program(target, "--http", "--listen", "127.0.0.1:0", "--json") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert httpx.post(url, json=HELLO, headers=JSON_HEADERS, trust_env=False).is_success
        process.kill()


def test_pages_of_other_sites_do_not_get_in(url: str) -> None:
    def status(**headers: str) -> int:
        sent_headers = {**JSON_HEADERS, **headers}
        return httpx.post(url, json=HELLO, headers=sent_headers, trust_env=False).status_code

    assert status() == 200
    assert status(Host="rebound.example") == 421
    assert status(Origin="https://rebound.example") == 403
    assert status(Origin="https://localhost:8443") == 200


def test_a_taken_port_is_said_on_one_line(target: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = run(target, "mcp", "--http", "--listen", address)
    assert done.code == 4
    assert done.out == ""
    [line] = done.errors.splitlines()
    assert line.startswith(f"error: cannot listen on {address}: Address already in use: choose")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    return file


REFUSED = [
    ("--listen 127.0.0.1:1", "are options of --http"),
    ("--insecure-plaintext", "are options of --http"),
    ("--http --listen 7395", "--listen is HOST:PORT"),
    ("--http --listen ::1:7395", "write the IPv6 address as [::1]:7395"),
    ("--http --listen 0.0.0.0:0", "give --serve-token-file"),
    ("--http --listen 0.0.0.0:0 --serve-token-file TOKEN", "or add --insecure-plaintext"),
    (
        "--http --listen 0.0.0.0:0 --serve-token-file TOKEN --insecure-plaintext",
        "give --serve-host NAME",
    ),
    ("--http --serve-cert-file TOKEN", "need each other"),
    ("--http --serve-token-file missing", "'missing' cannot be read"),
    ("--http --serve-token-file SHORT", "can be guessed"),
    ("--http --serve-cert-file TOKEN --serve-key-file TOKEN", "cannot be used"),
    ("--timeout 0", "--timeout is a number of seconds above 0"),
    ("--token-file missing", "'missing' cannot be read"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_what_was_not_meant_is_refused(
    target: str, token_file: Path, tmp_path: Path, line: str, words: str
) -> None:
    short = tmp_path / "short"
    short.write_text("secret")
    options = line.replace("TOKEN", str(token_file)).replace("SHORT", str(short)).split()
    done = run(target, "mcp", *options)
    assert done.code == 2
    assert done.out == ""
    [error] = done.errors.splitlines()
    assert words in error


async def test_other_machines_need_the_token(target: str, token_file: Path) -> None:
    options = (
        *("--listen", "0.0.0.0:0", "--serve-host", "127.0.0.1"),
        *("--serve-token-file", str(token_file), "--insecure-plaintext"),
    )
    with over_http(target, *options) as (listening, _):
        url = listening.replace("0.0.0.0", "127.0.0.1")
        async with httpx2.AsyncClient(headers=JSON_HEADERS, trust_env=False) as http:
            for authorization in ("", f"Bearer {TOKEN}x", TOKEN):
                refused = await http.post(url, json=HELLO, headers={"Authorization": authorization})
                assert refused.status_code == 401
                assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            call = Caller(client, (await client.list_tools()).tools)
            assert (await call("tuskpoint_info"))["server"]


async def test_it_calls_with_tls_and_a_token_and_serves_https(tmp_path: Path) -> None:
    with running_secure_server(tmp_path / "secure") as server:
        made = server.certificates
        options = ("--ca-file", str(made.ca), "--tls")
        async with calling(over_stdio(server.target, *options)) as call:
            said = await call.refused("checkpoint_save", thread_id="t", state_json="{}")
            assert "CREDENTIAL_INVALID" in said
            assert "TUSKPOINT_TOKEN_FILE" in said
        reader = {"TUSKPOINT_TOKEN": server.tokens["reader"]}
        async with calling(over_stdio(server.target, *options, **reader)) as call:
            assert (await call("thread_list"))["threads"] == []
            said = await call.refused("checkpoint_save", thread_id="t", state_json="{}")
            assert "SCOPE_MISSING" in said
        serving = ("--serve-cert-file", str(made.cert), "--serve-key-file", str(made.key))
        writer = {"TUSKPOINT_TOKEN": server.tokens["writer"]}
        with over_http(server.target, *options, *serving, env=writer) as (url, _):
            assert url.startswith("https://127.0.0.1:")
            trusted = ssl.create_default_context(cafile=str(made.ca))
            async with (
                httpx2.AsyncClient(verify=trusted, trust_env=False) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                call = Caller(client, (await client.list_tools()).tools)
                assert await call("checkpoint_save", thread_id="t", state_json="{}")


async def test_a_defect_goes_to_the_log_and_not_to_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_client = cast(AsyncClient, "a secret")
    async with Client(make_server(no_client, Access("stdio", {}))) as client:
        result = await client.call_tool("thread_list", {})
    [block] = result.content
    assert result.is_error
    assert isinstance(block, TextContent)
    assert block.text == (
        "Error executing tool thread_list: a bug in tuskpoint mcp: its log has the details"
    )
    assert "AttributeError: 'str' object has no attribute 'list_threads'" in caplog.text


def test_without_the_package_it_says_what_to_install(target: str) -> None:
    lacking = (
        "import sys; sys.modules['mcp'] = None; from tuskpoint.cli import main; "
        "sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", lacking],
        capture_output=True,
        text=True,
        env=environment(target),
        timeout=STOP_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "pip install 'tuskpoint[mcp]'" in line
