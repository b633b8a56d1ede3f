"""The page of all threads: its columns, its filters, and what changes while a person looks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from playwright.sync_api import Locator, Page, expect

from tests.console.asking_agent import Agent
from tests.console.browser import PATIENCE_MS, Look, looking
from tests.console.conftest import ConsoleServer, Looking
from tuskpoint import Client, TuskPointSaver

CROWD = 1_150  # threads, more than the page lists for a filter by name
FIELD = "Filter by name; Enter searches what happened"


@pytest.fixture
def empty(page: Page, tmp_path: Path) -> Iterator[tuple[Look, ConsoleServer]]:
    """The console of a server without threads."""
    with ConsoleServer(tmp_path) as server, looking(page, server.address) as look:
        server.start()
        page.mouse.move(0, 0)
        yield look, server


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server with many threads."""
    with ConsoleServer(tmp_path_factory.mktemp("crowd")) as server:
        server.start()
        with Client(server.target) as client:
            for number in range(CROWD):
                client.save(f"order-{number:04}", {"n": number}, summary="delivered")
        yield server


def group(look: Look, title: str) -> Locator:
    """Return the threads in one state."""
    return look.page.get_by_role("region", name=title, exact=True)


def row(look: Look, thread: str) -> Locator:
    """Return the row of a thread."""
    name = look.page.locator(".thread-name").get_by_text(thread, exact=True)
    return look.page.locator("a.row", has=name)


def names(look: Look) -> Locator:
    """Return the names of all rows."""
    return look.page.locator(".thread-name")


def refresh(look: Look) -> None:
    """Make the page refresh now, as it does when its tab becomes visible."""
    look.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def fail_with(server: ConsoleServer, thread: str, message: str) -> None:
    """Run a graph whose node `fetch` fails."""

    def fetch(_: MessagesState) -> MessagesState:
        raise ConnectionError(message)

    graph: Any = StateGraph(MessagesState)
    graph.add_node("fetch", fetch)
    graph.add_edge(START, "fetch")
    with TuskPointSaver(server.target) as saver, pytest.raises(ConnectionError):
        graph.compile(checkpointer=saver).invoke(
            {"messages": []}, {"configurable": {"thread_id": thread}}
        )


def test_who_waits_for_a_person_comes_first(look: Look, demo: Any) -> None:
    look.open("/")
    sections = look.page.get_by_role("region")
    expect(sections.nth(0)).to_contain_text("Waiting for a person")
    expect(sections.nth(0).get_by_role("link", name=demo.WAITING)).to_be_visible()
    expect(sections.nth(1).get_by_role("link", name=demo.BROKEN)).to_be_visible()
    expect(sections.nth(2).get_by_role("link", name=demo.FINISHED)).to_be_visible()
    for section, number in zip(sections.all(), (1, 1, 3), strict=True):
        expect(section.locator("h2 .thread-count")).to_have_text(str(number))


def test_a_row_says_what_its_thread_waits_for_failed_with_or_did_last(
    look: Look, demo: Any, client: Client
) -> None:
    look.open("/")
    waiting, failed, idle = (row(look, name) for name in (demo.WAITING, demo.BROKEN, demo.ADOPTED))
    expect(waiting.locator(".thread-text")).to_have_text("The draft is ready. Publish it?")
    expect(waiting.locator(".thread-reason")).to_have_attribute(
        "title", "approve: The draft is ready. Publish it?"
    )
    expect(waiting).not_to_contain_text("waits for a person")  # the heading says so
    expect(failed.locator(".thread-node")).to_have_text("reader")
    expect(failed.locator(".thread-type")).to_have_text("UnicodeDecodeError:")
    expect(failed.locator(".thread-text")).to_have_text(re.compile("'invalid start byte'$"))
    expect(failed.locator(".thread-reason")).to_have_attribute(
        "title", re.compile("^reader: .{500}")
    )
    expect(idle.locator(".thread-text")).to_contain_text("publish ran")
    expect(idle.locator(".thread-agent")).to_have_text("editor")
    for thread in (demo.WAITING, demo.BROKEN, demo.ADOPTED):
        known = client.get_thread(thread)
        expect(row(look, thread).locator(".thread-size")).to_have_text(
            f"{known.checkpoint_count} checkpoints"
        )
    expect(waiting.locator(".thread-duration")).to_have_text(re.compile(r"^lasted \d+\.\d+ s$"))
    expect(waiting.locator("time")).to_have_attribute("title", re.compile("20\\d\\d"))


