"""Values for the tests of the JSON view, and their views."""

from __future__ import annotations

import json
import struct
from typing import Any

import ormsgpack
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tuskpoint_server.core.json_view.escapes import MAX_TEXT
from tuskpoint_server.core.json_view.views import ValueView, ViewRoom
from tuskpoint_server.core.model import Value

SERDE = JsonPlusSerializer()


def stored(thing: Any) -> Value:
    """Return a value in the form of LangGraph's savers."""
    return Value(*SERDE.dumps_typed(thing))


def as_json(thing: Any) -> Value:
    """Return a value in the JSON form that agents of any language write."""
    return Value("json", json.dumps(thing).encode())


def show(value: Value, left: int = MAX_TEXT) -> ValueView:
    return ViewRoom(left).show(value)


def value_view(value: Value) -> Value:
    return ViewRoom(MAX_TEXT).view(value)


def view(value: Value) -> Any:
    """Return the view of a value, which must be JSON in UTF-8 within the bounds."""
    shown = value_view(value)
    assert shown.type == "json"
    assert len(shown.data) <= MAX_TEXT
    return json.loads(shown.data.decode("utf-8"), parse_constant=_refused)


def _refused(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def packed(thing: Any) -> bytes:
    return ormsgpack.packb(thing, option=ormsgpack.OPT_NON_STR_KEYS)


def extension(code: int, payload: Any) -> Value:
    return Value("msgpack", ormsgpack.packb(ormsgpack.Ext(code, packed(payload))))


def extension_bytes(code: int, payload: bytes) -> bytes:
    return b"\xc9" + struct.pack(">Ib", len(payload), code) + payload


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["$", "$$", "$int", "$$type", "é", "\0", "\U0001f600"])
)
KEYS = st.text() | st.sampled_from(["$", "$$", "$map", "$type", "$int", "$bytes"])
JSON_LIKE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)
MSGPACK_LIKE = st.recursive(
    SCALARS | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(KEYS | st.integers(-9, 9) | st.booleans() | st.none(), inner)
    ),
    max_leaves=20,
)
VALUES = st.one_of(
    JSON_LIKE.map(as_json),
    MSGPACK_LIKE.map(lambda thing: Value("msgpack", packed(thing))),
    st.builds(
        lambda code, thing: Value("msgpack", extension_bytes(code, packed(thing))),
        st.integers(-2, 8),
        MSGPACK_LIKE,
    ),
    st.builds(Value, st.sampled_from(["json", "msgpack", "bytes", "null", "pickle"]), st.binary()),
)
"""Values of any type, sound and damaged."""
