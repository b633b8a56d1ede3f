"""Records and requests of effects: work in the outside world that must not be repeated. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from google.protobuf.message import Message

from ..v1 import effect_service_pb2 as effects
from ..v1.value_pb2 import Value
from .arguments import check_texts, checked_texts, encode_json, invalid_field
from .canonical_json import canonical_json
from .records import DurabilityName, ViewName, decoded_value, moment
from .requests import BATCH, choice, durability, view

EffectStateName = Literal["running", "done", "failed", "unknown"]
OutcomeName = Literal["not_done", "refused", "unknown"]
OnUnknownName = Literal["fail", "retry"]

EFFECT_STATES: dict[str, effects.EffectState] = {
    "running": effects.EFFECT_STATE_RUNNING,
    "done": effects.EFFECT_STATE_DONE,
    "failed": effects.EFFECT_STATE_FAILED,
    "unknown": effects.EFFECT_STATE_UNKNOWN,
}
_STATE_NAMES: dict[int, EffectStateName] = {
    effects.EFFECT_STATE_RUNNING: "running",
    effects.EFFECT_STATE_DONE: "done",
    effects.EFFECT_STATE_FAILED: "failed",
    effects.EFFECT_STATE_UNKNOWN: "unknown",
}
_OUTCOMES: dict[str, effects.AttemptOutcome] = {
    "not_done": effects.ATTEMPT_OUTCOME_NOT_DONE,
    "refused": effects.ATTEMPT_OUTCOME_REFUSED,
    "unknown": effects.ATTEMPT_OUTCOME_UNKNOWN,
}
_ON_UNKNOWN: dict[str, effects.OnUnknown] = {
    "fail": effects.ON_UNKNOWN_FAIL,
    "retry": effects.ON_UNKNOWN_RETRY,
}
MAX_ERROR_BYTES = 1024
MAX_NAME_BYTES = 256


@dataclass(frozen=True, slots=True)
class Effect:
    """Work in the outside world, and what the server knows about it.

    Attributes:
        thread_id: The thread.
        key: Key of the effect, unique within the thread.
        name: Name of the work; may be empty.
        idempotency_key: Key to send to the outside world, so that it does the work once.
        state: "running", "done", "failed" or "unknown". "unknown" means that an attempt began and
            did not report: the work may be done.
        retryable: Whether the failed work may be tried again.
        attempt: Number of the last attempt; the first is 1.
        owner: Who runs the last attempt; may be empty.
        lease_id: Lease under which the last attempt began; may be empty.
        input_digest: Digest of the input; may be empty.
        checkpoint_ns: Namespace of `checkpoint_id`.
        checkpoint_id: Checkpoint to which the effect belongs; may be empty.
        error: Problem of the last failed attempt; may be empty.
        resolved_by: Who decided the effect after it was unknown; empty if nobody did.
        created: Start of the first attempt.
        begun: Start of the last attempt.
        expires: Time after which the last attempt is unknown, unless it reports before.
        ended: Time of the recorded outcome; `None` without an outcome.
        seq: Number of the last change; later changes of effects of the thread have greater numbers.
        result_type: Encoding of the result; empty if there is none.
        result_data: The encoded result.
        run: Whether the caller of `begin_effect` must do the work now.
    """

    thread_id: str
    key: str
    name: str
    idempotency_key: str
    state: EffectStateName
    retryable: bool
    attempt: int
    owner: str
    lease_id: str
    input_digest: bytes
    checkpoint_ns: str
    checkpoint_id: str
    error: str
    resolved_by: str
    created: datetime | None
    begun: datetime | None
    expires: datetime | None
    ended: datetime | None
    seq: int
    result_type: str = ""
    result_data: bytes = b""
    run: bool = False

    @property
    def result(self) -> Any:
        """The decoded result; `None` if none was recorded, or the effect was listed.

        Raises:
            UnreadableValue: The type is not json, null or bytes. A read with the view "json"
                returns the result as JSON.
        """
        if not self.result_type:
            return None
        return decoded_value("effect", self.key, self.result_type, self.result_data)


def effect_record(message: effects.Effect, *, run: bool = False) -> Effect:
    """Return the record of an effect message."""
    return Effect(
        thread_id=message.thread_id,
        key=message.key,
        name=message.name,
        idempotency_key=message.idempotency_key,
        # A state that this client does not know is never taken for a known one.
        state=_STATE_NAMES.get(message.state, "unknown"),
        retryable=message.retryable,
        attempt=message.attempt,
        owner=message.owner,
        lease_id=message.lease_id,
        input_digest=message.input_digest,
        checkpoint_ns=message.checkpoint_ns,
        checkpoint_id=message.checkpoint_id,
        error=message.error,
        resolved_by=message.resolved_by,
        created=_time(message, "create_time"),
        begun=_time(message, "attempt_time"),
        expires=_time(message, "expire_time"),
        ended=_time(message, "end_time"),
        seq=message.seq,
        result_type=message.result.type,
        result_data=message.result.data,
        run=run,
    )


def input_digest(value: Any) -> bytes:
    """Return the digest of an input: SHA-256 over "json", a zero byte and its canonical JSON.

    Canonical JSON follows RFC 8785, but an `int` has all its digits, and keys are in the order
    of their code points. A tuple counts as a list. The clients in all languages return the same
    digest for equal values.

    Raises:
        InvalidRequest: The value cannot be written as JSON.
    """
    encode_json("input", value)
    return typed_digest("json", canonical_json(value).encode())


def earlier_digest(value: Any) -> bytes:
    """Return the digest that this client sent before numbers were canonical.

    Effects of that time are found by it, and keys that contain a digest must stay.

    Raises:
        InvalidRequest: The value cannot be written as JSON.
    """
    encode_json("input", value)
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
    )
    return typed_digest("json", text.encode())


def typed_digest(kind: str, data: bytes) -> bytes:
    """Return SHA-256 over the type of a value, a zero byte and its bytes."""
    return hashlib.sha256(kind.encode() + b"\0" + data).digest()


def result_value(result: Any) -> Value:
    """Return the message of a result: bytes as they are, anything else as JSON.

    Raises:
        InvalidRequest: The result cannot be written as JSON.
    """
    if isinstance(result, bytes):
        return Value(type="bytes", data=result)
    return Value(type="json", data=encode_json("result", result))


def beginning(
    thread_id: str,
    key: str,
    *,
    name: str = "",
    digest: bytes = b"",
    checkpoint_id: str = "",
    checkpoint_ns: str = "",
    lease_id: str = "",
    timeout_s: float | None = None,
    on_unknown: OnUnknownName = "fail",
    owner: str = "",
    safe: DurabilityName = "journaled",
    request_id: str = "",
) -> effects.BeginEffectRequest:
    """Return the request that begins an effect.

    Raises:
        InvalidRequest: An argument is malformed.
    """
    texts: dict[str, Any] = {
        "thread_id": thread_id,
        "key": key,
        "name": name,
        "checkpoint_id": checkpoint_id,
        "checkpoint_ns": checkpoint_ns,
        "lease_id": lease_id,
        "owner": owner,
        "request_id": request_id,
    }
    check_texts(**texts)
    request = effects.BeginEffectRequest(
        **texts,
        input_digest=digest,
        on_unknown=choice("on_unknown", on_unknown, _ON_UNKNOWN),
        durability=durability(safe),
    )
    if timeout_s is not None:
        if not 1 <= timeout_s <= 7 * 86400:
            raise invalid_field("timeout_s", f"it must be 1 second to 7 days, not {timeout_s!r}")
        request.timeout.FromTimedelta(timedelta(seconds=timeout_s))
    return request


def completing(
    thread_id: str, key: str, idempotency_key: str, result: Value | None, safe: DurabilityName
) -> effects.CompleteEffectRequest:
    """Return the request that reports an effect as done."""
    check_texts(thread_id=thread_id, key=key, idempotency_key=idempotency_key)
    return effects.CompleteEffectRequest(
        thread_id=thread_id,
        key=key,
        idempotency_key=idempotency_key,
        result=result,
        durability=durability(safe),
    )


def failing(
    thread_id: str,
    key: str,
    idempotency_key: str,
    attempt: int,
    outcome: OutcomeName,
    error: str,
    safe: DurabilityName,
) -> effects.FailEffectRequest:
    """Return the request that reports an attempt as failed.

    Raises:
        InvalidRequest: The outcome is unknown, or a text cannot be sent.
    """
    check_texts(thread_id=thread_id, key=key, idempotency_key=idempotency_key)
    return effects.FailEffectRequest(
        thread_id=thread_id,
        key=key,
        idempotency_key=idempotency_key,
        attempt=attempt,
        outcome=choice("outcome", outcome, _OUTCOMES),
        error=cut_text(error, MAX_ERROR_BYTES),
        durability=durability(safe),
    )


def resolving(
    thread_id: str,
    key: str,
    attempt: int,
    *,
    done: bool,
    result: Any,
    resolved_by: str,
    safe: DurabilityName,
) -> effects.ResolveEffectRequest:
    """Return the request that decides an unknown effect.

    Raises:
        InvalidRequest: The result cannot be written as JSON, or the work was not done.
    """
    if not done and result is not None:
        raise invalid_field("result", "work that was not done has no result")
    check_texts(thread_id=thread_id, key=key, resolved_by=resolved_by)
    return effects.ResolveEffectRequest(
        thread_id=thread_id,
        key=key,
        attempt=attempt,
        done=done,
        result=result_value(result) if done else None,
        resolved_by=resolved_by,
        durability=durability(safe),
    )


def getting(thread_id: str, key: str, detail: ViewName) -> effects.GetEffectRequest:
    """Return the request that reads an effect."""
    check_texts(thread_id=thread_id, key=key)
    return effects.GetEffectRequest(thread_id=thread_id, key=key, view=view(detail))


def listing(
    thread_id: str, states: EffectStateName | Iterable[EffectStateName]
) -> effects.ListEffectsRequest:
    """Return the request of the first page of effects.

    Raises:
        InvalidRequest: A state is unknown.
    """
    check_texts(thread_id=thread_id)
    names = checked_texts("states", states)
    return effects.ListEffectsRequest(
        thread_id=thread_id,
        states=[choice("states", name, EFFECT_STATES) for name in names],
        page_size=BATCH,
    )


def cut_text(text: str, size: int) -> str:
    """Return a text without NUL that has at most `size` bytes of UTF-8."""
    data = text.replace("\0", " ").encode("utf-8", "replace")[:size]
    return data.decode("utf-8", "ignore")


def _time(message: Message, name: str) -> datetime | None:
    return moment(getattr(message, name)) if message.HasField(name) else None
