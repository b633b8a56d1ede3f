"""The five points at the start of the page of benchmarks, with the figures of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from bench.report import Table

_WIDTH = 100
_MISSING = "(not measured)"
_JOURNAL = "TuskPoint's journal, all certified"


def summary(tables: Mapping[str, Table]) -> str:
    """Return the sentences; missing figures are marked as not measured.

    Args:
        tables: The tables of a run, by the names of their measures.
    """

    def figure(measure: str, row: str, column: str) -> str:
        table = tables.get(measure)
        if table is None or column not in table.header:
            return _MISSING
        place = list(table.header).index(column)
        cells = [cells[place] for cells in table.rows if cells[0] == row]
        return cells[0] if cells and cells[0] else _MISSING

    def rate(row: str) -> str:
        return figure("steps", row, "steps/s")

    def save(row: str) -> str:
        return figure("steps", row, "save p50 ms")

    alone, together, apart = (
        "1 agent, async",
        "32 agents, async",
        "8 processes of 4 agents, async",
    )
    sentences = (
        "**Use SQLite** if all agents run in one process on one machine, and you can afford to "
        f"lose its disk: one agent does {rate(f'{alone}, SQLite')} steps per second with "
        f"SQLite, and {rate(f'{alone}, TuskPoint')} with TuskPoint.",
        "**Use PostgreSQL** if you already run PostgreSQL and need only checkpoints: 32 agents do "
        f"{rate(f'{together}, PostgreSQL')} steps per second with one saver, "
        f"{rate(f'{together}, PostgreSQL, 16 savers on 16 connections')} with 16 savers on 16 "
        "connections, because a saver runs one call at a time.",
        "**Use TuskPoint** if agents in several processes or on several machines share threads, or "
        "if threads must be verified, searched, forked, handed off or recovered without the "
        f"machine: 32 agents of one process do {rate(f'{together}, TuskPoint')} steps per second, "
        f"8 processes of 4 agents {rate(f'{apart}, TuskPoint')} (SQLite on one file "
        f"{rate(f'{apart}, SQLite')}, PostgreSQL {rate(f'{apart}, PostgreSQL')}).",
        "**TuskPoint is slower for a single agent**: a save takes "
        f"{save(f'{alone}, TuskPoint')} ms, compared with {save(f'{alone}, SQLite')} ms with "
        f"SQLite and {save(f'{alone}, PostgreSQL')} ms with PostgreSQL, because each of its two "
        "calls passes the threads of client, gRPC and server, and waits for a commit on disk.",
        "**TuskPoint needs a server**: an idle server takes "
        f"{figure('memory', 'an idle server', 'MB')} MB of memory. The database of a growing "
        f"thread takes {figure('journal-bytes', _JOURNAL, 'compared with AsyncSqliteSaver')} of "
        "the bytes of SQLite's database.",
    )
    lines = [textwrap.fill(f"- {text}", _WIDTH, subsequent_indent="  ") for text in sentences]
    return "\n".join(lines)
