"""The JSON view shows every value, in a form that has one reading."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import json
import math
import pathlib
import re
import struct
import uuid
from collections import deque
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from tests.unit.core.json_view.kit import (
    JSON_LIKE,
    MSGPACK_LIKE,
    SERDE,
    extension,
    extension_bytes,
    packed,
    stored,
    value_view,
    view,
)
from tuskpoint_server.core.json_view.escapes import MAX_EXACT
from tuskpoint_server.core.model import Value


def view_of(thing: Any) -> Any:
    return view(stored(thing))


# --- values with and without a form in JSON --------------------------------------------------


def unescaped(shown: Any) -> Any:
    """Return the value that a view shows: the documentation's rules, read backwards."""
    if isinstance(shown, list):
        return [unescaped(item) for item in shown]
    if not isinstance(shown, dict):
        return shown
    if len(shown) == 1:
        ((key, held),) = shown.items()
        if key == "$int":
            return int(held)
        if key in ("$float", "$number"):
            return float(held)
        if key == "$bytes":
            return base64.b64decode(held, validate=True)
        if key == "$map":
            return {unescaped(pair[0]): unescaped(pair[1]) for pair in held}
    assert not any(re.match(r"\$[^$]", key) for key in shown), shown
    return {key.removeprefix("$"): unescaped(value) for key, value in shown.items()}


@given(MSGPACK_LIKE)
@example({1: "one", "1": "text"})
@example({True: 1, "$a": {None: b"\xff"}})
@example([MAX_EXACT, MAX_EXACT + 1, -MAX_EXACT, -MAX_EXACT - 1, 2**64 - 1, -(2**63)])
@example([math.inf, -math.inf, 5e-324, -0.0, 1e308])
def test_values_of_msgpack_are_shown_exactly(thing: Any) -> None:
    shown = view_of(thing)
    # LangGraph reads the same value back, with lists in place of tuples.
    expected = SERDE.loads_typed(SERDE.dumps_typed(thing))
    assert repr(unescaped(shown)) == repr(expected)


@given(JSON_LIKE, st.booleans())
@example({"$type": "a.B", "$$": [{"$int": "1"}]}, False)
def test_values_of_json_are_shown_exactly(thing: Any, ascii_only: bool) -> None:
    text = json.dumps(thing, ensure_ascii=ascii_only, indent=1)
    assert repr(unescaped(view(Value("json", text.encode())))) == repr(thing)


@given(JSON_LIKE)
def test_the_encoding_does_not_show(thing: Any) -> None:
    as_json = Value("json", json.dumps(thing).encode())
    assert value_view(as_json) == value_view(Value("msgpack", packed(thing)))


def test_nan_is_escaped() -> None:
    assert view_of([math.nan]) == [{"$float": "NaN"}]
    assert view(Value("json", b"[NaN, Infinity, -Infinity]")) == [
        {"$float": "NaN"},
        {"$float": "Infinity"},
        {"$float": "-Infinity"},
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("9007199254740991", 9007199254740991),
        ("9007199254740992", {"$int": "9007199254740992"}),
        ("-9007199254740991", -9007199254740991),
        ("-9007199254740992", {"$int": "-9007199254740992"}),
        ("1" + "0" * 5000, {"$int": "1" + "0" * 5000}),
        ("1e400", {"$number": "1e400"}),
        ("1.50", 1.5),
        ('{"a": 1, "a": 2}', {"$map": [["a", 1], ["a", 2]]}),
        ('{"$a": 1, "$a": 2}', {"$map": [["$a", 1], ["$a", 2]]}),
        ('{"\\ud800": 1}', {"$map": [["\ud800", 1]]}),
        ('["\\ud800é"]', ["\ud800é"]),
        ('{"lc": 1, "type": "constructor"}', {"lc": 1, "type": "constructor"}),
    ],
)
def test_json_text_has_the_same_escapes(text: str, shown: Any) -> None:
    assert view(Value("json", text.encode())) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Value("null", b""), None),
        (Value("bytes", b"\xff\0"), {"$bytes": "/wA="}),
        (Value("bytearray", b"\xff"), {"$bytearray": "/w=="}),
        (Value("pickle", b"cos\nsystem\n."), {"$opaque": "pickle", "$size": 12}),
        (Value("msgpack+aes", b"cipher"), {"$opaque": "msgpack+aes", "$size": 6}),
        (Value("JSON", b"1"), {"$opaque": "JSON", "$size": 1}),
    ],
)
def test_the_type_decides_how_a_value_is_shown(value: Value, shown: Any) -> None:
    assert view(value) == shown


