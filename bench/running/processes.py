"""Agents in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from bench.agents import Agent, Saver
from bench.running.contenders import Contender

PROCESSES, PER_PROCESS = 8, 4
_STOP_SECONDS = 30.0


class Processes:
    """Processes that have every checkpointer open and work with one of them when asked to."""

    def __init__(self, field: Sequence[Contender]) -> None:
        self._field = [replace(contender, pool=PER_PROCESS) for contender in field]
        self._running: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def __enter__(self) -> Self:
        # Forked from a process that has imported what they need, and has opened nothing.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["bench.running.processes"])
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(theirs, self._field, number), daemon=True)
            process.start()
            theirs.close()
            self._running.append((process, ours))
        for _, connection in self._running:
            connection.recv()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process, connection in self._running:
            connection.close()
            process.join(_STOP_SECONDS)

    def rate(self, place: int, name: str, seconds: float) -> float:
        """Let all work with the checkpointer of this place; return their steps per second."""
        for _, connection in self._running:
            connection.send((place, name, seconds))
        rate = 0.0
        for _, connection in self._running:
            steps, worked_seconds = connection.recv()
            rate += steps / worked_seconds
        return rate


def _run(connection: Connection, field: Sequence[Contender], number: int) -> None:
    asyncio.run(_serve(connection, field, number))


async def _serve(connection: Connection, field: Sequence[Contender], number: int) -> None:
    async with AsyncExitStack() as stack:
        savers = [await stack.enter_async_context(contender.opened()) for contender in field]
        connection.send("ready")
        while True:
            try:
                place, name, seconds = await asyncio.to_thread(connection.recv)
            except EOFError:
                return
            connection.send(await _work(savers[place], f"{name}-{number}", seconds))


async def _work(saver: Saver, name: str, seconds: float) -> tuple[int, float]:
    """Return the steps of the agents of this process, and the seconds they took."""
    began = time.perf_counter()

    async def steps_of(agent: Agent) -> int:
        steps = 0
        while time.perf_counter() < began + seconds:
            await agent.step()
            steps += 1
        return steps

    agents = [Agent(saver, f"{name}-{index}") for index in range(PER_PROCESS)]
    steps = await asyncio.gather(*map(steps_of, agents))
    return sum(steps), time.perf_counter() - began
