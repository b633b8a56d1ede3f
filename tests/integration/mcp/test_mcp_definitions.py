"""The definitions of the tools are short, and have every parameter and every member."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import Tool

from tuskpoint import AsyncClient
from tuskpoint.mcp.schemas import concise
from tuskpoint.mcp.server import Access, make_server

ACCESS = Access("stdio", {})
GIVEN_TO_MODELS = ("name", "title", "description", "inputSchema", "annotations")
MAX_BYTES = 15_000
MAX_BYTES_WITH_RESULTS = 28_000

PARAMETERS = {
    "checkpoint_save": "thread_id state_json summary? label? agent_id? expected_head? durability?",
    "checkpoint_load": "thread_id checkpoint_id? checkpoint_ns? channel? offset? max_chars?",
    "checkpoint_list": "thread_id limit? before? label? checkpoint_ns?",
    "checkpoint_resume": "thread_id max_chars?",
    "checkpoint_diff": "thread_id id_a id_b checkpoint_ns? max_chars?",
    "checkpoint_search": "query limit? thread_id? agent_id?",
    "checkpoint_fork": "source_thread_id source_checkpoint_id new_thread_id",
    "checkpoint_rollback": "thread_id checkpoint_id expected_head?",
    "handoff_checkpoint": "thread_id checkpoint_id to_agent? recipient? expires_in_s?",
    "handoff_list": "to_agent? state? limit?",
    "adopt_checkpoint": "handoff_json new_thread_id",
    "verify_trail": "thread_id limit?",
    "thread_list": "agent_id? state? label? limit? after?",
    "thread_waiting": "thread_id? agent_id? limit? after? max_chars?",
    "thread_answer": "thread_id answer_json interrupt_id? checkpoint_id?",
    "thread_history": "thread_id cursor? limit?",
    "effect_list": "thread_id state? limit?",
    "tuskpoint_info": "",
}
"""Parameters of every tool; `?` marks the optional parameters."""

VALUES: tuple[Any, ...] = (
    None, "", "x", "idle", "journaled", 0, 1, 5, 101, 20_000, 10**9, 1.5, True, [], {}, {"a": 1},
)  # fmt: skip


@pytest.fixture
def server() -> MCPServer:
    return make_server(cast(AsyncClient, None), ACCESS)


def size(tools: Iterable[Tool], members: Iterable[str] | None = None) -> int:
    """Return the size of tools as JSON, with all their members or with these members."""
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    if members is not None:
        listed = [{name: tool[name] for name in members} for tool in listed]
    return len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode())


async def test_the_definitions_are_short(server: MCPServer) -> None:
    tools = await server.list_tools()
    assert size(tools, GIVEN_TO_MODELS) < MAX_BYTES
    assert size(tools) < MAX_BYTES_WITH_RESULTS
    short = make_server(cast(AsyncClient, None), ACCESS, has_result_schemas=False)
    assert size(await short.list_tools()) < MAX_BYTES
    page = (Path(__file__).parents[3] / "docs" / "threads" / "mcp.md").read_text("utf-8")
    assert f"less than {MAX_BYTES // 1000} kB of JSON" in page
    assert f"less than {MAX_BYTES_WITH_RESULTS // 1000} kB" in page


async def test_every_parameter_is_there_and_described(server: MCPServer) -> None:
    tools = {tool.name: tool for tool in await server.list_tools()}
    assert tools.keys() == PARAMETERS.keys()
    for name, tool in tools.items():
        properties = tool.input_schema["properties"]
        required = tool.input_schema.get("required", [])
        announced = [key if key in required else f"{key}?" for key in properties]
        assert " ".join(announced) == PARAMETERS[name]
        assert all(schema["description"] for schema in properties.values()), name
        assert all(schema["type"] for schema in properties.values()), name


def accepts(schema: dict[str, Any], value: Any) -> bool:
    return bool(jsonschema.validators.validator_for(schema)(schema).is_valid(value))


async def test_concise_schemas_accept_what_the_full_ones_accept(server: MCPServer) -> None:
    shown = await server.list_tools()
    full = await MCPServer.list_tools(server)  # the definitions before they are shortened
    for short, long in zip(shown, full, strict=True):
        assert size([short]) < size([long])
        properties = long.input_schema["properties"]
        base = dict.fromkeys(long.input_schema.get("required", []), "x")
        for key in properties:
            for value in VALUES:
                sent = {**base, key: value}
                assert accepts(short.input_schema, sent) == accepts(long.input_schema, sent), sent
        for key in base:
            sent = {name: value for name, value in base.items() if name != key}
            assert not accepts(short.input_schema, sent)


async def test_the_schemas_of_results_have_every_member(server: MCPServer) -> None:
    shown = await server.list_tools()
    full = await MCPServer.list_tools(server)
    for short, long in zip(shown, full, strict=True):
        assert short.output_schema is not None
        assert long.output_schema is not None
        assert members(short.output_schema) == members(long.output_schema)


async def test_a_member_of_results_is_described_once(server: MCPServer) -> None:
    counts = Counter(
        (name, description)
        for tool in await server.list_tools()
        for name, description in described(tool.output_schema)
    )
    assert counts["blob_id", "Null until the checkpoint is certified."] == 1
    assert not [member for member, count in counts.items() if count > 1]


def described(node: Any) -> Iterable[tuple[str, str]]:
    """Yield the name and the description of each member that has one."""
    if isinstance(node, list):
        for item in node:
            yield from described(item)
    elif isinstance(node, dict):
        for name, member in node.get("properties", {}).items():
            if "description" in member:
                yield name, member["description"]
        for inner in node.values():
            yield from described(inner)


def members(schema: dict[str, Any]) -> set[str]:
    """Return the names of all members, with the names of the objects above them."""

    def walk(node: Any, path: str) -> Iterable[str]:
        if isinstance(node, list):
            for item in node:
                yield from walk(item, path)
        elif isinstance(node, dict):
            if "$ref" in node:
                yield from walk(schema["$defs"][node["$ref"].rpartition("/")[2]], path)
            required = node.get("required", [])
            for name, member in node.get("properties", {}).items():
                yield f"{path}.{name}{'' if name in required else '?'}"
                yield from walk(member, f"{path}.{name}")
            for key in ("items", "anyOf", "additionalProperties"):
                yield from walk(node.get(key), path)

    return set(walk(schema, ""))


def test_what_a_concise_schema_keeps() -> None:
    either: list[dict[str, Any]] = [
        {"type": "array", "items": {}},
        {"enum": [1], "type": "integer"},
    ]
    tool = Tool(
        name="t",
        input_schema={
            "$defs": {
                "Once": {"description": "A once.", "type": "object", "title": "Once"},
                "Twice": {"type": "object", "properties": {"title": {"title": "T"}}},
            },
            "properties": {
                "title": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "default": {"default": 5, "type": "integer", "minimum": 1},
                "once": {"anyOf": [{"$ref": "#/$defs/Once"}, {"type": "null"}]},
                "pair": {"items": {"$ref": "#/$defs/Twice"}, "additionalProperties": True},
                "other": {"$ref": "#/$defs/Twice"},
                "either": {"anyOf": either},
            },
            "type": "object",
        },
    )
    assert concise(tool).input_schema == {
        "$defs": {"Twice": {"type": "object", "properties": {"title": {}}}},
        "properties": {
            "title": {"type": ["string", "null"]},
            "default": {"default": 5, "type": "integer", "minimum": 1},
            "once": {"type": ["object", "null"]},
            "pair": {"items": {"$ref": "#/$defs/Twice"}},
            "other": {"$ref": "#/$defs/Twice"},
            "either": {"anyOf": either},
        },
        "type": "object",
    }
