"""Only the new part of a value that grew is indexed, for any bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from tests.unit.core.json_view.kit import as_json, show, stored
from tuskpoint_server.core.json_view.excerpts import new_part
from tuskpoint_server.core.model import Value

KINDS = pytest.mark.parametrize("kind", [stored, as_json])


def new(kind: Any, before: Any, after: Any) -> Any:
    """Return the view of the new part."""
    part = new_part(kind(after), kind(before))
    assert part.type == kind(after).type
    return show(part).content


@KINDS
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["a"], ["a", "b", "c"], ["b", "c"]),
        ([], ["a"], ["a"]),
        (["a"] * 20, ["a"] * 20 + ["b"], ["b"]),
        (["a", "b"], ["b", "c"], ["b", "c"]),
        (["a", "b"], ["a"], ["a"]),
        ("one two", "one two three", " two three"),
        ("one tw", "one two", " two"),
        ("one", "other", "other"),
        ({"a": 1, "b": ["x"]}, {"a": 1, "b": ["x", "y"], "c": 2}, {"b": ["y"], "c": 2}),
        ({"a": {"b": "one"}}, {"a": {"b": "one two"}}, {"a": {"b": "one two"}}),
        (["a"], {"a": 1}, {"a": 1}),
        (1, 2, 2),
    ],
)
def test_items_that_were_there_before_are_left_out(
    kind: Any, before: Any, after: Any, expected: Any
) -> None:
    assert new(kind, before, after) == expected


def test_messages_are_distinguished() -> None:
    said: list[object] = [HumanMessage("When does it start?")]
    grown = [*said, AIMessage("At nine.")]
    view = json.dumps(new(stored, said, grown))
    assert "At nine." in view
    assert "start" not in view


def test_a_value_of_another_type_is_new() -> None:
    value = as_json(["a"])
    assert new_part(value, stored(["a"])) is value


def test_an_array_with_a_false_length_is_new() -> None:
    """The earlier bytes may be cut off: they announce three items and contain one."""
    value, before = Value("msgpack", b"\x92\x01\x02"), Value("msgpack", b"\x93\x01")
    assert new_part(value, before) == value


@pytest.mark.parametrize("kind", ["msgpack", "json", "bytes"])
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_no_bytes_make_it_fail(kind: str, after: bytes, before: bytes) -> None:
    part = new_part(Value(kind, after), Value(kind, before))
    assert part.type == kind
    show(part)


@given(st.lists(st.integers() | st.text()), st.lists(st.integers() | st.text(), min_size=1))
def test_the_new_part_is_the_added_items(before: list[Any], more: list[Any]) -> None:
    assert new(as_json, before, before + more) == show(as_json(more)).content
