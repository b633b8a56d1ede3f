"""The JSON view stays within its bounds for any bytes."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import tracemalloc
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_view.kit import (
    JSON_LIKE,
    MSGPACK_LIKE,
    SCALARS,
    extension,
    extension_bytes,
    packed,
    show,
    view,
)
from tuskpoint.v1 import checkpoint_pb2, value_pb2
from tuskpoint_server.core.json_view import views
from tuskpoint_server.core.json_view.escapes import ITEM_COST, MAX_DEPTH, MAX_ENCODED, MAX_TEXT
from tuskpoint_server.core.json_view.views import (
    MAX_CHECKPOINT_TEXT,
    MAX_EXTRAS_TEXT,
    ViewRoom,
    checkpoint_view,
    dump,
)
from tuskpoint_server.core.model import (
    Channel,
    Checkpoint,
    CheckpointEntry,
    CheckpointKey,
    State,
    Value,
    Write,
)
from tuskpoint_server.core.values import value_digest


def in_arrays(levels: int, inside: bytes = b"\x00") -> bytes:
    return b"\x91" * levels + inside


def too_deep(what: str) -> str:
    return f'{{"$too_deep":"{what}"}}'


def test_values_nested_too_deeply_are_left_out_where_they_begin() -> None:
    deepest = in_arrays(MAX_DEPTH)
    shown = show(Value("msgpack", deepest))
    assert shown.complete
    assert dump(shown.content) == b"[" * MAX_DEPTH + b"0" + b"]" * MAX_DEPTH
    for inside, what in [
        (in_arrays(50_000), "array"),
        (b"\x81\x00\xa1a", "object"),
        (extension_bytes(0, b"\x90"), "extension"),
    ]:
        value = Value("msgpack", b"\x92" + in_arrays(MAX_DEPTH - 1, inside) + b"\x07")
        shown = show(value)
        assert not shown.complete
        inner = "[" * (MAX_DEPTH - 1) + too_deep(what) + "]" * (MAX_DEPTH - 1)
        assert dump(shown.content).decode() == f"[{inner},7]"


def test_json_that_is_too_deep_is_left_out_too() -> None:
    for text, what in (("[[1]]", "array"), ('{"a":1}', "object")):
        deep = "[" * MAX_DEPTH + text + "]" * MAX_DEPTH
        shown = show(Value("json", deep.encode()))
        assert not shown.complete
        assert dump(shown.content).decode() == deep.replace(text, too_deep(what))
    deep = "[" * 100_000 + "]" * 100_000
    assert view(Value("json", deep.encode())) == {
        "$opaque": "json",
        "$size": 200_000,
        "$problem": "too_deep",
    }


@pytest.mark.parametrize(
    "value",
    [
        Value("msgpack", packed("x" * MAX_ENCODED)),
        Value("json", b'"%s"' % (b"\0" * MAX_ENCODED)),
        Value("bytes", bytes(MAX_ENCODED - 1)),
        Value("msgpack", packed("\0" * (MAX_TEXT // 6 + 1))),
        Value("msgpack", b"\xdd\x00\x1f\xff\xff" + b"\x80" * 0x1FFFFF),
        Value("msgpack", packed([b"x" * (MAX_TEXT // 4 * 3)])),
        Value("msgpack", packed([0] * (MAX_TEXT // ITEM_COST + 1))),
        Value("json", json.dumps([0] * (MAX_TEXT // ITEM_COST + 1)).encode()),
    ],
    ids=["msgpack", "json", "bytes", "escapes", "maps", "base64", "items", "items of json"],
)
def test_a_value_whose_text_is_too_large_shows_its_size(value: Value) -> None:
    assert view(value) == {
        "$opaque": value.type,
        "$size": len(value.data),
        "$problem": "too_large",
    }


@pytest.mark.parametrize(("left", "text"), [(0, b"1"), (80, b"[%s1]" % (b'{},[],",",' * 4))])
def test_json_for_which_there_is_no_room_is_not_parsed(
    monkeypatch: pytest.MonkeyPatch, left: int, text: bytes
) -> None:
    def parse(*arguments: object, **named: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(json, "loads", parse)
    shown = ViewRoom(left).show(Value("json", text))
    assert shown.content == {"$opaque": "json", "$size": len(text), "$problem": "too_large"}


@given(JSON_LIKE, st.integers(0, 300))
def test_json_that_is_not_parsed_would_not_have_had_room(thing: Any, left: int) -> None:
    value = Value("json", json.dumps(thing).encode())
    shown = show(value, left)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_exceeds_items", lambda data, items: False)
        assert dump(show(value, left).content) == dump(shown.content)


@pytest.mark.parametrize("text", ['"%s"' % (',\\",' * 30), '{"%s": "\\\\"}' % ("," * 40)])
def test_a_comma_in_a_string_is_no_item(text: str) -> None:
    assert show(Value("json", text.encode()), 150).content == json.loads(text)


def test_numbers_that_json_lacks_take_no_more_memory_than_others() -> None:
    items = 100_000
    tracemalloc.start()
    try:
        shown = show(Value("json", b"[" + b"NaN," * items + b"1]"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dump(shown.content) == b"[" + b'{"$float":"NaN"},' * items + b"1]"
    assert peak < 100 * items


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("msgpack", b""),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\x92\x01"),
        ("msgpack", b"\x01\x02"),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\xdf\xff\xff\xff\xff"),
        ("msgpack", b"\xdb\xff\xff\xff\xffabc"),
        ("msgpack", b"\xc9\xff\xff\xff\xff\x00"),
        ("msgpack", in_arrays(MAX_DEPTH + 3, b"\xdb\xff\xff\xff\xff")),
        ("json", b""),
        ("json", b"{"),
        ("json", b"1 2"),
        ("json", b"\xff"),
        ("json", '"é"'.encode("utf-16")),
        ("json", "\ufeff1".encode()),
    ],
)
def test_malformed_bytes_are_shown_as_bytes(kind: str, data: bytes) -> None:
    assert view(Value(kind, data)) == {
        "$opaque": kind,
        "$size": len(data),
        "$problem": "malformed",
        "$bytes": base64.b64encode(data[:1024]).decode(),
    }


def test_a_long_malformed_value_shows_its_beginning() -> None:
    data = bytes([0xC1]) * 5000
    assert base64.b64decode(view(Value("msgpack", data))["$bytes"]) == data[:1024]


def test_a_string_that_is_not_utf_8_shows_its_bytes() -> None:
    assert view(Value("msgpack", b"\x92\xa1\xff\x01")) == [{"$string": "/w=="}, 1]
    assert view(Value("msgpack", b"\x81\xa1\xff\x01")) == {"$map": [[{"$string": "/w=="}, 1]]}


MODULES = st.sampled_from(["antigravity", "os", "langgraph.types", "datetime", "re"])
NAMES = st.sampled_from(["system", "Send", "compile", "date", "x"])
EXTENSIONS: st.SearchStrategy[bytes] = st.deferred(
    lambda: st.builds(
        extension_bytes,
        st.integers(-3, 9),
        st.binary(max_size=20)
        | st.tuples(MODULES, NAMES, SCALARS, NAMES).map(list).map(packed)
        | st.tuples(MODULES, NAMES, EXTENSIONS).map(
            lambda parts: b"\x93" + packed(parts[0]) + packed(parts[1]) + parts[2]
        ),
    )
)


@given(
    st.sampled_from(["msgpack", "json", "null", "bytes", "other"]),
    st.binary(max_size=100)
    | EXTENSIONS
    | st.tuples(EXTENSIONS, st.binary(max_size=3)).map(b"".join)
    | JSON_LIKE.map(json.dumps).map(str.encode)
    | st.tuples(MSGPACK_LIKE.map(packed), st.integers(0, 30)).map(lambda cut: cut[0][cut[1] :]),
)
def test_no_bytes_make_it_fail(kind: str, data: bytes) -> None:
    view(Value(kind, data))


@given(st.binary(max_size=40))
def test_bytes_that_another_reader_opens_are_opened(data: bytes) -> None:
    try:
        ormsgpack.unpackb(data, ext_hook=_ignored, option=ormsgpack.OPT_NON_STR_KEYS)
    except ValueError:
        return
    # That reader ignores the bytes after the first item.
    assert any(not _is_malformed(data[:end]) for end in range(1, len(data) + 1))


def _ignored(code: int, payload: bytes) -> None:
    return None


def _is_malformed(data: bytes) -> bool:
    shown = view(Value("msgpack", data))
    return isinstance(shown, dict) and shown.get("$problem") == "malformed"


def test_nothing_is_imported_or_called() -> None:
    for module in ("antigravity", "this"):
        sys.modules.pop(module, None)
    before = set(sys.modules)
    payloads: list[tuple[int, list[Any]]] = [
        (0, ["antigravity", "fly", 1]),
        (1, ["os", "_exit", [1]]),
        (2, ["this", "s", {"a": 1}]),
        (3, ["os", "environ", "PATH", "pop"]),
        (4, ["antigravity", "X", {}]),
        (5, ["antigravity", "X", {}, "model_validate_json"]),
        (6, ["O", [1], "C", b"x"]),
    ]
    for code, payload in payloads:
        shown = view(extension(code, payload))
        assert shown["$type"] in (f"{payload[0]}.{payload[1]}", "numpy.ndarray")
    assert set(sys.modules) == before


# --- checkpoints -------------------------------------------------------------------------------


def entry() -> CheckpointEntry:
    return CheckpointEntry(CheckpointKey("t", "", "1"), "", 1, 1, False, 1, b"{}")


def channel(name: str, value: Value | None) -> Channel:
    digest = value_digest(value) if value is not None else None
    return Channel(name, "1", digest, len(value.data) if value is not None else 0, value)


def written(name: str, value: Value) -> Write:
    return Write("task", "", -3, name, value, value_digest(value))


def test_a_checkpoint_keeps_everything_but_its_values() -> None:
    value, question = Value("msgpack", packed({1: 2})), Value("msgpack", packed(["go?"]))
    frame = checkpoint_pb2.CheckpointState(schema_version=4, ts="now")
    frame.extras["more"].CopyFrom(value_pb2.Value(type="msgpack", data=packed(b"x")))
    loaded = Checkpoint(
        entry(),
        State(frame.SerializeToString(), (channel("full", value), channel("empty", None))),
        (written("__interrupt__", question),),
    )
    shown = checkpoint_view(loaded)
    assert shown.entry == loaded.entry
    assert shown.state is not None
    full, empty = shown.state.channels
    assert full == dataclasses.replace(
        channel("full", value), value=Value("json", b'{"$map":[[1,2]]}')
    )
    assert empty == channel("empty", None)
    assert shown.writes == (dataclasses.replace(loaded.writes[0], value=Value("json", b'["go?"]')),)
    read = checkpoint_pb2.CheckpointState.FromString(shown.state.frame)
    assert (read.extras["more"].type, read.extras["more"].data) == ("json", b'{"$bytes":"eA=="}')
    assert (read.schema_version, read.ts) == (4, "now")


def test_an_entry_has_nothing_to_show() -> None:
    assert checkpoint_view(Checkpoint(entry())) == Checkpoint(entry())


def test_the_text_of_a_checkpoint_is_bounded_and_writes_come_first() -> None:
    value = Value("bytes", bytes(MAX_TEXT // 2))
    frame = checkpoint_pb2.CheckpointState()
    for number in range(20):
        frame.extras[str(number)].CopyFrom(value_pb2.Value(type="json", data=b"1" * 100_000))
    loaded = Checkpoint(
        entry(),
        State(frame.SerializeToString(), tuple(channel(str(n), value) for n in range(20))),
        (written("__interrupt__", value),),
    )
    shown = checkpoint_view(loaded)
    assert shown.state is not None
    assert shown.writes[0].value.data.startswith(b'{"$bytes":')
    texts = [each.value.data for each in shown.state.channels if each.value is not None]
    total = sum(map(len, texts)) + len(shown.writes[0].value.data)
    assert MAX_CHECKPOINT_TEXT // 2 < total <= MAX_CHECKPOINT_TEXT + 20 * 200
    assert texts[0].startswith(b'{"$bytes":')
    assert json.loads(texts[-1]) == {
        "$opaque": "bytes",
        "$size": MAX_TEXT // 2,
        "$problem": "too_large",
    }
    extras = checkpoint_pb2.CheckpointState.FromString(shown.state.frame).extras
    assert sum(len(held.data) for held in extras.values()) <= MAX_EXTRAS_TEXT + 20 * 200
