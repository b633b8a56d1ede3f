"""What each reader gets of a delta channel of messages that was cleared, or begins with None.

The server and the savers pass stored values and writes on unchanged, so the release of LangGraph
that reads decides. The console merges as the newest release does
(`tests/console/thread/test_conversation.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

import grpc
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer

from tests.interop.langgraph_js import javascript
from tuskpoint import PortableSerializer, TuskPointSaver
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import checkpoint_service_pb2 as pb
from tuskpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub

from ..saver_arguments import at

KNOWS_BOTH_RULES = tuple(map(int, version("langgraph").split(".")[:3])) >= (1, 2, 24)
"""Whether this LangGraph merges a removal of all messages, and starts empty from None."""

READER = javascript.CLIENT / "tests" / "langgraph" / "delta_reader.ts"
CLEARED = ["asked", "answer 1", REMOVE_ALL_MESSAGES, "asked again", "answer 2"]
"""IDs of the messages that are written to the cleared channel."""


class Ordinary(TypedDict, total=False):
    messages: Any


class Talk(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


Read = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def portable_saver(server_target: str) -> Iterator[TuskPointSaver]:
    with TuskPointSaver(server_target, serde=PortableSerializer()) as saver:
        yield saver


@pytest.fixture(scope="module")
def read_in_javascript(server_target: str, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Reads the delta channel of a thread with LangGraph.js."""
    if problem := javascript.missing():
        pytest.skip(problem)
    script = tmp_path_factory.mktemp("reader") / "delta_reader.mjs"
    bundler = javascript.CLIENT / "node_modules" / ".bin" / "rolldown"
    options = ["--format", "esm", "--platform", "node", "--log-level", "silent"]
    command = [str(bundler), str(READER), *options, "--file", str(script)]
    subprocess.run(command, check=True, timeout=120)

    def read(thread_id: str) -> dict[str, Any]:
        command = ["node", str(script), server_target, thread_id]
        printed = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE).stdout
        answer: dict[str, Any] = json.loads(printed)
        return answer

    return read


def graph_of(state: type, saver: TuskPointSaver, node: Any) -> Any:
    return StateGraph(state).add_node("node", node).add_edge(START, "node").compile(saver)


def talk_of(saver: TuskPointSaver, answer: str) -> Any:
    return graph_of(Talk, saver, lambda _: {"messages": AIMessage("hello", id=answer)})


def save_cleared(saver: TuskPointSaver, thread_id: str) -> None:
    """Write the messages `CLEARED` in two runs."""
    question = HumanMessage("hi", id="asked")
    talk_of(saver, "answer 1").invoke({"messages": [question]}, at(thread_id))
    again = [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("hi", id="asked again")]
    talk_of(saver, "answer 2").invoke({"messages": again}, at(thread_id))


def shown(server_target: str, thread_id: str) -> Any:
    """Return the JSON view of the channel at the latest checkpoint."""
    request = pb.GetCheckpointRequest(
        ref=checkpoint_pb2.CheckpointRef(thread_id=thread_id), view=checkpoint_pb2.VIEW_JSON
    )
    with grpc.insecure_channel(server_target) as channel:
        state = CheckpointServiceStub(channel).GetCheckpoint(request).checkpoint.state
    (data,) = [one.value.data for one in state.channels if one.name == "messages"]
    return json.loads(data)


def ids(messages: Any) -> list[str]:
    """Return the IDs of messages: objects, or objects in the JSON view."""
    return [
        one["kwargs"]["id"] if isinstance(one, dict) else one.id
        for one in (messages if isinstance(messages, list) else [messages])
    ]


def test_a_removal_of_all_messages_is_passed_on(
    server_target: str, portable_saver: TuskPointSaver, thread_id: str, read_in_javascript: Read
) -> None:
    save_cleared(portable_saver, thread_id)
    history = portable_saver.get_delta_channel_history(config=at(thread_id), channels=["messages"])[
        "messages"
    ]
    assert [one for _, _, value in history["writes"] for one in ids(value)] == CLEARED
    assert "seed" not in history

    view = shown(server_target, thread_id)
    assert [one for write in view["$delta"] for one in ids(write)] == CLEARED
    assert "$seed" not in view

    read = talk_of(portable_saver, "").get_state(at(thread_id)).values["messages"]
    kept = ["asked again", "answer 2"]
    assert ids(read) == (kept if KNOWS_BOTH_RULES else ["asked", "answer 1", *kept])
    assert read_in_javascript(thread_id) == {"writes": CLEARED, "messages": kept}


def test_none_before_the_writes_is_passed_on(
    server_target: str, portable_saver: TuskPointSaver, thread_id: str, read_in_javascript: Read
) -> None:
    graph_of(Ordinary, portable_saver, lambda _: {}).invoke({"messages": None}, at(thread_id))
    talk = talk_of(portable_saver, "answer")
    turn = {"messages": [HumanMessage("hi", id="asked")]}
    if not KNOWS_BOTH_RULES:
        with pytest.raises(TypeError):
            talk.invoke(turn, at(thread_id))
        return
    assert ids(talk.invoke(turn, at(thread_id))["messages"]) == ["asked", "answer"]
    assert ids(talk.get_state(at(thread_id)).values["messages"]) == ["asked", "answer"]
    history = portable_saver.get_delta_channel_history(config=at(thread_id), channels=["messages"])[
        "messages"
    ]
    assert history["seed"] is None
    view = shown(server_target, thread_id)
    assert view["$seed"] is None
    assert [one for write in view["$delta"] for one in ids(write)] == ["asked", "answer"]
    read = read_in_javascript(thread_id)
    assert read["seed"] is None
    assert read["writes"] == ["asked", "answer"]
    assert "null" in read["problem"]  # LangGraph.js starts empty only without a stored value
