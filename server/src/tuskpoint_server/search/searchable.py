"""The searchable text of a checkpoint: label, questions, and its state.

Of the state that is its plan in words, or else its JSON view. The text serves
to find a checkpoint, not to load it: parts that nobody searches for are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.json_view.escapes import Json, escapes_of
from ..core.json_view.excerpts import shares, shorten
from ..core.json_view.views import ViewRoom, dump
from ..core.limits import MIB
from ..core.model import Value
from ..core.threads import INTERRUPT

PLAN = "current_plan"  # channel with the agent's next steps in words

LABEL, ASKS = "label: ", "asks: "
"""What the lines of a body begin with that are not the state. That of a state begins with `{`."""

_OF_INTERRUPT = frozenset({"value", "id", "interrupt_id", "resumable", "ns", "when"}) | {
    "response_schema"
}
"""Members of LangGraph's `Interrupt`, of all its versions. People search for its `value` alone."""

MAX_SHOWN = 1 * MIB
"""Bytes of the views of one state that are made at most; a larger value adds no text."""

_INTERNAL = ("__", "branch:")
"""Prefixes of LangGraph's own channels, whose content nobody searches for."""

_ROOT = "__root__"  # the one of them that holds state: that of a graph whose state is no object

_NOT_TEXT = frozenset({"$bytes", "$bytearray", "$string", "$ext", "$opaque", "$too_deep"})
"""Escapes without text to search for; binary values are base64 in them."""

_OF_CODE = frozenset({"$type", "$method"})  # escapes that name types and methods
_LONGEST_WORD = 128
_NO_WORD = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LONGEST_WORD + 1},}}")
"""A longer run without a space is no word: messages hold images as base64."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b]")  # controls that are no white space


class SearchableBody(NamedTuple):
    """The searchable text of a checkpoint."""

    text: str
    planned: bool  # its state is a plan in words, not JSON
    truncated: bool  # the state holds more than fits


def body_of(
    channels: Sequence[tuple[str, Value]], excluded: frozenset[str], maximum: int, label: str = ""
) -> SearchableBody:
    """Return the searchable text of a checkpoint. No bytes make it fail.

    It begins with a line for the `label`, if there is one, and a line for each question in the
    values of channel `INTERRUPT`; they take half of the room at most. Then comes the state.

    A `PLAN` that is not empty is the text of the state: a string as it is, an array of strings
    line by line, any other value as JSON. Of a plan that is too long the latest part is the text.

    Otherwise it is one JSON object with the view of every channel, in the order given, without
    LangGraph's own channels, binary values, names of types, and empty values. Line breaks become
    spaces. A text that is too long is `shortened`.

    `excluded` names channels, and members at any depth, that are left out. `maximum` is in
    bytes of UTF-8.
    """
    values = {name: value for name, value in channels if name not in excluded}
    room = ViewRoom(MAX_SHOWN)
    interrupts = values.pop(INTERRUPT, None)
    shown = (
        None if interrupts is None else _searchable_part(room.show(interrupts).content, excluded)
    )
    head, whole = _head(label, list(_questions(shown)), maximum // 2)
    state = {name: value for name, value in values.items() if not is_internal(name)}
    text, planned, truncated = _of_state(state, room, excluded, maximum - len(head.encode()))
    return SearchableBody(head + text if text else head.rstrip(), planned, truncated or not whole)


def head_of(body: str) -> str:
    """Return the label and the questions at the beginning of a body that has no plan."""
    return body.partition("\n{")[0] if body.startswith((LABEL, ASKS)) else ""


def _head(label: str, questions: Sequence[str], maximum: int) -> tuple[str, bool]:
    """Return the lines of label and questions, and whether they are whole."""
    lines = [LABEL + " ".join(_words(label))] if label else []
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
    if _has_text(view):
        yield view if isinstance(view, str) else dump(view).decode()


def _of_state(
    values: dict[str, Value], room: ViewRoom, excluded: frozenset[str], maximum: int
) -> SearchableBody:
    """Return the text of a state, given its channels."""
    plan = values.pop(PLAN, None)
    if plan is not None:
        text, whole = _plan(room.show(plan).content, excluded, maximum)
        if text:
            return SearchableBody(text, planned=True, truncated=not whole)
    views = {name: room.show(value).content for name, value in values.items()}
    shown = {name: _searchable_part(view, excluded) for name, view in views.items()}
    state = {name: view for name, view in shown.items() if _has_text(view)}
    fitted = shorten(state, maximum) if state else b""
    whole = not state or fitted == dump(state)
    hidden = [view.get("$problem") for view in views.values() if isinstance(view, dict)]
    return SearchableBody(
        fitted.decode(), planned=False, truncated=not whole or "too_large" in hidden
    )


def is_internal(channel: str) -> bool:
    """Return whether a channel is one of LangGraph's own, which hold no state."""
    return channel.startswith(_INTERNAL) and channel != _ROOT


