"""Portable values are written in one form and read back unchanged, or refused."""

from __future__ import annotations

import pathlib
import re
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy

from tests.unit.client.portable.kit import (
    SERDE,
    Colour,
    Step,
    again,
    form,
    js,
    python,
)
from tests.unit.client.portable.values import SNAPSHOTS, VALUES, plain
from tests.unit.core.json_view.kit import view
from tuskpoint.langgraph._encode import encode_value
from tuskpoint.langgraph.portable import Map, NotPortable, PortableError, RegExp
from tuskpoint_server.core.model import Value

# --- values read back ----------------------------------------------------------------------


@given(VALUES | SNAPSHOTS)
@example({"lc": 2, "type": "undefined"})
@example({"__proto__": 1, "a": {1: 2}})
@example([b"", bytearray(b"\x00"), {b"key": frozenset([(1, (2,))])}])
def test_every_value_comes_back_equal(value: Any) -> None:
    assert plain(again(value), exact=True) == plain(value, exact=True)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        # a time that the change of clocks skips
        datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        time(2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        ZoneInfo("Europe/Berlin"),
        pathlib.Path("/tmp/a b"),
        pathlib.PureWindowsPath("C:/a"),
        re.compile("a+", re.IGNORECASE | re.MULTILINE),
        re.compile(b"\xff"),
        deque([1, {2}], maxlen=3),
        Decimal("sNaN"),
        Send("dig", {"depth": 1}, timeout=TimeoutPolicy(run_timeout=1.5, refresh_on="heartbeat")),
        Interrupt("continue?", id="i", response_schema={"type": "boolean"}),
        AIMessageChunk(
            content="a", tool_call_chunks=[{"name": "dig", "args": "{", "id": "1", "index": 0}]
        ),
        ToolMessageChunk(content="a", tool_call_id="call-1"),
        RemoveMessage(id="m-1"),
        HumanMessage("hi", trace_id="extra field"),
        ToolMessage("found", tool_call_id="1", artifact=[HumanMessage("nested", id="2"), {1, 2}]),
    ],
    ids=repr,
)  # fmt: skip
def test_rarer_values_come_back_too(value: Any) -> None:
    actual = again(value)
    assert plain(actual, exact=True) == plain(value, exact=True)
    assert type(actual) is type(value)


def test_tuples_become_lists_except_where_they_are_hashed() -> None:
    assert again({"pair": (1, 2), "seen": {(1, 2)}}) == {"pair": [1, 2], "seen": {(1, 2)}}


def test_an_exception_keeps_its_name_and_its_message() -> None:
    class Broken(RuntimeError):
        pass

    errors = again([Broken("no tusks"), KeyError("a"), PortableError("no", "TypeError")])

    assert errors == [
        PortableError("no tusks", "Broken"),
        PortableError("'a'", "KeyError"),
        PortableError("no", "TypeError"),
    ]
    assert str(errors[0]) == "Broken: no tusks"
    assert again(errors) == errors


def test_equal_sets_are_equal_bytes() -> None:
    first, second = {0, 8}, {8, 0}
    assert [*first] != [*second]
    assert SERDE.dumps_typed(first) == SERDE.dumps_typed(second)


# --- the form ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (None, None),
        ({"a": [1, 1.5, "x", True]}, {"a": [1, 1.5, "x", True]}),
        ([b"\x00\xff"], [js("Uint8Array", [0, 255], method="from")]),
        ({2, 1}, js("Set", [1, 2])),
        (frozenset([1]), js("Set", [1], python="frozenset")),
        ({1: "one"}, js("Map", [[1, "one"]])),
        (Map(a=1), js("Map", [["a", 1]])),
        (RegExp("a", "g"), js("RegExp", "a", "g")),
        (ValueError("no"), python("builtins.Exception", name="ValueError", message="no")),
        (PortableError("no"), js("Error", "no")),
        (_DeltaSnapshot([1]), {"lc": 2, "type": "delta_snapshot", "value": [1]}),
        (2**53 + 1, python("builtins.int", value="9007199254740993")),
        (10**20, 10**20),
        (1152921504606847000, python("builtins.int", value="1152921504606847000")),
        (float("-inf"), python("builtins.float", value="-Infinity")),
        (
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            python("datetime.datetime", value="2026-01-02T03:04:05+00:00"),
        ),
        (
            datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
            python("datetime.datetime", value="2026-01-02T00:00:00+01:00", zone="Europe/Berlin"),
        ),
        (date(2026, 1, 2), python("datetime.date", value="2026-01-02")),
        (
            timedelta(days=-1, microseconds=5),
            python("datetime.timedelta", days=-1, seconds=0, microseconds=5),
        ),
        (
            UUID("00000000-0000-0000-0000-000000000001"),
            python("uuid.UUID", value="00000000-0000-0000-0000-000000000001"),
        ),
        (Decimal("1.10"), python("decimal.Decimal", value="1.10")),
        (
            Send("dig", 1, timeout=2.0),
            python(
                "langgraph.types.Send",
                node="dig",
                args=1,
                timeout={"runTimeout": 2000.0, "refreshOn": "auto"},
            ),
        ),
        (Interrupt("?", id="i"), python("langgraph.types.Interrupt", value="?", id="i")),
        (Overwrite([1]), python("langgraph.types.Overwrite", __overwrite__=[1])),
        (
            Document(page_content="text", metadata={"page": 1}, id="d"),
            python(
                "langchain_core.documents.Document",
                pageContent="text",
                metadata={"page": 1},
                id="d",
            ),
        ),
        ({"lc": 1}, python("builtins.dict", value=[["lc", 1]])),
        ({"lc": "no version"}, {"lc": "no version"}),
        ({"__proto__": 1}, python("builtins.dict", value=[["__proto__", 1]])),
    ],
    ids=repr,
)  # fmt: skip
def test_the_form_of_a_value(value: Any, shape: Any) -> None:
    assert form(value) == shape


