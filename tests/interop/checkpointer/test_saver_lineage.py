"""Hand-offs, forks, rollbacks, proofs and replays work on LangGraph's threads."""

from __future__ import annotations

import asyncio
import json
import operator
import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from tests.interop.conftest import Face
from tuskpoint import (
    AlreadyExists,
    Client,
    Conflict,
    InvalidDescriptor,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from tuskpoint.langgraph import TuskPointSaver


class Inner(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def asking_graph(saver: TuskPointSaver) -> Any:
    """Plan, then ask in a subgraph that keeps its own state, then write."""

    def research(state: Inner) -> dict[str, Any]:
        return {"log": ["researched"]}

    def ask(state: Inner) -> dict[str, Any]:
        return {"log": [f"answer: {interrupt({'question': 'proceed?'})}"]}

    inner = StateGraph(Inner)
    inner.add_node("research", research)
    inner.add_node("ask", ask)
    inner.add_edge(START, "research")
    inner.add_edge("research", "ask")
    inner.add_edge("ask", END)

    def plan(state: State) -> dict[str, Any]:
        return {"log": ["planned"]}

    def write(state: State) -> dict[str, Any]:
        return {"log": ["written"]}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("review", inner.compile(checkpointer=True))
    graph.add_node("write", write)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "review")
    graph.add_edge("review", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=saver)


class Run:
    """A graph on a thread, through the sync or the async methods of the saver."""

    def __init__(self, face: Face, thread_id: str) -> None:
        self.face = face
        self.graph = asking_graph(face.saver)
        self.config: Any = {"configurable": {"thread_id": thread_id}}

    async def __call__(self, value: Any) -> Any:
        if self.face.kind == "async":
            return await self.graph.ainvoke(value, self.config)
        return await asyncio.to_thread(self.graph.invoke, value, self.config)

    async def head(self) -> str:
        """Return the ID of the latest checkpoint."""
        checkpoint = await self.face.get_tuple(self.config)
        return str(checkpoint.config["configurable"]["checkpoint_id"])

    async def questions(self) -> list[Any]:
        """Return the questions that the thread waits for."""
        state = await self.graph.aget_state(self.config)
        return [interrupt.value for interrupt in state.interrupts]


@pytest.fixture
async def asking(face: Face, thread_id: str) -> Run:
    """A thread that has planned and waits for an answer."""
    run = Run(face, thread_id)
    result = await run({"log": ["begun"]})
    assert [interrupt.value for interrupt in result["__interrupt__"]] == [{"question": "proceed?"}]
    return run


def new_thread() -> str:
    return f"thread-{uuid.uuid4()}"


ALL = ["begun", "planned", "begun", "planned", "researched", "answer: go", "written"]


async def test_an_interrupted_thread_is_handed_off_adopted_and_resumed(
    face: Face, asking: Run, thread_id: str
) -> None:
    head = await asking.head()
    descriptor = await face.handoff_checkpoint(thread_id, head, to_agent="writer")
    assert list(descriptor) == [
        "source",
        "thread_id",
        "checkpoint_id",
        "blob_id",
        "blob_sha256",
        "to_agent",
        "summary",
        "signer",
        "signature",
    ]
    assert (descriptor["source"], descriptor["to_agent"]) == (f"{thread_id}:{head}", "writer")
    mine = new_thread()
    adopted = await face.adopt_checkpoint(json.loads(json.dumps(descriptor)), mine)
    assert adopted == {
        "adopted_from": descriptor["source"],
        "new_thread_id": mine,
        "checkpoint_id": head,
        "blob_id": adopted["blob_id"],
        "verified": True,
        "signer": descriptor["signer"],
    }
    assert adopted["blob_id"]
    there = Run(face, mine)
    assert await there.questions() == [{"question": "proceed?"}]
    assert (await there(Command(resume="go")))["log"] == ALL
    assert await asking.questions() == [{"question": "proceed?"}]
    with pytest.raises(AlreadyExists):
        await face.adopt_checkpoint(handoff_json=json.dumps(descriptor), new_thread_id=mine)
    with pytest.raises(InvalidDescriptor, match="blob_sha256"):
        await face.adopt_checkpoint({**descriptor, "blob_sha256": ""}, new_thread())


async def test_the_latest_is_handed_off_unless_one_is_named(
    face: Face, asking: Run, thread_id: str
) -> None:
    descriptor = await face.handoff_checkpoint(thread_id)
    assert (descriptor["checkpoint_id"], descriptor["to_agent"]) == (await asking.head(), "")
    with pytest.raises(NotFound):
        await face.handoff_checkpoint(thread_id, "nothing")
    nobodys = "age12x0z6rxehdy5zxz38a36nyzln63ttr0r7s4xfdv3cdedmsthw5yqnugr22"
    with pytest.raises(PreconditionFailed, match="this server has no key provider"):
        await face.handoff_checkpoint(thread_id, recipient=nobodys)


async def test_a_fork_goes_its_own_way(face: Face, asking: Run, thread_id: str) -> None:
    head, other = await asking.head(), new_thread()
    forked = await face.fork(thread_id, head, other)
    assert forked == {
        "new_thread_id": other,
        "checkpoint_id": head,
        "forked_from": f"{thread_id}:{head}",
    }
    assert (await Run(face, other)(Command(resume="go")))["log"] == ALL
    assert (await asking(Command(resume="stop")))["log"][-2:] == ["answer: stop", "written"]
    nameless = await face.fork(thread_id)
    assert nameless["new_thread_id"] not in ("", thread_id, other)


async def test_a_rolled_back_thread_asks_again(face: Face, asking: Run, thread_id: str) -> None:
    before = await asking.head()
    assert (await asking(Command(resume="go")))["log"] == ALL
    with pytest.raises(Conflict):
        await face.rollback_to(thread_id, before, expected_head=before)
    back = await face.rollback_to(thread_id, before, expected_head=await asking.head())
    assert back == {
        "thread_id": thread_id,
        "checkpoint_id": await asking.head(),
        "rolled_back_from": f"{thread_id}:{before}",
    }
    again = await asking(None)
    assert [interrupt.value for interrupt in again["__interrupt__"]] == [{"question": "proceed?"}]
    assert (await asking(Command(resume="stop")))["log"][-2:] == ["answer: stop", "written"]


async def test_a_trail_is_verified(face: Face, asking: Run, thread_id: str) -> None:
    await asking(Command(resume="go"))
    await face.flush()
    count = len(await face.list({"configurable": {"thread_id": thread_id}}))
    assert await face.verify_trail(thread_id) == {
        "ok": True,
        "passed": count,
        "failed": 0,
        "unverified": 0,
        "retracted": 0,
        "chain_detail": "",
        "failures": [],
        "journal_details": [],
    }
    with pytest.raises(NotFound):
        await face.verify_trail("nobody")


async def test_a_diff_reads_values_that_langgraph_saved(
    face: Face, asking: Run, thread_id: str
) -> None:
    before = await asking.head()
    await asking(Command(resume="go"))
    diff = await face.diff(thread_id, before)
    assert not diff["truncated"]
    reported = {(change["channel"], change["path"]): change for change in diff["changes"]}
    assert reported["log", "/2"]["kind"] == "added"
    assert reported["log", "/2"]["to_json"] == '"begun"'
    other = (await face.fork(thread_id, before))["new_thread_id"]
    same = await face.diff(thread_id, before, before, to_thread_id=other)
    assert same == {"changes": [], "truncated": False}


async def test_a_replay_is_the_listing_from_its_other_end(
    face: Face, asking: Run, thread_id: str
) -> None:
    await asking(Command(resume="go"))
    if face.kind == "async":
        replayed = [checkpoint async for checkpoint in face.saver.areplay(thread_id)]
    else:
        replayed = await asyncio.to_thread(lambda: [*face.saver.replay(thread_id)])
    listed = await face.list({"configurable": {"thread_id": thread_id}})

    def place(checkpoint: Any) -> tuple[str, str]:
        named = checkpoint.config["configurable"]
        return named["checkpoint_id"], named["checkpoint_ns"]

    assert len(replayed) > 4
    assert replayed == sorted(listed, key=place)


async def test_an_open_interrupt_is_read_without_langgraph(
    asking: Run, thread_id: str, server_target: str
) -> None:
    def read() -> Any:
        with Client(server_target) as client:
            return client.load(thread_id, view="json")

    record = await asyncio.to_thread(read)
    assert record.state["log"] == ["begun", "planned"]
    (question,) = [write.value for write in record.writes if write.channel == "__interrupt__"]
    assert "proceed?" in json.dumps(question)


async def test_threads_and_their_loops_share_a_saver(saver: TuskPointSaver, thread_id: str) -> None:
    await Run(Face(saver, "async"), thread_id)({"log": ["begun"]})
    here, in_a_thread, in_a_loop_there = await asyncio.gather(
        saver.adiff(thread_id, await Run(Face(saver, "async"), thread_id).head()),
        asyncio.to_thread(saver.fork, thread_id),
        asyncio.to_thread(lambda: asyncio.run(saver.afork(thread_id))),
    )
    assert here["changes"] == []
    assert in_a_thread["new_thread_id"] != in_a_loop_there["new_thread_id"]
    assert in_a_thread["forked_from"] == in_a_loop_there["forked_from"]


def test_no_thread_is_no_thread(server_target: str) -> None:
    with TuskPointSaver(server_target) as saver:
        for call in (saver.fork, saver.verify_trail):
            with pytest.raises(InvalidRequest, match="thread_id: it must not be empty"):
                call(None)  # type: ignore[arg-type]


def test_a_config_that_is_text_is_a_type_error(server_target: str) -> None:
    with TuskPointSaver(server_target) as saver:
        calls: list[Callable[[], object]] = [
            lambda: saver.get_tuple("thread-1"),  # type: ignore[arg-type]
            lambda: list(saver.list("thread-1")),  # type: ignore[arg-type]
            lambda: saver.put_writes("thread-1", [("a", 1)], "task"),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises(TypeError, match=r"config must be a dict .*, not 'thread-1'"):
                call()
