"""Reading a thread's whole history: our replay against a peer's listing."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from bench.agents import Agent, Saver
from bench.report import Table, at_least, number, ratio
from bench.running.contenders import POSTGRES, TUSKPOINT, contenders
from bench.setting import Setting
from tuskpoint import TuskPointSaver

TITLE = "Time to read every checkpoint of a thread (areplay compared with alist)"
_MESSAGES = 11


async def measure(setting: Setting) -> Table:
    """Store the same thread with every checkpointer, and read it in turn."""
    count, rounds = (300, 2) if setting.quick else (3_000, 2)
    async with contenders(setting) as field, AsyncExitStack() as stack:
        savers = {
            contender.name: await stack.enter_async_context(contender.opened())
            for contender in field
        }
        threads = {name: await fill(saver, count) for name, saver in savers.items()}
        durations: dict[str, list[float]] = {name: [] for name in savers}
        for _ in range(rounds):
            for name, saver in savers.items():
                durations[name].append(await read(saver, threads[name], count))
    ours = statistics.median(durations[TUSKPOINT])
    rows = []
    for name, seconds_of in durations.items():
        median = statistics.median(seconds_of)
        relation = "" if name == TUSKPOINT else ratio(median, ours)
        rows.append([name, number(median), number(count / median), relation])
    notes = [
        f"Median of {rounds} readings of one thread of {count:,} checkpoints, in turn. Each "
        f"checkpoint has {_MESSAGES} short messages, 1 KiB of text and its writes. Everything is "
        "decoded. A replay returns the oldest checkpoint first, a listing the newest."
    ]
    goals = [
        at_least(
            f"replay, checkpoints per second, compared with {POSTGRES}'s listing",
            median / ours,
            6.0,
        )
        for median in [statistics.median(durations.get(POSTGRES, [0.0]))]
        if median
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])], goals)


_HEADER = ("checkpointer", "seconds", "checkpoints/s", "TuskPoint / peer")


async def fill(saver: Saver, count: int) -> str:
    """Save a thread with a number of checkpoints; return its name."""
    # The measures share one PostgreSQL.
    agent = Agent(saver, f"history-{secrets.token_hex(4)}", steps_per_thread=0, window=_MESSAGES)
    for _ in range(count):
        await agent.save()
    return agent.thread_id


async def read(saver: Saver, thread_id: str, count: int) -> float:
    """Return the seconds of reading the thread."""
    began = time.perf_counter()
    read_count = 0
    async for _ in _history(saver, thread_id):
        read_count += 1
    seconds = time.perf_counter() - began
    if read_count != count:
        raise RuntimeError(f"{type(saver).__name__} returned {read_count} of {count} checkpoints")
    return seconds


def _history(saver: Saver, thread_id: str) -> AsyncIterator[Any]:
    if isinstance(saver, TuskPointSaver):
        return saver.areplay(thread_id)
    return saver.alist({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
