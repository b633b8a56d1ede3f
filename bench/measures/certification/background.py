"""The server's processor time for certifying and indexing checkpoints."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import grpc.aio

from bench.agents import prose
from bench.report import Table, at_most, number, ratio
from bench.requests import CHANGING, chain
from bench.running.servers import Server, counts_cpu, running_tuskpoint
from bench.setting import Setting
from bench.settling import settle
from tuskpoint.v1.checkpoint_service_pb2 import SaveCheckpointRequest
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

TITLE = "Processor time after the acknowledgement, per checkpoint"
_HEADER = ("what", "µs per checkpoint")
_THREADS = 50
_VALUE_BYTES = 2048
_BATCH = 64  # checkpoints that the server indexes in one transaction
_SLOW_FLUSH = {"TUSKPOINT_FLUSH_INTERVAL": "3600"}


async def measure(setting: Setting) -> Table:
    """Save on servers with and without an index; then flush both."""
    if not counts_cpu():
        reason = "Left out: this system does not show the processor time of other processes."
        return Table(TITLE, _HEADER, [], [reason])
    rounds, steps = (2, 8) if setting.quick else (4, 18)
    without = {**_SLOW_FLUSH, "TUSKPOINT_SEARCH": "false"}
    with (
        running_tuskpoint(setting.place("indexing"), _SLOW_FLUSH) as indexing,
        running_tuskpoint(setting.place("plain"), without) as plain,
    ):
        servers = (indexing, plain)
        spent = {server: [0.0, 0.0] for server in servers}
        for turn in range(rounds + 1):
            for server in servers:
                saving, flushing = await _round(server, turn, steps, indexes=server is indexing)
                if turn:  # the first round warms up
                    spent[server][0] += saving
                    spent[server][1] += flushing
    count = rounds * steps * _THREADS
    # Indexing continues during saves, and ends before or during the flush.
    flush = spent[plain][1] / count * 1e6
    index = (sum(spent[indexing]) - sum(spent[plain])) / count * 1e6
    floor = _full_text(setting.place("full-text"), count) / count * 1e6
    rows = [
        ["flush", number(flush)],
        ["index", number(index)],
        ["flush and index", number(flush + index)],
        ["SQLite's full text of as many words, alone", number(floor)],
    ]
    notes = [
        f"{count:,} checkpoints of {_THREADS} threads in {rounds} rounds on each server, with 4 "
        "KiB of new words in each checkpoint and a flush after each round. Index is the "
        "difference between a server that indexes and a server that does not. This is "
        f"{ratio(index, floor)} of the time that SQLite needs to add the same number of words to "
        f"full text, {_BATCH} checkpoints in a transaction, in a process that does nothing else."
    ]
    goals = [
        at_most("flush per checkpoint, processor time, us", flush, 120, ""),
        at_most("index per checkpoint, compared with SQLite's full text alone", index / floor, 3),
    ]
    return Table(TITLE, _HEADER, rows, notes, goals)


def _full_text(place: Path, count: int) -> float:
    """Return SQLite's processor seconds to index the words of `count` checkpoints."""
    source = random.Random(1)
    documents = [" ".join(prose(source, _VALUE_BYTES) for _ in CHANGING) for _ in range(count)]
    with closing(sqlite3.connect(place / "full-text.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=wal")
        database.execute("PRAGMA synchronous=normal")
        tokens = "tokenize='porter unicode61 remove_diacritics 2'"
        database.execute(f"CREATE VIRTUAL TABLE text USING fts5(body, {tokens})")
        began = time.process_time()
        for start in range(0, count, _BATCH):
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO text (body) VALUES (?)",
                ((document,) for document in documents[start : start + _BATCH]),
            )
            database.execute("COMMIT")
        return time.process_time() - began


async def _round(server: Server, turn: int, steps: int, *, indexes: bool) -> tuple[float, float]:
    """Return the processor seconds of the saves, and of the flush."""
    threads = [chain(f"turn-{turn}-{index}", steps, _VALUE_BYTES) for index in range(_THREADS)]
    async with grpc.aio.insecure_channel(server.target) as channel:
        before = server.cpu_seconds()
        await asyncio.gather(*(_save(channel, requests) for requests in threads))
        between = server.cpu_seconds()
        await settle(channel, indexes=indexes)
        return between - before, server.cpu_seconds() - between


async def _save(channel: grpc.aio.Channel, requests: list[SaveCheckpointRequest]) -> None:
    stub = CheckpointServiceStub(channel)
    for request in requests:
        await stub.SaveCheckpoint(request)
