"""A thread as a live tree."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from playwright.sync_api import expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer, Looking
from tuskpoint import Client, TuskPointSaver

ROWS = "[role=option][aria-posinset]"
INSIDE = "\u203a"  # between the node that runs a subgraph and a node of the subgraph

# Pixels between the graph and the title of each row.
GAPS = """(rows) => rows.map((row) => {
    const [graph, title] = ["svg", ".tree-title"].map((part) => row.querySelector(part));
    const drawn = graph.getBBox();
    return title.getBoundingClientRect().left
        - graph.getBoundingClientRect().left - drawn.x - drawn.width;
})"""


def rows(look: Look) -> Any:
    """Return the rows of the tree that are in the page."""
    return look.page.locator(ROWS)


def test_the_tree_shows_subgraphs_forks_and_hand_offs(
    look: Look, demo: Any, server: ConsoleServer
) -> None:
    with Client(server.target) as client:
        entries = list(client.list(demo.FINISHED, view="entry"))
    look.open(f"/thread?id={demo.FINISHED}")
    tree = look.page.get_by_role("listbox")
    expect(tree).to_have_attribute("aria-label", f"{len(entries)} checkpoints, newest first")
    expect(rows(look).first).to_contain_text("publish")
    expect(tree.get_by_text("1 fork")).to_be_visible()
    expect(tree.get_by_text("handed off")).to_be_visible()
    expect(tree.locator("path.aside").first).to_be_attached()
    family = look.page.get_by_role("region", name="Family")
    expect(family.get_by_role("link", name=demo.FORKED)).to_be_visible()
    expect(family.get_by_role("link", name=demo.ADOPTED)).to_be_visible()
    look.page.get_by_label("Graph", exact=True).select_option("Graph alone")
    roots = [entry for entry in entries if not entry.checkpoint_ns]
    expect(tree).to_have_attribute("aria-label", f"{len(roots)} checkpoints, newest first")


def test_titles_stand_beside_the_graph_on_a_phone(look_at: Looking, demo: Any) -> None:
    with look_at(width=390) as look:
        look.open(f"/thread?id={demo.FINISHED}")
        rows(look).first.wait_for()
        gaps = rows(look).evaluate_all(GAPS)
        assert len(gaps) > 10
        assert 4 <= min(gaps) <= max(gaps) <= 16, gaps


def test_an_origin_is_a_link_only_on_the_server_that_has_the_origin(
    look: Look, client: Client
) -> None:
    client.save("draft", {"n": 1})
    client.adopt(client.handoff("draft", to_agent="editor"), "adopted")
    main = look.page.get_by_role("main")
    family = look.page.get_by_role("region", name="Family")
    for links in (1, 0):
        look.open("/thread?id=adopted")
        expect(family).to_contain_text("adopted from draft at")
        expect(look.page.locator(".thread-facts")).to_contain_text("adopted from draft")
        expect(main.get_by_role("link", name="draft", exact=True)).to_have_count(links)
        expect(family.get_by_role("link", name="draft at")).to_have_count(links)
        client.delete("draft")


def test_longer_facts_do_not_move_the_page(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    head = look.page.locator(".page-head")
    head.locator("time").wait_for()
    before, after = head.evaluate(
        "(head) => [0, 1].map((isLonger) => {"
        "  if (isLonger) head.querySelector('time').textContent = '59 minutes ago'.padEnd(60, '0');"
        "  return head.offsetHeight;"
        "})"
    )
    assert before == after


def test_a_row_tells_the_step_in_columns(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    approve = rows(look).filter(has_text="approve").first
    expect(approve.locator(".tree-name")).to_have_text("approve")
    expect(approve.locator(".chip").first).to_have_text("current_plan")
    expect(approve.locator(".tree-step")).to_have_text("step 13")
    expect(approve.locator(".tree-took")).to_have_text(re.compile(r"^\+\d+\.\d\d s$"))
    expect(approve).to_contain_text("label approved")
    expect(rows(look).filter(has_text="asked a person")).to_have_count(1)
    compose = rows(look).filter(has_text="compose").first
    expect(compose.locator(".tree-title")).to_have_text(f"editor {INSIDE} compose")
    # The whole run took less than a minute: there is one time for it, or two.
    minutes = {text for text in look.page.locator(".tree-clock").all_inner_texts() if text}
    assert 1 <= len(minutes) <= 2


def test_what_a_thread_waits_for_or_failed_with_leads_to_where(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.WAITING}")
    line = look.page.locator(".attention")
    expect(line).to_contain_text("Waits for an answer in approve")
    expect(line).to_contain_text("Publish it?")
    rows(look).nth(4).click()
    line.get_by_role("link", name="Show the question").click()
    expect(rows(look).first).to_have_attribute("aria-selected", "true")
    # The graph failed in a node that runs a subgraph; the node of the subgraph is what failed.
    look.open(f"/thread?id={demo.BROKEN}")
    expect(line).to_contain_text(f"Failed in reader {INSIDE} load: UnicodeDecodeError")
    expect(line).to_contain_text("'invalid start byte'")
    leads = line.get_by_role("link", name="Show where").get_attribute("href")
    assert leads is not None
    error = look.page.locator(".problem")
    expect(error.get_by_role("link", name="Show where in reader")).to_have_attribute("href", leads)
    line.get_by_role("link", name="Show where").click()
    inner = look.page.locator(f"{ROWS}[aria-selected=true]")
    expect(inner.locator(".tree-title")).to_have_text(f"reader {INSIDE} Start")
    expect(inner).to_contain_text("failed in load: UnicodeDecodeError")
    expect(error).to_contain_text("Failed in load: UnicodeDecodeError")


def test_a_checkpoint_has_an_address_and_keys_move_on(
    look: Look, demo: Any, server: ConsoleServer
) -> None:
    with Client(server.target) as client:
        count = len(list(client.list(demo.WAITING, view="entry")))
    look.open(f"/thread?id={demo.WAITING}")
    expect(rows(look).first).to_have_attribute("aria-selected", "true")
    look.page.get_by_role("listbox").focus()
    look.page.keyboard.press("ArrowDown")
    look.page.keyboard.press("ArrowDown")
    third = rows(look).nth(2)
    expect(third).to_have_attribute("aria-selected", "true")
    title = third.locator(".tree-title").inner_text()
    look.page.reload()
    expect(look.page.locator(f"{ROWS}[aria-selected=true]")).to_contain_text(title)
    tree = look.page.get_by_role("listbox")
    expect(tree).to_have_attribute("aria-label", f"{count} checkpoints, newest first")
    tree.focus()
    look.page.keyboard.press("End")
    expect(look.page.locator(f"{ROWS}[aria-selected=true]")).to_contain_text("Input")


def test_what_is_saved_appears_and_then_is_certified(look: Look, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        client.save("live", {"n": 1}, summary="the first")
        client.flush()
        look.open("/thread?id=live")
        expect(rows(look)).to_have_count(1)
        client.save("live", {"n": 2}, summary="the second")
        expect(rows(look).first).to_contain_text("the second")
        client.label("live", "checked")
        expect(rows(look).first).to_contain_text("checked")
        client.flush()
        expect(look.page.locator(".knot.certified")).to_have_count(2)
        expect(look.page.get_by_text("not certified yet")).to_have_count(0)
        client.save("live", {"n": 3}, summary="the third")
        client.prune(["live"])
        expect(rows(look)).to_have_count(1)
        expect(rows(look).first).to_contain_text("the third")


def test_an_unknown_effect_appears_and_a_person_decides(look: Look, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        client.save("orders", {"n": 1})
        look.open("/thread?id=orders")
        rows(look).first.wait_for()
        begun = client.begin_effect("orders", "charge:42", name="charge", timeout_s=3600)
        effects = look.page.locator("details", has_text="1 effect")
        effects.locator("summary").click()
        expect(effects).to_contain_text("running")
        client.fail_effect(
            "orders",
            "charge:42",
            idempotency_key=begun.idempotency_key,
            attempt=begun.attempt,
            outcome="unknown",
            error="timeout",
        )
        expect(effects.locator("summary")).to_contain_text("1 unknown")
        expect(effects).to_contain_text("charge: timeout")
        expect(effects).to_contain_text(begun.idempotency_key)
        effects.get_by_role("button", name="Decide charge").click()
        dialog = look.page.get_by_role("dialog", name="Decide the effect")
        confirm = dialog.get_by_role("button", name="Record the decision")
        confirm.click()
        expect(dialog.get_by_role("alert")).to_contain_text("Say whether the work was done")
        dialog.get_by_label("was done.").check()
        dialog.get_by_role("textbox", name="Result").fill('{"receipt": 7')
        confirm.click()
        expect(dialog.get_by_role("alert")).to_contain_text("Line 1, column")
        look.accessible()
        dialog.get_by_role("textbox", name="Result").fill('{"receipt": 7}')
        dialog.get_by_label("Decided by").fill("the person on call")
        confirm.click()
        expect(effects).to_contain_text("done")
        expect(effects.get_by_role("button")).to_have_count(0)
        decided = client.get_effect("orders", "charge:42")
        assert (decided.state, decided.result) == ("done", {"receipt": 7})
        assert decided.resolved_by == "the person on call"


def test_a_deleted_thread_stays_on_screen(look: Look, server: ConsoleServer) -> None:
    look.allows_failures = True  # The thread no longer exists.
    with Client(server.target) as client:
        client.save("gone", {"n": 1}, summary="what it was")
        look.open("/thread?id=gone")
        expect(rows(look)).to_have_count(1)
        client.delete("gone")
        expect(look.page.get_by_text("This thread was deleted")).to_be_visible()
        expect(rows(look).first).to_contain_text("what it was")
        client.save("gone", {"n": 2}, summary="what began")
        expect(look.page.get_by_text("created again")).to_be_visible()
    look.page.get_by_role("button", name="Show the new one").click()
    expect(rows(look).first).to_contain_text("what began")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/thread?id=never-was", "thread 'never-was' not found"),
        ("/thread", "No thread is named"),
        ("/thread?id=%FF%00", "The server refused the input"),
        ("/thread?id=" + "x" * 600, "The server refused the input"),
        ("/nowhere", "The address does not name a page of the console"),
    ],
)
def test_an_address_that_leads_nowhere_says_so(look: Look, path: str, said: str) -> None:
    look.allows_failures = True
    look.open(path)
    expect(look.page.get_by_role("main")).to_contain_text(said)


def test_an_error_is_titled_by_its_node_and_type_and_shows_its_end(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.BROKEN}")
    error = look.page.locator(".problem")
    expect(error).to_contain_text("Failed in reader: UnicodeDecodeError")
    expect(error).to_contain_text("'invalid start byte'")
    expect(error).not_to_contain_text("How bees find their way")
    error.get_by_role("button", name="Show all").click()
    expect(error).to_contain_text("How bees find their way")
    look.open(f"/thread?id={demo.BROKEN}&tab=writes")
    tasks = look.page.get_by_role("region", name="Task reader")
    expect(tasks).to_have_count(5)


def test_a_traceback_is_folded(look: Look, server: ConsoleServer) -> None:
    calls = 'Traceback (most recent call last):\n  File "pay.py", line 7, in pay\n    charge()\n'

    def pay(state: MessagesState) -> MessagesState:
        raise RuntimeError(f"{calls}ValueError: no money")

    graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay")
    with TuskPointSaver(server.target) as saver, pytest.raises(RuntimeError, match="no money"):
        graph.compile(checkpointer=saver).invoke(
            {"messages": []}, {"configurable": {"thread_id": "refused"}}
        )
    look.open("/thread?id=refused")
    error = look.page.locator(".problem")
    expect(error).to_contain_text("Failed in pay: RuntimeError")
    expect(error.get_by_text("ValueError: no money", exact=True)).to_be_visible()
    expect(error.get_by_text("charge()")).to_be_hidden()
    error.get_by_text("Traceback", exact=True).click()
    expect(error.get_by_text("charge()")).to_be_visible()


def test_a_long_lineage_names_the_command_that_lists_the_rest(look: Look, client: Client) -> None:
    checkpoint_id = client.save("much forked", {"n": 1})
    for number in range(51):
        client.fork("much forked", checkpoint_id, f"fork-{number}")
    look.open("/thread?id=much+forked")
    family = look.page.get_by_role("region", name="Family")
    expect(family.get_by_role("listitem")).to_have_count(50)
    expect(family).to_contain_text("tuskpoint lineage --limit 1000 'much forked'")
    expect(family.get_by_role("button", name="Copy the command")).to_be_visible()
