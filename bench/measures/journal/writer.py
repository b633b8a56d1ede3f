"""Cost of a save for the journal's writer: SQL statements, and processor time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import Table, at_most, number
from bench.setting import Setting
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint_server.api.messages.saves import take_checkpoint
from tuskpoint_server.features.checkpoints import save
from tuskpoint_server.features.checkpoints.incoming import IncomingCheckpoint
from tuskpoint_server.features.checkpoints.value_groups import Keyframes
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork

TITLE = "Cost of a save in the journal's writer"
_BATCH = 32
_SMALL = 1500
_LARGE = 400 * 1024
_GROWS_BY = 1024
_LARGE_BATCH = 8
_TENANT = "default"


@dataclass
class _Spent:
    """Statements and processor time of a commit."""

    statements: list[int] = field(default_factory=list)
    microseconds: list[float] = field(default_factory=list)


async def measure(setting: Setting) -> Table:
    """Save through the writer, alone and in batches, and count."""
    rounds = 20 if setting.quick else 100
    database = await Database.open(Path(setting.place("writer")) / "journal.db")
    keyframes = Keyframes()
    try:
        lone = await _save(database, _rounds(keyframes, "lone", 1, rounds))
        batch = await _save(database, _rounds(keyframes, "batch", _BATCH, rounds))
        large, outside = await _save_large(database, keyframes, min(rounds, 60))
    finally:
        await database.close()
    rows = [
        ["a lone save: SQL statements", number(_median(lone.statements))],
        [f"a batch of {_BATCH} saves: SQL statements", number(_median(batch.statements))],
        ["a lone save: writer's processor time, us", number(_median(lone.microseconds))],
        [
            f"a save in a batch of {_BATCH}: writer's processor time, us",
            number(_median(batch.microseconds) / _BATCH),
        ],
        ["a value of 400 KiB that grew by 1 KiB: in the writer, us", number(large)],
        ["a value of 400 KiB that grew by 1 KiB: outside, ms", number(outside)],
    ]
    notes = [
        f"Medians of {rounds} commits. A save has five channels of {_SMALL} bytes; one channel "
        f"is new. Large values are saved {_LARGE_BATCH} at a time. `BEGIN`, `COMMIT` and each "
        f"`executemany` count as one statement. {os.cpu_count()} cores."
    ]
    goals = [
        at_most("SQL statements of a lone save", _median(lone.statements), 8, ""),
        at_most(f"SQL statements of a batch of {_BATCH}", _median(batch.statements), 12, ""),
        at_most(
            f"writer's processor time per save in a batch of {_BATCH}, us",
            _median(batch.microseconds) / _BATCH,
            120,
            "",
        ),
        at_most("a value of 400 KiB that grew by 1 KiB: in the writer, us", large, 120, ""),
        at_most("a value of 400 KiB that grew by 1 KiB: outside, ms", outside, 4, ""),
    ]
    return Table(TITLE, ("what", "figure"), rows, notes, goals)


def _rounds(
    keyframes: Keyframes, name: str, threads: int, rounds: int
) -> Iterator[list[IncomingCheckpoint]]:
    for step in range(rounds):
        yield [_taken(_request(f"{name}-{index}", step), keyframes) for index in range(threads)]


async def _save(database: Database, rounds: Iterator[list[IncomingCheckpoint]]) -> _Spent:
    """Save; count the statements of every other commit, and time the others."""
    spent = _Spent()
    for number_of, changes in enumerate(rounds):
        counting = _Counting(counts=number_of % 2 == 0)
        # The first commit starts the count and a later commit ends it: all are in one batch.
        waiting: list[asyncio.Future[Any]] = [database.change(counting.begin)]
        waiting += [database.change(_saving(change)) for change in changes]
        await asyncio.gather(*waiting)
        await database.change(counting.end)
        if counting.counts:
            spent.statements.append(counting.statements)
        else:
            spent.microseconds.append(counting.microseconds)
    return spent


async def _save_large(database: Database, keyframes: Keyframes, rounds: int) -> tuple[float, float]:
    outside: list[float] = []

    def grown() -> Iterator[list[IncomingCheckpoint]]:
        values = [os.urandom(_LARGE) for _ in range(_LARGE_BATCH)]
        for step in range(rounds):
            values = [data + os.urandom(_GROWS_BY) for data in values]
            requests = [_request(f"large-{index}", step, data) for index, data in enumerate(values)]
            began = time.thread_time()
            changes = [_taken(request, keyframes) for request in requests]
            outside.append((time.thread_time() - began) * 1e3 / _LARGE_BATCH)
            yield changes

    inside = (await _save(database, grown())).microseconds
    return _median(inside) / _LARGE_BATCH, _median(outside)


def _taken(request: pb.SaveCheckpointRequest, keyframes: Keyframes) -> IncomingCheckpoint:
    sent = take_checkpoint(request)
    assert sent is not None
    sent.pack(_TENANT, keyframes)
    return sent


def _saving(sent: IncomingCheckpoint) -> Callable[[UnitOfWork], object]:
    return lambda batch: save.save_checkpoint(batch, _TENANT, sent, 0)


class _Counting:
    """Counts what the writer's connection executes, or the time of its thread.

    Tracing takes longer than what it traces, so one commit is either counted or timed.
    """

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.statements = 0
        self.microseconds = 0.0
        self._began = 0.0
        self._last = ""

    def begin(self, batch: UnitOfWork) -> None:
        """Start counting, inside a transaction that `BEGIN` opened."""
        self.statements = 1
        if self.counts:
            _driver(batch).set_trace_callback(self._executed)
        self._began = time.thread_time()

    def end(self, batch: UnitOfWork) -> None:
        """Stop counting, inside the next transaction."""
        self.microseconds = (time.thread_time() - self._began) * 1e6
        _driver(batch).set_trace_callback(None)
        self.statements -= 1  # the `BEGIN` of this transaction

    def _executed(self, statement: str) -> None:
        kind = statement[:24]
        # Each row of an `executemany` is traced.
        if kind != self._last or not kind.startswith(("INSERT", "UPDATE")):
            self.statements += 1
        self._last = kind


def _driver(batch: UnitOfWork) -> sqlite3.Connection:
    driver = batch.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _request(thread_id: str, step: int, data: bytes | None = None) -> pb.SaveCheckpointRequest:
    state = checkpoint_pb2.CheckpointState(schema_version=4)
    metadata = json.dumps({"source": "loop", "step": step, "thread_id": thread_id}).encode()
    for name in ("messages",) if data is not None else ("messages", "a", "b", "c", "d"):
        channel = state.channels.add(name=name)
        channel.version.integer = step + 1 if name == "messages" else 1
        if name == "messages":
            content = data if data is not None else os.urandom(_SMALL)
            channel.value.type, channel.value.data = "msgpack", content
        elif step:
            channel.inherit.SetInParent()
        else:
            content = hashlib.sha256(name.encode()).digest() * (_SMALL // 32)
            channel.value.type, channel.value.data = "msgpack", content
    return pb.SaveCheckpointRequest(
        checkpoint=checkpoint_pb2.Checkpoint(
            ref=checkpoint_pb2.CheckpointRef(thread_id=thread_id, checkpoint_id=_name(step)),
            parent_checkpoint_id=_name(step - 1) if step else "",
            state=state,
            metadata_json=metadata,
        )
    )


def _name(step: int) -> str:
    return f"1f0{step:05x}-0000-6000-8000-000000000000"


def _median(values: list[int] | list[float]) -> float:
    return float(sorted(values)[len(values) // 2])
