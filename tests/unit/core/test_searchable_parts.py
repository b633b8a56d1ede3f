"""The part that is read from bytes equals the part of the view, for any bytes."""

from __future__ import annotations

import re
import struct
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from tests.unit.core.json_view.kit import (
    SCALARS,
    VALUES,
    as_json,
    extension_bytes,
    packed,
    show,
    stored,
)
from tuskpoint_server.core.json_view.escapes import MAX_DEPTH, MalformedError, ViewBounds
from tuskpoint_server.core.json_view.msgpack_walk import walk
from tuskpoint_server.core.model import Value
from tuskpoint_server.search import searchable
from tuskpoint_server.search.searchable import body_of
from tuskpoint_server.search.searchable_parts import (
    ROOM_OF_BYTE,
    RareItemError,
    part_of_view,
    read_part,
    spaced,
)

NOTHING: frozenset[str] = frozenset()
SPACES = st.text(st.sampled_from("a- \n\t\0\x1c\x85\xa0\u2003é\ud800"), max_size=12)
LONG = st.builds("".join, st.lists(SPACES | st.sampled_from(["a" * 127, "b+/=" * 40]), max_size=6))
NAMES = st.sampled_from(["content", "secret", "id", "$type", "$", "value", "é", ""]) | st.integers(
    -9, 9
)
CONTENTS = (SCALARS | st.binary(max_size=9) | LONG.filter(str.isascii)).map(packed)
STRINGS = st.sampled_from([packed("langchain_core"), packed("n" * 40), b"\xa1\xff", packed(1)])


def _map(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"\xdf" + struct.pack(">I", len(members)) + b"".join(map(b"".join, members))


def _array(items: list[bytes]) -> bytes:
    return b"\xdc" + struct.pack(">H", len(items)) + b"".join(items)


def _payloads(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    named = st.tuples(STRINGS, STRINGS, inner)
    return st.one_of(
        inner,
        named.map(b"".join).map(b"\x93".__add__),
        st.tuples(named.map(b"".join), STRINGS).map(b"".join).map(b"\x94".__add__),
    )


ITEMS = st.recursive(
    CONTENTS | st.sampled_from([b"\x80", b"\x90", b"\xa0", b"\xc0", b"\xc4\0", b"\xc1"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_array),
        st.lists(st.tuples(NAMES.map(packed) | st.just(b"\xa1\xff"), inner), max_size=4).map(_map),
        st.builds(extension_bytes, st.integers(-2, 9), _payloads(inner)),
    ),
    max_leaves=12,
)
"""Items of msgpack as agents write them, and some that no agent writes."""

CUT = st.tuples(ITEMS, st.integers(0, 30)).map(lambda cut: cut[0][: len(cut[0]) - cut[1]])
FOLLOWED = st.tuples(ITEMS, st.binary(max_size=2)).map(b"".join)
ANY = VALUES | (ITEMS | CUT | FOLLOWED).map(lambda data: Value("msgpack", data))
EXCLUDED = st.frozensets(st.sampled_from(["content", "secret", "value", "$type"]), max_size=2)
DUPLICATES = packed("a") + packed("b"), packed("a") + packed("c")


@given(ANY, EXCLUDED)
@example(Value("msgpack", b"\x82" + b"".join(DUPLICATES)), NOTHING)
@example(Value("msgpack", b"\x82\xa1\xff\xc0" + DUPLICATES[0]), NOTHING)
@example(Value("json", b'{"a": 1, "a": 2, "b": "x"}'), NOTHING)
@example(Value("json", b'{"\\ud800": "x"}'), NOTHING)
@example(Value("json", b'["a\\n b", NaN, 1e400, 99999999999999999999]'), NOTHING)
@example(Value("json", b"[" * 100_000), NOTHING)
@example(Value("json", b"[" * (MAX_DEPTH + 1) + b"1" + b"]" * (MAX_DEPTH + 1)), NOTHING)
@example(Value("msgpack", b"\x91" * (MAX_DEPTH + 1) + b"\x01"), NOTHING)
def test_a_part_is_that_of_the_view(value: Value, excluded: frozenset[str]) -> None:
    try:
        part = read_part(value, excluded)
    except RareItemError:
        return
    assert repr(part) == repr(part_of_view(show(value).content, excluded))


@given(ITEMS)
def test_what_is_read_has_room_for_its_view(data: bytes) -> None:
    try:
        read_part(Value("msgpack", data), NOTHING)
    except RareItemError:
        return
    bounds = ViewBounds(ROOM_OF_BYTE * len(data))
    with suppress(MalformedError):
        walk(data, bounds)


@given(st.lists(st.tuples(st.sampled_from("abc"), ANY), max_size=4), EXCLUDED, st.integers(1, 300))
def test_a_body_is_that_of_the_views(
    channels: list[tuple[str, Value]], excluded: frozenset[str], room: int
) -> None:
    body = body_of(channels, excluded, room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searchable, "ROOM_OF_BYTE", 1 << 40)
        assert body_of(channels, excluded, room) == body


@pytest.mark.parametrize(
    "value",
    [
        stored([HumanMessage("Which?", id="1"), AIMessage("This", id="2", tool_calls=[])]),
        stored({"when": {"a", "b"}, "many": [1, 2.5, None, True, b"\0"], "é": {"n" * 40: "x"}}),
        as_json({"a": [1, {"b": "c"}], "d": None}),
    ],
)
def test_what_agents_save_is_read_without_a_view(value: Value) -> None:
    part = read_part(value, NOTHING)
    assert part == part_of_view(show(value).content, NOTHING)
    assert part


def words_of(text: str) -> list[str]:
    """Return the words of a text without long runs, step by step."""
    text = "".join("?" if "\ud800" <= char <= "\udfff" else char for char in text)
    text = re.sub(r"[\x00-\x08\x0e-\x1b]", " ", text)
    return re.sub(r"[A-Za-z0-9+/=_-]{129,}", " ", " ".join(text.split())).split()


@given(SPACES | LONG)
@example("a" * 128)
@example("a" * 129)
@example(" " + "a" * 128 + " " + "b" * 129 + " c")
@example("." * 64 + "a" * 129 + "." * 64)
def test_words_have_one_space_between_them_and_long_runs_are_left_out(text: str) -> None:
    assert spaced(text) == " ".join(words_of(text))
