"""`EffectService` on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tuskpoint.v1 import effect_service_pb2 as effect_pb
from tuskpoint.v1 import value_pb2

from ..core.effects.decisions import AttemptOutcome, BeginEffect, OnUnknown
from ..core.effects.records import EffectState
from ..core.limits import LIMITS
from ..core.model import Value, View
from ..features.effects.effect_rows import ShownEffect
from ..features.effects.effects import EffectAnswer, Effects
from .messages.convert import fill_fields
from .messages.validation import Check, Checks, is_within, limit_exceeded
from .middleware.pipeline import Call, Fields

_KEY = re.compile(r"[0-9a-f]{32}")
_MICROSECONDS = 1_000_000


def _key(checks: Checks, request: effect_pb.GetEffectRequest) -> None:
    checks.text("key", request.key, LIMITS.max_effect_key, required=True)


def _begin(checks: Checks, request: effect_pb.BeginEffectRequest) -> None:
    checks.text("key", request.key, LIMITS.max_effect_key, required=True)
    checks.text("name", request.name, LIMITS.max_effect_name)
    checks.at_most("input_digest", len(request.input_digest), LIMITS.max_effect_digest, " bytes")
    if request.checkpoint_ns and not request.checkpoint_id:
        checks.fail("checkpoint_ns", "must not be set without checkpoint_id")
    if not request.request_id:
        checks.fail("request_id", "must not be empty")
    if request.HasField("timeout"):
        least, most = LIMITS.min_effect_timeout_s, LIMITS.max_effect_timeout_s
        if not is_within(request.timeout, least, most):
            checks.fail("timeout", f"must be {least} to {most} seconds")


def _idempotency_key(checks: Checks, idempotency_key: str) -> None:
    if not _KEY.fullmatch(idempotency_key):
        checks.fail("idempotency_key", "must be Effect.idempotency_key, 32 lowercase hex digits")


def _attempt(checks: Checks, attempt: int) -> None:
    checks.fail("attempt", "" if attempt else "must be Effect.attempt of the attempt")


def _result(checks: Checks, result: value_pb2.Value) -> None:
    checks.text("result.type", result.type, LIMITS.max_value_type, required=True)
    size = len(result.data)
    if size > LIMITS.max_effect_result:
        maximum = LIMITS.max_effect_result
        raise limit_exceeded(f"a result of {size} bytes", "max_effect_result_bytes", maximum)


def _complete(checks: Checks, request: effect_pb.CompleteEffectRequest) -> None:
    checks.text("key", request.key, LIMITS.max_effect_key, required=True)
    _idempotency_key(checks, request.idempotency_key)
    if request.HasField("result"):
        _result(checks, request.result)


def _fail(checks: Checks, request: effect_pb.FailEffectRequest) -> None:
    checks.text("key", request.key, LIMITS.max_effect_key, required=True)
    _attempt(checks, request.attempt)
    _idempotency_key(checks, request.idempotency_key)
    if not request.outcome:
        checks.fail("outcome", "must be set")
    checks.text("error", request.error, LIMITS.max_effect_error)


def _resolve(checks: Checks, request: effect_pb.ResolveEffectRequest) -> None:
    checks.text("key", request.key, LIMITS.max_effect_key, required=True)
    _attempt(checks, request.attempt)
    checks.text("resolved_by", request.resolved_by, LIMITS.max_agent_id)
    if request.HasField("result") and not request.done:
        checks.fail("result", "must be absent unless done is set")
    elif request.HasField("result"):
        _result(checks, request.result)


def _get(checks: Checks, request: effect_pb.GetEffectRequest) -> None:
    _key(checks, request)
    if int(request.view) == View.STEP:
        checks.fail("view", "must be VIEW_FULL, VIEW_JSON or VIEW_ENTRY")


def _list(checks: Checks, request: effect_pb.ListEffectsRequest) -> None:
    if checks.at_most("states", len(request.states), len(EffectState)):
        for number, state in enumerate(request.states):
            if state not in {*EffectState}:
                checks.fail(f"states[{number}]", f"{state} is not a state of an effect")


@dataclass(frozen=True, slots=True)
class EffectServicer:
    """`EffectService`: records work that must not be repeated blindly."""

    checks: ClassVar[Mapping[str, Check]] = {
        "BeginEffectRequest": _begin,
        "CompleteEffectRequest": _complete,
        "FailEffectRequest": _fail,
        "ResolveEffectRequest": _resolve,
        "GetEffectRequest": _get,
        "ListEffectsRequest": _list,
    }
    _effects: Effects

    async def BeginEffect(self, request: effect_pb.BeginEffectRequest, call: Call) -> Fields:
        timeout_us = LIMITS.default_effect_timeout_s * _MICROSECONDS
        if request.HasField("timeout"):
            timeout_us = request.timeout.ToMicroseconds()
        asked = BeginEffect(
            key=request.key,
            name=request.name,
            input_digest=request.input_digest,
            request_id=request.request_id,
            owner=request.owner,
            lease_id=request.lease_id,
            timeout_us=timeout_us,
            on_unknown=OnUnknown(request.on_unknown or OnUnknown.FAIL),
        )
        place = (request.checkpoint_ns, request.checkpoint_id) if request.checkpoint_id else None
        thread_id = request.thread_id
        answer = await self._effects.begin(call.tenant, thread_id, asked, place, call.wanted)
        return {"run": answer.run, "effect": _message(thread_id, answer)}

    async def CompleteEffect(self, request: effect_pb.CompleteEffectRequest, call: Call) -> Fields:
        names = (request.thread_id, request.key, request.idempotency_key)
        result = _value(request)
        answer = await self._effects.complete(call.tenant, *names, result, call.wanted)
        return {"effect": _message(request.thread_id, answer)}

    async def FailEffect(self, request: effect_pb.FailEffectRequest, call: Call) -> Fields:
        names = (request.thread_id, request.key, request.attempt, request.idempotency_key)
        failure = (AttemptOutcome(request.outcome), request.error)
        answer = await self._effects.fail(call.tenant, *names, *failure, call.wanted)
        return {"effect": _message(request.thread_id, answer)}

    async def ResolveEffect(self, request: effect_pb.ResolveEffectRequest, call: Call) -> Fields:
        names = (request.thread_id, request.key, request.attempt)
        decision = (_value(request), request.resolved_by, call.wanted)
        answer = await self._effects.resolve(call.tenant, *names, *decision, done=request.done)
        return {"effect": _message(request.thread_id, answer)}

    async def GetEffect(self, request: effect_pb.GetEffectRequest, call: Call) -> Fields:
        names = (request.thread_id, request.key)
        answer = await self._effects.get(call.tenant, *names, View(request.view))
        return {"effect": _message(request.thread_id, answer)}

    async def ListEffects(self, request: effect_pb.ListEffectsRequest, call: Call) -> Fields:
        states = [EffectState(state) for state in request.states]
        arguments = (request.thread_id, states, request.page_size, request.page_token)
        effects, token = await self._effects.list(call.tenant, *arguments)
        messages = [_message(request.thread_id, EffectAnswer(effect)) for effect in effects]
        return {"effects": messages, "next_page_token": token}


def _value(
    request: effect_pb.CompleteEffectRequest | effect_pb.ResolveEffectRequest,
) -> Value | None:
    result = request.result
    return Value(result.type, result.data) if request.HasField("result") else None


def _message(thread_id: str, answer: EffectAnswer) -> effect_pb.Effect:
    """Return the message for an effect."""
    effect: ShownEffect = answer.effect
    message = effect_pb.Effect(thread_id=thread_id)
    fill_fields(message, effect.record, effect)
    if not effect.record.end_us:
        message.ClearField("end_time")
    if effect.state is EffectState.DONE:
        message.result.SetInParent()
    if answer.result is not None:
        message.result.type, message.result.data = answer.result.type, answer.result.data
    return message
