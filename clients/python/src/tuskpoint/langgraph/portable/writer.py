"""JSON that LangGraph.js writes and reads, from values of Python.

`serde/jsonplus.js` of @langchain/langgraph-checkpoint 1.2 defines the forms: `lc: 1` for
LangChain's objects, `lc: 2` for bytes, sets, maps, errors and snapshots. A value without a form in
JavaScript is `{"lc": 2, "type": "python", "class": ...}`, which JavaScript reads as an object with
these properties and writes back unchanged.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, ToolMessageChunk
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from .forms import Forms
from .messages import MESSAGES, NAMESPACE, TOOL_CHUNK, arguments
from .values import (
    MAX_SAFE_INTEGER,
    Map,
    NotPortable,
    PortableError,
    Record,
    RegExp,
    double_prints,
)

MAX_DEPTH = 100
"""Most levels of arrays and objects in a value."""

MAX_MESSAGE_DEPTH = 46
"""Most levels in a message: LangChain.js stops at 50, and one form has up to 4 levels."""

_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

# Values of the property `lg_name` that mark JavaScript's own objects.
_JS_CLASSES = frozenset({"Send", "DeltaSnapshot", "Overwrite", "Command"})

_ESCAPE = "__lc_escaped__"
_PROTOTYPE = "__proto__"

Json = Any
"""Types that `json` writes: str, int, float, bool, None, list, dict."""


class Writer:
    """Writes one value after another, without state between values.

    Args:
        forms: Forms of further types.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    def text(self, value: Any) -> bytes:
        """Return a value as JSON in UTF-8.

        Raises:
            NotPortable: A part of the value has no form. The message names the part and its place.
        """
        text = json.dumps(self._tree(value, 0, None), ensure_ascii=False, separators=(",", ":"))
        try:
            return text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair: JSON can spell it, UTF-8 cannot
            return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()

    # `level` counts levels from the outermost message; outside of messages it is None.

    def _tree(self, value: Any, depth: int, level: int | None) -> Json:
        kind = type(value)
        if kind is str and value.isascii():  # most values, without further checks
            return value
        write = _WRITERS.get(kind)
        if kind in _SCALARS and write is not None:
            return write(self, value, depth, level)
        if depth >= MAX_DEPTH:
            raise NotPortable(f"this is nested more than {MAX_DEPTH} levels deep")
        if level is not None and level > MAX_MESSAGE_DEPTH:
            raise NotPortable(
                f"this is nested more than {MAX_MESSAGE_DEPTH} levels deep in a message, "
                "which LangChain.js does not load"
            )
        return (write or Writer._object)(self, value, depth, level)

    def _at(self, place: str, value: Any, depth: int, level: int | None) -> Json:
        try:
            return self._tree(value, depth, level)
        except NotPortable as refusal:
            refusal.below(place)
            raise

    def _string(self, value: str, depth: int, level: int | None) -> Json:
        if not value.isascii() and _SURROGATE_PAIR.search(value):
            raise NotPortable(
                "the text holds two halves of a surrogate pair, which become one character in JSON"
            )
        return value

    def _integer(self, value: int, depth: int, level: int | None) -> Json:
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return value
        if double_prints(value) and int(float(value)) == value:
            return value
        try:
            return _python("builtins.int", value=str(value))
        except ValueError as error:  # Python limits the number of digits
            raise NotPortable(f"the integer is too long: {error}") from None

    def _number(self, value: float, depth: int, level: int | None) -> Json:
        if math.isfinite(value):
            return value
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return _python("builtins.float", value=name)

    def _list(self, value: Iterable[Any], depth: int, level: int | None) -> Json:
        below = _below(level)
        items: list[Json] = []
        try:
            for item in value:
                items.append(self._tree(item, depth + 1, below))  # noqa: PERF401 - the place
        except NotPortable as refusal:
            refusal.below(f"[{len(items)}]")
            raise
        return items

    def _dict(self, value: dict[Any, Any], depth: int, level: int | None) -> Json:
        below = _below(level)
        if not {str}.issuperset(map(type, value)):
            if level is None:
                return _constructor("Map", [self._pairs(value, depth + 3, None)])
            return _python("builtins.dict", value=self._pairs(value, depth + 2, below))
        if _looks_like_an_object(value, in_message=level is not None):
            return _python("builtins.dict", value=self._pairs(value, depth + 2, below))
        for key in value:
            self._string(key, depth, level)
        key, members = "", {}
        try:
            for key, item in value.items():
                members[key] = self._tree(item, depth + 1, below)
        except NotPortable as refusal:
            refusal.below(_member(key))
            raise
        return members

    def _map(self, value: Map, depth: int, level: int | None) -> Json:
        if level is None:
            return _constructor("Map", [self._pairs(value, depth + 3, None)])
        return _python("javascript.Map", value=self._pairs(value, depth + 2, _below(level)))

    def _pairs(self, value: Mapping[Any, Any], depth: int, level: int | None) -> Json:
        below = None if level is None else level + 2
        return [
            [
                self._at("<key>", key, depth, below),
                self._at(_member(key), item, depth, below),
            ]
            for key, item in value.items()
        ]

    def _set(self, value: Iterable[Any], depth: int, level: int | None) -> Json:
        kind = type(value).__name__
        below = None if level is None else level + 2
        items = [self._at("<item>", item, depth + 3, below) for item in value]
        items.sort(key=_JSON.encode)  # gives equal sets equal bytes, stored once
        if level is None:
            return _constructor("Set", [items], python=None if kind == "set" else kind)
        return _python(f"builtins.{kind}", value=items)

    def _bytes(self, value: bytes | bytearray, depth: int, level: int | None) -> Json:
        kind = type(value).__name__
        if level is not None:
            return _python(f"builtins.{kind}", value=base64.b64encode(value).decode())
        return _constructor(
            "Uint8Array", [[*value]], method="from", python=None if kind == "bytes" else kind
        )

    def _record(self, value: Record, depth: int, level: int | None) -> Json:
        return dict(value)

    def _regexp(self, value: RegExp, depth: int, level: int | None) -> Json:
        if level is None:
            return _constructor("RegExp", [value.source, value.flags])
        return _python("javascript.RegExp", source=value.source, flags=value.flags)

    def _snapshot(self, value: _DeltaSnapshot, depth: int, level: int | None) -> Json:
        content = self._at(".value", value.value, depth + 1, _below(level))
        if level is None:
            return {"lc": 2, "type": "delta_snapshot", "value": content}
        raise NotPortable("the snapshot of a delta channel is inside a message")

    def _message(self, value: BaseMessage, depth: int, level: int | None) -> Json:
        level = 0 if level is None else level
        kwargs = {
            self._string(name, depth, level): self._at(f".{name}", item, depth + 2, level + 2)
            for name, item in arguments(value)
        }
        if type(value) is ToolMessageChunk:
            return _python(TOOL_CHUNK, value=kwargs)
        identity = [*NAMESPACE, type(value).__name__]
        return {"lc": 1, "type": "constructor", "id": identity, "kwargs": kwargs}

    def _document(self, value: Document, depth: int, level: int | None) -> Json:
        # The properties of a document in JavaScript, which has no serial form of a document.
        below = _below(level)
        return _python(
            "langchain_core.documents.Document",
            pageContent=self._at(".page_content", value.page_content, depth + 1, below),
            metadata=self._at(".metadata", value.metadata, depth + 1, below),
            **({} if value.id is None else {"id": self._at(".id", value.id, depth + 1, below)}),
        )

    def _object(self, value: Any, depth: int, level: int | None) -> Json:
        kind = type(value)
        form = self._forms.of(kind)
        if form is not None:
            fields = form.fields(value)
            below = _below(level)
            return _python(
                form.name,
                **{
                    name: self._field(name, item, depth + 1, below) for name, item in fields.items()
                },
            )
        if isinstance(value, BaseException):
            return self._error(value, level)
        write = _langgraph_writer(kind)
        if write is not None:
            return write(self, value, depth, level)
        raise NotPortable(_advice(kind))

    def _field(self, name: str, value: Any, depth: int, level: int | None) -> Json:
        if name == "value":  # the content of the object, not a part
            return self._tree(value, depth, level)
        return self._at(f".{name}", value, depth, level)

    def _error(self, value: BaseException, level: int | None) -> Json:
        if isinstance(value, PortableError):
            name, message = value.name, value.message
        else:
            name, message = type(value).__name__, str(value)
        self._string(message, 0, level)
        if level is None and name == "Error":
            return _constructor("Error", [message])
        return _python("builtins.Exception", name=name, message=message)

    # --- objects of LangGraph: only where `langgraph` itself is in use --------------------

    def _send(self, value: Any, depth: int, level: int | None) -> Json:
        below = _below(level)
        timeout = getattr(value, "timeout", None)
        return _python(
            "langgraph.types.Send",
            node=self._at(".node", value.node, depth + 1, below),
            args=self._at(".arg", value.arg, depth + 1, below),
            **({} if timeout is None else {"timeout": _timeout(timeout)}),
        )

    def _interrupt(self, value: Any, depth: int, level: int | None) -> Json:
        below = _below(level)
        schema = getattr(value, "response_schema", None)
        form = _python(
            "langgraph.types.Interrupt",
            value=self._at(".value", value.value, depth + 1, below),
            id=self._at(".id", value.id, depth + 1, below),
        )
        if schema is not None:
            form["response_schema"] = self._at(".response_schema", schema, depth + 1, below)
        return form

    def _overwrite(self, value: Any, depth: int, level: int | None) -> Json:
        content = self._at(".value", value.value, depth + 1, _below(level))
        return {**_python("langgraph.types.Overwrite"), "__overwrite__": content}