def test_the_text_is_utf_8_without_white_space() -> None:
    assert value_view(Value("json", b'{"k": ["\\u00e9", 1.0, true]}')).data == (
        '{"k":["é",1.0,true]}'.encode()
    )


# --- extensions ------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Plan:
    steps: list[Any]
    type: str = "plan"


class Model(BaseModel):
    name: str
    inner: dict[str, Any]


class Point(NamedTuple):
    x: int
    y: int


HERE = __name__
FILE = pathlib.Path("/a/b")


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            {
                "$type": "datetime.datetime",
                "$method": "fromisoformat",
                "$value": "2026-01-02T03:04:05+00:00",
            },
        ),
        (
            datetime.date(2026, 1, 2),
            {"$type": "datetime.date", "year": 2026, "month": 1, "day": 2},
        ),
        (
            datetime.timedelta(1, 2, 3),
            {"$type": "datetime.timedelta", "days": 1, "seconds": 2, "microseconds": 3},
        ),
        (
            uuid.UUID(int=1),
            {"$type": "uuid.UUID", "$value": "00000000000000000000000000000001"},
        ),
        (Decimal("1.50"), {"$type": "decimal.Decimal", "$value": "1.50"}),
        ({7}, {"$type": "builtins.set", "$value": [7]}),
        (deque([1, b"x"]), {"$type": "collections.deque", "$value": [1, {"$bytes": "eA=="}]}),
        (
            FILE,
            {"$type": f"{type(FILE).__module__}.{type(FILE).__name__}", "$args": ["/", "a", "b"]},
        ),
        (re.compile("a+"), {"$type": "re.compile", "pattern": "a+", "flags": 32}),
        (Color.RED, {"$type": f"{HERE}.Color", "$value": "red"}),
        (
            Plan([Plan([], "x")]),
            {
                "$type": f"{HERE}.Plan",
                "steps": [{"$type": f"{HERE}.Plan", "steps": [], "type": "x"}],
                "type": "plan",
            },
        ),
        (
            Model(name="m", inner={"$a": 2**60}),
            {
                "$type": f"{HERE}.Model",
                "name": "m",
                "inner": {"$$a": {"$int": str(2**60)}},
            },
        ),
        (Point(1, 2), {"$type": f"{HERE}.Point", "x": 1, "y": 2}),
        (
            Send("node", {"a": 1}),
            {"$type": "langgraph.types.Send", "node": "node", "arg": {"a": 1}},
        ),
        (
            _DeltaSnapshot([1]),
            {"$type": "langgraph.checkpoint.serde.types._DeltaSnapshot", "value": [1]},
        ),
    ],
)
def test_python_objects_are_shown_by_name(thing: Any, shown: Any) -> None:
    assert view_of(thing) == shown


def test_messages_and_interrupts_show_their_fields() -> None:
    message = view_of([HumanMessage("hello", id="1")])[0]
    assert message["$type"] == "langchain_core.messages.human.HumanMessage"
    assert (message["content"], message["type"], message["id"]) == ("hello", "human", "1")
    interrupt = view_of(Interrupt(value={"question": "go?"}, id="i"))
    assert interrupt["$type"] == "langgraph.types.Interrupt"
    assert (interrupt["value"], interrupt["id"]) == ({"question": "go?"}, "i")


