"""Agents in processes of their own, which report their costs."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from types import TracebackType
from typing import Self

from bench.agents import Agent, Saver, StepTimes
from bench.running.contenders import Contender
from bench.usage.memory import peak_bytes, resident_bytes

_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a process's agents.

    Attributes:
        name: Prefix of their names.
        agents: Number of agents.
        seconds: Duration of the work.
        blocks: Whether each agent works in a thread of its own, with blocking methods.
        pause: Seconds that an agent sleeps between two steps, on average.
    """

    name: str
    agents: int
    seconds: float
    blocks: bool = False
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of agents, and their process's costs.

    Attributes:
        steps: The times of each step.
        seconds: Duration of the work.
        processor: Seconds of processor time that the process used.
        resident: Bytes of its resident memory at the end.
        peak: Its peak of resident memory in bytes.
    """

    steps: list[StepTimes]
    seconds: float
    processor: float
    resident: int
    peak: int

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps) / self.seconds


class Workers:
    """Processes with open checkpointers, in which agents work on request.

    Args:
        field: The checkpointers.
        count: Number of processes.
        blocking: Whether the checkpointers are opened for blocking methods.
        shares_pages: Whether the processes are forked from one that has imported everything, which
            is faster; the memory that they share is then counted for each.
    """

    def __init__(
        self,
        field: Sequence[Contender],
        count: int = 1,
        *,
        blocking: bool = False,
        shares_pages: bool = False,
    ) -> None:
        self._field = field
        self._count = count
        self._blocking = blocking
        self._shares_pages = shares_pages
        self._running: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def __enter__(self) -> Self:
        context: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
        if self._shares_pages:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["bench.running.workers"])
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_run, args=(theirs, self._field, self._blocking), daemon=True
            )
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

    async def work(self, work: Work, place: int = 0) -> list[Outcome]:
        """Let all processes work at once with the checkpointer at an index.

        Raises:
            RuntimeError: An agent failed.
        """
        return await asyncio.to_thread(self._work, work, place)

    def _work(self, work: Work, place: int) -> list[Outcome]:
        for _, connection in self._running:
            connection.send((work, place))
        answers = [connection.recv() for _, connection in self._running]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def _run(connection: Connection, field: Sequence[Contender], blocking: bool) -> None:
    asyncio.run(_serve(connection, field, blocking))


async def _serve(connection: Connection, field: Sequence[Contender], blocking: bool) -> None:
    async with AsyncExitStack() as stack:
        savers: list[list[Saver]] = []
        for contender in field:
            if blocking:
                savers.append(stack.enter_context(contender.opened_all_blocking()))
            else:
                savers.append(await stack.enter_async_context(contender.opened_all()))
        connection.send("ready")
        for turn in itertools.count():
            try:
                work, place = await asyncio.to_thread(connection.recv)
            except EOFError:
                return
            name = f"{work.name}-{os.getpid()}-{turn}-{secrets.token_hex(3)}"
            try:
                connection.send(await _outcome(savers[place], work, name))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                connection.send(RuntimeError(f"{field[place].label}: {error!r}"))


async def _outcome(savers: Sequence[Saver], work: Work, name: str) -> Outcome:
    agents = [Agent(savers[index % len(savers)], f"{name}-{index}") for index in range(work.agents)]
    processor, began = time.process_time(), time.perf_counter()
    if work.blocks:
        every = await asyncio.to_thread(_in_threads, agents, began + work.seconds)
    elif work.pause:
        every = await _each(agents, lambda agent: _paced(agent, work, began + work.seconds))
    else:
        every = await _each(agents, lambda agent: _steps(agent, began + work.seconds))
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    steps = [step for steps in every for step in steps]
    return Outcome(steps, seconds, processor, resident_bytes(), peak_bytes())


async def _each(
    agents: Sequence[Agent], run: Callable[[Agent], Awaitable[list[StepTimes]]]
) -> list[list[StepTimes]]:
    return await asyncio.gather(*map(run, agents))


async def _steps(agent: Agent, end: float) -> list[StepTimes]:
    steps = []
    while time.perf_counter() < end:
        steps.append(await agent.step())
    return steps


async def _paced(agent: Agent, work: Work, end: float) -> list[StepTimes]:
    """Step after pauses of `work.pause` on average, half to one and a half times as long."""
    steps = []
    pause = random.uniform(0, work.pause)  # so that agents do not start at the same moment
    while time.perf_counter() + pause < end:
        await asyncio.sleep(pause)
        steps.append(await agent.step())
        pause = work.pause * random.uniform(0.5, 1.5)
    return steps


def _in_threads(agents: Sequence[Agent], end: float) -> list[list[StepTimes]]:
    def run(agent: Agent) -> list[StepTimes]:
        steps = []
        while time.perf_counter() < end:
            steps.append(agent.blocking_step())
        return steps

    with ThreadPoolExecutor(len(agents)) as pool:
        return list(pool.map(run, agents))
