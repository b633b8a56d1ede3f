"""Values of LangGraph as their stored bytes: no object is built, and no type is looked up.

So a thread arrives byte for byte, even if the classes of its values are not installed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, JsonPlusSerializer

from ..langgraph._encode import encode_checkpoint
from ..langgraph._summary import bounded, describe
from ..v1.checkpoint_pb2 import Checkpoint
from ..v1.value_pb2 import PendingWrite, Value
from .threads import Key, Problem, called

_PICKLE = "pickle"
_KEYS_OF_ANY_TYPE = ormsgpack.OPT_NON_STR_KEYS
_EXTENSIONS = range(EXT_DELTA_SNAPSHOT + 1)
"""Codes of LangGraph's extensions, which contain msgpack."""

_EXT_HEADERS = {0xC7: 2, 0xC8: 3, 0xC9: 5} | dict.fromkeys(range(0xD4, 0xD9), 1)
"""First byte of an extension of msgpack, and the position of its code."""


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """A value in the encoding of its source."""

    type: str
    data: bytes


class CarryingSerializer(JsonPlusSerializer):
    """Writes carried values unchanged.

    Reads like LangGraph's serializer, but builds only objects of LangGraph's own types, and keeps
    encrypted values unchanged.
    """

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and bytes of a value."""
        if isinstance(obj, CarriedValue):
            return obj.type, obj.data
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value for a type and bytes."""
        return CarriedValue(*data) if "+" in data[0] else super().loads_typed(data)


SERIALIZER = CarryingSerializer()


def opened(data: bytes) -> Any:
    """Return the outermost value of msgpack. Extensions in it stay packed, and can be packed again.

    Raises:
        ValueError: The bytes are not msgpack.
    """
    return ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext, option=_KEYS_OF_ANY_TYPE)


def carried(kind: object, data: object, channel: str) -> CarriedValue:
    """Return a stored value, after checking that it can be read.

    Raises:
        CannotCarry: The value is a pickle.
        ValueError: The value cannot be read.
    """
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"the value of channel '{channel}' has no type")
    if kind.split("+")[0] == _PICKLE:
        raise pickled(channel)
    raw = b"" if data is None else data
    if not isinstance(raw, bytes):
        raise ValueError(f"the value of channel '{channel}' is not bytes")
    try:
        if kind == "msgpack":
            ormsgpack.unpackb(raw, ext_hook=_walked, option=_KEYS_OF_ANY_TYPE)
        elif kind == "json":
            json.loads(raw)
    except ValueError as error:
        raise ValueError(f"the value of channel '{channel}' is not {kind}: {error}") from error
    return CarriedValue(kind, raw)


class CannotCarry(ValueError):
    """A checkpoint is intact, but cannot be moved.

    Attributes:
        hint: Advice for people.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def pickled(channel: str) -> CannotCarry:
    """Return the refusal of a pickle, which could run code when it is loaded."""
    return CannotCarry(
        f"the value of channel '{channel}' is a pickle",
        "nothing here loads pickles; save the thread again without `pickle_fallback`",
    )


def _walked(code: int, data: bytes) -> None:
    if code in _EXTENSIONS:
        ormsgpack.unpackb(data, ext_hook=_walked, option=_KEYS_OF_ANY_TYPE)


def problem_of(source: str, thread_id: str, checkpoint: Key, error: Exception) -> Problem:
    """Return the problem of a checkpoint that cannot be moved."""
    where = f"{called(checkpoint)} of thread '{thread_id}' in {source}"
    if isinstance(error, CannotCarry):
        return Problem(f"{where}: {error}", error.hint)
    detail = str(error) or type(error).__name__
    if isinstance(error, AttributeError | KeyError | TypeError):
        detail = f"a part of it is missing or of another type ({detail})"
    return Problem(
        f"{where} is damaged: {detail}",
        "repair the source, or leave the thread out",
        is_damage=True,
    )


class Encoder:
    """Builds messages from the checkpoints of one thread.

    Args:
        thread_id: The thread.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._before: dict[str, tuple[str, dict[str, Any]]] = {}  # last checkpoint of a namespace

    def message(
        self, checkpoint_ns: str, parent_id: str, graph: GraphCheckpoint, metadata: bytes
    ) -> Checkpoint:
        """Return a checkpoint with all values.

        Args:
            checkpoint_ns: Namespace of the checkpoint.
            parent_id: Parent of the checkpoint; empty for no parent.
            graph: The checkpoint. Its values are LangGraph's objects, or carried values.
            metadata: The metadata, kept unchanged.

        Raises:
            Exception: The checkpoint does not have LangGraph's form.
        """
        config: RunnableConfig = {
            "configurable": {
                "thread_id": self._thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": parent_id,
            }
        }
        message = Checkpoint()
        versions, values = graph["channel_versions"], graph["channel_values"]
        members = json.loads(metadata.decode("utf-8", "surrogatepass"))
        # All channels count as new, so that no channel refers to the parent's content.
        encode_checkpoint(config, graph, {}, versions, SERIALIZER, message)
        message.metadata_json = metadata
        counted = members.get("counters_since_delta_snapshot") or {}
        snapshots = [name for name, value in values.items() if _is_snapshot(value)]
        message.state.delta_channels[:] = dict.fromkeys([*counted, *snapshots])
        last_id, last = self._before.get(checkpoint_ns, ("", {}))
        before = last if last_id == parent_id else {}
        new = {name: version for name, version in versions.items() if before.get(name) != version}
        message.summary = bounded(describe(config, graph, members, new))
        self._before[checkpoint_ns] = graph["id"], versions
        return message


def pending_write(
    task_id: str, task_path: str, idx: int, channel: str, value: CarriedValue
) -> PendingWrite:
    """Return a write."""
    return PendingWrite(
        task_id=task_id,
        task_path=task_path,
        idx=idx,
        channel=channel,
        value=Value(type=value.type, data=value.data),
    )


def _is_snapshot(value: Any) -> bool:
    if isinstance(value, ormsgpack.Ext):
        value = CarriedValue("msgpack", ormsgpack.packb(value))
    if not isinstance(value, CarriedValue):
        return type(value).__name__ == "_DeltaSnapshot"
    if value.type != "msgpack" or len(value.data) < 6:
        return False
    place = _EXT_HEADERS.get(value.data[0])
    return place is not None and value.data[place] == EXT_DELTA_SNAPSHOT
