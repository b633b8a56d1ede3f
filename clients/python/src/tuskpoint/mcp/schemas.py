"""Schemas without redundant parts, because an application passes all of a schema to its model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mcp_types import Tool

Schema = dict[str, Any]

_MAPS = ("properties", "$defs")
_DEFINITION = "#/$defs/"


def concise(tool: Tool, *, has_result: bool = True) -> Tool:
    """Return a tool with schemas that accept the same values in fewer words.

    The schemas have no titles, which repeat names; no empty or null defaults; and no descriptions
    of types, which repeat the descriptions of members. A result may get more members in a later
    version, so its schema allows further members.

    Args:
        tool: The tool.
        has_result: Whether to return the schema of its result.
    """
    result = None
    if has_result and tool.output_schema is not None:
        result = _open(_inlined(_short(tool.output_schema)))
        result.pop("description", None)  # the description of the tool has the same text
    update = {"input_schema": _inlined(_short(tool.input_schema)), "output_schema": result}
    return tool.model_copy(update=update)


def described_once(tools: Iterable[Tool]) -> list[Tool]:
    """Return tools whose results describe a member only where it is first listed."""
    seen: set[tuple[object, str]] = set()
    return [
        tool
        if tool.output_schema is None
        else tool.model_copy(update={"output_schema": _described_once(tool.output_schema, seen)})
        for tool in tools
    ]


def _described_once(schema: Schema, seen: set[tuple[object, str]]) -> Schema:
    short = dict(schema)
    for place, inner in _inside(short):
        member = dict(place[inner])
        described = (inner, member.get("description", ""))
        if described in seen:
            member.pop("description", None)
        seen.add(described)
        place[inner] = _described_once(member, seen)
    return short


def _short(schema: Schema) -> Schema:
    """Return a schema without titles and empty defaults, with unions of types in one keyword."""
    short = {name: value for name, value in schema.items() if name != "title"}
    if short.get("default", ...) in ("", None):
        del short["default"]
    if short.get("additionalProperties") is True:
        del short["additionalProperties"]
    if "description" in short:
        short["description"] = " ".join(short["description"].split())
    for place, inner in _inside(short):
        place[inner] = _short(place[inner])
    for definition in short.get("$defs", {}).values():
        definition.pop("description", None)
    return _merged(short)


def _inside(schema: Schema) -> Iterator[tuple[Any, Any]]:
    """Yield the places of schemas inside a schema: copies of containers, and keys in them."""
    for name in _MAPS:
        if name in schema:
            schema[name] = dict(schema[name])
            for key in schema[name]:
                yield schema[name], key
    if "anyOf" in schema:
        schema["anyOf"] = list(schema["anyOf"])
        for number in range(len(schema["anyOf"])):
            yield schema["anyOf"], number
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield schema, name


def _merged(schema: Schema) -> Schema:
    """Return `anyOf` of one schema and of plain types as one schema with a list of types."""
    kinds = schema.get("anyOf", [])
    detailed = [kind for kind in kinds if kind.keys() != {"type"}]
    types = [kind.get("type") for kind in kinds]
    if not kinds or len(detailed) > 1 or not all(isinstance(name, str) for name in types):
        return schema
    merged = {**(detailed[0] if detailed else {}), **schema, "type": types}
    del merged["anyOf"]
    if "enum" in merged and "null" in types:
        merged["enum"] = [*merged["enum"], None]
    return merged


def _inlined(schema: Schema) -> Schema:
    """Return a schema in which definitions with one use replace their reference."""
    definitions: Mapping[str, Schema] = schema.get("$defs", {})
    uses = Counter(_references(schema))
    once = {name for name in definitions if uses[name] == 1}

    def placed(node: Any) -> Any:
        if isinstance(node, list):
            return [placed(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix(_DEFINITION)
        if name in once:
            others = {key: value for key, value in node.items() if key != "$ref"}
            return _merged(placed({**definitions[name], **others}))
        return _merged({key: placed(value) for key, value in node.items()})

    kept = {name: value for name, value in definitions.items() if name not in once}
    whole = {name: value for name, value in schema.items() if name != "$defs"}
    return placed({**whole, "$defs": kept} if kept else whole)  # type: ignore[no-any-return]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(_DEFINITION)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _open(schema: Schema) -> Schema:
    """Return a schema that allows further members of objects."""
    opened = {name: value for name, value in schema.items() if name != "additionalProperties"}
    if schema.get("additionalProperties"):
        opened["additionalProperties"] = schema["additionalProperties"]
    for place, inner in _inside(opened):
        place[inner] = _open(place[inner])
    return opened
