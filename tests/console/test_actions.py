"""What the console changes: it asks before, says afterwards what it did, and that was done."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint import Client, NotFound, TuskPointSaver


@pytest.fixture(scope="module")
def client(server: ConsoleServer) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client


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

    def confirm(self, button: str, said: str | re.Pattern[str]) -> None:
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


def test_a_fork_begins_with_the_checkpoint_that_is_shown(actions: Actions, client: Client) -> None:
    actions.open("planned to write")
    actions.ask("Fork from here").get_by_label("ID of the new thread").fill("fork")
    actions.confirm("Fork", "as thread “fork”")
    assert client.load("fork", view="json").state["plan"] == "write"
    assert client.load("fork", view="entry").lineage.forked_from.startswith(actions.thread)
    expect(actions.rows.filter(has_text="1 fork")).to_have_count(1)


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


def test_a_rollback_adds_a_head(actions: Actions, client: Client) -> None:
    actions.open("planned to read")
    actions.ask("Roll back to here")
    actions.confirm("Roll back", "Rolled thread")
    assert client.load(actions.thread, view="json").state["plan"] == "read"
    assert len(summaries(client, actions.thread)) == 4
    expect(actions.rows.first).to_contain_text("rolled back")


def test_a_head_that_moved_is_not_rolled_back(actions: Actions, client: Client) -> None:
    actions.look.allows_failures = True  # the call is refused
    actions.open("planned to read")
    dialog = actions.ask("Roll back to here")
    client.save(actions.thread, {"plan": "archive"}, summary="somebody was faster")
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("HEAD_MOVED")
    dialog.get_by_role("button", name="Cancel").click()
    assert summaries(client, actions.thread)[0] == "somebody was faster"


def test_a_label_is_set_and_cleared(actions: Actions, client: Client) -> None:
    actions.open("planned to write")
    actions.ask("Label").get_by_role("textbox", name="Label").fill("good")
    actions.confirm("Set the label", "“good”")
    assert [one.summary for one in client.list(actions.thread, label="good")] == [
        "planned to write"
    ]
    actions.ask("Label").get_by_role("textbox", name="Label").fill("")
    actions.confirm("Clear the label", "Cleared the label")
    assert list(client.list(actions.thread, label="good")) == []


def test_an_edited_value_is_a_new_checkpoint(actions: Actions, client: Client) -> None:
    actions.open("planned to write")
    dialog = actions.ask("Edit and save")
    dialog.get_by_label("Channel").select_option("plan")
    expect(dialog.get_by_label("Value")).to_have_value('"write"')
    dialog.get_by_label("Value").fill('"write')
    dialog.get_by_role("button", name="Save as a new checkpoint").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("Value").fill('"write again"')
    actions.confirm("Save as a new checkpoint", "another value of “plan”")
    saved = client.load(actions.thread)
    assert saved.state == {"plan": "write again", "n": 2**53 + 1}
    parent = client.load(actions.thread, saved.parent_checkpoint_id, view="entry")
    assert parent.summary == "planned to write"


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


def test_a_thread_is_deleted_once_its_id_is_typed(actions: Actions, client: Client) -> None:
    actions.look.allows_failures = True  # what is deleted can be described no more
    actions.open()
    dialog = actions.ask("Delete", of_thread=True)
    dialog.get_by_label("ID of the thread").fill("another")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was deleted")
    assert len(summaries(client, actions.thread)) == 3
    dialog.get_by_label("ID of the thread").fill(actions.thread)
    actions.confirm("Delete", "with 3 checkpoints")
    expect(actions.page.get_by_text("This thread was deleted")).to_be_visible()
    with pytest.raises(NotFound):
        client.get_thread(actions.thread)


def test_a_snapshot_is_captured_restored_and_deleted(actions: Actions, client: Client) -> None:
    page, thread = actions.page, actions.thread
    actions.open()
    actions.panel.get_by_role("button", name="Capture in a snapshot").click()
    actions.dialog.get_by_label("Session").fill("friday")
    actions.confirm("Capture", "Captured 1 thread")
    snapshot = client.latest_snapshot(session_id="friday")
    client.save(thread, {"plan": "later"}, summary="later")
    page.get_by_role("link", name="Open the snapshot").click()
    expect(page.get_by_role("region", name="Members")).to_contain_text(thread)

    page.get_by_role("button", name="Restore").click()
    actions.dialog.get_by_role("button", name="Restore as new threads").click()
    restored = page.get_by_role("dialog", name="Restored").get_by_role("link").inner_text()
    page.get_by_role("dialog", name="Restored").get_by_role("button", name="Close").click()
    new = restored.split(" at ")[0]
    assert client.load(new, view="json").state["plan"] == "send"

    page.get_by_role("button", name="Restore").click()
    actions.dialog.get_by_label("By rollback").check()
    actions.dialog.get_by_role("button", name="Roll the threads back").click()
    page.get_by_role("dialog", name="Restored").get_by_role("button", name="Close").click()
    assert client.load(thread, view="json").state["plan"] == "send"

    page.get_by_role("button", name="Delete").click()
    actions.confirm("Delete", "Deleted snapshot")
    expect(page.get_by_role("heading", level=1)).to_have_text("Snapshots")
    with pytest.raises(NotFound):
        client.get_snapshot(snapshot.snapshot_id)


def test_a_hand_off_is_adopted_stage_by_stage(actions: Actions, client: Client) -> None:
    page = actions.page
    client.flush()
    descriptor = client.handoff(actions.thread, to_agent="editor").to_json()
    actions.look.open("/adopt")
    page.get_by_label("Descriptor").fill(descriptor)
    page.get_by_label("ID of the new thread").fill("adopted")
    page.get_by_role("button", name="Adopt", exact=True).click()
    progress = page.get_by_role("region", name="Progress")
    expect(progress.get_by_role("heading", name="Adopted")).to_be_visible()
    expect(progress.locator("li[data-state=done]")).to_have_count(progress.locator("li").count())
    assert client.load("adopted", view="json").state["plan"] == "send"
    progress.get_by_role("link", name="adopted").click()
    expect(actions.rows.first).to_contain_text("adopted")


def test_a_wrong_hash_is_refused_with_both_hashes(actions: Actions, client: Client) -> None:
    page = actions.page
    actions.look.allows_failures = True  # the call is refused
    descriptor = json.loads(client.handoff(actions.thread).to_json())
    right, wrong = descriptor["blob_sha256"], "00" * 32
    descriptor.update(blob_sha256=wrong, signer="", signature="")
    actions.look.open("/adopt")
    page.get_by_label("Descriptor").fill(json.dumps(descriptor))
    page.get_by_label("ID of the new thread").fill("never")
    page.get_by_role("button", name="Adopt", exact=True).click()
    progress = page.get_by_role("region", name="Progress")
    expect(progress).to_contain_text(wrong)
    expect(progress).to_contain_text(right)
    expect(progress).to_contain_text("Nothing was written")
    with pytest.raises(NotFound):
        client.get_thread("never")


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
