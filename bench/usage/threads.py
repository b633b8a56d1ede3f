"""Processor time by thread, of this process and of servers."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

_ANSWER_SECONDS = 30.0
_TASKS = Path("/proc/self/task")

Times = Mapping[tuple[int, str], int]
"""Nanoseconds of processor time by native thread ID and thread name."""


def counts_threads() -> bool:
    """Return whether this system shows the processor time of a thread in nanoseconds."""
    return Path("/proc/self/schedstat").exists()


def own_times() -> Times:
    """Return the processor time of each thread of this process.

    Threads that Python started have their names in `threading`; other threads have the system's
    names. The time is the first field of `/proc/PID/task/TID/schedstat`.
    """
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    times = {}
    for task in _TASKS.iterdir():
        number = int(task.name)
        try:
            name = names.get(number) or (task / "comm").read_text(encoding="utf-8").strip()
            times[number, name] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue  # the thread ended
    return times


def spent(before: Times, after: Times) -> dict[str, int]:
    """Return the nanoseconds between two readings, by thread name."""
    used: dict[str, int] = {}
    for (number, name), nanoseconds in after.items():
        used[name] = used.get(name, 0) + nanoseconds - before.get((number, name), 0)
    return used


def times_of(process: subprocess.Popen[bytes]) -> Times:
    """Ask a process that `timed_server` runs for its threads' times.

    Raises:
        RuntimeError: The process did not answer.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    answer = b""
    while not answer.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], _ANSWER_SECONDS)
        piece = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not piece:
            raise RuntimeError("the server did not report the times of its threads")
        answer += piece
    return {(number, name): nanoseconds for number, name, nanoseconds in json.loads(answer)}
