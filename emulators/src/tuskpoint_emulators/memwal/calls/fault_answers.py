"""The answers that faults cause."""

from __future__ import annotations

import uuid

from ..access.limits import RateLimits, limited
from ..answers import JSON, TEXT, Answer, error_answer, json_answer
from ..faults import Fault, FaultKind, Operation


def refusal(operation: Operation, fault: Fault) -> Answer:
    """Return the answer of a fault: its own text, or MemWal's text for its status.

    Args:
        operation: The operation of the request.
        fault: Of the kind `REFUSE` or `SAY`.
    """
    if fault.kind is FaultKind.SAY:
        looks_like_json = fault.body.lstrip()[:1] in ("{", "[")
        kind = JSON if looks_like_json else TEXT
        return Answer(fault.status, fault.body.encode(), {"Content-Type": kind})
    headers = {"x-auth-error": fault.auth_error} if fault.auth_error else {}
    match fault.status:
        case 401:
            return Answer(401, headers=headers)
        case 429:
            return limited("delegate_key", RateLimits().delegate_key, fault.retry_after_s)
        case 500:
            return json_answer({"traceId": uuid.uuid4().hex}, 500, headers)
    answer = error_answer(f"{operation}: {fault.message}", fault.status)
    return Answer(answer.code, answer.body, {**answer.headers, **headers})
