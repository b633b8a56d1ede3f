"""Ways to use a page: with a mouse, or with a keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from playwright.sync_api import Locator, Page, expect

MOST_TABS = 200


class Hands(Protocol):
    """Actions of a person on a page."""

    def press(self, control: Locator) -> None:
        """Press a button, or follow a link."""

    def write(self, field: Locator, text: str) -> None:
        """Put text into a field."""

    def pick(self, tree: Locator, row: Locator) -> None:
        """Select a row of a tree."""

    def choose(self, menu: Locator, item: str) -> None:
        """Open the menu of a button, and choose an item."""


class Mouse:
    """A person with a mouse."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, control: Locator) -> None:
        control.click()

    def write(self, field: Locator, text: str) -> None:
        field.fill(text)

    def pick(self, tree: Locator, row: Locator) -> None:
        row.click()

    def choose(self, menu: Locator, item: str) -> None:
        menu.click()
        self.page.get_by_role("menuitem", name=item).click()


class Keyboard:
    """A person with a keyboard, who moves between controls with the Tab key."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def _go_to(self, control: Locator) -> None:
        expect(control).to_be_visible()
        for _ in range(MOST_TABS):
            if control.evaluate("(control) => control === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the tabulator does not reach {control}")

    def press(self, control: Locator) -> None:
        self._go_to(control)
        self.page.keyboard.press("Enter")

    def write(self, field: Locator, text: str) -> None:
        self._go_to(field)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def pick(self, tree: Locator, row: Locator) -> None:
        self._go_to(tree)
        self.page.keyboard.press("Home")
        for _ in range(MOST_TABS):
            if row.get_attribute("aria-selected") == "true":
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"arrows do not reach {row}")

    def choose(self, menu: Locator, item: str) -> None:
        self.press(menu)
        entry = self.page.get_by_role("menuitem", name=item)
        for _ in range(MOST_TABS):
            if entry.evaluate("(entry) => entry === document.activeElement"):
                self.page.keyboard.press("Enter")
                return
            self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"arrows do not reach {item}")


def checkpoint_menu(page: Page) -> Locator:
    """Return the button with the less frequent actions on the shown checkpoint."""
    return page.get_by_role("button", name="More on the checkpoint")


def thread_menu(page: Page) -> Locator:
    """Return the button with the less frequent actions on the shown thread."""
    return page.get_by_role("button", name="More on the thread")


HANDS: dict[str, Callable[[Page], Hands]] = {"mouse": Mouse, "keyboard": Keyboard}
