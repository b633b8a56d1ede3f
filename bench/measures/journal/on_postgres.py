"""Servers with their journal in PostgreSQL, beside LangGraph's saver on the same PostgreSQL."""

from __future__ import annotations

from contextlib import AsyncExitStack

from bench.agents import Saver
from bench.measures.agents.steps import Measured, work_round
from bench.measures.reading.replay import fill, read
from bench.report import Goal, Table, at_least, at_most, number, ratio
from bench.running.contenders import POSTGRES, Contender, set_up
from bench.running.shared_journal import sharing_servers
from bench.setting import Setting
from tuskpoint import TuskPointSaver

TITLE = "Agent steps per second with the journal in PostgreSQL"
_MANY, _SERVERS = 32, 3
_HEADER = (
    "what",
    "steps/s",
    "lowest",
    "highest",
    "save p50 ms",
    f"compared with {POSTGRES}'s saver",
)
_ONE, _THREE = "TuskPoint, 1 server", f"TuskPoint, {_SERVERS} servers"


async def measure(setting: Setting) -> Table:
    """Let one server, three servers and the peer work in turn, several rounds."""
    if not setting.postgres:
        return Table(TITLE, _HEADER, [], [setting.left_out], [])
    rounds, seconds = (2, 0.5) if setting.quick else (4, 2.0)
    history = 300 if setting.quick else 2_000
    with sharing_servers(setting, _SERVERS, setting.place("blobs")) as servers:
        async with AsyncExitStack() as stack:
            ours: list[Saver] = [
                await stack.enter_async_context(TuskPointSaver(server.target)) for server in servers
            ]
            peer = await stack.enter_async_context(Contender(POSTGRES, setting.postgres).opened())
            await set_up(peer)
            here = {POSTGRES: [peer], _ONE: ours[:1], _THREE: ours}
            one_agent = {name: Measured() for name in here}
            many_agents = {name: Measured() for name in here}
            for turn in range(-1, rounds):  # round -1 warms up
                for name, savers in here.items():
                    alone = await work_round(savers[:1], f"r{turn}-{name}-1", 1, seconds / 2)
                    together = await work_round(savers, f"r{turn}-{name}", _MANY, seconds)
                    if turn >= 0:
                        one_agent[name].add(*alone)
                        many_agents[name].add(*together)
            reading_seconds = {}
            for name, saver in ((POSTGRES, peer), (_ONE, ours[0])):
                reading_seconds[name] = await read(saver, await fill(saver, history), history)
    return _table(setting, one_agent, many_agents, reading_seconds, history, rounds)


def _table(
    setting: Setting,
    one_agent: dict[str, Measured],
    many_agents: dict[str, Measured],
    reading_seconds: dict[str, float],
    history: int,
    rounds: int,
) -> Table:
    rows = []
    for agents, by_name in (("1 agent", one_agent), (f"{_MANY} agents", many_agents)):
        for name, measured in by_name.items():
            if by_name is one_agent and name == _THREE:
                continue
            rates = (measured.rate, min(measured.rates), max(measured.rates))
            saved = number(measured.save * 1e3) if by_name is one_agent else ""
            relation = "" if name == POSTGRES else ratio(measured.rate, by_name[POSTGRES].rate)
            rows.append([f"{agents}, {name}", *map(number, rates), saved, relation])
    for name, seconds in reading_seconds.items():
        relation = "" if name == POSTGRES else ratio(reading_seconds[POSTGRES], seconds)
        rows.append(
            [f"history of {history:,}, {name}", number(history / seconds), "", "", "", relation]
        )
    goals: list[Goal] = [
        at_least(
            f"journal in PostgreSQL: steps per second, {_MANY} agents, compared with {POSTGRES}",
            many_agents[_ONE].rate / many_agents[POSTGRES].rate,
            2.0,
        ),
        at_most(
            f"journal in PostgreSQL: p50 of one agent's save, compared with {POSTGRES}",
            one_agent[_ONE].save / one_agent[POSTGRES].save,
            1.2,
        ),
    ]
    notes = [
        f"Medians of {rounds} rounds, in turn, on one PostgreSQL with its default durability. The "
        f"peer has a pool of 16 connections. The {_SERVERS} servers share the machine with the "
        "agents and with PostgreSQL. A history is read whole: TuskPoint by a replay, the peer by "
        "a listing."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])], goals)
