"""Order of calls on `Exchange` streams: next, again after a break, or not at all. Pure.

Calls wait in a lane, which has one stream at a time. Large calls have a separate lane, so that
small saves never queue behind them. The module has no clock and is not thread-safe.
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
"""Size above which a payload goes over the second stream."""

UNANSWERED_FRAMES = 256
UNANSWERED_BYTES = 32 * 1024 * 1024


class Call:
    """An unfinished call, and its result.

    Args:
        payload: Payload of the call.
        request: Message from which the payload was built.
        tried: Attempts of the call.

    Attributes:
        answer: Result of the call; `None` before its end.
        error: Error of the call, if the call failed.
        waiter: Object on which the caller waits; belongs to the driver.
        loop: Event loop of the caller, `None` for a waiting thread; belongs to the driver.
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
        """Thread that the call changes or reads."""
        if isinstance(self.request, SaveCheckpointRequest):
            return self.request.checkpoint.ref.thread_id
        return self.request.ref.thread_id

    def renewed(self, traceparent: str) -> Call:
        """Return the call itself, reset for a first attempt.

        Args:
            traceparent: Context of the caller's trace; empty for no trace.
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
        """Store the result of the last answer."""
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
        """Give a journaled save its minted ID, so that a repeated send saves nothing twice."""
        request = self.request
        if isinstance(request, SaveCheckpointRequest) and not request.checkpoint.ref.checkpoint_id:
            self.request = SaveCheckpointRequest()
            self.request.CopyFrom(request)
            self.request.checkpoint.ref.CopyFrom(answer.saved.ref)
            self.payload = payload_of(self.request)
            self.tried.repeat = Repeat.SAFE

    def fail(self, failure: TuskPointError) -> None:
        """Store a failure that other calls share. Each caller raises a separate error."""
        self.error = copy.copy(failure)
        self.error.__cause__ = failure.__cause__

    def is_over(self, failure: TuskPointError, reason: str, now_s: float) -> bool:
        """Return whether the call ends together with its stream."""
        if isinstance(failure, TlsMismatch):
            return True
        pause_s = self.tried.delay_s(
            now_s, failure.status, reason, failure.retry_after_s, random.random
        )
        return pause_s is None


class _Message:
    """A sent message, with the number of its saves that have no answer."""

    __slots__ = ("saves",)

    def __init__(self, saves: int) -> None:
        self.saves = saves


class Lane:
    """Calls of one stream: waiting calls, and sent calls without an answer."""

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
        """Calls whose callers wait, sent calls first."""
        sent = [call for call in self._sent.values() if not call.is_abandoned]
        return [*sent, *self._saves, *self._loads]

    @property
    def is_ready(self) -> bool:
        """Whether the next message may be sent."""
        if self._is_draining or self._frames >= UNANSWERED_FRAMES:
            return False
        return bool(self._loads or (self._saves and self._messages < MESSAGES_IN_FLIGHT))

    @property
    def may_move(self) -> bool:
        """Whether another stream may replace the current stream.

        This is so if every sent save has an answer. Then waits for certification and loads start
        again on the new stream, except the wait of a save without an ID, which is never sent twice.
        """
        return not self._messages and all(
            call.is_abandoned or call.tried.is_safe for call in self._sent.values()
        )

    @property
    def has_saves(self) -> bool:
        """Whether a save is not journaled yet."""
        return bool(self._saves or self._messages)

    def has_save_of(self, thread_id: str) -> bool:
        """Return whether a save of a thread is not journaled yet."""
        sent = (call for call in self._sent.values() if call.payload.kind.saves)
        return any(call.thread_id == thread_id for call in self._saves) or any(
            call.thread_id == thread_id and not call.is_journaled for call in sent
        )

    def push(self, call: Call) -> None:
        """Add a call to the queue for the next message."""
        (self._saves if call.payload.kind.saves else self._loads).append(call)

    def open(self) -> Hello:
        """Start the next stream; return the first frame of its first message."""
        self._attempt += 1
        self._last_id = 0
        return Hello(session=self._session, attempt=self._attempt)

    def take(self, now_s: float) -> list[NumberedCall]:
        """Return the calls for the next message, or nothing if the next message has to wait.

        All waiting calls go at once, in the order of their arrival. At most two messages may have
        saves without an answer. Loads go at any time, because a load that the server fetches from
        its blob store must not delay saves.
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
        """Process a message of the server.

        Args:
            response: The message.
            finished: List to which the finished calls are added, even if an error is raised.

        Raises:
            ServerError: The message breaks the contract.
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
        """Stop waiting for a call: it is no longer sent, and its answer is dropped."""
        call.is_abandoned = True
        self._release(call)
        queue = self._saves if call.payload.kind.saves else self._loads
        if call in queue:
            queue.remove(call)

    def end(self, failure: TuskPointError, now_s: float, *, renewed: bool = False) -> list[Call]:
        """Process the end of the stream; return the calls that end with it.

        All other calls wait for the next stream, sent calls first and in their order. A save
        without an ID is not sent again unless the server says that it did not start the save,
        because otherwise nobody knows whether the save was stored.

        Args:
            failure: Error with which the stream ended.
            now_s: Time of the end, in seconds.
            renewed: Whether the refused credential was replaced.
        """
        self.failures += 1
        calls, sent = self.calls, {*self._sent.values()}
        self.clear()
        # A failure concerns unsent calls only if nothing was sent before it, or if waiting helps
        # against it. No unsent call is stored.
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
        """Stop counting a call that was sent, so that it no longer delays others."""
        message, call.message = call.message, None
        if message is None:
            return
        self._frames -= 1
        self._bytes -= call.payload.size
        if call.payload.kind.saves:
            message.saves -= 1
            self._messages -= message.saves == 0


class Lanes:
    """The two streams of a client, and the calls of one stream that wait for the other."""

    def __init__(self) -> None:
        self.small = Lane()
        self.large = Lane()
        self._parked: list[Call] = []
        self._calls = 0

    def lane_of(self, call: Call) -> Lane:
        """Return the lane of a call."""
        payload = call.payload
        is_large = payload.chunks is not None or payload.size > LARGE_BYTES
        return self.large if is_large else self.small

    def add(self, call: Call) -> None:
        """Take a new call.

        A save waits while the other lane has an earlier save of the same thread that is not
        journaled.
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
        """Move the parked saves that can be sent; return whether there were such saves."""
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
