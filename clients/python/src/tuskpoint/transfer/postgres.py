"""Threads in a database of LangGraph's `PostgresSaver`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.value_pb2 import PendingWrite
from .carried import SERIALIZER, CarriedValue, Encoder, carried, pending_write, problem_of
from .threads import Key, Problem, ThreadSettings

_ROWS_AT_ONCE = 16
_CONNECT_SECONDS = 10
_COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_name IN ('checkpoints', 'checkpoint_blobs', 'checkpoint_writes')"
    " AND table_schema = ANY (current_schemas(false))"
)
_KEYS = (
    "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s"
    ' ORDER BY checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C"'
)
_CHECKPOINTS = (
    "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text, metadata::text"
    " FROM checkpoints WHERE thread_id = %s AND (checkpoint_ns, checkpoint_id) IN"
    " (SELECT * FROM unnest(%s::text[], %s::text[]))"
)
_BLOBS = (
    "SELECT checkpoint_ns, checkpoint_id, channel, blobs.type, blobs.blob"
    " FROM (SELECT * FROM checkpoints WHERE thread_id = %s AND (checkpoint_ns, checkpoint_id) IN"
    " (SELECT * FROM unnest(%s::text[], %s::text[]))) AS here"
    " CROSS JOIN LATERAL jsonb_each_text(checkpoint -> 'channel_versions')"
    " AS versions (channel, version)"
    " JOIN checkpoint_blobs AS blobs USING (thread_id, checkpoint_ns, channel, version)"
)
_WRITES = (
    "SELECT checkpoint_ns, checkpoint_id, task_id, {task_path}, idx, channel, type, blob"
    " FROM checkpoint_writes WHERE thread_id = %s AND (checkpoint_ns, checkpoint_id) IN"
    " (SELECT * FROM unnest(%s::text[], %s::text[]))"
    ' ORDER BY {task_path} COLLATE "C", task_id COLLATE "C", idx'
)
_EMPTY = "empty"


class PostgresSource:
    """The threads of a database, which is opened read-only.

    Args:
        url: URL of the database.

    Raises:
        Problem: The database does not answer, or has no tables of the saver.
    """

    is_exact = True
    serializer = SERIALIZER

    def __init__(self, url: str) -> None:
        try:
            settings = psycopg.conninfo.conninfo_to_dict(url)
            self.name = _name(settings)
            patience = settings.get("connect_timeout") or _CONNECT_SECONDS
            self._connection = psycopg.connect(url, connect_timeout=patience)
            self._connection.read_only = True
            # All reads of a thread see the same state of the database.
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            columns = {(str(table), str(name)) for table, name in self._ask(_COLUMNS)}
        except psycopg.Error as error:
            raise Problem(_flat(error), "check the URL, and that the database runs") from error
        self.release()
        if not {("checkpoints", "checkpoint_id"), ("checkpoint_blobs", "version")} <= columns:
            self.close()
            raise Problem(
                f"{self.name} has no tables of LangGraph's PostgresSaver",
                "name its schema in the URL with `?options=-csearch_path%3DSCHEMA`",
            )
        has_path = ("checkpoint_writes", "task_path") in columns
        self._writes = _WRITES.format(task_path="task_path" if has_path else "''")

    def threads(self) -> Iterator[str]:
        """See `Source`."""
        last: Sequence[str] = ()
        while True:
            after = "WHERE thread_id > %s" if last else ""
            rows = self._ask(
                f"SELECT thread_id FROM checkpoints {after} ORDER BY thread_id LIMIT 1",  # noqa: S608
                last,
            )
            if not rows:
                return
            last = (str(rows[0][0]),)
            yield last[0]

    def size(self, thread_ids: Collection[str] | None) -> int:
        """See `Source`."""
        query = "SELECT count(*) FROM checkpoints"
        if thread_ids is not None:
            return int(self._ask(f"{query} WHERE thread_id = ANY (%s)", (list(thread_ids),))[0][0])
        return int(self._ask(query)[0][0])

    def settings(self, thread_id: str) -> ThreadSettings:
        """See `Source`."""
        return ThreadSettings()

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """See `Source`."""
        encoder = Encoder(thread_id)
        keys = [
            (str(ns), str(checkpoint_id)) for ns, checkpoint_id in self._ask(_KEYS, (thread_id,))
        ]
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            batch = keys[start : start + _ROWS_AT_ONCE]
            parameters = (
                thread_id,
                [ns for ns, _ in batch],
                [checkpoint_id for _, checkpoint_id in batch],
            )
            rows = {(row[0], row[1]): row[2:] for row in self._ask(_CHECKPOINTS, parameters)}
            blobs = _grouped(self._ask(_BLOBS, parameters))
            writes = _grouped(self._ask(self._writes, parameters))
            for key in batch:
                parent_id, text, metadata = rows[key]
                try:
                    graph = _checkpoint(text, key[1], blobs.get(key, ()))
                    message = encoder.message(key[0], parent_id or "", graph, metadata.encode())
                    message.writes.extend(_pending(writes.get(key, ())))
                except Problem:
                    raise
                except Exception as error:
                    raise problem_of(self.name, thread_id, key, error) from error
                yield message

    def saver(self) -> BaseCheckpointSaver[Any]:
        """Return LangGraph's saver on the same state of the database.

        Raises:
            ImportError: The saver is not installed.
        """
        from langgraph.checkpoint.postgres import PostgresSaver

        saver: BaseCheckpointSaver[Any]
        saver = PostgresSaver(cast(Any, self._connection), serde=SERIALIZER)
        return saver

    def release(self) -> None:
        """See `Source`."""
        self._connection.rollback()

    def close(self) -> None:
        """See `Source`."""
        self._connection.close()

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query.encode(), values).fetchall()
        except psycopg.Error as error:
            hint = "run the import again: it continues where it ended"
            raise Problem(f"{self.name} cannot be read: {_flat(error)}", hint) from error


def _name(settings: Mapping[str, Any]) -> str:
    parts = (
        f"{name}={settings[name]}" for name in ("host", "port", "dbname") if settings.get(name)
    )
    return f"PostgreSQL ({' '.join(parts)})"


def _flat(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _grouped(rows: Sequence[tuple[Any, ...]]) -> dict[Key, list[tuple[Any, ...]]]:
    groups: dict[Key, list[tuple[Any, ...]]] = {}
    for ns, checkpoint_id, *rest in rows:
        groups.setdefault((ns, checkpoint_id), []).append(tuple(rest))
    return groups


def _checkpoint(text: str, checkpoint_id: str, blobs: Sequence[tuple[Any, ...]]) -> GraphCheckpoint:
    """Return a checkpoint with packed values, except texts, numbers and other scalars.

    Raises:
        ValueError: The checkpoint cannot be read.
    """
    graph = json.loads(text)
    if graph["id"] != checkpoint_id:
        raise ValueError(f"it contains the checkpoint '{graph['id']}'")
    values: dict[str, CarriedValue] = dict(graph.get("channel_values") or {})
    for channel, kind, blob in blobs:
        if kind != _EMPTY:
            values[channel] = carried(kind, blob, channel)
    graph["channel_values"] = values
    return cast(GraphCheckpoint, graph)


def _pending(rows: Sequence[tuple[Any, ...]]) -> Iterator[PendingWrite]:
    for task_id, task_path, idx, channel, kind, blob in rows:
        yield pending_write(task_id, task_path, idx, channel, carried(kind, blob, channel))
