"""The frame around the pages: titles, keys, menus, and how the parts of a page line up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
from playwright.sync_api import expect

from tests.console.asking_agent import Agent
from tests.console.browser import Look
from tests.console.conftest import Looking
from tests.console.hands import thread_menu

# Text beside the focused element that its focus ring covers, or that there is no ring.
COVERED = """() => {
    const element = document.activeElement;
    // Between the last element and the first; and a link that lies over the header on purpose.
    if (element.matches("body, .skip")) return [];
    const style = getComputedStyle(element);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) {
        return [`${element.outerHTML.slice(0, 80)} has no ring`];
    }
    // Letters begin a pixel inside of their box.
    const ring = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth) - 1;
    const box = element.getBoundingClientRect();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const covered = [];
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        const parent = text.parentElement;
        const isClipped = parent.closest(".tree") && !element.closest(".tree");
        const isHidden = !parent.checkVisibility() || parent.matches(".unseen, option");
        if (isClipped || isHidden || element.contains(parent)) continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const {left, right, top, bottom} of range.getClientRects()) {
            const isOver = left < box.right + ring && right > box.left - ring
                && top < box.bottom + ring && bottom > box.top - ring;
            if (isOver && text.data.trim()) {
                covered.push(`the ring of ${element.outerHTML.slice(0, 80)} covers ${text.data}`);
            }
        }
    }
    return covered;
}"""
# For each part of the header: the pixels that the part reaches over the next part, or over the end.
OVERLAPS = """(header) => {
    const parts = [...header.querySelectorAll(".brand, nav a, button")]
        .map((part) => part.getBoundingClientRect());
    return parts.map(({right}, index) => right - (parts[index + 1]?.left ?? innerWidth))
        .filter((over) => over > 0);
}"""
# The upper and lower ends of the fields and buttons of the form with a name.
ENDS = """(form) => [...form.querySelectorAll("input, select, button")]
    .map((control) => control.getBoundingClientRect())
    .map(({top, bottom}) => `${top} to ${bottom}`)"""


def left(look: Look, selector: str) -> float:
    """Return where the text of the first element begins, in pixels from the left."""
    start: float = look.page.locator(selector).first.evaluate(
        "(element) => element.getBoundingClientRect().left"
        " + parseFloat(getComputedStyle(element).paddingLeft)"
    )
    return start


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/", "Threads"),
        ("/thread?id={thread}", "{thread}"),
        ("/thread", "A thread"),
        ("/proof?thread={thread}", "Proof of {thread}"),
        ("/diff?from={thread}&to={thread}", "What differs"),
        ("/search", "Search"),
        ("/search?q=approval", "Search: approval"),
        ("/snapshots", "Snapshots"),
        ("/inbox", "Inbox"),
        ("/inbox?agent=editor", "Inbox of editor"),
        ("/adopt", "Adopt a hand-off"),
        ("/operations", "Operations"),
        ("/nowhere", "Page not found"),
    ],
)
def test_the_title_of_the_tab_names_the_page(look: Look, demo: Any, path: str, title: str) -> None:
    look.open(path.format(thread=demo.WAITING))
    expect(look.page).to_have_title(f"{title.format(thread=demo.WAITING)} · TuskPoint")


def test_the_title_of_the_tab_follows_the_page(look: Look, demo: Any) -> None:
    look.open("/threads")
    look.page.get_by_role("link", name=demo.FINISHED).click()
    expect(look.page).to_have_title(f"{demo.FINISHED} · TuskPoint")
    look.page.go_back()
    expect(look.page).to_have_title("Threads · TuskPoint")


def test_keys_walk_through_all_lists_of_a_page_that_has_no_focus(look: Look, demo: Any) -> None:
    look.open("/threads")
    links = look.page.locator("a.row")
    expect(links).to_have_count(5)
    for index in range(5):
        look.page.keyboard.press("j")
        expect(links.nth(index)).to_be_focused()
    look.page.keyboard.press("k")
    expect(links.nth(3)).to_be_focused()
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", level=1)).to_have_text(demo.FINISHED)


def test_keys_walk_through_a_tree_that_has_no_focus(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.WAITING}")
    rows = look.page.locator("[role=option][aria-posinset]")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    look.page.keyboard.press("j")
    look.page.keyboard.press("j")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    look.page.get_by_role("button", name="Fork", exact=True).focus()
    look.page.keyboard.press("k")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")


def test_two_keys_open_a_page(look: Look, demo: Any) -> None:
    look.open(f"/thread?id={demo.WAITING}")
    heading = look.page.get_by_role("heading", level=1)
    expect(heading).to_be_visible()  # the page takes keys
    for key, title in (
        ("s", "Snapshots"),
        ("i", "Inbox"),
        ("a", "Adopt a hand-off"),
        ("o", "Operations"),
        ("t", "Threads"),
    ):
        look.page.keyboard.press("g")
        look.page.keyboard.press(key)
        expect(heading).to_have_text(title)
    look.page.keyboard.press("s")  # without "g" before it, "s" has no effect
    look.page.keyboard.press("/")
    expect(heading).to_have_text("Search")
    look.page.get_by_label("What happened, in plain words").press("Escape")  # to leave the field
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_keys_work_on_a_box_to_tick_and_are_text_in_a_field(
    look: Look, agent: Callable[[Any], Agent]
) -> None:
    request = {"action_request": {"action": "send", "args": {}}, "config": {"allow_accept": True}}
    look.open(f"/thread?id={agent(request).thread_id}")
    question = look.page.get_by_role("region", name="Questions for a person")
    question.get_by_role("radio").first.check()
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog", name="Keys")).to_be_visible()
    look.page.keyboard.press("Escape")
    look.open("/threads")
    look.page.get_by_role("search").get_by_role("button", name="Filter").click()
    field = look.page.get_by_label("Agent")
    field.focus()
    look.page.keyboard.type("gt?j")
    expect(field).to_have_value("gt?j")


def test_a_menu_closes_on_escape_on_a_click_beside_it_and_under_dialogs(
    look: Look, demo: Any
) -> None:
    look.open(f"/thread?id={demo.FINISHED}")
    more = thread_menu(look.page)
    entry = look.page.get_by_role("menuitem", name="Prune")
    more.click()
    expect(entry).to_be_visible()
    entry.focus()
    look.page.keyboard.press("Escape")
    expect(entry).to_have_count(0)
    expect(more).to_be_focused()
    more.click()
    look.page.get_by_role("heading", level=1).click()
    expect(entry).to_have_count(0)
    more.click()
    entry.focus()
    look.page.keyboard.press("?")
    expect(look.page.get_by_role("dialog", name="Keys")).to_be_visible()
    expect(entry).to_have_count(0)
    look.page.keyboard.press("Escape")
    expect(more).to_be_focused()
    more.click()
    entry.click()
    expect(look.page.get_by_role("dialog", name="Prune")).to_be_visible()
    expect(more).to_have_attribute("aria-expanded", "false")
    look.page.keyboard.press("Escape")
    expect(more).to_be_focused()


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/threads", "a.row"),
        ("/thread?id={thread}", ".values .value"),
        ("/thread?id={thread}&tab=writes", ".value"),
        ("/search?q=approval&agent=a", ".search-filters"),
        ("/adopt", "textarea"),
        ("/proof?thread={thread}", ".chain"),
        ("/diff?from={thread}&to={thread}", ".diff-sides"),
        ("/snapshots", ".empty"),
        ("/inbox?state=all", ".offer"),
        ("/operations", ".operations"),
    ],
)
def test_the_focus_ring_is_seen_and_covers_no_text(
    look: Look, demo: Any, path: str, shown: str
) -> None:
    look.open(path.format(thread=demo.WAITING))
    look.page.locator(shown).first.wait_for()
    covered: set[str] = set()
    for _ in range(40):
        look.page.keyboard.press("Tab")
        covered.update(look.page.evaluate(COVERED))
    assert not covered, "\n".join(covered)


@pytest.mark.parametrize(
    ("path", "form"),
    [("/threads", "search"), ("/snapshots", "form"), ("/inbox", "form")],
)
def test_fields_and_buttons_of_a_form_are_in_one_line(
    look: Look, demo: Any, path: str, form: str
) -> None:
    look.open(path)
    ends = look.page.locator(form).evaluate(ENDS)
    assert len(ends) > 1
    assert len(set(ends)) == 1, ends


@pytest.mark.parametrize("width", [375, 1280])
def test_a_key_of_the_list_of_keys_is_one_box(look_at: Looking, demo: Any, width: int) -> None:
    with look_at(width=width) as look:
        look.open("/threads")
        look.page.get_by_role("heading", level=1).wait_for()
        look.page.keyboard.press("?")
        keys = look.page.get_by_role("dialog", name="Keys").locator("kbd")
        expect(keys.filter(has_text="Home")).to_have_text("Home")
        boxes = keys.evaluate_all("(keys) => keys.map((key) => key.getClientRects().length)")
        assert set(boxes) == {1}
        look.fits()


@pytest.mark.parametrize("width", [375, 1280, 1920])
def test_the_header_the_content_and_the_rows_begin_in_lines(
    look_at: Looking, demo: Any, width: int
) -> None:
    with look_at(width=width) as look:
        look.open("/threads")
        look.page.locator("a.row").first.wait_for()
        assert left(look, ".brand") == left(look, "h1")
        assert left(look, ".brand") <= 24 or width > 1440
        height = "(header) => header.getBoundingClientRect().height"
        assert look.page.locator("header").evaluate(height) == 48
        assert left(look, ".card h2") == left(look, "a.row")
        ends = look.page.evaluate(
            "['.header-side', 'main .card'].map("
            "(part) => document.querySelector(part).getBoundingClientRect().right)"
        )
        assert ends[0] == ends[1]


def test_the_parts_of_the_header_have_room(look: Look, demo: Any) -> None:
    look.open("/threads")
    look.page.locator("a.row").first.wait_for()
    look.page.evaluate("sessionStorage.setItem('tuskpoint.token', 'a token')")
    look.page.reload()  # with the button to sign out
    header = look.page.get_by_role("banner")
    expect(header.get_by_role("button", name="Sign out")).to_be_visible()
    # Whole steps, and both sides of the width from which pages have names.
    for width in (*range(375, 1281, 45), 895, 896, 897):
        look.page.set_viewport_size({"width": width, "height": 850})
        assert header.evaluate(OVERLAPS) == [], width
        look.fits()


@pytest.mark.parametrize(("system", "other"), [("dark", "light"), ("light", "dark")])
def test_one_button_changes_the_theme_and_the_choice_is_kept(
    look: Look, demo: Any, system: Literal["dark", "light"], other: str
) -> None:
    look.page.emulate_media(color_scheme=system)
    look.open("/threads")
    button = look.page.get_by_role("banner").get_by_role("button", name="Theme")
    backgrounds = {}
    for theme in ("system", other, system):
        expect(button).to_have_accessible_name(re.compile(f"^Theme: {theme}"))
        backgrounds[theme] = look.page.evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
        )
        button.press("Enter")
    assert backgrounds["system"] == backgrounds[system] != backgrounds[other]
    button.click()
    look.page.reload()
    expect(button).to_have_accessible_name(re.compile(f"^Theme: {other}"))


def test_the_icon_of_the_tab_is_the_mark_of_the_header(look: Look) -> None:
    look.open("/threads")
    mark = look.page.locator(".brand img")
    expect(mark).to_be_visible()
    icon = look.page.locator("link[rel=icon]").get_attribute("href")
    assert mark.get_attribute("src") == icon
    assert look.page.request.get(f"{look.address}{icon}").headers["content-type"] == "image/svg+xml"


def test_a_hash_is_shown_once(look: Look, demo: Any) -> None:
    look.open(f"/proof?thread={demo.FINISHED}")
    catalog = look.page.get_by_role("region", name="Chain").locator(".chain-step").first
    expect(catalog).to_contain_text("SHA-256")
    shown = catalog.locator("dd code").evaluate_all("(codes) => codes.map((code) => code.title)")
    assert len(shown) == len(set(shown)), shown
    look.open(f"/thread?id={demo.FINISHED}&tab=stored")
    stored = look.page.get_by_role("region", name="Checkpoint", exact=True)
    expect(stored).to_contain_text("SHA-256")
    texts = stored.locator("dl").first.locator("dd code").all_inner_texts()
    assert len(texts) == len(set(texts)), texts


def test_a_phone_shows_threads_before_its_filters(look_at: Looking, demo: Any) -> None:
    with look_at(width=375, height=760) as look:
        look.open("/threads")
        first = look.page.locator("a.row").first
        first.wait_for()
        assert first.evaluate("(row) => row.getBoundingClientRect().top") < 760 / 2.5
        expect(look.page.get_by_label("Agent")).to_be_hidden()
        look.page.get_by_role("search").get_by_role("button", name="Filter").click()
        look.accessible()
        look.fits()
        look.page.get_by_label("Agent").fill("editor")
        look.page.get_by_role("button", name="Apply").click()
        expect(look.page.locator("a.row")).to_have_count(1)
        look.accessible()
        look.fits()


def test_the_operations_page_says_how_often_it_refreshes(look: Look, demo: Any) -> None:
    look.open("/operations")
    expect(look.page.get_by_role("main")).to_contain_text("Refreshes every 5 s")
