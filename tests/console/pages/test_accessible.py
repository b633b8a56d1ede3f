"""axe finds nothing on any page: in light and dark, on a wide screen and on a phone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser import Look
from tests.console.conftest import ConsoleServer
from tests.console.hands import checkpoint_menu, thread_menu
from tuskpoint import Client

SIZES = ((375, 760), (1280, 850))


@pytest.fixture(scope="module")
def named(server: ConsoleServer, demo: Any) -> dict[str, str]:
    """Values of the placeholders in the addresses below."""
    with Client(server.target) as client:
        snapshot = client.create_snapshot([demo.WAITING, demo.FINISHED], session_id="monday")
    return {
        "waiting": demo.WAITING,
        "finished": demo.FINISHED,
        "broken": demo.BROKEN,
        "snapshot": snapshot.snapshot_id,
    }


def everywhere(look: Look, part: str = "") -> None:
    """Run axe on the page, or a part of it: on a phone and on a wide screen, in light and dark.

    The dark theme has other colours and nothing else, so there axe looks at the contrast alone.
    """
    for width, height in SIZES:
        look.page.set_viewport_size({"width": width, "height": height})
        look.page.emulate_media(color_scheme="light")
        look.fits()
        look.accessible(part)
    look.page.emulate_media(color_scheme="dark")
    look.accessible(part, rules=("color-contrast",))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/threads", "Waiting for a person"),
        ("/threads?q=brief&agent=editor&since=1h", "Clear all"),
        ("/threads?label=no-such", "No thread matches the filter"),
        ("/thread?id={waiting}", "Publish it?"),
        ("/thread?id={finished}", "handed off"),
        ("/thread?id={broken}", "UnicodeDecodeError"),
        ("/thread?id=no-such", "not found or deleted"),
        ("/diff?from={waiting}&to={finished}", "added"),
        ("/proof?thread={finished}&run=1", "Verified"),
        ("/search?q=approval", "distance"),
        ("/search", "Plain words"),
        ("/snapshots", "monday"),
        ("/snapshots?id={snapshot}", "2 threads captured"),
        ("/inbox?state=all", "translator"),
        ("/adopt?offer=no-such", "the first adoption"),
        ("/adopt", "The stages appear here"),
        ("/operations", "Newest catalog"),
        ("/nowhere", "The address does not name a page of the console"),
        ("/thread", "No thread is named"),
        ("/proof", "No thread is named"),
        ("/diff", "No checkpoint is named"),
    ],
)
def test_a_page(look: Look, named: dict[str, str], path: str, shown: str) -> None:
    look.allows_failures = "no-such" in path
    look.open(path.format(**named))
    look.page.get_by_role("main").get_by_text(shown).first.wait_for()
    everywhere(look)


@pytest.mark.parametrize(
    ("tab", "shown"),
    [
        ("conversation", "No channel of this checkpoint"),
        ("changes", "current_plan"),
        ("writes", "approve"),
        ("metadata", "source"),
        ("stored", "SHA-256"),
    ],
)
def test_a_part_of_a_checkpoint(look: Look, named: dict[str, str], tab: str, shown: str) -> None:
    look.open(f"/thread?id={named['waiting']}&tab={tab}")
    look.page.get_by_role("main").get_by_text(shown).first.wait_for()
    everywhere(look, ".checkpoint")


def test_dialogs(look: Look, named: dict[str, str]) -> None:
    look.open(f"/thread?id={named['waiting']}")
    dialog = look.page.get_by_role("dialog")
    checkpoint_menu(look.page).wait_for()  # the page takes the keys
    for key in "frel":
        look.page.keyboard.press(key)
        dialog.get_by_text("Advanced").click()
        dialog.get_by_label("Wait until the change is").wait_for()
        everywhere(look, "dialog")
        look.page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
    look.page.keyboard.press("h")
    dialog.get_by_role("button", name="Hand off").click()
    dialog.get_by_role("img", name="QR code").wait_for()
    everywhere(look, "dialog")
    dialog.get_by_role("button", name="Close").click()
    look.page.keyboard.press("?")
    everywhere(look, "dialog")


def test_menus(look: Look, named: dict[str, str]) -> None:
    look.open(f"/thread?id={named['finished']}")
    for menu in (thread_menu(look.page), checkpoint_menu(look.page)):
        menu.click()
        look.page.get_by_role("menu").wait_for()
        everywhere(look)
        look.page.keyboard.press("Escape")


@pytest.mark.parametrize("query", ["", "brief", "no such thread"])
def test_the_palette(look: Look, named: dict[str, str], query: str) -> None:
    look.open(f"/thread?id={named['waiting']}")
    look.page.get_by_text("Publish it?").first.wait_for()
    look.page.keyboard.press("Control+k")
    look.page.get_by_role("dialog").get_by_role("combobox").fill(query)
    shown = {"": named["finished"], "brief": "waits for a person"}.get(query, "No thread has")
    look.page.get_by_role("dialog").get_by_text(shown).first.wait_for()
    everywhere(look)


@pytest.mark.parametrize("thread", ["waiting", "finished", "broken"])
def test_a_timeline(look: Look, named: dict[str, str], thread: str) -> None:
    look.open(f"/thread?id={named[thread]}")
    look.page.get_by_role("button", name="Timeline", exact=True).click()
    timeline = look.page.get_by_role("region", name="Timeline")
    timeline.get_by_role("option", selected=True).wait_for(state="attached")
    look.page.get_by_role("button", name="Verify", exact=True).click()
    look.page.get_by_role("link", name="verified").wait_for()
    everywhere(look)
    timeline.get_by_role("button", name="Show as a table").click()
    timeline.get_by_role("table").wait_for()
    everywhere(look, ".timeline")
