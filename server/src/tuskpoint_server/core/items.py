"""Items of stores, each a checkpoint without values in a thread that users cannot see.

A namespace is such a thread, the key of an item the ID of its checkpoint, and the item the
metadata of that. So items are journaled, certified, renewed, verified and recovered like
checkpoints. The summary of the checkpoint is the text by which search knows the item. If there are
more texts, each is the summary of a checkpoint of the same ID in the namespaces "1", "2" and so on.
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
"""The state of every item: it has no channels."""

_VALUE = b'"value":'
_PAST = "0"  # follows "/"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*|-?\d{1,9})\]")
MAX_DEPTH = 100  # of arrays and objects inside one another, in values and filters
_DECODE = json.JSONDecoder().decode


class ItemTimes(NamedTuple):
    """When an item was made and put last, and when it ends; microseconds since the epoch.

    `more`: how many texts it has besides the first.
    """

    created_us: int
    updated_us: int
    ttl_us: int  # after which it ends unless it is read; 0: never
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
    value: bytes  # a JSON object, as it was put
    times: ItemTimes
    damage: Refusal | None = None  # why it cannot be used: its row was changed; it has no value


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item to be put, or to be deleted: then `value` is empty."""

    namespace: Namespace
    key: str
    value: bytes = b""
    ttl_us: int = 0  # 0: it never expires
    texts: tuple[str, ...] = ()  # by which search knows it


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
    """Return the thread of a namespace, and the first and past the last of those below it."""
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
    """Return the value of the item in metadata: only numbers stand before it."""
    return metadata[metadata.index(_VALUE) + len(_VALUE) : -1]


def check(metadata: bytes) -> None:
    """Check metadata that somebody stored.

    Raises:
        Refusal, ValueError: It holds no item.
    """
    decode(metadata)
    parse_value(value_in(metadata), "value")


def decode(metadata: bytes) -> ItemTimes:
    """Return the times of the item in metadata.

    Raises:
        ValueError: They are not there.
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
        raise ValueError("its times are no numbers")
    created_us, updated_us, ttl_us, expire_us, more_texts = numbers
    return ItemTimes(created_us, updated_us, ttl_us, expire_us if ends else None, more_texts)


Admits = Callable[[bytes], bool]
"""Returns whether a filter admits the item in metadata."""


def parse_value(value: bytes, field: str) -> dict[str, object]:
    """Parse a value that is put.

    Raises:
        Refusal: `METADATA_NOT_JSON`; `INVALID_FIELD`: it is nested too deeply.
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
        Refusal: `INVALID_FIELD`: an operator is not known, or there are `MAX_DEPTH` levels.
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
                raise invalid_field("filter_json", f"'{shown}' is no operator; use {names}")
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
    """Return the problem of a path of `ItemChange.index_paths`; empty if it has none."""
    if path != "$" and "".join(match[0] for match in _STEP.finditer(path)) != path:
        return 'must be a path such as "text", "author.name", "notes[*].text", or "$"'
    return ""


def texts_of(value: Mapping[str, object], paths: Sequence[str]) -> tuple[str, ...]:
    """Return the texts by which search knows an item: one for each part that a path leads to.

    Of an array or object it has a line for each text or number inside. No more parts are looked at
    than are used: paths with "*" may lead to every element of a large value, many times.
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
    """Yield the leaves of a value, each with the name of the member that has it."""
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
    """Return whether a namespace has labels at one of its ends; "*" stands for any one."""
    if len(labels) > len(namespace):
        return False
    part = namespace[len(namespace) - len(labels) :] if at_end else namespace
    return all(label in ("*", own_label) for label, own_label in zip(labels, part, strict=False))
