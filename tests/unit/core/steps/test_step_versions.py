"""What the versions of a state say about the step that led to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint_server.core.steps.versions import (
    MAX_NAME,
    MAX_NAMES,
    NOTHING,
    Versions,
    listed,
    node_of,
    started_node,
)

Version = str | int | float


def version(number: Version) -> value_pb2.Version:
    if isinstance(number, str):
        return value_pb2.Version(text=number)
    if isinstance(number, int):
        return value_pb2.Version(integer=number)
    return value_pb2.Version(number=number)


def state(
    channels: Mapping[str, Version | None],
    seen: Mapping[str, Mapping[str, Version]] | None = None,
    *,
    updated: list[str] | None = None,
    empty: tuple[str, ...] = (),
    schema: int = 4,
) -> Versions:
    """Return a state whose channels have these versions, and values unless they are `empty`."""
    message = checkpoint_pb2.CheckpointState(schema_version=schema)
    for name, number in channels.items():
        digest = b"" if name in empty else b"d" * 32
        channel = message.channels.add(name=name, digest=digest)
        if number is not None:
            channel.version.CopyFrom(version(number))
    for node, versions in (seen or {}).items():
        message.versions_seen[node].SetInParent()
        for name, number in versions.items():
            message.versions_seen[node].channels[name].CopyFrom(version(number))
    if updated is not None:
        message.updated_channels.names.extend(updated)
        message.updated_channels.SetInParent()
    before = message.SerializeToString(deterministic=True)
    facts = Versions(message)
    next_nodes(facts)
    assert message.SerializeToString(deterministic=True) == before
    return facts


def next_nodes(facts: Versions) -> list[tuple[str, str]]:
    return [(trigger.node, trigger.awaited) for trigger in facts.triggers]


def text(number: int) -> str:
    return f"{number:032}.{number / 7:.16f}"


KINDS = pytest.mark.parametrize("of", [text, int, float, str], ids=["text", "int", "float", "str"])


@KINDS
def test_a_node_ran_if_it_has_seen_newer_versions_than_before(of: Any) -> None:
    parent = state({"log": of(8), "branch:to:b": of(9)}, {"a": {"branch:to:a": of(8)}, "b": {}})
    child = state(
        {"log": of(10), "note": of(3)},
        {
            "a": {"branch:to:a": of(8)},
            "b": {"branch:to:b": of(9)},
            "c": {"branch:to:c": of(2)},
            "d": {},
            "__start__": {"__start__": of(9)},
            "__input__": {},
        },
    )
    assert child.ran_since(parent) == {"b", "c"}
    assert child.ran_since(NOTHING) == {"a", "b", "c"}
    assert child.ran_since(None) == {"b"}
    assert parent.ran_since(child) == set()


def test_a_rollback_runs_nothing() -> None:
    head = state({"log": text(9)}, {"a": {"x": text(8)}, "b": {"x": text(7)}})
    earlier = state({"log": text(3)}, {"a": {"x": text(2)}})
    assert earlier.ran_since(head) == set()
    assert earlier.changed_since(head) == {"log"}


@KINDS
def test_a_channel_changed_if_its_version_did(of: Any) -> None:
    parent = state({"log": of(8), "note": of(2), "kept": of(1)})
    child = state(
        {
            "log": of(9),
            "note": of(2),
            "kept": of(1),
            "new": of(9),
            "unset": None,
            "__pregel_tasks": of(9),
            "branch:to:a": of(9),
            "join:a+b:c": of(9),
            "start:a": of(9),
            "__start__": of(9),
        },
        updated=["something else"],
    )
    assert child.changed_since(parent) == {"log", "new"}
    assert parent.changed_since(child) == {"log", "new"}
    assert child.changed_since(child) == set()


def test_without_the_parent_a_state_names_what_it_updated_itself() -> None:
    named = state({"log": text(9), "note": text(9)}, updated=["log", "branch:to:a"])
    assert named.changed_since(None) == {"log"}
    assert state({"log": text(9)}, updated=[]).changed_since(None) == set()
    unnamed = state({"log": 9, "note": 9, "old": 8, "unset": None})
    assert unnamed.changed_since(None) == {"log", "note"}
    assert state({"unset": None}).changed_since(None) == set()
    assert state({}).changed_since(NOTHING) == set()


@KINDS
def test_nodes_come_next_that_have_not_seen_the_newest_version(of: Any) -> None:
    facts = state(
        {
            "branch:to:new": of(9),
            "branch:to:seen": of(9),
            "branch:to:again": of(10),
            "branch:to:empty": of(9),
            "join:a+b:both": of(9),
            "join:a+b:seen": of(9),
            "join:a:b:c": of(9),
            "log": of(9),
            "start:x": of(9),
        },
        {
            "seen": {"branch:to:seen": of(9), "join:a+b:seen": of(9)},
            "again": {"branch:to:again": of(9)},
            "both": {"branch:to:both": of(9)},
        },
        empty=("branch:to:empty",),
    )
    assert next_nodes(facts) == [("new", ""), ("again", ""), ("both", "a+b"), ("c", "a:b")]


def test_sends_need_a_value() -> None:
    assert state({"__pregel_tasks": 3}).sends is not None
    assert state({"__pregel_tasks": 3}, empty=("__pregel_tasks",)).sends is None
    assert state({"__pregel_tasks_of_mine": 3}).sends is None


@pytest.mark.parametrize("schema", [1, 2])
def test_an_old_state_does_not_name_the_next_nodes(schema: int) -> None:
    channels = {"start:a": 1, "branch:to:b": 4, "branch:a:route:b": 4, "a": 3, "log": 4, "b": 4}
    facts = state(channels, {"a": {"start:a": 1}, "b": {"branch:a:route:b": 3}}, schema=schema)
    assert next_nodes(facts) == []
    assert facts.changed_since(None) == {"log"}
    assert facts.ran_since(None) == {"b"}


@pytest.mark.parametrize(
    "number",
    ["", "x", "-1", "٣", "1e3", "9" * 512, 2**63 - 1, -(2**63), 1e308, -0.0, "1.2.3"],
)
def test_any_version_is_read(number: Version) -> None:
    facts = state(
        {"log": number, "branch:to:a": number, "join:a+b:c": number}, {"a": {"branch:to:a": number}}
    )
    assert next_nodes(facts) == [("c", "a+b")]
    for parent in (None, NOTHING, facts, state({"log": "1"}, {"a": {"branch:to:a": "1"}})):
        assert facts.ran_since(parent) <= {"a"}
        assert facts.changed_since(parent) <= {"log"}


def test_a_list_has_few_and_short_names() -> None:
    names = [f"{number:03}" for number in range(MAX_NAMES + 9)]
    assert listed(reversed(names)) == tuple(names[:MAX_NAMES])
    assert listed(["b", "x" * (MAX_NAME + 1), "a"]) == ("a", "b")


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("~__pregel_pull, agent", "agent"),
        ("~__pregel_pull, one, two", "one, two"),
        ("~__pregel_pull, __start__", ""),
        ("~__pregel_pull, agent, node_error_handler, 0000000000", ""),
        ("~__pregel_pull", ""),
        ("~__pregel_push, 0000000001, 0000000000", "read"),
        ("~__pregel_push, 0000000002, 0000000000", ""),
        ("~__pregel_push, 0000000001, node_error_handler, 0000000000", ""),
        ("~__pregel_push, ~__pregel_pull, flow, 0000000001, 0000000001", ""),
        ("~__pregel_push, -1", ""),
        ("~__pregel_push, ²", ""),
        ("~__pregel_push, " + "9" * 2000, ""),
        ("~__pregel_push", ""),
        ("something else", ""),
        ("~__pregel_pull, " + "x" * (MAX_NAME + 1), ""),
    ],
)
def test_a_path_names_the_node_of_a_task(path: str, node: str) -> None:
    assert node_of(path, {1: "read"}, ["upcoming"]) == node
    is_pull = path.startswith("~__pregel_pull, ")
    assert (started_node(path)[:MAX_NAME] == node[:MAX_NAME]) or not is_pull or len(path) > MAX_NAME


def test_a_task_without_a_path_is_the_only_node_that_starts() -> None:
    assert node_of("", {}, {"agent"}) == "agent"
    assert node_of("", {}, {"agent", "other"}) == ""
    assert node_of("", {}, ()) == ""
    assert started_node("") == ""
