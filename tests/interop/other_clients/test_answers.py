"""Clients without LangGraph answer graphs that wait in Python, and the graphs continue."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tests.unit.client.faces import Face
from tuskpoint import InvalidRequest, NotFound, OpenInterrupt, PreconditionFailed, TuskPointSaver


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def at(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


@pytest.fixture
def blocking_saver(server_target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(server_target) as saver:
        yield saver


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, server_target: str) -> AsyncIterator[Face]:
    face = Face(request.param, server_target)
    yield face
    await face.aclose()


def asking(*questions: Any) -> Any:
    """Return a node that asks its questions one after another, and logs the answers."""

    def ask(state: Log) -> Log:
        return {"log": [[interrupt(question) for question in questions]]}

    return ask


def graph_of(saver: TuskPointSaver | bool | None, **nodes: Any) -> Any:
    """Return a graph whose nodes run in parallel."""
    graph = StateGraph(Log)
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile(checkpointer=saver)


async def go_on(graph: Any, thread_id: str, turn: Any = None) -> list[Any]:
    result = await asyncio.to_thread(graph.invoke, turn, at(thread_id))
    return sorted(result["log"], key=str)


async def open_interrupts(client: Face, thread_id: str, **where: Any) -> dict[Any, OpenInterrupt]:
    """Return the open interrupts of a thread, by question."""
    return {
        str(open_interrupt.value): open_interrupt
        for open_interrupt in await client.call("interrupts", thread_id, **where)
    }


@pytest.mark.parametrize("answer", ["yes", {"approved": True, "by": "é"}, [1, [2.5]], False, 0, ""])
async def test_an_interrupt_is_answered_and_its_graph_goes_on(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str, answer: Any
) -> None:
    graph = graph_of(blocking_saver, ask=asking({"question": "proceed?"}))
    await go_on(graph, thread_id, {"log": []})
    (waiting,) = await client.call("interrupts", thread_id)
    assert waiting.value == {"question": "proceed?"}
    assert waiting.interrupt_id == graph.get_state(at(thread_id)).interrupts[0].id
    assert await client.call("answer", thread_id, answer) == waiting.checkpoint_id
    assert await go_on(graph, thread_id) == [[answer]]
    assert await client.call("interrupts", thread_id) == ()


async def test_the_last_answer_counts_until_the_graph_goes_on(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, ask=asking("?"))
    await go_on(graph, thread_id, {"log": []})
    (waiting,) = await client.call("interrupts", thread_id)
    await client.call("answer", thread_id, "no", checkpoint_id=waiting.checkpoint_id)
    await client.call("answer", thread_id, "yes", interrupt_id=waiting.interrupt_id)
    assert await go_on(graph, thread_id) == [["yes"]]


async def test_a_task_that_asks_again_is_answered_again(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, ask=asking("first?", "second?"))
    await go_on(graph, thread_id, {"log": []})
    assert [*await open_interrupts(client, thread_id)] == ["first?"]
    await client.call("answer", thread_id, 1)
    await go_on(graph, thread_id)
    assert [*await open_interrupts(client, thread_id)] == ["second?"]
    await client.call("answer", thread_id, 2)
    assert await go_on(graph, thread_id) == [[1, 2]]


class Watched:
    """A graph, run until it waits or ends, and the service's view of its thread."""

    def __init__(self, client: Face, graph: Any, thread_id: str) -> None:
        self._client, self._graph, self._thread_id = client, graph, thread_id

    async def run(self, turn: Any = None) -> list[Any]:
        """Continue the graph; return the open questions, which the service must know."""
        await self._graph.ainvoke(turn, at(self._thread_id))
        state = await self._graph.aget_state(at(self._thread_id))
        # LangGraph 1.2.0 still lists the answered question of a task that has ended.
        waiting = [task for task in state.tasks if not task.result]
        open_ = [interrupt.value for task in waiting for interrupt in task.interrupts]
        assert await self.is_listed() is bool(open_)
        return sorted(open_)

    async def is_listed(self) -> bool:
        threads = await self._client.take("list_threads", 10_000, state="interrupted")
        return self._thread_id in {thread.thread_id for thread in threads}

    async def answer(self, value: Any, question: str | None = None) -> None:
        """Answer through the service."""
        where = {}
        if question is not None:
            waiting = await open_interrupts(self._client, self._thread_id)
            where["interrupt_id"] = waiting[question].interrupt_id
        await self._client.call("answer", self._thread_id, value, **where)


