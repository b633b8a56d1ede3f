"""What tasks say to people: questions, failures, tokens and nodes, for any bytes."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Interrupt, Send

from tests.unit.core.json_view.kit import VALUES, as_json, packed, stored
from tuskpoint_server.core.model import MAX_TOKENS, TokenUsage, Value
from tuskpoint_server.core.steps import facts
from tuskpoint_server.core.steps.facts import (
    MAX_FACT,
    MAX_READ,
    failure,
    is_complete,
    questions,
    send_nodes,
    tokens,
)
from tuskpoint_server.core.steps.versions import MAX_NAME, MAX_TASKS

ID = "0123456789abcdef0123456789abcdef"
NOTHING = Value("pickle", pickle.dumps("text"))


def texts(value: Value) -> list[str]:
    return [text for _, text in questions(value)]


# --- questions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("Publish?", "Publish?"),
        ({"question": "Publish?", "options": ["yes"]}, "Publish?"),
        ({"title": "a title", "message": "a message"}, "a message"),
        ({"question": "", "prompt": "a prompt"}, "a prompt"),
        ({"question": 3, "text": "a text"}, "a text"),
        ({"amount": 3}, '{"amount":3}'),
        (["yes", "no"], '["yes","no"]'),
        ([{"description": "first"}, {"query": "second"}], "first\n\nsecond"),
        ([{"description": "first"}, {"amount": 2}], '[{"description":"first"},{"amount":2}]'),
        (
            {"action_requests": [{"name": "pay", "description": "Pay?"}], "review_configs": []},
            "Pay?",
        ),
        (3, "3"),
        (None, ""),
        ("", ""),
        (b"\x00", '{"$bytes":"AA=="}'),
    ],
)
def test_the_text_of_a_question_is_what_the_agent_says(asked: Any, text: str) -> None:
    assert questions(stored((Interrupt(asked, id=ID),))) == [(ID, text)]


def test_a_dataclass_asks_by_its_fields() -> None:
    @dataclass
    class Ask:
        question: str

    shown = {"$type": "tests.Ask", "question": "Publish?"}
    assert texts(as_json([{"value": shown, "id": "1"}])) == ["Publish?"]


def test_javascript_asks_in_json() -> None:
    asked = as_json([{"id": ID, "value": {"message": "Publish?"}}, {"value": "Again?"}])
    assert questions(asked) == [(ID, "Publish?"), ("", "Again?")]


def test_a_value_without_interrupts_is_itself_the_question() -> None:
    assert questions(as_json("Publish?")) == [("", "Publish?")]
    assert questions(as_json({"question": "Publish?"})) == [("", "Publish?")]
    assert questions(as_json([])) == []
    assert questions(NOTHING) == [("", "")]


def test_a_long_question_loses_its_end_at_a_whole_character() -> None:
    [text] = texts(as_json([{"value": "€" * MAX_FACT}]))
    assert text == "€" * (MAX_FACT // 3)


def test_only_the_first_questions_of_a_task_are_read() -> None:
    assert len(questions(Value("msgpack", packed([None] * 100_000)))) == MAX_TASKS


@pytest.mark.parametrize("interrupt_id", [7, None, "x" * (MAX_NAME + 1), "\ud800"])
def test_an_id_that_is_no_id_is_left_out(interrupt_id: Any) -> None:
    assert questions(as_json([{"value": "Publish?", "id": interrupt_id}])) == [("", "Publish?")]


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (repr(ValueError("no paper")), "ValueError", "no paper"),
        (repr(ValueError('a "quoted" text')), "ValueError", 'a "quoted" text'),
        (repr(ValueError("both ' and \"")), "ValueError", "both ' and \""),
        (repr(ValueError("line 1\nline 2\ttab\\n")), "ValueError", "line 1\nline 2\ttab\\n"),
        (
            repr(ValueError("\x00\x1b[31m\u200b\U000e0001")),
            "ValueError",
            "\0\x1b[31m\u200b\U000e0001",
        ),
        (repr(ValueError()), "ValueError", ""),
        (repr(ValueError("a", 3)), "ValueError", "'a', 3"),
        (repr(KeyError("name")), "KeyError", "name"),
        (repr(ExceptionGroup("all", [OSError(2)])), "ExceptionGroup", "'all', [OSError(2)]"),
        ("httpx.HTTPError('down')", "httpx.HTTPError", "down"),
        ("ValueError: no paper", "ValueError", "no paper"),
        ("Traceback (most recent call last):\n  File x\nValueError: no\n", "ValueError", "no"),
        ("just a text", "", "just a text"),
        ("1 error for Model\nfield\n  missing", "", "1 error for Model\nfield\n  missing"),
        ("", "", ""),
    ],
)
def test_an_error_has_a_type_and_a_message(text: str, kind: str, message: str) -> None:
    assert failure(stored(text)) == (kind, message)


def test_javascript_writes_a_name_and_a_message() -> None:
    assert failure(as_json({"message": "no", "name": "TypeError"})) == ("TypeError", "no")
    assert failure(as_json({"message": "no", "name": 3})) == ("", "no")
    assert failure(as_json({"code": 3})) == ("", '{"code":3}')
    assert failure(NOTHING) == ("", "")


def test_a_long_message_keeps_its_end() -> None:
    kind, message = failure(as_json("ValueError: " + "€" * MAX_FACT + "the reason  \n"))
    assert kind == "ValueError"
    assert message.endswith("€the reason")
    assert len(message.encode()) <= MAX_FACT


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert failure(as_json("ValueError: \ud800")) == ("ValueError", "?")
    assert failure(as_json("ValueError('\\ud800')")) == ("ValueError", "?")
    assert texts(as_json("\ud800")) == ["?"]
    assert send_nodes(as_json([{"node": "\ud800"}])) == {}


# --- tokens ------------------------------------------------------------------------------------


def usage(prompt: Any, answer: Any) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": answer, "total_tokens": 0}


MANY = {"usage_metadata": usage(MAX_TOKENS, 1)}


def message(prompt: int, answer: int) -> AIMessage:
    details = {"input_token_details": {"cache_read": 7}}
    return AIMessage("text", usage_metadata={**usage(prompt, answer), **details})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (stored([message(12, 3)]), (12, 3)),
        (stored({"nested": {"list": [HumanMessage("hi"), message(1, 2), message(9, 0)]}}), (10, 2)),
        (stored([message(70_000, 2**40)]), (70_000, 2**40)),
        (as_json({"kwargs": {"usage_metadata": usage(12, 3)}}), (12, 3)),
        (as_json([{"usage_metadata": usage(2**60, True)}]), None),
        (as_json([{"usage_metadata": usage(-1, 4)}]), (0, 4)),
        (as_json({"usage_metadata": {"input_tokens": 4}}), (4, 0)),
        (as_json([MANY] * 1000), (MAX_TOKENS, 1000)),
        (Value("msgpack", packed([MANY] * 3000)), (MAX_TOKENS, 3000)),
        (Value("msgpack", packed({"usage_metadata": usage(2**63, 1.5)})), None),
        (stored([message(0, 0)]), None),
        (stored("usage_metadata"), None),
        (stored(["®usage_metadata", message(1, 1)]), (1, 1)),
        (stored({"usage_metadata": None}), None),
        (stored({"usage_metadata": [usage(1, 1)]}), None),
        (as_json({"usage_metadata": "12"}), None),
        (as_json("usage_metadata" * 18_000), None),
        (Value("pickle", b"usage_metadata"), None),
        (Value("msgpack", packed({"usage_metadata": usage(1, 2)})[:-3]), None),
        (Value("msgpack", b"\xaeusage_metadata\xdf\xff\xff\xff\xff"), None),
        (Value("msgpack", b"\xaeusage_metadata"), None),
    ],
)
def test_tokens_are_those_that_messages_report(
    value: Value, expected: tuple[int, int] | None
) -> None:
    assert tokens(value) == (expected and TokenUsage(*expected))


# --- nodes -------------------------------------------------------------------------------------


def test_sends_name_their_nodes() -> None:
    sends = [Send("read", {"name": "a" * 300}), Send("check", None), Send("read", 3)]
    assert send_nodes(stored(sends)) == {0: "read", 1: "check", 2: "read"}
    assert send_nodes(stored([])) == {}


def test_javascript_sends_objects() -> None:
    sends = [{"lg_name": "Send", "node": "read", "args": {}}, {"lg_name": "Send", "node": 3}, 7]
    assert send_nodes(as_json(sends)) == {0: "read"}
    assert send_nodes(as_json([[], sends])) == {0: "read"}
    assert send_nodes(Value("msgpack", packed([[], sends]))) == {0: "read"}


@pytest.mark.parametrize("node", ["", "x" * (MAX_NAME + 1)])
def test_a_send_without_a_name_says_nothing(node: str) -> None:
    assert send_nodes(stored([Send(node, 1), Send("read", 2)])) == {1: "read"}


@pytest.mark.parametrize(
    ("value", "awaited", "complete"),
    [
        (stored({"a", "b"}), "a+b", True),
        (stored({"a"}), "a+b", False),
        (stored({"a+b", "c"}), "a+b+c", True),
        (as_json(["a", "b"]), "a+b", True),
        (as_json([]), "a+b", False),
        (stored(({"a", "b"}, False)), "a+b", False),
        (stored(({"a", "b"}, True)), "a+b", True),
        (as_json([["a", "b"], True]), "a+b", True),
        (stored(None), "", True),
        (as_json("agent"), "", True),
        (stored((None, False)), "", False),
        (stored((None, True)), "", True),
        (None, "a+b", False),
        (None, "", False),
        (NOTHING, "a+b", False),
    ],
)
def test_a_channel_starts_a_node_when_nothing_is_awaited(
    value: Value | None, awaited: str, complete: bool
) -> None:
    assert is_complete(value, awaited) is complete


# --- any bytes ---------------------------------------------------------------------------------


def read_all(value: Value) -> None:
    """Read every fact of a value; each fact fits a message of the contract."""
    for interrupt_id, text in questions(value):
        assert len(interrupt_id.encode()) <= 4 * MAX_NAME
        assert len(text.encode()) <= MAX_FACT
    kind, message = failure(value)
    assert len(kind.encode()) <= 4 * MAX_NAME
    assert len(message.encode()) <= MAX_FACT
    used = tokens(value)
    assert used is None or 0 < used.input_tokens + used.output_tokens <= 2 * MAX_TOKENS
    for node in send_nodes(value).values():
        assert 0 < len(node.encode()) <= 4 * MAX_NAME
    is_complete(value, "a+b")
    is_complete(value, "")


@given(value=VALUES)
def test_any_bytes_are_read_or_say_nothing(value: Value) -> None:
    read_all(value)
    read_all(Value("json", b'{"usage_metadata":' + value.data))
    read_all(Value("msgpack", facts._USAGE_KEY + value.data))


NESTED = 100_000


@pytest.mark.parametrize(
    "value",
    [
        Value("msgpack", b"\x91" * NESTED + b"\xc0"),
        Value("msgpack", b"\x81\xaeusage_metadata" * (MAX_READ // 16)),
        Value("msgpack", (b"\xaeusage_metadata\x8f" + b"\xc0" * 9) * (MAX_READ // 25)),
        Value("msgpack", b"\xdd\xff\xff\xff\xff" + b"\xc0" * 99),
        Value("msgpack", b"\xdd\x00\x01\x00\x00" + b"\xd4\x01\x90" * 65_536),
        Value("json", b"[" * NESTED + b"]" * NESTED),
        Value("json", b'{"question":' * 20_000 + b'"x"' + b"}" * 20_000),
        Value("json", b'{"action_requests":[' * 9_000 + b"1" + b"]}" * 9_000),
        Value("json", b'{"usage_metadata":' * 14_000 + b"1" + b"}" * 14_000),
        as_json("a(" * (MAX_READ // 2 - 9)),
        as_json("a" * (MAX_READ - 9)),
        as_json("a: " * (MAX_READ // 3 - 9)),
        as_json("a." * (MAX_READ // 2 - 9) + "("),
        as_json("E('" + "\\'" * (MAX_READ // 4 - 9)),
        as_json("E('" + "\\" * (MAX_READ // 2 - 9) + "')"),
        as_json("E(" + "''" * (MAX_READ // 2 - 9) + ")"),
        as_json("Traceback " + "\n" * (MAX_READ // 2 - 20)),
        Value("json", b"1" * (MAX_READ - 1)),
        Value("json", b"[" + b"1," * (MAX_READ // 2 - 9) + b"1]"),
        as_json("x" * (MAX_READ - 2)),
        as_json("x" * (MAX_READ - 1)),
        Value("msgpack", ormsgpack.packb("x" * MAX_READ)),
        Value("bytes", b"\x00" * MAX_READ),
        Value("null", b""),
        Value("", b""),
        Value("msgpack", b""),
        Value("json", b"\xff"),
        Value("json", json.dumps({"value": {"question": "q"}, "id": 1e400}).encode()),
    ],
    ids=lambda value: f"{value.type} {value.data[:20]!r} {len(value.data)}",
)
def test_hostile_bytes_are_read_in_linear_time(value: Value) -> None:
    read_all(value)  # quadratic work would take longer than a test may


def test_a_value_above_the_limit_is_not_read() -> None:
    assert texts(as_json("x" * (MAX_READ - 2))) == ["x" * MAX_FACT]
    assert texts(as_json("x" * (MAX_READ - 1))) == [""]
