"""Agent steps per second: `aput`, `aput_writes`, `aget_tuple`."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench.agents import Agent
from bench.contenders import TUSKPOINT, Contender, contenders
from bench.report import Table, number, ratio
from bench.setting import Setting

TITLE = "Agent steps per second (aput + aput_writes + aget_tuple)"
_AGENTS = (1, 32)


async def measure(setting: Setting) -> Table:
    """Let every checkpointer work in turn, several rounds, and compare the medians."""
    rounds, seconds = (3, 0.5) if setting.quick else (5, 1.5)
    rows: list[list[str]] = []
    async with contenders(setting) as field:
        for count in _AGENTS:
            rates: dict[str, list[float]] = {contender.name: [] for contender in field}
            await _warm_up(field, count)
            for turn in range(rounds):
                for contender in field:
                    rate = await _one_round(contender, count, turn, seconds)
                    rates[contender.name].append(rate)
            rows += _compare(count, rates)
    notes = [
        f"Median of {rounds} rounds of {seconds} s, taken in turn; lowest and highest beside it. "
        "All agents run in one process, each on its own threads of 20 steps. TuskPoint's server is "
        "another process with its archive running; AsyncSqliteSaver works inside the agents' "
        "process on a file, with the synchronous=FULL that SQLite defaults to."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


_HEADER = ("agents, checkpointer", "steps/s", "lowest", "highest", "TuskPoint is")


async def _warm_up(field: list[Contender], count: int) -> None:
    for contender in field:
        await _one_round(contender, count, -1, 0.2)


async def _one_round(contender: Contender, count: int, turn: int, seconds: float) -> float:
    """Return the steps per second of so many agents at once."""
    agents = [Agent(contender.saver, f"r{turn}-of-{count}-{one}") for one in range(count)]
    began = time.perf_counter()
    steps = await asyncio.gather(*(_work(agent, began + seconds) for agent in agents))
    return sum(steps) / (time.perf_counter() - began)


async def _work(agent: Agent, until: float) -> int:
    steps = 0
    while time.perf_counter() < until:
        await agent.step()
        steps += 1
    return steps


def _compare(count: int, rates: dict[str, list[float]]) -> list[list[str]]:
    ours = statistics.median(rates[TUSKPOINT])
    rows = []
    for name, measured in rates.items():
        median = statistics.median(measured)
        relation = "" if name == TUSKPOINT else ratio(ours, median)
        cells = [number(median), number(min(measured)), number(max(measured)), relation]
        rows.append([f"{count:>2}, {name}", *cells])
    return rows
