"""Many agents that sleep most of the time, like agents that wait for a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report import Table, number, percentile
from bench.running.contenders import POSTGRES, TUSKPOINT, Contender, peers, tuned
from bench.running.servers import Server, counts_cpu, running_tuskpoint
from bench.running.workers import Outcome, Work, Workers
from bench.setting import Setting
from bench.usage.database import DatabaseProcesses
from bench.usage.memory import resident_bytes

_AGENTS, _PROCESSES, _PAUSE_SECONDS = 1_000, 2, 10.0
TITLE = f"{_AGENTS:,} agents that step every {_PAUSE_SECONDS:.0f} seconds"
_HEADER = (
    "checkpointer",
    "steps/s",
    "save p50 ms",
    "save p99 ms",
    "save p99.9 ms",
    "load p50 ms",
    "load p99 ms",
    "agents' CPU µs",
    "server's CPU µs",
    "agents' memory MB",
    "server's memory MB",
)


@dataclass(frozen=True, slots=True)
class _Store:
    """The storage processes of a checkpointer, if it has any."""

    server: Server | None = None
    database: DatabaseProcesses | None = None

    def cpu_seconds(self) -> float:
        if self.server is not None:
            return self.server.cpu_seconds()
        return self.database.nanoseconds() / 1e9 if self.database is not None else 0.0

    def resident_bytes(self) -> int:
        if self.server is not None:
            return resident_bytes(self.server.pid)
        return self.database.resident_bytes() if self.database is not None else 0


async def measure(setting: Setting) -> Table:
    """Let the agents of one checkpointer after the other work, in several processes."""
    if not counts_cpu():
        reason = "Left out: this system does not show the processor time of other processes."
        return Table(TITLE, _HEADER, [], [reason])
    seconds = 12.0 if setting.quick else 40.0
    folder = setting.place("sleepers")
    rows = []
    with running_tuskpoint(folder) as server:
        here = tuned([Contender(TUSKPOINT, server.target), *await peers(setting, folder)])
        for contender in here:
            if contender.name == TUSKPOINT:
                store = _Store(server=server)
            elif contender.name == POSTGRES:
                store = _Store(database=DatabaseProcesses(contender.where))
            else:
                store = _Store()
            with Workers([contender], _PROCESSES) as workers:
                await workers.work(Work("warm", 1, 0.5))
                before = store.cpu_seconds()
                work = Work("sleeper", _AGENTS // _PROCESSES, seconds, pause=_PAUSE_SECONDS)
                outcomes = await workers.work(work)
                used = store.cpu_seconds() - before
                rows.append(_row(contender.label, outcomes, used, store.resident_bytes()))
    notes = [
        f"{_AGENTS:,} agents in {_PROCESSES} processes for {seconds:.0f} s, one checkpointer "
        f"after another. Each agent sleeps {_PAUSE_SECONDS / 2:.0f} to {_PAUSE_SECONDS * 1.5:.0f} "
        "s between two steps. A save is `put` and `put_writes`; a load is `get_tuple`. The "
        "configurations equal `steps`. Processor time is the sum over all processes, "
        "divided by the number of steps, and includes work while agents sleep. Memory is the sum "
        "over the agents' processes, and over the processes of the server or of PostgreSQL; "
        "shared pages count once. SQLite runs inside the agents' processes."
    ]
    return Table(TITLE, _HEADER, rows, [*notes, *filter(None, [setting.left_out])])


def _row(label: str, outcomes: Sequence[Outcome], used: float, stored_by: int) -> list[str]:
    steps = [step for outcome in outcomes for step in outcome.steps]
    saves = [step.save * 1e3 for step in steps]
    loads = [step.get_tuple * 1e3 for step in steps]
    agents_cpu = sum(outcome.processor for outcome in outcomes)
    cells = (
        sum(outcome.rate for outcome in outcomes),
        *(percentile(saves, share) for share in (0.5, 0.99, 0.999)),
        *(percentile(loads, share) for share in (0.5, 0.99)),
        agents_cpu / len(steps) * 1e6,
        used / len(steps) * 1e6,
        sum(outcome.resident for outcome in outcomes) / 1e6,
        stored_by / 1e6,
    )
    return [label, *(number(cell) if cell else "" for cell in cells)]
