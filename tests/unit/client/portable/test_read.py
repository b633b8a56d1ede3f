"""Portable values are read into types of the caller, whatever language or serializer wrote them."""

from __future__ import annotations

import copy
import json
import sys
from datetime import date
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send, TimeoutPolicy

from tests.unit.client.portable.kit import (
    SERDE,
    TYPES,
    Colour,
    Level,
    Place,
    Plan,
    Step,
    again,
    form,
    js,
    python,
    read,
)
from tuskpoint.langgraph import PortableSerializer
from tuskpoint.langgraph.portable import Map, PortableError, Record
from tuskpoint.langgraph.portable.channels import native

# --- types of the caller -------------------------------------------------------------------


def test_allowed_types_come_back_as_objects() -> None:
    serde = PortableSerializer(types=TYPES)
    plan = Plan(steps=[Step("dig", [Colour.RED])], dueDate=date(2026, 1, 2), note={1})  # type: ignore[call-arg]
    value = {"plan": plan, "at": Place(1, 2), "level": Level.HIGH, Colour.RED: {Level.HIGH}}

    actual = again(value, serde)

    assert actual == value
    assert isinstance(actual["plan"].steps[0], Step)
    assert type(actual["at"]) is Place
    assert type(actual["level"]) is Level
    assert form(Step("dig"), serde) == python(
        "tests.unit.client.portable.kit.Step", value={"name": "dig", "colours": []}
    )


def test_types_that_are_not_allowed_here_are_kept_as_records() -> None:
    writer = PortableSerializer(types=TYPES)
    kind, data = writer.dumps_typed({"plan": Plan(steps=[])})

    records = SERDE.loads_typed((kind, data))

    assert type(records["plan"]) is Record
    assert records["plan"]["value"] == {"steps": [], "due": None}
    assert SERDE.dumps_typed(records) == (kind, data)
    assert writer.loads_typed(SERDE.dumps_typed(records)) == {"plan": Plan(steps=[])}


def test_only_classes_that_can_be_taken_apart_can_be_allowed() -> None:
    with pytest.raises(TypeError, match="object is not an enum, dataclass"):
        PortableSerializer(types=[object])
    with pytest.raises(TypeError, match="holds classes, not 'Plan'"):
        PortableSerializer(types=["Plan"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"more than one type .*Colour"):
        PortableSerializer(types=[Colour, Colour])


def test_objects_written_by_another_language_are_validated() -> None:
    serde = PortableSerializer(types=TYPES)
    shape = python("tests.unit.client.portable.kit.Plan", value={"steps": 5})
    with pytest.raises(
        ValueError, match=r"saved as tests.unit.client.portable.kit.Plan is invalid"
    ):
        serde.loads_typed(("json", json.dumps(shape).encode()))


# --- values of other writers ---------------------------------------------------------------


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
    record = read({"held": [shape]})["held"][0]
    assert type(record) is Record
    assert record == shape
    assert form([record]) == [shape]
    assert form(HumanMessage("", additional_kwargs={"a": record}))["kwargs"][
        "additional_kwargs"
    ] == {"a": shape}
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ({"lc": 2, "type": "undefined"}, None),
        ({"a": {"lc": 2, "type": "undefined"}}, {}),
        ([{"lc": 2, "type": "undefined"}, 1], [None, 1]),
        (1152921504606847000, 2.0**60),  # the digits that JavaScript writes for this number
        (1152921504606846977, 1152921504606846977),  # not a double of JavaScript
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
def test_values_written_by_javascript_are_read(shape: Any, value: Any) -> None:
    actual = read(shape)
    assert actual == value
    assert type(actual) is type(value)


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
def test_the_error_of_a_malformed_form_describes_the_right_one(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"is invalid|is not a ToolMessage"):
        read(shape)


def test_messages_of_javascript_may_leave_fields_out() -> None:
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
    message = read(shape)
    assert type(message) is AIMessage
    assert message.tool_calls == [{"name": "dig", "args": {}, "id": None}]
    assert message.usage_metadata == {"total_tokens": 3}
    assert again(message) == message


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
def test_untyped_values_of_javascript_on_channels_of_langgraph(
    channel: str, value: Any, meant: Any
) -> None:
    assert native(channel, value) == meant


# --- values of other serializers -------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [None, b"x", bytearray(b"x"), {"a": (1, {2})}, HumanMessage("hi")]
)
def test_values_of_the_default_serializer_are_read_as_before(value: Any) -> None:
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
    texts = {"content": "", "role": "mate", "name": "n", "tool_call_id": "1", "id": "i"}
    for kind in kinds:
        fields = {name: texts[name] for name in texts if name in kind.model_fields}
        message = again(kind(**fields))
        assert type(message) is kind
        assert message == kind(**fields)
