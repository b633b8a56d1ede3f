"""Threads in a database of LangGraph's `SqliteSaver`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.value_pb2 import PendingWrite
from .carried import (
    SERIALIZER,
    CannotCarry,
    CarriedValue,
    Encoder,
    carried,
    opened,
    pending_write,
    pickled,
    problem_of,
)
from .threads import Problem, ThreadSettings

_REPAIR = "restore it from a backup, or repair a copy with `sqlite3 FILE .recover`"
_ROWS = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    " FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"
)
_WRITES = (
    "SELECT task_id, {task_path}, idx, channel, type, value FROM writes"
    " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
    " ORDER BY {task_path}, task_id, idx"
)


class SqliteSource:
    """The threads of a database, which is opened read-only.

    Args:
        path: Path of the database file.

    Raises:
        Problem: The file is damaged, or has no table of the saver.
    """

    is_exact = True
    serializer = SERIALIZER

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        try:
            self._check()
            columns = {row[1] for row in self._file.execute("PRAGMA table_info(writes)")}
        except sqlite3.Error as error:
            self._file.close()
            raise self._damaged(error) from error
        except Problem:
            self._file.close()
            raise
        # Databases of older savers do not have the paths of tasks.
        self._writes = _WRITES.format(task_path="task_path" if "task_path" in columns else "''")
        self._is_old = "task_path" not in columns

    def _check(self) -> None:
        names = {row[0] for row in self._file.execute("SELECT name FROM sqlite_master")}
        if not {"checkpoints", "writes"} <= names:
            raise Problem(
                f"'{self.name}' has no tables of LangGraph's SqliteSaver",
                "name the file that the saver was opened with",
            )
        problems = [str(row[0]) for row in self._file.execute("PRAGMA quick_check(1)")]
        if problems != ["ok"]:
            raise self._damaged(problems[0])

    def _damaged(self, problem: object) -> Problem:
        detail = " ".join(str(problem).split())
        if isinstance(problem, sqlite3.OperationalError):
            hint = "check who may read it, and that no program has locked it"
            return Problem(f"'{self.name}' cannot be read: {detail}", hint)
        return Problem(f"'{self.name}' is damaged: {detail}", _REPAIR, is_damage=True)

    def threads(self) -> Iterator[str]:
        """See `Source`."""
        last: Sequence[str] = ()
        while True:
            after = "WHERE thread_id > ?" if last else ""
            query = f"SELECT thread_id FROM checkpoints {after} ORDER BY thread_id LIMIT 1"  # noqa: S608
            rows = self._ask(query, last)
            if not rows:
                return
            last = (str(rows[0][0]),)
            yield last[0]

    def size(self, thread_ids: Collection[str] | None) -> int:
        """See `Source`."""
        query = "SELECT count(*) FROM checkpoints"
        if thread_ids is None:
            return int(self._ask(query)[0][0])
        thread_query = f"{query} WHERE thread_id = ?"
        return sum(self._ask(thread_query, (name,))[0][0] for name in thread_ids)

    def settings(self, thread_id: str) -> ThreadSettings:
        """See `Source`."""
        return ThreadSettings()

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """See `Source`."""
        if not self._file.in_transaction:
            self._file.execute("BEGIN")
        encoder = Encoder(thread_id)
        try:
            for ns, checkpoint_id, parent, kind, data, metadata in self._file.execute(
                _ROWS, (thread_id,)
            ):
                try:
                    graph = _checkpoint(kind, data, checkpoint_id)
                    message = encoder.message(ns, parent or "", graph, _bytes(metadata) or b"{}")
                    message.writes.extend(self._writes_of(thread_id, ns, checkpoint_id))
                except (sqlite3.Error, Problem):
                    raise
                except Exception as error:
                    raise problem_of(self.name, thread_id, (ns, checkpoint_id), error) from error
                yield message
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _writes_of(self, *place: str) -> Iterator[PendingWrite]:
        for task_id, task_path, idx, channel, kind, data in self._file.execute(self._writes, place):
            yield pending_write(task_id, task_path, idx, channel, carried(kind, data, channel))

    def _ask(self, query: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._file.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def saver(self) -> BaseCheckpointSaver[Any]:
        """Return LangGraph's saver on the same state of the database.

        Raises:
            ImportError: The saver is not installed.
        """
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = SqliteSaver(self._file, serde=SERIALIZER)
        saver.is_setup = True  # `setup` would add tables and columns
        if self._is_old:
            saver._has_task_path = False
        return saver

    def release(self) -> None:
        """See `Source`."""
        if self._file.in_transaction:
            self._file.execute("ROLLBACK")

    def close(self) -> None:
        """See `Source`."""
        self._file.close()


def _bytes(data: object) -> bytes:
    return data.encode() if isinstance(data, str) else cast(bytes, data or b"")


def _checkpoint(kind: object, data: object, checkpoint_id: str) -> GraphCheckpoint:
    """Return a checkpoint with packed values.

    Raises:
        CannotCarry: The values of the checkpoint cannot be separated.
        ValueError: The checkpoint cannot be read.
    """
    if kind == "pickle":
        raise pickled("(all)")
    if not isinstance(kind, str):
        raise ValueError("it has no type")
    if kind not in ("msgpack", "json"):
        raise CannotCarry(
            f"it is stored as '{kind}', all values together, and cannot be opened",
            "save the thread again with LangGraph's own serializer",
        )
    raw = _bytes(data)
    if kind == "msgpack":
        carried(kind, raw, "(all)")
        graph = opened(raw)
    else:
        graph = json.loads(raw)
        values = graph["channel_values"]
        graph["channel_values"] = {
            name: CarriedValue("json", json.dumps(value).encode()) for name, value in values.items()
        }
    if graph["id"] != checkpoint_id:
        raise ValueError(f"it contains the checkpoint '{graph['id']}'")
    return cast(GraphCheckpoint, graph)
