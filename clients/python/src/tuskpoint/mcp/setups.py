"""Set-ups of this server for the well-known MCP clients, for `tuskpoint_info`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from .results import Setup

NAME = "tuskpoint"

_SERVERS_OF = {
    "claude_desktop": "claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "windsurf": "~/.codeium/windsurf/mcp_config.json",
    "gemini_cli": "~/.gemini/settings.json",
    "generic": ".mcp.json",
}


def for_command(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Setup]:
    """Return the set-ups of a server that each client starts itself, over stdio.

    Args:
        command: The program and its arguments.
        environment: Environment variables of the program.
    """
    entry = {"command": command[0], "args": list(command[1:]), "env": dict(environment)}
    options = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    return {
        # Another option must stand between --env and the name, because --env accepts several
        # values.
        "claude_code": _shell(
            "claude", "mcp", "add", *options, "--transport", "stdio", NAME, "--", *command
        ),
        "codex_cli": _shell("codex", "mcp", "add", NAME, *options, "--", *command),
        "vscode": _file(".vscode/mcp.json", "servers", {"type": "stdio", **entry}),
        **{client: _file(where, "mcpServers", entry) for client, where in _SERVERS_OF.items()},
    }


def for_url(url: str) -> dict[str, Setup]:
    """Return the set-ups of a running server, over streamable HTTP."""
    keys = {"windsurf": {"serverUrl": url}, "gemini_cli": {"httpUrl": url}}
    return {
        "claude_code": _shell("claude", "mcp", "add", "--transport", "http", NAME, url),
        "codex_cli": _shell("codex", "mcp", "add", NAME, "--url", url),
        "vscode": _file(".vscode/mcp.json", "servers", {"type": "http", "url": url}),
        **{
            client: _file(where, "mcpServers", keys.get(client, {"type": "http", "url": url}))
            for client, where in _SERVERS_OF.items()
            if client != "claude_desktop"  # its file has only servers that it starts
        },
    }


def _shell(*words: str) -> Setup:
    return Setup(where="shell", text=shlex.join(words))


def _file(where: str, key: str, entry: Mapping[str, Any]) -> Setup:
    return Setup(where=where, text=json.dumps({key: {NAME: entry}}, indent=2))
