"""Agent steps per second, and the time of one agent's save."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.agents import Agent, Saver, StepTimes
from bench.report import Chart, Goal, Table, at_least, at_most, number, ratio
from bench.running.contenders import POSTGRES, SQLITE, TUSKPOINT, Contender, contenders
from bench.running.processes import PER_PROCESS, PROCESSES, Processes
from bench.setting import Setting

TITLE = "Agent steps per second (put + put_writes + get_tuple)"
_MANY = 32
_HEADER = ("agents, checkpointer", "steps/s", "lowest", "highest", "save p50 ms", "TuskPoint is")
_ASYNC_1, _ASYNC_MANY = "1 agent, async", f"{_MANY} agents, async"
_BLOCKING_1, _BLOCKING_MANY = "1 thread, sync", f"{_MANY} threads, sync"
_APART = f"{PROCESSES} processes of {PER_PROCESS} agents, async"
_RATES = {
    # Scenario: the least ratio of our steps per second to SQLite's, and to PostgreSQL's.
    _ASYNC_MANY: {SQLITE: 2.5, POSTGRES: 3.5},
    _BLOCKING_MANY: {SQLITE: 1.0, POSTGRES: 2.5},
    _APART: {SQLITE: 2.0, POSTGRES: 2.5},
}
_SAVES = {SQLITE: 1.5, POSTGRES: 0.85}
"""The greatest ratio of the p50 of one agent's save, async, to a peer's."""


@dataclass
class Measured:
    """Rounds of one checkpointer in one scenario."""

    rates: list[float] = field(default_factory=list)
    steps: list[StepTimes] = field(default_factory=list)

    def add(self, steps: list[StepTimes], seconds: float) -> None:
        """Add a round: the times of each step, and the round's."""
        self.rates.append(len(steps) / seconds)
        self.steps += steps

    @property
    def rate(self) -> float:
        """Median of the steps per second."""
        return statistics.median(self.rates)

    @property
    def save(self) -> float:
        """Median of the seconds of a save."""
        return statistics.median(step.save for step in self.steps) if self.steps else 0.0


async def measure(setting: Setting) -> Table:
    """Let every checkpointer work in every scenario in turn, several rounds."""
    rounds, seconds = (2, 0.3) if setting.quick else (4, 1.2)
    scenarios = (_ASYNC_1, _ASYNC_MANY, _BLOCKING_1, _BLOCKING_MANY, _APART)
    async with contenders(setting) as here, AsyncExitStack() as stack:
        measured = {name: {contender.name: Measured() for contender in here} for name in scenarios}
        savers = [await stack.enter_async_context(contender.opened()) for contender in here]
        blocking = [stack.enter_context(contender.opened_blocking()) for contender in here]
        processes = stack.enter_context(Processes(here))
        for turn in range(-1, rounds):  # round -1 warms up
            for place, contender in enumerate(here):
                name = f"r{turn}-{contender.name}"
                length = seconds if turn >= 0 else 0.2
                done = {
                    _ASYNC_1: await work_round([savers[place]], f"{name}-a", 1, length),
                    _ASYNC_MANY: await work_round([savers[place]], f"{name}-b", _MANY, length),
                    _BLOCKING_1: await _in_threads(blocking[place], f"{name}-c", 1, length),
                    _BLOCKING_MANY: await _in_threads(blocking[place], f"{name}-d", _MANY, length),
                }
                rate = await asyncio.to_thread(processes.rate, place, f"{name}-e", length)
                if turn >= 0:
                    for scenario, (steps, round_seconds) in done.items():
                        measured[scenario][contender.name].add(steps, round_seconds)
                    measured[_APART][contender.name].rates.append(rate)
    return _table(setting, here, measured, rounds, seconds)


def _table(
    setting: Setting,
    here: list[Contender],
    measured: dict[str, dict[str, Measured]],
    rounds: int,
    seconds: float,
) -> Table:
    rows = []
    for scenario, by_peer in measured.items():
        for name, measurement in by_peer.items():
            rows.append(
                [
                    f"{scenario}, {name}",
                    *(
                        number(rate)
                        for rate in (
                            measurement.rate,
                            min(measurement.rates),
                            max(measurement.rates),
                        )
                    ),
                    number(measurement.save * 1e3) if scenario in (_ASYNC_1, _BLOCKING_1) else "",
                    "" if name == TUSKPOINT else ratio(by_peer[TUSKPOINT].rate, measurement.rate),
                ]
            )
    peers = [contender.name for contender in here if contender.name != TUSKPOINT]
    goals: list[Goal] = []
    for scenario, bounds in _RATES.items():
        ours = measured[scenario][TUSKPOINT].rate
        for peer in peers:
            what = f"steps per second, {scenario}, of {peer}'s"
            goals.append(at_least(what, ours / measured[scenario][peer].rate, bounds[peer]))
    one_agent = measured[_ASYNC_1]
    goals += [
        at_most(
            f"p50 of one agent's save, async, of {peer}'s",
            one_agent[TUSKPOINT].save / one_agent[peer].save,
            _SAVES[peer],
        )
        for peer in peers
    ]
    notes = [
        f"Medians of {rounds} rounds of {seconds} s, the checkpointers in turn in each; lowest and "
        "highest beside it. A save is `put` and `put_writes`, a step is a save and `get_tuple`, "
        "with the checkpoints of version 4 that LangGraph writes for a graph of two nodes: in a "
        "thread of 20 steps its `messages` grow to 20 short ones, and every second step replaces "
        "1 KiB of text. TuskPoint's server is another process, with its archive and its index at "
        "work; SQLite works inside the agents' process on one file, with the synchronous=FULL that "
        "it defaults to; PostgreSQL has its default durability and a pool of 16 connections (of 4 "
        "in each of several processes)."
    ]
    chart = Chart(
        "steps",
        "Agent steps per second: more is better",
        [
            (name, {peer: measurement.rate for peer, measurement in by_peer.items()})
            for name, by_peer in measured.items()
        ],
    )
    notes += filter(None, [setting.left_out])
    return Table(TITLE, _HEADER, rows, notes, goals, chart)


async def work_round(
    savers: Sequence[Saver], name: str, count: int, seconds: float
) -> tuple[list[StepTimes], float]:
    """Let so many agents work at once, spread over savers.

    Returns:
        The times of each step, and the seconds of the round.
    """
    agents = [Agent(savers[index % len(savers)], f"{name}-{index}") for index in range(count)]
    began = time.perf_counter()

    async def work(agent: Agent) -> list[StepTimes]:
        steps = []
        while time.perf_counter() < began + seconds:
            steps.append(await agent.step())
        return steps

    every = await asyncio.gather(*map(work, agents))
    return [step for steps in every for step in steps], time.perf_counter() - began


async def _in_threads(
    saver: Saver, name: str, count: int, seconds: float
) -> tuple[list[StepTimes], float]:
    """Do the same with the methods that block, each agent in a thread of its own."""
    agents = [Agent(saver, f"{name}-{index}") for index in range(count)]
    began = time.perf_counter()

    def work(agent: Agent) -> list[StepTimes]:
        steps = []
        while time.perf_counter() < began + seconds:
            steps.append(agent.blocking_step())
        return steps

    every = await asyncio.to_thread(_at_once, work, agents)
    return [step for steps in every for step in steps], time.perf_counter() - began


def _at_once(
    work: Callable[[Agent], list[StepTimes]], agents: list[Agent]
) -> list[list[StepTimes]]:
    with ThreadPoolExecutor(len(agents)) as pool:
        return list(pool.map(work, agents))