Write = Callable[[Writer, Any, int, int | None], Json]

_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON = json.JSONEncoder(separators=(",", ":"))


def _same(_writer: Writer, value: Any, _depth: int, _level: int | None) -> Json:
    return value


# Types are compared exactly: the base of a subclass would not restore the subclass.
_WRITERS: Mapping[type, Write] = {
    str: Writer._string,
    int: Writer._integer,
    float: Writer._number,
    bool: _same,
    type(None): _same,
    list: Writer._list,
    tuple: Writer._list,
    dict: Writer._dict,
    set: Writer._set,
    frozenset: Writer._set,
    bytes: Writer._bytes,
    bytearray: Writer._bytes,
    Map: Writer._map,
    Record: Writer._record,
    RegExp: Writer._regexp,
    _DeltaSnapshot: Writer._snapshot,
    Document: Writer._document,
    ToolMessageChunk: Writer._message,
    **dict.fromkeys(MESSAGES.values(), Writer._message),
}

_SCALARS = frozenset({str, int, float, bool, type(None)})

_LANGGRAPH_WRITERS: Mapping[str, Write] = {
    "Send": Writer._send,
    "Interrupt": Writer._interrupt,
    "Overwrite": Writer._overwrite,
}


def _langgraph_writer(kind: type) -> Write | None:
    types = sys.modules.get("langgraph.types")
    if types is None or getattr(types, kind.__name__, None) is not kind:
        return None
    return _LANGGRAPH_WRITERS.get(kind.__name__)


