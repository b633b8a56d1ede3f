"""Unsent answers of an `Exchange` stream; each message sends all that fit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...core.limits import MIB

MESSAGE_BYTES = 4 * MIB  # bytes of a message; messages of the server are smaller

FrameT = TypeVar("FrameT")


class AnswerSender(Generic[FrameT]):
    """Sends serialized answers in their order, one message at a time, without a timer.

    Args:
        write: Sends a message.
        sent: Called after each message with the frames that the message answered.

    Attributes:
        size_bytes: Bytes of unsent answers.
    """

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[object]],
        sent: Callable[[list[FrameT]], None],
    ) -> None:
        self._write = write
        self._sent = sent
        self._waiting: deque[tuple[bytes, FrameT]] = deque()
        self._news: asyncio.Future[None] | None = None  # `run` waits for it
        self.size_bytes = 0

    def put(self, data: bytes, frame: FrameT) -> None:
        """Queue an answer for the next message with enough room."""
        self._waiting.append((data, frame))
        self.size_bytes += len(data)
        self.wake()

    def wake(self) -> None:
        """Make `run` check again whether all answers are sent."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def run(self, is_done: Callable[[], bool]) -> None:
        """Send answers until all are sent and no more can follow."""
        answers = self._waiting
        while True:
            if not answers:
                if is_done():
                    return
                self._news = asyncio.get_running_loop().create_future()
                await self._news
                continue
            batch = [answers.popleft()]
            size = len(batch[0][0])
            while answers and size + len(answers[0][0]) < MESSAGE_BYTES:
                batch.append(answers.popleft())
                size += len(batch[-1][0])
            # Concatenated serialized messages are one message: repeated fields are joined.
            await self._write(b"".join([data for data, _ in batch]))
            self.size_bytes -= size
            self._sent([frame for _, frame in batch])
