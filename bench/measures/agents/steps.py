"""Agent steps per second, their cost in the agents' processes, and the time of a save."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from bench.agents import Agent, Saver, StepTimes
from bench.report import Chart, Goal, Table, at_least, at_most, number, percentile, ratio
from bench.running.contenders import (
    POSTGRES,
    SQLITE,
    TUSKPOINT,
    Contender,
    contenders,
    tuned,
)
from bench.running.workers import Outcome, Work, Workers
from bench.setting import Setting

TITLE = "Agent steps per second (put + put_writes + get_tuple)"
PROCESSES, PER_PROCESS = 8, 4
_MANY = 32
_HEADER = (
    "agents, checkpointer",
    "steps/s",
    "lowest",
    "highest",
    "agents' CPU µs",
    "agents' memory MB",
    "peak MB",
    "save p50 ms",
    "TuskPoint / peer",
)
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
    processor: float = 0.0
    resident: int = 0
    peak: int = 0

    def add(self, steps: list[StepTimes], seconds: float) -> None:
        """Add a round: the times of each step, and the round's."""
        self.rates.append(len(steps) / seconds)
        self.steps += steps

    def add_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Add a round of one or more processes."""
        self.rates.append(sum(outcome.rate for outcome in outcomes))
        for outcome in outcomes:
            self.steps += outcome.steps
            self.processor += outcome.processor
        self.resident = sum(outcome.resident for outcome in outcomes)
        self.peak = sum(outcome.peak for outcome in outcomes)

    @property
    def rate(self) -> float:
        """Median of the steps per second."""
        return statistics.median(self.rates)

    @property
    def save(self) -> float:
        """Median of the seconds of a save."""
        return percentile((step.save for step in self.steps), 0.5) if self.steps else 0.0

    @property
    def processor_us(self) -> float:
        """Microseconds of processor time of the agents' processes for a step."""
        return self.processor / len(self.steps) * 1e6


Scenarios = Mapping[str, Mapping[str, Measured]]
"""Measurements by scenario and by the checkpointer's label."""


async def measure(setting: Setting) -> Table:
    """Let every checkpointer work in every scenario in turn, several rounds."""
    rounds, seconds = (2, 0.3) if setting.quick else (4, 1.0)
    async with contenders(setting) as defaults:
        here = tuned(defaults)
        measured = {
            scenario: {contender.label: Measured() for contender in here}
            for scenario in (_ASYNC_1, _ASYNC_MANY, _BLOCKING_1, _BLOCKING_MANY, _APART)
        }
        with ExitStack() as stack:
            # Each checkpointer has a process, so that the process's memory shows what it takes.
            lone = [stack.enter_context(Workers([contender])) for contender in here]
            blocking = [
                stack.enter_context(Workers([contender], blocking=True)) for contender in here
            ]
            small = [_with_few_connections(contender) for contender in here]
            many = stack.enter_context(Workers(small, PROCESSES, shares_pages=True))
            for turn in range(-1, rounds):  # round -1 warms up
                length = seconds if turn >= 0 else 0.2
                for place, contender in enumerate(here):
                    done = {
                        _ASYNC_1: await lone[place].work(Work("a", 1, length)),
                        _ASYNC_MANY: await lone[place].work(Work("b", _MANY, length)),
                        _BLOCKING_1: await blocking[place].work(Work("c", 1, length, blocks=True)),
                        _BLOCKING_MANY: await blocking[place].work(
                            Work("d", _MANY, length, blocks=True)
                        ),
                        _APART: await many.work(Work("e", PER_PROCESS, length), place),
                    }
                    if turn >= 0:
                        for scenario, outcomes in done.items():
                            measured[scenario][contender.label].add_outcomes(outcomes)
    return _table(setting, here, measured, rounds, seconds)


def _with_few_connections(contender: Contender) -> Contender:
    """Return a checkpointer for one of several processes: a connection for each agent."""
    return replace(
        contender,
        pool=min(contender.pool, PER_PROCESS),
        savers=min(contender.savers, PER_PROCESS),
    )


def _table(
    setting: Setting,
    here: Sequence[Contender],
    measured: Scenarios,
    rounds: int,
    seconds: float,
) -> Table:
    rows = [
        _row(scenario, label, measurement, by_label[TUSKPOINT])
        for scenario, by_label in measured.items()
        for label, measurement in by_label.items()
    ]
    best = [contender.label for contender in here if contender.setting]
    notes = [
        f"Medians of {rounds} rounds of {seconds} s; in each round the checkpointers run in turn. "
        "Lowest and highest are the slowest and the fastest round. A save is `put` and "
        "`put_writes`; a step is a save and `get_tuple`. The checkpoints are those that "
        "LangGraph writes for a graph of two nodes, in version 4: in a thread of 20 steps, "
        "`messages` grows to 20 short messages, and every second step replaces 1 KiB of text. "
        "TuskPoint's server is a separate process with archive and index. SQLite runs inside the "
        "agents' process on one file, by default with synchronous=FULL. PostgreSQL has its "
        "default durability and a pool of 16 connections, or of 4 in each of several processes. "
        f"The best configurations of `peer-settings` are also measured: {'; '.join(best)}. "
        "Agents' CPU is the processor time of the agents' processes for a step, with the agents' "
        "own work. Memory is the resident memory of the agents' process at the end; peak is its "
        "highest value."
    ]
    chart = Chart(
        "steps",
        "Agent steps per second: more is better",
        [
            (name, {label: measurement.rate for label, measurement in by_label.items()})
            for name, by_label in measured.items()
        ],
    )
    notes += filter(None, [setting.left_out])
    return Table(TITLE, _HEADER, rows, notes, _goals(here, measured), chart)


def _row(scenario: str, label: str, measurement: Measured, ours: Measured) -> list[str]:
    shares_pages = scenario == _APART
    is_alone = scenario in (_ASYNC_1, _BLOCKING_1)
    rates = (measurement.rate, min(measurement.rates), max(measurement.rates))
    return [
        f"{scenario}, {label}",
        *map(number, rates),
        number(measurement.processor_us),
        "" if shares_pages else number(measurement.resident / 1e6),
        "" if shares_pages else number(measurement.peak / 1e6),
        number(measurement.save * 1e3) if is_alone else "",
        "" if measurement is ours else ratio(ours.rate, measurement.rate),
    ]


def _goals(here: Sequence[Contender], measured: Scenarios) -> list[Goal]:
    """Return the goals, against the peers in their default configuration."""
    peers = [contender.label for contender in here[1:] if not contender.setting]
    goals = [
        at_least(
            f"steps per second, {scenario}, compared with {peer}",
            measured[scenario][TUSKPOINT].rate / measured[scenario][peer].rate,
            bounds[peer],
        )
        for scenario, bounds in _RATES.items()
        for peer in peers
    ]
    one_agent = measured[_ASYNC_1]
    goals += [
        at_most(
            f"p50 of one agent's save, async, compared with {peer}",
            one_agent[TUSKPOINT].save / one_agent[peer].save,
            _SAVES[peer],
        )
        for peer in peers
    ]
    return goals


async def work_round(
    savers: Sequence[Saver], name: str, count: int, seconds: float
) -> tuple[list[StepTimes], float]:
    """Run agents concurrently in this process, and distribute the agents over savers.

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
