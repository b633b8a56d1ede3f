"""Sizes of results: pages of lists, and parts of long states."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from .._messages.checkpoints.steps import Failure, StepRecord
from .results import Omitted, Part

PAGE_CHARS = 20_000
"""Characters of JSON after which a result is cut, unless the caller requests more."""
MAX_OMITTED = 100
_MAX_LEVELS = 64

MaxChars = Annotated[
    int,
    Field(ge=1_000, le=1_000_000, description="Characters of JSON after which a result is cut."),
]
Limit = Annotated[int, Field(ge=1, le=500, description="At most this many.")]

ItemT = TypeVar("ItemT")
ModelT = TypeVar("ModelT", bound=BaseModel)


def json_text(value: Any) -> str:
    """Return a value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed(name: str, text: str, hint: str) -> Any:
    """Return the value of a caller's JSON text.

    Args:
        name: Name of the parameter.
        text: The JSON text.
        hint: Advice for the caller: what to write instead.

    Raises:
        ToolError: The text is not JSON.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{name} is not JSON: {error}; {hint}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def moment(time: datetime) -> str:
    """Return a time in the form of results."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def page(models: Iterable[ModelT], limit: int, max_chars: int) -> tuple[list[ModelT], bool]:
    """Return as many models as fit, at least one, and whether there are more.

    Args:
        models: The models; one more than `limit` is enough.
        limit: Most models to return.
        max_chars: Most characters of their JSON.
    """
    results: list[ModelT] = []
    room = max_chars
    for model in models:
        room -= len(model.model_dump_json(by_alias=True))
        if len(results) == limit or (results and room < 0):
            return results, True
        results.append(model)
    return results, False


def open_question(step: StepRecord) -> str | None:
    """Return the text of the first question of a step that has no answer."""
    texts = (question.text for question in step.questions if not question.answered)
    return next(texts, None)


def failure_text(failure: Failure | None) -> str | None:
    """Return the node, the type and the message of a failure."""
    if failure is None:
        return None
    return ": ".join(part for part in (failure.node, failure.type, failure.message) if part)


async def first(
    stream: AsyncIterator[ItemT], count: int, is_skipped: Callable[[ItemT], bool]
) -> list[ItemT]:
    """Return the first items that are not skipped."""
    items: list[ItemT] = []
    async for item in stream:
        if not is_skipped(item):
            items.append(item)
        if len(items) == count:
            break
    return items


def fitting(state: Mapping[str, Any], max_chars: int) -> tuple[dict[str, Any], list[Omitted]]:
    """Return the channels that fit together, smallest first, and the channels that do not fit."""
    sizes = {name: len(json_text(name)) + len(json_text(value)) for name, value in state.items()}
    room, names = max_chars, set()
    for name in sorted(state, key=lambda name: sizes[name]):
        room -= sizes[name]
        if room < 0:
            break
        names.add(name)
    omitted = [
        Omitted(channel=name, chars=sizes[name] - len(json_text(name)))
        for name in state
        if name not in names
    ]
    return {name: state[name] for name in state if name in names}, omitted[:MAX_OMITTED]


def part(state: Mapping[str, Any], channel: str | None, offset: int, max_chars: int) -> Part:
    """Return a part of the JSON text of a channel, or of the whole state.

    Raises:
        ToolError: There is no such channel, or the text ends before the offset.
    """
    if channel is not None and channel not in state:
        raise ToolError(f"the checkpoint has no channel '{channel}'; it has {_named(list(state))}")
    text = json_text(state if channel is None else state[channel])
    if offset >= len(text):
        raise ToolError(f"offset {offset} is behind the end: the text has {len(text)} characters")
    end = min(offset + max_chars, len(text))
    return Part(
        channel=channel,
        offset=offset,
        text=text[offset:end],
        next_offset=None if end == len(text) else end,
        total_chars=len(text),
    )


def _named(names: Sequence[str], most: int = 20) -> str:
    if not names:
        return "none"
    listing = ", ".join(f"'{name}'" for name in names[:most])
    return listing if len(names) <= most else f"{listing} and {len(names) - most} more"


def is_deep(value: Any) -> bool:
    """Return whether a value has more levels than the JSON view of a state can have.

    Parsers of JSON refuse values that are nested too deeply, and with them the whole result.
    """
    level = [value]
    for _ in range(_MAX_LEVELS):
        level = [inner for node in level for inner in _inside(node)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def cut(text: str, most: int) -> str:
    """Return a text, cut at a number of characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
