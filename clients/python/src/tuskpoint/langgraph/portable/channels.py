"""LangGraph's own objects, and the channels on which LangGraph.js saves them without a type.

`langgraph` itself, which has the classes of these objects, is imported at the first such object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS

from .values import PortableError

_JOIN = "join:"


def native(channel: str, value: Any) -> Any:
    """Return a value of one of LangGraph's own channels in the form that LangGraph in Python uses.

    LangGraph.js saves sends as `{node, args}`, interrupts as `{id, value}`, errors as
    `{name, message}`, and the names that a join has seen as a list.
    """
    convert = _CHANNELS.get(channel) or (_joined if channel.startswith(_JOIN) else None)
    return value if convert is None else convert(value)


def build_send(parts: Mapping[str, Any]) -> Any:
    """Build a `Send` from `node`, `args` and, in milliseconds, `timeout`."""
    from langgraph.types import Send, TimeoutPolicy

    policy = parts.get("timeout")
    if not isinstance(policy, dict):
        return Send(parts["node"], parts["args"])
    timeout = TimeoutPolicy(
        run_timeout=_seconds(policy.get("runTimeout")),
        idle_timeout=_seconds(policy.get("idleTimeout")),
        refresh_on=policy.get("refreshOn", "auto"),
    )
    return Send(parts["node"], parts["args"], timeout=timeout)


def build_interrupt(parts: Mapping[str, Any]) -> Any:
    """Build an `Interrupt` from `value`, `id` and, if present, `response_schema`."""
    from langgraph.types import Interrupt

    schema = parts.get("response_schema")
    if schema is None:  # older versions do not have this argument
        return Interrupt(parts.get("value"), id=parts["id"])
    return Interrupt(parts.get("value"), id=parts["id"], response_schema=schema)


def build_overwrite(parts: Mapping[str, Any]) -> Any:
    """Build an `Overwrite` from the property that marks an `Overwrite` in LangGraph.js."""
    from langgraph.types import Overwrite

    return Overwrite(parts["__overwrite__"])


def _seconds(milliseconds: Any) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else None


def _sends(value: Any) -> Any:
    if isinstance(value, list):
        return [_sends(item) for item in value]
    if isinstance(value, dict) and isinstance(value.get("node"), str) and "args" in value:
        return build_send(value)
    return value


def _interrupts(value: Any) -> Any:
    if isinstance(value, list):
        return [_interrupts(item) for item in value]
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return build_interrupt(value)
    return value


def _failure(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"name", "message"}:
        return PortableError(str(value["message"]), str(value["name"]))
    return value


def _joined(value: Any) -> Any:
    match value:
        case [list() as seen, bool() as finished]:
            return [set(seen), finished]
        case [*seen] if all(isinstance(name, str) for name in seen):
            return set(seen)
    return value


_CHANNELS: Mapping[str, Callable[[Any], Any]] = {
    TASKS: _sends,
    INTERRUPT: _interrupts,
    ERROR: _failure,
}
