"""JSON inside the messages of a JSON call, where the contract has bytes.

The mapping of Protocol Buffers writes bytes as base64. Two kinds of bytes are JSON in most calls,
and may be written as JSON: `data` of a value of the type `json`, as `json`; and a field whose name
ends in `_json`, under its name without that ending.

The server stores the same bytes for such JSON as the clients send: UTF-8 without spaces between
tokens, members in their order, strings with the escapes that JSON requires and no others. A number
with a fraction or an exponent stays as it is written, because languages write floats differently.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from tuskpoint.v1 import value_pb2

from ...core.errors import invalid_field

Descriptor: TypeAlias = Any  # protobuf's types have two classes, one of them private

MAX_LEVELS = 200
"""Most levels of nested arrays and objects in JSON inside a message."""

JSON_TYPE = "json"
_VALUE = value_pb2.Value.DESCRIPTOR.full_name
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_FLOAT = re.compile(r"\d[.e]")  # brackets outside of strings
_STEPS = tuple((byte in b"[{") - (byte in b"]}") for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if not _STEPS[byte])
_LITERALS = {None: "null", False: "false", True: "true"}


class WrittenNumber(float):
    """A number with a fraction or an exponent, and its text in the request."""

    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        """Return the number of a text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


class EncodedJson(str):
    """A JSON text that `compact` writes unchanged."""

    __slots__ = ()


def parse_json(text: bytes) -> Any:
    """Parse a JSON text in UTF-8; refuse repeated keys and `NaN`.

    Raises:
        ValueError: The text is not JSON.
        RecursionError: The text is nested too deeply for the parser.
    """
    return json.loads(
        text.decode(),
        object_pairs_hook=_object,
        parse_float=WrittenNumber,
        parse_constant=_refuse_constant,
    )


def compact(value: Any, levels: int = MAX_LEVELS) -> str:
    """Return a result of `parse_json` as JSON without spaces.

    Raises:
        ValueError: The value has more than `levels` levels.
    """
    if isinstance(value, str):
        return value if isinstance(value, EncodedJson) else encode_basestring(value)
    if isinstance(value, dict | list):
        if not levels:
            raise ValueError(f"more than {MAX_LEVELS} arrays and objects are inside one another")
        if isinstance(value, list):
            return f"[{','.join([compact(item, levels - 1) for item in value])}]"
        members = [
            f"{encode_basestring(name)}:{compact(member, levels - 1)}"
            for name, member in value.items()
        ]
        return f"{{{','.join(members)}}}"
    if isinstance(value, WrittenNumber):
        return value.text
    return _LITERALS[value] if value is None or isinstance(value, bool) else repr(value)


def encode_fields(descriptor: Descriptor, tree: Any, path: str = "") -> None:
    """Replace the JSON in a request by bytes in base64, for the mapping of Protocol Buffers.

    Args:
        descriptor: The message that `tree` should describe.
        tree: The request as `parse_json` returned it; the function changes it.
        path: The path of `tree` in the request, empty or with a dot at its end.

    Raises:
        Refusal: `INVALID_FIELD`: a field has both forms, or its JSON cannot be stored.
    """
    if not isinstance(tree, dict):
        return  # the conversion to a message reports the error
    for name, field in _json_fields(descriptor).items():
        if name in tree:
            if field.name in tree or field.json_name in tree:
                problem = f"is given as {name} and as {field.json_name}; give one of them"
                raise invalid_field(f"{path}{field.name}", problem)
            tree[field.name] = _encoded(f"{path}{name}", tree.pop(name))
            if descriptor.full_name == _VALUE and tree.setdefault("type", JSON_TYPE) != JSON_TYPE:
                problem = f"must be {JSON_TYPE} or absent beside {name}"
                raise invalid_field(f"{path}type", problem)
    for place, child, inner in _inner(descriptor, tree):
        encode_fields(child, inner, f"{path}{place}.")


