"""All content of an agent is shown as text: no part of it runs, and it does not freeze the page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any
from urllib.parse import urlencode

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from playwright.sync_api import Locator, expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer, Looking
from tuskpoint import Client, TuskPointSaver
from tuskpoint.aio import AsyncClient

SCRIPT = '"><img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3)'
CONTROL = "a\x1b[31mred\x07\u202egnp.exe\u200b\x85b"
HOSTILE = SCRIPT + CONTROL
THREAD = "thread " + HOSTILE
LARGE = 5 * 1024 * 1024  # larger than the JSON view shows
SHOWN = 4_000_000
PARSED = 20_000  # characters of a message that the console formats at most
MARKDOWN = (
    "![a](https://example.org/a.png) <img src=https://example.org/b.png> <script>alert(4)</script>",
    "[a](javascript:alert(5)) [b](JAVASCRIPT:alert(6)) <javascript:alert(7)> [c](data:text/html,d)",
    "[a](java&#115;cript:alert(8)) ![b](javascript:alert(9)) [c][d]\n\n[d]: javascript:alert(10)",
    f"**{HOSTILE}** `{HOSTILE}` [{HOSTILE}](https://example.org/{HOSTILE}) | {HOSTILE}",
    f"| {HOSTILE} |\n|---|\n| {HOSTILE} |\n\n```{HOSTILE}\n{HOSTILE}\n```\n\n# {HOSTILE}",
)
PATTERNS = [
    *("[", "![[", "[a](", "**a ", "*_", "~a", "`a", "> ", "- ", "1. ", "- > ", "<a ", "\n"),
    *("|a", "a|b\n-|-\n", "* a\n  * b\n    * c\n", "**x**\n\n", "http://a.b "),
]


@pytest.fixture(scope="module")
def hostile(server: ConsoleServer) -> Iterator[dict[str, str]]:
    """A thread with hostile text in every field, and a thread with large values; their
    checkpoints."""
    deep: Any = "end"
    for _ in range(60):
        deep = {HOSTILE: [deep]}
    with Client(server.target) as client:
        state = {
            HOSTILE: HOSTILE,
            "messages": [
                {"role": HOSTILE, "content": HOSTILE},
                {"type": "ai", "content": [HOSTILE]},
            ],
            "deep": deep,
            "__proto__": {"polluted": True},
        }
        metadata = {
            HOSTILE: HOSTILE,
            "source": HOSTILE,
            "step": HOSTILE,
            "parents": {HOSTILE: HOSTILE},
        }
        first = client.save(
            THREAD,
            state,
            summary=HOSTILE,
            label=HOSTILE,
            agent_id=HOSTILE,
            metadata=metadata,
        )
        second = client.save(THREAD, {**state, HOSTILE: "changed " + HOSTILE}, summary=HOSTILE)
        large = client.save(
            "large",
            {
                "text": "x" * LARGE,
                "shown": "x" * SHOWN,
                "lines": "\n" * (SHOWN // 2),
                "list": list(range(100_000)),
            },
            summary="y" * 1024,
        )
        client.flush()
        yield {"first": first, "second": second, "large": large}


def _open(look: Look, path: str, **query: str) -> None:
    look.open(f"{path}?{urlencode(query)}")


def _untouched(look: Look) -> None:
    """Fail if a part of the text became an element of the page."""
    page = look.page
    assert page.locator("main img, main script, a[href^=javascript]").count() == 0
    assert page.evaluate("({}).polluted") is None
    shown: str = page.locator("main").inner_text()
    assert not set(shown) & set("\x1b\x07\u202e\x85")


@pytest.mark.parametrize("tab", ["", "conversation", "changes", "writes", "metadata", "stored"])
def test_no_field_of_a_checkpoint_is_more_than_text(
    look: Look, hostile: dict[str, str], tab: str
) -> None:
    _open(look, "/thread", id=THREAD, checkpoint=hostile["second"], tab=tab)
    expect(look.page.get_by_role("heading", level=1)).to_contain_text("onerror=alert(1)")
    expect(look.page.get_by_role("listbox")).to_be_visible()
    expect(look.page.get_by_role("region", name="Checkpoint", exact=True)).to_contain_text(
        "onerror"
    )
    _untouched(look)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/threads", {}),
        ("/threads", {"agent": HOSTILE}),
        ("/threads", {"q": "onerror", "agent": HOSTILE, "label": HOSTILE}),
        ("/search", {"q": "onerror"}),
        ("/proof", {"thread": THREAD, "run": "1"}),
        ("/snapshots", {}),
    ],
)
def test_no_page_takes_it_for_more_than_text(
    look: Look, server: ConsoleServer, hostile: dict[str, str], path: str, query: dict[str, str]
) -> None:
    with Client(server.target) as client:
        client.create_snapshot([THREAD], session_id=HOSTILE[:200], metadata={HOSTILE: HOSTILE})
    _open(look, path, **query)
    expect(look.page.get_by_role("main")).to_contain_text("onerror")
    _untouched(look)


def test_differences_of_hostile_text_are_text(look: Look, hostile: dict[str, str]) -> None:
    _open(
        look,
        "/diff",
        **{"from": THREAD, "from_checkpoint": hostile["first"]},
        to=THREAD,
        to_checkpoint=hostile["second"],
    )
    expect(look.page.get_by_role("main")).to_contain_text("changed")
    _untouched(look)


class Hostile(Exception):
    """An agent's error with hostile text."""


