"""The searchable text of a checkpoint: label, questions, and its state.

The text of a state is its plan in words, or else its JSON view. The text serves to find a
checkpoint, not to load it: parts that nobody searches for are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.json_view.escapes import Json
from ..core.json_view.excerpts import shares, shorten
from ..core.json_view.views import ViewRoom, dump
from ..core.limits import MIB
from ..core.model import Value
from ..core.threads import INTERRUPT
from .searchable_parts import (
    ROOM_OF_BYTE,
    RareItemError,
    encodable_text,
    has_text,
    part_of_view,
    read_part,
    spaced,
)

PLAN = "current_plan"  # channel with the agent's next steps in words

LABEL, ASKS = "label: ", "asks: "
"""First characters of the body's lines that are not the state. The state's line starts with `{`."""

_OF_INTERRUPT = frozenset({"value", "id", "interrupt_id", "resumable", "ns", "when"}) | {
    "response_schema"
}
"""Members of LangGraph's `Interrupt` in all its versions. People search only for its `value`."""

MAX_SHOWN = 1 * MIB
"""Most bytes of the views of one state that are built; a larger value adds no text."""

_INTERNAL = ("__", "branch:")
"""Prefixes of LangGraph's internal channels, whose content nobody searches for."""

_ROOT = "__root__"  # the internal channel with the state of a graph whose state is not an object


class SearchableBody(NamedTuple):
    """Searchable text of a checkpoint."""

    text: str
    planned: bool  # whether the state is a plan in words, not JSON
    truncated: bool  # whether the state has more text than fits


def body_of(
    channels: Sequence[tuple[str, Value]], excluded: frozenset[str], maximum: int, label: str = ""
) -> SearchableBody:
    """Return the searchable text of a checkpoint. No input bytes make the function fail.

    The text starts with a line for the `label`, if there is one, and a line for each question in
    the values of channel `INTERRUPT`; these lines use at most half of the room. Then comes the
    state. A `PLAN` that is not empty is the text of the state: a string as it is, an array of
    strings line by line, any other value as JSON. If a plan is too long, its latest part is the
    text.

    Otherwise the state is one JSON object with the view of every channel, in the given order,
    without LangGraph's own channels, binary values, names of types, and empty values. Line breaks
    become spaces. A text that is too long is `shortened`.

    `excluded` names channels, and members at any depth, that are left out. `maximum` is in
    bytes of UTF-8.
    """
    values = {name: value for name, value in channels if name not in excluded}
    room = ViewRoom(MAX_SHOWN)
    interrupts = values.pop(INTERRUPT, None)
    shown = None if interrupts is None else part_of_view(room.show(interrupts).content, excluded)
    head, whole = _head(label, list(_questions(shown)), maximum // 2)
    state = {name: value for name, value in values.items() if not is_internal(name)}
    text, planned, truncated = _of_state(state, room, excluded, maximum - len(head.encode()))
    return SearchableBody(head + text if text else head.rstrip(), planned, truncated or not whole)


def head_of(body: str) -> str:
    """Return the label and the questions at the start of a body that has no plan."""
    return body.partition("\n{")[0] if body.startswith((LABEL, ASKS)) else ""


def _head(label: str, questions: Sequence[str], maximum: int) -> tuple[str, bool]:
    """Return the lines of label and questions, and whether all of them fit."""
    lines = [LABEL + spaced(label)] if label else []
    room = maximum - sum(len(line.encode()) + 1 for line in lines)
    sizes = [len(question.encode()) for question in questions]
    whole = True
    for question, share in zip(
        questions, shares(sizes, room - len(questions) * (len(ASKS) + 1)), strict=True
    ):
        part, is_all = _cut(question, share) if share > 0 else ("", False)
        whole = whole and is_all
        lines += [ASKS + part] if part else []
    return "".join(f"{line}\n" for line in lines), whole


def _questions(view: Json) -> Iterator[str]:
    """Yield the questions in the view of an array of interrupts, or of arrays of them."""
    if isinstance(view, list):
        for item in view:
            yield from _questions(item)
        return
    if isinstance(view, dict) and view.keys() <= _OF_INTERRUPT:
        view = view.get("value")
    if has_text(view):
        yield view if isinstance(view, str) else dump(view).decode()


def _of_state(
    values: dict[str, Value], room: ViewRoom, excluded: frozenset[str], maximum: int
) -> SearchableBody:
    """Return the text of a state, from its channels."""
    plan = values.pop(PLAN, None)
    if plan is not None:
        text, whole = _plan(room.show(plan).content, excluded, maximum)
        if text:
            return SearchableBody(text, planned=True, truncated=not whole)
    parts, whole = _parts_of(values, room, excluded)
    state = {name: part for name, part in parts.items() if has_text(part)}
    if not state:
        return SearchableBody("", planned=False, truncated=not whole)
    shown = dump(state)
    if len(shown) > maximum:
        shown, whole = shorten(state, maximum), False
    return SearchableBody(shown.decode(), planned=False, truncated=not whole)


def _parts_of(
    values: dict[str, Value], room: ViewRoom, excluded: frozenset[str]
) -> tuple[dict[str, Json], bool]:
    """Return the searchable parts of values by name, and whether all of them fit."""
    # If no view can exceed the room, no view has to be built to know that.
    has_room = room.left >= ROOM_OF_BYTE * sum(len(value.data) for value in values.values())
    parts, whole = dict[str, Json](), True
    for name, value in values.items():
        try:
            if has_room:
                parts[name] = read_part(value, excluded)
                continue
        except RareItemError:
            pass
        view = room.show(value).content
        parts[name] = part_of_view(view, excluded)
        whole = whole and not (isinstance(view, dict) and view.get("$problem") == "too_large")
    return parts, whole


def is_internal(channel: str) -> bool:
    """Return whether a channel is internal to LangGraph and has no state."""
    return channel.startswith(_INTERNAL) and channel != _ROOT


def _plan(view: Json, excluded: frozenset[str], maximum: int) -> tuple[str, bool]:
    """Return a plan in words, empty if it has no text, and whether the plan is complete."""
    if isinstance(view, list) and all(isinstance(item, str) for item in view):
        view = "\n".join(map(str, view))
    if isinstance(view, str):
        return _cut(view, maximum)
    shown = part_of_view(view, excluded)
    if not has_text(shown):
        return "", True
    text = shorten(shown, maximum)
    return text.decode(), text == dump(shown)


def _cut(text: str, maximum: int) -> tuple[str, bool]:
    """Return the latest part of a text, empty if it is all white space, and if it is whole."""
    text = text.replace("\0", " ")
    if len(text) > maximum:
        text = text.rstrip()  # white space at the end would use the room of words
    part = encodable_text(text[-maximum:]).encode()[-maximum:].decode(errors="ignore")
    return (part, len(part) == len(text)) if part.strip() else ("", not text.strip())
