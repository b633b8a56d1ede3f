"""Times of each call of an agent, and of the slowest calls."""

from __future__ import annotations

from contextlib import ExitStack

from bench.agents import StepTimes
from bench.report import Table, number, percentile
from bench.running.contenders import contenders, tuned
from bench.running.workers import Work, Workers
from bench.setting import Setting

TITLE = "Time of put, put_writes and get_tuple"
_MANY = 32
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_LOADS = {"1 agent": 1, f"{_MANY} agents": _MANY}
_HEADER = ("call, checkpointer", *(f"{load} {name} ms" for load in _LOADS for name in _SHARES))
_CALLS = StepTimes._fields


async def measure(setting: Setting) -> Table:
    """Let agents work with every checkpointer in turn, several rounds."""
    rounds, seconds = (2, 0.5) if setting.quick else (6, 1.5)
    async with contenders(setting) as defaults:
        here = tuned(defaults)
        steps: dict[tuple[str, str], list[StepTimes]] = {}
        with ExitStack() as stack:
            workers = [stack.enter_context(Workers([contender])) for contender in here]
            for turn in range(-1, rounds):  # round -1 warms up
                for process, contender in zip(workers, here, strict=True):
                    for load, agents in _LOADS.items():
                        (outcome,) = await process.work(Work("latency", agents, seconds))
                        if turn >= 0:
                            steps.setdefault((contender.label, load), []).extend(outcome.steps)
    rows = [
        [f"{call}, {contender.label}", *_cells(contender.label, call, steps)]
        for call in _CALLS
        for contender in here
    ]
    fewest = {load: min(len(steps[contender.label, load]) for contender in here) for load in _LOADS}
    notes = [
        f"{rounds} rounds of {seconds} s, async. The checkpointers run in turn, and the agents of "
        "each checkpointer have a process of their own. Steps, checkpoints and configurations "
        "equal `steps`. Each call was timed at least "
        f"{' and '.join((f'{count:,} ({load})' for load, count in fewest.items()))} times. A "
        "p99.9 of fewer than 1,000 calls is the slowest call."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


def _cells(label: str, call: str, steps: dict[tuple[str, str], list[StepTimes]]) -> list[str]:
    place = _CALLS.index(call)
    return [
        number(percentile((step[place] for step in steps[label, load]), share) * 1e3)
        for load in _LOADS
        for share in _SHARES.values()
    ]
