"""The MCP server supports the stateless revision, and revisions with a handshake."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.integration.mcp.mcp_kit import program
from tests.integration.mcp.test_mcp_program import HELLO, JSON_HEADERS
from tests.kit.servers.processes import STOP_SECONDS

STATELESS = "2026-07-28"
WITH_HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ABOUT_CLIENT = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
UNSUPPORTED, HEADER_MISMATCH = -32022, -32020


def request(method: str, meta: Mapping[str, Any] = ABOUT_CLIENT, **params: Any) -> dict[str, Any]:
    """Return a request of the stateless revision, which names its client and its revision."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": dict(meta)}}


def post(url: str, body: Mapping[str, Any], **headers: str) -> httpx.Response:
    """Send a request with the headers of the stateless revision."""
    routing = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": body["method"]}
    if "name" in body["params"]:
        routing["Mcp-Name"] = body["params"]["name"]
    sent = {**JSON_HEADERS, **routing, **headers}
    return httpx.post(url, json=body, headers=sent, trust_env=False)


def test_the_page_names_the_revisions() -> None:
    page = (Path(__file__).parents[3] / "docs" / "threads" / "mcp.md").read_text("utf-8")
    named = re.findall(r"`(20\d\d-\d\d-\d\d)`", page)
    assert sorted(named) == sorted((STATELESS, *WITH_HANDSHAKE))
    assert MODERN_PROTOCOL_VERSIONS == (STATELESS,)
    assert HANDSHAKE_PROTOCOL_VERSIONS == WITH_HANDSHAKE


def test_a_stateless_call_needs_no_handshake_and_no_session(url: str) -> None:
    answer = post(url, request("tools/call", name="thread_list", arguments={}))
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers
    result = answer.json()["result"]
    assert result["resultType"] == "complete"
    assert not result["isError"]
    assert "threads" in result["structuredContent"]
    listed = post(url, request("tools/list")).json()["result"]
    assert "thread_list" in {tool["name"] for tool in listed["tools"]}


def test_discover_names_the_stateless_revision(url: str) -> None:
    result = post(url, request("server/discover")).json()["result"]
    assert result["supportedVersions"] == [STATELESS]
    assert "tools" in result["capabilities"]
    assert "checkpoint_save" in result["instructions"]


def test_a_stateless_call_that_breaks_the_rules_is_refused(url: str) -> None:
    later = {**ABOUT_CLIENT, "io.modelcontextprotocol/protocolVersion": "2999-01-01"}
    answer = post(url, request("tools/list", later), **{"MCP-Protocol-Version": "2999-01-01"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == UNSUPPORTED
    assert STATELESS in error["data"]["supported"]
    answer = post(url, request("tools/list"), **{"Mcp-Method": "tools/call"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, HEADER_MISMATCH)
    answer = post(url, request("tools/forget"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("version", WITH_HANDSHAKE)
def test_older_revisions_begin_with_a_handshake(url: str, version: str) -> None:
    hello = {**HELLO, "params": {**HELLO["params"], "protocolVersion": version}}  # type: ignore[dict-item]
    answer = httpx.post(url, json=hello, headers=JSON_HEADERS, trust_env=False)
    assert answer.json()["result"]["protocolVersion"] == version
    assert "mcp-session-id" not in answer.headers
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": version}
    answer = httpx.post(url, json=call, headers=headers, trust_env=False)
    assert answer.json()["result"]["tools"]


def test_the_list_may_lack_the_schemas_of_results(target: str) -> None:
    for options, has_schemas in (((), True), (("--no-result-schemas",), False)):
        with program(target, *options) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request("tools/list")).encode() + b"\n")
            process.stdin.flush()
            tools = json.loads(process.stdout.readline())["result"]["tools"]
            assert {"outputSchema" in tool for tool in tools} == {has_schemas}
            process.kill()


def test_stdio_has_the_stateless_revision_too(target: str) -> None:
    bodies = (request("server/discover"), request("tools/call", name="thread_list", arguments={}))
    with program(target) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for body in bodies:
            process.stdin.write(json.dumps(body).encode() + b"\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline())["result"])
        process.stdin.close()
        assert process.wait(STOP_SECONDS) == 0
    assert answers[0]["supportedVersions"] == [STATELESS]
    assert "threads" in answers[1]["structuredContent"]
