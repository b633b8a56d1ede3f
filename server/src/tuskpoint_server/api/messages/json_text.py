"""Messages as JSON, by the mapping of Protocol Buffers.

See https://protobuf.dev/programming-guides/json/: names in lowerCamelCase (the contract's names are
accepted too), bytes in base64, 64-bit numbers and durations as strings. In place of bytes that are
JSON, requests may have JSON, and so have answers for callers that ask for it (`json_values`).

The conversion is Python code, a hundred times slower than for the binary format: 8 MiB of many
small values take seconds. So large texts are converted in a thread, one at a time, which bounds
their use of processor and memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from ...core.errors import invalid_field
from ...core.limits import KIB
from .json_values import compact, encode_fields, parse_json, show_fields

MessageT = TypeVar("MessageT", bound=Message)
ResultT = TypeVar("ResultT")

_LARGE_BYTES = 16 * KIB  # bytes of text or message, which take up to 20 ms
_one_at_a_time = ThreadPoolExecutor(1, "json")


class JsonText(bytes):
    """The bytes of a request in JSON, not in the binary format."""


async def from_json(request_class: type[MessageT], text: JsonText) -> MessageT:
    """Return the message that JSON describes; refuse other bytes."""
    return await _convert(len(text), partial(_parse, request_class, text))


async def to_json(
    answer_class: type[Message], answer: bytes, *, shows_values: bool = False
) -> bytes:
    """Return a message in the binary format as JSON on one line.

    With `shows_values`, bytes that are JSON become JSON instead of base64.
    """
    conversion = _print_values if shows_values else _print
    return await _convert(len(answer), partial(conversion, answer_class, answer))


async def _convert(size: int, conversion: Callable[[], ResultT]) -> ResultT:
    if size < _LARGE_BYTES:
        return conversion()
    return await asyncio.get_running_loop().run_in_executor(_one_at_a_time, conversion)


def _parse(request_class: type[MessageT], text: JsonText) -> MessageT:
    request = request_class()
    try:
        tree = parse_json(text)
        encode_fields(request_class.DESCRIPTOR, tree)
        _fill(request, tree)
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        problem = problem.encode(errors="backslashreplace").decode()  # it may quote non-text
        name = request_class.DESCRIPTOR.full_name
        raise invalid_field("request", f"is not the JSON of a {name}: {problem}") from None
    return request


def _fill(request: Message, tree: Any) -> None:
    from google.protobuf import json_format  # only servers with HTTP need the library

    try:
        json_format.ParseDict(tree, request)
    except RecursionError:
        raise
    except Exception as error:  # any type, which `json_format.Parse` also expects
        raise ValueError(str(error)) from error


def _print(answer_class: type[Message], answer: bytes) -> bytes:
    from google.protobuf import json_format

    message = answer_class.FromString(answer)
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def _print_values(answer_class: type[Message], answer: bytes) -> bytes:
    from google.protobuf import json_format

    tree = json_format.MessageToDict(answer_class.FromString(answer))
    show_fields(answer_class.DESCRIPTOR, tree)
    return compact(tree).encode()
