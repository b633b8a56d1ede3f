"""What the console changes, seen from the graphs that continue afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint import Client, TuskPointSaver


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    plan: list[str]
    budget: float
    seen: set[str]
    answers: Annotated[list[Any], lambda before, new: before + new]


class Agent:
    """A graph that thinks, asks and acts, on a thread of its own."""

    def __init__(self, saver: TuskPointSaver, question: Any) -> None:
        self.thread_id = f"agent-{uuid4()}"
        self.config: RunnableConfig = {"configurable": {"thread_id": self.thread_id}}

        def think(state: State) -> State:
            call = ToolCall(name="look", args={"n": 1.5}, id="c")
            message = AIMessage("I look", tool_calls=[call])
            return {"messages": [message], "plan": ["look"], "budget": 10.0, "seen": {"a"}}

        def ask(state: State) -> State:
            return {"answers": [interrupt(question)]}

        def act(state: State) -> State:
            return {"messages": [AIMessage(f"done: {', '.join(state['plan'])}")]}

        graph = StateGraph(State)
        graph.add_node("think", think)
        graph.add_node("ask", ask)
        graph.add_node("act", act)
        graph.add_edge(START, "think")
        graph.add_edge("think", "ask")
        graph.add_edge("ask", "act")
        self.graph = graph.compile(checkpointer=saver)
        self.graph.invoke({"messages": [HumanMessage("hello")]}, self.config)

    def values(self) -> Any:
        return self.graph.get_state(self.config).values

    def go_on(self) -> Any:
        return self.graph.invoke(None, self.config)


EDITED = {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "b"}}}]}


@pytest.fixture
def agent(server: ConsoleServer) -> Iterator[Callable[[Any], Agent]]:
    with TuskPointSaver(server.target) as saver:
        yield lambda question: Agent(saver, question)


@pytest.fixture
def client(server: ConsoleServer) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client


def said(look: Look, text: str) -> Locator:
    """A notice that says what was done."""
    notice = look.page.locator(".notices").get_by_text(text)
    expect(notice).to_be_visible()
    return notice


def answer(look: Look) -> None:
    """Send the form of a question, after the console has asked."""
    look.page.get_by_role("button", name="Answer…").click()
    dialog = look.page.get_by_role("dialog", name="Answer")
    dialog.get_by_role("button", name="Save the answer").click()
    expect(dialog).to_have_count(0)
    expect(look.page.get_by_role("article", name="An answered question")).to_be_visible()


def edit(look: Look, channel: str) -> Locator:
    look.page.get_by_role("button", name="Edit and save").click()
    dialog = look.page.get_by_role("dialog", name="Edit and save")
    dialog.get_by_label("Channel", exact=True).select_option(channel)
    return dialog


def test_an_answered_question_is_what_interrupt_returns(
    look: Look, agent: Callable[[Any], Agent]
) -> None:
    options = ["night", {"label": "None", "value": 0}]
    asking = agent({"question": "Which train?", "options": options})
    look.open(f"/thread?id={asking.thread_id}")
    look.page.get_by_label("None").check()
    look.accessible()
    answer(look)
    assert asking.go_on()["answers"] == [0]


@pytest.mark.parametrize(
    ("question", "fill", "expected"),
    [
        ("Which city?", {"Answer": "Lisbon"}, "Lisbon"),
        ({"question": "Go on?", "type": "boolean"}, {"No": None}, False),
        (
            {
                "schema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "seats": {"type": "integer"}},
                    "required": ["name"],
                }
            },
            {"name": "Ada", "seats (may be empty)": "2"},
            {"name": "Ada", "seats": 2},
        ),
        (
            {
                "action_requests": [{"name": "send", "args": {"to": "a"}}],
                "review_configs": [{"action_name": "send", "allowed_decisions": ["edit"]}],
            },
            {"Edit the arguments": None, "Arguments, as JSON": '{"to": "b"}'},
            EDITED,
        ),
    ],
    ids=["text", "yes or no", "schema", "review"],
)
def test_the_form_fits_the_question(
    look: Look,
    agent: Callable[[Any], Agent],
    question: Any,
    fill: dict[str, str | None],
    expected: Any,
) -> None:
    asking = agent(question)
    look.open(f"/thread?id={asking.thread_id}")
    for label, text in fill.items():
        control = look.page.get_by_label(label, exact=True)
        control.check() if text is None else control.fill(text)
    answer(look)
    assert asking.go_on()["answers"] == [expected]


def test_a_graph_continues_from_an_edited_value(look: Look, agent: Callable[[Any], Agent]) -> None:
    asking = agent("Go on?")
    before = asking.values()
    look.open(f"/thread?id={asking.thread_id}")
    dialog = edit(look, "seen")
    expect(dialog).to_contain_text("is an object of Python, which JSON cannot hold")
    dialog.get_by_label("Channel", exact=True).select_option("plan")
    dialog.get_by_label("Value").fill('["edited"')
    expect(dialog).to_contain_text("Line 1, column 10")
    dialog.get_by_label("Value").fill('["edited"]')
    look.accessible()
    dialog.get_by_role("button", name="Save as a new checkpoint").click()
    said(look, "Saved a new checkpoint")
    state = asking.graph.get_state(asking.config)
    assert state.values == {**before, "plan": ["edited"]}
    assert state.next == ("ask",)
    assert state.metadata is not None
    assert (state.metadata["source"], state.metadata["step"]) == ("update", 2)
    assert "__interrupt__" in asking.go_on()
    look.open(f"/thread?id={asking.thread_id}")
    look.page.get_by_label("Answer", exact=True).fill("yes")
    answer(look)
    assert asking.go_on()["messages"][-1].content == "done: edited"


def test_an_edited_message_is_a_message(look: Look, agent: Callable[[Any], Agent]) -> None:
    asking = agent("Go on?")
    before = asking.values()["messages"]
    look.open(f"/thread?id={asking.thread_id}")
    dialog = edit(look, "messages")
    value = dialog.get_by_label("Value")
    value.fill(value.input_value().replace('"hello"', '"good morning"'))
    dialog.get_by_role("button", name="Save as a new checkpoint").click()
    said(look, "Saved a new checkpoint")
    first, second = asking.values()["messages"]
    assert first == HumanMessage("good morning", id=before[0].id)
    assert second == before[1]


def test_a_moved_head_keeps_what_was_typed(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Go on?")
    look.allows_failures = True
    look.open(f"/thread?id={asking.thread_id}")
    dialog = edit(look, "plan")
    dialog.get_by_label("Value").fill('["typed"]')
    head = client.get_thread(asking.thread_id).head_checkpoint_id
    client.rollback(asking.thread_id, head)
    dialog.get_by_role("button", name="Save as a new checkpoint").click()
    expect(dialog.get_by_role("alert")).to_contain_text("HEAD_MOVED")
    expect(dialog.get_by_label("Value")).to_have_value('["typed"]')


def test_a_hand_off_is_adopted_from_its_descriptor(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Go on?")
    look.allows_failures = True
    look.open(f"/thread?id={asking.thread_id}")
    look.page.get_by_role("button", name="Hand off").click()
    dialog = look.page.get_by_role("dialog", name="Hand off")
    dialog.get_by_label("To agent").fill("writer")
    dialog.get_by_role("button", name="Hand off").click()
    made = look.page.get_by_role("dialog", name="The descriptor")
    expect(made.get_by_role("img")).to_be_visible()
    look.accessible()
    with look.page.expect_download() as download:
        made.get_by_role("link", name="Download as a file").click()
    descriptor = json.loads(download.value.path().read_text("utf-8"))
    look.open("/adopt")
    look.page.get_by_label("ID of the new thread").fill(f"{asking.thread_id}-adopted")
    changed = {**descriptor, "blob_sha256": "0" * 64}
    del changed["signer"], changed["signature"]
    look.page.get_by_label("Descriptor").fill(json.dumps(changed))
    look.page.get_by_role("button", name="Adopt").click()
    progress = look.page.get_by_role("region", name="Progress")
    expect(progress).to_contain_text("Nothing was written.")
    expect(progress.locator("dd")).to_have_text(["0" * 64, descriptor["blob_sha256"]])
    look.page.get_by_label("Descriptor").fill(json.dumps(descriptor))
    look.page.get_by_label("Required signers").fill(descriptor["signer"])
    look.page.get_by_role("button", name="Adopt").click()
    expect(progress.get_by_role("heading", name="Adopted")).to_be_visible()
    look.accessible()
    adopted = client.get_thread(f"{asking.thread_id}-adopted")
    assert (adopted.agent_id, adopted.state) == ("writer", "interrupted")


def test_fork_label_and_roll_back(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Go on?")
    thread_id = asking.thread_id
    first = list(client.list(thread_id))[-1].checkpoint_id
    look.open(f"/thread?id={thread_id}&checkpoint={first}")
    look.page.get_by_role("button", name="Fork from here").click()
    look.page.get_by_label("ID of the new thread").fill(f"{thread_id}-fork")
    look.page.get_by_role("button", name="Fork", exact=True).click()
    said(look, "Forked checkpoint")
    assert client.get_thread(f"{thread_id}-fork").head_checkpoint_id == first
    look.page.get_by_role("button", name="Label", exact=True).click()
    look.page.get_by_role("dialog").get_by_label("Label").fill("good")
    look.page.get_by_role("button", name="Set the label").click()
    said(look, "Labelled checkpoint")
    assert client.load(thread_id, first).label == "good"
    look.page.get_by_role("button", name="Roll back to here").click()
    look.page.get_by_role("button", name="Roll back", exact=True).click()
    said(look, "Rolled thread")
    assert client.load(thread_id).lineage.rolled_back_from == f"{thread_id}:{first}"


def test_a_snapshot_is_captured_restored_and_deleted(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    one, other = agent("One?"), agent("Other?")
    look.open("/snapshots")
    look.page.get_by_role("button", name="Capture threads").click()
    look.page.get_by_label("Threads").fill(f"{one.thread_id}\n{other.thread_id}")
    look.page.get_by_role("dialog").get_by_label("Session").fill(one.thread_id)
    look.page.get_by_role("button", name="Capture", exact=True).click()
    said(look, "Captured 2 threads")
    look.page.get_by_role("link", name="Open the snapshot").click()
    captured = look.page.get_by_role("list", name="Captured threads")
    expect(captured.get_by_role("link")).to_have_count(2)
    look.accessible()
    look.page.get_by_role("button", name="Restore").click()
    look.page.get_by_role("button", name="Restore as new threads").click()
    restored = look.page.get_by_role("dialog", name="Restored")
    expect(restored.get_by_role("link")).to_have_count(2)
    restored.get_by_role("button", name="Close").click()
    look.page.get_by_role("button", name="Delete").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    said(look, "Deleted snapshot")
    assert list(client.list_snapshots(session_id=one.thread_id)) == []


def test_a_thread_is_deleted_only_by_its_name(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Go on?")
    look.allows_failures = True  # the page asks for what is gone
    look.open(f"/thread?id={asking.thread_id}")
    look.page.locator("summary", has_text="More").click()
    look.page.get_by_role("button", name="Delete").click()
    dialog = look.page.get_by_role("dialog", name="Delete the thread")
    dialog.get_by_label("ID of the thread").fill("another")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was deleted.")
    assert client.get_thread(asking.thread_id).state == "interrupted"
    dialog.get_by_label("ID of the thread").fill(asking.thread_id)
    dialog.get_by_role("button", name="Delete").click()
    said(look, "Deleted thread")
    assert asking.thread_id not in [one.thread_id for one in client.list_threads()]
