"""Values that portable state must carry, and a comparison of two values."""

from __future__ import annotations

import math
import re
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Overwrite, Send

from tuskpoint.langgraph.portable import Map, PortableError, RegExp

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

# Texts that readers of either language misread unless they are escaped.
TRICKY_KEYS = [
    "lc", "type", "id", "class", "name", "value", "args", "kwargs", "method", "lg_name", "node",
    "__proto__", "__lc_escaped__", "__overwrite__", "constructor", "toJSON", "$type", "", "1",
]  # fmt: skip
TRICKY_TEXTS = [
    "constructor", "python", "undefined", "delta_snapshot", "not_implemented", "secret",
    "Send", "DeltaSnapshot", "builtins.dict", "datetime.datetime", "__proto__",
]  # fmt: skip

TEXTS = st.text(st.characters(exclude_categories=[])).filter(lambda text: not _PAIR.search(text))
KEYS = st.sampled_from(TRICKY_KEYS) | TEXTS
ZONES = st.none() | st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")]
)

NUMBERS = (
    st.integers()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**60, 10**20, 10**21, 10**400])
    | st.floats()
)

ATOMS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | TEXTS
    | st.sampled_from(TRICKY_TEXTS)
    | st.binary()
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.times(timezones=ZONES)
    | st.timedeltas()
    | st.uuids()
    | st.decimals()
    | st.ip_addresses()
)

_ORDINARY = st.integers() | TEXTS | st.binary() | st.dates() | st.uuids() | st.none()
HASHABLES = st.recursive(
    _ORDINARY,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)

LOOK_ALIKES = st.fixed_dictionaries(
    {"lc": st.sampled_from([1, 2, 1.0, 3, "1", None, True])},
    optional={
        "type": st.sampled_from(TRICKY_TEXTS),
        "id": st.sampled_from([["Set"], ["langchain_core", "messages", "AIMessage"], "Set"]),
        "args": st.just([[1]]),
        "kwargs": st.just({"content": "hi"}),
        "class": st.sampled_from(TRICKY_TEXTS),
        "value": st.just("2026-01-02"),
    },
)


def _tool_calls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    call = st.builds(
        lambda name, args, call_id: {
            "name": name, "args": args, "id": call_id, "type": "tool_call"
        },
        TEXTS,
        st.dictionaries(KEYS, values, max_size=2),
        st.none() | TEXTS,
    )  # fmt: skip
    return st.lists(call, max_size=2)


def _messages(values: st.SearchStrategy[Any]) -> st.SearchStrategy[BaseMessage]:
    members = st.dictionaries(KEYS.filter(lambda key: key != "tool_calls"), values, max_size=2)
    content = TEXTS | st.lists(TEXTS | st.dictionaries(KEYS, values, max_size=2), max_size=2)
    common = {
        "content": content,
        "additional_kwargs": members,
        "response_metadata": st.builds(dict, model_name=TEXTS),
        "id": st.none() | TEXTS,
        "name": st.none() | TEXTS,
    }
    return st.one_of(
        st.builds(HumanMessage, **common),
        st.builds(SystemMessage, **common),
        st.builds(ChatMessage, role=TEXTS, **common),
        st.builds(AIMessage, tool_calls=_tool_calls(values), **common),
        st.builds(
            ToolMessage,
            tool_call_id=TEXTS,
            artifact=values,
            status=st.sampled_from(["success", "error"]),
            **common,
        ),
    )


def _larger(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(values, max_size=3),
        st.lists(values, max_size=3).map(tuple),
        st.dictionaries(KEYS, values, max_size=3),
        st.dictionaries(HASHABLES, values, max_size=3),
        st.dictionaries(KEYS, values, max_size=3).map(Map),
        st.builds(deque, st.lists(values, max_size=3), st.none() | st.integers(3, 5)),
        LOOK_ALIKES,
        LOOK_ALIKES.map(lambda value: {"__lc_escaped__": value}),
        st.sets(HASHABLES, max_size=3),
        st.frozensets(HASHABLES, max_size=3),
        st.builds(Send, TEXTS, values),
        st.builds(Interrupt, values, id=TEXTS),
        st.builds(Overwrite, values),
        st.builds(RegExp, st.sampled_from(["a+", "("]), st.sampled_from(["", "gi"])),
        st.builds(PortableError, TEXTS, st.sampled_from(["Error", "ValueError"])),
        st.builds(
            Document,
            page_content=TEXTS,
            metadata=st.dictionaries(KEYS, values, max_size=2),
            id=st.none() | TEXTS,
        ),
        _messages(values),
    )


VALUES = st.recursive(ATOMS, _larger, max_leaves=8)
SNAPSHOTS = st.builds(_DeltaSnapshot, VALUES)


def plain(value: Any, *, exact: bool) -> Any:
    """Return a form that is equal for two values that are the same: types included, NaN too.

    Tuples count as lists. Unless `exact`, values that JavaScript does not distinguish count as the
    same value: a number without a fraction as an integer, a frozenset as a set.
    """
    match value:
        case bool() | None:
            return (type(value).__name__, value)
        case float():
            if math.isnan(value):
                return "NaN"
            if not exact and value.is_integer():
                return ("int", repr(int(value)))
            return ("float", value.hex() if exact else value)
        case datetime() | time():
            zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
            return (type(value).__name__, value.isoformat(), zone, value.fold)
        case _DeltaSnapshot():
            return ("snapshot", plain(value.value, exact=exact))
        case list() | tuple():
            return ("list", [plain(item, exact=exact) for item in value])
        case deque():
            return ("deque", [plain(item, exact=exact) for item in value], value.maxlen)
        case dict():
            entries = [(plain(key, exact=exact), plain(value[key], exact=exact)) for key in value]
            return (type(value).__name__, sorted(entries, key=repr))
        case set() | frozenset():
            kind = type(value).__name__ if exact else "set"
            return (kind, sorted((plain(item, exact=exact) for item in value), key=repr))
        case bytearray() if not exact:
            return ("bytes", bytes(value))
        case BaseMessage():
            parts = {name: getattr(value, name) for name in type(value).model_fields}
            return (
                type(value).__name__,
                plain({**parts, **(value.model_extra or {})}, exact=exact),
            )
        case Document():
            return ("Document", plain([value.id, value.page_content, value.metadata], exact=exact))
        case Send():
            return ("Send", value.node, plain(value.arg, exact=exact), value.timeout)
        case Interrupt():
            return ("Interrupt", value.id, plain(value.value, exact=exact))
        case Overwrite():
            return ("Overwrite", plain(value.value, exact=exact))
        case date() | timedelta():
            return (type(value).__name__, value)
    return (type(value).__name__, repr(value))
