"""Delta channels cost as many reads with an Agent Server as docs/agents/agent-server.md says.

The adapter around the saver causes the reads; it runs here without the rest of the server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

FACTORY = Path(__file__).with_name("counting.py")
TURNS = 10


def joined(said: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Append the written messages to the conversation."""
    return said + [text for written in writes for text in written]


def builder(snapshot_frequency: int) -> StateGraph[Any]:
    """Return a graph of one node whose state is a delta channel, written twice in each run."""
    channel: DeltaChannel[list[str]] = DeltaChannel(joined, snapshot_frequency=snapshot_frequency)
    state: Any = TypedDict("state", {"said": Annotated[list[str], channel]})
    graph: StateGraph[Any] = StateGraph(state)
    graph.add_node("answer", lambda state: {"said": [str(len(state["said"]))]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


@pytest.fixture
async def adapter(target: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The saver of an Agent Server, as the server's graphs get it."""
    monkeypatch.setenv("TUSKPOINT_TARGET", target)
    monkeypatch.setenv("LANGGRAPH_CHECKPOINTER", json.dumps({"path": f"{FACTORY}:checkpointer"}))
    monkeypatch.setenv("LANGGRAPH_RUNTIME_EDITION", "inmem")
    for required in ("DATABASE_URI", "REDIS_URI"):
        monkeypatch.setenv(required, "fake")
    # The import reads the environment.
    checkpointers = import_module("langgraph_api._checkpointer")
    await checkpointers.start_checkpointer()
    yield await checkpointers.get_checkpointer()
    await checkpointers.exit_checkpointer()


async def reads(saver: Any, snapshot_frequency: int) -> dict[str, int]:
    """Run a graph many times on one thread; return the reads of the last run."""
    graph = builder(snapshot_frequency).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": str(uuid4())}}
    result: dict[str, Any] = {}
    for _ in range(TURNS):
        saver.reads.clear()
        result = await graph.ainvoke({"said": ["hello"]}, config)
    assert len(result["said"]) == 2 * TURNS
    return dict(saver.reads)


async def test_the_adapter_reads_one_checkpoint_after_another(adapter: Any) -> None:
    saver: BaseCheckpointSaver[str] = adapter._inner
    assert await reads(saver, 1000) == {"GetCheckpoint": 1, "GetDeltaHistory": 1}
    # Each earlier run left three checkpoints: of the input, and of each step.
    assert await reads(adapter, 1000) == {"GetCheckpoint": 1 + 3 * (TURNS - 1)}
    assert await reads(adapter, 4) == {"GetCheckpoint": 1 + 3}
