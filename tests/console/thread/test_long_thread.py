"""A thread of 10,000 checkpoints is listed, scrolled and walked through with the keyboard."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import median
from time import monotonic

import pytest
from langgraph.checkpoint.base.id import uuid6
from playwright.sync_api import expect

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tuskpoint.aio import AsyncClient

CHECKPOINTS, AT_ONCE = 10_000, 500
TURNS, TURN = 60, 3000  # turns of the wheel, and pixels of each turn
NOTCH = 100  # pixels of a turn of the wheel that zooms
ARROWS = 20
LISTED_MS = 120_000  # limit until all rows are listed, on a machine that is busy with other tests
DRAWN = 100  # most rows in the page at a time
FRAMES = """
    window.times = [];
    window.counting ??= requestAnimationFrame(function frame(time) {
        window.times.push(time);
        requestAnimationFrame(frame);
    });
"""


async def _fill(target: str) -> None:
    ids = [str(uuid6(clock_seq=0)) for _ in range(CHECKPOINTS)]
    parents = [None, *ids]
    async with AsyncClient(target) as client:

        async def save(number: int) -> None:
            await client.save(
                "long",
                {"n": number},
                checkpoint_id=ids[number],
                parent=parents[number],
                summary=f"step {number} ran",
            )

        # The timeline is in the order of the saves; calls at the same time have no order.
        for number in range(ARROWS + 1):
            await save(number)
        for first in range(ARROWS + 1, CHECKPOINTS, AT_ONCE):
            await asyncio.gather(*map(save, range(first, min(first + AT_ONCE, CHECKPOINTS))))


@pytest.fixture(scope="module")
def long(server: ConsoleServer) -> str:
    # In a thread, because the browser's driver runs an event loop in this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, _fill(server.target)).result()
    return "long"


def _frames(look: Look) -> str:
    """Return the times between the frames since the last call, in words."""
    times: list[float] = look.page.evaluate("window.times.splice(0)")
    gaps = sorted(after - before for before, after in pairwise(times))
    return (
        f"{len(gaps)} frames, between two {median(gaps):.0f} ms in the median, "
        f"{gaps[int(len(gaps) * 0.95)]:.0f} ms at the 95th percentile, {gaps[-1]:.0f} ms at most"
    )


def test_a_thread_of_10_000_checkpoints(
    look: Look, long: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began = monotonic()
    look.open(f"/thread?id={long}")
    told = ["a tree of 10,000 checkpoints:", *walks_the_tree(look, began)]
    look.page.get_by_role("button", name="Timeline", exact=True).click()
    told += ["a timeline of 10,000 checkpoints:", *walks_the_timeline(look)]
    with capsys.disabled():
        print("", *told, sep="\n  ")


def walks_the_tree(look: Look, began: float) -> list[str]:
    """Scroll the tree, and move through it with the keyboard; return figures in words."""
    page, tree = look.page, look.page.get_by_role("listbox")
    rows, told = tree.get_by_role("option"), []
    expect(tree).to_have_attribute(
        "aria-label", "10,000 checkpoints, newest first", timeout=LISTED_MS
    )
    told.append(f"listed after {monotonic() - began:.1f} s")

    page.evaluate(FRAMES)
    tree.hover()
    for _ in range(TURNS):
        page.mouse.wheel(0, TURN)
    page.wait_for_function(
        "(turned) => document.querySelector('[role=listbox]').scrollTop >= turned",
        arg=TURNS * TURN,
    )
    expect(rows.first).not_to_contain_text(f"step {CHECKPOINTS - 1} ran")
    assert rows.count() < DRAWN
    told.append(f"wheel: {_frames(look)}")

    tree.focus()
    page.keyboard.press("End")
    expect(rows.last).to_contain_text("step 0 ran")
    page.keyboard.press("Home")
    expect(rows.first).to_contain_text(f"step {CHECKPOINTS - 1} ran")
    for _ in range(ARROWS):
        page.keyboard.press("ArrowDown")
    chosen = tree.get_by_role("option", selected=True)
    expect(chosen).to_contain_text(f"step {CHECKPOINTS - 1 - ARROWS} ran")
    told.append(f"keys: {_frames(look)}")
    return told


def walks_the_timeline(look: Look) -> list[str]:
    """Zoom and drag the timeline, and move through it with the keyboard; return figures."""
    page, told = look.page, []
    timeline = page.get_by_role("region", name="Timeline").get_by_role("listbox")
    expect(timeline).to_have_attribute(
        "aria-label", "10,000 checkpoints, by time", timeout=LISTED_MS
    )
    plot, out = page.locator(".timeline-plot"), page.get_by_role("button", name="Zoom out")
    box = plot.bounding_box()
    assert box is not None
    middle, top = box["x"] + box["width"] / 2, box["y"] + 20
    page.mouse.move(middle, top)
    page.evaluate(FRAMES)
    page.keyboard.down("Control")
    for _ in range(TURNS):
        page.mouse.wheel(0, -NOTCH)
    page.keyboard.up("Control")
    expect(out).to_be_enabled()
    told.append(f"zoom in: {_frames(look)}")
    assert timeline.get_by_role("option").count() < DRAWN
    page.mouse.down()
    for turn in range(TURNS):
        page.mouse.move(middle - 300 + 40 * (turn % 16), top)
    page.mouse.up()
    told.append(f"drag: {_frames(look)}")
    page.keyboard.down("Control")
    for _ in range(TURNS):
        page.mouse.wheel(0, NOTCH)
    page.keyboard.up("Control")
    expect(out).to_be_disabled()
    told.append(f"zoom out: {_frames(look)}")
    timeline.focus()
    page.keyboard.press("Home")
    selected = timeline.get_by_role("option", selected=True)
    expect(selected).to_have_accessible_name(re.compile("^step 0 ran, "))
    for _ in range(ARROWS):
        page.keyboard.press("ArrowRight")
    expect(selected).to_have_accessible_name(re.compile(f"^step {ARROWS} ran, "))
    told.append(f"keys: {_frames(look)}")
    return told
