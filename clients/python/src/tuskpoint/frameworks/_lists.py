"""Long lists in the channels of a state, stored so that growth of a list costs little.

A client sends only changed channels. So a list is cut into pieces, in the channels `NAME/00000`,
`NAME/00001`, and so on, and growth changes only the last piece. A piece is complete once it has
`PIECE_BYTES` of JSON. Later pieces are larger, because a checkpoint has at most 4,096 channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PIECE_BYTES = 16 * 1024
_PIECES_OF_A_SIZE = 1024
_MAX_KINDS = 8
_KINDS = ("role", "type", "kind")  # keys in which frameworks store the kind of an item


def items_of(state: Mapping[str, Any], name: str) -> list[Any]:
    """Return the items of a list. They belong to the state and must not be changed."""
    return [item for channel in _pieces(state, name) for item in state[channel]]


def appended(state: Mapping[str, Any], name: str, items: Sequence[Any]) -> dict[str, Any]:
    """Return the state with items added to the end of a list. A missing list is created."""
    pieces = _pieces(state, name)
    last = list(state[pieces[-1]]) if pieces else []
    number, size = max(len(pieces) - 1, 0), sum(map(_size, last))
    changed = {_channel(name, number): last}
    for item in items:
        if size >= PIECE_BYTES << number // _PIECES_OF_A_SIZE:
            number, size, last = number + 1, 0, []
            changed[_channel(name, number)] = last
        last.append(item)
        size += _size(item)
    return {**state, **changed}


def without_last(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the state without the last item of a list that is not empty."""
    *_, channel = _pieces(state, name)
    rest = state[channel][:-1]
    changed = {**state, channel: rest}
    if not rest and channel != _channel(name, 0):
        del changed[channel]
    return changed


def without_list(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the state without a list."""
    pieces = {*_pieces(state, name)}
    return {channel: value for channel, value in state.items() if channel not in pieces}


def names_of(state: Mapping[str, Any]) -> list[str]:
    """Return the names of the lists in a state."""
    names = (channel.rpartition("/") for channel in state)
    return list(dict.fromkeys(name for name, _, number in names if name and number.isdigit()))


def copied(value: Any) -> Any:
    """Return a copy of a value as it comes back from JSON, so that no caller shares the kept value.

    Raises:
        TypeError: The value cannot be written as JSON.
        ValueError: The value contains itself.
    """
    return json.loads(json.dumps(value))


def kinds_of(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the kinds of items for a summary, which contains no content."""
    kinds = [
        str(next((item[key] for key in _KINDS if item.get(key)), "item"))
        for item in items[:_MAX_KINDS]
    ]
    hidden = len(items) - len(kinds)
    return ", ".join(kinds) + (f" and {hidden} more" if hidden else "")


def _pieces(state: Mapping[str, Any], name: str) -> list[str]:
    pieces: list[str] = []
    while (channel := _channel(name, len(pieces))) in state:
        pieces.append(channel)
    return pieces


def _channel(name: str, number: int) -> str:
    return f"{name}/{number:05}"


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
