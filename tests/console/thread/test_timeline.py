"""The timeline of a thread: lanes, bars, breaks, marks, the seal, and ways to move in it."""

from __future__ import annotations

import operator
import re
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, interrupt
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint import Client, TuskPointSaver

THREAD = "continued"
TICKS_DIFFER = """
    (before) => JSON.stringify(before) !== JSON.stringify(
        [...document.querySelectorAll(".timeline-tick")].map(({innerText}) => innerText)
    )
"""
# Whether an element around an element cuts off a part of the element.
IS_CUT = """
    (element) => {
        const {bottom, left, right} = element.getBoundingClientRect();
        for (let around = element.parentElement; around; around = around.parentElement) {
            const box = around.getBoundingClientRect();
            const isOutside = bottom > box.bottom || right > box.right || left < box.left;
            if (isOutside && getComputedStyle(around).overflow !== "visible") {
                return true;
            }
        }
        return false;
    }
"""
WIDE, NARROW = {"width": 1280, "height": 850}, {"width": 390, "height": 800}


class State(TypedDict, total=False):
    trail: Annotated[list[str], operator.add]


def _step(name: str) -> Any:
    return lambda state: {"trail": [name]}


def _agent(saver: TuskPointSaver) -> CompiledStateGraph[Any]:
    """A graph that reads in parallel subgraphs, writes, asks, and sends."""
    reader = StateGraph(State)
    reader.add_node("load", _step("load"))
    reader.add_node("count", _step("count"))
    reader.add_edge(START, "load")
    reader.add_edge("load", "count")
    graph = StateGraph(State)
    graph.add_node("plan", _step("plan"))
    graph.add_node("reader", reader.compile())
    graph.add_node("write", _step("write"))
    graph.add_node("approve", lambda state: {"trail": [interrupt("Send it?")]})
    graph.add_node("send", _step("send"))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("reader", state)] * 2, ["reader"])
    for before, after in (("reader", "write"), ("write", "approve"), ("approve", "send")):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def _config(thread_id: str) -> RunnableConfig:
    """The configuration of a new run, with an identity."""
    return {"configurable": {"thread_id": thread_id}, "metadata": {"run_id": str(uuid4())}}


@pytest.fixture(scope="module")
def continued(server: ConsoleServer) -> int:
    """A thread of three runs: one ended before `write`, one asked, one got the answer; its size."""
    with TuskPointSaver(server.target) as saver, Client(server.target) as client:
        agent = _agent(saver)
        agent.invoke({"trail": []}, _config(THREAD), interrupt_before=["write"])
        agent.invoke(None, _config(THREAD))
        agent.invoke(Command(resume="yes"), _config(THREAD))
        written = next(
            entry.checkpoint_id
            for entry in client.list(THREAD, checkpoint_ns="", view="entry")
            if "write ran" in entry.summary
        )
        client.label(THREAD, "draft", checkpoint_id=written)
        client.fork(THREAD, written, "forked from the draft")
        client.adopt(client.handoff(THREAD, to_agent="editor"), "adopted by the editor")
        return len(list(client.list(THREAD, view="entry")))


def _open(look: Look, thread_id: str, **parts: str) -> Locator:
    """Open the timeline of a thread; return the list of its checkpoints."""
    query = "".join(f"&{name}={value}" for name, value in parts.items())
    look.open(f"/thread?id={thread_id}{query}")
    look.page.get_by_role("button", name="Timeline", exact=True).click()
    return look.page.get_by_role("region", name="Timeline").get_by_role("listbox")


def _table(look: Look) -> Locator:
    look.page.get_by_role("button", name="Show as a table").click()
    return look.page.get_by_role("region", name="Timeline").get_by_role("table")


def test_the_timeline_is_for_wide_screens_until_somebody_chooses(
    look: Look, continued: int
) -> None:
    browser = look.page.context.browser
    assert browser is not None
    for size, view, other in ((WIDE, "Timeline", "Tree"), (NARROW, "Tree", "Timeline")):
        context = browser.new_context(viewport=size)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{look.address}/thread?id={THREAD}")
        chosen = page.get_by_role("button", pressed=True)
        expect(chosen.filter(has_text=view)).to_be_visible()
        page.get_by_role("button", name=other, exact=True).click()
        page.reload()
        expect(chosen.filter(has_text=other)).to_be_visible()
        context.close()


def test_lanes_bars_and_breaks(look: Look, continued: int) -> None:
    timeline = _open(look, THREAD)
    expect(timeline).to_have_attribute("aria-label", f"{continued} checkpoints, by time")
    expect(look.page.locator(".timeline-name")).to_have_text(["graph", "reader", "reader"])
    expect(look.page.locator(".timeline-gap.break")).to_contain_text("continued")
    written = timeline.get_by_role("option", name="write, graph, ")
    expect(written).to_have_text("write")
    expect(written).to_have_attribute("class", re.compile("torn"))
    written.click()
    expect(_selected(timeline)).to_have_accessible_name(re.compile("^write, graph, .*label draft"))
    expect(look.page.get_by_role("heading", level=2).first).to_contain_text("write")


