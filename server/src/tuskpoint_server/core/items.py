"""Items of stores, each a checkpoint without values in a thread that users cannot see.

A namespace is such a thread, the key of an item is the ID of its checkpoint, and the metadata of
the checkpoint is the item. So items are journaled, certified, renewed, verified and recovered like
checkpoints. The summary of the checkpoint is the item's first text in the search index. Each
further text is the summary of a checkpoint of the same ID in the namespaces "1", "2" and so on.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from tuskpoint.v1 import checkpoint_pb2

from .errors import Refusal, invalid_field
from .limits import LIMITS
from .state import equal_typed, parse_object
from .threads import STORES, STORES_END

Namespace = tuple[str, ...]

STATE: bytes = checkpoint_pb2.CheckpointState(schema_version=1).SerializeToString()
"""The state of every item, which has no channels."""

_VALUE = b'"value":'
_PAST = "0"  # follows "/"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*|-?\d{1,9})\]")
MAX_DEPTH = 100  # of arrays and objects inside one another, in values and filters
_DECODE = json.JSONDecoder().decode


class ItemTimes(NamedTuple):
    """Times of an item's creation, last put and expiry, in microseconds since the epoch.

    `more`: number of the item's texts besides the first.
    """

    created_us: int
    updated_us: int
    ttl_us: int  # the item expires so long after its last read; 0: never
    expire_us: int | None = None  # `None`: never
    more: int = 0

    def live_at(self, now_us: int) -> bool:
        """Return whether the item has not expired at a time."""
        return self.expire_us is None or self.expire_us > now_us


@dataclass(frozen=True, slots=True)
class Item:
    """An item."""

    namespace: Namespace
    key: str
    value: bytes  # a JSON object, as the caller put it
    times: ItemTimes
    damage: Refusal | None = None  # the row was changed; the value is empty


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item to put, or to delete: then `value` is empty."""

    namespace: Namespace
    key: str
    value: bytes = b""
    ttl_us: int = 0  # 0: it never expires
    texts: tuple[str, ...] = ()  # texts of the search index


def thread_of(namespace: Namespace) -> str:
    """Return the thread that keeps the items of a namespace."""
    return STORES + "/".join(label.replace("~", "~0").replace("/", "~1") for label in namespace)


def namespace_of(thread_id: str) -> Namespace:
    """Return the namespace whose items a thread keeps."""
    labels = thread_id.removeprefix(STORES).split("/")
    return tuple(label.replace("~1", "/").replace("~0", "~") for label in labels)


def keeps_items(thread_id: str) -> bool:
    """Return whether a thread keeps items."""
    return thread_id.startswith(STORES)


def threads_below(prefix: Namespace) -> tuple[str, str, str]:
    """Return the thread of a namespace, and the bounds of the names of threads below it."""
    if not prefix:
        return STORES, STORES, STORES_END
    name = thread_of(prefix)
    return name, name + "/", name + _PAST


def encode(times: ItemTimes, value: bytes) -> bytes:
    """Return the metadata of the checkpoint: one JSON object, the value unchanged at its end."""
    stored: dict[str, int] = {"create_time_us": times.created_us}
    if times.expire_us is not None:
        stored |= {"expire_time_us": times.expire_us}
    if times.more:
        stored["more_texts"] = times.more
    if times.expire_us is not None:
        stored["ttl_us"] = times.ttl_us
    stored["update_time_us"] = times.updated_us
    head = json.dumps(stored, separators=(",", ":")).encode()
    return b"%b,%b%b}" % (head[:-1], _VALUE, value)


def value_in(metadata: bytes) -> bytes:
    """Return the value of the item in metadata; only numbers precede the value."""
    return metadata[metadata.index(_VALUE) + len(_VALUE) : -1]


def check(metadata: bytes) -> None:
    """Check the stored metadata of an item.

    Raises:
        Refusal, ValueError: The metadata is not an item.
    """
    decode(metadata)
    parse_value(value_in(metadata), "value")


def decode(metadata: bytes) -> ItemTimes:
    """Return the times of the item in metadata.

    Raises:
        ValueError: The metadata has no times.
    """
    try:
        members = json.loads(metadata[: metadata.index(_VALUE)].rstrip(b",") + b"}")
        ends = "expire_time_us" in members
        numbers = [members["create_time_us"], members["update_time_us"]]
        numbers += [members["ttl_us"], members["expire_time_us"]] if ends else [0, 0]
        numbers.append(members.get("more_texts", 0))
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from None
    if {*map(type, numbers)} != {int} or not 0 <= numbers[-1] < LIMITS.max_item_paths:
        raise ValueError("its times are not numbers")
    created_us, updated_us, ttl_us, expire_us, more_texts = numbers
    return ItemTimes(created_us, updated_us, ttl_us, expire_us if ends else None, more_texts)


Admits = Callable[[bytes], bool]
"""Returns whether a filter admits the item in metadata."""


