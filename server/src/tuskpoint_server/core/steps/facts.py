"""What the values of tasks say to people: questions, failures, tokens, names of nodes.

The functions accept any bytes: a value that they cannot read says nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice

from ..json_view.escapes import Json, MalformedError, is_unicode
from ..json_view.msgpack_reader import (
    ARRAY,
    EXTENSION,
    INTEGER,
    MAP,
    POSITIONAL,
    STRING,
    MsgpackReader,
)
from ..json_view.views import ViewRoom, dump
from ..model import MAX_TOKENS, TokenUsage, Value
from .versions import MAX_NAME, MAX_TASKS

MAX_READ = 256 * 1024
"""Most bytes of a value that is read for its facts."""

MAX_FACT = 1024
"""Most bytes of the text of a question, or of the message of a failure."""

_TEXT_KEYS = ("question", "message", "prompt", "query", "text", "title", "description")
_REQUESTS = "action_requests"  # of LangChain's middleware for people (`HITLRequest`)
_USAGE, _INPUT, _OUTPUT = "usage_metadata", "input_tokens", "output_tokens"
TOKENS_MARK = _USAGE.encode()
"""Bytes in each value with a report of tokens."""

_USAGE_KEY = b"\xae" + TOKENS_MARK  # as msgpack writes a key of 14 bytes
_MOST_COUNTS = 16  # most members of a report of tokens
_REPR = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][\w.]*): (.*)", re.DOTALL)
_LITERAL = re.compile(
    r"(?:'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"),?", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:([nrt'\"\\])|x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}))")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def questions(value: Value) -> list[tuple[str, str]]:
    """Return the ID and the text of the first interrupts in the value of a task's interrupts."""
    content = _content(value)
    interrupts = content if isinstance(content, list) else [content]
    return list(map(_question, islice(interrupts, MAX_TASKS)))


def _question(interrupt: Json) -> tuple[str, str]:
    if not isinstance(interrupt, dict) or not interrupt.keys() & {"value", "id"}:
        return "", _beginning(_text(interrupt))
    return _name(interrupt.get("id")), _beginning(_text(interrupt.get("value")))


def failure(value: Value) -> tuple[str, str]:
    """Return the type and the message of an error.

    An error is `repr` of an exception in Python, or an object with `name` and `message`.
    """
    content = _content(value)
    kind, message = "", ""
    if isinstance(content, str):
        kind, message = _type_and_message(content)
    elif isinstance(content, dict) and isinstance(content.get("message"), str):
        kind, message = _name(content.get("name")), str(content["message"])
    elif content is not None:
        message = dump(content).decode()
    return _name(kind), _ending(message.rstrip())


def tokens(value: Value) -> TokenUsage | None:
    """Return the tokens that the messages in a value report; `None` if none reports tokens."""
    if len(value.data) > MAX_READ or TOKENS_MARK not in value.data:
        return None
    reports = _reports(value.data) if value.type == "msgpack" else _reports_in(_content(value))
    total = sum(reports, TokenUsage(0, 0))
    return total if total.input_tokens or total.output_tokens else None


def send_nodes(value: Value) -> dict[int, str]:
    """Return the nodes of the `Send`s in a value of their channel, by position."""
    try:
        if value.type == "msgpack":
            return dict(_sends_in_msgpack(value.data))
    except MalformedError:
        pass
    content = _content(value)
    if isinstance(content, list) and len(content) == 2 and isinstance(content[1], list):
        content = content[1]  # older LangGraph.js: first a list of what was seen
    sends = enumerate(content) if isinstance(content, list) else ()
    nodes = ((at, _name(send.get("node"))) for at, send in sends if isinstance(send, dict))
    return {at: node for at, node in nodes if node}


def is_complete(value: Value | None, awaited: str) -> bool:
    """Return whether the value of a channel starts the node that the channel leads to.

    Args:
        value: The value, which may wait for the end of the run: then it is a list of a value and
            whether the wait is over.
        awaited: Names of the nodes that must have ended, joined by "+"; the value has the names of
            those that ended. Empty for an edge.
    """
    if value is None:
        return False
    content = _content(value)
    if isinstance(content, list) and len(content) == 2 and isinstance(content[1], bool):
        return content[1]
    if not awaited:
        return True
    if isinstance(content, dict):  # a set, as Python's serializer writes it
        content = content.get("$value")
    names = [name for name in content if isinstance(name, str)] if isinstance(content, list) else []
    return len("+".join(names)) == len(awaited)  # names may contain a "+"


