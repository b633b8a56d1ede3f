"""Time that a checkpointer adds to runs of LangGraph graphs."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from bench.agents import Saver, message
from bench.report import Chart, Goal, Table, at_most, number, ratio
from bench.running.contenders import MEMORY, POSTGRES, SQLITE, TUSKPOINT, Contender, contenders
from bench.setting import Setting

TITLE = "Cost of a LangGraph superstep over InMemorySaver"
_SUPERSTEPS = 8
_NODES = ("search", "read", "judge")
_MANY = 16
Durability = Literal["async", "sync"]
# Mode of the run, number of concurrent runs, durability.
Scenario = tuple[str, int, Durability]
_DURABILITIES: tuple[Durability, ...] = ("async", "sync")
_SCENARIOS: tuple[Scenario, ...] = tuple(
    itertools.product(("ainvoke", "invoke"), (1, _MANY), _DURABILITIES)
)
# A run of one graph is short, so a round has several.
_ROUND = tuple(scenario for scenario in _SCENARIOS for _ in range(4 if scenario[1] == 1 else 1))
# The greatest ratio of our cost to a peer's.
_GOALS: dict[Scenario, dict[str, float]] = {
    ("ainvoke", 1, "async"): {SQLITE: 0.6, POSTGRES: 0.75},
    ("ainvoke", _MANY, "async"): {SQLITE: 1 / 3, POSTGRES: 1 / 3},
    ("invoke", 1, "async"): {POSTGRES: 0.75},
    ("invoke", 1, "sync"): {POSTGRES: 0.75},
    ("invoke", _MANY, "async"): {SQLITE: 1.0, POSTGRES: 0.6},
    ("invoke", _MANY, "sync"): {SQLITE: 1.0, POSTGRES: 0.6},
}
_LEAST_COST = 1e-4
"""Least cost in seconds that counts: a peer's lower costs, and ours beside them, are noise."""


class State(TypedDict, total=False):
    """The last messages of the nodes."""

    search: dict[str, str]
    read: dict[str, str]
    judge: dict[str, str]


async def measure(setting: Setting) -> Table:
    """Run the same graph with every checkpointer in turn, in every way."""
    rounds, plan = (1, _SCENARIOS) if setting.quick else (4, _ROUND)
    costs: dict[Scenario, dict[str, list[float]]] = {}
    async with contenders(setting) as peers, AsyncExitStack() as stack:
        field = [Contender(MEMORY, ""), *peers]
        graphs = {
            contender.name: {
                "ainvoke": _graph(await stack.enter_async_context(contender.opened()), waits=True),
                "invoke": _graph(stack.enter_context(contender.opened_blocking()), waits=False),
            }
            for contender in field
        }
        for turn in range(-1, rounds):  # round -1 warms up
            for place, scenario in enumerate(plan if turn >= 0 else _SCENARIOS[::2]):
                seconds = {
                    name: await _run(graphs[name][scenario[0]], f"{turn}-{place}", scenario)
                    for name in graphs
                }
                if turn >= 0:
                    by_peer = costs.setdefault(scenario, {peer.name: [] for peer in peers})
                    for name in by_peer:
                        by_peer[name].append((seconds[name] - seconds[MEMORY]) / _SUPERSTEPS)
    medians = {
        scenario: {name: statistics.median(values) for name, values in by_peer.items()}
        for scenario, by_peer in costs.items()
    }
    return _table(setting, medians, rounds)


def _table(setting: Setting, medians: dict[Scenario, dict[str, float]], rounds: int) -> Table:
    rows, goals = [], list[Goal]()
    for scenario, costs in medians.items():
        ours = max(costs[TUSKPOINT], _LEAST_COST)
        for name, cost in costs.items():
            shown = number(cost * 1e3) if cost >= _LEAST_COST else f"under {_LEAST_COST * 1e3:g}"
            relation = ratio(ours, cost) if cost >= _LEAST_COST else "noise"
            relation = "" if name == TUSKPOINT else relation
            rows.append([f"{_named(scenario)}, {name}", shown, relation])
        goals += [
            at_most(f"cost of {_named(scenario)}, compared with {peer}", ours / costs[peer], bound)
            for peer, bound in _GOALS.get(scenario, {}).items()
            if costs.get(peer, 0) >= _LEAST_COST
        ]
    notes = [
        f"Medians of {rounds} rounds; in each round the checkpointers run in turn. A run has "
        f"{_SUPERSTEPS} supersteps of {len(_NODES)} parallel nodes, and each node returns a "
        "message of 1 KiB. The cost is the time of a run minus the time of the same run with "
        f"InMemorySaver in the same round, divided by the number of supersteps. {_MANY} graphs "
        f"run on one event loop, or in {_MANY} threads."
    ]
    chart = Chart(
        "graphs",
        "Cost of a superstep over InMemorySaver, ms: less is better",
        [
            (_named(scenario), {name: cost * 1e3 for name, cost in costs.items()})
            for scenario, costs in medians.items()
        ],
    )
    header = ("run, checkpointer", "ms per superstep", "TuskPoint / peer")
    notes += filter(None, [setting.left_out])
    return Table(TITLE, header, rows, notes, goals, chart)


def _named(scenario: Scenario) -> str:
    method, count, durability = scenario
    graphs = "1 graph" if count == 1 else f"{count} graphs"
    return f"{method}, {graphs}, durability {durability}"


def _graph(saver: Saver, *, waits: bool) -> Any:
    """Return a graph whose supersteps run the same nodes in parallel."""
    builder: Any = StateGraph(State)
    for level, node in itertools.product(range(_SUPERSTEPS), _NODES):
        builder.add_node(f"{node}-{level}", _node(node, waits=waits))
        builder.add_edge(f"{node}-{level - 1}" if level else START, f"{node}-{level}")
        if level == _SUPERSTEPS - 1:
            builder.add_edge(f"{node}-{level}", END)
    return builder.compile(checkpointer=saver)


def _node(name: str, *, waits: bool) -> Callable[[State], Any]:
    source = random.Random(name)

    def said(state: State) -> dict[str, Any]:
        return {name: message(source)}

    async def said_at_last(state: State) -> dict[str, Any]:
        return said(state)

    return said_at_last if waits else said


async def _run(graph: Any, name: str, scenario: Scenario) -> float:
    """Return the seconds of a scenario's concurrent runs."""
    method, count, durability = scenario
    runs: list[Any] = [
        ({"search": {}}, {"configurable": {"thread_id": f"{name}-{n}"}}) for n in range(count)
    ]
    began = time.perf_counter()
    if method == "ainvoke":
        await asyncio.gather(*(graph.ainvoke(*run, durability=durability) for run in runs))
    else:
        await asyncio.to_thread(
            _at_once, lambda run: graph.invoke(*run, durability=durability), runs
        )
    return time.perf_counter() - began


def _at_once(work: Callable[[Any], Any], runs: list[Any]) -> None:
    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(work, runs))
