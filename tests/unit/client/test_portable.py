"""Portable state comes back as it was, in the form that LangGraph.js writes and reads."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import pathlib
import re
import sys
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy
from pydantic import BaseModel, ConfigDict, Field

from tests.unit.client.portable_values import SNAPSHOTS, VALUES, plain
from tests.unit.domain.json_views import view
from tuskpoint.langgraph import PortableSerializer
from tuskpoint.langgraph._channels import native
from tuskpoint.langgraph._encode import encode_value
from tuskpoint.langgraph.portable import Map, NotPortable, PortableError, Record, RegExp
from tuskpoint.v1 import value_pb2
from tuskpoint_server.domain.model import Value

SERDE = PortableSerializer()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Step:
    name: str
    colours: list[Colour] = dataclasses.field(default_factory=list)
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.name)


class Place(NamedTuple):
    x: int
    y: int


class Plan(BaseModel):
    model_config = ConfigDict(extra="allow")

    steps: list[Step]
    due: date | None = Field(default=None, validation_alias="dueDate")


TYPES = [Colour, Level, Step, Place, Plan]


def again(value: Any, serde: PortableSerializer = SERDE) -> Any:
    return serde.loads_typed(serde.dumps_typed(value))


def form(value: Any, serde: PortableSerializer = SERDE) -> Any:
    kind, data = serde.dumps_typed(value)
    assert kind == "json"
    return json.loads(data)


def read(shape: Any) -> Any:
    return SERDE.loads_typed(("json", json.dumps(shape).encode()))


def js(identity: str, *arguments: Any, method: str | None = None, **marks: str) -> dict[str, Any]:
    return {
        "lc": 2, "type": "constructor", "id": [identity],
        "method": method, "args": [*arguments], "kwargs": marks,
    }  # fmt: skip


def python(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"lc": 2, "type": "python", "class": kind, **fields}


# --- what comes back -----------------------------------------------------------------------


@given(VALUES | SNAPSHOTS)
@example({"lc": 2, "type": "undefined"})
@example({"__proto__": 1, "a": {1: 2}})
@example([b"", bytearray(b"\x00"), {b"key": frozenset([(1, (2,))])}])
def test_every_value_comes_back_as_what_it_was(value: Any) -> None:
    assert plain(again(value), exact=True) == plain(value, exact=True)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # a time that was skipped
        time(2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        ZoneInfo("Europe/Berlin"),
        pathlib.Path("/tmp/a b"),
        pathlib.PureWindowsPath("C:/a"),
        re.compile("a+", re.IGNORECASE | re.MULTILINE),
        re.compile(b"\xff"),
        deque([1, {2}], maxlen=3),
        Decimal("sNaN"),
        Send("dig", {"depth": 1}, timeout=TimeoutPolicy(run_timeout=1.5, refresh_on="heartbeat")),
        Interrupt("go on?", id="i", response_schema={"type": "boolean"}),
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
    found = again(value)
    assert plain(found, exact=True) == plain(value, exact=True)
    assert type(found) is type(value)


def test_tuples_become_lists_except_where_they_are_hashed() -> None:
    assert again({"pair": (1, 2), "seen": {(1, 2)}}) == {"pair": [1, 2], "seen": {(1, 2)}}


def test_an_exception_keeps_its_name_and_its_message() -> None:
    class Broken(RuntimeError):
        pass

    found = again([Broken("no tusks"), KeyError("a"), PortableError("no", "TypeError")])

    assert found == [
        PortableError("no tusks", "Broken"),
        PortableError("'a'", "KeyError"),
        PortableError("no", "TypeError"),
    ]
    assert str(found[0]) == "Broken: no tusks"
    assert again(found) == found


def test_equal_sets_are_equal_bytes() -> None:
    one, other = {0, 8}, {8, 0}
    assert [*one] != [*other]
    assert SERDE.dumps_typed(one) == SERDE.dumps_typed(other)


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


def test_the_form_of_a_message_is_what_langchain_js_loads() -> None:
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
            "additional_kwargs": {  # LangChain.js keeps nothing but JSON in a message
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


# --- what is refused -----------------------------------------------------------------------


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
            "tests.unit.client.test_portable.Step is not portable",
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
        ({"when": datetime(2026, 1, 1, tzinfo=Nowhere())}, "$.when", "zone tells no offset"),
        (deep(101), "$" + "[0]" * 100, "nested more than 100 levels"),
        (HumanMessage("hi", additional_kwargs={"a": deep(50)}),
         "$.additional_kwargs.a" + "[0]" * 44, "nested more than 46 levels deep in a message"),
    ],
)  # fmt: skip
def test_what_has_no_form_is_refused_with_its_place(value: Any, place: str, problem: str) -> None:
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
        encode_value(object(), SERDE, value_pb2.Value(), "plan")
    assert refused.value.__notes__ == ["TuskPoint: while serializing 'plan'"]


# --- types of the caller -------------------------------------------------------------------


def test_allowed_types_come_back_as_objects() -> None:
    serde = PortableSerializer(types=TYPES)
    plan = Plan(steps=[Step("dig", [Colour.RED])], dueDate=date(2026, 1, 2), note={1})  # type: ignore[call-arg]
    value = {"plan": plan, "at": Place(1, 2), "level": Level.HIGH, Colour.RED: {Level.HIGH}}

    found = again(value, serde)

    assert found == value
    assert isinstance(found["plan"].steps[0], Step)
    assert type(found["at"]) is Place
    assert type(found["level"]) is Level
    assert form(Step("dig"), serde) == python(
        "tests.unit.client.test_portable.Step", value={"name": "dig", "colours": []}
    )


def test_types_that_are_not_allowed_here_are_kept_as_records() -> None:
    writer = PortableSerializer(types=TYPES)
    kind, data = writer.dumps_typed({"plan": Plan(steps=[])})

    found = SERDE.loads_typed((kind, data))

    assert type(found["plan"]) is Record
    assert found["plan"]["value"] == {"steps": [], "due": None}
    assert SERDE.dumps_typed(found) == (kind, data)
    assert writer.loads_typed(SERDE.dumps_typed(found)) == {"plan": Plan(steps=[])}


def test_only_classes_that_can_be_taken_apart_can_be_allowed() -> None:
    with pytest.raises(TypeError, match="object is no enum, dataclass"):
        PortableSerializer(types=[object])
    with pytest.raises(TypeError, match="holds classes, not 'Plan'"):
        PortableSerializer(types=["Plan"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"more than one type .*Colour"):
        PortableSerializer(types=[Colour, Colour])


def test_what_another_language_made_of_an_object_is_validated() -> None:
    serde = PortableSerializer(types=TYPES)
    shape = python("tests.unit.client.test_portable.Plan", value={"steps": 5})
    with pytest.raises(ValueError, match=r"saved as tests.unit.client.test_portable.Plan is none"):
        serde.loads_typed(("json", json.dumps(shape).encode()))


# --- what is read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "prompts", "PromptTemplate"],
         "kwargs": {"template": "{x}"}},
        {"lc": 1, "type": "constructor", "id": ["antigravity", "AIMessage"], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": "AIMessage", "kwargs": {}},
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {"lc": 1, "type": "not_implemented", "id": ["x"]},
        {"lc": 2, "type": "constructor", "id": ["antigravity", "Thing"], "args": [1], "kwargs": {}},
        {"lc": 2, "type": "constructor", "id": ["Function"], "method": None, "args": ["x"]},
        {"lc": 2, "type": "constructor", "id": ["Set"], "method": "pop", "args": [[1]]},
        {"lc": 2, "type": "constructor", "id": ["Set"], "method": None, "args": [[{"a": 1}]]},
        {"lc": 2, "type": "constructor", "id": ["Set"], "method": None, "args": [[1, True]]},
        {"lc": 2, "type": "constructor", "id": ["Map"], "method": None, "args": [[[1]]]},
        {"lc": 2, "type": "constructor", "id": ["Uint8Array"], "method": "from", "args": [[256]]},
        {"lc": 2, "type": "constructor", "id": ["RegExp"], "method": None, "args": ["a"]},
        {"lc": 2, "type": "constructor", "id": ["Error"], "method": None, "args": [1]},
        {"lc": 2, "type": "python", "class": "antigravity.Thing", "value": 1},
        {"lc": 2, "type": "python", "class": "builtins.dict", "value": [[1]]},
        {"lc": 2, "type": "something newer"},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_forms_that_are_not_known_are_kept_as_they_are(shape: dict[str, Any]) -> None:
    found = read({"held": [shape]})["held"][0]
    assert type(found) is Record
    assert found == shape
    assert form([found]) == [shape]
    assert form(HumanMessage("", additional_kwargs={"a": found}))["kwargs"][
        "additional_kwargs"
    ] == {"a": shape}
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ({"lc": 2, "type": "undefined"}, None),
        ({"a": {"lc": 2, "type": "undefined"}}, {}),
        ([{"lc": 2, "type": "undefined"}, 1], [None, 1]),
        (1152921504606847000, 2.0**60),  # the digits with which JavaScript writes this number
        (1152921504606846977, 1152921504606846977),  # no double of JavaScript
        (10**20, 10**20),
        (js("Map", [["a", 1]]), Map(a=1)),
        (js("Map", [[[1, 2], 1]]), {(1, 2): 1}),
        (js("Set", [js("Set", [1])]), {frozenset([1])}),
        ({"lc": 2, "type": "delta_snapshot", "value": {"lc": 2, "type": "undefined"}},
         _DeltaSnapshot(None)),
        ({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"],
          "kwargs": {"content": "hi", "type": "human"}}, HumanMessage("hi")),
        ({"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "x", "HumanMessage"],
          "kwargs": {"content": "hi", "additional_kwargs": {"__lc_escaped__": {"lc": 1, "a": 2}}}},
         HumanMessage("hi", additional_kwargs={"lc": 1, "a": 2})),
        ({"__lc_escaped__": {"a": 1}}, {"__lc_escaped__": {"a": 1}}),
    ],
)  # fmt: skip
def test_what_javascript_writes_is_read(shape: Any, value: Any) -> None:
    found = read(shape)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "shape",
    [
        python("datetime.datetime", value="yesterday"),
        python("datetime.datetime", value=5),
        python("datetime.datetime", value="2026-01-02T00:00:00+01:00", zone="Nowhere/Land"),
        python("uuid.UUID"),
        python("zoneinfo.ZoneInfo", value="Europe"),
        python("re.Pattern", pattern="(", flags=0),
        python("decimal.Decimal", value="many"),
        python("builtins.bytes", value="?"),
        python("langgraph.types.Send", node="dig"),
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "ToolMessage"],
         "kwargs": {"content": "hi"}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_malformed_form_is_an_error_that_says_what_it_is_none_of(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"is none|is no ToolMessage"):
        read(shape)


def test_what_a_message_may_leave_out_in_javascript() -> None:
    shape = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "AIMessage"],
        "kwargs": {
            "content": "",
            "tool_calls": [{"name": "dig", "args": {}}],
            "usage_metadata": {"total_tokens": 3},
        },
    }
    found = read(shape)
    assert type(found) is AIMessage
    assert found.tool_calls == [{"name": "dig", "args": {}, "id": None}]
    assert found.usage_metadata == {"total_tokens": 3}
    assert again(found) == found


def test_a_moment_that_another_language_moved_keeps_its_instant() -> None:
    shape = python("datetime.datetime", value="2026-07-02T10:00:00Z", zone="Europe/Berlin")
    assert read(shape).isoformat() == "2026-07-02T12:00:00+02:00"


def test_json_that_is_nested_too_deeply_is_an_error() -> None:
    with pytest.raises(ValueError, match="nested more deeply"):
        SERDE.loads_typed(("json", b"[" * 100_000 + b"]" * 100_000))


# --- channels of LangGraph -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "value", "meant"),
    [
        ("__pregel_tasks", {"node": "dig", "args": 1}, Send("dig", 1)),
        (
            "__pregel_tasks",
            [{"node": "dig", "args": 1, "timeout": {"idleTimeout": 1500}}, Send("a", 1)],
            [Send("dig", 1, timeout=TimeoutPolicy(idle_timeout=1.5)), Send("a", 1)],
        ),
        ("__pregel_tasks", None, None),
        ("topic", {"node": "dig", "args": 1}, {"node": "dig", "args": 1}),
        ("__interrupt__", [{"id": "i", "value": "?"}], [Interrupt("?", id="i")]),
        ("__error__", {"message": "no", "name": "TypeError"}, PortableError("no", "TypeError")),
        ("__error__", "ValueError('no')", "ValueError('no')"),
        ("join:a+b:c", ["a"], {"a"}),
        ("join:a+b:c", [["a"], True], [{"a"}, True]),
        ("join:a+b:c", {"a"}, {"a"}),
        ("join:a+b:c", "a", "a"),
    ],
)
def test_what_javascript_leaves_untyped_on_channels_of_langgraph(
    channel: str, value: Any, meant: Any
) -> None:
    assert native(channel, value) == meant


# --- beside other serializers ----------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [None, b"x", bytearray(b"x"), {"a": (1, {2})}, HumanMessage("hi")]
)
def test_what_the_default_serializer_wrote_is_read_as_before(value: Any) -> None:
    default = JsonPlusSerializer()
    assert SERDE.loads_typed(default.dumps_typed(value)) == default.loads_typed(
        default.dumps_typed(value)
    )


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="json\\+aes"):
        SERDE.loads_typed(("json+aes", b""))


def test_the_allowlist_of_the_default_serializer_is_extended_by_the_runtime() -> None:
    strict = PortableSerializer(types=[Colour], allowed_msgpack_modules=None)
    saver = InMemorySaver(serde=strict)
    written = JsonPlusSerializer().dumps_typed({"step": Colour.RED})
    assert saver.serde.loads_typed(written) == {"step": "red"}

    allowed = saver.with_allowlist([(Colour.__module__, "Colour")])

    assert isinstance(allowed.serde, PortableSerializer)
    assert allowed.serde.loads_typed(written) == {"step": Colour.RED}
    assert again(Colour.RED, allowed.serde) is Colour.RED
    assert again(Colour.RED, copy.copy(strict)) is Colour.RED


class Reversed(CipherProtocol):
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_encryption_around_it_works_in_python() -> None:
    serde = EncryptedSerializer(Reversed(), SERDE)
    kind, data = serde.dumps_typed({"seen": {1}})
    assert kind == "json+reversed"
    assert serde.loads_typed((kind, data)) == {"seen": {1}}
    assert serde.loads_typed(SERDE.dumps_typed({"seen": {1}})) == {"seen": {1}}


def test_messages_of_every_class_have_a_form() -> None:
    import langchain_core.messages as messages

    kinds = {
        kind
        for name in messages.__all__
        if isinstance(kind := getattr(messages, name), type) and issubclass(kind, BaseMessage)
    } - {BaseMessage, messages.BaseMessageChunk}
    given = {"content": "", "role": "mate", "name": "n", "tool_call_id": "1", "id": "i"}
    for kind in kinds:
        fields = {name: given[name] for name in given if name in kind.model_fields}
        found = again(kind(**fields))
        assert type(found) is kind
        assert found == kind(**fields)
