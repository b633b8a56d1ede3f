"""Cost of a step for agents, servers, leader and database, and the needs of many agents."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import psycopg

from bench.agents import Saver
from bench.measures.agents.steps import work_round
from bench.report import Table, number
from bench.running.servers import Server, counts_cpu
from bench.running.shared_journal import sharing_servers
from bench.setting import Setting
from bench.settling import settle
from bench.usage.database import DatabaseProcesses
from tuskpoint import TuskPointSaver

TITLE = "Processor time of a step with 1 to 4 servers and a leader over one PostgreSQL"
_COUNTS = (1, 2, 4)
_AGENTS = 32
_HEADER = (
    "servers beside the leader",
    "steps/s",
    "agents µs",
    "servers µs",
    "leader µs",
    "PostgreSQL µs",
    "sum µs",
    "compared with one server",
)
_WRITTEN = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, pg_database_size('tuskpoint')"
_NAMES = ("agents", "servers", "leader", "database", "log", "stored", "blobs")

_AGENT_COUNTS = (1_000, 100_000, 10_000_000)
_PAUSE_SECONDS = 10
_BUSY = 0.7  # share of a core above which calls wait for each other
_SERVING_CORES = 1.0  # cores of a server, because of its interpreter lock
_DATABASE_CORES = 32
_DAY_SECONDS = 86_400
_PAPER = (
    "agents",
    "steps/s",
    "databases, each with a leader",
    "servers",
    "cores of servers and leaders",
    "cores of PostgreSQL",
    "PostgreSQL's log, MB/s",
    "journal, GB a day",
    "blobs, GB a day",
)


@dataclass(slots=True)
class _Rounds:
    """Costs of a step in each round, with a number of servers.

    Attributes:
        rates: Steps per second.
        parts: By the names `_NAMES`: seconds of processor time, then bytes of PostgreSQL's log, of
            its database and of the blobs.
    """

    rates: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _NAMES})

    def step(self, name: str) -> float:
        """Return the median of a part."""
        return statistics.median(self.parts[name])

    @property
    def seconds(self) -> list[float]:
        """The processor time of agents, servers, leader and database for a step."""
        return [self.step(name) for name in _NAMES[:4]]


async def measure(setting: Setting) -> Table:
    """Let agents work on one, two and four servers in turn, several rounds."""
    if not setting.postgres:
        return Table(TITLE, _HEADER, [], [setting.left_out])
    if not counts_cpu():
        return Table(TITLE, _HEADER, [], ["This system does not show the time of other processes."])
    turns, seconds = (2, 0.5) if setting.quick else (5, 2.0)
    rounds = {count: _Rounds() for count in _COUNTS}
    blobs = setting.place("blobs")
    with (
        sharing_servers(setting, max(_COUNTS) + 1, blobs) as (leader, *servers),
        psycopg.connect(setting.postgres, autocommit=True) as connection,
    ):
        database = DatabaseProcesses(setting.postgres)
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(leader.target))
            savers: list[Saver] = [
                await stack.enter_async_context(TuskPointSaver(server.target)) for server in servers
            ]
            for turn in range(-1, turns):  # round -1 warms up
                for count, measured in rounds.items():
                    used_before = _used(connection, database, leader, servers, blobs)
                    steps, lasted = await work_round(
                        savers[:count], f"r{turn}-{count}", _AGENTS * count, seconds
                    )
                    await settle(channel)
                    used = _used(connection, database, leader, servers, blobs)
                    if turn < 0:
                        continue
                    measured.rates.append(len(steps) / lasted)
                    for name, before, after in zip(_NAMES, used_before, used, strict=True):
                        measured.parts[name].append((after - before) / len(steps))
    return _table(rounds, turns, seconds)


def _used(
    connection: psycopg.Connection,
    database: DatabaseProcesses,
    leader: Server,
    servers: list[Server],
    blobs: Path,
) -> list[float]:
    """Return the present usage, in the order of `_NAMES`."""
    [[log, stored]] = connection.execute(_WRITTEN).fetchall()
    sizes = [path.stat().st_size for path in blobs.rglob("*") if path.is_file()]
    return [
        time.process_time(),
        sum(server.cpu_seconds() for server in servers),
        leader.cpu_seconds(),
        database.nanoseconds() / 1e9,
        float(log),
        float(stored),
        float(sum(sizes)),
    ]


def _table(rounds: dict[int, _Rounds], turns: int, seconds: float) -> Table:
    rows = []
    one = sum(rounds[1].seconds)
    for count, measured in rounds.items():
        whole = sum(measured.seconds)
        times = (number(part * 1e6) for part in (*measured.seconds, whole))
        rate = number(statistics.median(measured.rates))
        rows.append([str(count), rate, *times, f"{whole / one:.2f}x"])
    last = rounds[max(rounds)]
    note = (
        f"{_AGENTS} agents for each server, all in one process, without a pause between steps. "
        f"{max(rounds)} servers and the leader, which no agent calls, run over one database. "
        f"Medians of {turns} rounds of {seconds} s, in turn; a round ends when all its steps are "
        "certified and indexed. Agents, servers and PostgreSQL share this machine, so the steps "
        "per second say little; the processor time of a step shows what more servers cost. It "
        f"includes the time of servers without agents. With {max(rounds)} servers a step wrote "
        f"{number(last.step('log'))} bytes to PostgreSQL's write-ahead log, and added "
        f"{number(last.step('stored'))} bytes to the database and {number(last.step('blobs'))} "
        "bytes to the blobs."
    )
    return Table(TITLE, _HEADER, rows, [note], further=[paper(last.step)])


def paper(step: Callable[[str], float]) -> Table:
    """Return the needs of many agents.

    Args:
        step: Returns the cost of a step, by the names `_NAMES`.
    """
    # The leader or the database limits a journal.
    most = _BUSY * min(1 / step("leader"), _DATABASE_CORES / step("database"))
    rows = []
    for agents in _AGENT_COUNTS:
        rate = agents / _PAUSE_SECONDS
        databases = _whole(rate / most)
        servers = _whole(rate * step("servers") / (_BUSY * _SERVING_CORES))
        cores = rate * (step("servers") + step("leader")) / _BUSY
        day = rate * _DAY_SECONDS / 1e9
        figures = (
            *(cores, rate * step("database") / _BUSY, rate * step("log") / 1e6),
            *(day * step("stored"), day * step("blobs")),
        )
        rows.append(
            [f"{agents:,}", f"{rate:,.0f}", f"{databases:,}", f"{max(servers, databases):,}"]
            + [number(figure) for figure in figures]
        )
    first = "leader" if _DATABASE_CORES / step("database") > 1 / step("leader") else "database"
    note = (
        f"Each agent does a step every {_PAUSE_SECONDS} s, all day. Computed from the cost of a "
        f"step in the table above, for processors that are {_BUSY:.0%} busy and databases of "
        f"{_DATABASE_CORES} cores. In each journal the {first} reaches its limit first, at "
        f"{most:,.0f} steps/s. Bytes are for new steps; certified content leaves the journal, and "
        "retention removes content from journal and blobs."
    )
    return Table("Agents on paper", _PAPER, rows, [note])


def _whole(figure: float) -> int:
    """Return a figure rounded up to a whole number, except for noise of rounding."""
    return math.ceil(round(figure, 6))
