"""Search works through both clients and the saver, on a real server's own index."""

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
    BackgroundSaver,
    InvalidRequest,
    PreconditionFailed,
    TuskPointSaver,
)
from tuskpoint_server.api.server.server import Server

BIG = "x" * (3 * 1024 * 1024)


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Face]:
    made = Face(request.param, f"127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def load(face: Face, result: Any) -> Any:
    """Load the checkpoint of a search result."""
    return await face.call(
        "load", result.thread_id, result.checkpoint_id, checkpoint_ns=result.checkpoint_ns
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


async def test_a_checkpoint_without_text_shows_its_summary(face: Face) -> None:
    await face.call("save", "t", {}, summary="Booked the night train.")
    (result,) = await face.call("search_history", "night train")
    assert result.content == result.summary == "Booked the night train."


async def test_vectors_find_the_nearest_however_it_was_saved(face: Face) -> None:
    await face.call("save", "east", {"n": 1}, vector=[1, 0])
    await face.call("save", "north", {"big": BIG}, vector=np.array([0, 2]))
    await face.call("save", "nowhere", {"n": 1})
    results = await face.call("search_similar", np.array([0, 1], dtype=np.float32))
    assert [result.thread_id for result in results] == ["north", "east"]
    assert [distance for *_, distance in results] == pytest.approx([0, 1])
    assert (results.mode, results.metric) == ("vector", "cosine")
    assert (await load(face, results[0])).state == {"big": BIG}
    results = await face.call("search_similar", [0, 0], metric="l2", limit=1)
    assert [(result.thread_id, result.distance) for result in results] == [("east", 1.0)]
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
    results = await face.call("search_similar", [0, 1])
    assert (len(results), results.warnings) == (1, ())


async def test_scopes_keep_everything_else_out(face: Face) -> None:
    for thread_id, agent_id, outcome in [("a", "x", "success"), ("b", "y", "failure")]:
        await face.call(
            "save",
            thread_id,
            {"n": 1},
            summary="Reviewed the budget.",
            agent_id=agent_id,
            metadata={"outcome": outcome, "n": 1},
            vector=[1, 1],
        )
    scopes: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["a", "b"]),
        ({"thread_id": "a"}, ["a"]),
        ({"agent_id": "y"}, ["b"]),
        ({"filter_metadata": {"outcome": "success"}}, ["a"]),
        ({"filter_metadata": {"n": 1.0}}, ["a", "b"]),
        ({"filter_metadata": {"n": True}}, []),
        ({"thread_id": "a", "agent_id": "y"}, []),
    ]
    for scope, expected in scopes:
        for name, query in (("search_history", "budget"), ("search_similar", [1, 1])):
            results = await face.call(name, query, **scope)
            assert sorted(result.thread_id for result in results) == expected, scope


async def test_a_thread_may_stay_out_of_sight_from_its_first_save(face: Face) -> None:
    await face.call("save", "t", {"n": 1}, summary="Reviewed the budget.", searchable=False)
    assert await face.call("search_history", "budget") == []
    await face.call("save", "t", {"n": 2}, summary="Approved the budget.", searchable=True)
    assert len(await face.call("search_history", "budget")) == 2
    await face.call("delete", "t")
    assert await face.call("search_history", "budget") == []


async def test_searches_that_the_server_refuses(face: Face) -> None:
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("search_history", " ", {}),
        ("search_history", "q", {"limit": 101}),
        ("search_history", "q", {"filter_metadata": {"n": {"$gt": 1}}}),
        ("search_similar", [0, 0], {}),
    ]
    for name, query, named in refused:
        with pytest.raises(InvalidRequest) as caught:
            await face.call(name, query, **named)
        assert caught.value.reason == "INVALID_FIELD"
    for mode in ("vector", "memwal"):
        with pytest.raises(PreconditionFailed) as lacking:
            await face.call("search_history", "q", mode=mode)
        assert lacking.value.reason == "SEARCH_UNAVAILABLE"


async def test_steps_saved_in_the_background_are_found(face: Face) -> None:
    async with BackgroundSaver(face.sync.target) as background:
        background.handle_agent_step(
            {"thread_id": "t", "step": 1, "state": {"n": 1}, "summary": "Left.", "vector": [0, 1]}
        )
    (result,) = await face.call("search_similar", [0, 1])
    assert (result.summary, result.metadata["step"]) == ("Left.", 1)


# --- the saver ------------------------------------------------------------------------


class State(TypedDict, total=False):
    current_plan: str
    done: list[str]


def writing_graph(saver: TuskPointSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"current_plan": "interview the lighthouse crew"})
    graph.add_node("write", lambda state: {"current_plan": "publish", "done": ["interview"]})
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=saver)


def vectorize(checkpoint: Any, metadata: Any) -> Any:
    """Return a vector of the plan; none if the state has no plan."""
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
        (result,) = await ask(saver, kind, "search_history", "the lighthouse crew", thread_id="t")
        assert result.content == "interview the lighthouse crew"
        loaded = await ask(saver, kind, "get_tuple", result.config)
        assert loaded.config == result.config
        assert (await graph.aget_state(result.config)).next == ("write",)
        (near,) = await ask(saver, kind, "search_similar", [0, 1], "t", 1)
        assert near.ref == result.ref
        ended = await graph.ainvoke(None, result.config)
        assert ended == {"current_plan": "publish", "done": ["interview"]}


async def test_a_graph_gives_its_vector_in_the_config(server: Server, kind: str) -> None:
    async with TuskPointSaver(f"127.0.0.1:{server.port}") as saver:
        graph = writing_graph(saver)
        for thread_id, vector in (("t", [1.0, 0.0]), ("u", [0.0, 1.0])):
            config: Any = {"configurable": {"thread_id": thread_id, "tuskpoint_vector": vector}}
            await graph.ainvoke({"done": []}, config)
        results = await ask(saver, kind, "search_similar", [0, 1], limit=3)
        assert {result.thread_id for result in results} == {"u"}
        assert [result for result in results if "tuskpoint_vector" in result.metadata] == []


async def test_a_savers_threads_may_stay_out_of_sight(server: Server, kind: str) -> None:
    async with TuskPointSaver(f"127.0.0.1:{server.port}", searchable=False) as saver:
        await writing_graph(saver).ainvoke({"done": []}, {"configurable": {"thread_id": "t"}})
        assert await ask(saver, kind, "search_history", "the lighthouse crew") == []


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
        (result,) = await ask(saver, kind, "search_history", "walrus story")
        assert result.checkpoint_id == waiting
        assert result.content.startswith(
            'asks: {"question":"Shall the walrus story be published?"}'
        )
        await client.set_label("t", "editor asked", checkpoint_id=waiting)
        (result,) = await ask(saver, kind, "search_history", '"editor asked"')
        assert result.checkpoint_id == waiting
        assert (await asking.ainvoke(Command(resume="yes"), config)) == {"done": ["yes"]}