def parse_value(value: bytes, field: str) -> dict[str, object]:
    """Parse the value of an item.

    Raises:
        Refusal: `METADATA_NOT_JSON`; `INVALID_FIELD`: the value is nested too deeply.
    """
    parsed = parse_object(value, field)
    level: list[object] = [parsed]
    for _ in range(MAX_DEPTH):
        level = [inner for container in level for inner in _inner(container)]
        if not level:
            return parsed
    raise invalid_field(field, f"must not be nested deeper than {MAX_DEPTH}")


def _inner(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        children = value.values() if isinstance(value, dict) else value
        yield from (child for child in children if isinstance(child, dict | list))


def filter_condition(wanted: Mapping[str, object]) -> Admits | None:
    """Return the condition of a filter (`store_service.proto` describes it); `None`: none.

    Raises:
        Refusal: `INVALID_FIELD`: an operator is unknown, or the filter is nested too deeply.
    """
    if not wanted:
        return None
    _check(wanted.values(), MAX_DEPTH)

    def admits(metadata: bytes) -> bool:
        value = _DECODE(value_in(metadata).decode())
        return all(_meets(value.get(key), condition) for key, condition in wanted.items())

    return admits


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def ordered(first: object, second: object) -> bool:
        kinds = {type(first), type(second)}
        return (kinds == {str} or kinds <= {int, float}) and compare(first, second)

    return ordered


_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "$eq": equal_typed,
    "$ne": lambda first, second: not equal_typed(first, second),
    "$gt": _comparison(operator.gt),
    "$gte": _comparison(operator.ge),
    "$lt": _comparison(operator.lt),
    "$lte": _comparison(operator.le),
}


def _operators(condition: Mapping[str, object]) -> bool:
    return any(key.startswith("$") for key in condition)


def _check(values: Iterable[object], depth: int) -> None:
    if not depth:
        raise invalid_field("filter_json", f"must not be nested deeper than {MAX_DEPTH}")
    for condition in values:
        if isinstance(condition, dict) and _operators(condition):
            for name in condition.keys() - _OPERATORS.keys():
                shown = name[:80].encode(errors="backslashreplace").decode()
                names = ", ".join(_OPERATORS)
                raise invalid_field("filter_json", f"'{shown}' is not an operator; use {names}")
        elif isinstance(condition, dict):
            _check(condition.values(), depth - 1)
        elif isinstance(condition, list):
            _check(condition, depth - 1)


def _meets(value: object, condition: object) -> bool:
    if isinstance(condition, dict):
        if _operators(condition):
            return all(_OPERATORS[name](value, operand) for name, operand in condition.items())
        return isinstance(value, dict) and all(
            _meets(value.get(key), part) for key, part in condition.items()
        )
    if isinstance(condition, list):
        if not isinstance(value, list) or len(value) != len(condition):
            return False
        return all(map(_meets, value, condition))
    return equal_typed(value, condition)


def path_problem(path: str) -> str:
    """Return the problem of a path of `ItemChange.index_paths`; empty if the path is valid."""
    if path != "$" and "".join(match[0] for match in _STEP.finditer(path)) != path:
        return 'must be a path such as "text", "author.name", "notes[*].text", or "$"'
    return ""


def texts_of(value: Mapping[str, object], paths: Sequence[str]) -> tuple[str, ...]:
    """Return an item's texts for the search index: one for each part that a path leads to.

    The text of an array or object has a line for each text or number inside. No more parts are read
    than used: paths with "*" may lead to every element of a large value, many times.
    """
    parts = (
        part
        for path in paths or ("$",)
        for part in _values_at(value, [] if path == "$" else _STEP.findall(path))
    )
    used = islice(parts, LIMITS.max_item_paths)
    return tuple(dict.fromkeys(text for part in used if (text := _text(part))))


def _text(part: object) -> str:
    lines: list[str] = []
    size = 0
    for line in _lines(part):
        lines.append(line)
        size += len(line)
        if size > LIMITS.max_summary:
            break
    text = "\n".join(lines).replace("\0", " ")
    cut = text.encode(errors="replace")[: LIMITS.max_summary]
    return cut.decode(errors="ignore").strip()


def _values_at(value: object, steps: Sequence[tuple[str, str]]) -> Iterator[object]:
    if not steps:
        yield value
        return
    (name, place), rest = steps[0], steps[1:]
    if name and isinstance(value, dict) and name in value:
        yield from _values_at(value[name], rest)
    elif place and isinstance(value, list):
        for number in range(len(value)) if place == "*" else [int(place)]:
            if -len(value) <= number < len(value):
                yield from _values_at(value[number], rest)


def _lines(value: object, name: str = "") -> Iterator[str]:
    """Yield the leaves of a value, each with the name of its member."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _lines(item, name)
    elif value is not None and value != "":
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"{name}: {text}" if name else text


def matches(namespace: Namespace, labels: Namespace, *, at_end: bool) -> bool:
    """Return whether a namespace starts or ends with labels; "*" matches any label."""
    if len(labels) > len(namespace):
        return False
    part = namespace[len(namespace) - len(labels) :] if at_end else namespace
    return all(label in ("*", own_label) for label, own_label in zip(labels, part, strict=False))
