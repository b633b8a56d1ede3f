# Written by `make sync` from _async/effects/methods.py; do not edit.
"""Methods about effects: work in the outside world that must not be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..._messages import effects as effect_messages
from ..._messages.effect_attempts import EffectPlan, this_owner
from ..._messages.effects import (
    Effect,
    EffectStateName,
    OnUnknownName,
    OutcomeName,
    earlier_digest,
    effect_record,
    input_digest,
    result_value,
)
from ..._messages.records import DurabilityName, ViewName
from ..._transport import methods
from ..parts.part import SyncPart
from .runs import EffectRun


class SyncEffects(SyncPart):
    """Methods about effects: work in the outside world that must not be repeated."""

    def effect(
        self,
        thread_id: str,
        key: str,
        *,
        input: Any = None,
        name: str = "",
        timeout_s: float | None = None,
        on_unknown: OnUnknownName = "fail",
        durability: DurabilityName = "journaled",
        wait_s: float | None = None,
        owner: str | None = None,
        lease_id: str = "",
    ) -> EffectRun:
        """Return a block that does work in the outside world once per thread and key.

        If an earlier attempt did the work, the block is not `pending` and has its result. If an
        attempt runs elsewhere, entering the block waits for it.

        Args:
            thread_id: The thread.
            key: Key of the effect, unique within the thread, such as "charge:order-42".
            input: Input of the work, which JSON can express. A second effect with the same key must
                have an equal input. `None` compares nothing.
            name: Name of the work, for people.
            timeout_s: Seconds after which the attempt is unknown, unless it reports before: 1
                second to 7 days. Default: 60. The work must end before.
            on_unknown: What to do if an earlier attempt did not report: "fail" raises
                `EffectUnknown`; "retry" does the work again with the same `idempotency_key`. Use
                "retry" only if the outside world honours that key.
            durability: "journaled", or "certified" to wait for the blob store before the work and
                after it.
            wait_s: Longest time to wait for an attempt that runs elsewhere. Default: until that
                attempt reports or is unknown.
            owner: Who runs the attempt, for people. Default: host and process.
            lease_id: Lease under which the agent runs. Default: the lease of this client. Once the
                lease is lost, the attempt is unknown.

        Raises:
            InvalidRequest: An argument is malformed. Entering the block raises the other errors.
            EffectUnknown: It is unknown whether an earlier attempt did the work.
            EffectRunning: Another attempt did not report within `wait_s`.
            EffectRefused: An earlier attempt reported that the work was refused.
            EffectInputChanged: The effect was begun with another input.
        """
        request = effect_messages.beginning(
            *(thread_id, key),
            name=name,
            digest=b"" if input is None else input_digest(input),
            lease_id=lease_id,
            timeout_s=timeout_s,
            on_unknown=on_unknown,
            owner=this_owner() if owner is None else owner,
            safe=durability,
        )
        earlier = b"" if input is None else earlier_digest(input)
        plan = EffectPlan(
            request, result_value, _result, durability, wait_s, earlier_digest=earlier
        )
        return EffectRun(self._calls, plan)

    def begin_effect(
        self,
        thread_id: str,
        key: str,
        *,
        name: str = "",
        input_digest: bytes = b"",
        checkpoint_id: str = "",
        checkpoint_ns: str = "",
        lease_id: str = "",
        timeout_s: float | None = None,
        on_unknown: OnUnknownName = "fail",
        owner: str = "",
        durability: DurabilityName = "journaled",
        request_id: str = "",
    ) -> Effect:
        """Ask whether to do the work of an effect, and record the attempt.

        Do the work only if `run` of the returned effect is true, and then report its outcome with
        `complete_effect` or `fail_effect`. `effect` does all of this.

        Args:
            thread_id: The thread.
            key: Key of the effect, unique within the thread.
            name: Name of the work, for people.
            input_digest: Digest of the input; empty compares nothing.
            checkpoint_id: Checkpoint from which the task runs, if the key belongs to a task.
            checkpoint_ns: Namespace of `checkpoint_id`.
            lease_id: Lease under which the agent runs. Default: the lease of this client.
            timeout_s: Seconds after which the attempt is unknown. Default: 60.
            on_unknown: "fail" returns an unknown effect; "retry" starts another attempt.
            owner: Who runs the attempt, for people.
            durability: "journaled", or "certified" to wait for the blob store.
            request_id: ID of the request; a repeat gets the first answer. Default: generated.

        Raises:
            EffectInputChanged: The effect was begun with another input.
            NotFound: The checkpoint is not stored.
        """
        request = effect_messages.beginning(
            *(thread_id, key),
            name=name,
            digest=input_digest,
            checkpoint_id=checkpoint_id,
            checkpoint_ns=checkpoint_ns,
            lease_id=lease_id,
            timeout_s=timeout_s,
            on_unknown=on_unknown,
            owner=owner,
            safe=durability,
            request_id=request_id,
        )
        answer = self._calls.begin_effect(request)
        return effect_record(answer.effect, run=answer.run)

    def complete_effect(
        self,
        thread_id: str,
        key: str,
        *,
        idempotency_key: str,
        result: Any = None,
        durability: DurabilityName = "journaled",
    ) -> Effect:
        """Record that the work of an effect is done; return the effect with its recorded result.

        The report of any attempt counts, however late. The first reported result stays.

        Args:
            thread_id: The thread.
            key: Key of the effect.
            idempotency_key: `Effect.idempotency_key` of the attempt.
            result: Result of the work: bytes, or a value that JSON can express.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The thread has no such effect.
            ResourceExhausted: The result is too large. Record a reference to it instead.
        """
        request = effect_messages.completing(
            thread_id, key, idempotency_key, result_value(result), durability
        )
        return effect_record(self._calls.unary(methods.COMPLETE_EFFECT, request).effect)

    def fail_effect(
        self,
        thread_id: str,
        key: str,
        *,
        idempotency_key: str,
        attempt: int,
        outcome: OutcomeName,
        error: str = "",
        durability: DurabilityName = "journaled",
    ) -> Effect:
        """Record how an attempt failed; return the effect.

        Args:
            thread_id: The thread.
            key: Key of the effect.
            idempotency_key: `Effect.idempotency_key` of the attempt.
            attempt: `Effect.attempt` of the attempt.
            outcome: "not_done": the work was not done, and may be tried again. "refused": it was
                not done, and another attempt makes no sense. "unknown": it may be done. A timeout
                of the outside world is "unknown".
            error: The problem, for people.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The thread has no such effect, or the effect no such attempt.
        """
        request = effect_messages.failing(
            thread_id, key, idempotency_key, attempt, outcome, error, durability
        )
        return effect_record(self._calls.unary(methods.FAIL_EFFECT, request).effect)

    def resolve_effect(
        self,
        thread_id: str,
        key: str,
        *,
        attempt: int,
        done: bool,
        result: Any = None,
        resolved_by: str = "",
        durability: DurabilityName = "journaled",
    ) -> Effect:
        """Decide an unknown effect; return the effect. A repeat of the decision changes nothing.

        Args:
            thread_id: The thread.
            key: Key of the effect.
            attempt: `Effect.attempt` of the unknown attempt.
            done: Whether the work was done. Work that was not done may be tried again.
            result: Result of the work, if it was done.
            resolved_by: Who decided, for people.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: The thread has no such effect, or the effect no such attempt.
            EffectNotUnknown: The effect is not unknown, or a later attempt has begun.
        """
        request = effect_messages.resolving(
            *(thread_id, key, attempt),
            done=done,
            result=result,
            resolved_by=resolved_by,
            safe=durability,
        )
        return effect_record(self._calls.unary(methods.RESOLVE_EFFECT, request).effect)

    def get_effect(self, thread_id: str, key: str, *, view: ViewName = "full") -> Effect:
        """Return an effect.

        Args:
            thread_id: The thread.
            key: Key of the effect.
            view: "full" returns the result as it was recorded, "json" the result as JSON, "entry"
                no result.

        Raises:
            NotFound: The thread or its effect does not exist.
        """
        request = effect_messages.getting(thread_id, key, view)
        return effect_record(self._calls.unary(methods.GET_EFFECT, request).effect)

    def list_effects(
        self, thread_id: str, *, states: EffectStateName | Iterable[EffectStateName] = ()
    ) -> Iterator[Effect]:
        """Yield the effects of a thread without results, the last changed first.

        Args:
            thread_id: The thread.
            states: Only effects in these states: "running", "done", "failed", "unknown". Default:
                all.

        Raises:
            NotFound: The thread does not exist.
        """
        request = effect_messages.listing(thread_id, states)
        while True:
            page = self._calls.unary(methods.LIST_EFFECTS, request)
            for effect in page.effects:
                yield effect_record(effect)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _result(effect: Effect) -> Any:
    return effect.result
