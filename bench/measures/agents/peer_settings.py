"""The fastest configuration of each peer."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import replace

from bench.report import Table, number, percentile, ratio
from bench.running.contenders import POSTGRES, SQLITE, TUSKPOINT, Contender, contenders
from bench.running.workers import Outcome, Work, Workers
from bench.setting import Setting

TITLE = "Checkpointers in several configurations"
_MANY = 32
_HEADER = ("checkpointer", "1 agent, steps/s", f"{_MANY} agents, steps/s", "save p50 ms", "")
_CONNECTIONS = (4, 8, 16, 32)


def configurations(peer: Contender) -> list[Contender]:
    """Return a peer in its default configuration and in others that its documentation allows."""
    if peer.name == SQLITE:
        return [peer, replace(peer, setting="synchronous=NORMAL", synchronous="NORMAL")]
    if peer.name == POSTGRES:
        return [
            peer,
            replace(peer, setting="one connection in pipeline mode", pool=0),
            *(
                replace(
                    peer, setting=f"{count} savers on {count} connections", pool=count, savers=count
                )
                for count in _CONNECTIONS
            ),
        ]
    return [peer]


async def measure(setting: Setting) -> Table:
    """Let agents work with each configuration in turn, several rounds."""
    rounds, seconds = (2, 0.5) if setting.quick else (4, 1.5)
    async with contenders(setting) as here:
        field = [configured for contender in here for configured in configurations(contender)]
        alone: dict[str, list[Outcome]] = {contender.label: [] for contender in field}
        together: dict[str, list[Outcome]] = {contender.label: [] for contender in field}
        with ExitStack() as stack:
            workers = stack.enter_context(Workers(field))
            for turn in range(-1, rounds):  # round -1 warms up
                for place, contender in enumerate(field):
                    for outcomes, agents in ((alone, 1), (together, _MANY)):
                        work = Work(f"p{turn}", agents, seconds)
                        done = await workers.work(work, place)
                        if turn >= 0:
                            outcomes[contender.label] += done
    rates = {label: _rate(outcomes) for label, outcomes in together.items()}
    best = {
        name: max((c.label for c in field if c.name == name), key=rates.__getitem__)
        for name in (SQLITE, POSTGRES)
        if any(contender.name == name for contender in field)
    }
    rows = []
    for contender in field:
        label = contender.label
        saves = [step.save for outcome in alone[label] for step in outcome.steps]
        cells = (_rate(alone[label]), rates[label], percentile(saves, 0.5) * 1e3)
        rows.append([label, *map(number, cells), "best" if label in best.values() else ""])
    notes = [
        f"Medians of {rounds} rounds of {seconds} s, async, in turn. The best configuration has "
        f"the most steps per second with {_MANY} agents. A saver of PostgreSQL holds a lock during "
        "each call, so more connections help only with more savers; by default, one saver has a "
        f"pool of {here[-1].pool} connections. TuskPoint's steps per second, compared with the "
        "best: "
        + ", ".join(f"{ratio(rates[TUSKPOINT], rates[label])} ({label})" for label in best.values())
        + "."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


def _rate(outcomes: list[Outcome]) -> float:
    return statistics.median(outcome.rate for outcome in outcomes)
