"""The agent that every measure runs: realistic checkpoints, one step after the other.

A step saves a checkpoint of six channels of which two changed, saves the pending writes of
one task, and loads the thread's latest checkpoint again. A message is about 1 KiB.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.base.id import uuid6

MESSAGE_BYTES = 1024
STEPS_PER_THREAD = 20

Saver = BaseCheckpointSaver[Any]


def message(source: random.Random) -> dict[str, str]:
    """Return a message whose content is about as compressible as prose."""
    words = source.choices(_WORDS, k=MESSAGE_BYTES // 6)
    return {"role": "assistant", "content": " ".join(words)[:MESSAGE_BYTES]}


def _vocabulary() -> list[str]:
    source = random.Random(5)
    letters = "etaoinshrdlucmwfgypbvk"
    return ["".join(source.choices(letters, k=source.randint(2, 8))) for _ in range(4096)]


_WORDS = _vocabulary()


class Agent:
    """One agent at work on one thread after the other.

    Args:
        saver: The checkpointer that is measured.
        name: Prefix of its thread IDs, unique among the agents of a saver.
        steps_per_thread: Steps after which it begins a new thread; 0 for never.
        window: Messages that the state keeps, 2 or more; 0 for all of the thread.
        changing: Channels that change with every step.
    """

    def __init__(
        self,
        saver: Saver,
        name: str,
        steps_per_thread: int = STEPS_PER_THREAD,
        window: int = 0,
        changing: Sequence[str] = ("messages", "findings"),
    ) -> None:
        self._saver = saver
        self._name = name
        self._steps_per_thread = steps_per_thread
        self._window = window
        self._changing = tuple(changing)
        self._source = random.Random(name)
        self._threads = 0
        self._begin_thread()

    def _begin_thread(self) -> None:
        self._step = 0
        self._head: RunnableConfig = {
            "configurable": {"thread_id": f"{self._name}-{self._threads}", "checkpoint_ns": ""}
        }
        self._threads += 1
        self._values: dict[str, Any] = {
            "messages": [],
            "findings": message(self._source)["content"],
            "documents": [message(self._source)["content"] for _ in range(3)],
            "plan": ["read", "compare", "write", "check"],
            "question": message(self._source)["content"][:256],
            "settings": {"model": "none", "temperature": 0.0, "language": "en"},
        }
        self._versions: dict[str, Any] = {}

    @property
    def thread_id(self) -> str:
        """The thread that it works on now."""
        return str(self._head.get("configurable", {})["thread_id"])

    def _next_checkpoint(self) -> tuple[Checkpoint, dict[str, Any]]:
        """Take a step in memory; return the checkpoint and the versions that rose."""
        said = self._values["messages"]
        if self._window:
            said = said[-(self._window - 1) :]
        fresh = {
            "messages": [*said, message(self._source)],
            "findings": message(self._source)["content"],
        }
        self._values |= {channel: fresh[channel] for channel in self._changing}
        risen = self._changing if self._step else tuple(self._values)
        for channel in risen:
            current = self._versions.get(channel)
            self._versions[channel] = self._saver.get_next_version(current, None)
        checkpoint = Checkpoint(
            v=4,
            id=str(uuid6(clock_seq=self._step)),
            ts=datetime.now(UTC).isoformat(),
            channel_values=dict(self._values),
            channel_versions=dict(self._versions),
            versions_seen={"writer": dict(self._versions)},
            updated_channels=sorted(risen),
        )
        return checkpoint, {channel: self._versions[channel] for channel in risen}

    async def save(self) -> None:
        """Save the next checkpoint and the writes of one task."""
        await self.put()
        await self._saver.aput_writes(*self._writes())

    async def put(self) -> None:
        """Save the next checkpoint."""
        self._head = await self._saver.aput(*self._next())

    async def step(self) -> float:
        """Save, then load; return the seconds that the save took."""
        began = time.perf_counter()
        await self.save()
        seconds = time.perf_counter() - began
        self._check(await self._saver.aget_tuple(self._latest()))
        return seconds

    def blocking_step(self) -> float:
        """Do what `step` does, with the methods that block."""
        began = time.perf_counter()
        self._head = self._saver.put(*self._next())
        self._saver.put_writes(*self._writes())
        seconds = time.perf_counter() - began
        self._check(self._saver.get_tuple(self._latest()))
        return seconds

    def _next(self) -> tuple[RunnableConfig, Checkpoint, CheckpointMetadata, dict[str, Any]]:
        """Take a step in memory; return the arguments of `put`."""
        if self._step and self._step == self._steps_per_thread:
            self._begin_thread()
        checkpoint, risen = self._next_checkpoint()
        metadata = CheckpointMetadata(source="loop", step=self._step, parents={})
        self._step += 1
        return self._head, checkpoint, metadata, risen

    def _writes(self) -> tuple[RunnableConfig, list[tuple[str, Any]], str]:
        """Return the arguments of `put_writes`."""
        writes = [("messages", self._values["messages"][-1]), ("branch:to:writer", None)]
        return self._head, writes, f"task-{self._step}"

    def _latest(self) -> RunnableConfig:
        thread_id = self._head.get("configurable", {})["thread_id"]
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    def _check(self, checkpoint: CheckpointTuple | None) -> None:
        saved = self._head.get("configurable", {})["checkpoint_id"]
        if checkpoint is None or checkpoint.checkpoint["id"] != saved:
            raise RuntimeError(f"{type(self._saver).__name__} did not load what it saved")