def _plan(view: Json, excluded: frozenset[str], maximum: int) -> tuple[str, bool]:
    """Return a plan in words, empty if it has no text, and whether it is complete."""
    if isinstance(view, list) and all(isinstance(item, str) for item in view):
        view = "\n".join(map(str, view))
    if isinstance(view, str):
        return _cut(view, maximum)
    shown = _searchable_part(view, excluded)
    if not _has_text(shown):
        return "", True
    text = shorten(shown, maximum)
    return text.decode(), text == dump(shown)


def _cut(text: str, maximum: int) -> tuple[str, bool]:
    """Return the latest part of a text, empty if all is white space, and whether it is whole."""
    text = text.replace("\0", " ")
    if len(text) > maximum:
        text = text.rstrip()  # it would take the room of words
    part = _encodable_text(text[-maximum:]).encode()[-maximum:].decode(errors="ignore")
    return (part, len(part) == len(text)) if part.strip() else ("", not text.strip())


def _encodable_text(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair."""
    return text.encode(errors="replace").decode()


def _has_text(shown: Json) -> bool:
    """Return whether a view has any text to search for; 0 and `false` count."""
    return shown is not None and shown not in ("", [], {})


def _searchable_part(view: Json, excluded: frozenset[str]) -> Json:
    """Return the searchable part of a view."""
    if isinstance(view, str):
        return " ".join(_words(view))
    if isinstance(view, list):
        return [shown for item in view if _has_text(shown := _searchable_part(item, excluded))]
    if isinstance(view, dict):
        return _searchable_object(view, excluded)
    return view


def _words(text: str) -> list[str]:
    """Return the words of a text: JSON would write a line break between two as a letter."""
    if not text.isascii():
        text = _encodable_text(text)
    if _CONTROL.search(text):
        text = _CONTROL.sub(" ", text)
    words = text.split()
    if max(map(len, words), default=0) > _LONGEST_WORD:
        words = _NO_WORD.sub(" ", " ".join(words)).split()
    return words


def _searchable_object(view: dict[str, Json], excluded: frozenset[str]) -> Json:
    escapes = escapes_of(view)
    if escapes & _NOT_TEXT:
        return None
    for escape in escapes - _OF_CODE:
        content = view[escape]
        if escape == "$map" and isinstance(content, list):
            pairs = [pair for pair in content if isinstance(pair, list)]
            content = [
                pair for pair in pairs if not isinstance(pair[0], str) or pair[0] not in excluded
            ]
        return _searchable_part(content, excluded)
    members: dict[str, Json] = {}
    for key, item in view.items():
        # Names of the agent's own that begin with "$" have one more in a view.
        name = key.removeprefix("$")
        if key in escapes or name in excluded:
            continue
        shown = _searchable_part(item, excluded)
        if _has_text(shown):
            members[name] = shown
    return members
