"""Actions on a checkpoint and a thread: menus with the keyboard, and keys without a menu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.asking_agent import Agent
from tests.console.browser import Look
from tests.console.conftest import Looking
from tests.console.hands import checkpoint_menu, thread_menu
from tuskpoint import Client

DIALOGS = {
    "f": "Fork from here",
    "r": "Roll back to here",
    "e": "Edit and save",
    "l": "Label",
    "h": "Hand off",
    "s": "Capture in a snapshot",
}
"""Titles of the dialogs that keys open."""


@pytest.fixture
def thread(client: Client, request: pytest.FixtureRequest) -> str:
    """A thread of two checkpoints."""
    name: str = request.node.name
    for plan in ("read", "write"):
        client.save(name, {"plan": plan}, summary=f"planned to {plan}")
    return name


def open_thread(look: Look, thread: str) -> None:
    look.open(f"/thread?id={thread}")
    expect(checkpoint_menu(look.page)).to_be_visible()


def clipboard(page: Page) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def place(part: Locator) -> Any:
    """Return where a part of the page is."""
    box = part.bounding_box()
    assert box
    return box


def items(page: Page) -> Locator:
    return page.get_by_role("menu").get_by_role("menuitem")


@pytest.mark.parametrize("focus", ["nothing", "tree", "button"])
def test_a_key_opens_the_dialog_of_its_action(look: Look, thread: str, focus: str) -> None:
    open_thread(look, thread)
    if focus == "tree":
        look.page.get_by_role("listbox").focus()
    elif focus == "button":
        checkpoint_menu(look.page).focus()
    for key, title in DIALOGS.items():
        look.page.keyboard.press(key)
        dialog = look.page.get_by_role("dialog", name=title)
        expect(dialog).to_be_visible()
        for letter in "fl":  # in a dialog, keys are text or nothing
            look.page.keyboard.press(letter)
        expect(look.page.get_by_role("dialog")).to_have_count(1)
        look.page.keyboard.press("Escape")
        expect(look.page.get_by_role("dialog")).to_have_count(0)


def test_the_key_of_a_dialog_is_not_typed_into_its_field(look: Look, thread: str) -> None:
    open_thread(look, thread)
    look.page.keyboard.press("f")
    look.page.keyboard.type("new")
    expect(look.page.get_by_label("ID of the new thread")).to_have_value("new")


def test_keys_compare_and_copy(look: Look, thread: str, client: Client) -> None:
    open_thread(look, thread)
    look.page.keyboard.press("i")
    expect(look.page.get_by_text("Copied the ID of the checkpoint.")).to_be_visible()
    head = client.get_thread(thread).head_checkpoint_id
    assert clipboard(look.page) == head
    look.page.keyboard.press("u")
    expect(look.page.get_by_text("Copied the link to the checkpoint.")).to_be_visible()
    link = clipboard(look.page)
    look.page.keyboard.press("c")
    expect(look.page).to_have_title("What differs · TuskPoint")
    look.page.goto(link)
    expect(look.page.get_by_role("heading", level=2)).to_have_text("planned to write")
    assert parse_qs(urlsplit(look.page.url).query)["checkpoint"] == [head]


def test_the_first_checkpoint_has_no_parent_to_compare_with(look: Look, thread: str) -> None:
    open_thread(look, thread)
    look.page.get_by_role("listbox").get_by_role("option").last.click()
    expect(look.page.get_by_role("heading", level=2)).to_have_text("planned to read")
    checkpoint_menu(look.page).click()
    expect(items(look.page).first).to_be_focused()
    expect(items(look.page).filter(has_text="Compare")).to_have_count(0)
    look.page.keyboard.press("c")
    expect(items(look.page).first).to_be_focused()


def test_a_key_goes_to_the_question(look: Look, agent: Callable[[Any], Agent]) -> None:
    asking = agent({"question": "Proceed?", "options": ["yes", "no"]})
    look.open(f"/thread?id={asking.thread_id}")
    expect(look.page.get_by_role("button", name="yes", exact=True)).to_be_visible()
    look.page.keyboard.press("a")
    options = look.page.get_by_role("group", name="Answer").get_by_role("button")
    expect(options.first).to_be_focused()
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_text("Answered: yes")).to_be_focused()
    look.page.keyboard.press("a")
    expect(look.page.get_by_role("button", name="Change the answer")).to_be_focused()


def test_the_help_lists_every_key_of_the_menu(look: Look, thread: str) -> None:
    open_thread(look, thread)
    checkpoint_menu(look.page).click()
    keys = items(look.page).locator("kbd").all_inner_texts()
    assert len(keys) == items(look.page).count()
    look.page.keyboard.press("?")
    listed = look.page.get_by_role("dialog", name="Keys")
    for key in keys:
        expect(listed.locator("kbd", has_text=key).filter(has_text=key).first).to_be_visible()


def test_arrows_move_through_a_menu(look: Look, thread: str) -> None:
    open_thread(look, thread)
    more = checkpoint_menu(look.page)
    more.focus()
    look.page.keyboard.press("ArrowDown")
    entries = items(look.page)
    expect(entries.first).to_be_focused()
    for key, index in (
        ("ArrowUp", 0),
        ("ArrowDown", 1),
        ("j", 2),
        ("k", 1),
        ("End", -1),
        ("ArrowDown", -1),
        ("Home", 0),
    ):
        look.page.keyboard.press(key)
        expect(entries.nth(index)).to_be_focused()
    selected = look.page.get_by_role("listbox").get_by_role("option", selected=True)
    expect(selected).to_have_attribute("aria-posinset", "1")  # the tree did not move
    look.page.keyboard.press("Escape")
    expect(more).to_be_focused()
    look.page.keyboard.press("ArrowUp")
    expect(entries.last).to_be_focused()
    look.page.keyboard.press("Tab")
    expect(entries).to_have_count(0)
    link = look.page.get_by_role("navigation", name="Parts of the checkpoint").get_by_role("link")
    expect(link.first).to_be_focused()


def test_a_menu_runs_an_item_by_enter_and_by_its_key(look: Look, thread: str) -> None:
    open_thread(look, thread)
    more = checkpoint_menu(look.page)
    more.press("Enter")
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("dialog", name="Edit and save")).to_be_visible()
    look.page.keyboard.press("Escape")
    expect(more).to_be_focused()
    more.press("Enter")
    look.page.keyboard.press("l")
    expect(look.page.get_by_role("dialog", name="Label")).to_be_visible()
    expect(items(look.page)).to_have_count(0)
    look.page.keyboard.press("Escape")
    more.press("Enter")
    look.page.keyboard.press("ArrowDown")
    look.page.keyboard.press("Enter")
    expect(look.page).to_have_title("What differs · TuskPoint")


def test_deletion_is_apart(look: Look, thread: str) -> None:
    open_thread(look, thread)
    thread_menu(look.page).click()
    entries = items(look.page)
    expect(entries).to_have_text(
        [
            "Copy the thread",
            "Capture in a snapshot",
            "Retention",
            "Hide from search",
            "Offers",
            "Copy the ID",
            "Copy the link",
            "Prune",
            "Delete",
        ]
    )
    line = look.page.get_by_role("menu").get_by_role("separator")
    expect(line).to_have_count(1)
    assert place(entries.nth(6))["y"] < place(line)["y"] < place(entries.nth(7))["y"]


@pytest.mark.parametrize("width", [375, 1280])
def test_menus_stay_inside_of_the_window(look_at: Looking, thread: str, width: int) -> None:
    with look_at(width=width) as look:
        open_thread(look, thread)
        for menu in (thread_menu(look.page), checkpoint_menu(look.page)):
            menu.click()
            box = place(look.page.get_by_role("menu"))
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            look.fits()
            look.page.keyboard.press("Escape")


def test_another_page_has_no_keys_of_a_checkpoint(look: Look, thread: str) -> None:
    open_thread(look, thread)
    look.page.keyboard.press("g")
    look.page.keyboard.press("t")
    expect(look.page).to_have_title("Threads · TuskPoint")
    for key in DIALOGS:
        look.page.keyboard.press(key)
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog")).to_have_count(1)
    expect(look.page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_letters_can_be_turned_off(look: Look, thread: str) -> None:
    open_thread(look, thread)
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("button", name="Close")).to_be_focused()
    look.page.get_by_role("checkbox", name="Single letters act").uncheck()
    look.page.keyboard.press("Escape")
    look.page.reload()
    expect(checkpoint_menu(look.page)).to_be_visible()
    for key in ("?", "f", "g", "s", "j"):
        look.page.keyboard.press(key)
    selected = look.page.get_by_role("listbox").get_by_role("option", selected=True)
    expect(selected).to_have_attribute("aria-posinset", "1")
    look.page.keyboard.press("Control+k")
    look.page.keyboard.type("keys")
    look.page.keyboard.press("Enter")
    look.page.get_by_role("checkbox", name="Single letters act").check()
    look.page.keyboard.press("Escape")
    look.page.keyboard.press("f")
    expect(look.page.get_by_role("dialog", name="Fork from here")).to_be_visible()


def test_a_dialog_without_fields_takes_one_enter_and_no_held_one(
    look: Look, thread: str, client: Client
) -> None:
    open_thread(look, thread)
    dialog = look.page.get_by_role("dialog", name="Roll back to here")
    look.page.get_by_role("button", name="Roll back", exact=True).focus()
    look.page.keyboard.down("Enter")
    expect(dialog.get_by_role("button", name="Roll back", exact=True)).to_be_focused()
    look.page.keyboard.down("Enter")  # repeated, as by a key that is held
    expect(dialog).to_be_visible()
    look.page.keyboard.up("Enter")
    assert len(list(client.list(thread, view="entry"))) == 2
    look.page.keyboard.press("Enter")
    expect(look.page.locator(".next-step")).to_contain_text("Rolled thread")
    thread_menu(look.page).click()
    look.page.get_by_role("menuitem", name="Prune").click()
    cancel = look.page.get_by_role("dialog").get_by_role("button", name="Cancel")
    expect(cancel).to_be_focused()


def test_the_palette_acts_on_what_the_page_shows(look: Look, thread: str, client: Client) -> None:
    open_thread(look, thread)
    look.page.keyboard.press("Control+k")
    look.page.keyboard.type("copy the id")
    expect(look.page.get_by_role("listbox", name="Found").get_by_role("option")).to_have_count(3)
    later = client.save(thread, {"plan": "send"}, summary="planned to send")
    expect(look.page.locator("main h2").filter(has_text="planned to send")).to_be_attached()
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_text("Copied the ID of the checkpoint.")).to_be_visible()
    assert clipboard(look.page) == later