def show_fields(descriptor: Descriptor, tree: Any) -> None:
    """Replace bytes that are JSON in an answer by JSON; other bytes stay in base64.

    Args:
        descriptor: The message of the answer.
        tree: The answer by the mapping of Protocol Buffers; the function changes it, and
            `compact` writes it.
    """
    for name, field in _json_fields(descriptor).items():
        data = tree.get(field.json_name)
        is_json = descriptor.full_name != _VALUE or tree.get("type") == JSON_TYPE
        if data is not None and is_json:
            shown = _shown(base64.b64decode(data))
            if shown is not None:
                del tree[field.json_name]
                tree[name] = shown
    for _, child, inner in _inner(descriptor, tree):
        show_fields(child, inner)


def _encoded(path: str, value: Any) -> str:
    """Return, in base64, the stored bytes of some JSON."""
    try:
        text = _compact(value).encode()
    except UnicodeEncodeError:
        problem = "has half of a surrogate pair, which UTF-8 cannot encode"
        raise invalid_field(path, problem) from None
    except ValueError as error:
        raise invalid_field(path, str(error)) from None
    return base64.b64encode(text).decode()


def _shown(data: bytes) -> EncodedJson | None:
    """Return bytes as JSON for an answer; `None` if JSON would change the content."""
    try:
        text = data.decode()
        if not _is_compact(text):
            text = compact(parse_json(data))
            text.encode()
    except (ValueError, RecursionError):
        return None
    return EncodedJson(text)


def _compact(value: Any) -> str:
    """Return the result of `compact`, from the interpreter's own encoder if both agree."""
    try:
        text = _dumps(value)
    except ValueError:  # a number beyond all floats
        return compact(value)
    bare = _STRING.sub("", text)
    return compact(value) if _FLOAT.search(bare) or _levels(bare) > MAX_LEVELS else text


def _is_compact(text: str) -> bool:
    """Return whether a text is surely equal to its compact form."""
    try:
        return _dumps(json.loads(text)) == text and _levels(_STRING.sub("", text)) <= MAX_LEVELS
    except ValueError:
        return False


def _dumps(value: Any) -> str:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
    )


def _levels(bare: str) -> int:
    """Return the levels of nested arrays and objects in JSON whose strings were removed."""
    brackets = bare.encode().translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _inner(
    descriptor: Descriptor, tree: Mapping[str, Any]
) -> Iterator[tuple[str, Descriptor, Any]]:
    """Yield the path, the type and the content of each inner message that may have JSON."""
    for name, (field, child, is_map) in _holders(descriptor).items():
        content = tree.get(name)
        if is_map and isinstance(content, dict):
            for key, member in content.items():
                yield f"{field.name}[{key!r:.80}]", child, member
        elif field.is_repeated and isinstance(content, list):
            for number, item in enumerate(content):
                yield f"{field.name}[{number}]", child, item
        elif content is not None and not field.is_repeated:
            yield field.name, child, content


@cache
def _json_fields(descriptor: Descriptor) -> Mapping[str, FieldDescriptor]:
    """Return the fields of bytes that may be written as JSON, by their names in JSON."""
    if descriptor.full_name == _VALUE:
        return {JSON_TYPE: descriptor.fields_by_name["data"]}
    fields = {}
    for field in descriptor.fields:
        if field.type == field.TYPE_BYTES and field.name.endswith("_json"):
            fields[field.json_name.removesuffix("Json")] = field
            fields[field.name.removesuffix("_json")] = field
    return fields


@cache
def _holders(
    descriptor: Descriptor,
) -> Mapping[str, tuple[FieldDescriptor, Descriptor, bool]]:
    """Return the fields whose messages may have JSON, by both of their names in JSON.

    Each has the type of its messages, and whether it is a map to them.
    """
    holders = {}
    for field in descriptor.fields:
        child = field.message_type
        if child is None or child.full_name.startswith("google."):
            continue
        is_map = bool(child.GetOptions().map_entry)
        if is_map:
            child = child.fields_by_name["value"].message_type
        if child is not None and (_json_fields(child) or _holders(child)):
            holders[field.json_name] = holders[field.name] = (field, child, is_map)
    return holders


def _object(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) == len(members):
        return value
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise ValueError(f"the key {name!r:.80} occurs twice in an object")
        seen.add(name)
    raise AssertionError("no key occurs twice")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
