"""Values of Python from the JSON that LangGraph.js, or `writer`, wrote.

Only the tables of this package decide what is built. Names in the data are looked up there; nothing
is imported, and no method is called because of data. A form that is unknown, or has no counterpart
in Python, becomes a `Record`, which keeps the JSON object unchanged.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import ToolMessageChunk
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from .channels import build_interrupt, build_overwrite, build_send
from .forms import Fields, Forms
from .messages import TOOL_CHUNK, build_message, message_class
from .values import (
    MAX_SAFE_INTEGER,
    Map,
    PortableError,
    Record,
    RegExp,
    double_prints,
)

_ESCAPE = "__lc_escaped__"
_AS_THEY_ARE = frozenset({str, float, bool, type(None)})
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,  # the name of a time zone that is a directory
    TypeError,
    ValueError,
    re.error,
)
_OF_THE_FORM = frozenset({"lc", "type", "class"})


class _Undefined(Enum):
    """`undefined` of JavaScript: a property with this value counts as missing."""

    UNDEFINED = auto()


_UNDEFINED = _Undefined.UNDEFINED


class _InertError(Exception):
    """The object has no counterpart in Python and stays unchanged."""


class _Surroundings(Enum):
    """Surroundings of a value, which decide which forms are recognized in it."""

    STATE = auto()
    MESSAGE = auto()
    ESCAPED = auto()
    """A plain object that looked like a serial form, and that LangChain.js therefore wrapped."""


class Reader:
    """Reads one value after another, without state between values.

    Args:
        forms: Forms of further types.
    """

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    def value(self, text: bytes) -> Any:
        """Return the value that JSON encodes.

        Raises:
            ValueError: The text is not JSON, is nested too deeply, or has a malformed form.
        """
        try:
            value = self._tree(json.loads(text), _Surroundings.STATE)
        except RecursionError:
            raise ValueError("the value is nested more deeply than Python can follow") from None
        return None if value is _UNDEFINED else value

    def _tree(self, node: Any, where: _Surroundings) -> Any:
        if isinstance(node, dict):
            return self._object(node, where)
        if isinstance(node, list):
            return self._list(node, where)
        if isinstance(node, int) and not -MAX_SAFE_INTEGER <= node <= MAX_SAFE_INTEGER:
            return _large(node)
        return node

    def _list(self, nodes: list[Any], where: _Surroundings) -> list[Any]:
        items = [item if type(item) in _AS_THEY_ARE else self._tree(item, where) for item in nodes]
        return [None if item is _UNDEFINED else item for item in items]

    def _object(self, node: dict[str, Any], where: _Surroundings) -> Any:
        version = node.get("lc")
        if version is None or isinstance(version, bool) or version not in (1, 2):
            if where is _Surroundings.MESSAGE and node.keys() == {_ESCAPE}:
                return self._tree(node[_ESCAPE], _Surroundings.ESCAPED)
            return self._plain(node, where)
        kind = node.get("type")
        try:
            if version == 2 and kind == "python":
                return self._python(node, where)
            if where is _Surroundings.ESCAPED:
                raise _InertError
            if version == 1:
                return self._message(node)
            return self._javascript(node, kind, where)
        except _InertError:
            return Record(node)

    def _plain(self, node: Mapping[str, Any], where: _Surroundings) -> dict[str, Any]:
        members = {}
        for key, item in node.items():
            value = item if type(item) in _AS_THEY_ARE else self._tree(item, where)
            if value is not _UNDEFINED:
                members[key] = value
        return members

    # --- forms of LangChain and JavaScript ---------------------------------------------

    def _message(self, node: dict[str, Any]) -> Any:
        kind = message_class(node.get("id")) if node.get("type") == "constructor" else None
        kwargs = node.get("kwargs")
        if kind is None or not isinstance(kwargs, dict):
            raise _InertError
        return build_message(kind, self._plain(kwargs, _Surroundings.MESSAGE))

    def _javascript(self, node: dict[str, Any], kind: object, where: _Surroundings) -> Any:
        if kind == "undefined":
            return _UNDEFINED
        if kind == "delta_snapshot" and "value" in node:
            value = self._tree(node["value"], where)
            return _DeltaSnapshot(None if value is _UNDEFINED else value)
        identity, args = node.get("id"), node.get("args")
        if kind != "constructor" or not isinstance(identity, list) or not isinstance(args, list):
            raise _InertError
        build = _CONSTRUCTORS.get(identity[0]) if _is_name(identity) else None
        if build is None or node.get("method") not in (None, _METHODS.get(identity[0])):
            raise _InertError
        marks = node.get("kwargs")
        return build(self._list(args, where), marks if isinstance(marks, dict) else {})

    # --- forms of Python ---------------------------------------------------------------

    def _python(self, node: dict[str, Any], where: _Surroundings) -> Any:
        name = node.get("class")
        form = self._forms.named(name)
        build: Callable[[Fields], Any] | None
        build = form.build if form is not None else _OBJECTS.get(str(name))
        if build is None:
            raise _InertError
        parts = {key: item for key, item in node.items() if key not in _OF_THE_FORM}
        if (
            where is _Surroundings.ESCAPED
        ):  # LangChain.js wraps this form too: its content has the forms of this package again
            where = _Surroundings.MESSAGE
        try:
            return build(self._plain(parts, where))
        except _InertError:
            raise
        except _MALFORMED as error:
            raise ValueError(f"what was saved as {name} is invalid: {error!r}") from error


def _large(number: int) -> int | float:
    """Return the number of digits beyond the safe integers: a JavaScript double, or exact."""
    is_rounded = double_prints(number) and int(float(number)) != number
    return float(number) if is_rounded else number


# --- JavaScript's constructors --------------------------------------------------------------


def _is_name(identity: list[Any]) -> bool:
    return len(identity) == 1 and isinstance(identity[0], str)


def _set(args: list[Any], marks: Fields) -> Any:
    items = _hashed(_only_list(args))
    if len(items) != len(args[0]):  # 1 and true are two items in JavaScript, and one item in Python
        raise _InertError
    return items if marks.get("python") == "frozenset" else set(items)


def _map(args: list[Any], marks: Fields) -> Any:
    entries = _entries(_only_list(args))
    return entries if any(not isinstance(key, str) for key in entries) else Map(entries)


def _bytes(args: list[Any], marks: Fields) -> Any:
    octets = _only_list(args)
    if not all(type(octet) is int and 0 <= octet <= 255 for octet in octets):
        raise _InertError
    return bytearray(octets) if marks.get("python") == "bytearray" else bytes(octets)


def _regexp(args: list[Any], marks: Fields) -> Any:
    if len(args) != 2 or not all(isinstance(part, str) for part in args):
        raise _InertError
    return RegExp(*args)


def _error(args: list[Any], marks: Fields) -> Any:
    if len(args) != 1 or not isinstance(args[0], str):
        raise _InertError
    return PortableError(args[0])


def _only_list(args: list[Any]) -> list[Any]:
    if len(args) != 1 or not isinstance(args[0], list):
        raise _InertError
    return args[0]


def _hashed(items: list[Any]) -> frozenset[Any]:
    try:
        return frozenset(_frozen(item) for item in items)
    except TypeError:
        raise _InertError from None


def _entries(pairs: list[Any]) -> dict[Any, Any]:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise _InertError
    try:
        entries = {_frozen(key): item for key, item in pairs}
    except TypeError:
        raise _InertError from None
    if len(entries) != len(pairs):
        raise _InertError
    return entries


def _frozen(item: Any) -> Any:
    """Return an item in a form that can be hashed: its lists were tuples."""
    if isinstance(item, list):
        return tuple(_frozen(part) for part in item)
    return frozenset(item) if isinstance(item, set) else item


_CONSTRUCTORS: Mapping[str, Callable[[list[Any], Fields], Any]] = {
    "Set": _set,
    "Map": _map,
    "Uint8Array": _bytes,
    "RegExp": _regexp,
    "Error": _error,
}
_METHODS: Mapping[str, str] = {"Uint8Array": "from"}


# --- forms that only `writer` writes --------------------------------------------------------


def _document(parts: Fields) -> Document:
    return Document(
        page_content=parts["pageContent"], metadata=parts["metadata"], id=parts.get("id")
    )


_OBJECTS: Mapping[str, Callable[[Fields], Any]] = {
    "builtins.int": lambda parts: int(parts["value"]),
    "builtins.float": lambda parts: float(parts["value"]),
    "builtins.bytes": lambda parts: base64.b64decode(parts["value"], validate=True),
    "builtins.bytearray": lambda parts: bytearray(base64.b64decode(parts["value"], validate=True)),
    "builtins.dict": lambda parts: _entries(parts["value"]),
    "builtins.set": lambda parts: set(_hashed(parts["value"])),
    "builtins.frozenset": lambda parts: _hashed(parts["value"]),
    "javascript.Map": lambda parts: Map(_entries(parts["value"])),
    "builtins.Exception": lambda parts: PortableError(parts["message"], parts["name"]),
    "langchain_core.documents.Document": _document,
    "langgraph.types.Send": build_send,
    "langgraph.types.Interrupt": build_interrupt,
    "langgraph.types.Overwrite": build_overwrite,
    TOOL_CHUNK: lambda parts: build_message(ToolMessageChunk, parts["value"]),
}
