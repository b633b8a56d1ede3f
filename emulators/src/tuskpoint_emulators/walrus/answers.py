"""An answer before it is sent, and how faults spoil it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import JSON, Failure
from .faults import Fault, FaultKind

CORS = {"Access-Control-Allow-Origin": "*"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a caller.

    Attributes:
        code: HTTP status.
        body: The body.
        headers: Headers; without a content type among them none is sent.
        cut_at: Bytes of body after which the connection is cut; `None`: the body is sent whole.
        streamed: Whether the body is sent in chunks, without a length in the headers.
    """

    code: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    streamed: bool = False


def json_answer(value: Any, code: int = 200) -> Answer:
    """Return a JSON answer."""
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return Answer(code, body, {"Content-Type": JSON})


def failure_answer(failure: Failure) -> Answer:
    """Return a failure as an answer."""
    headers = {"Content-Type": failure.content_type} if failure.body else {}
    return Answer(failure.code, failure.body, headers)


def spoiled(answer: Answer, fault: Fault | None) -> Answer:
    """Return a successful answer as a fault changes it.

    The headers have the length of the spoiled body, so that only the content shows the fault;
    a cut body is announced whole.
    """
    if fault is None or not answer.body:
        return answer
    body = answer.body
    middle = len(body) // 2
    if fault.kind is FaultKind.CORRUPT:
        changed = bytes([body[middle] ^ 0x01])
        return replace(answer, body=body[:middle] + changed + body[middle + 1 :])
    if fault.kind is FaultKind.SHORT:
        return replace(answer, body=body[:-1])
    if fault.kind is FaultKind.CUT:
        return replace(answer, cut_at=middle)
    return answer
