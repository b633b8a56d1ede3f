"""Ending streams that would go on for ever, once the server drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from ..domain.errors import Reason, Refusal
from .calls import Call

T = TypeVar("T")


async def until_draining(call: Call, endless: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield what an endless generator yields, and close it with the end of the call.

    Raises:
        Refusal: `DRAINING`.
    """
    draining = asyncio.create_task(call.draining.wait())
    coming: asyncio.Task[T] | None = None
    async with aclosing(endless):
        try:
            while True:
                coming = asyncio.create_task(_next(endless))
                await asyncio.wait({coming, draining}, return_when=asyncio.FIRST_COMPLETED)
                if call.draining.is_set():
                    raise Refusal(Reason.DRAINING)
                yield coming.result()
        finally:
            # The generator can be closed only once nobody waits inside it.
            waiting = [task for task in (coming, draining) if task is not None]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def _next(endless: AsyncGenerator[T, None]) -> T:
    return await anext(endless)
