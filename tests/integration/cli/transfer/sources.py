"""Databases that LangGraph's own savers filled with the runs of real graphs."""

from __future__ import annotations

import importlib.util
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from bench.running.postgres import LeftOutError
from tests.interop.graphs import delta_graph, interrupted_graph, parallel_graph
from tests.kit.databases import in_postgres, place, postgres

REDIS_VARIABLE = "TUSKPOINT_TEST_REDIS"
"""URL of a server with RedisJSON and RediSearch, whose database the tests empty."""

GRAPHS: dict[str, Any] = {
    "parallel": parallel_graph,
    "interrupted": interrupted_graph,
    "forked": parallel_graph,
    "delta": delta_graph,
}
"""Threads that a graph ran on."""

Saver = BaseCheckpointSaver[Any]


@dataclass(frozen=True)
class Filled:
    """A database with threads.

    Attributes:
        name: Argument of `tuskpoint import`.
        saver: LangGraph's saver on the database.
    """

    name: str
    saver: Saver


def config(thread_id: str, checkpoint_id: str | None = None) -> Any:
    """Return the config of a thread, or of a checkpoint in its root namespace."""
    named = {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""} if checkpoint_id else {}
    return {"configurable": {"thread_id": thread_id, **named}}


@contextmanager
def filled(kind: str, folder: Path) -> Iterator[Filled]:
    """Open an empty database of a kind, and run graphs on it."""
    with opened(kind, folder) as database:
        fill(database.saver)
        yield database


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Filled]:
    """Open an empty database of a kind: "sqlite", "postgresql" or "redis"."""
    if kind == "sqlite":
        with SqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
            yield Filled(str(folder / "threads.db"), saver)
    elif kind == "postgresql":
        from langgraph.checkpoint.postgres import PostgresSaver

        try:
            with in_postgres(postgres()):
                url = str(place(folder / "threads"))
        except LeftOutError as reason:
            pytest.skip(str(reason))
        with PostgresSaver.from_conn_string(url) as tables:
            tables.setup()
            yield Filled(url, tables)
    else:
        with _redis() as database:
            yield database


@contextmanager
def _redis() -> Iterator[Filled]:
    url = os.environ.get(REDIS_VARIABLE, "")
    if not url:
        pytest.skip(f"{REDIS_VARIABLE} names no server")
    if importlib.util.find_spec("langgraph.checkpoint.redis") is None:
        pytest.skip("langgraph-checkpoint-redis is not installed")
    import redis
    from langgraph.checkpoint.redis import RedisSaver

    redis.Redis.from_url(url).flushdb()
    with RedisSaver.from_conn_string(url) as saver:
        saver.setup()
        yield Filled(url, cast(Saver, saver))


def fill(saver: Saver) -> None:
    """Run graphs with parallel tasks, an open interrupt, a fork, delta channels and messages."""
    parallel_graph(saver).invoke({"topic": "tusks", "log": []}, config("parallel"))
    asking = interrupted_graph(saver)
    asking.invoke({"topic": "tusks"}, config("interrupted"))
    asking.invoke(Command(resume="the first answer"), config("interrupted"))
    forking = parallel_graph(saver)
    forking.invoke({"topic": "tusks", "log": []}, config("forked"))
    earlier = [*forking.get_state_history(config("forked"))][2].config
    forking.invoke(None, forking.update_state(earlier, {"topic": "teeth", "log": ["changed"]}))
    delta_graph(saver).invoke({"items": ["begin"]}, config("delta"))
    _talking(saver).invoke({"messages": [HumanMessage("hello", id="1")]}, config("messages"))


def _talking(saver: Saver) -> Any:
    def answer(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [HumanMessage(f"{len(state['messages'])} said", id=str(uuid.uuid4()))]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver)


def put_steps(saver: Saver, thread_id: str, values: Iterable[Any], *, layout: int = 4) -> list[str]:
    """Put a line of checkpoints whose only channel has these values.

    The versions are 1, 2, 3. Return the IDs.
    """
    where: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saved = []
    for step, value in enumerate(values, 1):
        checkpoint = empty_checkpoint()
        checkpoint["v"] = layout
        checkpoint["channel_values"] = {"text": value}
        checkpoint["channel_versions"] = cast(Any, {"text": step})
        checkpoint["versions_seen"] = cast(Any, {"node": {"text": step}})
        where = saver.put(
            where,
            checkpoint,
            {"source": "loop", "step": step, "parents": {}},
            checkpoint["channel_versions"],
        )
        saved.append(checkpoint["id"])
    return saved
