"""MCP server: its tools, how results and errors are sent, and stdio."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from .. import __version__
from ..aio import AsyncClient
from ..errors import TuskPointError, Unavailable
from .reading import moment
from .results import Info, Result, Setup, ToolSummary, TuskPointServer
from .schemas import concise, described_once
from .tools import checkpoints, effects, lineage, threads

NAME = "tuskpoint"
_INSTRUCTIONS = (
    "TuskPoint keeps the state of AI agents as checkpoints of threads. Save with checkpoint_save, "
    "continue with checkpoint_resume, and load any earlier checkpoint exactly with "
    "checkpoint_load. Nothing is overwritten: a rollback appends, a fork starts a new thread. "
    "thread_waiting lists agents that wait for a person; give thread_answer only what the person "
    "said. Long states are cut; the result says how to read on."
)
_NOTES = [
    "Set TUSKPOINT_TARGET to the address of the TuskPoint server, and TUSKPOINT_TOKEN_FILE to a "
    "file with a token if it requires one.",
    "A client that does not find the program needs its absolute path.",
]
_HINTS: Mapping[str, str] = {
    "THREAD_NOT_FOUND": "thread_list lists the threads",
    "CHECKPOINT_NOT_FOUND": "checkpoint_list lists the checkpoints of a thread, thread_list the "
    "threads",
    "THREAD_EXISTS": "choose another new_thread_id",
    "HANDOFF_NOT_FOUND": "handoff_list lists the offers",
    "HANDOFF_CLOSED": "adopt another offer of handoff_list",
    "HEAD_MOVED": "another agent saved: load the latest with checkpoint_resume and decide again",
    "THREAD_DELETED": "save again without expected_head to begin a new thread of that name",
    "CREDENTIAL_INVALID": "the operator of this MCP server sets TUSKPOINT_TOKEN or "
    "TUSKPOINT_TOKEN_FILE to a valid token",
    "SCOPE_MISSING": "the operator of this MCP server gives it a token with that scope",
    "BLOB_UNAVAILABLE": "try again later; saves and loads continue meanwhile",
}
"""Advice for callers of tools about a reason, if the service's own message cannot know it."""

_READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_STORES = _ADDS.model_copy(update={"idempotent_hint": True})
_DECIDES = _ADDS.model_copy(update={"destructive_hint": True})

_log = logging.getLogger("tuskpoint.mcp")

Transport = Literal["stdio", "streamable-http"]
ToolFunction = Callable[Concatenate[AsyncClient, ...], Awaitable[Result]]

_TOOLS: Mapping[ToolFunction, tuple[str, ToolAnnotations]] = {
    checkpoints.checkpoint_save: ("Save a checkpoint", _ADDS),
    checkpoints.checkpoint_load: ("Load a checkpoint", _READS),
    checkpoints.checkpoint_list: ("List checkpoints", _READS),
    checkpoints.checkpoint_resume: ("Resume a thread", _READS),
    checkpoints.checkpoint_diff: ("Compare checkpoints", _READS),
    checkpoints.checkpoint_search: ("Search checkpoints", _READS),
    lineage.checkpoint_fork: ("Fork a checkpoint", _ADDS),
    lineage.checkpoint_rollback: ("Roll a thread back", _DECIDES),
    lineage.handoff_checkpoint: ("Hand a checkpoint off", _STORES),
    lineage.handoff_list: ("List offered hand-offs", _READS),
    lineage.adopt_checkpoint: ("Adopt a hand-off", _ADDS),
    lineage.verify_trail: ("Verify a thread", _READS),
    threads.thread_list: ("List threads", _READS),
    threads.thread_waiting: ("List waiting threads", _READS),
    threads.thread_answer: ("Answer a question", _DECIDES),
    threads.thread_history: ("Show what happened", _READS),
    effects.effect_list: ("List effects", _READS),
}
"""Tools: their titles, and hints for clients before a call.

A rollback and an answer count as destructive: they remove nothing, but change what an agent does.
"""