def fail(state: MessagesState) -> MessagesState:
    raise Hostile(state["messages"][0].content)


def ask(state: MessagesState) -> MessagesState:
    text = state["messages"][0].content
    name = text[:200]
    answer = interrupt({"question": text, "options": [name, {name: name}], name: name})
    return {"messages": [answer]}


@pytest.fixture(scope="module")
def runs(server: ConsoleServer) -> None:
    """Runs of LangGraph that ask and fail with hostile text, and with the largest text that a
    server accepts."""
    with TuskPointSaver(server.target) as saver:
        for kind, text in (("hostile", HOSTILE), ("large", SCRIPT + "x " * (SHOWN // 4))):
            for name, node in (("asks", ask), ("fails", fail)):
                graph = StateGraph(MessagesState)
                graph.add_node(HOSTILE[:60].replace(":", ""), node)
                graph.add_edge(START, HOSTILE[:60].replace(":", ""))
                call = {"name": HOSTILE, "args": {HOSTILE: text}, "id": HOSTILE}
                messages = [
                    AIMessage(text, name=HOSTILE, tool_calls=[call]),
                    ToolMessage(HOSTILE, tool_call_id=HOSTILE, status="error"),
                ]
                begin: Any = {"messages": messages}
                config: RunnableConfig = {"configurable": {"thread_id": f"{kind} {name}"}}
                agent = graph.compile(checkpointer=saver)
                with nullcontext() if node is ask else pytest.raises(Hostile):
                    agent.invoke(begin, config)


def test_the_list_of_threads_shows_questions_and_errors_as_text(
    look_at: Looking, hostile: dict[str, str], runs: None
) -> None:
    for width in (375, 1280):
        with look_at(width=width) as look:
            look.open("/threads")
            for name, said in (
                ("hostile asks", "onerror"),
                ("hostile fails", "onerror"),
                ("large asks", "The server cannot read the question."),
                ("large fails", "The server cannot read the error."),
            ):
                reason = look.page.locator("a.row", has_text=name).locator(".thread-reason")
                expect(reason).to_contain_text(said)
            expect(look.page.locator(".thread-name", has_text="onerror")).to_have_count(1)
            _untouched(look)
            look.fits()


@pytest.mark.parametrize("name", ["asks", "fails"])
def test_neither_questions_nor_errors_nor_messages_are_more_than_text(
    look: Look, runs: None, name: str
) -> None:
    said = {"asks": "A question waits for a person", "fails": "Failed"}[name]
    for tab in ("conversation", "writes"):
        _open(look, "/thread", id=f"hostile {name}", tab=tab)
        panel = look.page.get_by_role("region", name="Checkpoint", exact=True)
        expect(panel).to_contain_text(said)
        expect(panel).to_contain_text("onerror")
        _untouched(look)
    if name == "asks":
        look.page.get_by_role("group", name="Answer").get_by_role("button").first.click()
        expect(look.page.get_by_text("Answered: ")).to_contain_text("onerror")
        _untouched(look)


@pytest.fixture(scope="module")
def markdown(server: ConsoleServer) -> None:
    """Messages whose Markdown is made to run, to load, or to take long."""
    large = [pattern * (PARSED // len(pattern)) for pattern in PATTERNS]
    deep = ["\n".join(" " * depth + pattern + "a" for depth in range(150)) for pattern in PATTERNS]
    threads = {
        "markdown": [*MARKDOWN],
        "marks": [*large, *deep],
        "nested 10,000 deep": ["> " * 10_000, "- " * 10_000, "[" * 10_000 + "](a)" * 10_000],
        "4 MB of marks": ["**[a](`" * (SHOWN // 8)],
    }
    with Client(server.target) as client:
        for thread_id, texts in threads.items():
            messages = [{"role": "assistant", "content": text + "\nend"} for text in texts]
            client.save(thread_id, {"messages": messages})


def test_markdown_of_an_agent_neither_runs_nor_loads(look: Look, markdown: None) -> None:
    _open(look, "/thread", id="markdown", tab="conversation")
    messages = look.page.get_by_role("log", name="Messages")
    expect(messages.get_by_role("article")).to_have_count(len(MARKDOWN))
    expect(messages).to_contain_text("<script>alert(4)</script>")
    expect(messages).to_contain_text("(javascript:alert(5))")
    expect(messages.locator("table")).to_have_count(1)
    _untouched(look)
    links = messages.locator("a").evaluate_all("all => all.map((a) => [a.protocol, a.rel])")
    assert len(links) >= 2
    assert {tuple(link) for link in links} == {("https:", "noreferrer noopener")}
    assert messages.locator("img, script, iframe, style, h1, h2, h3").count() == 0


@pytest.mark.parametrize("thread_id", ["marks", "nested 10,000 deep", "4 MB of marks"])
def test_no_markdown_freezes_the_page(
    look_at: Looking, markdown: None, thread_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with look_at() as look:
        _open(look, "/thread", id=thread_id, tab="conversation")
        expect(look.page.get_by_role("log", name="Messages")).to_contain_text("Assistant")
        rows = look.page.get_by_role("listbox").get_by_role("option")
        look.page.get_by_role("listbox").focus()
        look.page.keyboard.press("End")
        expect(rows.last).to_have_attribute("aria-selected", "true")
        assert look.page.evaluate("document.querySelectorAll('*').length") < 60_000
        _untouched(look)
        longest = look.longest_task()
    with capsys.disabled():
        print(f"\nlongest task of a conversation with {thread_id}: {longest:.0f} ms")


@pytest.mark.parametrize("name", ["asks", "fails"])
def test_no_text_of_an_agent_freezes_the_page(
    look_at: Looking, runs: None, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    tabs = {"conversation": "calls", "writes": "__"}
    for tab, said in tabs.items():
        with look_at() as look:
            _open(look, "/thread", id=f"large {name}", tab=tab)
            panel = look.page.get_by_role("region", name="Checkpoint", exact=True)
            expect(panel).to_contain_text(said)
            expect(panel).to_contain_text("Failed" if name == "fails" else "Answer with JSON")
            _answers(look)
            _untouched(look)
            longest = look.longest_task()
            told.append(f"{tab} {longest:.0f} ms")
    with capsys.disabled():
        print(f"\nlongest task of a run that {name} with 4 MB of text: {', '.join(told)}")


def _answers(look: Look) -> None:
    """Fail if the page does not react to the keyboard, or contains all of a large text."""
    rows = look.page.get_by_role("listbox").get_by_role("option")
    look.page.get_by_role("listbox").focus()
    look.page.keyboard.press("End")
    expect(rows.last).to_have_attribute("aria-selected", "true")
    look.page.keyboard.press("Home")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    assert look.page.evaluate("document.body.textContent.length") < 200_000


def test_values_of_5_mib_do_not_freeze_the_page(
    look_at: Looking, hostile: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with look_at() as look:
        _open(look, "/thread", id="large")
        panel = look.page.get_by_role("region", name="Checkpoint", exact=True)
        expect(panel).to_contain_text("lines")
        look.page.get_by_role("listbox").focus()
        look.page.keyboard.press("End")
        _untouched(look)
        characters = look.page.evaluate("document.body.innerText.length")
        assert characters < 200_000
        longest = look.longest_task()
    with capsys.disabled():
        print(f"\nlongest task of a page with 6 MB of text: {longest:.0f} ms")


LANES, LONG_NAME = 3000, 2000


@pytest.fixture(scope="module")
def lanes(server: ConsoleServer) -> str:
    """A thread whose step called thousands of subgraphs at once, with long and hostile names."""

    async def fill() -> None:
        async with AsyncClient(server.target) as client:
            caller = await client.save("lanes", {}, summary="x " * 500, metadata={"step": 1})
            parents = {"parents": {"": caller, "gone": "gone"}, "step": -1, "source": "input"}
            for first in range(0, LANES, 500):
                await asyncio.gather(
                    *(
                        client.save(
                            "lanes",
                            {},
                            checkpoint_ns=f"{HOSTILE[:60].replace(':', '')}{number}:{number}",
                            metadata=parents,
                        )
                        for number in range(first, first + 500)
                    )
                )
            # Checkpoints whose parents are missing, are themselves, or form a circle.
            for one, other in (("8", "8"), ("9a", "9b"), ("9b", "9a"), ("9c", "gone")):
                await client.save("lanes", {}, checkpoint_id=one, parent=other)
            await client.save("lanes", {}, checkpoint_ns="n" * LONG_NAME + "|a:1")

    # In a thread, because the browser's driver runs an event loop in this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, fill()).result()
    return "lanes"


def _timeline(look: Look, thread: str) -> Locator:
    _open(look, "/thread", id=thread)
    look.page.get_by_role("button", name="Timeline", exact=True).click()
    return look.page.get_by_role("region", name="Timeline")


@pytest.mark.parametrize("thread", [THREAD, "hostile asks", "hostile fails"])
def test_no_name_in_a_timeline_is_more_than_text(
    look: Look, hostile: dict[str, str], runs: None, thread: str
) -> None:
    timeline = _timeline(look, thread)
    options = timeline.get_by_role("listbox").get_by_role("option")
    expect(options.first).to_be_attached()
    _untouched(look)
    options.first.hover(force=True)
    _untouched(look)
    timeline.get_by_role("button", name="Show as a table").click()
    expect(timeline.get_by_role("table")).to_contain_text("onerror")
    _untouched(look)


def test_thousands_of_lanes_and_parents_in_a_circle_do_not_freeze_the_page(
    look: Look, lanes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = _timeline(look, lanes)
    size = f"{LANES + 6:,} checkpoints, by time"
    expect(timeline.get_by_role("listbox")).to_have_attribute("aria-label", size)
    assert look.page.locator(".timeline-name").count() < 50
    timeline.get_by_role("listbox").focus()
    look.page.keyboard.press("End")
    look.page.keyboard.press("ArrowDown")
    look.page.keyboard.press("+")
    expect(timeline.get_by_role("option", selected=True)).to_be_attached()
    _untouched(look)
    look.fits()
    timeline.get_by_role("button", name="Show as a table").click()
    assert timeline.get_by_role("row").count() <= 201
    with capsys.disabled():
        print(f"\nlongest task of a timeline of {LANES} lanes: {look.longest_task():.0f} ms")