def test_the_last_line_of_an_error_is_shown(look: Look, server: ConsoleServer) -> None:
    message = "the upstream refused\n  three attempts\n503 out of order\n"
    fail_with(server, "upstream", message)
    look.open("/threads?q=upstream")
    failed = row(look, "upstream")
    expect(failed.locator(".thread-text")).to_have_text("503 out of order")
    expect(failed.locator(".thread-type")).to_have_text("ConnectionError:")
    expect(failed.locator(".thread-reason")).to_have_attribute(
        "title", re.compile("the upstream refused")
    )


@pytest.mark.parametrize("width", [900, 1280, 1920])
def test_the_columns_of_all_groups_align(look_at: Looking, demo: Any, width: int) -> None:
    with look_at(width=width) as look:
        look.open("/")
        expect(names(look)).not_to_have_count(0)
        columns = look.page.evaluate(
            "['.thread-columns', 'a.row'].flatMap((part) => [...document.querySelectorAll(part)])"
            ".map((row) => [...row.children].filter((cell) => cell.checkVisibility())"
            ".map((cell) => cell.getBoundingClientRect())"
            ".map(({left, right}) => `${left} ${right}`))"
        )
        assert len(columns) > 5
        assert all(line == columns[0] for line in columns), columns
        heights = look.page.locator("a.row").evaluate_all(
            "(rows) => rows.map((r) => r.offsetHeight)"
        )
        assert set(heights) <= set(range(32, 37))
        look.fits()


def test_a_phone_shows_the_name_and_below_it_the_question(look_at: Looking, demo: Any) -> None:
    with look_at(width=375, height=760) as look:
        look.open("/")
        waiting = row(look, demo.WAITING)
        boxes = [
            waiting.locator(part).bounding_box()
            for part in (".thread-name", ".thread-reason", "time")
        ]
        name, reason, time = (box for box in boxes if box)
        assert reason["y"] >= name["y"] + name["height"]
        assert time["x"] > name["x"] + name["width"]
        assert abs(time["y"] - name["y"]) < name["height"]
        expect(waiting.locator(".thread-agent")).to_be_hidden()
        look.fits()


def test_filters_are_chips_and_in_the_address(look: Look, demo: Any) -> None:
    look.open("/threads")
    menu = look.page.get_by_role("search").get_by_role("button", name="Filter")
    chips = look.page.get_by_role("list", name="Filters")
    expect(chips).to_have_count(0)
    menu.click()
    look.page.get_by_label("Agent").fill("editor")
    look.page.get_by_label("Agent").press("Enter")
    expect(row(look, demo.ADOPTED)).to_be_visible()
    expect(row(look, demo.FINISHED)).to_have_count(0)
    look.page.get_by_label("State").select_option("failed")
    expect(look.page.get_by_text("No thread matches the filter")).to_be_visible()
    assert "agent=editor" in look.page.url
    assert "state=failed" in look.page.url
    look.page.reload()
    expect(chips.get_by_role("listitem")).to_have_text(
        [re.compile("State Failed"), re.compile("Agent editor"), "Clear all"]
    )
    chips.get_by_role("button", name="Remove the filter State Failed").click()
    expect(names(look)).to_have_text([demo.ADOPTED])
    assert "state" not in look.page.url
    menu.click()
    look.page.get_by_label("Label").fill("approved")
    look.page.get_by_label("Changed").select_option("1h")
    look.page.get_by_label("Label").press("Enter")
    expect(look.page.get_by_text("No thread matches the filter")).to_be_visible()
    chips.get_by_role("button", name="Remove the filter Agent editor").click()
    expect(names(look)).to_have_count(2)
    chips.get_by_role("button", name="Clear all").click()
    expect(row(look, demo.WAITING)).to_be_visible()
    expect(chips).to_have_count(0)


