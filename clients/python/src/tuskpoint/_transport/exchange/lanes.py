"""What is sent next on `Exchange` streams, again after a break, or not at all. No I/O, no clock.

Calls wait in a lane, which is one stream at a time. Large ones have a lane of their own, so that
small saves never queue behind them. Nothing here is thread-safe.
"""

from __future__ import annotations

import copy
import os
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from ...errors import ServerError, TlsMismatch, TuskPointError
from ...v1.checkpoint_service_pb2 import Answer, ExchangeResponse, Hello, SaveCheckpointRequest
from ..retry import Attempts, Repeat
from ..status import from_call_error
from .frames import MESSAGE_BYTES, NumberedCall, Payload, Request, payload_of

MESSAGES_IN_FLIGHT = 2
LARGE_BYTES = 256 * 1024
"""Payloads above this go over the second stream."""

UNANSWERED_FRAMES = 256
UNANSWERED_BYTES = 32 * 1024 * 1024


class Call:
    """One call on its way, and what has come of it.

    Args:
        payload: What it sends.
        request: The message that this was made of.
        tried: Its attempts.

    Attributes:
        answer: The result, once there is one.
        error: What it failed with, once it did.
        waiter: How the caller waits: the driver's.
        loop: The event loop of the caller, `None` for a thread that waits: the driver's.
    """

    __slots__ = (
        "answer",
        "error",
        "is_abandoned",
        "is_journaled",
        "loop",
        "message",
        "number",
        "payload",
        "request",
        "traceparent",
        "tried",
        "waiter",
    )

    def __init__(self, payload: Payload, request: Request, tried: Attempts) -> None:
        self.payload = payload
        self.request = request
        self.tried = tried
        self.renewed("")

    @property
    def thread_id(self) -> str:
        """The thread that it changes or reads."""
        if isinstance(self.request, SaveCheckpointRequest):
            return self.request.checkpoint.ref.thread_id
        return self.request.ref.thread_id

    def renewed(self, traceparent: str) -> Call:
        """Return this, ready to be sent as if for the first time.

        Args:
            traceparent: Context of the caller's trace; empty for none.
        """
        self.traceparent = traceparent
        self.answer: Any = None
        self.error: TuskPointError | None = None
        self.waiter: Any = None
        self.loop: Any = None
        self.number = 0
        self.message: _Message | None = None
        self.is_journaled = False
        self.is_abandoned = False
        return self

    def take(self, answer: Answer) -> None:
        """Take the last answer."""
        result = answer.WhichOneof("result")
        if result == "error":
            self.error = from_call_error(answer.error)
            return
        self.answer = getattr(answer, self.payload.kind.result)
        minimum = getattr(self.request, "durability", 0)
        reached = getattr(self.answer, "durability", 0)
        if result != self.payload.kind.result or reached < minimum:
            self.error = ServerError(
                "protocol error: the answer to a save has less durability than the request; "
                "please report this",
                status="INTERNAL",
            )

    def take_minted_id(self, answer: Answer) -> None:
        """Give a journaled save its minted ID, so that sending it again saves nothing twice."""
        request = self.request
        if isinstance(request, SaveCheckpointRequest) and not request.checkpoint.ref.checkpoint_id:
            self.request = SaveCheckpointRequest()
            self.request.CopyFrom(request)
            self.request.checkpoint.ref.CopyFrom(answer.saved.ref)
            self.payload = payload_of(self.request)
            self.tried.repeat = Repeat.SAFE

    def fail(self, failure: TuskPointError) -> None:
        """Take a failure that other calls share. Each caller raises an error of its own."""
        self.error = copy.copy(failure)
        self.error.__cause__ = failure.__cause__

    def is_over(self, failure: TuskPointError, reason: str, now_s: float) -> bool:
        """Return whether the call ends with the stream that it was to be answered on."""
        if isinstance(failure, TlsMismatch):
            return True
        pause_s = self.tried.delay_s(
            now_s, failure.status, reason, failure.retry_after_s, random.random
        )
        return pause_s is None