def test_an_array_of_numpy_shows_its_shape_and_bytes() -> None:
    numpy = pytest.importorskip("numpy")
    assert view_of(numpy.array([[1, 2]], dtype="<i2")) == {
        "$type": "numpy.ndarray",
        "dtype": "<i2",
        "shape": [1, 2],
        "order": "C",
        "data": {"$bytes": "AQACAA=="},
    }


@pytest.mark.parametrize(
    ("code", "payload", "shown"),
    [
        (0, ["m", "N", 1], {"$type": "m.N", "$value": 1}),
        (1, ["m", "N", [1, 2]], {"$type": "m.N", "$args": [1, 2]}),
        (1, ["re", "compile", [1, 2, 3]], {"$type": "re.compile", "$args": [1, 2, 3]}),
        (2, ["m", "N", {"$type": 1}], {"$type": "m.N", "$$type": 1}),
        (2, ["m", "N", {1: 2}], {"$type": "m.N", "$fields": {"$map": [[1, 2]]}}),
        (2, ["m", "N", [1]], {"$type": "m.N", "$fields": [1]}),
        (3, ["m", "N", 1, "f"], {"$type": "m.N", "$method": "f", "$value": 1}),
        (4, ["m", "N", {"a": 1}], {"$type": "m.N", "a": 1}),
        (4, ["m", "N", {"a": 1}, "construct"], {"$type": "m.N", "a": 1}),
        (5, ["m", "N", {"a": 1}, "model_validate_json"], {"$type": "m.N", "a": 1}),
    ],
)
def test_every_code_has_a_shape(code: int, payload: Any, shown: Any) -> None:
    assert view(extension(code, payload)) == shown


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (0, ["m", "N"]),
        (0, {"a": 1}),
        (0, [1, 2, 3]),
        (1, ["m", "N", 1]),
        (2, ["m"]),
        (3, ["m", "N", 1]),
        (6, [1, 2, 3]),
        (8, [1]),
        (127, None),
        (-2, None),
    ],
)
def test_an_unknown_or_odd_extension_shows_its_bytes(code: int, payload: Any) -> None:
    value = Value("msgpack", b"\x92" + extension_bytes(code, packed(payload)) + b"\x05")
    payload_text = base64.b64encode(packed(payload)).decode()
    assert view(value) == [{"$ext": code, "$bytes": payload_text}, 5]


def test_an_extension_that_holds_more_than_it_should_shows_its_bytes() -> None:
    payload = packed(["m", "N", 1]) + b"\x07"
    assert view(Value("msgpack", extension_bytes(0, payload))) == {
        "$ext": 0,
        "$bytes": base64.b64encode(payload).decode(),
    }


def test_integers_are_escaped_where_doubles_stop_being_exact() -> None:
    assert view_of([MAX_EXACT, MAX_EXACT + 1]) == [2**53 - 1, {"$int": str(2**53)}]
    assert view_of([-MAX_EXACT, -MAX_EXACT - 1]) == [1 - 2**53, {"$int": str(-(2**53))}]


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (struct.pack(">I", 1), {"$timestamp": "1970-01-01T00:00:01.000000000Z"}),
        (struct.pack(">Q", 5 << 34 | 2), {"$timestamp": "1970-01-01T00:00:02.000000005Z"}),
        (struct.pack(">Iq", 7, -1), {"$timestamp": "1969-12-31T23:59:59.000000007Z"}),
        (struct.pack(">Iq", 0, -62135596800), {"$timestamp": "0001-01-01T00:00:00.000000000Z"}),
        (struct.pack(">Iq", 0, 2**62), {"$ext": -1, "$bytes": "AAAAAEAAAAAAAAAA"}),
        (struct.pack(">Iq", 10**9, 0), {"$ext": -1, "$bytes": "O5rKAAAAAAAAAAAA"}),
        (b"123", {"$ext": -1, "$bytes": "MTIz"}),
    ],
)
def test_timestamps_of_msgpack_are_times(payload: bytes, shown: Any) -> None:
    assert view(Value("msgpack", extension_bytes(-1, payload))) == shown
