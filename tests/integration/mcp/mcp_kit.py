"""The MCP server as a separate program, and the official client of the protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import jsonschema  # type: ignore[import-untyped]
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp_types import TextContent, Tool

from tests.kit.servers.forking import Forked
from tests.kit.servers.processes import STOP_SECONDS, await_line, own_environment
from tuskpoint.cli import main

PROGRAM = ("-m", "tuskpoint.cli", "mcp")
LISTENING = "tuskpoint mcp listening on "


class Caller:
    """Calls tools, and validates each result with the schema that the server announced."""

    def __init__(self, client: Client, tools: list[Tool]) -> None:
        self.client = client
        self.tools = {tool.name: tool for tool in tools}

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured content of a result."""
        result = await self.client.call_tool(name, arguments)
        [block] = result.content
        assert isinstance(block, TextContent)
        assert not result.is_error, block.text
        content: dict[str, Any] = json.loads(block.text)
        assert result.structured_content == content
        schema = self.tools[name].output_schema
        assert schema is not None
        jsonschema.validate(content, schema)
        return content

    async def refused(self, name: str, **arguments: Any) -> str:
        """Return the text of an error."""
        result = await self.client.call_tool(name, arguments)
        [block] = result.content
        assert isinstance(block, TextContent)
        assert result.is_error, block.text
        assert "Traceback" not in block.text
        return block.text


@asynccontextmanager
async def calling(server: Transport | str, mode: str = "auto") -> AsyncIterator[Caller]:
    """Connect to a server; a URL is streamable HTTP.

    `mode`: "auto" uses the newest version of the protocol, "legacy" an older version that starts
    with a handshake, as most applications do.
    """
    async with Client(server, mode=mode) as client:
        yield Caller(client, (await client.list_tools()).tools)


def over_stdio(target: str, *options: str, **env: str) -> Transport:
    """Return the parameters with which the client starts a server."""
    variables = environment(target, **env)
    args = [*PROGRAM, *options]
    return stdio_client(StdioServerParameters(command=sys.executable, args=args, env=variables))


def environment(target: str, **variables: str) -> dict[str, str]:
    """Return the environment of a server."""
    return {**own_environment(), "TUSKPOINT_TARGET": target, **variables}


@contextmanager
def over_http(
    target: str, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Forked]]:
    """Run a server on a free port; return its URL and its process."""
    process = program(target, "--http", "--listen", "127.0.0.1:0", *options, env=env)
    try:
        url = await_line(process.output, LISTENING)
        assert url is not None, "it did not listen"
        yield url, process
    finally:
        process.kill()
        process.wait(STOP_SECONDS)
        process.close()


def program(target: str, *options: str, env: Mapping[str, str] | None = None) -> Forked:
    """Start a server in a separate process, with pipes to its stdin and stdout."""
    return Forked(
        main,
        ["mcp", *options],
        environment(target, **(env or {})),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
