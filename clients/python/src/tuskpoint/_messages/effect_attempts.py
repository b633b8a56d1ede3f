"""Decisions about an attempt of an effect: what to wait for, and the errors. No I/O."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import (
    EffectError,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    EffectUnknown,
    NotFound,
    PreconditionFailed,
)
from ..v1 import effect_service_pb2 as effects
from ..v1.value_pb2 import Value
from .effects import MAX_NAME_BYTES, Effect, OutcomeName, cut_text, effect_record
from .records import DurabilityName

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """What a block that does an effect needs to know.

    Attributes:
        request: The request that begins the effect; its `request_id` is empty.
        encode: Returns the message of a result.
        decode: Returns the result of a record.
        durability: Durability of each report.
        wait_s: Longest time to wait for an attempt that runs elsewhere, in seconds; `None` waits
            until that attempt reports or is unknown.
        save_wait_s: Longest time to wait for the save of the task's checkpoint, in seconds.
        earlier_digest: Another digest of the input, which an effect of an older client may have.
    """

    request: effects.BeginEffectRequest
    encode: Callable[[Any], Value]
    decode: Callable[[Effect], Any]
    durability: DurabilityName
    wait_s: float | None = None
    save_wait_s: float = 0.0
    earlier_digest: bytes = b""

    def with_earlier_digest(self, refusal: EffectError) -> effects.BeginEffectRequest:
        """Return the request for an effect that an older client began with the same input.

        Raises:
            EffectError: The refusal has another cause.
        """
        earlier = self.earlier_digest
        recorded = refusal.metadata.get("recorded", earlier.hex())
        if earlier in (b"", self.request.input_digest) or recorded != earlier.hex():
            raise refusal
        request = effects.BeginEffectRequest()
        request.CopyFrom(self.request)
        request.input_digest = earlier
        return request


class Waiting:
    """The pauses between requests that begin an effect.

    Args:
        plan: The plan.
    """

    def __init__(self, plan: EffectPlan) -> None:
        self._plan = plan
        self._started_s = time.monotonic()
        self._pauses = 0

    def after_refusal(self, refusal: NotFound) -> float:
        """Return the seconds to wait for the save of the task's checkpoint.

        Raises:
            NotFound: The refusal has another reason.
            PreconditionFailed: The checkpoint was not saved in time.
        """
        if refusal.reason != "CHECKPOINT_MISSING":
            raise refusal
        if time.monotonic() - self._started_s >= self._plan.save_wait_s:
            request = self._plan.request
            raise PreconditionFailed(
                f"effect '{request.key}' of thread '{request.thread_id}' cannot begin: checkpoint "
                f"'{request.checkpoint_id}' of its task was not saved within "
                f"{self._plan.save_wait_s:g} s, so a later run could not find the effect; check "
                "that the graph's checkpointer is this saver and that its saves succeed, or pass "
                "a key of your own",
                reason=refusal.reason,
                status=refusal.status,
                metadata=refusal.metadata,
            ) from refusal
        return self._pause_s()

    def after_answer(self, effect: Effect) -> float | None:
        """Return the seconds to wait for another attempt, or `None` if the answer is final.

        Raises:
            EffectUnknown: The effect is unknown.
            EffectRefused: The work was refused.
            EffectRunning: Another attempt did not report in time.
        """
        if effect.run or effect.state == "done":
            return None
        if effect.state != "running":
            raise ending_error(effect)
        wait_s = self._plan.wait_s
        if wait_s is None:
            return self._pause_s()
        left_s = self._started_s + wait_s - time.monotonic()
        if left_s <= 0:
            raise EffectRunning(
                f"effect {_named(effect)} runs elsewhere: attempt {_described(effect)}; "
                "wait longer, or let that attempt report",
                effect=effect,
            )
        return min(left_s, self._pause_s())

    def _pause_s(self) -> float:
        bound_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 1.5 ** min(self._pauses, 16))
        self._pauses += 1
        return bound_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class EffectRunBase:
    """State of a block that does an effect.

    Args:
        plan: The plan.
    """

    def __init__(self, plan: EffectPlan) -> None:
        self._plan = plan
        self._effect: Effect | None = None
        self._pending = False
        self._outcome: OutcomeName = "unknown"
        self._why = ""

    @property
    def effect(self) -> Effect:
        """The recorded effect.

        Raises:
            PreconditionFailed: The block was not entered.
        """
        if self._effect is None:
            raise PreconditionFailed(
                f"effect '{self._plan.request.key}' did not begin: enter the block first"
            )
        return self._effect

    @property
    def pending(self) -> bool:
        """Whether the block must do the work and call `complete`."""
        return self._pending

    @property
    def idempotency_key(self) -> str:
        """Key to send to the outside world, so that it does the work once."""
        return self.effect.idempotency_key

    @property
    def attempt(self) -> int:
        """Number of the attempt; the first is 1."""
        return self.effect.attempt

    @property
    def result(self) -> Any:
        """The recorded result, from this block or from an earlier attempt.

        Raises:
            PreconditionFailed: The effect is not done.
        """
        effect = self.effect
        if effect.state != "done":
            raise PreconditionFailed(
                f"effect {_named(effect)} has no result: it is {effect.state}; call `complete` "
                "with the result of the work first"
            )
        return self._plan.decode(effect)

    def not_done(self, why: str) -> None:
        """Note that the work was certainly not done, and may be tried again.

        The end of the block reports it. Do not call this method after a timeout: a timeout does
        not say whether the work was done.

        Args:
            why: The problem, for people.
        """
        self._note("not_done", why)

    def refused(self, why: str) -> None:
        """Note that the work was certainly not done, and that another attempt makes no sense.

        The end of the block reports it.

        Args:
            why: The problem, for people.
        """
        self._note("refused", why)

    def _note(self, outcome: OutcomeName, why: str) -> None:
        self._check_pending()
        self._outcome, self._why = outcome, why

    def _check_pending(self) -> None:
        if not self._pending:
            raise PreconditionFailed(
                f"effect {_named(self.effect)} is not pending: an outcome is recorded already; "
                "check `pending` before the work"
            )

    def _problem(self, error: BaseException | None) -> str:
        """Return what ended the block without an outcome, for people."""
        if error is None:
            return self._why or "the block ended without an outcome"
        if self._why and self._why == str(error):
            return self._why
        name = type(error).__name__
        problem = f"{name}: {error}" if str(error) else name
        return f"{self._why}: {problem}" if self._why else problem

    def _begun(self, response: effects.BeginEffectResponse) -> Effect:
        self._effect = effect_record(response.effect, run=response.run)
        return self._effect

    def _reported(self, message: effects.Effect) -> Effect:
        self._effect = effect_record(message)
        self._pending = False
        return self._effect


def ending_error(effect: Effect) -> EffectError:
    """Return the error of an effect that ended without being done."""
    if effect.state == "failed":
        if effect.retryable:
            return EffectNotDone(
                f"effect {_named(effect)} was not done: {effect.error or 'no reason was given'}; "
                "try again",
                effect=effect,
            )
        return EffectRefused(
            f"effect {_named(effect)} was refused: {effect.error or 'no reason was given'}; "
            "another attempt makes no sense: change the input and use another key",
            effect=effect,
        )
    problem = f" ({effect.error})" if effect.error else ""
    return EffectUnknown(
        f"it is unknown whether effect {_named(effect)} was done: attempt {_described(effect)} "
        f"and reported no outcome{problem}; look in the outside world for idempotency key "
        f"{effect.idempotency_key}, then decide with `tuskpoint effects resolve` or "
        '`resolve_effect`; pass on_unknown="retry" only if the outside world honours the key',
        effect=effect,
    )


def this_owner(agent_id: str = "") -> str:
    """Return who runs an attempt: agent, host and process."""
    process = f"{socket.gethostname()}:{os.getpid()}"
    return cut_text(f"{agent_id}@{process}" if agent_id else process, MAX_NAME_BYTES)


def _named(effect: Effect) -> str:
    return f"'{effect.key}' of thread '{effect.thread_id}'"


def _described(effect: Effect) -> str:
    begun = effect.begun.isoformat(timespec="seconds") if effect.begun else "an unknown time"
    return f"{effect.attempt} began at {begun} by {effect.owner or 'an unnamed caller'}"
