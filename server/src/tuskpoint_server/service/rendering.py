"""Where JSON views are made and compared: in threads of their own.

A view takes up to seconds of processor time and a hundred MiB of memory. In the threads that
everything shares, a few readers would hold up the archive; any number at once, the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

THREADS = 2
"""Views made at once. One that takes long does not hold up all others."""

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")

_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="json-view")


async def apart(
    render: Callable[ArgumentsT, ResultT],
    *arguments: ArgumentsT.args,
    **named: ArgumentsT.kwargs,
) -> ResultT:
    """Return what a function returns, called in one of the threads for views.

    A call that is cancelled before its turn comes is not made.
    """
    return await asyncio.get_running_loop().run_in_executor(
        _POOL, lambda: render(*arguments, **named)
    )
