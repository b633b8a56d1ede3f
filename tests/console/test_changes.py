"""What the console changes, seen from the graphs that continue afterwards."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt
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
    client.save(one.thread_id, {}, summary="later")
    look.page.get_by_role("button", name="Restore").click()
    look.page.get_by_label("By rollback").check()
    look.page.get_by_role("button", name="Roll the threads back").click()
    restored.get_by_role("button", name="Close").click()
    assert client.load(one.thread_id, view="entry").lineage.rolled_back_from
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


@pytest.fixture
def thread(client: Client, request: pytest.FixtureRequest) -> str:
    """A thread of three checkpoints; its second one has another plan."""
    name: str = request.node.name
    for plan in ("read", "write", "send"):
        client.save(name, {"plan": plan, "n": 2**53 + 1}, summary=f"planned to {plan}")
    return name


class Actions:
    """The page of a thread, and what is done on it."""

    def __init__(self, look: Look, thread: str) -> None:
        self.look, self.page, self.thread = look, look.page, thread
        self.panel = self.page.get_by_role("region", name="Checkpoint", exact=True)
        self.dialog = self.page.get_by_role("dialog")
        self.rows = self.page.get_by_role("listbox").get_by_role("option")

    def open(self, summary: str = "planned to send") -> None:
        """Show one of the checkpoints of the thread."""
        self.look.open(f"/thread?id={self.thread}")
        self.rows.filter(has_text=summary).click()
        expect(self.panel.get_by_role("heading", level=2)).to_have_text(summary)

    def ask(self, button: str, *, of_thread: bool = False) -> Locator:
        """Press a button of the checkpoint, or of the thread; return the dialog that it opens."""
        if of_thread:
            self.page.locator("summary", has_text="More").click()
            self.page.get_by_role("button", name=button).first.click()
        else:
            self.panel.get_by_role("button", name=button).click()
        expect(self.dialog).to_be_visible()
        return self.dialog

    def confirm(self, button: str, said: str) -> None:
        """Confirm in the dialog; wait until the page says what it did."""
        self.dialog.get_by_role("button", name=button, exact=True).click()
        expect(self.page.locator(".notice").last).to_contain_text(said)
        expect(self.dialog).to_have_count(0)


@pytest.fixture
def actions(look: Look, thread: str) -> Actions:
    return Actions(look, thread)


def summaries(client: Client, thread: str) -> list[str]:
    return [one.summary for one in client.list(thread, view="entry")]


def test_escape_and_cancel_change_nothing(actions: Actions, client: Client) -> None:
    actions.open()
    before = client.get_thread(actions.thread).updated
    for button in ("Fork from here", "Roll back to here", "Label", "Edit and save", "Hand off"):
        actions.ask(button)
        actions.page.keyboard.press("Escape")
        expect(actions.dialog).to_have_count(0)
        expect(actions.panel.get_by_role("button", name=button)).to_be_focused()
    actions.ask("Roll back to here").get_by_role("button", name="Cancel").click()
    expect(actions.dialog).to_have_count(0)
    expect(actions.panel.get_by_role("button", name="Roll back to here")).to_be_focused()
    assert client.get_thread(actions.thread).updated == before


def test_an_existing_name_is_told_in_the_dialog(actions: Actions, client: Client) -> None:
    client.save("taken", {})
    actions.look.allows_failures = True  # the call is refused
    actions.open()
    dialog = actions.ask("Fork from here")
    dialog.get_by_label("ID of the new thread").fill("taken")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("taken")
    dialog.get_by_label("ID of the new thread").fill("free")
    actions.confirm("Fork", "as thread “free”")
    assert summaries(client, "free") == ["planned to send"]


def test_a_head_that_moved_is_not_rolled_back(actions: Actions, client: Client) -> None:
    actions.look.allows_failures = True  # the call is refused
    actions.open("planned to read")
    dialog = actions.ask("Roll back to here")
    client.save(actions.thread, {"plan": "archive"}, summary="somebody was faster")
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("HEAD_MOVED")
    dialog.get_by_role("button", name="Cancel").click()
    assert summaries(client, actions.thread)[0] == "somebody was faster"


def test_threads_are_copied_hidden_kept_and_pruned(actions: Actions, client: Client) -> None:
    thread = actions.thread
    actions.open()
    actions.ask("Copy", of_thread=True).get_by_label("ID of the copy").fill("copy")
    actions.confirm("Copy", "Copied 3 checkpoints")
    assert len(summaries(client, "copy")) == 3
    actions.open()
    actions.ask("Hide from search", of_thread=True)
    actions.confirm("Hide", "No search finds")
    assert not client.get_thread(thread).searchable
    actions.open()
    dialog = actions.ask("Retention", of_thread=True)
    dialog.get_by_label("is deleted after a time").check()
    dialog.get_by_label("Amount").fill("7")
    actions.confirm("Set the retention", "after 7 days")
    assert client.get_thread(thread).retention == timedelta(days=7)
    actions.open()
    actions.ask("Prune", of_thread=True)
    actions.confirm("Delete all but the latest", "Deleted 2 checkpoints")
    assert summaries(client, thread) == ["planned to send"]


def test_what_is_no_descriptor_is_told_before_it_is_sent(look: Look) -> None:
    look.open("/adopt")
    for text in ("{", "[]", '{"blob_id": 1}', "x" * 100_000):
        look.page.get_by_label("Descriptor").fill(text)
        look.page.get_by_role("button", name="Adopt", exact=True).click()
        expect(look.page.get_by_role("alert")).to_be_visible()


class Answers(TypedDict):
    answers: Annotated[list[Any], operator.add]


class Asked(TypedDict):
    question: dict[str, Any]


def ask(state: Asked) -> Answers:
    return {"answers": [interrupt(state["question"])]}


def build(questions: list[dict[str, Any]]) -> Any:
    """A graph whose tasks ask in parallel."""
    graph = StateGraph(Answers)
    graph.add_node("ask", ask, input_schema=Asked)
    graph.add_conditional_edges(
        START, lambda state: [Send("ask", {"question": one}) for one in questions]
    )
    graph.add_edge("ask", END)
    return graph


def test_questions_of_parallel_tasks_get_their_own_answers(
    look: Look, server: ConsoleServer
) -> None:
    questions: list[dict[str, Any]] = [
        {"question": "How many?", "type": "integer"},
        {"question": "Really?", "type": "boolean"},
        {"question": "Which?", "options": ["left", "right"]},
    ]
    graph = build(questions)
    config: Any = {"configurable": {"thread_id": "asking"}}
    with TuskPointSaver(server.target) as saver:
        agent = graph.compile(checkpointer=saver)
        agent.invoke({"answers": []}, config)
        look.open("/thread?id=asking")
        region = look.page.get_by_role("region", name="Questions for a person")
        expect(region.get_by_role("heading").first).to_have_text("3 questions wait for a person")
        open_ones = region.get_by_role("article", name="An open question")

        one = open_ones.filter(has_text="How many?")
        one.get_by_role("textbox").fill("many")
        one.get_by_role("button", name="Answer…").click()
        expect(one.get_by_role("alert")).to_be_visible()
        one.get_by_role("textbox").fill("7")
        _answer(look, one)
        one = open_ones.filter(has_text="Really?")
        one.get_by_label("No").check()
        _answer(look, one)
        one = open_ones.filter(has_text="Which?")
        one.get_by_role("button", name="Answer with JSON").click()
        one.get_by_role("textbox").fill('{"way": "back"}')
        _answer(look, one)
        expect(region).to_contain_text("Answered: the agent can go on")
        done = agent.invoke(None, config)
    assert done["answers"] == [7, False, {"way": "back"}]


def _answer(look: Look, question: Locator) -> None:
    before = look.page.locator(".notice").count()
    question.get_by_role("button", name="Answer…").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Save the answer").click()
    expect(look.page.locator(".notice")).to_have_count(before + 1)
