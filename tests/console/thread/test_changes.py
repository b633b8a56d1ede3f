"""Graphs continue correctly after each change that the console makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from playwright.sync_api import Locator, expect

from tests.console.asking_agent import Agent, answer
from tests.console.browser import Look
from tests.console.hands import Mouse, checkpoint_menu, thread_menu
from tuskpoint import Client


def said(look: Look, text: str) -> Locator:
    """Return the report of a change."""
    report = look.page.get_by_role("status").get_by_text(text)
    expect(report).to_be_visible()
    return report


def edit(look: Look, channel: str) -> Locator:
    Mouse(look.page).choose(checkpoint_menu(look.page), "Edit and save")
    dialog = look.page.get_by_role("dialog", name="Edit and save")
    dialog.get_by_label("Channel", exact=True).select_option(channel)
    return dialog


def test_a_graph_continues_from_an_edited_value(look: Look, agent: Callable[[Any], Agent]) -> None:
    asking = agent("Proceed?")
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
    asking = agent("Proceed?")
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
    asking = agent("Proceed?")
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
    asking = agent("Proceed?")
    look.allows_failures = True
    look.open(f"/thread?id={asking.thread_id}")
    Mouse(look.page).choose(checkpoint_menu(look.page), "Hand off")
    dialog = look.page.get_by_role("dialog", name="Hand off")
    dialog.get_by_label("To agent").fill("writer")
    dialog.get_by_label("The offer expires").select_option("after 1 day")
    dialog.get_by_role("button", name="Hand off").click()
    made = look.page.get_by_role("dialog", name="The descriptor")
    expect(made.get_by_role("img")).to_be_visible()
    inbox = made.get_by_role("link", name="the inbox")
    expect(inbox).to_have_attribute("href", "/inbox?agent=writer")
    (offer,) = client.list_handoffs("writer", thread_id=asking.thread_id)
    assert offer.expires == offer.created + timedelta(days=1)
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
    look.page.get_by_text("Advanced").click()
    look.page.get_by_label("Required signers").fill(descriptor["signer"])
    look.page.get_by_role("button", name="Adopt").click()
    expect(progress.get_by_role("heading", name="Adopted")).to_be_visible()
    look.accessible()
    adopted = client.get_thread(f"{asking.thread_id}-adopted")
    assert (adopted.agent_id, adopted.state) == ("writer", "interrupted")


def test_fork_label_and_roll_back(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Proceed?")
    thread_id = asking.thread_id
    first = list(client.list(thread_id))[-1].checkpoint_id
    look.open(f"/thread?id={thread_id}&checkpoint={first}")
    dialog = look.page.get_by_role("dialog")
    look.page.get_by_role("button", name="Fork", exact=True).click()
    dialog.get_by_label("ID of the new thread").fill(f"{thread_id}-fork")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    said(look, "Forked checkpoint")
    assert client.get_thread(f"{thread_id}-fork").head_checkpoint_id == first
    Mouse(look.page).choose(checkpoint_menu(look.page), "Label")
    dialog.get_by_label("Label").fill("good")
    look.page.get_by_role("button", name="Set the label").click()
    said(look, "Labelled checkpoint")
    assert client.load(thread_id, first).label == "good"
    look.page.get_by_role("button", name="Roll back", exact=True).click()
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    said(look, "Rolled thread")
    assert client.load(thread_id).lineage.rolled_back_from == f"{thread_id}:{first}"


def test_a_snapshot_is_captured_restored_and_deleted(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    first, other = agent("One?"), agent("Other?")
    look.open("/snapshots")
    look.page.get_by_role("button", name="Capture threads").click()
    look.page.get_by_label("Threads").fill(f"{first.thread_id}\n{other.thread_id}")
    look.page.get_by_role("dialog").get_by_label("Session").fill(first.thread_id)
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
    client.save(first.thread_id, {}, summary="later")
    look.page.get_by_role("button", name="Restore").click()
    look.page.get_by_label("By rollback").check()
    look.page.get_by_role("button", name="Roll the threads back").click()
    restored.get_by_role("button", name="Close").click()
    assert client.load(first.thread_id, view="entry").lineage.rolled_back_from
    look.page.get_by_role("button", name="Delete").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    said(look, "Deleted snapshot")
    assert list(client.list_snapshots(session_id=first.thread_id)) == []


def test_a_thread_is_deleted_only_by_its_name(
    look: Look, agent: Callable[[Any], Agent], client: Client
) -> None:
    asking = agent("Proceed?")
    look.allows_failures = True  # The page asks for a thread that no longer exists.
    look.open(f"/thread?id={asking.thread_id}")
    Mouse(look.page).choose(thread_menu(look.page), "Delete")
    dialog = look.page.get_by_role("dialog", name="Delete the thread")
    dialog.get_by_label("ID of the thread").fill("another")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was deleted.")
    assert client.get_thread(asking.thread_id).state == "interrupted"
    dialog.get_by_label("ID of the thread").fill(asking.thread_id)
    dialog.get_by_role("button", name="Delete").click()
    said(look, "Deleted thread")
    assert asking.thread_id not in [record.thread_id for record in client.list_threads()]


@pytest.fixture
def thread(client: Client, request: pytest.FixtureRequest) -> str:
    """A thread of three checkpoints; the second one has another plan."""
    name: str = request.node.name
    for plan in ("read", "write", "send"):
        client.save(name, {"plan": plan, "n": 2**53 + 1}, summary=f"planned to {plan}")
    return name


class Actions:
    """The page of a thread, and the actions on it."""

    def __init__(self, look: Look, thread: str) -> None:
        self.look, self.page, self.thread = look, look.page, thread
        self.panel = self.page.get_by_role("region", name="Checkpoint", exact=True)
        self.dialog = self.page.get_by_role("dialog")
        self.rows = self.page.get_by_role("listbox").get_by_role("option")

    def open(self, summary: str = "planned to send") -> None:
        """Show a checkpoint of the thread."""
        self.look.open(f"/thread?id={self.thread}")
        self.rows.filter(has_text=summary).click()
        expect(self.panel.get_by_role("heading", level=2)).to_have_text(summary)

    def ask(self, action: str, *, of_thread: bool = False) -> Locator:
        """Choose an action on the checkpoint, or on the thread; return the dialog that opens."""
        if action in ("Fork", "Roll back"):
            self.panel.get_by_role("button", name=action).click()
        else:
            menu = thread_menu(self.page) if of_thread else checkpoint_menu(self.page)
            Mouse(self.page).choose(menu, action)
        expect(self.dialog).to_be_visible()
        return self.dialog

    def confirm(self, button: str, said: str) -> None:
        """Confirm the dialog; wait until the page reports the change."""
        self.dialog.get_by_role("button", name=button, exact=True).click()
        expect(self.page.get_by_role("status").filter(has_text=said)).to_be_visible()
        expect(self.dialog).to_have_count(0)


@pytest.fixture
def actions(look: Look, thread: str) -> Actions:
    return Actions(look, thread)


def summaries(client: Client, thread: str) -> list[str]:
    return [record.summary for record in client.list(thread, view="entry")]


def test_escape_and_cancel_change_nothing(actions: Actions, client: Client) -> None:
    actions.open()
    before = client.get_thread(actions.thread).updated
    for action in ("Fork", "Roll back", "Label", "Edit and save", "Hand off"):
        actions.ask(action)
        actions.page.keyboard.press("Escape")
        expect(actions.dialog).to_have_count(0)
        button = action if action in ("Fork", "Roll back") else "More"
        expect(actions.panel.get_by_role("button", name=button)).to_be_focused()
    actions.ask("Roll back").get_by_role("button", name="Cancel").click()
    expect(actions.dialog).to_have_count(0)
    expect(actions.panel.get_by_role("button", name="Roll back")).to_be_focused()
    assert client.get_thread(actions.thread).updated == before


def test_an_existing_name_is_told_in_the_dialog(actions: Actions, client: Client) -> None:
    client.save("taken", {})
    actions.look.allows_failures = True  # the call is refused
    actions.open()
    dialog = actions.ask("Fork")
    dialog.get_by_label("ID of the new thread").fill("taken")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("taken")
    dialog.get_by_label("ID of the new thread").fill("free")
    actions.confirm("Fork", "as thread “free”")
    assert summaries(client, "free") == ["planned to send"]


def test_a_head_that_moved_is_not_rolled_back(actions: Actions, client: Client) -> None:
    actions.look.allows_failures = True  # the call is refused
    actions.open("planned to read")
    dialog = actions.ask("Roll back")
    client.save(actions.thread, {"plan": "archive"}, summary="somebody was faster")
    dialog.get_by_role("button", name="Roll back", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("HEAD_MOVED")
    dialog.get_by_role("button", name="Cancel").click()
    assert summaries(client, actions.thread)[0] == "somebody was faster"


def test_threads_are_copied_hidden_kept_and_pruned(actions: Actions, client: Client) -> None:
    thread = actions.thread
    actions.open()
    actions.ask("Copy the thread", of_thread=True).get_by_label("ID of the copy").fill("copy")
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
