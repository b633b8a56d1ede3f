"""The parts of a form (`multipart/form-data`, RFC 7578) that is whole in memory.

Reads only a part's name and bytes, which a publisher uses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'(?:^|[\s;])name=(?:"((?:\\.|[^"\\])*)"|([^\s;]*))')
_DISPOSITION = b"content-disposition:"


class MalformedForm(ValueError):
    """The body is not a form of parts."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a form. The name is empty if the part has none."""

    name: str
    content: bytes


def boundary_of(content_type: str) -> bytes:
    """Return the separator of the parts.

    Raises:
        MalformedForm: The content type names no form or no boundary.
    """
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        raise MalformedForm("the content type is not multipart/form-data")
    match = _BOUNDARY.search(parameters)
    if match is None:
        raise MalformedForm("the content type has no boundary")
    return (match[1] or match[2]).encode()


def parts(body: bytes, boundary: bytes) -> list[Part]:
    """Return the parts of a form, in order.

    Raises:
        MalformedForm: The end of the form, or of a part's headers, is missing.
    """
    opening = b"--" + boundary
    delimiter = b"\r\n" + opening
    form_parts: list[Part] = []
    # The first delimiter may stand at the very beginning, without its line break.
    position = 0 if body.startswith(opening) else body.find(delimiter) + 2
    if position == 1:
        raise MalformedForm("the form has no delimiter")
    while True:
        start = position + len(opening)
        if body.startswith(b"--", start):
            return form_parts
        line_end = body.find(b"\r\n", start)
        if line_end < 0 or body[start:line_end].strip(b" \t"):
            raise MalformedForm("a delimiter does not end its line")
        end = body.find(delimiter, line_end)
        if end < 0:
            raise MalformedForm("the last delimiter is missing")
        form_parts.append(_part(body, line_end + 2, end))
        position = end + 2


def _part(body: bytes, start: int, end: int) -> Part:
    headers_end = body.find(b"\r\n\r\n", start, end)
    if headers_end < 0:
        raise MalformedForm("the headers of a part have no end")
    for header in body[start:headers_end].split(b"\r\n"):
        if header[: len(_DISPOSITION)].lower() == _DISPOSITION:
            return Part(_name(header[len(_DISPOSITION) :]), body[headers_end + 4 : end])
    raise MalformedForm("a part has no content-disposition")


def _name(disposition: bytes) -> str:
    match = _NAME.search(disposition)
    if match is None:
        return ""
    raw = re.sub(rb"\\(.)", rb"\1", match[1]) if match[1] is not None else match[2]
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedForm("the name of a part is not UTF-8") from None
