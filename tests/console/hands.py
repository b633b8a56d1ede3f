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


HANDS: dict[str, Callable[[Page], Hands]] = {"mouse": Mouse, "keyboard": Keyboard}
