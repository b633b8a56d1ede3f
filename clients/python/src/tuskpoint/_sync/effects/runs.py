# Written by `make sync` from _async/effects/runs.py; do not edit.
"""A block that does work in the outside world once."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from ..._messages.effect_attempts import (
    EffectPlan,
    EffectRunBase,
    Waiting,
    ending_error,
)
from ..._messages.effects import OutcomeName, completing, failing
from ..._transport import methods
from ..._transport.policy import with_request_id
from ...errors import EffectInputChanged, EffectNotRecorded, NotFound, TuskPointError
from ...v1.effect_service_pb2 import BeginEffectRequest
from ..calls import SyncCalls


class EffectRun(EffectRunBase):
    """A block that does work in the outside world once. Enter it with `with`.

    Entering the block records an attempt. If `pending` is true, the block must do the work and
    call `complete`. Otherwise the work is done already, and `result` has its result. Entering waits
    for an attempt that runs elsewhere.

    A cancellation before the block is entered reports that the work was not done.

    A block that ends in any other way reports what it knows: an exception, a cancellation or the
    end of the block without `complete` makes the effect unknown, unless `not_done` or `refused`
    was called.
    """

    def __init__(self, calls: SyncCalls, plan: EffectPlan) -> None:
        super().__init__(plan)
        self._calls = calls

    def complete(self, result: Any = None) -> None:
        """Record that the work is done.

        `result` has the recorded result afterwards. If a late report of an earlier attempt came
        first, that is the result of the earlier attempt.

        Args:
            result: Result of the work.

        Raises:
            InvalidRequest: The result cannot be encoded. The work is done, and the end of the block
                reports the effect as unknown.
            ResourceExhausted: The result is too large. Record a reference to the result instead.
            PreconditionFailed: The effect is not pending.
        """
        self._check_pending()
        # From now on the work is done: nothing that happens may report it as not done.
        self._outcome, self._why = "unknown", "the work was done, but its result was not recorded"
        request = self._plan.request
        answer = self._calls.unary(
            methods.COMPLETE_EFFECT,
            completing(
                *(request.thread_id, request.key, self.idempotency_key),
                self._plan.encode(result),
                self._plan.durability,
            ),
        )
        self._reported(answer.effect)

    def __enter__(self) -> Self:
        waiting = Waiting(self._plan)
        planned = self._plan.request
        while True:
            request = with_request_id(planned)
            try:
                answer = self._calls.begin_effect(request)
            except NotFound as refusal:
                pause_s = waiting.after_refusal(refusal)
            except (EffectInputChanged, EffectNotRecorded) as refusal:
                if planned is not self._plan.request:
                    raise
                planned = self._plan.with_earlier_digest(refusal)
                continue
            except (Exception, GeneratorExit):
                raise
            except BaseException as interruption:  # a cancellation
                self._give_up(request, interruption)
                raise
            else:
                effect = self._begun(answer)
                next_pause_s = waiting.after_answer(effect)
                if next_pause_s is None:
                    self._pending = effect.run
                    return self
                pause_s = next_pause_s
            time.sleep(pause_s)

    def _give_up(self, request: BeginEffectRequest, interruption: BaseException) -> None:
        """Report that the work of an attempt whose answer is lost was not begun.

        The repeat of a request gets its first answer. The attempt of a request that never arrived
        starts now, and ends at once.
        """
        try:
            effect = self._begun(self._calls.begin_effect(request))
            if effect.run:
                why = "the call that begins the effect was interrupted, and the work was not begun"
                self._report("not_done", why)
        except TuskPointError as failure:
            # The attempt becomes unknown when its time is over.
            interruption.add_note(f"effect '{request.key}': no report that ends it: {failure}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._pending:
            return
        try:
            self._fail(error)
        except TuskPointError as failure:
            if error is None:
                raise
            # The attempt becomes unknown when its time is over.
            error.add_note(f"effect '{self.effect.key}': the outcome was not recorded: {failure}")
            return
        if error is None and self.effect.state != "done":
            raise ending_error(self.effect)

    def _fail(self, error: BaseException | None) -> None:
        self._report(self._outcome, self._problem(error))

    def _report(self, outcome: OutcomeName, why: str) -> None:
        request = self._plan.request
        answer = self._calls.unary(
            methods.FAIL_EFFECT,
            failing(
                *(request.thread_id, request.key, self.idempotency_key, self.attempt),
                outcome,
                why,
                self._plan.durability,
            ),
        )
        self._reported(answer.effect)
