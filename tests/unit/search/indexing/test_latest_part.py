"""The latest part of a long value is kept, as a value of the same type, for any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from tests.unit.core.json_view.kit import VALUES, as_json, extension_bytes, packed, show, stored
from tuskpoint_server.core.json_view.excerpts import join_values, latest_part, shares
from tuskpoint_server.core.model import Value


def kept(value: Value, maximum: int) -> Any:
    """Return the view of the latest part."""
    part = latest_part(value, maximum)
    assert part is not None
    assert part.type == value.type
    assert len(part.data) <= maximum + 8
    return show(part).content


KINDS = pytest.mark.parametrize("kind", [stored, as_json])


@KINDS
def test_a_short_value_is_not_changed(kind: Any) -> None:
    value = kind(["a", {"b": 1}])
    assert latest_part(value, len(value.data)) is value


@KINDS
def test_an_array_keeps_its_last_items(kind: Any) -> None:
    items = [f"item {number}" for number in range(1000)]
    part = kept(kind(items), 500)
    assert 30 < len(part) < 60
    assert part == items[-len(part) :]


@KINDS
def test_a_text_keeps_its_end(kind: Any) -> None:
    text = " ".join(f"wörd {number}" for number in range(1000))
    part = kept(kind(text), 500)
    assert 300 < len(part.encode()) <= 500
    assert text.endswith(part)


@KINDS
def test_the_last_item_is_shortened_if_it_alone_is_too_long(kind: Any) -> None:
    text = " ".join(f"word {number}" for number in range(1000))
    [part] = kept(kind(["first", text]), 500)
    assert text.endswith(part)


@KINDS
def test_an_object_keeps_its_members_each_shortened(kind: Any) -> None:
    thing = {"title": "A tusk", "log": ["line"] * 1000, "notes": "word " * 1000, "done": True}
    part = kept(kind(thing), 1000)
    assert list(part) == list(thing)
    assert (part["title"], part["done"]) == ("A tusk", True)
    assert len(part["log"]) > 40
    assert len(part["notes"]) > 150


def test_messages_of_langchain_stay_messages() -> None:
    messages = [HumanMessage(f"Question {number}", id=f"h-{number}") for number in range(100)]
    last = AIMessage("word " * 2000, id="a-1")
    kept_messages = kept(stored([*messages, last]), 2000)
    assert [message["$type"].rpartition(".")[2] for message in kept_messages] == ["AIMessage"]
    assert kept_messages[0]["content"].endswith("word word ")
    assert kept_messages[0]["id"] == "a-1"
    kept_messages = kept(stored([last, *messages]), 2000)
    assert kept_messages[-1]["content"] == "Question 99"
    assert len(kept_messages) > 3


@pytest.mark.parametrize(
    "value",
    [
        Value("bytes", b"x" * 100),
        Value("pickle", b"x" * 100),
        Value("msgpack", packed(b"x" * 100)),
        Value("msgpack", extension_bytes(99, b"x" * 100)),
        Value("msgpack", b"\xdd\xff\xff\xff\xff" + b"\x01" * 100),
        Value("json", b"[" * 100),
        Value("json", b'{"a": ' + b"1" * 5000 + b"}"),
    ],
    ids=lambda it: f"{it.type} {bytes(it.data[:4])!r}",
)
def test_a_value_that_cannot_be_shortened_has_no_latest_part(value: Value) -> None:
    assert latest_part(value, 50) is None


@given(VALUES, st.integers(0, 100))
@example(as_json("\N{GRINNING FACE}" * 20), 21)
@example(stored("é" * 100), 20)
def test_no_bytes_make_it_fail(value: Value, maximum: int) -> None:
    part = latest_part(value, maximum)
    if part is not None and part is not value:
        assert part.type == value.type
        shown = show(part).content
        assert not (isinstance(shown, dict) and "$opaque" in shown)


@given(st.lists(st.integers(0, 100)), st.integers(0, 300))
def test_no_share_is_more_than_is_wanted_or_there(sizes: list[int], room: int) -> None:
    allotted = shares(sizes, room)
    assert all(0 <= share <= size for share, size in zip(allotted, sizes, strict=True))
    assert sum(allotted) <= room
    if sum(sizes) <= room:
        assert allotted == sizes


def test_values_of_one_type_are_joined() -> None:
    whole, complete = join_values([stored("a"), stored(["b"])])
    assert whole is not None
    assert (show(whole).content, complete) == (["a", ["b"]], True)
    mixed, complete = join_values([stored("a"), as_json("b"), as_json(None)])
    assert mixed == Value("json", b'["b",null]')
    assert not complete
    assert join_values([]) == (None, True)
    assert join_values([Value("pickle", b"x")]) == (None, False)
