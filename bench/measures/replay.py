"""Reading a thread's whole history: our replay against a peer's listing."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.agents import Agent
from bench.contenders import TUSKPOINT, Contender, contenders
from bench.report import Table, number, ratio
from bench.setting import Setting
from tuskpoint import TuskPointSaver

TITLE = "Reading every checkpoint of a thread (areplay against alist)"
_MESSAGES = 8


async def measure(setting: Setting) -> Table:
    """Let every checkpointer hold the same thread, and read it in turn."""
    count, rounds = (500, 3) if setting.quick else (10_000, 3)
    async with contenders(setting) as field:
        threads = {contender.name: await _fill(contender, count) for contender in field}
        taken: dict[str, list[float]] = {contender.name: [] for contender in field}
        for _ in range(rounds):
            for contender in field:
                seconds = await _read(contender, threads[contender.name], count)
                taken[contender.name].append(seconds)
    ours = statistics.median(taken[TUSKPOINT])
    rows = []
    for name, seconds_of in taken.items():
        median = statistics.median(seconds_of)
        relation = "" if name == TUSKPOINT else ratio(median, ours)
        rows.append([name, number(median), number(count / median), relation])
    notes = [
        f"Median of {rounds} readings of one thread of {count:,} checkpoints, taken in turn; each "
        f"has six channels, one of them a list of {_MESSAGES} messages of 1 KiB, and its writes. "
        "Everything is decoded. A replay comes oldest first, a listing newest first."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


_HEADER = ("checkpointer", "seconds", "checkpoints/s", "TuskPoint is")


async def _fill(contender: Contender, count: int) -> str:
    """Save a thread of so many checkpoints; return its name."""
    agent = Agent(contender.saver, "history", steps_per_thread=0, window=_MESSAGES)
    for _ in range(count):
        await agent.save()
    return agent.thread_id


async def _read(contender: Contender, thread_id: str, count: int) -> float:
    """Return the seconds that reading the thread takes."""
    began = time.perf_counter()
    found = 0
    async for _ in _history(contender, thread_id):
        found += 1
    taken = time.perf_counter() - began
    if found != count:
        raise RuntimeError(f"{contender.name} returned {found} of {count} checkpoints")
    return taken


def _history(contender: Contender, thread_id: str) -> AsyncIterator[Any]:
    saver = contender.saver
    if isinstance(saver, TuskPointSaver):
        return saver.areplay(thread_id)
    return saver.alist({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
