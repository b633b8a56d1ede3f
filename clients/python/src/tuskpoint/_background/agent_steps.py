"""Events of finished agent steps, and the steps made from events. Pure."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .._messages.arguments import components, encode_json, encode_state, is_unicode
from ..errors import InvalidRequest

STEP_COMPLETE = "agent/step_complete"
"""Topic of the events that are saved as steps."""

_ABSENT = object()
_OVERHEAD_BYTES = 1024  # approximate size of the objects around the JSON text of a step
_COMPONENT_BYTES = 32  # size of a number in a tuple


@dataclass(frozen=True, slots=True)
class AgentStep:
    """A finished step of an agent, as the step was when its event was handled.

    Attributes:
        thread_id: The thread.
        step: Number of the step.
        timestamp: Time of the step from the event; a `datetime` becomes ISO 8601.
        summary: One sentence about what happened; may be empty.
        values: Maps each channel of the state to its value as JSON text.
        vector: Vector with which search finds the step; empty for no vector.
    """

    thread_id: str
    step: int
    timestamp: str | int | float
    summary: str
    values: Mapping[str, bytes]
    vector: tuple[float, ...] = ()

    @property
    def state(self) -> dict[str, Any]:
        """State of the step, decoded at each use."""
        return {name: json.loads(data) for name, data in self.values.items()}

    @property
    def metadata_json(self) -> bytes:
        """Metadata that is saved with the step, as JSON text."""
        members = {"source": "loop", "step": self.step, "timestamp": self.timestamp}
        return encode_json("metadata", members)

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        values_bytes = sum(len(name) + len(data) for name, data in self.values.items())
        texts = (self.thread_id, self.summary, str(self.timestamp))
        return (
            _OVERHEAD_BYTES
            + sum(map(len, texts))
            + values_bytes
            + _COMPONENT_BYTES * len(self.vector)
        )

    def __str__(self) -> str:
        return f"step {self.step} of thread '{self.thread_id}' ({self.timestamp})"


def agent_step(event: Any) -> AgentStep | None:
    """Return the step of an event; `None` if the event has another topic.

    Args:
        event: A mapping, an object with attributes, or a JSON object as text or bytes: `topic` and
            `payload`, or the payload alone. The payload, in any of these forms, has `thread_id`,
            `step`, `state`, and may have `timestamp`, `summary` and `vector`. Other keys are
            ignored.

    Raises:
        InvalidRequest: A text is not a JSON object, the payload lacks a field, the state is not
            JSON, or the vector is malformed.
    """
    event = _opened("event", event)
    topic = _get(event, "topic")
    if topic is _ABSENT:
        payload = event
    elif topic == STEP_COMPLETE:
        payload = _opened("payload", _required(event, "payload"))
    else:
        return None
    step = AgentStep(
        thread_id=_text(payload, "thread_id"),
        step=_number(_required(payload, "step")),
        timestamp=_timestamp(_get(payload, "timestamp")),
        summary=_text(payload, "summary", default=""),
        values=encode_state(_state(payload)),
        vector=_vector(_get(payload, "vector")),
    )
    # Refuses a number that JSON lacks at this point, while the caller can see the error.
    encode_json("timestamp", step.timestamp)
    return step


def _opened(name: str, value: Any) -> Any:
    """Return the parsed value of JSON text or bytes, or any other value unchanged."""
    if not isinstance(value, str | bytes | bytearray):
        return value
    try:
        members = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _invalid(name, f"it is text that is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise _invalid(name, f"its JSON must be an object, not {type(members).__name__}")
    return members


def _get(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name, _ABSENT)
    return getattr(holder, name, _ABSENT)


def _required(holder: Any, name: str) -> Any:
    value = _get(holder, name)
    if value is _ABSENT:
        raise _invalid(name, f"the event does not have it (searched in: {type(holder).__name__})")
    return value


def _text(payload: Any, name: str, default: str | None = None) -> str:
    value = _required(payload, name) if default is None else _get(payload, name)
    if default is not None and value in (_ABSENT, None):
        return default
    if not isinstance(value, str) or (default is None and not value):
        form = "a string that is not empty" if default is None else "a string"
        raise _invalid(name, f"it must be {form}, not {value!r}")
    if not is_unicode(value):
        raise _invalid(name, "it cannot be written in UTF-8")
    return value


def _number(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise _invalid("step", f"it must be a whole number, not {value!r}") from None


def _state(payload: Any) -> Mapping[str, Any]:
    state = _required(payload, "state")
    if not isinstance(state, Mapping):
        raise _invalid("state", f"it must be a mapping, not {type(state).__name__}")
    return state


def _vector(value: Any) -> tuple[float, ...]:
    # A step that is handled again has an empty vector if its event had no vector.
    if value is _ABSENT or value is None or (isinstance(value, tuple) and not value):
        return ()
    return tuple(components("vector", value))


def _timestamp(value: Any) -> str | int | float:
    if value is _ABSENT or value is None:
        return datetime.now(UTC).isoformat()
    if isinstance(value, datetime):
        # A naive datetime means local time, as everywhere in Python.
        return (value if value.tzinfo else value.astimezone()).isoformat()
    if isinstance(value, str | int | float):
        return value
    raise _invalid("timestamp", f"it must be a string, a number or a datetime, not {value!r}")


def _invalid(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name}: {problem}",
        status="INVALID_ARGUMENT",
        reason="INVALID_FIELD",
        metadata={"field": name},
    )
