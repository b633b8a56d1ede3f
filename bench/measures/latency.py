"""Time of one agent's step: `aput` and `aput_writes`."""

from __future__ import annotations

import statistics
import time

from bench.agents import Agent
from bench.contenders import TUSKPOINT, contenders
from bench.report import Table, number, ratio
from bench.setting import Setting

TITLE = "Time of one agent's save (aput + aput_writes)"


async def measure(setting: Setting) -> Table:
    """Let one agent of every checkpointer save in turn, in short stretches."""
    stretches, saves = (6, 20) if setting.quick else (20, 40)
    async with contenders(setting) as field:
        agents = {contender.name: Agent(contender.saver, "latency") for contender in field}
        times: dict[str, list[float]] = {name: [] for name in agents}
        for stretch in range(stretches):
            for name, agent in agents.items():
                taken = [await _timed_save(agent) for _ in range(saves)]
                if stretch:  # the first stretch warms up
                    times[name] += taken
    cuts = {name: statistics.quantiles(taken, n=100) for name, taken in times.items()}
    rows = []
    for name, cut in cuts.items():
        relation = "" if name == TUSKPOINT else ratio(cuts[TUSKPOINT][49], cut[49])
        rows.append([name, number(cut[49] * 1e3), number(cut[98] * 1e3), relation])
    notes = [
        f"{(stretches - 1) * saves} saves each, by one agent alone, in alternating stretches of "
        f"{saves}. The last column is TuskPoint's p50 as a multiple of the other's."
    ]
    header = ("checkpointer", "p50 ms", "p99 ms", "TuskPoint takes")
    return Table(TITLE, header, rows, [*notes, *filter(None, [setting.left_out])])


async def _timed_save(agent: Agent) -> float:
    began = time.perf_counter()
    await agent.save()
    return time.perf_counter() - began