def test_messages_have_the_form_that_langchain_js_loads() -> None:
    message = AIMessage(
        content="digging",
        id="m-1",
        tool_calls=[{"name": "dig", "args": {"when": date(2026, 1, 2)}, "id": "call-1"}],
        additional_kwargs={"raw": b"\x01", "seen": {1}, "odd": {"__lc_escaped__": 1}},
    )
    assert form(message) == {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "AIMessage"],
        "kwargs": {
            "content": "digging",
            "additional_kwargs": {  # LangChain.js keeps only JSON in a message
                "raw": python("builtins.bytes", value="AQ=="),
                "seen": python("builtins.set", value=[1]),
                "odd": python("builtins.dict", value=[["__lc_escaped__", 1]]),
            },
            "response_metadata": {},
            "id": "m-1",
            "tool_calls": [
                {
                    "name": "dig",
                    "args": {"when": python("datetime.date", value="2026-01-02")},
                    "id": "call-1",
                    "type": "tool_call",
                }
            ],
            "invalid_tool_calls": [],
        },
    }


def test_bytes_alone_are_not_wrapped() -> None:
    assert SERDE.dumps_typed(b"\x00\xff") == ("bytes", b"\x00\xff")
    assert SERDE.loads_typed(("bytes", b"\x00\xff")) == b"\x00\xff"


def test_the_servers_json_view_shows_portable_values_as_they_are() -> None:
    value = {"messages": [HumanMessage("hi", id="m-1")], "seen": {1}, "due": date(2026, 1, 2)}
    assert view(Value(*SERDE.dumps_typed(value))) == form(value)


# --- refusals ------------------------------------------------------------------------------


class Nowhere(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "place", "problem"),
    [
        (object(), "$", "object is not portable"),
        (
            {"plans": [Step("dig")]},
            "$.plans[0]",
            "tests.unit.client.portable.kit.Step is not portable",
        ),
        ([Colour.RED], "$[0]", "allow it with PortableSerializer(types=[...])"),
        (OrderedDict(a=1), "$", "collections.OrderedDict is not portable; save a dict instead"),
        ({"a b": type("Name", (str,), {})("x")}, "$['a b']", "save a str instead"),
        ({1: [1, lambda: None]}, "$[1][1]", "function is not portable"),
        ({(object(),)}, "$<item>[0]", "object is not portable"),
        ({object(): 1}, "$<key>", "object is not portable"),
        ([HumanMessage("hi", additional_kwargs={"a": {"b": object}})],
         "$[0].additional_kwargs.a.b", "type is not portable"),
        ([type("Mine", (HumanMessage,), {})("hi")], "$[0]", "Mine is not portable"),
        (HumanMessage("hi", someField=1), "$", "changes the name of the field 'someField'"),
        ({"text": "\ud83e\udda3"}, "$.text", "two halves of a surrogate pair"),
        ({"\ud83e\udda3": 1}, "$", "two halves of a surrogate pair"),
        ([10**5000], "$[0]", "the integer is too long"),
        ({"when": time(1, tzinfo=Nowhere())}, "$.when", "zone has no name"),
        ({"when": datetime(2026, 1, 1, tzinfo=Nowhere())}, "$.when", "has no offset"),
        (deep(101), "$" + "[0]" * 100, "nested more than 100 levels"),
        (HumanMessage("hi", additional_kwargs={"a": deep(50)}),
         "$.additional_kwargs.a" + "[0]" * 44, "nested more than 46 levels deep in a message"),
    ],
)  # fmt: skip
def test_a_value_without_a_form_is_refused_with_its_place(
    value: Any, place: str, problem: str
) -> None:
    with pytest.raises(NotPortable) as refused:
        SERDE.dumps_typed(value)
    assert isinstance(refused.value, TypeError)
    assert refused.value.path == place
    assert str(refused.value).startswith(f"{place}: ")
    assert problem in str(refused.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotPortable, match="nested more than 100 levels"):
        SERDE.dumps_typed(value)


def test_the_deepest_value_that_is_written_is_read() -> None:
    assert again(deep(100)) == deep(100)


def test_a_refusal_names_the_channel() -> None:
    with pytest.raises(NotPortable) as refused:
        encode_value(object(), SERDE, "plan")
    assert refused.value.__notes__ == ["TuskPoint: while serializing 'plan'"]