def test_the_field_filters_by_name_at_once_and_searches_on_enter(look: Look, demo: Any) -> None:
    look.open("/")
    field = look.page.get_by_label(FIELD)
    field.press_sequentially("PLANNER brief")
    expect(field).to_be_focused()
    expect(names(look)).to_have_text([demo.ADOPTED])
    expect(look.page.locator("mark")).to_have_text(["brief", "planner"])
    expect(group(look, "Idle").locator(".thread-count")).to_have_text("1")
    expect(group(look, "Failed")).to_have_count(0)
    look.page.reload()
    expect(names(look)).to_have_text([demo.ADOPTED])
    field.fill("approval")
    expect(look.page.get_by_text("No name has “approval”.")).to_be_visible()
    field.press("Enter")
    expect(look.page.get_by_role("heading", level=1)).to_have_text("Search")
    expect(look.page.get_by_label("What happened, in plain words")).to_have_value("approval")
    look.page.go_back()
    expect(field).to_have_value("approval")
    field.fill("")
    expect(row(look, demo.WAITING)).to_be_visible()


def test_a_list_is_walked_through_with_keys(look: Look, demo: Any) -> None:
    look.open("/threads")
    row(look, demo.ADOPTED).focus()
    look.page.keyboard.press("j")
    look.page.keyboard.press("k")
    look.page.keyboard.press("End")
    look.page.keyboard.press("Home")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", level=1)).to_have_text(demo.ADOPTED)
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog", name="Keys")).to_be_visible()
    look.page.keyboard.press("Escape")
    expect(look.page.get_by_role("dialog")).to_have_count(0)
    look.page.keyboard.press("g")
    look.page.keyboard.press("t")
    expect(look.page.get_by_role("heading", level=1)).to_have_text("Threads")


def test_threads_appear_change_and_go_while_a_person_looks(
    empty: tuple[Look, ConsoleServer],
) -> None:
    look, server = empty
    with Client(server.target) as client:
        look.open("/")
        expect(look.page.get_by_role("heading", name="No threads yet")).to_be_visible()
        client.save("a", {"n": 1}, summary="first")
        expect(row(look, "a")).to_contain_text("first")  # without any help
        expect(look.page.get_by_text("Refreshes every")).to_be_visible()
        client.save("b", {"n": 1})
        refresh(look)
        expect(names(look)).to_have_text(["b", "a"])
        expect(row(look, "b")).to_contain_text("No summary.")
        client.save("a", {"n": 2}, summary="second")
        refresh(look)
        expect(names(look)).to_have_text(["a", "b"])
        expect(row(look, "a")).to_contain_text("second")
        client.delete("b")
        refresh(look)
        expect(names(look)).to_have_text(["a"])
        expect(group(look, "Idle").locator(".thread-count")).to_have_text("1")
        client.delete("a")
        refresh(look)
        expect(look.page.get_by_role("heading", name="No threads yet")).to_be_visible()


def test_rows_stay_under_the_pointer_while_their_facts_change(
    empty: tuple[Look, ConsoleServer],
) -> None:
    look, server = empty
    with Client(server.target) as client:
        client.save("a", {"n": 1}, summary="first")
        client.save("b", {"n": 1}, summary="first")
        look.open("/")
        box = row(look, "a").bounding_box()
        assert box
        client.save("a", {"n": 2}, summary="second")
        for step in range(PATIENCE_MS):
            look.page.mouse.move(box["x"] + 50 + step % 20, box["y"] + 10)
            refresh(look)
            if "second" in row(look, "a").inner_text():
                break
        assert names(look).all_inner_texts() == ["b", "a"]
        look.page.mouse.move(0, 0)
        expect(names(look)).to_have_text(["a", "b"])


