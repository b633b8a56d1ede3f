"""Messages as JSON, by the mapping of Protocol Buffers.

https://protobuf.dev/programming-guides/json/ has it: names in lowerCamelCase (those of the
contract are understood too), bytes in base64, 64-bit numbers and durations as strings.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from ...domain.errors import invalid_field

MessageT = TypeVar("MessageT", bound=Message)


class JsonText(bytes):
    """The bytes of a request that is JSON, and not in the binary format."""


def from_json(request_class: type[MessageT], text: bytes) -> MessageT:
    """Return the message that JSON describes, or refuse what describes none."""
    request = request_class()
    try:
        json_format.Parse(text, request)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        name = request_class.DESCRIPTOR.full_name
        raise invalid_field("request", f"is no JSON of a {name}: {problem}") from None
    return request


def to_json(answer: Message) -> bytes:
    """Return a message as JSON on one line."""
    return json_format.MessageToJson(answer, indent=None, ensure_ascii=False).encode()
