"""Agents with a delayed network between them and their checkpointers."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from bench.report import Table, number, percentile, ratio
from bench.running.contenders import POSTGRES, SQLITE, TUSKPOINT, Contender, set_up, tuned
from bench.running.network import delayed
from bench.running.postgres import LeftOutError, running_cluster
from bench.running.servers import running_tuskpoint
from bench.running.workers import Outcome, Work, Workers
from bench.setting import Setting

_ONE_WAY_SECONDS = 0.0005
_MANY = 32
TITLE = f"Agent steps with {_ONE_WAY_SECONDS * 2e3:.0f} ms of network to the server or database"
_LOADS = {"1 agent": 1, f"{_MANY} agents": _MANY}
_HEADER = (
    "agents, checkpointer",
    "steps/s",
    "save p50 ms",
    "save p99 ms",
    "load p50 ms",
    "TuskPoint / peer",
)


async def measure(setting: Setting) -> Table:
    """Let every checkpointer work in turn over the same kind of network, several rounds."""
    rounds, seconds = (2, 0.5) if setting.quick else (4, 1.5)
    folder = setting.place("network")
    with ExitStack() as stack:
        how, reached_at = stack.enter_context(delayed(_ONE_WAY_SECONDS, folder))
        server = stack.enter_context(running_tuskpoint(folder))
        here = [Contender(TUSKPOINT, reached_at(server.target))]
        here += tuned([Contender(SQLITE, str(folder / "peer.sqlite"))])
        left_out = ""
        try:
            port = _free_port()
            stack.enter_context(running_cluster("listen_addresses=127.0.0.1", f"port={port}"))
        except LeftOutError as error:
            left_out = str(error)
        else:
            host, _, port_there = reached_at(f"127.0.0.1:{port}").rpartition(":")
            postgres = Contender(
                POSTGRES, f"host={host} port={port_there} dbname=postgres user=postgres"
            )
            piped = replace(postgres, setting="one connection in pipeline mode", pool=0)
            here += [*tuned([postgres]), piped]
        for peer in (contender for contender in here[1:] if not contender.setting):
            async with peer.opened() as saver:
                await set_up(saver)
        workers = [stack.enter_context(Workers([contender])) for contender in here]
        outcomes: dict[tuple[str, str], list[Outcome]] = {}
        for turn in range(-1, rounds):  # round -1 warms up
            for process, contender in zip(workers, here, strict=True):
                for load, agents in _LOADS.items():
                    done = await process.work(Work("network", agents, seconds))
                    if turn >= 0:
                        outcomes.setdefault((load, contender.label), []).extend(done)
    rows = [
        _row(load, contender.label, outcomes[load, contender.label], outcomes[load, TUSKPOINT])
        for load in _LOADS
        for contender in here
    ]
    notes = [
        f"Medians of {rounds} rounds of {seconds} s, async, in turn. Steps and configurations "
        f"equal `steps`. Each direction is delayed by {_ONE_WAY_SECONDS * 1000.0:g} ms "
        f"{how.rstrip('.')}. SQLite has no network and is listed for comparison."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [left_out])])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _row(load: str, label: str, outcomes: Sequence[Outcome], ours: Sequence[Outcome]) -> list[str]:
    steps = [step for outcome in outcomes for step in outcome.steps]
    saves = [step.save * 1e3 for step in steps]
    loads = [step.get_tuple * 1e3 for step in steps]
    cells = (
        _rate(outcomes),
        percentile(saves, 0.5),
        percentile(saves, 0.99),
        percentile(loads, 0.5),
    )
    relation = "" if label == TUSKPOINT else ratio(_rate(ours), _rate(outcomes))
    return [f"{load}, {label}", *map(number, cells), relation]


def _rate(outcomes: Sequence[Outcome]) -> float:
    return statistics.median(outcome.rate for outcome in outcomes)
