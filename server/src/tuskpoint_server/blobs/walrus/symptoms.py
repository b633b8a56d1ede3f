"""The words for what was asked of Walrus and what came back instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Operation(StrEnum):
    """What was asked for."""

    PUT_QUILT = "put_quilt"
    PUT_BLOB = "put_blob"
    GET_BLOB = "get_blob"
    GET_PATCH = "get_patch"
    LIST_QUILT = "list_quilt"


PUTS = frozenset({Operation.PUT_QUILT, Operation.PUT_BLOB})
READS = frozenset(Operation) - PUTS


class Trouble(StrEnum):
    """What went wrong where no status tells it."""

    UNREACHED = "unreached"
    """No connection: the request did not arrive."""
    TIMEOUT = "timeout"
    LOST = "lost"
    """The connection broke, perhaps in the middle of the answer."""
    TOO_LONG = "too_long"
    """The answer is longer than what was asked for can be."""
    UNREADABLE = "unreadable"
    """It says 200 and is not the answer to what was asked for."""
    MISMATCH = "mismatch"
    """Bytes came whose SHA-256 is not the recorded one."""


class Form(StrEnum):
    """What the body of an error is."""

    JSON = "json"
    TEXT = "text"
    HTML = "html"


class Outcome(StrEnum):
    """Reasons of a store that failed with status 200."""

    BLOCKED = "BLOCKED"
    NOT_ENCODED = "NOT_ENCODED"
    NOT_REGISTERED = "NOT_REGISTERED"
    NOT_CERTIFIED = "NOT_CERTIFIED"
    MARKED_INVALID = "MARKED_INVALID"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What came back instead of what was asked for.

    Attributes:
        trouble: What went wrong, where no status tells it.
        status: HTTP status, if there was an answer.
        form: What its body is.
        reason: The reason it names, an `Outcome` with status 200; empty: none.
        detail: What it says to people; one short line without secrets.
        recent: The blob was stored by this process a moment ago.
    """

    trouble: Trouble | None = None
    status: int | None = None
    form: Form = Form.TEXT
    reason: str = ""
    detail: str = ""
    recent: bool = False


_DETAIL_CHARS = 160
_TOKEN = re.compile(r"[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|\b(?:Bearer|Basic)\s+\S+", re.IGNORECASE)
_CREDENTIALS = re.compile(r"//[^/\s@]*@")


def told(text: str) -> str:
    """Return what a stranger says as one short printable line, secrets taken out."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())
    line = _CREDENTIALS.sub("//", _TOKEN.sub("(credential)", line))
    return line if len(line) <= _DETAIL_CHARS else line[: _DETAIL_CHARS - 3] + "..."
