"""Memory of the server, of idle streams and of a large load."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, empty_checkpoint

from bench.report import Goal, Table, at_most, number
from bench.running.contenders import TUSKPOINT, Contender
from bench.running.servers import running_tuskpoint
from bench.setting import Setting
from bench.usage.memory import counts_memory, peak_bytes, reset_peak, resident_bytes

TITLE = "Memory"
_STREAMS, _PROCESSES = 1_000, 4
_LARGE_MB = 30
_THREAD = "large"
_QUIET_SECONDS = 2.0
_IDLE_MB, _STREAM_KB, _LOADS = 90, 40, 2.0
_HEADER = ("what", "MB", "KB each", "compared with the load")


async def measure(setting: Setting) -> Table:
    """Start a new server for each figure, and measure the server."""
    if not counts_memory():
        reason = "Left out: this system does not show the resident memory of processes."
        return Table(TITLE, _HEADER, [], [reason])
    return await asyncio.to_thread(_measured, setting)


def _measured(setting: Setting) -> Table:
    rows, goals = [], list[Goal]()
    with running_tuskpoint(setting.place("idle")) as server:
        _be_quiet()
        idle = resident_bytes(server.pid) / 1e6
        rows.append(["an idle server", number(idle), "", ""])
        goals.append(at_most("resident memory of an idle server, MB", idle, _IDLE_MB, ""))
    connections = _STREAMS // _PROCESSES
    for what, processes, channels, streams in (
        (f"{_STREAMS:,} idle streams, a connection each", _PROCESSES, connections, 1),
        (f"{_STREAMS:,} idle streams of one connection", 1, 1, _STREAMS),
    ):
        megabytes = _stream_memory(setting, processes, channels, streams)
        kilobytes = megabytes * 1e3 / _STREAMS
        rows.append([what, number(megabytes), number(kilobytes), ""])
        goals.append(at_most(f"memory of each of {what}, KB", kilobytes, _STREAM_KB, ""))
    for side, peak in _load_peaks(setting).items():
        what = f"peak of a load of {_LARGE_MB} MB, {side}"
        rows.append([what, number(peak), "", f"{peak / _LARGE_MB:.2f}x"])
        goals.append(at_most(f"{what}, compared with its size", peak / _LARGE_MB, _LOADS))
    notes = [
        "Resident memory, as Linux counts it. Streams are Exchange streams on which the server "
        f"has answered a call, from {_PROCESSES} processes with the channels of the Python "
        "client; their memory is the growth of the server. A load is `get_tuple` of a checkpoint "
        f"with one text of {_LARGE_MB} MB, in a process that did not save the checkpoint; its "
        "peak is the largest growth of a process during the load."
    ]
    return Table(TITLE, _HEADER, rows, notes, goals)


def _be_quiet() -> None:
    """Wait, because a server does not report the end of its background work."""
    subprocess.run(["sleep", str(_QUIET_SECONDS)], check=True)


def _stream_memory(setting: Setting, processes: int, channels: int, streams: int) -> float:
    """Return the growth of a server, in megabytes, with this number of streams."""
    with running_tuskpoint(setting.place("streams")) as server, ExitStack() as stack:
        # The first streams load shared code.
        with _streams(server.target, 1, 1):
            _be_quiet()
        before = resident_bytes(server.pid)
        for _ in range(processes):
            stack.enter_context(_streams(server.target, channels, streams))
        _be_quiet()
        return (resident_bytes(server.pid) - before) / 1e6


@contextmanager
def _streams(target: str, channels: int, streams: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.measures.cost.idle_streams", target]
    command += ["--channels", str(channels), "--streams", str(streams)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"open\n":
                raise RuntimeError("the idle streams could not be opened")
            yield
        finally:
            process.stdin.close()


def _load_peaks(setting: Setting) -> dict[str, float]:
    """Return the peak megabytes of a load of a large checkpoint, by side."""
    context = multiprocessing.get_context("spawn")
    with running_tuskpoint(setting.place("large")) as server:
        saving = context.Process(target=_save_large, args=(server.target,))
        saving.start()
        saving.join()
        if saving.exitcode:
            raise RuntimeError("the large checkpoint was not saved")
        _be_quiet()
        ours, theirs = context.Pipe()
        loading = context.Process(target=_load_large, args=(server.target, theirs))
        loading.start()
        ours.recv()
        reset_peak(server.pid)
        before = resident_bytes(server.pid)
        ours.send("load")
        client = ours.recv()
        peak = peak_bytes(server.pid) - before
        loading.join()
    return {"server": peak / 1e6, "client": client / 1e6}


def _save_large(target: str) -> None:
    # Hexadecimal digits, so that it compresses to a half.
    text = random.Random(1).randbytes(_LARGE_MB * 500_000).hex()
    with Contender(TUSKPOINT, target).opened_blocking() as saver:
        version = saver.get_next_version(None, None)
        checkpoint = empty_checkpoint()
        checkpoint["v"] = 4
        checkpoint["channel_values"]["text"] = text
        checkpoint["channel_versions"]["text"] = version
        metadata = CheckpointMetadata(source="loop", step=0, parents={})
        saver.put(_config(_THREAD), checkpoint, metadata, {"text": version})


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _load_large(target: str, connection: Connection) -> None:
    with Contender(TUSKPOINT, target).opened_blocking() as saver:
        saver.get_tuple(_config("none"))  # opens the connection
        connection.send("ready")
        connection.recv()
        before = resident_bytes()
        loaded = saver.get_tuple(_config(_THREAD))
        if loaded is None or len(loaded.checkpoint["channel_values"]["text"]) != _LARGE_MB * 10**6:
            raise RuntimeError("the large checkpoint was not loaded")
        connection.send(peak_bytes() - before)