def _content(value: Value) -> Json:
    """Return the JSON view of a value; `None` if the value is too large or has no view."""
    if len(value.data) > MAX_READ:
        return None
    shown = ViewRoom(16 * MAX_READ).show(value)
    is_opaque = isinstance(shown.content, dict) and "$opaque" in shown.content
    return None if is_opaque else shown.content


def _text(content: Json) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return _spoken(content) or dump(content).decode()


def _spoken(content: Json) -> str:
    """Return what a value says to people; empty if the value does not say so by its keys."""
    if isinstance(content, dict):
        members = [*map(content.get, _TEXT_KEYS), _spoken(content.get(_REQUESTS))]
        return next((text for text in members if text and isinstance(text, str)), "")
    if isinstance(content, list):
        texts = [_spoken(item) if isinstance(item, dict) else "" for item in content]
        return "\n\n".join(texts) if all(texts) else ""
    return ""


def _type_and_message(text: str) -> tuple[str, str]:
    if found := _REPR.fullmatch(text):
        return found[1], _unquoted(found[2])
    last = text.rstrip().rpartition("\n")[2] if text.startswith("Traceback ") else text
    if found := _NAMED.fullmatch(last):
        return found[1], found[2]
    return "", text


def _unquoted(content: str) -> str:
    """Return the text of a string literal of Python; another text as it is."""
    if not _LITERAL.fullmatch(content):
        return content
    return _ESCAPE.sub(_unescaped, content.removesuffix(",")[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    character, *numbers = found.groups(default="")
    number = "".join(numbers)
    return chr(int(number, 16)) if number else _ESCAPES.get(character, character)


def _reports_in(content: Json) -> Iterator[TokenUsage]:
    """Yield the reports of tokens in a view, at any depth."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            usage = item.get(_USAGE)
            if isinstance(usage, dict):
                yield TokenUsage(_count(usage.get(_INPUT)), _count(usage.get(_OUTPUT)))
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _reports(data: bytes) -> Iterator[TokenUsage]:
    """Yield the reports of tokens in msgpack; the rest, which may be long, is not decoded."""
    reader, end = MsgpackReader(data), 0
    while (found := data.find(_USAGE_KEY, end)) >= 0:
        reader.at = end = found + len(_USAGE_KEY)
        try:
            kind, size = reader.head()
            if kind != MAP or size > _MOST_COUNTS:
                continue
            yield _report(reader, size)
        except MalformedError:
            return
        end = reader.at


def _report(reader: MsgpackReader, size: int) -> TokenUsage:
    counts = {}
    for _ in range(size):
        begin = reader.at
        key = reader.data[begin : reader.skip()]
        begin = reader.at
        kind, number = reader.head()
        if kind == INTEGER:
            counts[key[1:]] = number
        else:
            reader.at = begin
            reader.skip()
    return TokenUsage(*(_count(counts.get(name.encode())) for name in (_INPUT, _OUTPUT)))


def _count(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        return 0
    return number if 0 <= number <= MAX_TOKENS else 0


def _sends_in_msgpack(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield position and node of each `Send`; the arguments, which may be long, are skipped."""
    reader = MsgpackReader(data)
    for position in range(reader.array_size()):
        kind, size = reader.head()
        if kind != EXTENSION:
            raise MalformedError("no Send")
        (code,) = struct.unpack(">b", reader.take(1))
        begin = reader.at
        reader.go_past(size)
        if code == POSITIONAL and (node := _sent_node(data, begin, reader.at)):
            yield position, node


def _sent_node(data: bytes, begin: int, end: int) -> str:
    """Return the first argument in the payload of a `Send`: module, name, arguments."""
    reader = MsgpackReader(data)
    reader.at, reader.end = begin, end
    if reader.array_size() < 3:
        return ""
    reader.skip()
    reader.skip()
    kind, size = reader.head()
    if kind != ARRAY or not size:
        return ""
    kind, size = reader.head()
    return _name(reader.take(size).decode(errors="replace")) if kind == STRING else ""


def _name(name: Json) -> str:
    """Return a name or an ID; empty for what is none."""
    return name if isinstance(name, str) and len(name) <= MAX_NAME and is_unicode(name) else ""


def _beginning(text: str) -> str:
    """Return the beginning of a text that fits a fact."""
    return text.encode(errors="replace")[:MAX_FACT].decode(errors="ignore")


def _ending(text: str) -> str:
    """Return the end of a text that fits a fact."""
    return text.encode(errors="replace")[-MAX_FACT:].decode(errors="ignore")