def test_the_table_has_the_facts_of_the_picture(look: Look, continued: int) -> None:
    _open(look, THREAD)
    table = _table(look)
    rows = table.get_by_role("row")
    expect(rows).to_have_count(continued + 1)
    written = rows.filter(has=look.page.get_by_role("link", name="write", exact=True))
    expect(written).to_contain_text("run ended before this was saved, continued")
    expect(written).to_contain_text("label draft")
    expect(written).to_contain_text("1 fork")
    expect(written).to_contain_text("asked a person")
    approved = rows.filter(has=look.page.get_by_role("link", name="approve", exact=True))
    expect(approved).to_contain_text("includes the wait for an answer")
    expect(rows.last).to_contain_text("handed off")
    expect(rows.filter(has_text="reader").filter(has_text="load")).to_have_count(2)
    written.get_by_role("link").click()
    panel = look.page.get_by_role("region", name="Checkpoint", exact=True)
    expect(panel.get_by_role("heading", level=2)).to_contain_text("write")
    expect(written).to_have_attribute("aria-current", "true")


def test_a_run_without_an_identity_claims_no_break(look: Look, server: ConsoleServer) -> None:
    with TuskPointSaver(server.target) as saver:
        config: RunnableConfig = {"configurable": {"thread_id": "anonymous"}}
        agent = _agent(saver)
        agent.invoke({"trail": []}, config, interrupt_before=["write"])
        agent.invoke(None, config)
    _open(look, "anonymous")
    expect(look.page.locator(".timeline-tail")).to_have_text("Send it?")
    expect(look.page.locator(".timeline-gap")).to_have_count(0)
    expect(_table(look)).not_to_contain_text("run ended")


def test_the_seal_is_given_on_a_click_and_ends_with_a_change(
    look: Look, server: ConsoleServer
) -> None:
    with Client(server.target) as client:
        for number in range(3):
            client.save("sealed", {"n": number})
        client.flush()
        _open(look, "sealed")
        look.page.get_by_role("button", name="Verify", exact=True).click()
        seal = look.page.get_by_role("link", name="3 of 3 hashes verified")
        expect(seal).to_be_visible()
        client.save("sealed", {"n": 3})
        expect(seal).to_contain_text("before the last change")
        client.flush()
        look.page.get_by_role("button", name="Verify again").click()
        look.page.get_by_role("link", name="4 of 4 hashes verified").click()
        verify = look.page.get_by_role("region", name="Verify")
        expect(verify).to_contain_text("4 of 4 hashes verified")
    expect(look.page.get_by_role("heading", level=1)).to_have_text("Proof of sealed")


def _selected(timeline: Locator) -> Locator:
    return timeline.get_by_role("option", selected=True)


def test_keys_move_along_time_and_between_lanes(look: Look, continued: int) -> None:
    timeline = _open(look, THREAD)
    selected = _selected(timeline)

    def press(key: str, name: str) -> None:
        look.page.keyboard.press(key)
        expect(selected).to_have_accessible_name(re.compile(f"^{name}(,|$)"))

    expect(selected).to_have_accessible_name(re.compile("^send, graph, "))
    press("k", "approve, graph")
    press("k", "write, graph")
    press("j", "approve, graph")
    timeline.focus()
    press("Home", "Input, graph")
    press("ArrowRight", "Start, graph")
    press("ArrowRight", "plan, graph")
    # LangGraph saves in the background: a subgraph's first saves may be before its caller's.
    press("ArrowDown", "(Input|Start|load), reader")
    press("ArrowUp", "(Input|Start|plan|reader), graph")
    press("End", "send, graph")
    press("ArrowLeft", "approve, graph")
    look.page.reload()
    expect(selected).to_have_accessible_name(re.compile("^approve, graph, "))


def _ticks(look: Look) -> list[str]:
    return look.page.locator(".timeline-tick").all_inner_texts()


def test_the_zoom_has_keys_buttons_and_the_wheel_and_leaves_the_page_its_scrolling(
    look: Look, continued: int
) -> None:
    page = look.page
    page.set_viewport_size({"width": 1280, "height": 450})
    _open(look, THREAD)
    everything = _ticks(look)
    out = page.get_by_role("button", name="Zoom out")
    expect(out).to_be_disabled()
    for key in ("+", "+", "-", "0"):
        before = _ticks(look)
        page.keyboard.press(key)
        page.wait_for_function(TICKS_DIFFER, arg=before)
    assert _ticks(look) == everything
    page.get_by_role("button", name="Zoom in").click()
    expect(out).to_be_enabled()
    page.get_by_role("button", name="Show everything").click()
    expect(out).to_be_disabled()

    plot = page.locator(".timeline-plot")
    plot.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    expect(out).to_be_enabled()
    page.wait_for_function(TICKS_DIFFER, arg=everything)
    assert page.evaluate("window.scrollY") == 0
    zoomed = _ticks(look)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 200)
    page.keyboard.up("Shift")
    page.wait_for_function(TICKS_DIFFER, arg=zoomed)
    moved = _ticks(look)
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 10, steps=4)
    page.mouse.up()
    page.wait_for_function(TICKS_DIFFER, arg=moved)
    page.mouse.wheel(0, 300)
    page.wait_for_function("() => window.scrollY > 0")


