"""Time until a server serves, and cost of the smallest command."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time

from bench.report import Table, at_most, number
from bench.running.servers import running_tuskpoint
from bench.setting import Setting

TITLE = "Start"
_SERVES, _COMMAND = 0.8, 0.3
_SMALLEST = ("-m", "tuskpoint.cli", "threads", "--json")


async def measure(setting: Setting) -> Table:
    """Start servers on empty directories, and list the threads of each."""
    return await asyncio.to_thread(_measured, setting)


def _measured(setting: Setting) -> Table:
    rounds = 2 if setting.quick else 5
    serving, commands = [], []
    for _ in range(rounds):
        folder = setting.place("start")
        began = time.perf_counter()
        with running_tuskpoint(folder) as server:
            serving.append(time.perf_counter() - began)
            commands.append(_processor_time(server.target))
    seconds, processor = statistics.median(serving), statistics.median(commands)
    rows = [
        ["from `tuskpoint-server` to serving, on an empty directory", number(seconds)],
        ["processor time of `tuskpoint threads`", number(processor)],
    ]
    notes = [f"Medians of {rounds} starts."]
    goals = [
        at_most("seconds from `tuskpoint-server` to serving", seconds, _SERVES, ""),
        at_most("seconds of processor time of `tuskpoint threads`", processor, _COMMAND, ""),
    ]
    return Table(TITLE, ("what", "seconds"), rows, notes, goals)


def _processor_time(target: str) -> float:
    """Return the processor time of the command that lists threads."""
    before = _of_children()
    command = [sys.executable, *_SMALLEST]
    environment = {**os.environ, "TUSKPOINT_TARGET": target}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
