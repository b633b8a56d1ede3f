"""Building blocks of the checkpointer's tests."""

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6


def at(
    thread_id: object, checkpoint_ns: str | None = "", checkpoint_id: str | None = None
) -> RunnableConfig:
    """Return a config; an argument of `None` leaves its key out."""
    configurable: dict[str, object] = {"thread_id": thread_id}
    if checkpoint_ns is not None:
        configurable["checkpoint_ns"] = checkpoint_ns
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def made(
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Checkpoint:
    """Return a checkpoint with a fresh ID; every value has version 1 unless `versions` is given."""
    values = dict(values or {})
    checkpoint: dict[str, Any] = {
        "v": 4,
        "id": str(uuid6(clock_seq=-1)),
        "ts": "2026-01-02T03:04:05.678901+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1) if versions is None else dict(versions),
        "versions_seen": {},
        "updated_channels": None,
    }
    return Checkpoint(**{**checkpoint, **fields})  # type: ignore[typeddict-item]


def metadata(step: int = 0, **fields: Any) -> Any:
    """Return metadata of a step of the loop."""
    return {"source": "loop", "step": step, "parents": {}, **fields}


def id_of(config: RunnableConfig) -> str:
    """Return the ID of the checkpoint that a config names."""
    return str(config["configurable"]["checkpoint_id"])
