"""What the values of tasks say to people: questions, failures, tokens, names of nodes.

The functions accept any bytes: a value that they cannot read says nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping

from ..model import TokenUsage, Value
from .escapes import Json, MalformedError
from .msgpack_reader import ARRAY, EXTENSION, POSITIONAL, STRING, MsgpackReader
from .views import ViewRoom, dump

MAX_READ = 256 * 1024
"""Most bytes of a value that is read for its facts."""

MAX_FACT = 1024
"""Most bytes of the text of a question, or of the message of a failure."""

_TEXT_KEYS = ("question", "message", "prompt", "query", "text", "title", "description")
_USAGE = "usage_metadata"
_REPR = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z_][\w.]*): (.*)", re.DOTALL)
_LITERAL = re.compile(
    r"(?:'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"),?", re.DOTALL
)
_ESCAPE = re.compile(r"\\([nt'\"\\])")
_ESCAPES = {"n": "\n", "t": "\t"}


def questions(value: Value) -> Iterator[tuple[str, str]]:
    """Yield the ID and the text of each interrupt in the value of a task's interrupts."""
    content = _content(value)
    for interrupt in content if isinstance(content, list) else [content]:
        if isinstance(interrupt, dict) and ("value" in interrupt or "id" in interrupt):
            interrupt_id = interrupt.get("id")
            asked = interrupt.get("value")
            yield interrupt_id if isinstance(interrupt_id, str) else "", _beginning(_text(asked))
        else:
            yield "", _beginning(_text(interrupt))


def failure(value: Value) -> tuple[str, str]:
    """Return the type and the message of an error.

    An error is `repr` of an exception in Python, or an object with `name` and `message`.
    """
    content = _content(value)
    kind, message = "", ""
    if isinstance(content, str):
        kind, message = _type_and_message(content)
    elif isinstance(content, dict) and isinstance(content.get("message"), str):
        name = content.get("name")
        kind, message = name if isinstance(name, str) else "", str(content["message"])
    elif content is not None:
        message = dump(content).decode()
    return _beginning(kind), _ending(message.rstrip())


def tokens(value: Value) -> TokenUsage | None:
    """Return the tokens that the messages in a value report; `None` if none reports tokens."""
    if len(value.data) > MAX_READ or _USAGE.encode() not in value.data:
        return None
    reports = [
        (usage.get("input_tokens"), usage.get("output_tokens"))
        for usage in _members(_content(value), _USAGE)
        if isinstance(usage, dict)
    ]
    sums = [sum(filter(_is_count, counts)) for counts in zip(*reports, strict=True)]
    return TokenUsage(*sums) if any(sums) else None


def send_nodes(value: Value) -> dict[int, str]:
    """Return the nodes of the `Send`s in a value of their channel, by position."""
    try:
        if value.type == "msgpack":
            return dict(_sends_in_msgpack(value.data))
    except MalformedError:
        return {}
    content = _content(value)
    sends = enumerate(content) if isinstance(content, list) else ()
    nodes = ((at, send.get("node")) for at, send in sends if isinstance(send, dict))
    return {at: node for at, node in nodes if isinstance(node, str)}


def names_in(value: Value) -> list[str]:
    """Return the names in a value: a set, as Python's serializer writes it, or a list."""
    content = _content(value)
    if isinstance(content, dict):
        content = content.get("$value")
    return [name for name in content if isinstance(name, str)] if isinstance(content, list) else []


def _content(value: Value) -> Json:
    """Return the JSON view of a value; `None` if the value is too large or has no view."""
    if len(value.data) > MAX_READ:
        return None
    shown = ViewRoom(16 * MAX_READ).show(value)
    is_opaque = isinstance(shown.content, dict) and "$opaque" in shown.content
    return None if is_opaque else shown.content


def _text(content: Json) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        for key in _TEXT_KEYS:
            member = content.get(key)
            if isinstance(member, str) and member:
                return member
    return dump(content).decode()


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
    literal = content.removesuffix(",")[1:-1]
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), literal)


def _members(content: Json, name: str) -> Iterator[Json]:
    """Yield the members with a name, at any depth."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if name in item:
                yield item[name]
            waiting += (member for key, member in item.items() if key != name)
        elif isinstance(item, list):
            waiting += item


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**53


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
    return reader.take(size).decode(errors="replace") if kind == STRING else ""


def _beginning(text: str) -> str:
    """Return the beginning of a text that fits a fact."""
    return text.encode(errors="replace")[:MAX_FACT].decode(errors="ignore")


def _ending(text: str) -> str:
    """Return the end of a text that fits a fact."""
    return text.encode(errors="replace")[-MAX_FACT:].decode(errors="ignore")
