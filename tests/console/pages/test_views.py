"""Every view of the demo's threads opens by its address."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer, Looking
from tests.console.hands import Mouse, checkpoint_menu
from tuskpoint import Client, TuskPointSaver


def panel(look: Look) -> Locator:
    """Return the panel of the shown checkpoint."""
    return look.page.get_by_role("region", name="Checkpoint", exact=True)


def tab(look: Look, name: str) -> None:
    """Open a tab of the checkpoint."""
    look.page.get_by_role("navigation", name="Parts of the checkpoint").get_by_role(
        "link", name=name
    ).click()


def reply(state: MessagesState) -> MessagesState:
    """Reply as a model would: the first reply calls a tool."""
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("It is in Oslo.")]}
    call = {"name": "track", "args": {"parcel": "PX-1"}, "id": "call-1"}
    return {"messages": [AIMessage("I look it up.", tool_calls=[call])]}


def track(state: MessagesState) -> MessagesState:
    return {"messages": [ToolMessage("in Oslo", tool_call_id="call-1", name="track")]}


@pytest.fixture(scope="module")
def support(server: ConsoleServer) -> str:
    """Run a conversation in LangGraph with a call of a tool."""
    graph = StateGraph(MessagesState)
    graph.add_node("reply", reply)
    graph.add_node("track", track)
    graph.add_edge(START, "reply")
    graph.add_conditional_edges(
        "reply", lambda state: "track" if state["messages"][-1].tool_calls else END
    )
    graph.add_edge("track", "reply")
    with TuskPointSaver(server.target) as saver:
        graph.compile(checkpointer=saver).invoke(
            {"messages": [HumanMessage("Where is my parcel?")]},
            {"configurable": {"thread_id": "support"}},
        )
    return "support"


def test_the_state_of_a_checkpoint_unfolds(look_at: Looking, demo: Any) -> None:
    for dark in (False, True):
        with look_at(dark=dark) as look:
            look.open(f"/thread?id={demo.FINISHED}")
            state = panel(look)
            expect(state.get_by_role("heading", level=2)).to_have_text("publish")
            expect(state.get_by_text("certified", exact=True)).to_be_visible()
            state.get_by_role("button", name="statistics").click()
            expect(state).to_contain_text("words_per_sentence")
            expect(look.page.get_by_role("listbox")).to_contain_text("handed off")
            expect(look.page.locator(".knot.certified").first).to_be_attached()


def test_each_part_of_a_checkpoint_has_an_address(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.WAITING}")
    tab(look, "Changes")
    expect(panel(look)).to_contain_text("current_plan")
    tab(look, "Writes")
    expect(panel(look).get_by_role("region", name=re.compile("^Task"))).to_contain_text("approve")
    tab(look, "Metadata")
    expect(panel(look)).to_contain_text("source")
    tab(look, "Stored")
    expect(panel(look)).to_contain_text("SHA-256")
    panel(look).get_by_role("button", name="Look it up in the thread's manifest").click()
    expect(panel(look)).to_contain_text("Catalog that leads to it")
    assert "tab=stored" in look.page.url
    look.page.reload()
    expect(panel(look)).to_contain_text("SHA-256")
    tab(look, "State")
    expect(panel(look)).to_contain_text("Framework's own channels")
    look.page.go_back()
    expect(panel(look)).to_contain_text("SHA-256")


def test_messages_are_a_conversation(look: Look, support: str) -> None:
    look.open(f"/thread?id={support}&tab=conversation")
    messages = look.page.get_by_role("log", name="Messages").get_by_role("article")
    expect(messages).to_have_count(3)
    expect(messages.nth(0)).to_contain_text("Human")
    expect(messages.nth(1)).to_contain_text("calls track")
    expect(messages.nth(1)).to_contain_text("in Oslo")
    expect(messages.nth(2)).to_contain_text("It is in Oslo.")


def test_the_conversation_opens_first_where_there_is_one(
    look: Look, demo: Any, support: str
) -> None:
    look.open(f"/thread?id={support}")
    current = panel(look).locator(".tabs [aria-current=true]")
    expect(current).to_have_text("Conversation")
    expect(look.page.get_by_role("log", name="Messages")).to_be_visible()
    tab(look, "State")
    expect(current).to_have_text("State")
    assert "tab=state" in look.page.url
    look.page.reload()
    expect(current).to_have_text("State")
    look.open(f"/thread?id={demo.FINISHED}")
    expect(current).to_have_text("State")
    expect(panel(look).locator(".tabs")).not_to_contain_text("Conversation")


def test_changed_channels_come_first_and_those_of_the_framework_are_folded(
    look: Look, demo: Any
) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    changed = panel(look).get_by_role("list", name="Changed by this step")
    expect(changed.get_by_role("button")).to_have_text(["current_plan", "trail"])
    others = panel(look).get_by_role("list", name="Other channels")
    expect(others.get_by_role("button", name="briefing")).to_be_visible()
    branch = panel(look).get_by_role("button", name="branch:to:publish")
    expect(branch).to_be_hidden()
    panel(look).get_by_text("Framework's own channels").click()
    expect(branch).to_be_visible()
    # The whole line unfolds a value, which then has its version and hash.
    changed.get_by_text("Nothing left to do.").click(force=True)
    expect(changed).to_contain_text("version 17")
    expect(changed.get_by_role("button", name="Copy the SHA-256 of current_plan")).to_be_visible()


def test_a_question_is_a_form(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.WAITING}")
    question = look.page.get_by_role("region", name="Questions for a person")
    expect(question.get_by_role("group", name="Answer").get_by_role("button")).to_have_count(3)


def test_checkpoints_are_compared(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    Mouse(look.page).choose(checkpoint_menu(look.page), "Compare with the parent")
    expect(look.page.get_by_role("heading", level=1)).to_have_text("What differs")
    changes = look.page.get_by_role("region", name="Changes")
    expect(changes).to_contain_text("current_plan")
    expect(look.page.get_by_role("region", name="To", exact=True)).to_contain_text("publish")
    look.page.get_by_role("link", name="Swap the sides").click()
    expect(look.page.get_by_role("region", name="From", exact=True)).to_contain_text("publish")
    first = look.page.get_by_role("region", name="From", exact=True)
    first.get_by_role("button", name="Choose another").click()
    first.get_by_label("Thread").fill(demo.WAITING)
    # Tab leaves the field, and the checkpoints of the thread are listed.
    first.get_by_label("Thread").press("Tab")
    first.get_by_role("button", name="Show").click()
    expect(first).to_contain_text("the latest")
    expect(changes).to_contain_text("briefing")


def test_a_thread_is_verified(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    look.page.get_by_role("link", name="Proof").click()
    verify = look.page.get_by_role("region", name="Verify")
    verify.get_by_role("button", name="Verify", exact=True).click()
    expect(verify.get_by_role("status")).to_be_visible()
    expect(verify.get_by_role("list", name="Verdicts")).to_contain_text("0 failed")
    expect(look.page.get_by_role("region", name="Chain")).to_contain_text("Catalog")
    look.page.get_by_role("button", name="Store the manifest").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Store it").click()
    expect(look.page.get_by_text("The manifest is stored", exact=True)).to_be_visible()


def test_bytes_that_changed_fail_with_both_hashes(look: Look, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        client.save("damaged", {"n": 1}, summary="damaged")
        client.flush()
        location = client.load("damaged", view="entry").location
    assert location is not None
    (blob,) = (server.data_dir / "blobs").rglob(f"*{location.blob_id}*")
    stored = blob.read_bytes()
    segments = (stored[at : at + location.size] for at in range(len(stored)))
    segment = next(
        segment for segment in segments if sha256(segment).hexdigest() == location.sha256
    )
    changed = segment[:-1] + bytes([segment[-1] ^ 1])
    blob.chmod(0o600)
    blob.write_bytes(stored.replace(segment, changed))
    look.open("/proof?thread=damaged&run=1")
    verify = look.page.get_by_role("region", name="Verify")
    expect(verify.get_by_role("alert")).to_contain_text("failed")
    for content in (segment, changed):
        expect(verify).to_contain_text(sha256(content).hexdigest())


def test_a_search_says_how_near_and_what_was_left_out(look: Look, demo: Any) -> None:
    look.open("/threads")
    field = look.page.get_by_label("Filter by name; Enter searches what happened")
    field.fill("asked for approval")
    field.press("Enter")
    results = look.page.get_by_role("region", name="Results")
    expect(results).to_contain_text("distance")
    result = results.locator("a.row").first
    expect(result.locator(".thread-name")).to_contain_text("briefing-")
    expect(result.locator(".thread-agent")).to_have_text("planner")
    expect(result.locator("mark").first).to_be_visible()
    look.page.get_by_role("heading", level=1).click()  # a field has no keys
    look.page.keyboard.press("j")
    expect(result).to_be_focused()
    title = result.locator(".result-title").inner_text()
    look.page.keyboard.press("Enter")
    heading = panel(look).get_by_role("heading", level=2)
    expect(heading).to_be_visible()
    assert heading.inner_text() in title
    look.open(f"/search?q=approval&thread={demo.WAITING}&limit=1")
    expect(results.locator("a.row")).to_have_count(1)
    look.open("/search?q=zzzunheard")
    expect(results).to_contain_text("Nothing found")


def test_operations_tell_what_waits(look: Look, demo: Any, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        client.save("late", {"n": 1})
    look.open("/operations")
    look.page.get_by_role("button", name="Flush").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Flush now").click()
    expect(look.page.locator(".notice")).to_contain_text("Flushed")
    expect(look.page.get_by_role("region", name="Health")).to_contain_text("All is well")
    look.page.get_by_role("button", name="Read the trail").click()
    expect(look.page.get_by_text("The trail is empty")).to_be_visible()


def test_snapshots_are_found_by_their_session(look: Look, demo: Any, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        for session in ("monday", "tuesday"):
            client.create_snapshot([demo.WAITING, demo.FINISHED], session_id=session)
    look.open("/snapshots")
    expect(look.page.locator("a.row")).to_have_count(2)
    look.page.get_by_label("Session").fill("monday")
    look.page.get_by_role("button", name="Filter").click()
    expect(look.page.locator("a.row")).to_have_count(1)
    look.page.locator("a.row").click()
    expect(look.page.get_by_role("heading", name="2 threads captured")).to_be_visible()


def test_a_phone_shows_a_thread(look_at: Looking, demo: Any) -> None:
    with look_at(width=375, height=760) as look:
        look.open(f"/thread?id={demo.WAITING}")
        expect(look.page.get_by_role("region", name="Questions for a person")).to_be_attached()
        look.fits()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/thread?id={thread}&checkpoint=no-such", "checkpoint 'no-such' not found"),
        ("/thread?id={thread}&tab=no-such&ns=no-such", "step"),
        ("/diff", "No checkpoint is named"),
        ("/diff?from={thread}&from_checkpoint=no-such", "checkpoint 'no-such' not found"),
        ("/diff?from=%FF%00&to={long}", "The server refused the input"),
        ("/proof", "No thread is named"),
        ("/proof?thread=no-such&run=1", "thread 'no-such' not found"),
        ("/proof?thread={long}", "The server refused the input"),
        ("/snapshots?id=no-such", "snapshot 'no-such' not found"),
        ("/snapshots?session={long}", "The server refused the input"),
        ("/threads?state=no-such&since=no-such&agent=%FF", "Threads"),
        ("/threads?label={long}", "The server refused the input"),
        ("/search?q={long}", "The server refused the input"),
        ("/search?q=a&filter=%7B&limit=-1&mode=no-such", "JSON"),
        ("/inbox?agent={long}", "The server refused the input"),
        ("/inbox?state=no-such&agent=%FF&unnamed=%00", "No offer matches"),
        ("/adopt?id=%00", "Adopt a hand-off"),
    ],
)
def test_a_malformed_address_is_told_in_the_page(
    look: Look, demo: Any, path: str, said: str
) -> None:
    look.allows_failures = True  # the server refuses
    look.open(path.format(thread=demo.WAITING, long="x" * 6000))
    expect(look.page.get_by_role("main")).to_contain_text(said, ignore_case=True)
    look.fits()