def _python(kind: str, /, **fields: Json) -> dict[str, Json]:
    return {"lc": 2, "type": "python", "class": kind, **fields}


def _constructor(
    identity: str,
    arguments: list[Json],
    *,
    method: str | None = None,
    python: str | None = None,
) -> dict[str, Json]:
    """Return JavaScript's form of its own objects. It ignores `kwargs`, which has Python's type."""
    return {
        "lc": 2,
        "type": "constructor",
        "id": [identity],
        "method": method,
        "args": arguments,
        "kwargs": {} if python is None else {"python": python},
    }


def _below(level: int | None) -> int | None:
    return None if level is None else level + 1


def _member(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _looks_like_an_object(value: Mapping[str, Any], *, in_message: bool) -> bool:
    """Return whether a reader would mistake a plain dictionary for another object."""
    if in_message and ("lc" in value or _ESCAPE in value):  # LangChain.js wraps such dictionaries
        return True
    version = value.get("lc")
    if isinstance(version, int | float) and version in (1, 2):
        return True
    name = value.get("lg_name")
    # A property of this name sets the prototype of an object in JavaScript, and is lost.
    return _PROTOTYPE in value or (isinstance(name, str) and name in _JS_CLASSES)


def _timeout(policy: Any) -> Json:
    """Return a timeout in JavaScript's form: in milliseconds."""
    return {
        **({} if policy.run_timeout is None else {"runTimeout": policy.run_timeout * 1000}),
        **({} if policy.idle_timeout is None else {"idleTimeout": policy.idle_timeout * 1000}),
        "refreshOn": policy.refresh_on,
    }


def _advice(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__ == "builtins":
        name = kind.__qualname__
    for base, plain in ((dict, "dict"), (list, "list"), (str, "str"), (int, "int")):
        if issubclass(kind, base) and not hasattr(kind, "__members__"):
            return f"{name} is not portable; save a {plain} instead"
    return (
        f"{name} is not portable; save plain data instead, or, if it is an enum, a dataclass, a "
        "named tuple or a model of pydantic, allow it with PortableSerializer(types=[...])"
    )
