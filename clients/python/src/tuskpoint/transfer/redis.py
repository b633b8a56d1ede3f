"""Threads in a database of LangGraph's `RedisSaver`.

Redis has JSON instead of LangGraph's own encoding, so the saver opens the values, and the import
encodes them again. A value that the saver cannot build on this machine would lose its type, and is
refused.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from collections.abc import Collection, Iterator
from importlib import import_module
from itertools import groupby
from typing import Any, cast
from urllib.parse import urlsplit

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.redis import RedisSaver
from langgraph.checkpoint.redis.util import from_storage_safe_id, from_storage_safe_str
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from redis import Redis
from redis.exceptions import RedisError

from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.value_pb2 import PendingWrite
from .carried import CannotCarry, CarriedValue, Encoder, pending_write, problem_of
from .threads import Key, Problem, ThreadSettings

_PAGE = 500
_CONNECT_SECONDS = 10
_CHECKPOINTS, _WRITES = "checkpoint:", "checkpoint_write:"
_NAMES = ("$.thread_id", "$.checkpoint_ns", "$.checkpoint_id")


class RedisSource:
    """The threads of a database, which the import only reads.

    The constructor reads the keys of all checkpoints and writes, and keeps them in memory.

    Args:
        url: URL of the database.

    Raises:
        Problem: The database does not answer, or lacks the modules that the saver needs.
    """

    # Values are encoded again. The saver misses writes that came before their checkpoint, so this
    # class reads writes from their keys.
    is_exact = False
    serializer = JsonPlusSerializer()

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.name = f"Redis ({place.hostname or 'localhost'}:{place.port or 6379}{place.path})"
        try:
            self._redis = Redis.from_url(url, socket_connect_timeout=_CONNECT_SECONDS)
            self._saver = RedisSaver(redis_client=self._redis)
            if not self._saver.checkpoints_index.exists():
                raise Problem(
                    f"{self.name} has no index of LangGraph's RedisSaver",
                    "check the URL and its database; other prefixes of keys are not known here",
                )
            self._saver.setup()  # creates nothing if the index exists
            self._keys = self._read_keys()
            self._write_keys = sorted(_text(key) for key in self._redis.scan_iter(f"{_WRITES}*"))
        except (RedisError, ValueError) as error:
            raise Problem(
                f"{self.name} cannot be read: {error}",
                "check the URL, and that the server has RedisJSON and RediSearch",
            ) from error

    def _read_keys(self) -> dict[str, list[Key]]:
        """Return the checkpoints of each thread, smallest ID first."""
        places: list[tuple[str, str, str]] = []
        names = iter(self._redis.scan_iter(f"{_CHECKPOINTS}*", count=_PAGE))
        while batch := [name for _, name in zip(range(_PAGE), names, strict=False)]:
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in batch:
                    pipeline.json().get(_text(name), *_NAMES)
                answers = pipeline.execute()
            for answer in answers:
                if answer is None:
                    continue  # the checkpoint expired in the meantime
                thread, ns, checkpoint_id = (answer[name] for name in _NAMES)
                if thread and ns and checkpoint_id:
                    thread_id = from_storage_safe_id(thread[0])
                    place = from_storage_safe_id(checkpoint_id[0]), from_storage_safe_str(ns[0])
                    places.append((thread_id, *place))
        places.sort()
        return {
            thread_id: [(ns, checkpoint_id) for _, checkpoint_id, ns in rows]
            for thread_id, rows in groupby(places, lambda place: place[0])
        }

    def threads(self) -> Iterator[str]:
        """See `Source`."""
        yield from self._keys

    def size(self, thread_ids: Collection[str] | None) -> int:
        """See `Source`."""
        ids = self._keys if thread_ids is None else thread_ids
        return sum(len(self._keys.get(thread_id, ())) for thread_id in ids)

    def settings(self, thread_id: str) -> ThreadSettings:
        """See `Source`."""
        return ThreadSettings()

    def checkpoints(self, thread_id: str) -> Iterator[Checkpoint]:
        """See `Source`."""
        encoder = Encoder(thread_id)
        for key in self._keys.get(thread_id, ()):
            try:
                checkpoint_tuple = self._saver.get_tuple(_config(thread_id, key))
                if checkpoint_tuple is None:
                    raise ValueError("it expired or was deleted meanwhile")
                graph = dict(checkpoint_tuple.checkpoint)
                # Redis stored them in this way, and LangGraph reads them from the parent's writes.
                graph.pop("type", None)
                graph.pop("pending_sends", None)
                graph["channel_values"] = {
                    name: self._packed(value, name)
                    for name, value in checkpoint_tuple.checkpoint["channel_values"].items()
                }
                parent = (checkpoint_tuple.parent_config or {}).get("configurable", {})
                metadata = json.dumps(
                    checkpoint_tuple.metadata, ensure_ascii=False, allow_nan=False
                ).encode()
                message = encoder.message(
                    key[0], parent.get("checkpoint_id") or "", cast(Any, graph), metadata
                )
                message.writes.extend(self._writes_of(thread_id, key))
            except RedisError as error:
                hint = "run the import again: it continues where it ended"
                raise Problem(f"{self.name} cannot be read: {error}", hint) from error
            except Problem:
                raise
            except Exception as error:
                raise problem_of(self.name, thread_id, key, error) from error
            yield message

    def _writes_of(self, thread_id: str, key: Key) -> list[PendingWrite]:
        prefix = self._saver._make_redis_checkpoint_writes_key(thread_id, *key, "", None)
        writes = []
        for place in range(bisect_left(self._write_keys, prefix), len(self._write_keys)):
            name = self._write_keys[place]
            if not name.startswith(prefix):
                break
            row = cast(dict[str, Any], self._redis.json().get(name))
            if row is None:
                raise ValueError("a write expired meanwhile")
            channel = row["channel"]
            data = (row["type"], base64.b64decode(row["blob"]))
            value = self._packed(self._saver.serde.loads_typed(data), channel)
            path = row.get("task_path") or ""
            writes.append(pending_write(row["task_id"], path, int(row["idx"]), channel, value))
        return sorted(writes, key=lambda write: (write.task_path, write.task_id, write.idx))

    def _packed(self, value: Any, channel: str) -> CarriedValue:
        _check_built(value, channel)
        return CarriedValue(*self.serializer.dumps_typed(value))

    def saver(self) -> BaseCheckpointSaver[Any]:
        """Return LangGraph's saver on the database."""
        saver: BaseCheckpointSaver[Any] = self._saver
        return saver

    def release(self) -> None:
        """See `Source`."""

    def close(self) -> None:
        """See `Source`."""
        self._redis.close()


def _check_built(value: Any, channel: str) -> None:
    """Check that no class is missing on this machine that an installation would build.

    Raises:
        CannotCarry: A class is missing.
    """
    if isinstance(value, dict):
        names = value.get("id")
        if value.get("lc") in (1, 2) and value.get("type") == "constructor" and names:
            _check_installed(names, channel)
        for item in value.values():
            _check_built(item, channel)
    elif isinstance(value, list | tuple | set):
        for item in value:
            _check_built(item, channel)


def _check_installed(names: list[str], channel: str) -> None:
    module = ".".join(names[:-1])
    try:
        import_module(module)
    except ImportError as error:
        raise CannotCarry(
            f"channel '{channel}' has an object of {module}.{names[-1]}, which is not here",
            "install it, or put it on PYTHONPATH: LangGraph's saver for Redis has to build it",
        ) from error


def _config(thread_id: str, key: Key) -> RunnableConfig:
    ns, checkpoint_id = key
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
