"""The searchable text of a state is its plan or its view, for any bytes."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Interrupt

from tests.unit.core.json_view.kit import VALUES, as_json, extension_bytes, packed, stored
from tuskpoint_server.core.model import Value
from tuskpoint_server.search.searchable import MAX_SHOWN, SearchableBody, body_of, head_of

NOTHING: frozenset[str] = frozenset()
ROOM = 8192


def body(*, excluded: frozenset[str] = NOTHING, room: int = ROOM, **channels: Any) -> str:
    """Return the text of a state without a plan."""
    text, planned, _ = body_of(
        [(name, as_json(thing)) for name, thing in channels.items()], excluded, room
    )
    assert not planned
    assert len(text.encode()) <= room
    return text


def shown_of(**channels: Any) -> Any:
    """Return the parsed text of a state without a plan."""
    return json.loads(body(**channels))


# --- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        ("1. Read.\n2. Write “it”.", "1. Read.\n2. Write “it”."),
        (["Read", "Write"], "Read\nWrite"),
        ({"next": ["Read", 2]}, '{"next":["Read",2]}'),
        ([{"step": "Read"}], '[{"step":"Read"}]'),
        (7, "7"),
        ("a\0b", "a b"),
    ],
)
@pytest.mark.parametrize("kind", [stored, as_json])
def test_a_plan_is_the_text(kind: Any, plan: Any, text: str) -> None:
    channels = [("question", as_json("ignored")), ("current_plan", kind(plan))]
    assert body_of(channels, NOTHING, ROOM)[:2] == (text, True)


@pytest.mark.parametrize("plan", [None, "", " \n", [], ["", ""], {}, {"steps": []}, b"\0\1"])
def test_an_empty_plan_is_no_plan(plan: Any) -> None:
    channels = [("current_plan", stored(plan)), ("question", as_json("Which?"))]
    assert body_of(channels, NOTHING, ROOM)[:2] == ('{"question":"Which?"}', False)


def test_an_excluded_plan_is_neither_the_text_nor_in_it() -> None:
    channels = [("current_plan", as_json("Secret")), ("question", as_json("Which?"))]
    assert body_of(channels, frozenset({"current_plan"}), ROOM)[:2] == (
        '{"question":"Which?"}',
        False,
    )


def test_excluded_names_are_left_out_of_a_plan() -> None:
    channels = [("current_plan", as_json({"do": "Read", "password": "Tusk"}))]
    assert body_of(channels, frozenset({"password"}), ROOM)[:2] == ('{"do":"Read"}', True)


@pytest.mark.parametrize(
    ("room", "text", "truncated"),
    [(8, "€ééa", False), (7, "ééa", True), (5, "ééa", True), (4, "éa", True), (1, "a", True)],
)
def test_of_a_long_plan_the_latest_characters_are_kept_whole(
    room: int, text: str, truncated: bool
) -> None:
    channels = [("current_plan", as_json("€ééa"))]
    assert body_of(channels, NOTHING, room) == (text, True, truncated)


@pytest.mark.parametrize("kind", [stored, as_json])
@pytest.mark.parametrize("shape", ["\n".join, list, lambda steps: {"steps": steps}])
def test_of_a_long_plan_the_latest_steps_are_the_text(kind: Any, shape: Any) -> None:
    steps = [f"step {number} is to write chapter {number}" for number in range(1000)]
    text, planned, truncated = body_of([("current_plan", kind(shape(steps)))], NOTHING, ROOM)
    assert planned
    assert truncated
    assert "step 999 is" in text
    assert "step 0 is" not in text
    assert ROOM - 100 < len(text.encode()) <= ROOM


def test_a_plan_that_ends_in_much_white_space_is_a_plan() -> None:
    channels = [("current_plan", as_json("Read." + " " * ROOM)), ("question", as_json("Which?"))]
    assert body_of(channels, NOTHING, ROOM) == ("Read.", True, False)


# --- labels and questions --------------------------------------------------------------------


def body_of_question(
    *values: Any, maximum: int = ROOM, excluded: frozenset[str] = NOTHING, **more: Any
) -> SearchableBody:
    """Return the body of a checkpoint whose tasks wait for answers."""
    interrupts = [(Interrupt(value=value, id="1f" * 16),) for value in values]
    channels = [(name, as_json(value)) for name, value in more.items()]
    return body_of([*channels, ("__interrupt__", stored(interrupts))], excluded, maximum)


def test_questions_come_before_the_state_or_the_plan() -> None:
    assert body_of_question("Send?", {"pick": ["a", "b"]}, draft="Text").text == (
        'asks: Send?\nasks: {"pick":["a","b"]}\n{"draft":"Text"}'
    )
    body = body_of_question("Send\nnow?", current_plan="Read.\nWrite.", draft="Text")
    assert (body.text, body.planned) == ("asks: Send now?\nRead.\nWrite.", True)
    assert body_of_question("Send?").text == "asks: Send?"
    assert body_of_question(None, "", [], draft="Text").text == '{"draft":"Text"}'


@pytest.mark.parametrize("shape", [[{"value": "Send?", "id": "1"}], ["Send?"], "Send?"])
def test_questions_of_other_languages_are_read_alike(shape: Any) -> None:
    channels = [("__interrupt__", as_json(shape))]
    assert body_of(channels, NOTHING, ROOM).text == "asks: Send?"


def test_questions_can_be_excluded() -> None:
    assert (
        body_of_question("Send?", excluded=frozenset({"__interrupt__"}), a="b").text == '{"a":"b"}'
    )
    assert (
        body_of_question({"to": "me", "body": "x"}, excluded=frozenset({"to"})).text
        == 'asks: {"body":"x"}'
    )


def test_long_questions_leave_half_of_the_room_to_the_state() -> None:
    body = body_of_question("q" * 20 + " word" * ROOM, "Send?", draft="Text " * ROOM)
    assert body.truncated
    assert len(body.text.encode()) <= ROOM
    first, second, state = body.text.split("\n")
    assert second == "asks: Send?"
    assert ROOM / 2 - 100 < len(first) + len(second) < ROOM / 2
    assert len(state) > ROOM / 2 - 100
    assert not body_of_question("Send?", draft="Text").truncated
    assert body_of_question("Send?" * 100, maximum=200).truncated


def test_a_label_is_a_line_of_its_own() -> None:
    channels = [("draft", as_json("Text"))]
    assert body_of(channels, NOTHING, ROOM, "before\nthe  {cut") == (
        'label: before the {cut\n{"draft":"Text"}',
        False,
        False,
    )
    assert body_of([], NOTHING, ROOM, "gold").text == "label: gold"
    assert head_of('label: gold\nasks: {"a":1}\n{"draft":"Text"}') == 'label: gold\nasks: {"a":1}'
    assert head_of("asks: Send?") == "asks: Send?"
    assert head_of('{"label: ":1}') == ""


# --- states ----------------------------------------------------------------------------------


def test_a_state_is_one_object_in_the_order_given() -> None:
    assert body(b={"x": [1, True, 2.5]}, a="word") == '{"b":{"x":[1,true,2.5]},"a":"word"}'


def test_empty_values_are_left_out() -> None:
    assert shown_of(a=None, b="", c=[], d={"e": None, "f": 0, "g": [{}]}, h=[None, False]) == {
        "d": {"f": 0},
        "h": [False],
    }
    assert body(a=None) == ""
    assert body() == ""


def test_channels_of_langgraph_itself_are_left_out() -> None:
    channels = [
        ("__start__", as_json({"question": "Which?"})),
        ("branch:to:writer", as_json("writer")),
        ("draft", as_json("The text")),
    ]
    assert body_of(channels, NOTHING, ROOM)[:2] == ('{"draft":"The text"}', False)


def test_the_state_of_a_graph_without_channels_is_not_left_out() -> None:
    channels = [("__root__", as_json(["Which?"]))]
    assert body_of(channels, NOTHING, ROOM)[:2] == ('{"__root__":["Which?"]}', False)


def test_excluded_names_are_left_out_at_any_depth() -> None:
    excluded = frozenset({"secret", "$ref"})
    state = {"kept": [{"secret": "Tusk", "said": {"secret": 1, "$ref": "x", "ref": "y"}}]}
    assert shown_of(excluded=excluded, a=state, secret="Tusk") == {
        "a": {"kept": [{"said": {"ref": "y"}}]}
    }


def test_excluded_names_are_left_out_of_maps_and_objects_of_python() -> None:
    excluded = frozenset({"secret", "content"})
    channels = [
        ("map", Value("msgpack", packed({"secret": "Tusk", 7: "seven"}))),
        ("messages", stored([HumanMessage("Tusk", id="m-1")])),
    ]
    text, planned, _ = body_of(channels, excluded, ROOM)
    assert json.loads(text) == {
        "map": [[7, "seven"]],
        "messages": [{"type": "human", "id": "m-1"}],
    }
    assert not planned


def test_extensions_are_shown_without_names_of_code() -> None:
    moment = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
    identity = uuid.UUID("1f0c7d2a-91b3-6e44-8000-5e1a2b3c4d5e")
    channels = [
        ("messages", stored([AIMessage("Two drafts", id="m-2")])),
        ("known", stored({"when": moment, "who": identity, "many": 2**60})),
    ]
    shown = json.loads(body_of(channels, NOTHING, ROOM)[0])
    assert shown["messages"] == [{"content": "Two drafts", "type": "ai", "id": "m-2"}]
    assert "2026-11-22T09:30" in json.dumps(shown["known"]["when"])
    # LangGraph stores the digits of a UUID without hyphens.
    assert shown["known"]["who"] == identity.hex
    assert shown["known"]["many"] == str(2**60)


def test_binary_values_are_left_out() -> None:
    picture = b"\x89PNG" * 100
    channels = [
        ("raw", Value("bytes", picture)),
        ("array", Value("bytearray", picture)),
        ("pickled", Value("pickle", picture)),
        ("broken", Value("json", b"{")),
        ("mixed", stored({"image": picture, "caption": "A tusk"})),
        ("unknown", Value("msgpack", extension_bytes(99, picture))),
        ("not_utf8", Value("msgpack", b"\xa2\xff\xfe")),
        ("numbers", stored(numpy.arange(100.0))),
        ("url", as_json([f"data:image/png;base64,{'iVBOR' * 100}", "A walrus"])),
    ]
    shown = json.loads(body_of(channels, NOTHING, ROOM)[0])
    assert shown.pop("numbers").keys() <= {"dtype", "shape", "order"}
    assert shown == {
        "mixed": {"caption": "A tusk"},
        "url": ["data:image/png;base64,", "A walrus"],
    }


def test_words_are_apart_where_lines_were_broken() -> None:
    assert shown_of(a="one\ntwo\r\n\tthree\0four") == {"a": "one two three four"}


def test_half_a_surrogate_pair_does_not_fail() -> None:
    lone = Value("json", b'"a\\ud800b"')
    assert body_of([("a", lone)], NOTHING, ROOM)[:2] == ('{"a":"a?b"}', False)
    assert body_of([("current_plan", lone)], NOTHING, ROOM)[:2] == ("a?b", True)


# --- long texts ------------------------------------------------------------------------------


def test_an_array_keeps_its_last_items() -> None:
    messages = [f"message {number}" for number in range(100)]
    kept = shown_of(room=100, messages=messages)["messages"]
    assert 3 < len(kept) < 10
    # Only the oldest item is cut.
    assert kept[1:] == messages[-len(kept) + 1 :]
    assert messages[-len(kept)].endswith(kept[0])


def test_a_long_member_leaves_room_for_the_others_and_a_string_keeps_its_end() -> None:
    said = " ".join(f"word {number}" for number in range(50))
    kept = shown_of(room=50, a={"x": "first", "y": said, "z": "last"})
    assert list(kept["a"]) == ["x", "y", "z"]
    assert (kept["a"]["x"], kept["a"]["z"]) == ("first", "last")
    assert kept["a"]["y"]
    assert said.endswith(kept["a"]["y"])


def test_a_long_channel_leaves_room_for_the_others() -> None:
    kept = shown_of(room=1000, log=["line"] * 10_000, question="Which?", answer="This")
    assert kept["question"] == "Which?"
    assert kept["answer"] == "This"
    assert len(kept["log"]) * len('"line",') > 900
    both = shown_of(room=1000, first="x" * 100, second="y " * 1000, third="z " * 1000)
    assert both["first"] == "x" * 100
    assert len(both["second"]) > 400
    assert len(both["third"]) > 400


def test_escapes_are_not_cut_in_two() -> None:
    for room in range(4, 40):
        text = body(room=room, a='\\"' * 20)
        assert not text or ('\\"' * 20).endswith(json.loads(text)["a"])


def test_a_value_that_is_far_too_large_is_left_out() -> None:
    assert shown_of(huge="word " * MAX_SHOWN, small="word") == {"small": "word"}


@pytest.mark.parametrize(
    ("channels", "truncated"),
    [
        ({"a": "word", "b": [1, 2]}, False),
        ({"a": "word " * 400}, True),
        ({"a": ["word"] * 400, "b": "word"}, True),
        ({"a": {str(number): "word" for number in range(400)}}, True),
        ({"current_plan": "Read", "a": "word " * 400}, False),
        ({"current_plan": "Read " * 400}, True),
        ({"current_plan": ["Read"] * 400}, True),
        ({"a": "word " * MAX_SHOWN, "b": "word"}, True),
    ],
    ids=lambda it: str(it)[:30],
)
def test_text_that_does_not_fit_is_reported(channels: dict[str, Any], truncated: bool) -> None:
    held = [(name, as_json(thing)) for name, thing in channels.items()]
    assert body_of(held, NOTHING, 1000).truncated is truncated


# --- any bytes -------------------------------------------------------------------------------

NAMES = st.sampled_from(["current_plan", "a", "b", "$x", "__c", "é"]) | st.text(max_size=5)


@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=4),
    st.frozensets(NAMES, max_size=2),
    st.integers(1, 300) | st.just(ROOM),
)
@example([("a", as_json("é" * 100))], NOTHING, 11)
def test_no_bytes_make_it_fail(
    channels: list[tuple[str, Value]], excluded: frozenset[str], room: int
) -> None:
    text, planned, _ = body_of(channels, excluded, room)
    assert len(text.encode()) <= room
    assert "\0" not in text
    if planned:
        assert text
        assert "current_plan" not in excluded
    elif text:
        shown = json.loads(text)
        assert shown
        assert shown.keys() <= {name for name, _ in channels} - excluded - {"current_plan"}