@dataclass(frozen=True, slots=True)
class Access:
    """Ways in which clients reach this server, for `tuskpoint_info`.

    Attributes:
        transport: The transport.
        setups: Maps each MCP client to its set-up.
    """

    transport: Transport
    setups: Mapping[str, Setup]


class _Server(MCPServer):
    """A server whose tools are listed with concise schemas."""

    has_result_schemas = True

    async def list_tools(self) -> list[Tool]:
        """Return the tools in the form that applications get."""
        tools = await super().list_tools()
        return described_once(concise(tool, has_result=self.has_result_schemas) for tool in tools)


def make_server(
    client: AsyncClient, access: Access, *, has_result_schemas: bool = True
) -> MCPServer:
    """Return a server with all tools.

    Args:
        client: Client that the tools use. Its server need not run yet.
        access: Ways in which clients reach the MCP server.
        has_result_schemas: Whether the list of tools contains the schemas of results.
    """
    server = _Server(
        NAME,
        title="TuskPoint",
        instructions=_INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
    )
    server.has_result_schemas = has_result_schemas
    for function, (title, hints) in _TOOLS.items():
        server.add_tool(_tool(function, client), title=title, annotations=hints)

    async def tuskpoint_info(client: AsyncClient) -> Info:
        """Describe this server, the TuskPoint server behind it, and how MCP clients get it."""
        described, problem = await _described(client)
        tools = await server.list_tools()
        return Info(
            name=NAME,
            version=__version__,
            transport=access.transport,
            target=client.target,
            server=described,
            problem=problem,
            tools=[
                ToolSummary(name=tool.name, summary=(tool.description or "").partition("\n")[0])
                for tool in tools
            ],
            connect=dict(access.setups),
            notes=_NOTES,
        )

    server.add_tool(_tool(tuskpoint_info, client), title="Describe TuskPoint", annotations=_READS)
    return server


async def _described(client: AsyncClient) -> tuple[TuskPointServer | None, str]:
    try:
        info = await client.info()
    except TuskPointError as error:
        return None, _said(error)
    return (
        TuskPointServer(
            version=info.version,
            blob_backend=info.blob_backend,
            journal_backend=info.journal_backend,
            search_modes=list(info.search_modes),
            started=moment(info.started),
        ),
        "",
    )


def _tool(function: ToolFunction, client: AsyncClient) -> Callable[..., Awaitable[CallToolResult]]:
    """Return a tool function for the server: without the client, and with errors for callers."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]
    returned = Annotated[CallToolResult, signature.return_annotation]

    @functools.wraps(function)
    async def call(**arguments: Any) -> CallToolResult:
        try:
            return _sent(await function(client, **arguments))
        except TuskPointError as error:
            raise ToolError(_said(error)) from error
        except ToolError:
            raise
        except Exception as error:
            _log.exception("%s failed", function.__name__)
            raise ToolError("a bug in tuskpoint mcp: its log has the details") from error

    call.__doc__ = inspect.getdoc(function)  # the tool's description, without indentation
    call.__signature__ = inspect.Signature(own, return_annotation=returned)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in own} | {
        "return": returned
    }
    return call


def _sent(result: Result) -> CallToolResult:
    """Return a result in the form that is sent.

    The text is the structured content as compact JSON: the SDK's own text is indented, and longer.
    """
    return CallToolResult(
        content=[TextContent(type="text", text=result.model_dump_json(by_alias=True))],
        structured_content=result.model_dump(mode="json", by_alias=True),
    )


def _said(error: TuskPointError) -> str:
    """Return an error of the client for a caller of tools: what happened, why, and what to do."""
    text = error.message.rstrip(". ")
    if error.reason:
        text += f" (reason: {error.reason})"
    hint = _HINTS.get(error.reason, "")
    if not hint and error.retry_after_s is not None:
        hint = f"try again in {error.retry_after_s:g} seconds"
    elif not hint and not error.reason and isinstance(error, Unavailable):
        hint = "then call the tool again; this MCP server need not be restarted"
    return f"{text}; {hint}" if hint else text
