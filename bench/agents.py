"""The agent that every measure runs: the calls that LangGraph makes for a small graph.

The graph has two nodes that take turns: `agent` appends a message with a tool call to the channel
`messages`, `tools` appends the tool's answer and replaces the channel `text`. A step saves the
checkpoint that LangGraph saves then (version 4, with the versions of all channels, those that each
node has seen, and the channels that the step updated), saves what the next node writes, and loads
the thread's latest checkpoint again.
"""

from __future__ import annotations

import random
import time
import uuid
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.base.id import uuid6

MESSAGE_BYTES = 1024
TEXT_BYTES = 1024
STEPS_PER_THREAD = 20
_SHORT_BYTES = 64

Saver = BaseCheckpointSaver[Any]


def message(source: random.Random) -> dict[str, str]:
    """Return a message whose content is about as compressible as prose."""
    return {"role": "assistant", "content": prose(source, MESSAGE_BYTES)}


def prose(source: random.Random, length: int) -> str:
    """Return a text of this length, about as compressible as prose."""
    return " ".join(source.choices(_WORDS, k=length // 4))[:length]


def _vocabulary() -> list[str]:
    source = random.Random(5)
    letters = "etaoinshrdlucmwfgypbvk"
    return ["".join(source.choices(letters, k=source.randint(2, 8))) for _ in range(4096)]


_WORDS = _vocabulary()


class StepTimes(NamedTuple):
    """The seconds of each call of a step."""

    put: float
    put_writes: float
    get_tuple: float

    @property
    def save(self) -> float:
        """The seconds of `put` and `put_writes`."""
        return self.put + self.put_writes


class Agent:
    """One agent at work on one thread after the other.

    Args:
        saver: The measured checkpointer.
        name: Prefix of its thread IDs, unique among the agents of a saver.
        steps_per_thread: Steps after which it begins a new thread; 0 for never.
        window: Messages that the state keeps; 0 for all of the thread.
        message_bytes: Characters of each message's content.
        text_bytes: Characters of the channel `text`; 0 for no such channel.
    """

    def __init__(
        self,
        saver: Saver,
        name: str,
        steps_per_thread: int = STEPS_PER_THREAD,
        window: int = 0,
        message_bytes: int = _SHORT_BYTES,
        text_bytes: int = TEXT_BYTES,
    ) -> None:
        self._saver = saver
        self._name = name
        self._steps_per_thread = steps_per_thread
        self._window = window
        self._message_bytes = message_bytes
        self._text_bytes = text_bytes
        self._source = random.Random(name)
        self._threads = 0
        self._begin_thread()

    def _begin_thread(self) -> None:
        self._step = 0
        self._head: RunnableConfig = {
            "configurable": {"thread_id": f"{self._name}-{self._threads}", "checkpoint_ns": ""}
        }
        self._threads += 1
        self._values: dict[str, Any] = {"messages": []}
        version = self._saver.get_next_version(None, None)
        self._versions: dict[str, Any] = {"__start__": version}
        self._seen: dict[str, dict[str, Any]] = {
            "__input__": {},
            "__start__": {"__start__": version},
        }
        question = HumanMessage(self._prose(), id=self._id())
        self._output: dict[str, Any] = {"messages": [question], "branch:to:agent": None}
        if self._text_bytes:
            self._output["text"] = ""
        self._node = "__start__"

    @property
    def thread_id(self) -> str:
        """The agent's current thread."""
        return str(self._head.get("configurable", {})["thread_id"])

    def _prose(self) -> str:
        return prose(self._source, self._message_bytes)

    def _id(self) -> str:
        return str(uuid.UUID(bytes=self._source.randbytes(16), version=4))

    def _next_checkpoint(self) -> tuple[Checkpoint, dict[str, Any]]:
        """Apply the last node's writes; return the checkpoint and the new versions."""
        consumed = "__start__" if self._node == "__start__" else f"branch:to:{self._node}"
        version = self._saver.get_next_version(max(self._versions.values()), None)
        # A consumed channel has no value, but a new version.
        self._values.pop(consumed, None)
        said: list[BaseMessage] = [*self._values["messages"], *self._output["messages"]]
        self._values |= {**self._output, "messages": said[-self._window :]}
        risen = dict.fromkeys([consumed, *self._output], version)
        if self._node != "__start__":
            self._seen[self._node] = {consumed: self._versions[consumed]}
        self._versions |= risen
        checkpoint = Checkpoint(
            v=4,
            id=str(uuid6(clock_seq=self._step)),
            ts=datetime.now(UTC).isoformat(),
            channel_values=dict(self._values),
            channel_versions=dict(self._versions),
            versions_seen={node: dict(seen) for node, seen in self._seen.items()},
            updated_channels=sorted(self._output),
        )
        return checkpoint, risen

    def _run_node(self) -> None:
        """Run the next node, which appends a message; `tools` also replaces the text."""
        call_id = f"call-{self._step}"
        if self._node != "agent":
            self._node, following = "agent", "tools"
            call = {"name": "search", "args": {"query": self._prose()}, "id": call_id}
            said: BaseMessage = AIMessage("", tool_calls=[call], id=self._id())
        else:
            self._node, following = "tools", "agent"
            said = ToolMessage(self._prose(), tool_call_id=call_id, id=self._id())
        self._output = {"messages": [said], f"branch:to:{following}": None}
        if self._node == "tools" and self._text_bytes:
            self._output["text"] = prose(self._source, self._text_bytes)

    async def save(self) -> None:
        """Save the next checkpoint and the writes of one task."""
        await self.put()
        await self.put_writes()

    async def put(self) -> None:
        """Save the next checkpoint."""
        self._head = await self._saver.aput(*self._next())

    async def put_writes(self) -> None:
        """Save what the next node wrote."""
        await self._saver.aput_writes(*self._writes())

    async def load(self) -> None:
        """Load the latest checkpoint of the thread."""
        self._check(await self._saver.aget_tuple(self._latest()))

    async def step(self) -> StepTimes:
        """Save, then load; return the seconds of each call."""
        began = time.perf_counter()
        await self.put()
        put = time.perf_counter()
        await self.put_writes()
        written = time.perf_counter()
        await self.load()
        return StepTimes(put - began, written - put, time.perf_counter() - written)

    def blocking_step(self) -> StepTimes:
        """Run `step` with the blocking methods."""
        began = time.perf_counter()
        self.blocking_put()
        put = time.perf_counter()
        self.blocking_put_writes()
        written = time.perf_counter()
        self.blocking_load()
        return StepTimes(put - began, written - put, time.perf_counter() - written)

    def blocking_put(self) -> None:
        """Run `put` with the blocking method."""
        self._head = self._saver.put(*self._next())

    def blocking_put_writes(self) -> None:
        """Run `put_writes` with the blocking method."""
        self._saver.put_writes(*self._writes())

    def blocking_load(self) -> None:
        """Run `load` with the blocking method."""
        self._check(self._saver.get_tuple(self._latest()))

    def _next(self) -> tuple[RunnableConfig, Checkpoint, CheckpointMetadata, dict[str, Any]]:
        """Return the arguments of `put`, and run the node that follows."""
        if self._step and self._step == self._steps_per_thread:
            self._begin_thread()
        checkpoint, risen = self._next_checkpoint()
        metadata = CheckpointMetadata(source="loop", step=self._step, parents={})
        self._step += 1
        self._run_node()
        return self._head, checkpoint, metadata, risen

    def _writes(self) -> tuple[RunnableConfig, list[tuple[str, Any]], str, str]:
        """Return the arguments of `put_writes`."""
        path = f"~__pregel_pull, {self._node}"
        return self._head, [*self._output.items()], self._id(), path

    def _latest(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ""}}

    def _check(self, checkpoint: CheckpointTuple | None) -> None:
        saved = self._head.get("configurable", {})["checkpoint_id"]
        if checkpoint is None or checkpoint.checkpoint["id"] != saved:
            raise RuntimeError(f"{type(self._saver).__name__} did not load what it saved")