def test_the_bar_under_the_pointer_is_told(look: Look, continued: int) -> None:
    timeline = _open(look, THREAD)
    timeline.get_by_role("option", name="approve, graph, ").hover()
    tooltip = look.page.locator(".timeline-tooltip")
    expect(tooltip).to_contain_text("approve")
    expect(tooltip).to_contain_text("includes the wait for an answer")
    look.page.mouse.move(0, 0)
    expect(tooltip).to_have_count(0)


def test_what_the_pointer_shows_is_whole(look: Look, client: Client) -> None:
    for number in range(3):
        client.save("one lane", {"n": number})
    timeline = _open(look, "one lane")
    timeline.get_by_role("option").last.hover()
    tooltip = look.page.locator(".timeline-tooltip")
    expect(tooltip).to_be_visible()
    assert not tooltip.evaluate(IS_CUT)
    plot = look.page.locator(".timeline-plot").bounding_box()
    assert plot is not None
    for x in (1, plot["width"] - 1):
        look.page.mouse.move(plot["x"] + x, plot["y"] + 10)
        assert not look.page.locator(".timeline-cursor-time").evaluate(IS_CUT)


def _right_of(element: Locator) -> float:
    right: float = element.evaluate("(element) => element.getBoundingClientRect().right")
    return right


def test_what_comes_next_is_told_and_ends_before_the_card(
    look: Look, server: ConsoleServer
) -> None:
    with TuskPointSaver(server.target) as saver:
        _agent(saver).invoke({"trail": []}, _config("asking"))
    timeline = _open(look, "asking")
    tail = look.page.locator(".timeline-tail")
    expect(tail).to_have_text("Send it?")
    tail.hover()
    tooltip = look.page.locator(".timeline-tooltip")
    expect(tooltip).to_contain_text("write")
    expect(tooltip).to_contain_text("Send it?")
    assert _right_of(timeline) - _right_of(tail) >= 8


def test_the_cards_of_a_thread_are_apart(look: Look, continued: int) -> None:
    for view in ("Timeline", "Tree"):
        _open(look, THREAD)
        look.page.get_by_role("button", name=view, exact=True).click()
        family = look.page.get_by_role("region", name="Family")
        expect(family).to_be_visible()
        card = look.page.get_by_role("region", name="Checkpoint", exact=True)
        bottom = "(card) => card.getBoundingClientRect().bottom"
        top = "(card) => card.getBoundingClientRect().top"
        assert family.evaluate(top) - card.evaluate(bottom) >= 16


def test_what_is_saved_appears_and_what_comes_next_is_not_a_bar(
    look: Look, server: ConsoleServer
) -> None:
    with TuskPointSaver(server.target) as saver:
        agent = _agent(saver)
        agent.invoke({"trail": []}, _config("growing"), interrupt_before=["reader"])
        timeline = _open(look, "growing")
        tails = look.page.locator(".timeline-tail")
        expect(tails).to_have_text("next: reader")
        expect(look.page.locator(".timeline-name")).to_have_text(["graph"])
        agent.invoke(None, _config("growing"))
        expect(look.page.locator(".timeline-name")).to_have_text(["graph", "reader", "reader"])
        # The lanes load one by one, each with a tail: a list waits until one tail is left.
        expect(tails).to_have_text(["Send it?"])
        expect(timeline.get_by_role("option", name="write, graph")).to_be_visible()
        agent.invoke(Command(resume="yes"), _config("growing"))
        expect(tails).to_have_count(0)


def test_a_rollback_and_a_run_from_there_are_a_branch(look: Look, server: ConsoleServer) -> None:
    with TuskPointSaver(server.target) as saver, Client(server.target) as client:
        agent = _agent(saver)
        agent.invoke({"trail": []}, _config("branching"))
        planned = next(
            entry.checkpoint_id
            for entry in client.list("branching", checkpoint_ns="", view="entry")
            if "plan ran" in entry.summary
        )
        client.rollback("branching", planned)
        agent.invoke(None, _config("branching"))
    _open(look, "branching")
    names = look.page.locator(".timeline-name")
    expect(names.filter(has_text="graph, branch")).to_have_count(1)
    rows = _table(look).get_by_role("row")
    expect(rows.filter(has_text="rolled back")).to_contain_text("graph, branch")
    expect(rows.filter(has_text="graph, branch").filter(has_text="write")).to_have_count(1)


def test_a_long_table_has_pages(look: Look, server: ConsoleServer) -> None:
    with Client(server.target) as client:
        for number in range(205):
            client.save("many", {"n": number}, summary=f"number {number}")
    _open(look, "many")
    expect(look.page.locator(".timeline-minimap")).to_be_visible()
    table = _table(look)
    expect(table).to_contain_text("number 204")
    expect(table.get_by_role("row")).to_have_count(1 + 5)
    look.page.get_by_role("button", name="Earlier checkpoints").click()
    expect(table.get_by_role("row")).to_have_count(1 + 200)
