"""LangChain's messages, in the serial form that LangChain.js loads.

LangChain.js loads a message from `["langchain_core", "messages", CLASS]` by calling the class
with the arguments under `kwargs`, whose names it turns into camel case, and back when it saves.
Sources: `load/index.js`, `load/map_keys.js` and `load/serializable.js` of @langchain/core 1.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)

from .values import NotPortable

NAMESPACE = ("langchain_core", "messages")
_PYTHON_NAMESPACE = ("langchain", "schema", "messages")

MESSAGES: Mapping[str, type[BaseMessage]] = {
    kind.__name__: kind
    for kind in (
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        ChatMessageChunk,
        FunctionMessage,
        FunctionMessageChunk,
        HumanMessage,
        HumanMessageChunk,
        RemoveMessage,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
    )
}
"""Classes that LangChain.js has under the same names."""

TOOL_CHUNK = "langchain_core.messages.ToolMessageChunk"
"""Class whose `tool_call_id` LangChain.js loses when it loads a message."""

# Names that LangChain.js changes into camel case and back into the same names.
_SAFE_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]+)*")


def arguments(message: BaseMessage) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the arguments that rebuild a message.

    Arguments that are `None` by default and by value are left out: LangChain.js distinguishes a
    missing ID from an ID that is null.

    Raises:
        NotPortable: An additional field has a name that LangChain.js changes.
    """
    for name, field in type(message).model_fields.items():
        value = getattr(message, name)
        if name != "type" and not (value is None and field.default is None):
            yield name, value
    for name, value in (message.model_extra or {}).items():
        if not _SAFE_NAME.fullmatch(name):
            raise NotPortable(
                f"LangChain.js changes the name of the field {name!r} of a "
                f"{type(message).__name__}; put it into additional_kwargs"
            )
        yield name, value


def message_class(identity: object) -> type[BaseMessage] | None:
    """Return the class of message that a serial form names, or `None`."""
    if not isinstance(identity, list) or not all(isinstance(part, str) for part in identity):
        return None
    namespace, name = tuple(identity[:-1]), identity[-1] if identity else ""
    is_ours = namespace[:2] == NAMESPACE and len(namespace) in (2, 3)
    if not is_ours and namespace != _PYTHON_NAMESPACE:
        return None
    return ToolMessageChunk if name == "ToolMessageChunk" else MESSAGES.get(name)


def build_message(kind: type[BaseMessage], members: Mapping[str, Any]) -> BaseMessage:
    """Build a message from the arguments that either language saved.

    Like LangGraph, the function keeps a part that the class does not accept: another language or
    version accepted the part.

    Raises:
        ValueError: A part that every message of the class has is missing.
    """
    keywords = {name: value for name, value in members.items() if name != "type"}
    if "content" in keywords:
        keywords.pop("content_blocks", None)  # LangChain.js saves content blocks under both names
    if isinstance(keywords.get("tool_calls"), list):
        keywords["tool_calls"] = [_with_id(call) for call in keywords["tool_calls"]]
    try:
        return kind(**keywords)
    except (TypeError, ValueError, KeyError) as error:
        missing = [
            name
            for name, field in kind.model_fields.items()
            if field.is_required() and name not in keywords
        ]
        if missing:
            raise ValueError(f"this is not a {kind.__name__}: it lacks {missing[0]}") from error
        return kind.model_construct(**keywords)


def _with_id(call: Any) -> Any:
    """Return a tool call with an ID, which LangChain.js may leave out and LangChain needs."""
    return {"id": None, **call} if isinstance(call, dict) else call
