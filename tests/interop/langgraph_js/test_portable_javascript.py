"""LangGraph.js reads values that Python writes, and the other way round."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send, TimeoutPolicy

from tests.interop.langgraph_js import javascript
from tests.unit.client.portable.values import SNAPSHOTS, VALUES, plain
from tuskpoint.langgraph import PortableSerializer
from tuskpoint.langgraph.portable import Map, PortableError, Record, RegExp
from tuskpoint.langgraph.portable.channels import native

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(javascript.missing()), reason=javascript.missing()),
]

SCRIPT = Path(__file__).with_name("portable_peer.mjs")
SERDE = PortableSerializer()


class LangGraphJs:
    """The serializer of LangGraph.js."""

    def __init__(self, peer: javascript.Peer) -> None:
        self._peer = peer
        self.names: list[str] = peer.read()

    def again(self, value: Any) -> tuple[Any, str]:
        """Return a value that JavaScript loaded and saved, and its form in JavaScript."""
        kind, data = SERDE.dumps_typed(value)
        encoded = base64.b64encode(data).decode()
        return self._read(self._peer.ask(do="again", type=kind, data=encoded))

    def make(self, name: str) -> tuple[Any, str]:
        """Return a value that JavaScript created, and its form in JavaScript."""
        return self._read(self._peer.ask(do="make", name=name))

    def _read(self, answer: dict[str, str]) -> tuple[Any, str]:
        assert "problem" not in answer, answer
        data = base64.b64decode(answer["data"])
        return SERDE.loads_typed((answer["type"], data)), answer["shown"]


@pytest.fixture(scope="module")
def js() -> Iterator[LangGraphJs]:
    package = str(javascript.CLIENT / "package.json")
    with javascript.running(SCRIPT, package) as peer:
        yield LangGraphJs(peer)


# --- from Python to JavaScript and back -------------------------------------------------------


@settings(max_examples=150)
@given(value=VALUES | SNAPSHOTS)
@example({"__proto__": {"a": 1}, "constructor": 2})
@example([1.0, -0.0, 1e16, 5e-324, 2**60, 10**20, 10**21, 1.2345678901234567e20])
@example({"lc": 2, "type": "undefined"})
@example({"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "AIMessage"]})
@example([HumanMessage("", additional_kwargs={"a": {"lc": 1, "type": "secret", "id": ["X"]}})])
@example(HumanMessage("", additional_kwargs={"__lc_escaped__": {"lc": 1, "id": []}}))
@example(HumanMessage("", additional_kwargs={"lc": HumanMessage("")}))
@example(HumanMessage("", additional_kwargs={"a": {1: HumanMessage("", id="b")}}))
@example({"lg_name": "Send", "node": "dig", "args": 1, "more": 2})
def test_every_value_comes_back_from_javascript(js: LangGraphJs, value: Any) -> None:
    copy, _ = js.again(value)
    assert plain(copy, exact=False) == plain(value, exact=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (b"\x00\xff", "Uint8Array(2) [ 0, 255 ]"),
        ([b"\x00\xff"], "[ Uint8Array(2) [ 0, 255 ] ]"),
        ({"a", "b"}, "Set(2) { 'a', 'b' }"),
        ({1: "one", "1": "text"}, "Map(2) { 1 => 'one', '1' => 'text' }"),
        (Map(a=1), "Map(1) { 'a' => 1 }"),
        (RegExp("a+", "gi"), "/a+/gi"),
        ((1, 2.0, "x"), "[ 1, 2, 'x' ]"),
        (_DeltaSnapshot([1]), "DeltaSnapshot { lg_name: 'DeltaSnapshot', value: [ 1 ] }"),
        (2**53 + 1, "value: '9007199254740993'"),
        (float("nan"), "value: 'NaN'"),
        (datetime(2026, 1, 2, tzinfo=UTC), "value: '2026-01-02T00:00:00+00:00'"),
        (date(2026, 1, 2), "value: '2026-01-02'"),
        (timedelta(days=1), "days: 1, seconds: 0, microseconds: 0"),
        (Decimal("1.10"), "value: '1.10'"),
        (Send("dig", {"topic": "tusks"}), "node: 'dig', args: { topic: 'tusks' }"),
        (Interrupt("proceed?", id="i"), "value: 'proceed?', id: 'i'"),
        (Overwrite([1]), "__overwrite__: [ 1 ]"),
        (ValueError("no tusks"), "name: 'ValueError', message: 'no tusks'"),
        (PortableError("no tusks"), "Error: no tusks"),
        (Document(page_content="text"), "pageContent: 'text', metadata: {}"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_javascript_sees_something_sensible(js: LangGraphJs, value: Any, shown: str) -> None:
    assert shown in js.again(value)[1]


MESSAGES: list[BaseMessage] = [
    HumanMessage([{"type": "text", "text": "look"}, {"type": "image", "url": "https://a.invalid"}]),
    AIMessage(
        "",
        tool_calls=[{"name": "dig", "args": {"depth": {"m": 2}}, "id": "call-1"}],
        invalid_tool_calls=[
            {
                "name": "dig",
                "args": "{",
                "id": None,
                "error": "no JSON",
                "type": "invalid_tool_call",
            }
        ],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    AIMessageChunk(
        content="di", tool_call_chunks=[{"name": "dig", "args": "{}", "id": "1", "index": 0}]
    ),
    SystemMessage("be brief"),
    ToolMessage("found", tool_call_id="call-1", artifact=[HumanMessage("nested", id="n"), {1, 2}]),
    ToolMessageChunk(content="fo", tool_call_id="call-1"),
    ChatMessage(content="aye", role="mate"),
    FunctionMessage(content="1", name="count"),
    RemoveMessage(id="m-2"),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_are_messages_in_javascript(js: LangGraphJs, message: BaseMessage) -> None:
    message.id = "m-1"
    message.additional_kwargs = {"raw": b"\x01", "when": date(2026, 1, 2), "seen": {1: {2}}}
    message.response_metadata = {"model_name": "m"}

    copies, shown = js.again([message])

    assert plain(copies, exact=True) == plain([message], exact=True)
    if not isinstance(message, ToolMessageChunk):
        assert shown.startswith(f"[ {type(message).__name__} ")
        assert "id: 'm-1'" in shown


def test_blocks_of_the_first_version_get_their_tool_calls_in_javascript(js: LangGraphJs) -> None:
    message = AIMessage(
        content=[{"type": "text", "text": "digging"}],
        tool_calls=[{"name": "dig", "args": {}, "id": "call-1"}],
        response_metadata={"output_version": "v1"},
    )
    copy, _ = js.again(message)
    assert copy.tool_calls == message.tool_calls
    assert copy.content == [
        {"type": "text", "text": "digging"},
        {"type": "tool_call", "id": "call-1", "name": "dig", "args": {}},
    ]


# --- from JavaScript to Python and back -------------------------------------------------------

MADE: dict[str, Any] = {
    "null": None,
    "undefined": None,
    "true": True,
    "text": "tusk \U0001f9a3 \ud800",
    "integer": 2**53 - 1,
    "fraction": 0.1,
    "large": 2.0**60,  # JavaScript's decimal digits differ from the exact value.
    "huge": 1e300,
    "date": "2026-01-02T03:04:05.678Z",
    "bytes": b"\x00\xff",
    "buffer": {"held": {"type": "Buffer", "data": [1, 2]}},
    "nested_bytes": {"held": [b"\x00\xff"]},
    "set": {"a", "b"},
    "set_of_lists": {(1, (2,)), (3,)},
    "set_of_sets": {frozenset([1])},
    "map": Map(a=1),
    "map_of_numbers": {1: "one", "1": "text"},
    "regexp": RegExp("tusks?", "giu"),
    "error": PortableError("no tusks"),
    "holes": {"list": [None, 1], "kept": None},
    "snapshot": _DeltaSnapshot([HumanMessage("hi", id="h")]),
    "send": {"node": "dig", "args": {"topic": "tusks"}},
    "timed_send": {
        "node": "dig",
        "args": {"topic": "tusks"},
        "timeout": {"idleTimeout": 1500, "refreshOn": "auto"},
    },
    "overwrite": {"__overwrite__": ["a"]},
    "failure": {"message": "no tusks", "name": "TypeError"},
    "document": {"pageContent": "text", "metadata": {"page": 1}},
    "human": HumanMessage("hello"),
    "blocks": HumanMessage(
        [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://example.invalid/tusk.png"}},
        ],
        id="h-1",
        name="ann",
        # LangChain.js itself changes bytes in a message to this.
        additional_kwargs={"seen": {"0": 7}, "extra": Record(lc=1, note="mine")},
    ),
    "ai": AIMessage(
        "",
        id="ai-1",
        tool_calls=[{"name": "dig", "args": {"depth": 2}, "id": "call-1"}],
        invalid_tool_calls=[
            {
                "name": "dig",
                "args": "{",
                "id": "call-2",
                "error": "Malformed args.",
                "type": "invalid_tool_call",
            }
        ],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m"},
    ),
    "ai_sparse": AIMessage(
        "",
        tool_calls=[{"name": "dig", "args": {}, "id": None}],
        invalid_tool_calls=[
            {"name": None, "args": "{", "id": None, "error": None, "type": "invalid_tool_call"}
        ],
    ),
    "ai_blocks": AIMessage(
        [
            {"type": "text", "text": "digging"},
            {"type": "tool_call", "id": "call-1", "name": "dig", "args": {"depth": 2}},
        ],
        tool_calls=[{"name": "dig", "args": {"depth": 2}, "id": "call-1"}],
        response_metadata={"output_version": "v1"},
    ),
    "ai_chunk": AIMessageChunk(
        content="di",
        id="ai-2",
        tool_call_chunks=[{"name": "dig", "args": "{}", "id": "call-1", "index": 0}],
    ),
    "tool": ToolMessage(
        "found", tool_call_id="call-1", status="error", artifact={"found": [1, 2]}, name="dig"
    ),
    "system": SystemMessage("be brief"),
    "chat": ChatMessage(content="aye", role="mate"),
    "function": FunctionMessage(content="1", name="count"),
    "remove": RemoveMessage(id="h-1"),
}

INERT = ["set_of_objects", "set_of_one_and_true", "map_of_objects", "prompt", "look_alike"]


def test_all_that_javascript_makes_is_expected(js: LangGraphJs) -> None:
    assert sorted(js.names) == sorted([*MADE, *INERT])


@pytest.mark.parametrize("name", MADE)
def test_python_reads_values_of_javascript(js: LangGraphJs, name: str) -> None:
    value, _ = js.make(name)
    assert plain(value, exact=True) == plain(MADE[name], exact=True)


@pytest.mark.parametrize("name", INERT)
def test_values_without_a_counterpart_in_python_go_back_unchanged(
    js: LangGraphJs, name: str
) -> None:
    value, shown = js.make(name)
    assert type(value) is Record
    if name != "prompt":  # JavaScript loads a prompt in another form.
        assert js.again(value) == (value, shown)


@pytest.mark.parametrize("name", ["set", "map", "regexp", "snapshot", "nested_bytes"])
def test_javascripts_own_kinds_are_the_same_kinds_when_they_return(
    js: LangGraphJs, name: str
) -> None:
    value, shown = js.make(name)
    again, seen = js.again(value)
    assert plain(again, exact=True) == plain(value, exact=True)
    assert seen.partition(" ")[0] == shown.partition(" ")[0]


def test_sends_and_failures_are_known_by_their_channels(js: LangGraphJs) -> None:
    timeout = TimeoutPolicy(idle_timeout=1.5)
    sends = [js.make("send")[0], js.make("timed_send")[0]]
    assert native("__pregel_tasks", sends) == [
        Send("dig", {"topic": "tusks"}),
        Send("dig", {"topic": "tusks"}, timeout=timeout),
    ]
    assert native("__error__", js.make("failure")[0]) == PortableError("no tusks", "TypeError")