class _Message:
    """One message under way: how many of its saves have no answer."""

    __slots__ = ("saves",)

    def __init__(self, saves: int) -> None:
        self.saves = saves


class Lane:
    """The calls of one stream: those that wait, and those that were sent and have no answer."""

    def __init__(self) -> None:
        self.failures = 0
        self._session = os.urandom(16)
        self._attempt = 0
        self._last_id = 0
        self._saves: deque[Call] = deque()
        self._loads: deque[Call] = deque()
        self._sent: dict[int, Call] = {}
        self._messages = 0
        self._frames = 0
        self._bytes = 0
        self._is_draining = False

    @property
    def calls(self) -> Sequence[Call]:
        """The calls whose callers wait, those that were sent first."""
        sent = [call for call in self._sent.values() if not call.is_abandoned]
        return [*sent, *self._saves, *self._loads]

    @property
    def is_ready(self) -> bool:
        """Whether the next message may go."""
        if self._is_draining or self._frames >= UNANSWERED_FRAMES:
            return False
        return bool(self._loads or (self._saves and self._messages < MESSAGES_IN_FLIGHT))

    @property
    def may_move(self) -> bool:
        """Whether another stream may take the place of this one.

        Every save that was sent has an answer. Waits for certification and loads begin again,
        except the wait of a save without an ID, which is never sent twice.
        """
        return not self._messages and all(
            call.is_abandoned or call.tried.is_safe for call in self._sent.values()
        )

    @property
    def has_saves(self) -> bool:
        """Whether a save waits for being journaled."""
        return bool(self._saves or self._messages)

    def has_save_of(self, thread_id: str) -> bool:
        """Return whether a save of a thread waits for being journaled."""
        sent = (call for call in self._sent.values() if call.payload.kind.saves)
        return any(call.thread_id == thread_id for call in self._saves) or any(
            call.thread_id == thread_id and not call.is_journaled for call in sent
        )

    def push(self, call: Call) -> None:
        """Let a call wait for the next message."""
        (self._saves if call.payload.kind.saves else self._loads).append(call)

    def open(self) -> Hello:
        """Begin the next stream; return the head of its first message."""
        self._attempt += 1
        self._last_id = 0
        return Hello(session=self._session, attempt=self._attempt)

    def take(self, now_s: float) -> list[NumberedCall]:
        """Return what the next message carries; nothing if it has to wait.

        All that waits goes at once, in the order in which it came. Two messages may be under way
        with saves that are not answered; loads go at any time, because one that the server
        fetches from its blob store must not hold up saves.
        """
        calls: list[Call] = []
        numbered = []
        size = saves = 0
        while self.is_ready:
            queue = self._next()
            call = queue[0]
            size += call.payload.size
            if calls and size > MESSAGE_BYTES:
                break
            if self._frames and self._bytes + call.payload.size > UNANSWERED_BYTES:
                break
            queue.popleft()
            calls.append(call)
            saves += call.payload.kind.saves
            self._last_id += 1
            self._frames += 1
            self._bytes += call.payload.size
            self._sent[self._last_id] = call
            left_s = call.tried.remaining_s(now_s)
            numbered.append(NumberedCall(self._last_id, call.payload, left_s, call.traceparent))
        message = _Message(saves)
        self._messages += saves > 0
        for call in calls:
            call.message = message
        return numbered

    def _next(self) -> deque[Call]:
        if not self._saves or self._messages >= MESSAGES_IN_FLIGHT:
            return self._loads
        if self._loads and self._loads[0].number < self._saves[0].number:
            return self._loads
        return self._saves

    def receive(self, response: ExchangeResponse, finished: list[Call]) -> None:
        """Take a message of the server.

        Args:
            response: The message.
            finished: Gets the calls that it finishes, also if an error is raised.

        Raises:
            ServerError: It breaks the contract.
        """
        self.failures = 0
        self._is_draining = self._is_draining or response.draining
        for answer in response.answers:
            call = self._sent.get(answer.id)
            if call is None:
                raise ServerError(
                    f"protocol error: an answer to unknown frame {answer.id}; please report this",
                    status="INTERNAL",
                )
            self._release(call)
            call.is_journaled = True
            if answer.last:
                del self._sent[answer.id]
                if not call.is_abandoned:
                    call.take(answer)
                    finished.append(call)
            else:
                call.take_minted_id(answer)

    def abandon(self, call: Call) -> None:
        """Stop waiting for a call: it is not sent any more, and its answer is dropped."""
        call.is_abandoned = True
        self._release(call)
        queue = self._saves if call.payload.kind.saves else self._loads
        if call in queue:
            queue.remove(call)

    def end(self, failure: TuskPointError, now_s: float, *, renewed: bool = False) -> list[Call]:
        """Take the end of the stream; return the calls that end with it.

        All others wait for the next stream, those that were sent first and in their order. A save
        without an ID is not sent again unless the server says that it was not begun, because
        nobody knows whether it was stored.

        Args:
            failure: How the stream ended.
            now_s: The time.
            renewed: Whether what the server refused, such as a token, was replaced.
        """
        self.failures += 1
        calls, sent = self.calls, {*self._sent.values()}
        self.clear()
        # What was not sent is the concern of a failure that nothing was sent before, or that
        # waiting helps against. Nothing of it is stored.
        concerned = not sent or failure.status in ("UNAVAILABLE", "CANCELLED")
        failed = []
        for call in calls:
            if renewed and (call.tried.is_safe or call not in sent):
                is_over = False
            elif call in sent:
                is_over = call.is_over(failure, failure.reason, now_s)
            else:
                is_over = concerned and call.is_over(failure, "DRAINING", now_s)
            if is_over:
                call.fail(failure)
                failed.append(call)
            else:
                call.message = None
                self.push(call)
        return failed

    def clear(self) -> None:
        """Forget all calls."""
        self._saves.clear()
        self._loads.clear()
        self._sent = {}
        self._messages = self._frames = self._bytes = 0
        self._is_draining = False

    def _release(self, call: Call) -> None:
        """Let a call that was sent hold nothing up any more."""
        message, call.message = call.message, None
        if message is None:
            return
        self._frames -= 1
        self._bytes -= call.payload.size
        if call.payload.kind.saves:
            message.saves -= 1
            self._messages -= message.saves == 0


