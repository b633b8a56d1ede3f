"""Search through both clients and the saver, on a real server's own index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypedDict

import numpy as np
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tests.unit.client.faces import Face
from tuskpoint import (
    AsyncClient,
    InvalidRequest,
    TuskPointSaver,
)
from tuskpoint_server.api.server.server import Server

BIG = "x" * (3 * 1024 * 1024)


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def load(face: Face, found: Any) -> Any:
    """Load what a search found, as it stands."""
    return await face.call(
        "load", found.thread_id, found.checkpoint_id, checkpoint_ns=found.checkpoint_ns
    )


async def test_a_saved_checkpoint_is_found_by_words_and_loads(face: Face) -> None:
    await face.call("save", "t", {"n": 1}, summary="The planner split the report.")
    started = await face.call(
        "save",
        "t",
        {"draft": "Walruses live in the Arctic."},
        summary="The writer started on the introduction.",
        metadata={"outcome": "success"},
        checkpoint_ns="inner",
    )
    results = await face.call("search_history", "When did the writer start?")
    assert (results.mode, results.metric, results.unindexed) == ("lexical", "bm25", 0)
    assert (results.truncated, results.warnings) == (False, ())
    content, metadata, distance = results[0]
    assert content == '{"draft":"Walruses live in the Arctic."}'
    assert metadata == {"outcome": "success"}
    assert 0 < distance < 1
    assert results[0].checkpoint_id == started
    record = await load(face, results[0])
    assert record.state == {"draft": "Walruses live in the Arctic."}
    assert (record.summary, record.metadata) == (results[0].summary, metadata)


async def test_vectors_find_the_nearest_however_it_was_saved(face: Face) -> None:
    await face.call("save", "east", {"n": 1}, vector=[1, 0])
    await face.call("save", "north", {"big": BIG}, vector=np.array([0, 2]))
    await face.call("save", "nowhere", {"n": 1})
    results = await face.call("search_similar", np.array([0, 1], dtype=np.float32))
    assert [one.thread_id for one in results] == ["north", "east"]
    assert [distance for *_, distance in results] == pytest.approx([0, 1])
    assert (results.mode, results.metric) == ("vector", "cosine")
    assert (await load(face, results[0])).state == {"big": BIG}
    results = await face.call("search_similar", [0, 0], metric="l2", limit=1)
    assert [(one.thread_id, one.distance) for one in results] == [("east", 1.0)]
    with pytest.raises(InvalidRequest, match="2 components"):
        await face.call("search_similar", [1, 2, 3])


async def test_a_search_without_vectors_says_why_it_finds_nothing(face: Face) -> None:
    await face.call("save", "words", {"n": 1}, summary="Only words.")
    [warning] = (await face.call("search_similar", [0, 1])).warnings
    assert warning.kind == "no_vectors"
    hint = "save with one, or start the server with --embedder"
    assert str(warning) == f"no checkpoint has a vector: {hint}"
    await face.call("save", "east", {"n": 1}, vector=[1, 0])
    [warning] = (await face.call("search_similar", [0, 1], "words")).warnings
    assert str(warning) == f"no checkpoint of thread 'words' has a vector: {hint}"
    filtered = await face.call("search_similar", [0, 1], filter_metadata={"outcome": "success"})
    assert (len(filtered), filtered.warnings) == (0, ())
    found = await face.call("search_similar", [0, 1])
    assert (len(found), found.warnings) == (1, ())


# --- the saver ------------------------------------------------------------------------


class State(TypedDict, total=False):
    current_plan: str
    done: list[str]


def writing_graph(saver: TuskPointSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"current_plan": "interview the lighthouse keeper"})
    graph.add_node("write", lambda state: {"current_plan": "publish", "done": ["interview"]})
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=saver)


def vectorize(checkpoint: Any, metadata: Any) -> Any:
    """Return a vector that says what is planned, and none where nothing is."""
    plan = checkpoint["channel_values"].get("current_plan")
    return None if plan is None else np.array([plan == "publish", plan != "publish"], float)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ask(saver: TuskPointSaver, kind: str, name: str, *arguments: Any, **named: Any) -> Any:
    if kind == "async":
        return await getattr(saver, f"a{name}")(*arguments, **named)
    return await asyncio.to_thread(getattr(saver, name), *arguments, **named)


async def test_a_graph_continues_from_a_checkpoint_that_was_found(
    server: Server, kind: str
) -> None:
    async with TuskPointSaver(f"127.0.0.1:{server.port}", vectorize=vectorize) as saver:
        graph = writing_graph(saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        await graph.ainvoke({"done": []}, config)
        (found,) = await ask(saver, kind, "search_history", "the lighthouse keeper", thread_id="t")
        assert found.content == "interview the lighthouse keeper"
        loaded = await ask(saver, kind, "get_tuple", found.config)
        assert loaded.config == found.config
        assert (await graph.aget_state(found.config)).next == ("write",)
        (near,) = await ask(saver, kind, "search_similar", [0, 1], "t", 1)
        assert near.ref == found.ref
        ended = await graph.ainvoke(None, found.config)
        assert ended == {"current_plan": "publish", "done": ["interview"]}


async def test_a_question_of_a_graph_and_a_label_are_found(server: Server, kind: str) -> None:
    def approve(_: State) -> State:
        return {"done": [interrupt({"question": "Shall the walrus story be published?"})]}

    address = f"127.0.0.1:{server.port}"
    async with TuskPointSaver(address) as saver, AsyncClient(address) as client:
        graph: Any = StateGraph(State)
        graph.add_node("approve", approve)
        graph.add_edge(START, "approve")
        asking = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}
        await asking.ainvoke({"done": []}, config)
        waiting = (await asking.aget_state(config)).config["configurable"]["checkpoint_id"]
        (found,) = await ask(saver, kind, "search_history", "walrus story")
        assert found.checkpoint_id == waiting
        assert found.content.startswith('asks: {"question":"Shall the walrus story be published?"}')
        await client.set_label("t", "editor asked", checkpoint_id=waiting)
        (found,) = await ask(saver, kind, "search_history", '"editor asked"')
        assert found.checkpoint_id == waiting
        assert (await asking.ainvoke(Command(resume="yes"), config)) == {"done": ["yes"]}
