"""The palette finds threads, pages and actions: by the keyboard, with a mouse, on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser import Look, looking
from tests.console.conftest import ConsoleServer, Looking
from tuskpoint import Client

HOSTILE = '"><img src=x onerror=alert(1)>\u202e\x1b'


@pytest.fixture(scope="module", autouse=True)
def threads(server: ConsoleServer) -> None:
    with Client(server.target) as client:
        for name in ("invoice 1", "Invoice 2", "parcel", f"hostile {HOSTILE}"):
            client.save(name, {"n": 1}, summary=f"saved {name[:9]}")


@pytest.fixture
def opened(look: Look) -> Look:
    """The palette on the page of a thread."""
    look.open("/thread?id=parcel")
    expect(look.page.get_by_role("button", name="Fork")).to_be_visible()
    look.page.keyboard.press("Control+k")
    return look


def field(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Search or jump").get_by_role("combobox")


def options(page: Page, group: str = "") -> Locator:
    found = page.get_by_role("listbox", name="Found")
    return (found.get_by_role("group", name=group) if group else found).get_by_role("option")


def active(page: Page) -> Locator:
    """Return the option that Enter chooses, as a screen reader hears of it."""
    named = field(page).get_attribute("aria-activedescendant")
    return page.locator(f"[id='{named}'][aria-selected=true]")


def test_it_opens_the_first_thread_with_the_words(opened: Look) -> None:
    page = opened.page
    page.keyboard.type("INV 2")
    expect(options(page, "Threads")).to_have_text(["Invoice 2now"])
    expect(active(page)).to_contain_text("Invoice 2")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Invoice 2 · TuskPoint")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_threads_are_listed_latest_first(opened: Look, client: Client) -> None:
    page = opened.page
    page.keyboard.press("Escape")
    client.save("invoice 1", {"n": 2})
    page.keyboard.press("Control+k")
    page.keyboard.type("invoice")
    expect(options(page, "Threads")).to_have_count(2)
    expect(options(page, "Threads").first).to_contain_text("invoice 1")


def test_it_opens_a_page(opened: Look) -> None:
    page = opened.page
    page.keyboard.type("snapshots")
    expect(active(page)).to_have_text("Snapshotsgs")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Snapshots · TuskPoint")


def test_it_starts_an_action_and_returns_the_focus_to_the_page(opened: Look) -> None:
    page = opened.page
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tree = page.get_by_role("listbox")
    tree.focus()
    page.keyboard.press("Control+k")
    expect(options(page, "This checkpoint").first).to_have_text("Forkf")
    page.keyboard.type("label")
    expect(active(page)).to_have_text("Labell")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Label")).to_be_visible()
    page.keyboard.press("Control+k")  # not over a dialog
    expect(page.get_by_role("dialog")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(tree).to_be_focused()


def test_it_starts_an_action_of_the_thread(opened: Look) -> None:
    opened.page.keyboard.type("delete")
    expect(options(opened.page, "This thread")).to_have_text(["Delete"])
    opened.page.keyboard.press("Enter")
    expect(opened.page.get_by_role("dialog", name="Delete the thread")).to_be_visible()


def test_it_lists_the_keys(opened: Look) -> None:
    opened.page.keyboard.type("keys")
    opened.page.keyboard.press("Enter")
    expect(opened.page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_arrows_go_around_and_the_last_entry_searches(opened: Look) -> None:
    page = opened.page
    page.keyboard.type("copy")
    expect(active(page)).to_contain_text("Copy the ID")
    page.keyboard.press("ArrowUp")
    expect(active(page)).to_have_text("Search for “copy” in what happened")
    page.keyboard.press("ArrowDown")
    expect(active(page)).to_contain_text("Copy the ID")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Search: copy · TuskPoint")


def test_a_mouse_chooses(look: Look) -> None:
    look.open("/threads")
    page = look.page
    page.get_by_role("button", name="Search or jump").click()
    expect(field(page)).to_be_focused()
    option = options(page, "Threads").filter(has_text="parcel")
    option.hover()
    expect(option).to_have_attribute("aria-selected", "true")
    option.click()
    expect(page).to_have_title("parcel · TuskPoint")


def test_it_works_on_a_phone(look_at: Looking) -> None:
    with look_at(width=375, height=760) as look:
        look.open("/operations")
        look.page.get_by_role("button", name="Search or jump").click()
        field(look.page).fill("parcel")
        look.fits()
        options(look.page, "Threads").click()
        expect(look.page).to_have_title("parcel · TuskPoint")


def test_it_opens_from_a_field_and_the_field_keeps_its_text(look: Look) -> None:
    look.open("/search")
    words = look.page.get_by_label("What happened, in plain words")
    words.fill("asked")
    words.press("Control+k")
    look.page.keyboard.type("x")
    look.page.keyboard.press("Escape")
    expect(words).to_be_focused()
    expect(words).to_have_value("asked")


def test_names_are_text(opened: Look) -> None:
    opened.page.keyboard.type("onerror")
    thread = options(opened.page, "Threads")
    expect(thread).to_contain_text("<img src=x")
    assert not set(thread.inner_text()) & set("\u202e\x1b")
    opened.accessible()
    opened.page.keyboard.press("Enter")
    expect(opened.page.get_by_role("heading", level=1)).to_contain_text("<img src=x")


def test_pages_and_actions_work_while_the_server_is_away(page: Page, tmp_path: Path) -> None:
    with ConsoleServer(tmp_path) as server, looking(page, server.address) as look:
        server.start()
        with Client(server.target) as client:
            client.save("kept", {"n": 1}, summary="kept")
        look.open("/thread?id=kept")
        expect(page.get_by_role("button", name="Fork")).to_be_visible()
        look.allows_failures = True
        server.kill()
        page.keyboard.press("Control+k")
        note = page.get_by_text("The server does not answer, so threads are missing here.")
        expect(note).to_be_visible()
        look.accessible("dialog")
        page.keyboard.type("fork")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="Fork from here")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        page.keyboard.type("kept")
        expect(note).to_be_visible()
        server.start()
        expect(options(page, "Threads")).to_contain_text("kept")
        expect(note).to_have_count(0)


def test_threads_are_looked_through_page_by_page(
    look: Look, server: ConsoleServer, client: Client
) -> None:
    for number in range(110):
        client.save(f"later {number}", {})
    look.open("/threads")
    look.page.locator("a.row").first.wait_for()
    sizes: list[bytes | None] = []
    look.page.on(
        "request",
        lambda call: sizes.append(call.post_data_buffer) if "ListThreads" in call.url else None,
    )
    look.page.keyboard.press("Control+k")
    expect(options(look.page, "Threads")).to_have_count(8)
    assert len(sizes) == 1
    look.page.keyboard.type("parcel")
    expect(options(look.page, "Threads")).to_contain_text("parcel")
    assert len(sizes) == 2
    look.page.keyboard.press("Enter")
    expect(look.page).to_have_title("parcel · TuskPoint")


def test_a_palette_that_closes_cancels_its_call(look: Look) -> None:
    look.open("/operations")
    expect(look.page.get_by_role("heading", level=1)).to_be_visible()
    look.page.route("**/ListThreads", lambda call: None)  # no answer
    with look.page.expect_request("**/ListThreads"):
        look.page.keyboard.press("Control+k")
    with look.page.expect_event("requestfailed") as failed:
        look.page.keyboard.press("Escape")
    assert failed.value.url.endswith("/ListThreads")
    look.page.unroute("**/ListThreads")