class Lanes:
    """The two streams of a client, and the calls of one that wait for the other."""

    def __init__(self) -> None:
        self.small = Lane()
        self.large = Lane()
        self._parked: list[Call] = []
        self._calls = 0

    def lane_of(self, call: Call) -> Lane:
        """Return the lane that a call goes over."""
        payload = call.payload
        is_large = payload.chunks is not None or payload.size > LARGE_BYTES
        return self.large if is_large else self.small

    def add(self, call: Call) -> None:
        """Take a new call.

        A save waits while its thread has an earlier one on the other lane that is not journaled.
        """
        self._calls += 1
        call.number = self._calls
        lane = self.lane_of(call)
        if call.payload.kind.saves and self._must_wait(call, lane, self._parked):
            self._parked.append(call)
        else:
            lane.push(call)

    def abandon(self, call: Call) -> None:
        """Stop waiting for a call."""
        if call in self._parked:
            self._parked.remove(call)
        self.lane_of(call).abandon(call)

    def unpark(self) -> bool:
        """Move the saves that need not wait any more; return whether there were any."""
        if not self._parked:
            return False
        parked, self._parked = self._parked, []
        for call in parked:
            lane = self.lane_of(call)
            if self._must_wait(call, lane, self._parked):
                self._parked.append(call)
            else:
                lane.push(call)
        return len(self._parked) < len(parked)

    def clear(self) -> list[Call]:
        """Forget all calls; return those whose callers wait."""
        calls = [*self.small.calls, *self.large.calls, *self._parked]
        self.small.clear()
        self.large.clear()
        self._parked = []
        return calls

    def _must_wait(self, call: Call, lane: Lane, parked: Sequence[Call]) -> bool:
        if any(parked_call.thread_id == call.thread_id for parked_call in parked):
            return True
        other = self.small if lane is self.large else self.large
        return other.has_saves and other.has_save_of(call.thread_id)