def test_the_focus_stays_at_a_thread_that_goes_to_another_group(
    empty: tuple[Look, ConsoleServer],
) -> None:
    look, server = empty
    with TuskPointSaver(server.target) as saver:
        asking = Agent(saver, "Proceed?", "asking")
        look.open("/")
        row(look, "asking").focus()
        asking.graph.invoke(Command(resume="yes"), asking.config)
        expect(group(look, "Idle").locator("a.row")).to_be_focused()
    expect(group(look, "Waiting for a person")).to_have_count(0)


def test_only_an_empty_server_says_that_there_are_no_threads(
    empty: tuple[Look, ConsoleServer],
) -> None:
    look, server = empty
    fail_with(server, "only", "no")
    look.open("/")
    expect(row(look, "only")).to_be_visible()
    expect(look.page.get_by_text("No threads yet")).to_have_count(0)
    expect(look.page.get_by_role("region")).to_have_count(1)
    look.open("/threads?state=idle")
    expect(look.page.get_by_text("No thread matches the filter.")).to_be_visible()
    expect(look.page.get_by_text("No threads yet")).to_have_count(0)


def test_an_empty_server_names_its_address_and_a_program_that_makes_a_first_thread(
    empty: tuple[Look, ConsoleServer], tmp_path: Path
) -> None:
    look, server = empty
    look.open("/")
    main = look.page.get_by_role("main")
    expect(main).to_contain_text(f"Clients save to this server at {server.target}.")
    expect(main).to_contain_text(f'checkpointer=TuskPointSaver("{server.target}")')
    look.accessible()
    look.fits()
    copied = {}
    for name in ("the checkpointer", "the program"):
        button = main.get_by_role("button", name=f"Copy {name}")
        button.click()
        expect(button).to_have_text("copied")
        copied[name] = look.page.evaluate("navigator.clipboard.readText()")
    assert copied["the checkpointer"].startswith("from tuskpoint import TuskPointSaver\n")
    program: str = copied["the program"]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=tmp_path)
    expect(row(look, "first")).to_be_visible()  # by itself
    row(look, "first").click()
    expect(main).to_contain_text("greet")


def test_a_part_of_the_threads_is_counted_as_a_part(
    page: Page, crowd: ConsoleServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with looking(page, crowd.address) as look:
        look.open("/")
        counted = group(look, "Idle").locator(".thread-count")
        expect(counted).to_have_text("100+")
        expect(names(look)).to_have_count(100)
        look.page.get_by_role("button", name="Show more").click()
        expect(names(look)).to_have_count(600)
        expect(counted).to_have_text("600+")
        look.page.get_by_role("button", name="Show more").click()
        expect(names(look)).to_have_count(1100)
        look.page.get_by_role("button", name="Show more").click()
        expect(names(look)).to_have_count(CROWD)
        expect(counted).to_have_text("1,150")
        expect(look.page.get_by_role("button", name="Show more")).to_have_count(0)
        longest = look.longest_task()
    with capsys.disabled():
        print(f"\nlongest task of a page with {CROWD} threads: {longest:.0f} ms")


def test_a_name_is_looked_for_in_more_threads_than_are_shown(
    page: Page, crowd: ConsoleServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with looking(page, crowd.address) as look:
        look.open("/")
        expect(names(look)).to_have_count(100)
        field = look.page.get_by_label(FIELD)
        field.press_sequentially("order-0200")
        expect(names(look)).to_have_text(["order-0200"])  # not among the first 100
        expect(look.page.get_by_text("Names of the 1,000 threads of each group")).to_be_visible()
        expect(group(look, "Idle").locator(".thread-count")).to_have_text("1+")
        field.fill("order-0001")
        expect(look.page.get_by_text("No name has “order-0001”.")).to_be_visible()
        expect(look.page.get_by_text("Names of the 1,000 threads of each group")).to_be_visible()
        field.fill("order-0")
        expect(names(look)).not_to_have_count(0)
        longest = look.longest_task()
    with capsys.disabled():
        print(f"\nlongest task of a filter by name: {longest:.0f} ms")
