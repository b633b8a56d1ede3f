"""An answer before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a caller.

    Attributes:
        code: HTTP status.
        body: The body.
        headers: Headers; without a content type among them none is sent.
    """

    code: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """The call is not carried out."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(answer.code)


class ConnectionDroppedError(Exception):
    """The server must cut the connection without an answer."""


def json_answer(value: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a JSON answer."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return Answer(code, body, {"Content-Type": JSON, **(headers or {})})


def text_answer(message: str, code: int) -> Answer:
    """Return an error in plain text, as MemWal's web framework answers before MemWal runs."""
    return Answer(code, message.encode(), {"Content-Type": TEXT})


def error_answer(message: str, code: int) -> Answer:
    """Return an error in JSON, as MemWal answers a refused call."""
    return json_answer({"error": message}, code)


def refused(message: str, code: int = 400) -> RefusedError:
    """Return a refusal for the caller to raise."""
    return RefusedError(error_answer(message, code))