@pytest.mark.parametrize("by", ["a client", "LangGraph"])
async def test_a_thread_is_listed_whenever_it_asks_and_only_until_it_is_answered(
    client: Face, saver: TuskPointSaver, thread_id: str, by: str
) -> None:
    graph = graph_of(saver, ask=asking("first?", "second?", "third?"))
    watched = Watched(client, graph, thread_id)
    assert await watched.run({"log": []}) == ["first?"]
    for answer, following in ((1, ["second?"]), (2, ["third?"]), (3, [])):
        if by == "LangGraph":
            assert await watched.run(Command(resume=answer)) == following
        else:
            await watched.answer(answer)
            assert not await watched.is_listed()
            assert await watched.run() == following


async def test_a_thread_is_listed_while_one_of_several_is_open(
    client: Face, saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(saver, left=asking("left?", "and?"), right=asking("right?"))
    watched = Watched(client, graph, thread_id)
    assert await watched.run({"log": []}) == ["left?", "right?"]
    await watched.answer("L", "left?")
    assert await watched.is_listed()
    assert await watched.run() == ["and?", "right?"]
    await watched.answer("R", "right?")
    assert await watched.is_listed()
    assert await watched.run() == ["and?"]
    await watched.answer("A")
    assert not await watched.is_listed()
    assert await watched.run() == []


async def test_a_thread_is_listed_when_a_subgraph_asks_again(
    client: Face, saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(saver, inner=graph_of(None, ask=asking("first?", "second?")))
    watched = Watched(client, graph, thread_id)
    assert await watched.run({"log": []}) == ["first?"]
    await watched.answer(1)
    assert not await watched.is_listed()
    assert await watched.run() == ["second?"]
    await watched.answer(2)
    assert not await watched.is_listed()
    assert await watched.run() == []


async def test_several_that_wait_are_answered_by_their_ids(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, left=asking("left?"), right=asking("right?"), done=asking())
    await go_on(graph, thread_id, {"log": []})
    waiting = await open_interrupts(client, thread_id)
    assert waiting.keys() == {"left?", "right?"}
    with pytest.raises(PreconditionFailed, match="interrupt_id") as caught:
        await client.call("answer", thread_id, "x")
    assert all(
        open_interrupt.interrupt_id in caught.value.message for open_interrupt in waiting.values()
    )
    with pytest.raises(PreconditionFailed, match="'no such'"):
        await client.call("answer", thread_id, "x", interrupt_id="no such")
    # LangGraph also refuses one answer for several interrupts.
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        await go_on(graph, thread_id, Command(resume="x"))

    await client.call("answer", thread_id, "L", interrupt_id=waiting["left?"].interrupt_id)
    with pytest.raises(PreconditionFailed, match="already"):
        await client.call("answer", thread_id, "M", interrupt_id=waiting["left?"].interrupt_id)
    assert await go_on(graph, thread_id) == [["L"], []]
    assert [*await open_interrupts(client, thread_id)] == ["right?"]
    assert (await client.call("get_thread", thread_id)).state == "interrupted"
    await client.call("answer", thread_id, "R")
    assert (await client.call("get_thread", thread_id)).state == "idle"
    assert await go_on(graph, thread_id) == [["L"], ["R"], []]


async def test_all_of_several_are_answered_before_the_graph_goes_on(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, left=asking("left?", "and?"), right=asking("right?"))
    await go_on(graph, thread_id, {"log": []})
    for question, open_interrupt in (await open_interrupts(client, thread_id)).items():
        await client.call(
            "answer", thread_id, question[0], interrupt_id=open_interrupt.interrupt_id
        )
    await go_on(graph, thread_id)
    assert [*await open_interrupts(client, thread_id)] == ["and?"]
    await client.call("answer", thread_id, {"n": 1})
    assert await go_on(graph, thread_id) == [["l", {"n": 1}], ["r"]]


@pytest.mark.parametrize("memory", [None, True], ids=["of a call", "of the thread"])
async def test_interrupts_of_subgraphs_are_answered_at_the_root(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str, memory: bool | None
) -> None:
    inner = graph_of(memory, a=asking("a?"), b=asking("b?"))
    middle = StateGraph(Log)
    middle.add_node("inner", inner)
    middle.add_edge(START, "inner")
    graph = graph_of(
        blocking_saver, middle=middle.compile(checkpointer=memory), beside=asking("beside?")
    )
    await go_on(graph, thread_id, {"log": []})
    waiting = await open_interrupts(client, thread_id)
    assert waiting.keys() == {"a?", "b?", "beside?"}
    for question, open_interrupt in waiting.items():
        await client.call(
            "answer", thread_id, question[0], interrupt_id=open_interrupt.interrupt_id
        )
    answers = {str(answer) for answer in await go_on(graph, thread_id)}
    assert answers == {"['a']", "['b']"}


async def test_the_only_one_in_a_subgraph_is_answered_at_either_end(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, inner=graph_of(None, ask=asking("first?", "second?")))
    await go_on(graph, thread_id, {"log": []})
    await client.call("answer", thread_id, 1)
    await go_on(graph, thread_id)
    heads = (await client.call("get_thread", thread_id)).heads
    (inside,) = [name for name in heads if name]
    assert [*await open_interrupts(client, thread_id, checkpoint_ns=inside)] == ["second?"]
    answered = await client.call("answer", thread_id, 2, checkpoint_ns=inside)
    assert answered == heads[inside]
    assert await go_on(graph, thread_id) == [[1, 2]]


async def test_tasks_of_functions_are_answered_too(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    @task
    def ask(question: str) -> Any:
        return interrupt(question)

    @entrypoint(checkpointer=blocking_saver)
    def work(text: str) -> Any:
        both = [ask("one?"), ask("two?")]
        return [future.result() for future in both]

    await asyncio.to_thread(work.invoke, "go", at(thread_id))
    waiting = await open_interrupts(client, thread_id)
    assert waiting.keys() == {"one?", "two?"}
    for question, open_interrupt in waiting.items():
        await client.call(
            "answer", thread_id, question[:-1], interrupt_id=open_interrupt.interrupt_id
        )
    assert await asyncio.to_thread(work.invoke, None, at(thread_id)) == ["one", "two"]


async def test_a_thread_without_an_interrupt_takes_no_answer(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, ask=asking())
    await go_on(graph, thread_id, {"log": []})
    with pytest.raises(PreconditionFailed, match=r"waits for no answer.*interrupted") as caught:
        await client.call("answer", thread_id, "x")
    assert caught.value.status == "FAILED_PRECONDITION"
    assert caught.value.metadata["thread_id"] == thread_id
    before = (await client.call("load", thread_id)).seq
    with pytest.raises(InvalidRequest, match="None"):
        await client.call("answer", thread_id, None)
    with pytest.raises(InvalidRequest, match="value"):
        await client.call("answer", thread_id, object())
    for name in ("answer", "interrupts"):
        arguments = ["no such thread", "x"][: 2 if name == "answer" else 1]
        with pytest.raises(NotFound):
            await client.call(name, *arguments)
    assert (await client.call("load", thread_id)).seq == before


async def test_a_breakpoint_asks_nothing(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = StateGraph(Log)
    graph.add_node("work", asking())
    graph.add_edge(START, "work")
    stopping = graph.compile(checkpointer=blocking_saver, interrupt_before=["work"])
    await go_on(stopping, thread_id, {"log": []})
    assert await client.call("interrupts", thread_id) == ()
    with pytest.raises(PreconditionFailed, match="waits for no answer"):
        await client.call("answer", thread_id, "x")


async def test_a_checkpoint_whose_graph_has_gone_on_takes_no_answer(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, ask=asking("?"))
    await go_on(graph, thread_id, {"log": []})
    (waiting,) = await client.call("interrupts", thread_id)
    await client.call("answer", thread_id, "first")
    assert await go_on(graph, thread_id) == [["first"]]
    with pytest.raises(PreconditionFailed, match="waits for no answer"):
        await client.call("answer", thread_id, "again", checkpoint_id=waiting.checkpoint_id)


async def test_a_subgraph_that_saves_nothing_is_answered_alone(
    client: Face, blocking_saver: TuskPointSaver, thread_id: str
) -> None:
    graph = graph_of(blocking_saver, inner=graph_of(False, ask=asking("inner?")))
    await go_on(graph, thread_id, {"log": []})
    await client.call("answer", thread_id, 1)
    assert await go_on(graph, thread_id) == [[1]]
